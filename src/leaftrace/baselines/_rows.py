"""Scores of training rows that do not depend on the test rows, and random scores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._engine.methods import Baseline
from .._engine.queries import Queries
from .._engine.workspace import Workspace
from .._model.reading import Reading


def needs_loss(queries: Queries, name: str) -> None:
    """Raise an error unless the queries are losses. ``name``: of a method that needs losses."""
    if queries.of != "loss" or queries.goal is not None:
        raise InvalidInput(
            f"{name} tells rows that hurt from rows that help, so it answers of='loss' alone; for '{queries.of}' use "
            "LeafInfluence(), or of the baselines BoostIn() or TREX()."
        )


class RowScore(Baseline):
    """A method with one number a training row: every query gets the same column."""

    @abstractmethod
    def scores(self, work: Workspace, index: Ints | None, classes: np.ndarray | None) -> F64:
        """(rows,) scores of all training rows, or of those in `index`."""

    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        needs_loss(queries, type(self).__name__)
        score = self.scores(work, index, classes).astype(work.dtype)
        return np.repeat(score[:, None], len(queries), axis=1)


@dataclass(frozen=True)
class RowLoss(RowScore):
    """The loss of the training row itself, without weights. It is large if the label is unexpected.

    >>> tracer.influence(X_test, y_test, method=RowLoss(), reduce="mean")       # doctest: +SKIP
    """

    def scores(self, work: Workspace, index: Ints | None, classes: np.ndarray | None) -> F64:
        F, y = _scores_and_labels(work, index)
        return work.trace.ensemble.loss.value(F, y)


@dataclass(frozen=True)
class Detector(RowScore):
    """The model's probability that the training row's label is wrong.

    The LeafInfluence paper compares with this detector of wrong labels. For models without classes
    or probabilities it is the row's own loss.

    >>> tracer.influence(X_test, y_test, method=Detector(), reduce="mean")      # doctest: +SKIP
    """

    def scores(self, work: Workspace, index: Ints | None, classes: np.ndarray | None) -> F64:
        F, y = _scores_and_labels(work, index)
        loss = work.trace.ensemble.loss
        P = Reading(loss, classes).probability(F)  # (rows, classes)
        if P is None:
            return loss.value(F, y)
        # Not 1 - p, which is mere rounding if the model is sure.
        others = np.arange(P.shape[1]) != y[:, None]
        return np.where(others, P, 0.0).sum(axis=1)


@dataclass(frozen=True)
class Random(Baseline):
    """Normal random numbers for each training row and query.

    The same `seed` gives the same numbers, whatever `rows`.

    >>> tracer.influence(X_test, y_test, method=Random(seed=1))                 # doctest: +SKIP
    """

    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise InvalidInput(f"Random has seed={self.seed!r}; it is a whole number, 0 or more.")

    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        rows = np.arange(len(work.rows)) if index is None else index
        out = np.empty((len(rows), len(queries)), work.dtype)
        for column in range(len(queries)):
            rng = np.random.default_rng((self.seed, column))
            out[:, column] = rng.standard_normal(len(work.rows))[rows]
        return out


def _scores_and_labels(work: Workspace, index: Ints | None) -> tuple[F64, F64]:
    """(rows, K) scores and (rows,) labels of the training rows."""
    e = work.trace.ensemble
    rows = slice(None) if index is None else index
    offset = None if e.offset is None else e.offset[rows]
    return e.scores(np.ascontiguousarray(e.leaves[:, rows]), offset), e.y[rows]
