"""Effects of whole groups of training rows on a cluster, to first order and refitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.grouping import Groups, groups_of_values
from ..._data.tables import table
from .refitting import Removal

if TYPE_CHECKING:
    from .tracer import ClusterTracer

GROUPS_AT_ONCE = 8  # partitions keep a copy of their rows for each


def two_or_more_groups(labels: np.ndarray) -> Groups:
    """Groups by a label for each training row; missing labels are a group."""
    groups = groups_of_values(labels)
    if len(groups) < 2:
        raise InvalidInput(
            f"all training rows are in one group ({groups.names.tolist()}); pass groups to tell apart."
        )
    return groups


def group_effects_table(
    tracer: ClusterTracer,
    groups: Groups,
    predicted: F64,
    removal_of: Callable[[Ints], Removal],
    X_test: Any,
    y_test: Any,
    refit: bool,
) -> Any:
    """A line for each group: its rows, and the changes of the mean loss of the test rows without it.

    ``predicted``  (groups,) changes to first order
    """
    columns: dict[str, Any] = {
        "group": groups.names,
        "rows": groups.count,
        "predicted": predicted,
    }
    if refit:
        before = _mean_loss_of_model(tracer, X_test, y_test)
        columns["refitted"] = _losses_without(tracer, groups, removal_of, X_test, y_test) - before
    return table(columns, "")


def _mean_loss_of_model(tracer: ClusterTracer, X_test: Any, y_test: Any) -> float:
    """The mean loss of the test rows by the model as it is."""
    engine = tracer._any_engine
    leaves, offset = engine.source.rows(X_test)
    codes = engine.test_codes(np.asarray(y_test), leaves.shape[1], "y_test")
    scores = engine.ensemble.scores(leaves, offset)
    return float(engine.criterion.value(scores, codes).mean())


def _losses_without(
    tracer: ClusterTracer,
    groups: Groups,
    removal_of: Callable[[Ints], Removal],
    X_test: Any,
    y_test: Any,
) -> F64:
    """(groups,) mean losses of the test rows by refits without each group."""
    members = [groups.rows(g) for g in range(len(groups))]
    local = tracer.local
    if local is not None:
        return np.array([local.refit(without=rows).loss(X_test, y_test).mean() for rows in members])
    assert tracer.engine is not None
    losses: list[float] = []
    for some in _blocks(members):
        removals = [removal_of(rows) for rows in some]
        losses += [
            float(model.loss(X_test, y_test).mean()) for model in tracer.engine.refits(removals)
        ]
    return np.array(losses)


def _blocks(members: Sequence[Ints]) -> list[Sequence[Ints]]:
    starts = range(0, len(members), GROUPS_AT_ONCE)
    return [members[start : start + GROUPS_AT_ONCE] for start in starts]
