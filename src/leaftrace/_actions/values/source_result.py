"""The result of `source_values`: a value for each source, with its error and what leaving it out does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._data.grouping import Groups
from ..._data.numbers import number_text
from ..._data.tables import table
from ..common import Finding


@dataclass(frozen=True, repr=False)
class SourceValues(Finding):
    """Values of sources of training rows. Positive is valuable.

    ``sources``        (K,) names of the sources
    ``rows``           (K,) number of training rows of each
    ``values``         (K,) Shapley values: what the mean loss falls by as a source joins, in the mean
                       over all orders; they add up to `total`. Squared errors are here as their
                       root (RMSE)
    ``error``          (K,) standard errors; zero where all coalitions were tried
    ``leave_one_out``  (K,) what the loss rises by without the source alone
    ``before, after``  mean loss with nobody's rows, and with all
    ``total``          what all sources together lower the loss by
    ``exact``          whether all coalitions were tried
    ``retrained``      whether models were trained again; otherwise leaves were refitted, trees fixed
    """

    title: str
    advice: str
    sources: NDArray[Any]
    rows: Ints
    values: F64
    error: F64
    leave_one_out: F64
    before: float
    after: float
    exact: bool
    retrained: bool
    _kind: str

    @classmethod
    def of(
        cls,
        groups: Groups,
        values: F64,
        by_pair: F64 | None,
        leave_one_out: F64,
        before: float,
        after: float,
        *,
        loss: str,
        retrain: bool,
        failed: int,
        ended: str,
        note: str,
        kind: str,
    ) -> SourceValues:
        """Put a result together.

        ``by_pair``  (pairs, K) values by pairs of orders; None: exact
        ``loss``     its name
        ``ended``    what ended the work early, in words; empty if nothing did
        """
        error = np.zeros(len(values))
        if by_pair is not None:
            error = by_pair.std(axis=0, ddof=1) / np.sqrt(len(by_pair))
        how = "retrained" if retrain else "refitted, trees fixed"
        orders = "" if by_pair is None else f", {2 * len(by_pair)} random orders"
        title = f"What each of {len(values)} sources lowers the {loss} by ({how}{orders})"
        advice = _advice(groups, values, error, leave_one_out, loss)
        if ended:
            advice = f"{ended}: {2 * len(by_pair if by_pair is not None else [])} orders are finished. {advice}"
        if failed:
            advice += (
                f" Of {failed} coalitions no model can be made, such as those without rows of a class; they count as "
                "nobody's rows."
            )
        return cls(
            title,
            advice + note,
            groups.names,
            groups.count,
            values,
            error,
            leave_one_out,
            before,
            after,
            by_pair is None,
            retrain,
            kind,
        )

    @property
    def total(self) -> float:
        """The fall of the mean loss from nobody's rows to those of all sources."""
        return self.before - self.after

    @property
    def table(self) -> Any:
        """A line for each source, the most valuable first."""
        order = np.argsort(-self.values, kind="stable")
        columns = {
            "source": self.sources,
            "rows": self.rows,
            "value": self.values,
            "standard_error": self.error,
            "per_row": self.values / self.rows,
            "leave_one_out": self.leave_one_out,
        }
        if self.exact:
            del columns["standard_error"]
        return table({name: column[order] for name, column in columns.items()}, self._kind)


def _advice(groups: Groups, values: F64, error: F64, leave_one_out: F64, loss: str) -> str:
    """Advice on the source of least value."""
    worst = int(np.argmin(values))
    name = groups.phrase(worst)
    if values[worst] + 2 * error[worst] < 0:
        text = f"The source `{name}` raises the {loss} by {number_text(-values[worst], 3)}: repair it, or leave it out."
        if leave_one_out[worst] > 0:
            text += f" But without it alone, the {loss} rises: others do not replace it."
    else:
        text = f"No source raises the {loss}; `{name}` lowers it least, by {number_text(values[worst], 3)}."
    return f"{text} It was measured on these rows: confirm it on others before you act on it."
