"""Cleaning a training set: rows to remove, relabel or reweight, tried by retraining and judged on rows that chose
nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.tables import table
from ..._data.wording import words
from ..._engine.refit import RetrainedModel
from ..._tracer.tracer import Tracer
from ..common import (
    Effect,
    Finding,
    Interruptible,
    check_tracer,
    effects_table,
    measure,
    paired_interval,
)
from .proposals import relabel, remove, reweight
from .rounds import Round, Rounds, TrainingSet

_LEAST = 20  # validation rows, and hold-out rows
_BATCH = {"remove": 0.03, "relabel": 0.03, "reweight": 0.06, "auto": 0.03}
_DONE = {"remove": "removed", "relabel": "relabelled", "reweight": "reweighted"}


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
) -> Clean:
    """Removes, relabels or reweights training rows that harm the validation rows, round by round, as long as it helps.

    >>> found = clean(tracer, X_val, y_val, X_holdout, y_holdout)                        # doctest: +SKIP
    >>> found.improved, found.rows                                                       # doctest: +SKIP

    In a round, influence on one half of the validation rows chooses a batch of training rows, the model is retrained
    with its own parameters, and the other half decides whether that was a gain; then the halves change places. A batch
    that was none is dropped and all that follow are half as large; the third is the end. The hold-out rows are looked
    at once, after that: the change of their loss has the last word.

    ``X_val, y_val``          rows to choose by, with labels to be trusted: not training rows
    ``X_holdout, y_holdout``  other such rows, to judge the outcome by
    ``action``      "remove" the harmful rows; "relabel" them as the model would without them; "reweight" all rows by a
                    gradient step; "auto": remove or relabel, whatever a refit finds better in each round
    ``batch``       how much a round changes: a share of the training rows or, to reweight, of their weight. By default
                    3 % of the rows, 6 % of the weight
    ``max_rounds``  retrainings at the most
    ``cap``         to reweight: weights stay between 0 and this multiple of those of training
    ``seed``        of the parting of the validation rows

    Ctrl-C ends with the best round so far.
    """
    check_tracer(tracer)
    tracer.engine.needs_derivatives()
    _check(action, batch, max_rounds, cap)
    y_val = _labels(tracer, X_val, y_val, "val", words().validation_rows)
    y_holdout = _labels(tracer, X_holdout, y_holdout, "holdout", words().holdout_rows)
    order = np.random.default_rng(seed).permutation(len(y_val))
    half = len(order) // 2
    start = TrainingSet.of(tracer)
    proposals = {
        "remove": remove,
        "relabel": relabel,
        "reweight": partial(reweight, first=tracer.sample_weight, cap=cap),
    }
    rounds = Rounds(
        tracer,
        X_val,
        y_val,
        (np.sort(order[:half]), np.sort(order[half:])),
        {
            name: proposals[name]
            for name in (("remove", "relabel") if action == "auto" else (action,))
        },
        _BATCH[action] if batch is None else batch,
        start,
    )
    with Interruptible() as run:
        for _ in progress(islice(rounds.run(), max_rounds), max_rounds, "cleaning", "round"):
            pass
    return _report(rounds, start, (X_holdout, y_holdout), run.interrupted)


@dataclass(frozen=True, repr=False)
class Clean(Finding):
    """A cleaned training set, and what it does to rows that had no part in it.

    ``improved``       whether the retrained model is better on the hold-out rows, beyond chance. If not, nothing is
                       recommended: the training set below is the one given, and there is no model
    ``rows``           positions of the training rows to change
    ``without``        those of them to leave out
    ``labels, sample_weight``  (n,) for all training rows: ``tracer.retrain(without, y=labels,
                       sample_weight=sample_weight)`` gives the model
    ``model``          the retrained model
    ``interval``       95 % interval of the change of the hold-out loss, of the paired differences of all rows; None if
                       no round was a gain, so that the hold-out rows were not looked at
    ``rounds``         all that was tried; ``round.change.retrain(tracer)`` gives the model of any round
    ``interrupted``    whether Ctrl-C ended the rounds
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
    _kind: str

    @property
    def table(self) -> Any:
        """The rounds: what was tried, how many training rows differ with it from the given ones, the loss of all
        validation rows, the change of that of the half that judged, and whether it was kept."""
        columns = {
            "round": list(range(1, len(self.rounds) + 1)),
            "action": [r.action for r in self.rounds],
            "batch": [r.share for r in self.rounds],
            "rows": [r.rows for r in self.rounds],
            "validation_loss": [r.validation_loss for r in self.rounds],
            "judged_change": [r.judged for r in self.rounds],
            "kept": [r.kept for r in self.rounds],
        }
        return table(columns, self._kind)

    @property
    def effects(self) -> Any:
        return effects_table(self._effects, self._kind)


