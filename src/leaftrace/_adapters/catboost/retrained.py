"""Training CatBoost models again, and the models that come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput, UnsupportedModel, training_errors
from ..._data.stopping import stop_if_unwanted
from ..._model.early_stopping import EvalRows, Rounds
from ..._model.training_set import TrainingSet
from . import shrinkage
from .own_objective import TrainingObjective, without_numba_warning
from .pools import sliced_pool
from .retraining import StopIfUnwanted, eval_pools, retraining_params, stopped_early
from .users_model import with_content

if TYPE_CHECKING:
    from .source import CatBoostSource


@dataclass(frozen=True)
class RetrainedCatBoost:
    """A CatBoost model that was trained again."""

    model: catboost.CatBoost
    source: CatBoostSource
    # table, labels, weights, given scores, queries
    training: tuple[Any, NDArray[Any], F64 | None, F64 | None, Ints | None]
    rounds: Rounds

    @cached_property
    def structure_changed(self) -> bool:
        return not self.source.same_structure(self.model)

    def scores(self, X: Any) -> F64:
        pool = self.source._pool(X)
        predicted = np.asarray(self.model.predict(pool, prediction_type="RawFormulaVal"))
        scores = predicted.reshape(pool.num_row(), -1)
        baseline = np.asarray(pool.get_baseline(), dtype=np.float64)
        # CatBoost adds a pool's baseline to its predictions; here the caller does.
        return scores - baseline if baseline.size else scores

    def own_model(self) -> catboost.CatBoost:
        return with_content(self.source.model, self.model)

    def open(self) -> CatBoostSource:
        source = self.source
        params = self.model.get_all_params()
        return type(source)(self.model, params, *self.training, own=source.own)


def retrain(source: CatBoostSource, rows: TrainingSet, threads: int) -> RetrainedCatBoost:
    """Train a model again on another training set."""
    if source.pairs is not None:
        raise UnsupportedModel(
            "a model with pairs of its own is not trained again, for pairs of rows that are left out would be missing; "
            "use refit()."
        )
    repeats = rows.eval_set is not None
    params = retraining_params(source.model, source.params, repeats) | {"thread_count": threads}
    if source.own is not None:
        params["loss_function"] = TrainingObjective(source.own)
    _, y, weight, offset = source._data
    labels = rows.labels(y)
    weights = rows.weights(weight)
    baseline = rows.offset(offset)
    table, pool = _table_and_pool(source, rows, labels, weights, baseline)
    with training_errors("CatBoost", catboost.CatBoostError), without_numba_warning():
        model = catboost.CatBoost(params).fit(
            pool,
            eval_set=eval_pools(rows.eval_set, source.params, partial(_eval_pool, source)),
            callbacks=[StopIfUnwanted()],
        )
    stop_if_unwanted()
    shrinkage.rescale(model, source.ensemble, source.model)
    kept = "kept" if stopped_early(source.params) else "none"
    trees = len(model.get_tree_leaf_counts())
    rounds = Rounds(trees, len(source.counts), "repeated" if repeats else kept)
    qid = None if source.queries is None else source.queries.take(rows.keep).number
    return RetrainedCatBoost(model, source, (table, labels, weights, baseline, qid), rounds)


def _eval_pool(source: CatBoostSource, rows: EvalRows) -> catboost.Pool:
    """Return one set of these rows."""
    if isinstance(rows.X, catboost.Pool):
        return rows.X
    source.labels(rows.y, len(rows.y), "the labels of eval_set")  # raises for wrong ones
    return source._pool(rows.X, label=rows.y, weight=rows.weight)


def _table_and_pool(
    source: CatBoostSource,
    rows: TrainingSet,
    labels: NDArray[Any],
    weights: F64 | None,
    baseline: F64 | None,
) -> tuple[Any, catboost.Pool]:
    """Return another training set as a table (or a Pool, if there is none) and as a Pool."""
    X = source._data[0]
    sliced = source.queries is None or isinstance(X, catboost.Pool)  # only whole groups can be
    if rows.y is None and rows.added is None and sliced:
        pool = sliced_pool(source._training_pool, rows.keep)
        if rows.sample_weight is not None:
            pool.set_weight(weights)
        return pool if isinstance(X, catboost.Pool) else rows.table(X), pool
    if isinstance(X, catboost.Pool):
        raise InvalidInput(
            "labels and rows of a Pool cannot be changed; pass X_train and y_train as a table."
        )
    table = rows.table(X)
    more = {} if source.queries is None else {"group_id": source.queries.number[rows.keep]}
    return table, source._pool(table, label=labels, weight=weights, baseline=baseline, **more)
