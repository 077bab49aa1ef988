"""Rounds of cleaning: half of the validation rows propose a change, the other half judge it.

The model is retrained with the change. If that does not lower the loss of the half that judges, the
change is dropped and all later ones are half as large; the third failure is the end. The halves
swap after each round, so that all validation rows propose and none judges its own proposal. If the
same rows did both, every round would look like a gain; such rounds lose much of what they won, and
make clean data worse (experiments/action_clean.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.time_limit import TimeLimit
from ..._engine.refit import RetrainedModel
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer
from ..common import mean_loss

MAX_FAILURES = 3


@dataclass(frozen=True)
class Round:
    """One change that was tried.

    ``share``            how much it was to change: of the training rows, or of their weight
    ``rows``             training rows that differ from those of the first model
    ``validation_loss``  of all validation rows, retrained
    ``judged``           change of the loss of the half that judged
    ``judged_before``    that loss before
    ``kept``             whether the change was kept
    ``change``           the training set, with this change and all that were kept before
    """

    action: str
    share: float
    rows: int
    validation_loss: float
    judged: float
    judged_before: float
    kept: bool
    change: TrainingSet


class Proposal(Protocol):
    """Makes a training set that should lower the loss of X, y. ``share``: how much to change."""

    def __call__(self, tracer: Tracer, X: Any, y: Any, share: float) -> TrainingSet: ...


@dataclass
class Rounds:
    """The rounds so far and the best of them.

    ``tracer``           the first model
    ``X, y``             validation rows
    ``halves``           positions of the validation rows in each half
    ``proposals``        by name of the action; of several, a round takes the one with the lowest
                         loss of the half that judges, by a refit
    ``share``            how much the first round changes
    ``labels, weights``  (n,) of the training rows as they were given
    ``time``             after which no more round is begun, once there is one
    ``best``             the best training set
    ``model``            trained on the best set; None: the first model is still the best
    """

    tracer: Tracer
    X: Any
    y: np.ndarray
    halves: tuple[Ints, Ints]
    proposals: Mapping[str, Proposal]
    share: float
    labels: np.ndarray
    weights: F64
    best: TrainingSet
    time: TimeLimit
    model: RetrainedModel | None = None
    rounds: list[Round] = field(default_factory=list)

    def run(self) -> Iterator[None]:
        """Try changes until the third one fails. Yields after each retraining."""
        tracer = self.tracer
        losses = tracer.engine.unchanged.loss(self.X, self.y)
        proposing, judging = self.halves
        failures = 0
        while failures < MAX_FAILURES and self.time.allows(lambda: bool(self.rounds)):
            share = self.share / 2**failures
            action, change = self.propose(tracer, share, proposing, judging)
            trial = self.best.then(change, self.labels, self.weights)
            kept = False
            if self._changed_rows(trial, self.best):
                model = self.tracer.retrain(trial)
                after = model.loss(self.X, self.y)
                judged = float((after - losses)[judging].mean())
                before = float(losses[judging].mean())
                kept = judged < 0
                rows = self._changed_rows(trial, TrainingSet.unchanged(trial.n))
                self.rounds.append(
                    Round(action, share, rows, float(after.mean()), judged, before, kept, trial)
                )
                if kept:
                    self.best = trial
                    self.model = model
                    losses = after
                yield
                if kept:
                    tracer = self.tracer.follow(model)
            proposing, judging = judging, proposing
            failures += not kept

    def _changed_rows(self, training: TrainingSet, other: TrainingSet) -> int:
        """Number of training rows in which two training sets differ."""
        return len(training.differs_from(other, self.labels, self.weights))

    def propose(
        self, tracer: Tracer, share: float, proposing: Ints, judging: Ints
    ) -> tuple[str, TrainingSet]:
        """The best proposal for the rows of `tracer`, with the name of its action."""
        X = inputs.take_rows(self.X, proposing)
        y = self.y[proposing]
        changes = {
            action: propose(tracer, X, y, share) for action, propose in self.proposals.items()
        }
        if len(changes) == 1:
            return next(iter(changes.items()))
        X_judging = inputs.take_rows(self.X, judging)
        y_judging = self.y[judging]

        def refitted_loss(item: tuple[str, TrainingSet]) -> float:
            return mean_loss(tracer.refit(item[1]), X_judging, y_judging)

        return min(changes.items(), key=refitted_loss)
