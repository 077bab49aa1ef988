"""CatBoost models that were trained again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._model.early_stopping import Rounds
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
