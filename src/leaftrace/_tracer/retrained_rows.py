"""`Retrain`: influence of training rows by training again without each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._data.progress import progress
from .._data.time_limit import TimeLimit
from .._engine.queries import Queries
from .._model.training_set import TrainingSet

if TYPE_CHECKING:
    from .._engine.engine import Engine


def values_by_retraining(
    engine: Engine,
    X: Any,
    baseline: Any,
    queries: Queries,
    sets: Sequence[Ints],
    limit: TimeLimit,
) -> tuple[Real, np.ndarray]:
    """(sets, queries) by training again without each set of rows; (sets,) whether trees changed.

    Both are of the first sets alone where the limit left out others.
    """
    offset = engine.source.rows(X, baseline)[1]
    engine.retrainings.confirm_eval_set()

    def without_rows(rows: Ints) -> tuple[F64, bool]:
        training = TrainingSet(engine.n_rows, engine.rest(rows))
        model = engine.retrainings.train(training, 1)
        scores = model.scores(X) + (0.0 if offset is None else offset)
        change = queries.change((scores - queries.scores)[:, :, None])[:, 0]
        return -change, model.structure_changed

    models = engine.work.map(without_rows, limit.items(sets, lambda: limit.begun > 0))
    done = list(progress(models, len(sets), "retraining", "model"))
    values = np.array([v for v, _ in done]).reshape(len(done), len(queries))
    return values, np.array([changed for _, changed in done], dtype=bool)
