"""Loss of held-out rows as training rows are removed in a given order, compared with random rows.

L_k = mean loss of the hold-out rows, refitted (trees fixed) or retrained without the first k rows
of the order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data import inputs
from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .._data.numbers import change_text, number_text
from .._data.progress import progress
from .._data.row_labels import row_numbers
from .._data.tables import table
from .._data.time_limit import TimeLimit
from .._engine.many_refits import losses_without
from .._tracer.influence import Influence
from .._tracer.tracer import Tracer
from .common import Finding, Interruptible, check_tracer, mean_loss
from .effects import LossUnit, unit_of

_SHARES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the training rows


def removal_curve(
    tracer: Tracer,
    order: Influence | Any,
    X_hold: Any,
    y_hold: Any = None,
    *,
    counts: Any = None,
    retrain: bool = False,
    draws: int = 3,
    seed: int = 0,
    time_limit: float | None = None,
) -> RemovalCurve:
    """Loss of held-out rows without the first rows of an order, and without as many random rows.

    >>> harm = tracer.influence(X_val, y_val, reduce="mean")                              # doctest: +SKIP
    >>> lt.plot.removal_curve(lt.removal_curve(tracer, harm, X_hold, y_hold))             # doctest: +SKIP

    ``order``    an Influence of all training rows on *other* rows than these: the most harmful are
                 removed first; or positions of training rows, or a table of ours that has
                 them, in the order of their removal
    ``X_hold, y_hold``  the rows whose mean loss is measured
    ``counts``   numbers of removed rows; None: from 0.2 % to 20 % of the training rows
    ``retrain``  also train the model again at each point, for the order and for random rows
    ``draws``    number of random orders, whose mean is given
    ``seed``     seed of the random orders
    ``time_limit``  seconds after which no more point is computed

    Ctrl-C ends the work with the points that are finished; retraining comes last.
    """
    limit = TimeLimit(time_limit)
    check_tracer(tracer)
    if draws < 1:
        raise InvalidInput(f"draws is {draws}; compare with 1 random order or more.")
    first = _removal_order(tracer, order, X_hold)
    sizes = _sizes(counts, tracer.n_rows, len(first))
    rng = inputs.random_numbers(seed)
    orders = [first, *(rng.permutation(tracer.n_rows) for _ in range(draws))]
    for rows in orders:
        _check_classes(tracer, rows[: sizes[-1]])
    # (refitted and retrained, orders, points)
    losses = np.full((2, 1 + draws, 1 + len(sizes)), np.nan)
    losses[:, :, 0] = mean_loss(tracer, X_hold, y_hold)
    jobs = [(o, i, orders[o][:c]) for i, c in enumerate(sizes, 1) for o in range(1 + draws)]
    with Interruptible() as run:
        sets = (gone for _, _, gone in limit.items(jobs))
        by_row = losses_without(tracer.engine, sets, X_hold, y_hold)
        by_row = progress(by_row, len(jobs), "refit without rows", "model")
        for (o, i, _), found in zip(jobs, by_row, strict=False):
            losses[0, o, i] = found.mean()
        allowed = limit.items(jobs if retrain else [])
        for o, i, gone in progress(allowed, len(jobs), "retrain without rows", "model"):
            losses[1, o, i] = mean_loss(tracer.retrain(gone), X_hold, y_hold)
    refitted, retrained = losses[:, 0]
    random_refitted, random_retrained = losses[:, 1:].mean(axis=1)
    removed = np.append(0, sizes)
    unit = unit_of(tracer.engine.criterion)
    name = f"{unit.name[0].upper()}{unit.name[1:]}"
    if np.isfinite(retrained[1:]).any():
        advice = _advice(removed, retrained, random_retrained, "retrained", unit)
    else:
        advice = _advice(removed, refitted, random_refitted, "refitted", unit)
    if run.interrupted:
        advice = f"Interrupted. {advice}"
    elif limit.passed:
        done = int(np.isfinite(losses[:, :, 1:]).sum())
        wanted = len(jobs) * (2 if retrain else 1)
        advice = f"{limit.in_words(done, wanted, 'models')} {advice}"
    return RemovalCurve(
        title=f"{name} of {inputs.row_count(X_hold):,} held-out rows as training rows leave",
        advice=advice,
        removed=removed,
        refitted=refitted,
        retrained=retrained,
        random_refitted=random_refitted,
        random_retrained=random_retrained,
        interrupted=run.interrupted or limit.passed,
        unit=unit,
        _kind=tracer.table_kind,
    )


@dataclass(frozen=True, repr=False)
class RemovalCurve(Finding):
    """Mean losses of the held-out rows, (points,) each. NaN: not computed.

    ``removed``               numbers of removed training rows; the first point is the model itself
    ``refitted, retrained``   without the first rows of the order
    ``random_refitted, random_retrained``  without as many random rows, mean over the draws
    ``interrupted``           whether Ctrl-C or the time limit ended it
    ``unit``                  how people read these losses: of squared errors as RMSE
    """

    title: str
    advice: str
    removed: Ints
    refitted: F64
    retrained: F64
    random_refitted: F64
    random_retrained: F64
    interrupted: bool
    unit: LossUnit
    _kind: str

    @property
    def table(self) -> Any:
        return table(self._columns, self._kind)

    @property
    def shown(self) -> Any:
        columns = self._columns
        levels = {name: self.unit.level(values) for name, values in columns.items()}
        return table(levels | {"removed": columns["removed"]}, self._kind)

    @property
    def _columns(self) -> dict[str, Any]:
        names = ("removed", "refitted", "random_refitted", "retrained", "random_retrained")
        return {name: getattr(self, name) for name in names}


def _removal_order(tracer: Tracer, order: Any, X_hold: Any) -> Ints:
    """Positions of training rows in the order of their removal."""
    if not isinstance(order, Influence):
        rows = row_numbers(order, tracer.n_rows, "order", labels=tracer.row_labels)
        if not len(rows) or len(np.unique(rows)) < len(rows):
            raise InvalidInput("order must name at least one training row, and each of them once.")
        return rows
    if order.action != "removed" or order.shape[0] != tracer.n_rows or not order.shape[1]:
        raise InvalidInput(
            f"order is an Influence of {order.shape[0]:,} rows '{order.action}' on "
            f"{order.shape[1]:,} queries; expected that of tracer.influence(X_val, y_val) for all "
            f"{tracer.n_rows:,} training rows."
        )
    if order.tables.test is X_hold:
        raise InvalidInput(
            "the order was chosen by these very rows; choose by validation rows and judge by "
            "others."
        )
    change = order.change.mean(axis=1)  # of the query without the row
    return np.argsort(-change if order.lower_is_better is False else change, kind="stable")


def _sizes(counts: Any, n: int, longest: int) -> Ints:
    """Ascending numbers of rows to remove.

    ``n``        number of training rows
    ``longest``  number of rows in the order
    """
    most = min(longest, n - 1)
    if counts is None:
        sizes = np.unique(np.rint(n * np.array(_SHARES)).astype(int))
        sizes = sizes[(sizes > 0) & (sizes <= most)]
        return sizes if len(sizes) else np.array([1])
    sizes = np.unique(np.atleast_1d(np.asarray(counts)))
    whole = sizes.size > 0 and sizes.dtype.kind in "iu"
    if not whole or sizes[0] < 1 or sizes[-1] > most:
        raise InvalidInput(f"counts must be whole numbers of rows to remove, from 1 to {most}.")
    return sizes


def _check_classes(tracer: Tracer, gone: Ints) -> None:
    """Raise an error if a class has no rows left, before the work."""
    if tracer.classes is None:
        return
    left = np.unique(np.delete(tracer.y_train, gone).astype(str))
    if len(left) < len(np.unique(tracer.y_train.astype(str))):
        raise InvalidInput(
            f"without {len(gone):,} rows a class has none left; pass smaller counts."
        )


def _advice(removed: Ints, losses: F64, random_losses: F64, way: str, unit: LossUnit) -> str:
    """Advice from the losses of the order and of random rows. ``way``: refitted or retrained."""
    if np.isnan(losses[1:]).all():
        return "No point was finished."
    name = unit.renamed("loss")
    losses = unit.level(losses)
    random_losses = unit.level(random_losses)
    best = int(np.nanargmin(losses))
    before = losses[0]
    if best == 0:
        return (
            f"The {name} is lowest with all rows ({number_text(before, 4)}, {way}): "
            "there is nothing to remove in this order."
        )
    random = ""
    if not np.isnan(random_losses[best]):
        random = f" (as many random rows: {change_text(random_losses[best] - before, 2)})"
    text = (
        f"The {name} is lowest without the first {removed[best]:,} rows: {number_text(before, 4)} before, "
        f"{change_text(losses[best] - before, 2)} {way}{random}. The point was chosen by the rows that "
        "measured it: confirm it on others."
    )
    if way == "retrained":
        return text
    return text + " Trees are held fixed: retrain=True shows the effect of training again."
