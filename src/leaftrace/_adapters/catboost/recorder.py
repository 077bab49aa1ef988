"""Record the scores that CatBoost itself had for its training rows, by training again in front of a metric.

The adapter recomputes target statistics of categories from the seed and the leaf weights confirm them leaf by leaf. A
recording confirms them row by row. (It cannot replace them: where leaves have equal values, as in the first tree of an
unweighted Logloss, scores do not tell which leaf a row was in.)
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import catboost
import numpy as np

from ..._data.arrays import F64
from ..._data.errors import InvalidInput, UnsupportedModel

Shown = tuple[F64, F64]  # scores (n, K) and weights (n,), in CatBoost's own order of rows


class _Scores:
    """A metric of nothing that keeps what it is shown. CatBoost copies the metric, not what its class holds."""

    shown: ClassVar[list[Shown]] = []

    def is_max_optimal(self) -> bool:
        return False

    def get_final_error(self, error: float, weight: float) -> float:
        return 0.0

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        weights = np.zeros(0) if weight is None else np.array(weight, dtype=np.float64)
        self.shown.append((np.array(approxes, dtype=np.float64).T.copy(), weights))
        return 0.0, 1.0


def record(model: catboost.CatBoost, params: dict[str, Any], pool: catboost.Pool) -> F64:
    """(n, K) the scores of the pool's rows at the end of training, baseline included: trains the model again, and once
    more for one tree to learn in which order CatBoost shows rows."""
    again, shown = _train(params, pool)
    if not np.array_equal(again.get_leaf_values(), model.get_leaf_values()):
        raise UnsupportedModel(
            "trained again with its own parameters this model comes out different, so its scores cannot be recorded; "
            "pass the rows, labels and weights of training, and train with a fixed random_seed and the same threads."
        )
    numbers = pool.slice(list(range(pool.num_row())))
    numbers.set_weight(np.arange(1.0, pool.num_row() + 1))  # which do not change the order
    one = {k: v for k, v in params.items() if k not in ("class_weights", "auto_class_weights")} | {
        "iterations": 1
    }
    order = _train(one, numbers)[1][0][1].astype(np.int64) - 1
    scores = np.empty_like(shown[-1][0])
    scores[order] = shown[-1][0]
    return scores


def _train(params: dict[str, Any], pool: catboost.Pool) -> tuple[catboost.CatBoost, list[Shown]]:
    if pool.num_row() > 1 << 24:
        raise InvalidInput(
            "recording tells rows apart by float32 weights, which it can for up to 16,777,216 rows."
        )
    _Scores.shown.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CatBoost would like numba for the metric
        model = catboost.CatBoost({**params, "eval_metric": _Scores()}).fit(pool)
    return model, list(_Scores.shown)
