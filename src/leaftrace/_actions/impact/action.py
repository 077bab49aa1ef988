"""Deletion requests: how far all predictions and the loss move without some training rows.

Scores are computed in three ways: to first order along the direction that takes the rows' weights
away (one pass for all test rows), refitted with the trees fixed, and retrained. Probabilities,
decisions and losses are read from each. The result can be put on record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from ..._adapters.class_names import given_names, stored_labels
from ..._adapters.versions import versions
from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.json_values import json_value
from ..._data.numbers import change_text, number_text
from ..._data.progress import progress
from ..._data.row_labels import row_index, row_numbers
from ..._data.tables import columns_of, table
from ..._data.time_limit import TimeLimit
from ..._data.wording import words
from ..._engine.refit import AlteredModel, RetrainedModel
from ..._model.hashes import hash_model
from ..._model.reading import Reading
from ..._tracer.noise_floor import FEWEST, noise_bounds, noise_marks, size_bound
from ..._tracer.tracer import Tracer
from ..common import Interruptible, check_tracer, stopping_note
from ..effects import Aim, Effect, change_columns, effects_table, in_target_unit, judgement
from .audit import data_record, model_record, utc_time
from .membership import GroupRuns, group_runs, membership_columns
from .result import RemovalImpact

_FORMAT = "leaftrace-removal-impact-2"
_SHOWN = 20  # test rows in the table
_LOSS = "mean loss"
_WAYS = ("predicted", "refitted", "retrained")


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
    time_limit: float | None = None,
) -> RemovalImpact:
    """How far all predictions and the loss move without these training rows.

    The rows may be those of one person or of one source.

    >>> impact = removal_impact(tracer, np.flatnonzero(person == 4711), X_test, y_test)     # doctest: +SKIP
    >>> impact.save("request-4711.json")                                                    # doctest: +SKIP

    ``rows``      training rows to remove: positions, a mask, or a table of ours that has them
    ``X_test``    rows whose predictions are compared; with ``y_test`` also their loss. None: X_test
                  has the labels (a Pool), or there are none
    ``retrain``   False: first order and refit only, which take no training; nothing is confirmed
                  then
    ``controls``  how many random groups of the same size to remove and retrain for comparison:
                  training again chooses other splits whichever rows are removed, and this shows how
                  much of a move, or of the membership test, comes from that
    ``seed``      seed of the random groups
    ``when``      the time to put on record; None: now
    ``time_limit``  seconds after which no more model is trained

    Ctrl-C ends it with the results that are finished. Models whose leaves have no derivatives get
    no prediction to first order.
    """
    limit = TimeLimit(time_limit)
    check_tracer(tracer)
    tracer.engine.needs_separate_rows("removal_impact")
    gone = checked_rows(tracer, rows)
    m = inputs.row_count(X_test)
    if m == 0:
        raise InvalidInput("X_test has no rows; pass the rows whose predictions are to be watched.")
    retrain = inputs.flag(retrain, "retrain")
    if not inputs.is_whole(controls) or controls < 0:
        raise InvalidInput(
            f"controls is {controls!r}; it is a number of retrainings, 0 for none, without random rows."
        )
    if controls and not retrain:
        raise InvalidInput("controls are retrained, so they need retrain=True.")
    y_test = tracer.engine.test_labels(X_test, y_test)
    codes = None if y_test is None else tracer.engine.test_codes(y_test, m, "y_test")
    recorded = utc_time(when)
    reading = tracer.engine.reading.with_numbered_classes()
    runs = _run(tracer, reading, gone, (X_test, codes), retrain, int(controls), seed, limit)
    unit = "probabilities" if reading.has_probabilities else "predictions"
    noise = tracer.noise_moves(X_test, len(gone))
    if noise is None and len(runs.control_moves) >= FEWEST:
        noise = np.array(runs.control_moves)
    effects = _effects(reading, unit, runs.scores, codes, noise)
    shown = tuple(
        in_target_unit(effect, reading.loss) if effect.of == _LOSS else effect for effect in effects
    )
    names = row_index(X_test, m)
    compared = group_runs(tracer, gone, runs.models, runs.scores, codes)
    membership = membership_columns(compared, runs.compared)
    most_moved = _most_moved(reading, runs.scores, names, y_test)
    audit = {
        "format": _FORMAT,
        "time": recorded,
        **_record(tracer, gone, X_test, y_test, runs.retrained),
        "effects": _lines(effects_table(shown)),
        "membership": _lines(membership),
        "controls": runs.controls,
        "interrupted": runs.interrupted,
    }
    class_names = given_names(tracer.engine.source)
    if class_names is not None:
        audit["classes_by_number"] = class_names
    return RemovalImpact(
        title=_title(len(gone), tracer, reading),
        advice=_advice(unit, shown, runs, m) + stopping_note(tracer, retrain),
        rows=gone,
        answers={way: reading.response(F) for way, F in runs.scores.items()},
        controls=np.array(runs.controls),
        interrupted=runs.interrupted,
        _table=table(most_moved, tracer.table_kind),
        _effects=shown,
        _membership=membership,
        _kind=tracer.table_kind,
        _audit=json_value(audit),
    )


def _title(count: int, tracer: Tracer, reading: Reading) -> str:
    """The title of the result, which says what the table below it has before and after."""
    what = "predictions change"
    if reading.has_probabilities:
        what = "the probability of each row's first decision changes"
    return f"Without {count:,} of {tracer.n_rows:,} training rows: how {what}, the largest changes first"


def checked_rows(tracer: Tracer, rows: Any) -> Ints:
    """Positions of the rows to remove, each once."""
    if rows is not None:
        gone = np.unique(row_numbers(rows, tracer.n_rows, labels=tracer.row_labels))
        if len(gone):
            return gone
    raise InvalidInput(
        "rows is empty; say which training rows are to go, by position, as a mask or as a table."
    )


@dataclass
class _Runs:
    """Finished computations of a removal.

    ``scores``       (m, K) of the test rows: "before", and in each way that is finished
    ``models``       the models of "before", "refitted" and "retrained"
    ``controls``     mean moves without random groups of rows
    ``control_moves``  (m, K) changes of the scores by each of them
    ``compared``     the membership test of each of these groups
    ``ended``        what ended it early, in words; empty if nothing did
    """

    scores: dict[str, F64]
    models: dict[str, AlteredModel] = field(default_factory=dict)
    controls: list[float] = field(default_factory=list)
    control_moves: list[F64] = field(default_factory=list)
    compared: list[GroupRuns] = field(default_factory=list)
    ended: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether something ended it early."""
        return bool(self.ended)

    @property
    def retrained(self) -> RetrainedModel | None:
        """The model retrained without the rows."""
        model = self.models.get("retrained")
        return model if isinstance(model, RetrainedModel) else None


