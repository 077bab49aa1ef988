"""The panels for groups, label review and the map, and the facts at the top of the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._actions.groups import group_effects
from ..._actions.noise.action import label_noise
from ..._actions.noise.result import LabelNoise
from ..._data.arrays import F64
from ..._data.cells import short
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.grouping import as_text
from ..._tracer.influence import largest
from ..report.parts import with_features
from .places import LABEL, axis, grouping_columns, test_groups, training_groups
from .session import MEAN, Session

MAX_GROUPS = 30
MAX_SLICES = 10
MAX_REFITTED = 30  # groups of which each takes a refit
MAX_POINTS = 1500  # of the map
STRONGEST = 400  # of these, the rows with the largest influence
MAX_SUSPECTS = 50  # on a page of the review
VERDICTS = ("keep", "wrong", "unsure")


def facts(session: Session) -> dict[str, Any]:
    """The facts at the top of the page, and the columns that its lists offer."""
    tracer = session.tracer
    outcomes = session.outcomes
    e = tracer.engine.ensemble
    about: dict[str, Any] = {
        "model": tracer.engine.source.name,
        "loss": loss_names(session),
        "steps": e.n_steps,
        "training_rows": tracer.n_rows,
        "test_rows": session.m,
        "fidelity": {"exact": tracer.fidelity.exact, "verdict": tracer.fidelity.verdict},
        "classes": session.class_texts(),
        "columns": session.train.names,
        "group_columns": [LABEL, *grouping_columns(session)],
        "mean_loss": short(float(session.unit.level(session.loss.mean()))),
        "worst": int(session.rows.chosen[0]),
        "smooth": not e.not_smooth,
    }
    if outcomes.decision is not None:
        about["accuracy"] = float((outcomes.decision == session.codes).mean())
    else:
        assert outcomes.number is not None
        about["mean_error"] = float(np.abs(session.codes - outcomes.number).mean())
    return about


def loss_names(session: Session) -> dict[str, str]:
    """Names of losses: the key of a row's loss, its name, and that of the mean."""
    unit = session.unit
    return {
        "key": "error" if unit.squared else "loss",
        "row": unit.of_row,
        "mean": unit.name,
    }


# ---- groups ----


