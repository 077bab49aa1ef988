"""Record the scores that CatBoost itself had for its training rows, by training with a metric.

The adapter recomputes target statistics of categories from the seed, and the recorded weights of
leaves confirm them leaf by leaf. A recording of scores confirms them row by row. It cannot replace
them: where leaves have equal values, as in the first tree of an unweighted Logloss, scores do not
show which leaf a row was in.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import catboost
import numpy as np

from ..._data import frames
from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, UnsupportedModel
from ..base import cumulative
from .pools import readable_table
from .retraining import retraining_params

# Scores (n, K) and weights (n,) at one evaluation of the metric, in CatBoost's own order of rows.
Evaluation = tuple[F64, F64]
_ATTRIBUTE = "_leaftrace_scores"  # of the model: where a recording is kept


class _RecordingMetric:
    """A metric that is always zero and keeps the scores and weights it gets.

    CatBoost copies the metric object but not its class, so the class holds the record."""

    evaluations: ClassVar[list[Evaluation]] = []

    def is_max_optimal(self) -> bool:
        return False

    def get_final_error(self, error: float, weight: float) -> float:
        return 0.0

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        scores = np.array(approxes, dtype=np.float64).T.copy()
        weights = np.zeros(0) if weight is None else np.array(weight, dtype=np.float64)
        self.evaluations.append((scores, weights))
        return 0.0, 1.0


def record_catboost(
    model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, **fit: Any
) -> Any:
    """Fit the model if it is not fitted, and keep its training scores with it."""
    if not isinstance(model, catboost.CatBoost):
        raise UnsupportedModel(
            f"record_catboost is for CatBoost models; this is a {type(model).__qualname__}."
        )
    pool = X if isinstance(X, catboost.Pool) else _pool(model, X, y, sample_weight, baseline)
    if not model.is_fitted():
        model.fit(pool, **fit)
    params = retraining_params(model, model.get_all_params())
    setattr(model, _ATTRIBUTE, _training_scores(model, params, pool))
    return model


def recorded_scores(model: catboost.CatBoost) -> F64 | None:
    """Return the scores (n, K) that `record_catboost` kept with the model, or None."""
    return getattr(model, _ATTRIBUTE, None)


def recording_notes(
    model: catboost.CatBoost, start: F64, values: F64, counts: Any, leaves: Ids, tolerance: float
) -> list[str]:
    """Compare the scores of rows with these leaves (trees, n) with those recorded, if there are any.

    ``start`` (n, K) are scores before the first tree, ``values`` (leaves, K) those of all trees, and
    ``counts`` (trees,) how many each tree has."""
    recorded = recorded_scores(model)
    if recorded is None or len(recorded) != leaves.shape[1]:
        return []
    scores = start
    tables = np.split(values, cumulative(counts)[1:-1])
    for ids, table in zip(leaves, tables, strict=True):
        scores = scores + table[ids]
    error = float(np.abs(scores - recorded).max()) / max(1.0, float(np.abs(recorded).max()))
    verb = "confirm" if error <= tolerance else "do not confirm"
    return [f"the recorded scores of all rows {verb} them (largest difference {error:.0e})"]


def _pool(
    model: catboost.CatBoost, X: Any, y: Any, sample_weight: Any, baseline: Any
) -> catboost.Pool:
    fitted = model.is_fitted()
    categories = model.get_cat_feature_indices() if fitted else model.get_param("cat_features")
    y = None if y is None else frames.to_numpy(y)
    sample_weight = None if sample_weight is None else frames.to_numpy(sample_weight)
    return catboost.Pool(readable_table(X), y, categories, weight=sample_weight, baseline=baseline)


def _training_scores(model: catboost.CatBoost, params: dict[str, Any], pool: catboost.Pool) -> F64:
    """Return the scores (n, K) of the pool's rows at the end of training, baseline included."""
    scores = scores_by_tree(model, params, pool, slice(-1, None))
    if scores is None:
        raise UnsupportedModel(
            "trained again with its own parameters this model comes out different, so its scores cannot be recorded; "
            "pass the rows, labels and weights of training, and train with a fixed random_seed and the same threads."
        )
    return scores[0]


def scores_by_tree(
    model: catboost.CatBoost,
    params: dict[str, Any],
    pool: catboost.Pool,
    trees: slice = slice(None),
) -> F64 | None:
    """Return the scores (T, n, K) of the pool's rows after each of these trees.

    This trains the model again, and once more for one tree, to find CatBoost's order of rows. None if
    another model comes out."""
    again, evaluations = _train_recording(params, pool)
    if not np.array_equal(again.get_leaf_values(), model.get_leaf_values()):
        return None
    order = _order_of_rows(params, pool)
    kept = evaluations[-len(model.get_tree_leaf_counts()) :][trees]
    scores = np.empty((len(kept), *kept[0][0].shape))
    for t, (shown, _) in enumerate(kept):
        scores[t, order] = shown
    return scores


def _order_of_rows(params: dict[str, Any], pool: catboost.Pool) -> Any:
    """Return the position (n,) in the pool of each row that CatBoost shows to a metric.

    Weights that number the rows come out in CatBoost's order, and do not change it."""
    numbered = pool.slice(list(range(pool.num_row())))
    numbered.set_weight(np.arange(1.0, pool.num_row() + 1))
    params = {k: v for k, v in params.items() if k not in ("class_weights", "auto_class_weights")}
    _, evaluations = _train_recording(params | {"iterations": 1}, numbered)
    return evaluations[0][1].astype(np.int64) - 1


def _train_recording(
    params: dict[str, Any], pool: catboost.Pool
) -> tuple[catboost.CatBoost, list[Evaluation]]:
    """Train a model and return it with every evaluation of the metric."""
    if pool.num_row() > 1 << 24:
        raise InvalidInput(
            "recording tells rows apart by float32 weights, which it can for up to 16,777,216 rows."
        )
    _RecordingMetric.evaluations.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CatBoost recommends numba for the metric
        try:
            model = catboost.CatBoost({**params, "eval_metric": _RecordingMetric()}).fit(pool)
        except catboost.CatBoostError as error:
            raise UnsupportedModel(
                "the leaves of this CatBoost model's training rows show only when it is trained again, and CatBoost "
                f"does not train on these rows; pass all training rows. It says: {error}"
            ) from None
    return model, list(_RecordingMetric.evaluations)
