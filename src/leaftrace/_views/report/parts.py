"""Parts of a report that actions compute: surprising labels and groups of rows; and hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._actions.groups import GroupEffects, group_effects
from ..._actions.noise.action import label_noise
from ..._adapters.class_names import stored_labels
from ..._data.arrays import F64, Ints
from ..._data.cells import CellTable, CellValue, short
from ..._data.errors import InvalidInput
from ..._data.grouping import groups_of
from ..._data.inputs import row_count
from ..._model.hashes import hash_model, hash_table, hash_values
from ..._tracer.tracer import Tracer
from .cases import MAX_COLUMNS

MAX_ADVICE = 600  # characters of advice, which may quote the data
MAX_GROUPS = 30  # groups shown; more are not refitted either, as each takes one replay
MAX_SLICES = 8  # slices of test rows shown


def noise_part(tracer: Tracer, train: CellTable, count: int) -> dict[str, Any]:
    """The training rows with the most surprising labels. Test rows play no part in it."""
    found = label_noise(tracer)
    worst = np.argsort(found.label_score, kind="stable")[:count]
    columns = ("is_label_issue", "label_score", "given_label", "predicted_label")
    lines = [
        train.row(i) | {name: short(getattr(found, name)[i]) for name in columns}
        for i in worst.tolist()
    ]
    return {
        "flagged": int(found.is_label_issue.sum()),
        "note": short(" ".join(found.notes), MAX_ADVICE),
        "numeric": tracer.classes is None,
        **with_features(train, lines),
    }


def with_features(train: CellTable, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Lines about training rows, each with the values of the first columns."""
    positions = np.array([line["position"] for line in lines], dtype=np.intp)
    cells = train.take(positions)[:, :MAX_COLUMNS]
    for line, values in zip(lines, cells, strict=True):
        line["values"] = [short(v) for v in values]
    return {"columns": train.names[:MAX_COLUMNS], "training_rows": lines}


def check_groups(
    tracer: Tracer, groups: Any, test_groups: Any, X: Any, y: Any, redacted: set[str]
) -> None:
    """Raise an error if groups cannot be made, before the long work."""
    if y is None:
        raise InvalidInput(
            "groups tells how the loss changes, which needs the labels of the test rows; "
            "pass y_test."
        )
    for name, given in (("groups", groups), ("test_groups", test_groups)):
        if isinstance(given, str) and given in redacted:
            raise InvalidInput(
                f"{name} names the column '{given}', which is redacted; "
                "take it out of one of the two."
            )
    groups_of(groups, tracer.X_train, tracer.n_rows, "groups")
    if test_groups is not None:
        groups_of(test_groups, X, row_count(X), "test_groups")


def groups_part(tracer: Tracer, groups: Any, test_groups: Any, X: Any, y: Any) -> dict[str, Any]:
    """Effects of groups on slices: the groups that matter most, the largest slices."""
    refit = len(groups_of(groups, tracer.X_train, tracer.n_rows, "groups")) <= MAX_GROUPS
    found = group_effects(tracer, groups, X, y, test_groups, refit=refit)
    changes = found.in_unit()
    effects = changes["refitted" if refit else "predicted"]  # (groups, slices)
    size = np.abs(np.nan_to_num(effects))
    shown = np.argsort(-size.max(axis=1), kind="stable")[:MAX_GROUPS]
    slices = np.sort(np.argsort(-found.slices.count, kind="stable")[:MAX_SLICES])
    return {
        "refitted": refit,
        "unit": found.unit.name,
        "headline": _headline(found, effects),
        "advice": short(found.advice, MAX_ADVICE),
        "largest": float(size[np.ix_(shown, slices)].max()),
        "slices": [_slice(found, s) for s in slices],
        "groups": [_group(found, changes, g, slices) for g in shown],
        "left_out": len(found.groups) - len(shown),
        "slices_left_out": len(found.slices) - len(slices),
    }


def _headline(found: GroupEffects, effects: F64) -> str:
    """The group that does most harm to a slice, in a few words. ``effects``: (groups, slices)."""
    known = np.where(np.isnan(effects), np.inf, effects)
    g, s = np.unravel_index(known.argmin(), known.shape)
    if not known[g, s] < 0:
        return "none does harm"
    where = "" if len(found.slices) == 1 else f" of {short(found.slices.names[s], 40)}"
    return f"without {short(found.groups.names[g], 40)} the {found.unit.name}{where} falls most"


def _slice(found: GroupEffects, s: int) -> dict[str, CellValue]:
    """A slice of the test rows, with its loss before any change."""
    return {
        "name": short(found.slices.names[s]),
        "rows": int(found.slices.count[s]),
        "before": float(found.unit.level(found.before[s])),
    }


def _group(found: GroupEffects, changes: dict[str, F64], g: int, slices: Ints) -> dict[str, Any]:
    """A group of training rows, with its effects on these slices by each way."""
    effects = [
        {
            "predicted": short(float(changes["predicted"][g, s])),
            "refitted": short(float(changes["refitted"][g, s])),
        }
        for s in slices
    ]
    return {
        "name": short(found.groups.names[g]),
        "rows": int(found.groups.count[g]),
        "effects": effects,
    }


def data_hashes(tracer: Tracer, X: Any, y: Any) -> dict[str, str]:
    """SHA-256 of the model and of all rows, shown or not.

    Labels are hashed as the model stores them: by number where the user gave names for classes."""
    source = tracer.engine.source
    y = stored_labels(source, y)
    return {
        "model": hash_model(tracer.engine.ensemble),
        "training table": hash_table(tracer.X_train),
        "training labels": hash_values(stored_labels(source, tracer.y_train)),
        "training weights": hash_values(tracer.sample_weight),
        "test table": hash_table(X),
        "test labels": "no labels" if y is None else hash_values(y),
    }
