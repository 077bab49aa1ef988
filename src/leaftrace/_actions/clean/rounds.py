"""Rounds of cleaning: one half of the validation rows proposes a change, the model is retrained, the other half judges.

A change that does not lower the loss of the half that judges is dropped, and all that follow are half as large; the
third of these is the end. The halves change places after each round: all validation rows propose, and none judges what
it proposed. Where the same rows do both, every round looks like a gain; such rounds lose much of what they won, and
spoil clean data (experiments/action_clean.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._engine.refit import RetrainedModel
from ..._tracer.tracer import Tracer
from ..common import Change, mean_loss
from .proposals import has_classes

_FAILURES = 3


@dataclass(frozen=True)
class TrainingSet:
    """The training rows with all that was changed of them so far."""

    gone: NDArray[np.bool_]  # (n,)
    y: np.ndarray  # (n,)
    weight: F64  # (n,)

    @classmethod
    def of(cls, tracer: Tracer) -> TrainingSet:
        y = tracer.y_train if has_classes(tracer) else tracer.y_train.astype(float)
        return cls(np.zeros(tracer.n_rows, bool), y, tracer.sample_weight)

    @property
    def left(self) -> Ints:
        return np.flatnonzero(~self.gone)

    def then(self, change: Change) -> TrainingSet:
        """With a change of the rows that are left, in their own numbering."""
        left = self.left
        gone = self.gone.copy()
        y = self.y.copy()
        weight = self.weight.copy()
        if change.without is not None:
            gone[left[change.without]] = True
        if change.y is not None:
            y[left] = change.y
        if change.sample_weight is not None:
            weight[left] = change.sample_weight
        return TrainingSet(gone, y, weight)

    def differs(self, start: TrainingSet) -> Ints:
        """Positions of the rows that were changed since."""
        return np.flatnonzero(
            (self.gone != start.gone) | (self.y != start.y) | (self.weight != start.weight)
        )

    def change(self, start: TrainingSet) -> Change:
        """What `Tracer.retrain` of the start takes for this set; None for what is as it was."""
        return Change(
            np.flatnonzero(self.gone) if self.gone.any() else None,
            None if np.array_equal(self.y, start.y) else self.y,
            None if np.array_equal(self.weight, start.weight) else self.weight,
        )


@dataclass(frozen=True)
class Round:
    """One change that was tried."""

    action: str
    share: float  # of the training rows, or of their weight, that was to change
    rows: int  # that differ with it from those of the first model
    validation_loss: float  # of all validation rows, retrained
    judged: float  # change of the loss of the half that judged
    kept: bool
    change: Change  # all that differs


class Propose(Protocol):
    def __call__(self, tracer: Tracer, X: Any, y: Any, share: float) -> Change: ...


@dataclass
class Rounds:
    """What was tried so far, and the best of it."""

    tracer: Tracer
    X: Any
    y: np.ndarray
    halves: tuple[Ints, Ints]  # positions of validation rows
    actions: Mapping[
        str, Propose
    ]  # of several, a round takes what serves the half that judges best by a refit
    share: float
    best: TrainingSet
    model: RetrainedModel | None = None  # trained on the best; None: the first model still is
    rounds: list[Round] = field(default_factory=list)

    def run(self) -> Iterator[None]:
        start = self.best
        tracer = self.tracer
        losses = self.tracer.engine.unchanged.loss(self.X, self.y)
        (proposing, judging) = self.halves
        failures = 0
        while failures < _FAILURES:
            share = self.share / 2**failures
            action, change = self._propose(tracer, share, proposing, judging)
            trial = self.best.then(change)
            kept = False
            if len(trial.differs(self.best)):
                total = trial.change(start)
                model = total.retrain(self.tracer)
                after = model.loss(self.X, self.y)
                judged = float((after - losses)[judging].mean())
                kept = judged < 0
                rows = len(trial.differs(start))
                self.rounds.append(
                    Round(action, share, rows, float(after.mean()), judged, kept, total)
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

    def _propose(
        self, tracer: Tracer, share: float, proposing: Ints, judging: Ints
    ) -> tuple[str, Change]:
        X = inputs.take_rows(self.X, proposing)
        y = self.y[proposing]
        changes = {action: propose(tracer, X, y, share) for action, propose in self.actions.items()}
        if len(changes) == 1:
            return next(iter(changes.items()))
        X = inputs.take_rows(self.X, judging)
        y = self.y[judging]
        return min(changes.items(), key=lambda item: mean_loss(item[1].refit(tracer), X, y))