def _check(action: str, batch: float | None, max_rounds: int, cap: float) -> None:
    if action not in _BATCH:
        raise InvalidInput(
            f"action is {action!r}; it can be 'remove', 'relabel', 'reweight' or 'auto'."
        )
    if batch is not None and not 0 < batch <= 0.5:
        raise InvalidInput(
            f"batch is {batch}; it is the share of the training rows that a round changes, 0 to 0.5."
        )
    if max_rounds < 1:
        raise InvalidInput(f"max_rounds is {max_rounds}; allow 1 or more.")
    if not cap >= 1:
        raise InvalidInput(
            f"cap is {cap}; weights may grow to this multiple of what they are, so 1 or more."
        )


def _labels(tracer: Tracer, X: Any, y: Any, name: str, rows: str) -> np.ndarray:
    """Checked before the work, with the table. ``rows``: what the user knows it by."""
    m = inputs.row_count(X)
    if m < _LEAST:
        raise InvalidInput(
            f"{rows} has {m} rows; pass at least {_LEAST}, or nothing can be told from chance."
        )
    y = tracer.engine.source.own_labels(X) if y is None else y
    if y is None:
        raise InvalidInput(f"y_{name} is missing; pass the labels of X_{name}.")
    labels = inputs.vector(y, f"y_{name}", m)
    tracer.engine.labels(labels, m, f"y_{name}")
    tracer.engine.source.rows(X)
    return labels


def _report(
    rounds: Rounds, start: TrainingSet, holdout: tuple[Any, np.ndarray], interrupted: bool
) -> Clean:
    tracer = rounds.tracer
    best = rounds.best
    model = rounds.model
    interval = None
    effects = ()
    if model is not None:
        change = best.change(start)
        refitted = change.refit(tracer)
        differences = model.loss(*holdout) - tracer.engine.unchanged.loss(*holdout)  # (m,)
        interval = paired_interval(differences)
        effects = tuple(
            measure(tracer, f"loss of the {len(y):,} {name} rows", X, y, change, refitted, model)
            for name, X, y in (("hold-out", *holdout), ("validation", rounds.X, rounds.y))
        )
    improved = interval is not None and interval[1] < 0
    given = best if improved else start
    return Clean(
        "Cleaning the training set",
        _advice(rounds, start, effects, interval, interrupted),
        improved,
        given.differs(start),
        np.flatnonzero(given.gone),
        given.y,
        given.weight,
        model if improved else None,
        interval,
        tuple(rounds.rounds),
        interrupted,
        effects,
        rounds.tracer.table_kind,
    )


def _advice(
    rounds: Rounds,
    start: TrainingSet,
    effects: tuple[Effect, ...],
    interval: tuple[float, float] | None,
    interrupted: bool,
) -> str:
    tried = f"{len(rounds.rounds)} round{'s' if len(rounds.rounds) != 1 else ''}"
    stopped = f"Interrupted after {tried}. " if interrupted else ""
    if interval is None:
        none = (
            "no round was finished"
            if not rounds.rounds
            else "no round lowered the loss of rows that did not choose it"
        )
        return f"{stopped}No improvement: {none}. Keep the training set as it is."
    change = effects[0].retrained
    result = (
        f"retrained, the loss of the hold-out rows changes by {change:+.3g} ({change / effects[0].before:+.1%}; 95 % "
        f"interval {interval[0]:+.3g} to {interval[1]:+.3g}, Student's t of the paired differences)"
    )
    if interval[1] >= 0:
        return f"{stopped}No improvement: {result}. Keep the training set as it is."
    best = rounds.best
    parts = {
        "remove": np.count_nonzero(best.gone),
        "relabel": np.count_nonzero(~best.gone & (best.y != start.y)),
        "reweight": np.count_nonzero(~best.gone & (best.weight != start.weight)),
    }
    done = ", ".join(f"{name} {count:,}" for name, count in parts.items() if count)
    return (
        f"{stopped}{done[0].upper()}{done[1:]} of {len(start.y):,} training rows: {result}. "
        f"{words().look_first}."
    )
