"""Cleaning a training set: rows to remove, relabel or reweight.

Changes are tried by retraining, and the outcome is judged on rows that had no part in choosing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.numbers import change_text
from ..._data.progress import progress
from ..._data.tables import table
from ..._data.time_limit import TimeLimit
from ..._data.wording import words
from ..._engine.refit import RetrainedModel
from ..._model.losses import Criterion
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer
from ..common import Finding, Interruptible, check_tracer, measure, stopping_note
from ..effects import Effect, LossUnit, effects_table, in_target_unit, judged, unit_of
from ..statistics import ONE_RETRAINING, interval_in_words, no_gain, paired_interval
from .proposals import has_classes, relabel, remove, reweight
from .rounds import Proposal, Round, Rounds

_TITLE = (
    "Cleaning the training set: each round is chosen on one half of the validation rows and judged on the other; it "
    "is kept if the loss there falls"
)
_MIN_ROWS = 20  # validation rows, and hold-out rows
_DEFAULT_BATCH = {"remove": 0.03, "relabel": 0.03, "reweight": 0.06, "auto": 0.03}


def clean(
    tracer: Tracer,
    X_val: Any,
    y_val: Any,
    X_holdout: Any,
    y_holdout: Any,
    *,
    action: Literal["remove", "relabel", "reweight", "auto"] = "remove",
    batch: float | None = None,
    max_rounds: int = 20,
    cap: float = 2.0,
    seed: int = 0,
    time_limit: float | None = None,
) -> Clean:
    """Remove, relabel or reweight training rows that harm the validation rows, as long as it helps.

    >>> found = clean(tracer, X_val, y_val, X_holdout, y_holdout)                        # doctest: +SKIP
    >>> found.improved, found.rows                                                       # doctest: +SKIP

    In a round, influence on one half of the validation rows chooses a batch of training rows, the
    model is retrained with its own parameters, and the other half decides whether that was a gain.
    Then the halves swap. A batch that was no gain is dropped and all later ones are half as large;
    the third failure is the end. The hold-out rows are used once, at the end: the change of their
    loss decides whether the result is recommended.

    ``X_val, y_val``          rows to choose by, with labels that can be trusted: not training rows
    ``X_holdout, y_holdout``  other such rows, to judge the outcome by
    ``action``      "remove" the harmful rows; "relabel" them as the model would without them;
                    "reweight" all rows by a gradient step; "auto": remove or relabel, whichever a
                    refit finds better in each round
    ``batch``       how much a round changes: a share of the training rows or, to reweight, of their
                    weight. By default 3 % of the rows, 6 % of the weight
    ``max_rounds``  largest number of retrainings
    ``cap``         to reweight: weights stay between 0 and this multiple of those of training
    ``seed``        seed of the random halves of the validation rows
    ``time_limit``  seconds after which no more round is begun, once there is one

    Ctrl-C ends it with the best round so far.
    """
    rounds, y_holdout = make_rounds(
        tracer,
        X_val,
        y_val,
        X_holdout,
        y_holdout,
        action,
        batch,
        max_rounds,
        cap,
        seed,
        TimeLimit(time_limit),
    )
    with Interruptible() as run:
        tried = islice(rounds.run(), int(max_rounds))
        for _ in progress(tried, int(max_rounds), "cleaning", "round", left="at most"):
            pass
    ended = _ended_in_words(rounds, max_rounds, run.interrupted)
    return _result(rounds, X_holdout, y_holdout, ended)


def make_rounds(
    tracer: Tracer,
    X_val: Any,
    y_val: Any,
    X_holdout: Any,
    y_holdout: Any,
    action: str,
    batch: float | None,
    max_rounds: int,
    cap: float,
    seed: int,
    time: TimeLimit,
) -> tuple[Rounds, np.ndarray]:
    """Check the arguments of `clean`: the rounds they ask for, and the labels of the hold-out rows."""
    check_tracer(tracer, "clean")
    tracer.engine.needs_derivatives()
    _check_settings(action, batch, max_rounds, cap)
    y_val = _checked_labels(tracer, X_val, y_val, "val", words().validation_rows)
    y_holdout = _checked_labels(tracer, X_holdout, y_holdout, "holdout", words().holdout_rows)
    rounds = Rounds(
        tracer,
        X_val,
        y_val,
        halves=_halves(len(y_val), seed),
        proposals=_proposals(tracer, action, cap),
        share=_DEFAULT_BATCH[action] if batch is None else batch,
        labels=tracer.y_train if has_classes(tracer) else tracer.y_train.astype(float),
        weights=tracer.sample_weight,
        best=TrainingSet.unchanged(tracer.n_rows),
        time=time,
    )
    return rounds, y_holdout


@dataclass(frozen=True, repr=False)
class Clean(Finding):
    """A cleaned training set, and its effect on rows that had no part in choosing it.

    ``improved``       whether the retrained model is better on the hold-out rows, beyond chance. If
                       not, nothing is recommended: the training set below is the one given, and
                       there is no model
    ``rows``           positions of the training rows to change
    ``without``        those of them to leave out
    ``labels, sample_weight``  (n,) for all training rows: ``tracer.retrain(without, y=labels,
                       sample_weight=sample_weight)`` gives the model
    ``model``          the retrained model
    ``interval``       95 % interval of the change of the hold-out loss, of the paired differences
                       of all rows; None if no round was a gain, so that the hold-out rows were not
                       used
    ``rounds``         all that was tried; ``tracer.retrain(round.change)`` gives the model of any
                       round
    ``interrupted``    whether Ctrl-C or the time limit ended the rounds
    """

    title: str
    advice: str
    improved: bool
    rows: Ints
    without: Ints
    labels: np.ndarray
    sample_weight: F64
    model: RetrainedModel | None
    interval: tuple[float, float] | None
    rounds: tuple[Round, ...]
    interrupted: bool
    _effects: tuple[Effect, ...]
    _unit: LossUnit
    _kind: str

    @property
    def table(self) -> Any:
        """The rounds: the action, how many training rows differ from the given ones, the loss of
        all validation rows, the change of the loss of the half that judged, and whether it was
        kept."""
        return table(self._columns, self._kind)

    @property
    def shown(self) -> Any:
        """The rounds as people read them: with the name of the loss, squared errors as RMSE."""
        columns = self._columns
        before = np.array([r.judged_before for r in self.rounds])
        change = self._unit.change(before, np.array([r.judged for r in self.rounds]))
        columns["judged_change"] = change
        losses = np.array(columns["validation_loss"])
        columns["validation_loss"] = self._unit.level(losses)
        loss = f"validation_{self._unit.name}".replace(" ", "_")
        names = {"rows": "rows_changed", "validation_loss": loss}
        named = {names.get(name, name): values for name, values in columns.items()}
        return table(named, self._kind)

    @property
    def _columns(self) -> dict[str, Any]:
        return {
            "round": list(range(1, len(self.rounds) + 1)),
            "action": [r.action for r in self.rounds],
            "batch": [r.share for r in self.rounds],
            "rows": [r.rows for r in self.rounds],
            "validation_loss": [r.validation_loss for r in self.rounds],
            "judged_change": [r.judged for r in self.rounds],
            "kept": [r.kept for r in self.rounds],
        }

    @property
    def effects(self) -> Any:
        return effects_table(self._effects, self._kind)


def _check_settings(action: str, batch: float | None, max_rounds: int, cap: float) -> None:
    """Check the arguments of `clean` that are no rows."""
    if not inputs.is_name(action, _DEFAULT_BATCH):
        raise InvalidInput(
            f"action is {action!r}; it can be 'remove', 'relabel', 'reweight' or 'auto'."
        )
    if batch is not None and not (inputs.is_number(batch) and 0 < batch <= 0.5):
        raise InvalidInput(
            f"batch is {batch!r}; it is the share of the training rows that a round changes, 0 to "
            "0.5."
        )
    if not inputs.is_whole(max_rounds) or max_rounds < 1:
        raise InvalidInput(f"max_rounds is {max_rounds!r}; allow 1 or more.")
    if not inputs.is_number(cap) or cap < 1:
        raise InvalidInput(
            f"cap is {cap!r}; weights may grow to this multiple of what they are, so 1 or more."
        )


def _checked_labels(tracer: Tracer, X: Any, y: Any, name: str, rows: str) -> np.ndarray:
    """The labels of X. They and the table are checked before the long work.

    ``name``  ending of the names of both arguments
    ``rows``  what the user knows the table by
    """
    m = inputs.row_count(X)
    if m < _MIN_ROWS:
        raise InvalidInput(
            f"{rows} has {m} rows; pass at least {_MIN_ROWS}, or nothing can be told from chance."
        )
    y = tracer.engine.test_labels(X, y, f"y_{name}", f"X_{name}")
    if y is None:
        raise InvalidInput(f"y_{name} is missing; pass the labels of X_{name}.")
    labels = inputs.vector(y, f"y_{name}", m)
    tracer.engine.labels(labels, m, f"y_{name}")
    tracer.engine.source.rows(X)
    return labels


def _halves(m: int, seed: int) -> tuple[Ints, Ints]:
    """Positions of two random halves of m rows."""
    order = inputs.random_numbers(seed).permutation(m)
    return np.sort(order[: m // 2]), np.sort(order[m // 2 :])


def _proposals(tracer: Tracer, action: str, cap: float) -> dict[str, Proposal]:
    """The proposals that a round chooses from, by the name of their action."""
    if action == "auto":
        return {"remove": remove, "relabel": relabel}
    proposals: dict[str, Proposal] = {
        "remove": remove,
        "relabel": relabel,
        "reweight": partial(reweight, trained_weight=tracer.sample_weight, cap=cap),
    }
    return {action: proposals[action]}


def _ended_in_words(rounds: Rounds, max_rounds: int, interrupted: bool) -> str:
    """A sentence about what ended the rounds early, before a space; or nothing."""
    count = len(rounds.rounds)
    if interrupted:
        return f"Interrupted after {count} round{'s' * (count != 1)}. "
    return rounds.time.in_words(count, max_rounds, "rounds") + " " if rounds.time.passed else ""


def _result(rounds: Rounds, X_holdout: Any, y_holdout: np.ndarray, ended: str) -> Clean:
    """Judge the best round on the hold-out rows. ``ended``: what ended the rounds early, in words."""
    interval = None
    effects = ()
    if rounds.model is not None:
        before = rounds.tracer.engine.unchanged.loss(X_holdout, y_holdout)
        interval = paired_interval(rounds.model.loss(X_holdout, y_holdout) - before)
        effects = measured(rounds, rounds.model, X_holdout, y_holdout)
    improved = interval is not None and interval[1] < 0
    unchanged = TrainingSet.unchanged(rounds.best.n)
    recommended = rounds.best if improved else unchanged
    return Clean(
        title=_TITLE,
        advice=ended + _advice(rounds, effects, interval) + stopping_note(rounds.tracer),
        improved=improved,
        rows=recommended.differs_from(unchanged, rounds.labels, rounds.weights),
        without=recommended.removed,
        labels=recommended.all_labels(rounds.labels),
        sample_weight=recommended.all_weights(rounds.weights),
        model=rounds.model if improved else None,
        interval=interval,
        rounds=tuple(rounds.rounds),
        interrupted=bool(ended),
        _effects=_shown(effects, interval, rounds.tracer.engine.criterion),
        _unit=unit_of(rounds.tracer.engine.criterion),
        _kind=rounds.tracer.table_kind,
    )


def _shown(
    effects: Sequence[Effect], interval: tuple[float, float] | None, loss: Criterion
) -> tuple[Effect, ...]:
    """The effects in the target's unit; the first is on the hold-out rows, which have the interval."""
    own = [judged(effect, interval) for effect in effects[:1]]
    others = [replace(effect, better="") for effect in effects[1:]]  # they chose the rows
    return tuple(in_target_unit(effect, loss) for effect in (*own, *others))


