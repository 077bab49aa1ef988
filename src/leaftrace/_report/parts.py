"""Parts of a report that come from the actions: suspicious labels, groups; and what it was all made from."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._actions.groups import GroupEffects, group_effects
from .._actions.noise.action import label_noise
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._data.grouping import groups_of
from .._data.inputs import row_count
from .._model.hashes import hash_model, hash_table, hash_values
from .._tracer.tracer import Tracer
from .cases import COLUMNS
from .cells import Grid, Plain, short

SUSPECTS = 30  # unless asked for another number
SENTENCES = 600  # characters of advice, which may quote the data
# shown; more groups than this are not refitted either, one replay each
GROUPS = 30
SLICES = 8


def noise_part(tracer: Tracer, train: Grid, count: int) -> dict[str, Any]:
    """The training rows whose labels are the most suspicious. Test rows have no part in it."""
    found = label_noise(tracer)
    worst = np.argsort(found.label_score, kind="stable")[:count]
    names = ("is_label_issue", "label_score", "given_label", "predicted_label")
    lines = [
        train.row(i) | {name: short(getattr(found, name)[i]) for name in names}
        for i in worst.tolist()
    ]
    return {
        "flagged": int(found.is_label_issue.sum()),
        "note": short(" ".join(found.notes), SENTENCES),
        "numeric": tracer.classes is None,
        **with_features(train, lines),
    }


def with_features(train: Grid, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Lines about training rows with their first columns."""
    cells = train.take(np.array([line["position"] for line in lines], dtype=np.intp))[:, :COLUMNS]
    for line, values in zip(lines, cells, strict=True):
        line["values"] = [short(v) for v in values]
    return {"columns": train.names[:COLUMNS], "training_rows": lines}


def check_groups(
    tracer: Tracer, groups: Any, test_groups: Any, X: Any, y: Any, hidden: set[str]
) -> None:
    """Find out what is wrong before the long work."""
    if y is None:
        raise InvalidInput(
            "groups tells how the loss changes, which needs the labels of the test rows; pass y_test."
        )
    for name, given in (("groups", groups), ("test_groups", test_groups)):
        if isinstance(given, str) and given in hidden:
            raise InvalidInput(
                f"{name} names the column '{given}', which is redacted; take it out of one of the two."
            )
    groups_of(groups, tracer.X_train, tracer.n_rows, "groups")
    if test_groups is not None:
        groups_of(test_groups, X, row_count(X), "test_groups")


def groups_part(tracer: Tracer, groups: Any, test_groups: Any, X: Any, y: Any) -> dict[str, Any]:
    """The table group x slice: the groups that matter most, the largest slices."""
    refit = len(groups_of(groups, tracer.X_train, tracer.n_rows, "groups")) <= GROUPS
    found = group_effects(tracer, groups, X, y, test_groups, refit=refit)
    best = found.refitted if refit else found.predicted  # (groups, slices)
    size = np.abs(np.nan_to_num(best))
    lines = np.argsort(-size.max(axis=1), kind="stable")[:GROUPS]
    slices = np.sort(np.argsort(-found.slices.count, kind="stable")[:SLICES])
    return {
        "refitted": refit,
        "advice": short(found.advice, SENTENCES),
        "largest": float(size[np.ix_(lines, slices)].max()),
        "slices": [
            {
                "name": short(found.slices.names[s]),
                "rows": int(found.slices.count[s]),
                "before": float(found.before[s]),
            }
            for s in slices
        ],
        "groups": [
            {
                "name": short(found.groups.names[g]),
                "rows": int(found.groups.count[g]),
                "effects": _effects(found, g, slices),
            }
            for g in lines
        ],
        "left_out": len(found.groups) - len(lines),
        "slices_left_out": len(found.slices) - len(slices),
    }


def _effects(found: GroupEffects, g: int, slices: Any) -> list[dict[str, Plain]]:
    def at(values: F64, s: int) -> Plain:
        return short(float(values[g, s]))

    return [
        {"predicted": at(found.predicted, s), "refitted": at(found.refitted, s)} for s in slices
    ]


def hashes(tracer: Tracer, X: Any, y: Any) -> dict[str, str]:
    """Of the model and of all rows, shown or not."""
    return {
        "model": hash_model(tracer.engine.ensemble),
        "training table": hash_table(tracer.X_train),
        "training labels": hash_values(tracer.y_train),
        "training weights": hash_values(tracer.sample_weight),
        "test table": hash_table(X),
        "test labels": "no labels" if y is None else hash_values(y),
    }
