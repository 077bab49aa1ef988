"""Models of small bags, and what each of them says about the rows left out of its bag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import LeaftraceError
from ..._engine.refit import RetrainedModel
from ..._model.training_set import TrainingSet
from ..._tracer.answers import asked, finite_values
from ..._tracer.candidate_answers import CandidateSlopes, candidate_slopes
from ..._tracer.tracer import Tracer
from ..bags import Bag, draw_bags
from ..ranking_method import RankingMethod


class Member(NamedTuple):
    """A bag's model.

    ``size``    number of rows in the bag
    ``slopes``  (n,) derivatives of the mean validation loss in the weights of the rows, at weight
                zero; NaN for those in the bag
    ``loss``    mean validation loss of its model
    ``leaves``  mean number of leaves of its trees
    ``refused``  why the model could not be traced; empty if it was
    """

    size: int
    slopes: F64
    loss: float = np.nan
    leaves: float = np.nan
    refused: str = ""


def bags_in_turn(
    codes: Ints | None, weight: F64, sizes: Sequence[int], rng: np.random.Generator
) -> Iterator[Bag]:
    """Bags of each size in turn, of rows that have a weight; every class has a row in each.

    ``codes``   (n,) number of each row's class; None: the labels are numbers
    ``weight``  (n,)
    """
    n = len(weight)
    live = np.flatnonzero(weight > 0)
    labels = np.zeros(len(live), np.intp) if codes is None else codes[live]
    streams = [
        draw_bags(labels, repeat(size), child)
        for size, child in zip(sizes, rng.spawn(len(sizes)), strict=True)
    ]
    while True:
        for stream in streams:
            bag = np.zeros(n, bool)
            bag[live[with_every_class(next(stream), labels, rng)]] = True
            yield bag


def with_every_class(bag: Bag, codes: Ints, rng: np.random.Generator) -> Bag:
    """The bag with a row of each class that it lacks, in the place of rows of other classes.

    A class that has a single row in the bag keeps it.
    """
    bag = bag.copy()
    for missing in np.setdiff1d(codes, codes[bag]):
        count = np.bincount(codes[bag], minlength=codes.max() + 1)
        spare = np.flatnonzero(bag & (count[codes] > 1))
        bag[rng.choice(spare)] = False
        bag[rng.choice(np.flatnonzero(codes == missing))] = True
    return bag


@dataclass(frozen=True)
class BagModels:
    """Trains the tracer's model on bags of its rows, and traces each."""

    tracer: Tracer
    X_val: Any
    y_val: Any
    method: RankingMethod

    def member(self, bag: Bag) -> Member:
        """Train a model on the bag and ask it about the rows left out."""
        size = int(bag.sum())
        slopes = np.full(len(bag), np.nan)
        try:
            model = self._trained(bag)
            traced = self.tracer.follow(model, n_jobs=1)
        except LeaftraceError as error:  # such as labels of the bag that are all the same
            return Member(size, slopes, refused=str(error))
        left_out = np.flatnonzero(~bag)
        found = self._slopes(traced, left_out)
        slopes[left_out] = finite_values(found.values)[:, 0]
        validation = found.queries
        assert validation.y is not None
        losses = validation.criterion.value(validation.scores, validation.y)
        ensemble = traced.engine.ensemble
        leaves = len(ensemble.values) / len(ensemble.leaves)
        return Member(size, slopes, float(losses.mean()), leaves)

    def _trained(self, bag: Bag) -> RetrainedModel:
        """The model that a bag gives, trained on one thread: members run side by side."""
        engine = self.tracer.engine
        training = TrainingSet(len(bag), np.flatnonzero(bag))
        return RetrainedModel(engine.source, training, engine.retrainings.train(training, 1))

    def _slopes(self, traced: Tracer, rows: Ints) -> CandidateSlopes:
        """Derivatives of the mean validation loss in the weights of these rows."""
        query = asked(traced, self.X_val, self.y_val, "loss", "mean", None, None)
        X = inputs.take_rows(self.tracer.X_train, rows)
        return candidate_slopes(traced.engine, query, X, self.tracer.y_train[rows], self.method)
