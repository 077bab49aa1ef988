"""Models trained again on subsets of the training rows, for methods that compare such models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._adapters import Retrained
from .._data.arrays import F64
from .._data.progress import progress
from .._model.training_set import TrainingSet
from .queries import Queries
from .retrainings import Retrainings
from .workspace import Workspace

Members = NDArray[np.bool_]  # (n,) the rows of a subset


@dataclass(frozen=True)
class SubsetTraining:
    """Trains a model again on subsets of its rows, with its own parameters.

    ``X_train``  the training rows
    ``X_test``   the rows of the queries
    ``offset``   (m, K) scores that the user gave these, or None
    ``classes``  labels of a classifier, or None
    """

    retrainings: Retrainings
    work: Workspace
    X_train: Any
    X_test: Any
    offset: F64 | None
    classes: np.ndarray | None

    def query_changes(self, queries: Queries, subsets: Sequence[Members]) -> F64:
        """(subsets, queries) Q(model of the subset) - Q(model)."""

        def change(model: Retrained) -> F64:
            scores = model.scores(self.X_test) + (0.0 if self.offset is None else self.offset)
            return queries.change((scores - queries.scores)[:, :, None])[:, 0]

        return np.array(self._of_each(subsets, change)).reshape(len(subsets), len(queries))

    def training_scores(self, subsets: Sequence[Members]) -> list[F64]:
        """(n, K) scores of all training rows, by the model of each subset."""
        offset = self.work.trace.ensemble.offset

        def scores(model: Retrained) -> F64:
            return model.scores(self.X_train) + (0.0 if offset is None else offset)

        return self._of_each(subsets, scores)

    def _of_each(self, subsets: Sequence[Members], fn: Callable[[Retrained], F64]) -> list[F64]:
        """fn of the model of each subset, in order."""
        self.retrainings.confirm_eval_set()

        def trained(members: Members) -> F64:
            training = TrainingSet(len(members), np.flatnonzero(members))
            return fn(self.retrainings.train(training, 1))

        models = self.work.map(trained, subsets)
        return list(progress(models, len(subsets), "retraining", "model"))
