"""Search for few training rows to remove or relabel, so that the model is right about one row.

Rows are ranked by the derivative of the margin, which for one score is the order of the loss, too.
The smallest number of them that is enough with the trees fixed is found by bisection, with an exact
refit for each probe; then the model is trained again. If that does not confirm the set, the
influence in the retrained model adds more rows. In the end as many rows as possible are put back.

A set that the refit does not explain is not searched for: among many retrainings some would change
a prediction by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.time_limit import TimeLimit
from ..._engine.refit import AlteredModel, RetrainedModel
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer
from ..ranking_method import RankingMethod
from .side import Side, numeric_gradient

Action = Literal["remove", "relabel"]
GROWTH = 0.25  # a round adds at least this share of the rows chosen so far


@dataclass(frozen=True)
class Attempt:
    """One retraining: the number of changed rows, and the margin of x refitted and retrained."""

    rows: int
    refitted: float
    retrained: float


@dataclass
class Search:
    """The rows chosen so far, and the retrainings that tried them.

    ``method``    that ranks rows for removal
    ``allowed``   (n,) whether a row may be changed
    ``limit``     largest number of rows to change
    ``time``      after which no more retraining is begun, once there is one
    ``chosen``    positions of the chosen rows, the most effective first
    ``size``      the best set retrained so far is the first `size` rows of `chosen`
    ``model``     the model retrained on the best set
    ``attempts``  all retrainings
    """

    tracer: Tracer
    x: Any
    side: Side
    action: Action
    method: RankingMethod
    allowed: np.ndarray
    limit: int
    time: TimeLimit = field(default_factory=lambda: TimeLimit(None))
    chosen: Ints = field(default_factory=lambda: np.zeros(0, np.intp))
    size: int = 0
    model: RetrainedModel | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def rows(self) -> Ints:
        """The best set; before any retraining, the set to try first."""
        return self.chosen if self.model is None else self.chosen[: self.size]

    @property
    def fixed(self) -> bool:
        """Whether a retrained model is right about x."""
        return self.model is not None and self.margin(self.model) > 0

    @property
    def label(self) -> Any:
        """The label of x, spelled as in the training rows."""
        same = np.flatnonzero(self.tracer.engine.ensemble.y == self.side.code)
        if len(same):
            return self.tracer.y_train[same[0]]
        return np.asarray(self.side.reading.classes)[int(self.side.code)]

    def training_set(self, tracer: Tracer, rows: Ints) -> TrainingSet:
        """The training set of this tracer with these rows removed or relabelled."""
        if self.action == "remove":
            return tracer.engine.training_set(without=rows)
        labels = tracer.y_train.copy()
        labels[rows] = self.label
        return tracer.engine.training_set(y=labels)

    def margin(self, model: AlteredModel) -> float:
        """Margin of x in this model."""
        return self.side.margin(model.scores(self.x)[0])

    def run(self) -> Iterator[None]:
        """Add rows until x is right or the limit is reached, then put back as many as possible.

        Yields after each retraining.
        """
        failed = 0  # size of the largest set that did not make x right
        for _ in self._enlarge():
            yield
            if not self.fixed:
                failed = self.size
        while failed and self.fixed and self.size - failed > 1 and self.time.allows():
            half = (failed + self.size) // 2
            model = self._retrain(half)
            if self.margin(model) > 0:
                self.model = model
                self.size = half
            else:
                failed = half
            yield

    def _enlarge(self) -> Iterator[None]:
        """Choose and retrain, each time with more rows. Yields after each retraining."""
        tracer = self.tracer
        keep = np.arange(tracer.n_rows)
        while len(added := self._next_rows(tracer, keep)):
            self.chosen = np.append(self.chosen, added)
            model = self._retrain(len(self.chosen))
            self.model = model
            self.size = len(self.chosen)
            yield
            if self.fixed or self.size >= self.limit or not self.time.allows():
                return
            tracer = self.tracer.follow(model)
            keep = model.rows.keep

    def _retrain(self, size: int) -> RetrainedModel:
        """Retrain with the first `size` chosen rows changed, and record the attempt."""
        training = self.training_set(self.tracer, self.chosen[:size])
        model = self.tracer.retrain(training)
        refitted = self.tracer.refit(training)
        self.attempts.append(Attempt(size, self.margin(refitted), self.margin(model)))
        return model

    def _next_rows(self, tracer: Tracer, keep: Ints) -> Ints:
        """Rows to add: as few as bring x to the right side in this tracer's model, trees fixed.

        ``keep``: positions in the original training set of the rows of `tracer`.
        """
        F = tracer.engine.unchanged.scores(self.x)[0]
        order, guess = self.ranked(tracer, keep, F)
        if not len(order):
            return order

        def enough(k: int) -> bool:
            refitted = tracer.refit(self.training_set(tracer, order[:k]))
            return self.side.crossed(refitted.scores(self.x)[0], F)

        k = smallest(enough, guess, len(order))
        at_least = int(np.ceil(GROWTH * len(self.chosen)))
        return keep[order[: max(k, at_least)]]

    def ranked(self, tracer: Tracer, keep: Ints, F: F64) -> tuple[Ints, int]:
        """Rows that may be added, the best first, and how many are enough to first order.

        ``keep``: as in `_next_rows`; ``F`` (K,): scores of x in this tracer's model.
        """
        gain = self.gains(tracer, F)
        gain[~self.allowed[keep] | np.isin(keep, self.chosen)] = 0.0
        most = min(self.limit - len(self.chosen), np.count_nonzero(gain > 0))
        order = self._sparing_classes(tracer, np.argsort(-gain, kind="stable")[:most])
        guess = int(np.searchsorted(np.cumsum(gain[order]), -self.side.margin(F))) + 1
        return order, min(guess, len(order))

    def _sparing_classes(self, tracer: Tracer, order: Ints) -> Ints:
        """These rows but for the last one of each class of which they are all: no model is without a class."""
        if self.side.reading.classes is None:
            return order
        e = tracer.engine.ensemble
        kept = np.ones(len(order), bool)
        for code in np.unique(e.y[order]):
            own = np.flatnonzero((e.y[order] == code) & (e.w[order] > 0))
            if len(own) == np.count_nonzero((e.y == code) & (e.w > 0)):
                kept[own[-1:]] = False
        return order[kept]

    def gains(self, tracer: Tracer, F: F64) -> F64:
        """(n,) change of the margin of x, at its scores F (K,), if one row changes; first order."""
        c = numeric_gradient(self.side.margin, F)[None]
        if self.action == "remove":
            found = tracer.influence(self.x, of=c, method=self.method)
            return found.change[:, 0].astype(float)
        e = tracer.engine.ensemble
        if e.n_outputs > 1:
            return tracer.label_influence(self.x, of=c, to=self.label).values[:, 0].astype(float)
        return tracer.label_influence(self.x, of=c).values[:, 0] * (self.side.code - e.y)


def smallest(enough: Callable[[int], bool], guess: int, most: int) -> int:
    """The smallest k from 1 to `most` that is enough; `most` if none is.

    It is assumed that a larger k is enough if a smaller one is.
    """
    low = 0
    high = guess
    while not enough(high):
        if high == most:
            return most
        low = high
        high = min(2 * high, most)
    while high - low > 1:
        half = (low + high) // 2
        if enough(half):
            high = half
        else:
            low = half
    return high