def groups_panel(session: Session, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Effects of removing groups of training rows on slices of the test rows."""
    by = asked.get("by")
    sliced = asked.get("slices")
    refit = asked.get("refit") is True
    groups = training_groups(session, by)
    slices = None if sliced is None else test_groups(session, sliced)
    if refit and len(groups) > MAX_REFITTED:
        raise InvalidInput(f"{by} has {len(groups)} groups; up to {MAX_REFITTED} are refitted.")
    texts = np.array([as_text(name) for name in groups.names], dtype=object)
    with session.lock:
        found = group_effects(
            session.tracer,
            texts[groups.code],
            session.rows.X,
            session.rows.y,
            None if slices is None else slices.code,
            refit=refit,
        )
    own_order = [found.groups.names.tolist().index(text) for text in texts]
    change = found.in_unit()["refitted" if refit else "predicted"][own_order]  # (groups, slices)
    size = np.abs(np.nan_to_num(change))
    shown = np.sort(np.argsort(-size.max(axis=1), kind="stable")[:MAX_GROUPS])
    columns = np.sort(np.argsort(-found.slices.count, kind="stable")[:MAX_SLICES])
    names = ["all test rows"] if slices is None else [slices.phrase(s) for s in range(len(slices))]
    return {
        "by": by,
        "slices_by": sliced,
        "level": "refitted" if refit else "first order",
        "largest": float(size.max()),
        "slices": [
            {
                "name": short(names[s]),
                "rows": int(found.slices.count[s]),
                "before": float(found.unit.level(found.before[s])),
            }
            for s in columns
        ],
        "groups": [
            {
                "number": int(g),
                "name": short(groups.phrase(g)),
                "rows": int(groups.count[g]),
                "changes": [short(float(change[g, s])) for s in columns],
            }
            for g in shown
        ],
        "left_out": len(groups) - len(shown),
        "slices_left_out": len(found.slices) - len(columns),
    }


# ---- label review ----


def _noise(session: Session) -> LabelNoise:
    with session.lock:
        return session.answers.get("noise", lambda: label_noise(session.tracer))


def review_panel(session: Session, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Training rows with the most surprising labels, and what was said about them."""
    found = _noise(session)
    order = np.argsort(found.label_score, kind="stable")
    offset = asked.get("offset", 0)
    if type(offset) is not int or offset < 0:
        raise InvalidInput(f"offset is {offset!r}; it is a whole number.")
    columns = ("is_label_issue", "label_score", "given_label", "predicted_label")
    lines = []
    for i in order[offset : offset + MAX_SUSPECTS].tolist():
        line = session.train.row(i)
        line |= {name: short(getattr(found, name)[i]) for name in columns}
        lines.append(line | {"verdict": session.verdicts.get(i)})
    return {
        "total": session.tracer.n_rows,
        "flagged": int(found.is_label_issue.sum()),
        "offset": offset,
        "note": short(" ".join(found.notes), 600),
        "reviewed": len(session.verdicts),
        **with_features(session.train, lines),
    }


def set_verdict(session: Session, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Note what a reviewer says about a label; null takes it back."""
    position = asked.get("position")
    verdict = asked.get("verdict")
    if type(position) is not int or not 0 <= position < session.tracer.n_rows:
        raise InvalidInput(f"there is no training row {position!r}.")
    if verdict is None:
        session.verdicts.pop(position, None)
    elif verdict in VERDICTS:
        session.verdicts[position] = verdict
    else:
        raise InvalidInput(f"the verdict is {verdict!r}; it can be {', '.join(VERDICTS)}.")
    return {"reviewed": len(session.verdicts)}


def review_csv(session: Session) -> str:
    """The verdicts on labels as CSV. Texts that a spreadsheet would run get a quote in front."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["train_row", "position", "label", "predicted_label", "verdict"])
    predicted = _noise(session).predicted_label
    for i, verdict in sorted(session.verdicts.items()):
        line = [session.train.row(i)["row"], i, short(session.tracer.y_train[i])]
        line += [short(predicted[i]), verdict]
        writer.writerow([_harmless(value) for value in line])
    return out.getvalue()


def _harmless(value: Any) -> Any:
    formula = isinstance(value, str) and value[:1] in ("=", "+", "@", "-", "\t")
    return f"'{value}" if formula else value


# ---- map ----


def _in_unit(session: Session, position: int, slopes: F64) -> F64:
    """(n,) first-order changes of a loss, or with MEAN of the mean loss, in its unit.

    A test row without any error has no derivative of it: then there are no changes to show."""
    before = session.loss.mean() if position == MEAN else session.loss[position]
    change = slopes * session.tracer.sample_weight
    return np.nan_to_num(session.unit.slope(float(before), change))


def map_panel(session: Session, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Some training rows on a map of two columns: the most influential ones and random ones."""
    position = asked.get("position", MEAN)
    position = MEAN if position == MEAN else session.check_row(position)
    across = axis(session, asked.get("x"))
    down = axis(session, asked.get("y"))
    known = np.isfinite(across.values) & np.isfinite(down.values)
    total = int(known.sum())
    try:
        change = _in_unit(session, position, -session.slopes(position))
    except UnsupportedModel:
        change = np.zeros(session.tracer.n_rows)
    size = np.where(known, np.abs(change), -1.0)
    strong = largest(size, min(STRONGEST, len(size)))
    strong = strong[size[strong] >= 0]
    known[strong] = False
    others = np.flatnonzero(known)
    room = MAX_POINTS - len(strong)
    if len(others) > room:
        others = np.random.default_rng(0).choice(others, room, replace=False, shuffle=False)
    shown = np.concatenate([others, strong[::-1]])  # the strongest are drawn last
    return {
        "x": asked.get("x"),
        "y": asked.get("y"),
        "x_names": across.names,
        "y_names": down.names,
        "training_rows": total,
        "points": [
            [int(i), float(across.values[i]), float(down.values[i]), float(change[i])]
            for i in shown
        ],
        "names": [session.train.row(int(i))["row"] for i in shown],
        "labels": [short(session.tracer.y_train[i]) for i in shown],
    }