def _run(
    tracer: Tracer,
    reading: Reading,
    gone: Ints,
    test: tuple[Any, F64 | None],
    retrain: bool,
    controls: int,
    seed: int,
    limit: TimeLimit,
) -> _Runs:
    """Compute scores of test rows (X, codes) without these rows in each way, then the controls."""
    X, codes = test
    unchanged = tracer.engine.unchanged
    before = unchanged.scores(X)
    runs = _Runs({"before": before}, {"before": unchanged})
    seconds = 0.0
    with Interruptible() as run:
        ways = _scores_without(tracer, gone, X, retrain, limit)
        start = time.monotonic()
        for way, F, model in progress(ways, 2 + retrain, "removal", "model", left=""):
            runs.scores[way] = F
            if model is not None:
                runs.models[way] = model
            seconds = time.monotonic() - start  # that the last of them took: the training
            start = time.monotonic()
        rng = inputs.random_numbers(seed)
        allowed = limit.items(range(controls))
        for _ in progress(allowed, controls, "controls", "model", seconds=seconds):
            drawn = rng.choice(tracer.n_rows, len(gone), replace=False)
            models: dict[str, AlteredModel] = {
                "before": unchanged,
                "refitted": tracer.refit(drawn),
                "retrained": tracer.retrain(drawn),
            }
            scores = {way: model.scores(X) for way, model in models.items()}
            runs.compared.append(group_runs(tracer, drawn, models, scores, codes))
            runs.controls.append(float(moves(reading, before, scores["retrained"]).mean()))
            runs.control_moves.append(scores["retrained"] - before)
    if "refitted" not in runs.scores:
        raise KeyboardInterrupt  # too early: there is no result yet
    runs.ended = "Ctrl-C ended it early. " if run.interrupted else limit.note
    return runs


def _scores_without(
    tracer: Tracer, gone: Ints, X: Any, retrain: bool, limit: TimeLimit
) -> Iterator[tuple[str, F64, AlteredModel | None]]:
    """Scores (m, K) of X without these rows, to first order, refitted and retrained, with the models."""
    if not tracer.engine.ensemble.not_smooth:
        direction = np.zeros(tracer.n_rows)
        direction[gone] = -tracer.sample_weight[gone]
        before = tracer.engine.unchanged.scores(X)
        yield "predicted", before + tracer.engine.score_changes_along(X, direction), None
    refitted = tracer.refit(gone)
    yield "refitted", refitted.scores(X), refitted
    if retrain and limit.allows():
        model = tracer.retrain(gone)
        yield "retrained", model.scores(X), model


def _record(
    tracer: Tracer, gone: Ints, X_test: Any, y_test: Any, retrained: RetrainedModel | None
) -> dict[str, Any]:
    """The part of an audit file about the model, its data and the rows removed.

    Labels are hashed as the model stores them: by number where the user gave names for classes.
    """
    after = None
    if retrained is not None:
        after = {
            "sha256": hash_model(retrained.retrained.open().ensemble),
            "structure_changed": retrained.structure_changed,
        }
    source = tracer.engine.source
    return {
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
        "retrained": after,
    }


