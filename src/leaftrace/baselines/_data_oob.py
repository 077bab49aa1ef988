"""Data-OOB: the errors of models on rows that they were not trained on.

    value(i) = mean of error(y_i, f_b(x_i)) over the models b that were trained without row i

The error is 1 for a wrong class and 0 for the right one, or half the squared difference of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._engine.methods import RetrainingBaseline
from .._engine.queries import Queries
from .._engine.subset_training import SubsetTraining
from .._model.ensemble import Ensemble
from .._model.reading import Reading
from ._rows import needs_loss
from ._subsets import SubSample, check_models, check_share


@dataclass(frozen=True)
class DataOOB(RetrainingBaseline):
    """The mean error on a training row of models that were trained without it.

    >>> tracer.influence(X_test, y_test, method=DataOOB(), reduce="mean")       # doctest: +SKIP

    By Kwon and Zou (ICML 2023); their value is minus this one, for positive is harmful here. The
    trees of a random forest are the models, with the rows that each drew, and nothing is trained.
    A boosted model is trained again on ``models`` subsets of this ``share`` of the rows, drawn
    without replacement (the default is what a bootstrap has of different rows). It uses the
    training row alone: every test row gets the same score.
    """

    models: int = 100
    share: float = 0.632
    seed: int = 0

    def __post_init__(self) -> None:
        check_models(self.models, self.seed, "DataOOB")
        check_share(self.share, "DataOOB has share")

    def values(self, training: SubsetTraining, queries: Queries, index: Ints) -> Real:
        needs_loss(queries, "DataOOB")
        e = training.work.trace.ensemble
        drawn = _trees(e) if e.independent and e.sample is not None else self._retrained(training)
        total = np.zeros(e.n_rows)
        count = np.zeros(e.n_rows)
        reading = Reading(e.loss, training.classes)
        for left_out, scores in drawn:
            total += left_out * _errors(reading, scores, e.y)
            count += left_out
        if (unseen := np.flatnonzero(count[index] == 0)).size:
            raise InvalidInput(
                f"{len(unseen)} of the training rows were drawn by every model, so DataOOB has no error for them; "
                "use more models (more trees, for a forest)."
            )
        score = (total[index] / count[index]).astype(training.work.dtype)
        return np.repeat(score[:, None], len(queries), axis=1)

    def _retrained(self, training: SubsetTraining) -> Iterator[tuple[NDArray[np.bool_], F64]]:
        """(n,) rows left out, and (n, K) scores of all rows, for each model of a subset."""
        subsets = SubSample(self.models, self.share, self.seed).subsets(training)
        scores = training.training_scores(subsets)
        return zip((~members for members in subsets), scores, strict=True)


def _trees(e: Ensemble) -> Iterator[tuple[NDArray[np.bool_], F64]]:
    """The same for each tree of a forest, whose scores are those of a forest of this tree alone."""
    assert e.sample is not None
    for t in range(e.n_steps):
        factor = e.n_steps * e.factors[t]
        scores = np.tile(e.finished_base, (e.n_rows, 1))
        e.add_leaf_values(t, factor * e.values[e.leaf_range(t)], e.leaves, scores)
        yield e.sample[e.trees(t).start] == 0, scores


def _errors(reading: Reading, F: F64, y: F64) -> F64:
    """(n,) errors of rows with scores F (n, K) and labels y."""
    if reading.classes is not None:
        return (reading.decision(F) != y).astype(float)
    return (reading.number(F) - y) ** 2 / 2
