"""The search for few training rows without which, or with another label of which, the model is right about one row.

Rows are ranked by the derivative of the margin, which for one score is the order of the loss too. The smallest number
of them that does it with the trees as they are is found by bisection, each probe an exact refit; then the model is
trained again. Where that does not confirm the set, influence is asked of the retrained model and more rows are added;
in the end as many of these as can be spared are put back. A set that the refit does not explain is not sought: among
many retrainings some would flip a prediction by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..._data.arrays import F64, Ints
from ..._engine.refit import AlteredModel, RetrainedModel
from ..._tracer.tracer import Tracer
from ..common import Change
from ..readings import Side, slope

Action = Literal["remove", "relabel"]
_GROWTH = 0.25  # a round adds at least this share of the rows chosen so far


@dataclass(frozen=True)
class Attempt:
    """One retraining: with how many rows changed, and the margin of x refitted and retrained."""

    rows: int
    refitted: float
    retrained: float


@dataclass
class Search:
    """What was chosen and tried so far."""

    tracer: Tracer
    x: Any
    side: Side
    action: Action
    allowed: np.ndarray  # (n,) rows that may be changed
    limit: int
    chosen: Ints = field(default_factory=lambda: np.zeros(0, np.intp))  # most effective first
    size: int = 0  # of the best set retrained so far, the first rows of `chosen`
    model: RetrainedModel | None = None  # trained on it
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def rows(self) -> Ints:
        """The best set; before any retraining, the one proposed."""
        return self.chosen if self.model is None else self.chosen[: self.size]

    @property
    def fixed(self) -> bool:
        return self.model is not None and self.margin(self.model) > 0

    @property
    def label(self) -> Any:
        """The label of x, as the training rows have it."""
        same = np.flatnonzero(self.tracer.engine.ensemble.y == self.side.code)
        return (
            self.tracer.y_train[same[0]]
            if len(same)
            else np.asarray(self.side.reading.classes)[int(self.side.code)]
        )

    def change(self, rows: Ints, tracer: Tracer | None = None) -> Change:
        """The training set, of this tracer or the first one, with these rows removed or relabelled."""
        if self.action == "remove":
            return Change(without=rows)
        labels = (self.tracer if tracer is None else tracer).y_train.copy()
        labels[rows] = self.label
        return Change(y=labels)

    def margin(self, model: AlteredModel) -> float:
        return self.side.margin(model.scores(self.x)[0])

    def run(self) -> Iterator[None]:
        """Retrain until x is right or the limit is reached, then with fewer rows as long as that holds."""
        tracer = self.tracer
        keep = np.arange(self.tracer.n_rows)
        failed = 0
        while len(more := self._more(tracer, keep)):
            self.chosen = np.append(self.chosen, more)
            self.model, self.size = self._try(len(self.chosen)), len(self.chosen)
            yield
            if self.fixed or self.size >= self.limit:
                break
            failed = self.size
            tracer = self.tracer.follow(self.model)
            keep = self.model.rows.keep
        while failed and self.fixed and self.size - failed > 1:
            half = (failed + self.size) // 2
            model = self._try(half)
            if self.margin(model) > 0:
                self.model = model
                self.size = half
            else:
                failed = half
            yield

    def _try(self, size: int) -> RetrainedModel:
        change = self.change(self.chosen[:size])
        model = change.retrain(self.tracer)
        self.attempts.append(
            Attempt(size, self.margin(change.refit(self.tracer)), self.margin(model))
        )
        return model

    def _more(self, tracer: Tracer, keep: Ints) -> Ints:
        """Rows to add, by a tracer of the rows `keep`: as few as bring x to the right side with its trees fixed."""
        F = tracer.engine.unchanged.scores(self.x)[0]
        gain = self.gains(tracer, F)
        gain[~self.allowed[keep] | np.isin(keep, self.chosen)] = 0.0
        order = np.argsort(-gain, kind="stable")[
            : min(self.limit - len(self.chosen), np.count_nonzero(gain > 0))
        ]
        if not len(order):
            return order

        def enough(k: int) -> bool:
            return self.side.crossed(
                self.change(order[:k], tracer).refit(tracer).scores(self.x)[0], F
            )

        guess = int(np.searchsorted(np.cumsum(gain[order]), -self.side.margin(F))) + 1
        k = smallest(enough, min(guess, len(order)), len(order))
        return keep[order[: max(k, int(np.ceil(_GROWTH * len(self.chosen))))]]

    def gains(self, tracer: Tracer, F: F64) -> F64:
        """(n,) by how much each row alone changes the margin at the scores F (K,) of x, to first order."""
        c = slope(self.side.margin, F)[None]
        if self.action == "remove":
            return tracer.influence(self.x, of=c).change[:, 0].astype(float)
        e = tracer.engine.ensemble
        if e.n_outputs > 1:
            return tracer.label_influence(self.x, of=c, to=self.label).values[:, 0].astype(float)
        return tracer.label_influence(self.x, of=c).values[:, 0] * (self.side.code - e.y)


def smallest(enough: Callable[[int], bool], guess: int, most: int) -> int:
    """The smallest k from 1 to `most` that is enough, where more is never less; `most` if none is."""
    low = 0
    high = guess
    while not enough(high):
        if high == most:
            return most
        low = high
        high = min(2 * high, most)
    while high - low > 1:
        half = (low + high) // 2
        low, high = (low, half) if enough(half) else (half, high)
    return high