def _lines(effects: Any) -> list[dict[str, Any]]:
    """The lines of a table of effects, for the audit file."""
    columns = columns_of(effects)
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def moves(reading: Reading, before: F64, after: F64) -> F64:
    """(m,) absolute change of each answer between scores (m, K).

    Of several class probabilities it is the largest change.
    """
    change = np.abs(reading.response(after) - reading.response(before))
    return change if change.ndim == 1 else change.max(axis=1)


def _effects(
    reading: Reading,
    unit: str,
    scores: Mapping[str, F64],
    codes: F64 | None,
    noise: F64 | None,
) -> list[Effect]:
    """Moves, changed decisions and the change of the loss, in each way.

    ``unit``  what moves, in words
    ``codes`` (m,)  labels as the loss takes them
    ``noise`` (repeats, m, K)  changes of the scores without as many random rows; None: not measured
    """
    start = scores["before"]

    def effect(name: str, before: float, change: Callable[[F64], float]) -> Effect:
        changes = {way: float(change(F)) for way, F in scores.items() if way != "before"}
        mark = ""
        if noise is not None:
            random = np.array([change(start + moved) for moved in noise])
            signed = name == _LOSS
            bound = noise_bounds(random[None])[0] if signed else size_bound(random)
            mark = str(noise_marks(list(changes.values())[-1], bound))
        aim: Aim = "lower" if name == _LOSS else ""
        of_ways = [changes.get(way, np.nan) for way in _WAYS]
        return Effect(name, before, *of_ways, above_noise=mark, better=aim)

    effects = [
        effect(f"mean move of {unit}", 0.0, lambda F: moves(reading, start, F).mean()),
        effect(f"largest move of {unit}", 0.0, lambda F: moves(reading, start, F).max()),
    ]
    if reading.classes is not None:
        old = reading.decision(start)
        effects.append(
            effect("decisions changed", 0.0, lambda F: float(np.sum(reading.decision(F) != old)))
        )
    if codes is not None:
        loss = reading.loss.value(start, codes).mean()
        effects.append(
            effect(_LOSS, float(loss), lambda F: reading.loss.value(F, codes).mean() - loss)
        )
    return effects


def _most_moved(
    reading: Reading, scores: Mapping[str, F64], names: np.ndarray, y: Any
) -> dict[str, Any]:
    """Columns of the test rows that move most by the last of the ways.

    Their answers are predictions, or probabilities of the class first decided for.
    """
    start = scores["before"]
    last = list(scores.values())[-1]
    top = np.argsort(-moves(reading, start, last), kind="stable")[:_SHOWN]
    columns: dict[str, Any] = {"test_row": names[top], "test_position": top}
    if y is not None:
        columns["label"] = np.asarray(y).ravel()[top]
    old = reading.decision(start)[top]  # numbers of classes
    if reading.classes is not None:
        columns["decision"] = reading.classes[old]
        columns["new_decision"] = reading.classes[reading.decision(last)[top]]

    def answer(F: F64) -> F64:
        response = reading.response(F[top])
        return response if response.ndim == 1 else response[np.arange(len(top)), old]

    ways = {way: np.full(len(top), np.nan) for way in _WAYS}
    for way in ways.keys() & scores.keys():
        ways[way] = answer(scores[way]) - answer(start)
    changes = change_columns(answer(start), ways)
    del changes["verdict"]
    return columns | changes


def _advice(unit: str, effects: Sequence[Effect], runs: _Runs, m: int) -> str:
    """Advice for the result. ``unit``: what moves, in words; ``m``: number of test rows."""
    mean, largest, *others = effects
    if np.isnan(mean.retrained):
        return (
            f"{runs.ended}With the trees as they are, {unit} move by {number_text(mean.refitted, 2)} on average "
            f"and {number_text(largest.refitted, 2)} at most. Training again may also choose other splits: "
            f"{words().do_retrain}."
        )
    text = (
        f"{runs.ended}Trained again, {unit} move by {number_text(mean.retrained, 2)} on average and "
        f"{number_text(largest.retrained, 2)} at most"
    )
    for effect in others:
        if effect.of == "decisions changed":
            text += f"; {effect.of}: {effect.retrained:,.0f} of {m:,}"
        else:
            told = judgement(effect, "above the noise of retraining")
            text += f"; {effect.of} changes by {change_text(effect.retrained, 2)} ({told})"
    if runs.controls:
        least = number_text(min(runs.controls), 2)
        most = number_text(max(runs.controls), 2)
        told = "these rows move them more" if mean.above_noise == "yes" else "these rows do no more"
        return f"{text}. Random groups of the same size move {unit} by {least} to {most}: {told}."
    if mean.retrained > 2 * mean.refitted:
        return (
            f"{text}. With the trees as they are it would be {number_text(mean.refitted, 2)} on average: much "
            "of the rest may be other splits, chosen whichever rows go. "
            f"{words().use_controls} compares with random groups."
        )
    return text + "."