def measured(
    rounds: Rounds, model: RetrainedModel, X_holdout: Any, y_holdout: np.ndarray
) -> tuple[Effect, ...]:
    """Effects of the best training set on the hold-out rows and on the validation rows."""
    refitted = rounds.tracer.refit(rounds.best)
    judges = (("hold-out", X_holdout, y_holdout), ("validation", rounds.X, rounds.y))
    return tuple(
        measure(
            rounds.tracer,
            f"loss of the {len(y):,} {name} rows",
            X,
            y,
            rounds.best,
            refitted,
            model,
        )
        for name, X, y in judges
    )


def _advice(
    rounds: Rounds,
    effects: Sequence[Effect],
    interval: tuple[float, float] | None,
) -> str:
    """Advice for the result. ``effects``: the first one is on the hold-out rows."""
    if interval is None:
        why = "no round lowered the loss of rows that did not choose it"
        if not rounds.rounds:
            why = "no round was finished"
        return f"No improvement: {why}. Keep the training set as it is."
    unit = unit_of(rounds.tracer.engine.criterion)
    before = effects[0].before
    change = float(unit.change(before, effects[0].retrained))
    ends = interval_in_words(*unit.interval(before, *interval))
    result = (
        f"retrained, the {unit.name} of the hold-out rows changes by {change_text(change, 3)} "
        f"({change / unit.level(before):+.1%}; {ends}, Student's t of the paired differences)"
    )
    if interval[1] >= 0:
        return f"{no_gain(change)}: {result}. Keep the training set as it is."
    done = _changes(rounds)
    return (
        f"{done[0].upper()}{done[1:]} of {rounds.best.n:,} training rows: {result}. "
        f"{ONE_RETRAINING} {words().look_first}."
    )


def _changes(rounds: Rounds) -> str:
    """The changes of the best training set in words: `remove 12, relabel 3`."""
    best = rounds.best
    relabelled = best.kept & (best.all_labels(rounds.labels) != rounds.labels)
    reweighted = best.kept & (best.all_weights(rounds.weights) != rounds.weights)
    counts = {
        "remove": len(best.removed),
        "relabel": np.count_nonzero(relabelled),
        "reweight": np.count_nonzero(reweighted),
    }
    return ", ".join(f"{action} {count:,}" for action, count in counts.items() if count)
