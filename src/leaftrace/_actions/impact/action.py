"""Deletion requests: how far all predictions and the loss move when some training rows go, for the record.

Scores move three times: to first order along the direction that takes the rows' weights away (one pass for all test
rows), refitted with the trees as they are, and retrained. Probabilities, decisions and losses are read off each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np

from ..._adapters.class_names import given_names, stored_labels
from ..._adapters.versions import versions
from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.files import whole_file
from ..._data.json_values import json_value
from ..._data.progress import progress
from ..._data.tables import table
from ..._data.wording import words
from ..._engine.refit import RetrainedModel
from ..._tracer.tracer import Tracer
from ..common import Effect, Finding, Interruptible, check_tracer, effects_table
from ..hashes import hash_model
from ..readings import Reading, reading
from .audit import data_record, model_record, time_of

_FORMAT = "leaftrace-removal-impact-1"
_SHOWN = 20  # test rows in the table


def removal_impact(
    tracer: Tracer,
    rows: Any,
    X_test: Any,
    y_test: Any = None,
    *,
    retrain: bool = True,
    controls: int = 0,
    seed: int = 0,
    when: datetime | None = None,
) -> RemovalImpact:
    """How far all predictions and the loss move when these training rows (one person's, one source's) go.

    >>> impact = removal_impact(tracer, np.flatnonzero(person == 4711), X_test, y_test)     # doctest: +SKIP
    >>> impact.save("request-4711.json")                                                    # doctest: +SKIP

    ``rows``      positions of the training rows to remove, or a mask
    ``X_test``    rows whose predictions are watched; with ``y_test`` also their loss. None: X_test has the labels (a
                  Pool), or there are none
    ``retrain``   False: first order and refit only, which take no training; nothing is confirmed then
    ``controls``  how many random groups of the same size to remove and retrain for comparison: training again chooses
                  other splits whichever rows go, and this tells how much of a move is that
    ``seed``      of the random groups
    ``when``      the time to put on record; None: now

    Ctrl-C ends it with what is finished. Models whose leaves have no derivatives get no prediction to first order.
    """
    check_tracer(tracer)
    if rows is None or not len(gone := np.unique(inputs.row_numbers(rows, tracer.n_rows))):
        raise InvalidInput(
            "rows is empty; say which training rows are to go, by position or as a mask."
        )
    if inputs.row_count(X_test) == 0:
        raise InvalidInput("X_test has no rows; pass the rows whose predictions are to be watched.")
    if controls and not retrain:
        raise InvalidInput("controls are retrained, so they need retrain=True.")
    m = inputs.row_count(X_test)
    y_test = tracer.engine.source.own_labels(X_test) if y_test is None else y_test
    codes = None if y_test is None else tracer.engine.labels(y_test, m, "y_test")
    time = time_of(when)
    read = reading(tracer)
    scores = {"before": tracer.engine.unchanged.scores(X_test)}
    retrained = None
    control = []
    with Interruptible() as run:
        for name, F, model in progress(
            _ways(tracer, gone, X_test, retrain), 2 + retrain, "removal", "model"
        ):
            scores[name] = F
            retrained = model
        for F in progress(
            _controls(tracer, len(gone), X_test, controls, seed), controls, "controls", "model"
        ):
            control.append(float(moved(read, scores["before"], F).mean()))
    if "refitted" not in scores:
        raise KeyboardInterrupt  # too early: there is nothing to tell
    unit = "probabilities" if read.has_probabilities else "predictions"
    effects = _effects(read, unit, scores, codes)
    source = tracer.engine.source
    audit = {
        "format": _FORMAT,
        "time": time,
        "versions": versions(),
        "model": model_record(tracer),
        "training": data_record(
            tracer.X_train,
            stored_labels(source, tracer.y_train),
            weights=tracer.sample_weight,
            row_names=tracer.train_index,
        ),
        "test": data_record(X_test, stored_labels(source, y_test)),
        "removed": {"count": len(gone), "positions": gone, "row_names": tracer.train_index[gone]},
        "retrained": None if retrained is None else _record(retrained),
        "effects": [asdict(effect) for effect in effects],
        "controls": control,
        "interrupted": run.interrupted,
    }
    if (names := given_names(source)) is not None:
        audit["classes_by_number"] = names
    return RemovalImpact(
        title=f"Without {len(gone):,} of {tracer.n_rows:,} training rows",
        advice=_advice(unit, effects, control, m, run.interrupted),
        rows=gone,
        answers={name: read.response(F) for name, F in scores.items()},
        controls=np.array(control),
        interrupted=run.interrupted,
        _table=table(
            _most_moved(read, scores, inputs.row_index(X_test, m), y_test), tracer.table_kind
        ),
        _effects=tuple(effects),
        _kind=tracer.table_kind,
        _audit=json_value(audit),
    )


@dataclass(frozen=True, repr=False)
class RemovalImpact(Finding):
    """What changes without some training rows.

    ``rows``      positions of the rows removed
    ``answers``   for "before", "predicted", "refitted" and "retrained", as far as computed: class probabilities
                  (m, classes) or predictions (m,) of the test rows
    ``controls``  mean moves when as many random rows go, by retraining
    ``interrupted``  whether Ctrl-C ended it

    In `effects`, moves are absolute, "predicted" is read off scores to first order, and a row's move of several
    probabilities is the largest of them.
    """

    title: str
    advice: str
    rows: Ints
    answers: Mapping[str, F64]
    controls: F64
    interrupted: bool
    _table: Any
    _effects: tuple[Effect, ...]
    _kind: str
    _audit: dict[str, Any]

    @property
    def table(self) -> Any:
        """The test rows that move most: what they got before (the probability of the class first decided for, or the
        prediction) and by how much it changes."""
        return self._table

    @property
    def effects(self) -> Any:
        return effects_table(self._effects, self._kind)

    def audit(self) -> dict[str, Any]:
        """For the file: SHA-256 of training table, labels, weights, test rows, the model before and after, and its
        settings; versions, time, rows removed and the effects. Plain JSON values; what is not a number is None.

        A model's hash is of its trees as their training rows see them (which leaf holds which row, all leaf values);
        tables are hashed by their values, whatever their memory layout. A booster's own matrix is not hashed."""
        return deepcopy(self._audit)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `audit()` as JSON. The file appears whole or not at all."""
        with whole_file(path) as file:
            file.write(json.dumps(self._audit, indent=2, allow_nan=False).encode() + b"\n")


def _ways(
    tracer: Tracer, gone: Ints, X: Any, retrain: bool
) -> Iterator[tuple[str, F64, RetrainedModel | None]]:
    """Scores (m, K) of X without these rows: to first order, refitted, retrained."""
    if not tracer.engine.ensemble.not_smooth:
        away = np.zeros(tracer.n_rows)
        away[gone] = -tracer.sample_weight[gone]
        yield (
            "predicted",
            tracer.engine.unchanged.scores(X) + tracer.engine.score_changes_along(X, away),
            None,
        )
    yield "refitted", tracer.refit(gone).scores(X), None
    if retrain:
        model = tracer.retrain(gone)
        yield "retrained", model.scores(X), model


def _controls(tracer: Tracer, size: int, X: Any, count: int, seed: int) -> Iterator[F64]:
    """Scores (m, K) of X after retraining without as many rows drawn at random."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield tracer.retrain(rng.choice(tracer.n_rows, size, replace=False)).scores(X)


