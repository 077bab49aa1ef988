"""The result of `data_values`: values with errors and rank intervals, groups, a removal curve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.tables import table
from ..._tracer.exports import as_opendataval, as_pydvl
from ..._tracer.influence import Influence
from ..._tracer.tracer import Tracer
from ..common import Finding
from ..curve import RemovalCurve, removal_curve
from ..effects import LossUnit
from ..stability.moments import Strata, rank_intervals, size_ranks, summary
from .averages import strata_of

_SHOWN = 10  # rows at each end of the table


@dataclass(frozen=True, repr=False)
class DataValues(Finding):
    """Values of the training rows to a validation set. Positive is valuable.

    ``values``     (n,) how far a row, with the weight it has, lowers the mean validation loss in
                   small training sets, to first order
    ``error``      (n,) standard errors, from the spread over the members
    ``influence``  the same as an `Influence`: derivatives, in the paper's sign. It can be saved
    ``by_member``  (members, n) values by each member; NaN for the rows of its bag
    ``bag_sizes``  (members,) number of rows in each bag
    ``unit``       how people read the loss, and tables show the values: of squared errors by how much
                   a row lowers their root (RMSE) over all members, in the unit of the target
    ``mean_loss``  mean validation loss of the members, every size of bags alike
    ``reliability``  rank correlation to expect with the values by as many other bags; 1 is best
    ``asked``      number of members that were requested; None: until ranks were stable
    ``interrupted``  whether Ctrl-C or the time limit ended it
    """

    title: str
    advice: str
    values: F64
    error: F64
    influence: Influence
    by_member: F64
    bag_sizes: Ints
    unit: LossUnit
    mean_loss: float
    reliability: float
    asked: int | None
    interrupted: bool
    _tracer: Tracer

    @property
    def table(self) -> Any:
        """The ten most valuable rows and the ten least valuable ones."""
        return self.ends(_SHOWN)

    def ends(self, k: int) -> Any:
        """The k most valuable rows and then the k least valuable ones, as a table."""
        order = self.order()
        if len(order) > 2 * k:
            order = np.append(order[:k], order[-k:])
        return self._lines(order)

    def order(self, *, worst: bool = False) -> Ints:
        """Positions of all training rows, the most valuable first, or the least (``worst``)."""
        return np.argsort(self.values if worst else -self.values, kind="stable")

    def top(self, k: int = 10, *, worst: bool = False) -> Any:
        """The k most valuable rows, or the least valuable ones, as a table.

        ``rank`` 1 is the most valuable row. From ``rank_low`` to ``rank_high`` the rank is in 90 %
        of the ensembles drawn with replacement from the members.
        """
        if k < 1:
            raise InvalidInput(f"k is {k}; ask for 1 or more rows.")
        return self._lines(self.order(worst=worst)[:k])

    def to_frame(self) -> Any:
        """All rows in the order of training, with the columns of `top`."""
        return self._lines(np.arange(len(self.values)))

    def to_pydvl(self) -> Any:
        """The values as a ValuationResult of pyDVL, with their errors."""
        names = self.influence.train_index
        rows = np.arange(len(self.values))
        return as_pydvl(
            self.values, names, rows, "leaftrace data_values", self.error, len(self.bag_sizes)
        )

    def to_opendataval(self) -> Any:
        """The values as a finished DataEvaluator of OpenDataVal, for its experiments."""
        return as_opendataval(self.values)

    def by(self, groups: Any, *, bins: int = 5) -> Any:
        """Totals and means over groups of training rows, the group of most value a row first.

        ``groups``  a label for each training row, or the name of a column of X_train
        ``bins``    number of groups of about equal size for a column of many numbers

        The total is what the rows are worth one by one: rows that can replace each other are
        worth less together. ``standard_error`` is that of the mean.
        """
        parts = self.influence.tables.train_groups(groups, len(self.values), bins)
        total = parts.sums(self.values[:, None])[:, 0]
        mean = total / parts.count
        known = ~np.isnan(self.by_member)
        sums = parts.sums(np.where(known, self.by_member, 0.0).T).T  # (members, G)
        counts = parts.sums(known.T.astype(float)).T
        with np.errstate(invalid="ignore"):
            error = summary(sums / counts, self._strata)[1]
        order = np.argsort(-mean, kind="stable")
        columns = {
            "group": parts.names,
            "rows": parts.count,
            "total": self._in_unit(total),
            "mean": self._in_unit(mean),
            "standard_error": self._in_unit(error),
        }
        ordered = {name: column[order] for name, column in columns.items()}
        return table(ordered, self._tracer.table_kind)

    def curve(
        self,
        X_hold: Any,
        y_hold: Any = None,
        *,
        best: bool = False,
        counts: Any = None,
        retrain: bool = True,
        draws: int = 3,
        seed: int = 0,
    ) -> RemovalCurve:
        """Loss of held-out rows as rows leave, the least valuable first: see `removal_curve`.

        ``best``     the most valuable first
        ``retrain``  train again at each point; False: refit only, which says little of many rows
        """
        if X_hold is self.influence.tables.test:
            raise InvalidInput(
                "the values are those for these very rows; judge by others than the validation rows."
            )
        return removal_curve(
            self._tracer,
            self.order(worst=not best),
            X_hold,
            y_hold,
            counts=counts,
            retrain=retrain,
            draws=draws,
            seed=seed,
        )

    @property
    def _strata(self) -> Strata:
        return strata_of(self.bag_sizes)

    @cached_property
    def _rank_intervals(self) -> tuple[Ints, Ints]:
        """(n,) lowest and highest ranks of all rows."""
        every = np.arange(len(self.values))
        return rank_intervals(self.by_member, every, self._strata, size=np.asarray)

    def _in_unit(self, values: F64) -> F64:
        """Falls of the mean loss as those of its root, where that is its unit."""
        return self.unit.slope(self.mean_loss, values)

    def _lines(self, rows: Ints) -> Any:
        """The table of these rows."""
        low, high = self._rank_intervals
        names = self.influence.row_columns()
        return table(
            {
                **{name: column[rows] for name, column in names.items()},
                "value": self._in_unit(self.values[rows]),
                "standard_error": self._in_unit(self.error[rows]),
                "rank": size_ranks(self.values, rows),
                "rank_low": low[rows],
                "rank_high": high[rows],
            },
            self._tracer.table_kind,
        )
