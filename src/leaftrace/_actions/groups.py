"""What whole groups of training rows do to slices of a test set, in three sizes.

For a group g and a slice s, with L_s the mean loss of the slice's test rows:

    predicted   -sum_{i in g} w_i dL_s/dw_i         one backward pass a slice, whatever the number of groups
    refitted    L_s(refit without g) - L_s          one replay a group, whatever the number of slices
    retrained   L_s(retrained without g) - L_s      one training a group
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data import inputs
from .._data.arrays import F64
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.grouping import Groups, groups_of, shown
from .._data.progress import progress
from .._data.tables import table
from .._data.wording import words
from .._tracer.tracer import Tracer
from .common import Finding, Interruptible, check_tracer


def group_effects(
    tracer: Tracer,
    groups: Any,
    X_test: Any,
    y_test: Any,
    test_groups: Any = None,
    *,
    refit: bool = True,
    retrain: bool = False,
    bins: int = 5,
) -> GroupEffects:
    """How the loss of each slice of test rows changes without each group of training rows.

    >>> group_effects(tracer, "age", X_test, y_test, test_groups="sex", retrain=True)     # doctest: +SKIP

    ``groups``       a label for each training row, or the name of a column of X_train
    ``X_test, y_test``  the rows whose loss it is about
    ``test_groups``  a label for each test row, or the name of a column of X_test; None: all test rows are one slice
    ``refit``        refit the leaves without each group: exact, with the trees as they are
    ``retrain``      train the model again without each group
    ``bins``         into how many groups of about equal size a column of many numbers is cut; where a column makes the
                     groups and the slices, both have the same bins

    The linear sum says little of whole groups, and a refit does not see splits that only the group would make. Groups
    of the largest effect known so far come first, and Ctrl-C ends the work with those that are finished.
    """
    check_tracer(tracer)
    m = inputs.row_count(X_test)
    if m == 0:
        raise InvalidInput("X_test has no rows; pass at least one test row.")
    y = inputs.vector(y_test, "y_test", m)
    every = Groups(np.array(["all"]), np.zeros(m, np.intp))
    rows = groups_of(groups, tracer.X_train, tracer.n_rows, "groups", bins=bins)
    slices = (
        every
        if test_groups is None
        else groups_of(test_groups, X_test, m, "test_groups", tracer.X_train, bins)
    )
    if len(rows) < 2:
        raise InvalidInput(
            f"all training rows are in the group '{shown(rows.names[0])}'; pass groups to tell apart."
        )
    if refit or retrain:
        _check_classes(tracer, rows)
    before = slices.means(tracer.engine.unchanged.loss(X_test, y)[:, None])[:, 0]  # (S,)
    predicted, refitted, retrained = np.full((3, len(rows), len(slices)), np.nan)
    try:
        for s in range(len(slices)):
            part = slices.rows(s)
            influence = tracer.influence(inputs.take_rows(X_test, part), y[part], reduce="mean")
            predicted[:, s] = rows.sums(influence.change)[:, 0]
    except UnsupportedModel:  # leaves that jump have no first order, but can be refitted
        if not (refit or retrain):
            raise
    with Interruptible() as run:
        for wanted, make, out in (
            (refit, tracer.refit, refitted),
            (retrain, tracer.retrain, retrained),
        ):
            size = np.abs(np.nan_to_num(_best(predicted, refitted, retrained))).max(axis=1)
            order = np.argsort(-size, kind="stable") if wanted else []
            for g in progress(order, len(order), f"{make.__name__} without groups", "group"):
                out[g] = slices.means(make(rows.rows(g)).loss(X_test, y)[:, None])[:, 0] - before
    kinds = [f" by {part.by}" if part.by else "" for part in (slices, rows)]
    title = f"Change of the loss of slices of test rows{kinds[0]} without groups of training rows{kinds[1]}"
    parts = rows, slices, before, predicted, refitted, retrained
    return GroupEffects(title, _advice(*parts, run.interrupted), *parts, tracer.table_kind)


def _check_classes(tracer: Tracer, groups: Groups) -> None:
    """A classifier needs every class; find out before hours of work."""
    if tracer.classes is None:
        return
    for label in np.unique(tracer.y_train):
        holders = np.unique(groups.code[tracer.y_train == label])
        if len(holders) == 1:
            raise InvalidInput(
                f"all training rows of the class '{label}' are in the group '{shown(groups.names[holders[0]])}', so "
                f"there is no model without it; pass other groups, or {words().no_refit} for predictions alone."
            )


@dataclass(frozen=True, repr=False)
class GroupEffects(Finding):
    """Changes of the mean loss of each slice without each group. NaN: not computed.

    ``groups, slices``   the parts of the training and test rows: names, code (which part each row is in), count
    ``before``           (slices,) mean loss of the model as it is
    ``predicted, refitted, retrained``  (groups, slices) changes
    """

    title: str
    advice: str
    groups: Groups
    slices: Groups
    before: F64
    predicted: F64
    refitted: F64
    retrained: F64
    _kind: str

    @property
    def table(self) -> Any:
        """A line for each slice and group; those that matter most to a slice come first."""
        best = np.nan_to_num(_best(self.predicted, self.refitted, self.retrained))
        g = np.argsort(-np.abs(best), axis=0, kind="stable").T.ravel()
        s = np.repeat(np.arange(len(self.slices)), len(self.groups))
        words = np.array(
            ["none", "helpful", "harmful"], dtype=object
        )  # of changes 0, > 0, < 0 without the group
        return table(
            {
                "slice": self.slices.names[s],
                "test_rows": self.slices.count[s],
                "group": self.groups.names[g],
                "rows": self.groups.count[g],
                "effect": words[np.sign(best[g, s]).astype(int)],
                "before": self.before[s],
                "predicted": self.predicted[g, s],
                "refitted": self.refitted[g, s],
                "retrained": self.retrained[g, s],
            },
            self._kind,
        )


def _best(predicted: F64, refitted: F64, retrained: F64) -> F64:
    """The last that is known."""
    known = np.where(np.isnan(refitted), predicted, refitted)
    return np.where(np.isnan(retrained), known, retrained)


def _advice(
    groups: Groups,
    slices: Groups,
    before: F64,
    predicted: F64,
    refitted: F64,
    retrained: F64,
    interrupted: bool,
) -> str:
    best = np.where(np.isnan(change := _best(predicted, refitted, retrained)), np.inf, change)
    g, s = np.unravel_index(best.argmin(), best.shape)
    text = "Every group lowers the loss of every slice: there is none to leave out."
    if best[g, s] < 0:
        how = (
            "retrained"
            if np.isfinite(retrained[g, s])
            else "refitted"
            if np.isfinite(refitted[g, s])
            else "predicted"
        )
        share = f" ({100 * best[g, s] / before[s]:+.1f} %)" if before[s] > 0 else ""
        text = (
            f"Without the group `{groups.phrase(g)}` the loss of the slice `{slices.phrase(s)}` falls most: "
            f"{best[g, s]:+.3g}{share}, {how}. It was found and measured on the same test rows: confirm it on others "
            "before you leave the group out."
        )
    if np.isnan(refitted).all() and np.isnan(retrained).all():
        text += f" To first order only, which says little of whole groups: {words().do_refit}."
    if interrupted:
        done = np.isfinite(np.stack([refitted, retrained])[:, :, 0]).sum(axis=1)
        text = f"Interrupted: {done[0]} of {len(groups)} groups were refitted, {done[1]} retrained. {text}"
    return text