def _record(model: RetrainedModel) -> dict[str, Any]:
    return {
        "sha256": hash_model(model.retrained.open().ensemble),
        "structure_changed": model.structure_changed,
    }


def moved(read: Reading, before: F64, after: F64) -> F64:
    """(m,) how far what the scores (m, K) mean has moved: of several classes, the one that moved most."""
    move = np.abs(read.response(after) - read.response(before))
    return move if move.ndim == 1 else move.max(axis=1)


def _effects(
    read: Reading, unit: str, scores: Mapping[str, F64], codes: F64 | None
) -> list[Effect]:
    start = scores["before"]

    def effect(name: str, before: float, change: Callable[[F64], float]) -> Effect:
        return Effect(
            name, before, **{way: float(change(F)) for way, F in scores.items() if way != "before"}
        )

    effects = [
        effect(f"mean move of {unit}", 0.0, lambda F: moved(read, start, F).mean()),
        effect(f"largest move of {unit}", 0.0, lambda F: moved(read, start, F).max()),
    ]
    if read.classes is not None:
        old = read.decision(start)
        effects.append(
            effect("decisions changed", 0.0, lambda F: float(np.sum(read.decision(F) != old)))
        )
    if codes is not None:
        loss = read.loss.value(start, codes).mean()
        effects.append(
            effect("mean loss", float(loss), lambda F: read.loss.value(F, codes).mean() - loss)
        )
    return effects


def _most_moved(
    read: Reading, scores: Mapping[str, F64], names: np.ndarray, y: Any
) -> dict[str, Any]:
    """The test rows that move most by the last of the ways, with the probability of the class first decided for."""
    start = scores["before"]
    last = list(scores.values())[-1]
    top = np.argsort(-moved(read, start, last), kind="stable")[:_SHOWN]
    columns: dict[str, Any] = {"test_row": names[top]}
    if y is not None:
        columns["label"] = np.asarray(y).ravel()[top]
    old = read.decision(start)[top]  # of classes
    if read.classes is not None:
        columns |= {
            "decision": read.classes[old],
            "new_decision": read.classes[read.decision(last)[top]],
        }

    def answer(F: F64) -> F64:
        response = read.response(F[top])
        return response if response.ndim == 1 else response[np.arange(len(top)), old]

    columns["before"] = answer(start)
    for way in ("predicted", "refitted", "retrained"):
        columns[way] = (
            answer(scores[way]) - answer(start) if way in scores else np.full(len(top), np.nan)
        )
    return columns


def _advice(
    unit: str, effects: Sequence[Effect], control: Sequence[float], m: int, interrupted: bool
) -> str:
    stopped = "Ctrl-C ended it early. " if interrupted else ""
    (mean, largest, *others) = effects
    if np.isnan(mean.retrained):
        return (
            f"{stopped}With the trees as they are, {unit} move by {mean.refitted:.2g} on average and "
            f"{largest.refitted:.2g} at most. Only training again shows the whole effect: "
            f"{words().do_retrain}."
        )
    text = f"{stopped}Trained again, {unit} move by {mean.retrained:.2g} on average and {largest.retrained:.2g} at most"
    for effect in others:
        counts = effect.of == "decisions changed"
        change = (
            f"{effect.retrained:,.0f} of {m:,}" if counts else f"changes by {effect.retrained:+.2g}"
        )
        text += f"; {effect.of}{':' * counts} {change}"
    if control:
        return f"{text}. Random groups of the same size move {unit} by {min(control):.2g} to {max(control):.2g}."
    if mean.retrained > 2 * mean.refitted:
        return (
            f"{text}. With the trees as they are it would be {mean.refitted:.2g} on average: much of the rest may be "
            f"other splits, chosen whichever rows go. {words().use_controls} compares with random groups."
        )
    return text + "."
