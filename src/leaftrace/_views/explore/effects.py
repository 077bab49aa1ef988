"""Effects of a basket on one test row and on all of them, by first order, refit and retraining.

First order is a sum over the changed rows, with slopes dL/dw_i that are already there:

    sum_i (f_i - 1) w_i dL/dw_i + the same for labels      f: the factor of each weight

It is replaced by the refit (trees fixed, exact), and that by retraining. Controls do the same to
random rows: an effect that random rows have too is no effect of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._actions.effects import LossUnit
from ..._actions.statistics import paired_interval
from ..._data import inputs
from ..._data.arrays import F64
from ..._data.cells import short
from ..._engine.refit import RefittedModel
from ..._model.training_set import TrainingSet
from ..._tracer.label_answers import label_changes
from ..report.outcomes import Outcomes
from .basket import Basket
from .session import MEAN, Session

CONTROLS = 5
KEPT = ("loss", "error", "prediction", "predicted", "correct", "probability")
FIRST_ORDER = "first order"
REFITTED = "refitted"
RETRAINED = "retrained"


def first_order(session: Session, basket: Basket, position: int) -> dict[str, Any]:
    """Changes of the loss of a test row and of the mean loss, to first order."""
    if why := session.tracer.engine.ensemble.not_smooth:
        return {"level": FIRST_ORDER, "missing": short(f"{why}, which has no derivative.")}
    unit = session.unit
    before = session.read(session.before)
    assert before.loss is not None
    row = float(before.loss[position])
    mean = float(before.loss.mean())
    return {
        "level": FIRST_ORDER,
        "row": {
            "before": _essence(session, session.before, position),
            "change": float(unit.slope(row, _first_order_change(session, basket, position))),
        },
        "all": {
            "before": float(unit.level(mean)),
            "change": float(unit.slope(mean, _first_order_change(session, basket, MEAN))),
        },
    }


def _first_order_change(session: Session, basket: Basket, position: int) -> float:
    """The change of one loss, or with MEAN of the mean loss."""
    tracer = session.tracer
    touched = np.flatnonzero(basket.factor != 1)
    step = (basket.factor[touched] - 1) * tracer.sample_weight[touched]
    change = float(step @ session.slopes(position)[touched]) if len(touched) else 0.0
    return change + _labels_change(session, basket, position)


def _labels_change(session: Session, basket: Basket, position: int) -> float:
    """The part of it that comes from other labels, weighted as the rows are after the change."""
    rows = basket.relabelled
    if not len(rows):
        return 0.0
    assert basket.labels is not None
    tracer = session.tracer
    where = slice(None) if position == MEAN else [position]
    X = session.rows.X if position == MEAN else inputs.take_rows(session.rows.X, np.array(where))
    assert session.rows.y is not None
    y = session.rows.y[where]
    with session.lock:
        changes = label_changes(tracer, X, y, rows, basket.labels[rows])
    return float(basket.factor[rows] @ changes)


def refitted(session: Session, basket: Basket, position: int) -> dict[str, Any]:
    """The effect by a refit with the trees fixed."""
    ensemble = session.refitted(basket.hash, basket.refit)
    with session.lock:
        F = session.last_scores.get(basket.hash, lambda: session.scores(ensemble))
    return {"level": REFITTED, **effect(session, F, position)}


def control_change(
    session: Session, basket: Basket, number: int, position: int
) -> tuple[float, float]:
    """Changes of the row's loss and of the mean loss when random rows are changed instead."""
    key = f"{basket.hash} control {number}"
    seed = [int(basket.hash[:8], 16), number]
    random = basket.random_like(np.random.default_rng(seed))
    ensemble = session.refitted(key, random.refit)
    model = RefittedModel(
        session.tracer.engine.source, TrainingSet.unchanged(session.tracer.n_rows), ensemble
    )

    def mean_change() -> float:
        return mean_loss_change(session, session.scores(ensemble))

    with session.lock:
        mean = session.answers.get(("mean", key), mean_change)
        F = model.scores(inputs.take_rows(session.rows.X, np.array([position])))
    return row_loss_change(session, F, position), mean


def control_changes(
    session: Session, basket: Basket, position: int, check: Callable[[], None]
) -> dict[str, list[float]]:
    """Changes by each control. ``check`` is called before each, to end work that nobody waits for."""
    changes = []
    for number in range(CONTROLS):
        check()
        changes.append(control_change(session, basket, number, position))
    return {"row": [c[0] for c in changes], "all": [c[1] for c in changes]}


def mean_loss_change(session: Session, F: F64) -> float:
    """Change of the mean loss of the test rows in its unit, by scores F (m, K) after it."""
    after = session.read(F).loss
    before = session.read(session.before).loss
    assert after is not None
    assert before is not None
    return float(session.unit.level(after.mean()) - session.unit.level(before.mean()))


def row_loss_change(session: Session, F: F64, position: int) -> float:
    """Change of the loss of one test row in its unit, by its scores F (1, K) after it."""
    after = session.read(F, [position]).loss
    before = session.read(session.before[[position]], [position]).loss
    assert after is not None
    assert before is not None
    return float(session.unit.level(after[0]) - session.unit.level(before[0]))


def effect(session: Session, F: F64, position: int) -> dict[str, Any]:
    """The test row before and after, and all test rows, by scores F (m, K) after the change.

    Squared errors are here as their roots, in the unit of the target."""
    unit = session.unit
    before = session.read(session.before)
    after = session.read(F)
    assert before.loss is not None
    assert after.loss is not None
    change = after.loss - before.loss  # (m,)
    return {
        "row": {
            "before": _essence(session, session.before, position),
            "after": _essence(session, F, position),
            "change": float(unit.change(before.loss[position], change[position])),
        },
        "all": {
            "before": float(unit.level(before.loss.mean())),
            "after": float(unit.level(after.loss.mean())),
            "change": float(unit.change(before.loss.mean(), change.mean())),
            "interval": _interval(unit, float(before.loss.mean()), change),
            "better": int((change < 0).sum()),
            "worse": int((change > 0).sum()),
            **_readable(session, before, after),
        },
    }


def _interval(unit: LossUnit, before: float, change: F64) -> list[float] | None:
    """A 95 % interval of the mean change, over test rows like these; None for a single row.

    ``before``: the mean loss."""
    return None if len(change) < 2 else list(unit.interval(before, *paired_interval(change)))


def _readable(session: Session, before: Outcomes, after: Outcomes) -> dict[str, Any]:
    """Numbers that people know: the accuracy, or the mean absolute error in units of the label."""
    if before.decision is None or after.decision is None:
        assert before.number is not None
        assert after.number is not None
        errors = [np.abs(session.codes - x).mean() for x in (before.number, after.number)]
        return {"mean_error": [float(e) for e in errors]}
    own = session.codes
    right = [float((own == o.decision).mean()) for o in (before, after)]
    moved = int((before.decision != after.decision).sum())
    return {"accuracy": right, "decisions_changed": moved}


def _essence(session: Session, F: F64, position: int) -> dict[str, Any]:
    """The prediction for one test row, of scores F (m, K)."""
    facts = session.describe(session.read(F[[position]], [position]), 0)
    return {key: facts[key] for key in KEPT if key in facts}
