"""Effects of whole groups of training rows on slices of a test set, measured in up to four ways.

For a group g and a slice s, with L_s the mean loss of the slice's test rows:

    predicted    -sum_{i in g} w_i dL_s/dw_i      one backward pass a slice, for any number of groups
    refitted     L_s(refit without g) - L_s       one replay a group, for any number of slices
    path_change  refitted, and what splits do that give way, along a path: see group_path.py
    retrained    L_s(retrained without g) - L_s   one training a group
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._data import inputs
from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.grouping import Groups, as_text, groups_of
from .._data.numbers import change_text
from .._data.progress import duration, progress
from .._data.row_labels import aligned, labels_of
from .._data.tables import table
from .._data.time_limit import TimeLimit
from .._data.wording import words
from .._engine.many_refits import losses_without
from .._engine.refit import AlteredModel
from .._tracer.tracer import Tracer
from .common import Finding, Interruptible, check_tracer, stopping_note
from .effects import NOT_MEASURED, LossUnit, change_columns, shown_effects, unit_of
from .group_path import SoftPath, check_steps


def group_effects(
    tracer: Tracer,
    groups: Any,
    X_test: Any,
    y_test: Any,
    test_groups: Any = None,
    *,
    refit: bool = True,
    path: int = 0,
    retrain: bool = False,
    bins: int = 5,
    time_limit: float | None = None,
) -> GroupEffects:
    """Changes of the loss of each slice of test rows without each group of training rows.

    >>> group_effects(tracer, "age", X_test, y_test, test_groups="sex", retrain=True)     # doctest: +SKIP

    ``groups``       a label for each training row, or the name of a column of X_train
    ``X_test, y_test``  the rows whose loss is measured
    ``test_groups``  a label for each test row, or the name of a column of X_test; None: all test
                     rows are one slice
    ``refit``        refit the leaves without each group: exact, with the trees fixed
    ``path``         steps of a path along which the weights of a group go to zero, with soft choices of
                     splits: the refit, and an estimate of what other splits would add, without the
                     noise of retraining. 2 are enough. Each takes as long as training again a few
                     times, so there are none by default
    ``retrain``      train the model again without each group
    ``bins``         number of groups of about equal size for a column of many numbers; if one
                     column makes the groups and the slices, both have the same bins
    ``time_limit``   seconds after which no more model is refitted or trained again

    The first-order sum is a poor estimate for whole groups, and a refit does not see splits that
    only the group would make. Groups with the largest effect known so far come first, and Ctrl-C
    ends the work with those that are finished.
    """
    limit = TimeLimit(time_limit)
    check_tracer(tracer, "group_effects")
    y = test_labels(X_test, y_test)
    rows = training_groups(tracer, groups, bins)
    slices = test_slices(tracer, test_groups, X_test, bins)
    steps = check_steps(path)
    soft_path = SoftPath(tracer, slices, X_test, y, steps) if steps else None
    refit, retrain = inputs.flag(refit, "refit"), inputs.flag(retrain, "retrain")
    if refit or retrain or steps:
        check_classes(tracer, rows)
    before = slice_losses(tracer.engine.unchanged, slices, X_test, y)
    predicted, refitted, path_change, retrained = np.full((4, len(rows), len(slices)), np.nan)
    try:
        predicted[:] = _first_order(tracer, rows, slices, X_test, y)
    except UnsupportedModel:  # leaves that jump have no first order, but can be refitted
        if not (refit or retrain):
            raise

    def along_path(g: int) -> F64:
        assert soft_path is not None
        change = refitted[g]
        if np.isnan(change).any():
            change = without(tracer.refit, g)
        return change + soft_path.splits_part(rows.rows(g))

    def without(make: Callable[[Ints], AlteredModel], g: int) -> F64:
        return slice_losses(make(rows.rows(g)), slices, X_test, y) - before

    ways = (
        (steps > 0, "path", path_change, along_path),
        (retrain, "retrain", retrained, partial(without, tracer.retrain)),
    )
    with Interruptible() as run:
        if refit:
            order = _by_size(predicted)
            sets = (rows.rows(g) for g in limit.items(order))
            losses = losses_without(tracer.engine, sets, X_test, y)
            losses = progress(losses, len(order), "refit without groups", "group")
            for g, by_row in zip(order, losses, strict=False):
                refitted[g] = slices.means(by_row[:, None])[:, 0] - before
        for wanted, name, changes, change_without in ways:
            if wanted:
                order = _by_size(_last_known(predicted, refitted, path_change, retrained))
                for g in progress(
                    limit.items(order), len(order), f"{name} without groups", "group"
                ):
                    changes[g] = change_without(g)
    unit = unit_of(tracer.engine.criterion)
    found = GroupEffects(
        title=_title(unit, rows, slices),
        advice="",
        groups=rows,
        slices=slices,
        before=before,
        predicted=predicted,
        refitted=refitted,
        path_change=path_change,
        retrained=retrained,
        unit=unit,
        _kind=tracer.table_kind,
    )
    ended = "Interrupted" if run.interrupted else ""
    if limit.passed:
        ended = f"The time limit of {duration(limit.seconds)} ended it"
    return replace(found, advice=_advice(found, ended) + stopping_note(tracer, retrain))


@dataclass(frozen=True, repr=False)
class GroupEffects(Finding):
    """Changes of the mean loss of each slice without each group. NaN: not computed.

    ``groups, slices``   the parts of the training and test rows: names, code (the part of each
                         row), count
    ``before``           (slices,) mean loss of the model as it is
    ``unit``             how people read these losses, and the tables here show them
    ``predicted, refitted, path_change, retrained``  (groups, slices) changes: first order with trees
                         fixed; refitted with trees fixed; along a path with soft splits; retrained
    """

    title: str
    advice: str
    groups: Groups
    slices: Groups
    before: F64
    predicted: F64
    refitted: F64
    path_change: F64
    retrained: F64
    unit: LossUnit
    _kind: str

    @property
    def change(self) -> F64:
        """(groups, slices) changes by the way closest to training again that was computed."""
        return _last_known(self.predicted, self.refitted, self.path_change, self.retrained)

    @property
    def table(self) -> Any:
        """A line for each slice and group; groups with the largest effect on a slice come first.

        Losses that are squared errors are here as their root, in the unit of the target. A group is
        "unclear" if the refit and the one retraining without it have opposite signs."""
        change = np.nan_to_num(self.change)
        g = np.argsort(-np.abs(change), axis=0, kind="stable").T.ravel()
        s = np.repeat(np.arange(len(self.slices)), len(self.groups))
        # The words for changes 0, > 0 and < 0 (the last place) without the group.
        words = np.array(["none", "helpful", "harmful"], dtype=object)
        effect = words[np.sign(change[g, s]).astype(int)]
        effect[(self.refitted * self.retrained)[g, s] < 0] = "unclear"
        ways = self.in_unit()
        if not np.isfinite(self.path_change).any():
            del ways["path_change"]
        columns = change_columns(
            self.unit.level(self.before)[s], {way: v[g, s] for way, v in ways.items()}
        )
        columns["verdict"][np.isfinite(self.retrained[g, s])] = NOT_MEASURED
        return table(
            {
                "slice": self.slices.names[s],
                "test_rows": self.slices.count[s],
                "group": self.groups.names[g],
                "rows": self.groups.count[g],
                "effect": effect,
                **columns,
            },
            self._kind,
        )

    @property
    def shown(self) -> Any:
        return shown_effects(self.table)

    def in_unit(self) -> dict[str, F64]:
        """(groups, slices) changes by each way, in the unit in which people read the loss."""
        ways = {
            way: self.unit.change(self.before, getattr(self, way))
            for way in ("refitted", "path_change", "retrained")
        }
        return {"predicted": self.unit.slope(self.before, self.predicted), **ways}


def test_labels(X: Any, y: Any) -> np.ndarray:
    """Labels of the test rows, of which there must be some."""
    m = inputs.row_count(X)
    if m == 0:
        raise InvalidInput("X_test has no rows; pass at least one test row.")
    return inputs.vector(aligned(y, labels_of(X), "y_test", "X_test"), "y_test", m)


def test_slices(tracer: Tracer, test_groups: Any, X: Any, bins: int) -> Groups:
    """Slices of the test rows; without `test_groups` all of them are one."""
    m = inputs.row_count(X)
    if test_groups is None:
        return Groups(np.array(["all"]), np.zeros(m, np.intp))
    return groups_of(test_groups, X, m, "test_groups", tracer.X_train, bins)


def training_groups(tracer: Tracer, groups: Any, bins: int) -> Groups:
    """Groups of the training rows; there must be two or more."""
    rows = groups_of(groups, tracer.X_train, tracer.n_rows, "groups", bins=bins)
    if len(rows) < 2:
        raise InvalidInput(
            f"all training rows are in the group '{as_text(rows.names[0])}'; pass groups to tell "
            "apart."
        )
    return rows


def check_classes(tracer: Tracer, groups: Groups) -> None:
    """Raise an error if a class would lose all its rows, before hours of work."""
    if tracer.classes is None:
        return
    for label in np.unique(tracer.y_train):
        holders = np.unique(groups.code[tracer.y_train == label])
        if len(holders) == 1:
            raise InvalidInput(
                f"all training rows of the class '{label}' are in the group "
                f"'{as_text(groups.names[holders[0]])}', so there is no model without it; pass "
                f"other groups, or {words().no_refit} for predictions alone."
            )


def slice_losses(model: AlteredModel, slices: Groups, X: Any, y: np.ndarray) -> F64:
    """(slices,) mean loss of each slice of X."""
    return slices.means(model.loss(X, y)[:, None])[:, 0]


def _first_order(tracer: Tracer, groups: Groups, slices: Groups, X: Any, y: np.ndarray) -> F64:
    """(groups, slices) changes to first order, by one backward pass a slice."""
    changes = np.empty((len(groups), len(slices)))
    for s in range(len(slices)):
        part = slices.rows(s)
        influence = tracer.influence(inputs.take_rows(X, part), y[part], reduce="mean")
        changes[:, s] = groups.sums(influence.change)[:, 0]
    return changes


def _last_known(*ways: F64) -> F64:
    """Changes by the last of these ways that was computed."""
    known = ways[0]
    for changes in ways[1:]:
        known = np.where(np.isnan(changes), known, changes)
    return known


def _by_size(changes: F64) -> Ints:
    """The groups, those with the largest change of any slice first."""
    size = np.abs(np.nan_to_num(changes)).max(axis=1)
    return np.argsort(-size, kind="stable")


def _title(unit: LossUnit, groups: Groups, slices: Groups) -> str:
    by_slice = f" by {slices.by}" if slices.by else ""
    by_group = f" by {groups.by}" if groups.by else ""
    return (
        f"Change of the {unit.name} of slices of test rows{by_slice} "
        f"without groups of training rows{by_group}"
    )


def _advice(found: GroupEffects, ended: str) -> str:
    """Advice on the group and the slice where the loss falls most.

    ``ended``: what ended the work before all groups were done; empty if they are.
    """
    refitted = found.refitted
    retrained = found.retrained
    change = found.change
    lowest = np.where(np.isnan(change), np.inf, change)
    g, s = np.unravel_index(lowest.argmin(), lowest.shape)
    name = found.unit.name
    text = f"Every group lowers the {name} of every slice: there is none to leave out."
    if lowest[g, s] < 0:
        text = _largest_fall(found, int(g), int(s), lowest[g, s])
    if np.isfinite(retrained).any():
        text += f" These are changes of {NOT_MEASURED}." if lowest[g, s] >= 0 else ""
    elif np.isfinite(refitted).any():
        text += " Trees are held fixed: the noise of retraining was not measured."
    else:
        text += f" To first order only, which says little of whole groups: {words().do_refit}."
    if ended:
        done = np.isfinite(np.stack([refitted, retrained])[:, :, 0]).sum(axis=1)
        text = (
            f"{ended}: {done[0]} of {len(found.groups)} groups were refitted, "
            f"{done[1]} retrained. {text}"
        )
    return text


def _largest_fall(found: GroupEffects, g: int, s: int, change: float) -> str:
    """Advice on the group g without which the loss of the slice s falls most."""
    way = "predicted"
    if np.isfinite(found.refitted[g, s]):
        way = "refitted"
    if np.isfinite(found.path_change[g, s]):
        way = "along a path, soft splits"
    if np.isfinite(found.retrained[g, s]):
        way = "retrained"
    unit = found.unit
    once = f" ({NOT_MEASURED})" if way == "retrained" else ""
    before = unit.level(found.before[s])
    read_as = unit.slope if way == "predicted" else unit.change
    change = float(read_as(found.before[s], change))
    share = f" ({100 * change / before:+.1f} %)" if before > 0 else ""
    return (
        f"Without the group `{found.groups.phrase(g)}` the {unit.name} of the slice "
        f"`{found.slices.phrase(s)}` falls most: {change_text(change, 3)}{share}, {way}{once}. It was found and "
        "measured on the same test rows: confirm it on others before you leave the group out."
    )
