"""CatBoost models for users: a model in the class of theirs, and one with other leaf values."""

from __future__ import annotations

from io import BytesIO

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import Ensemble


def with_content(model: catboost.CatBoost, trained: catboost.CatBoost) -> catboost.CatBoost:
    """A copy of the user's model with the trees of another one.

    It is read from a stream: other copies cannot be changed.
    """
    return model.copy().load_model(stream=BytesIO(trained._serialize_model()))


def with_leaf_values(model: catboost.CatBoost, e: Ensemble) -> catboost.CatBoost:
    """A copy of a model with the leaf values and the starting score of an ensemble."""
    changed = with_content(model, model)
    changed.set_leaf_values(e.finished_values.ravel())
    bias = e.finished_base
    changed.set_scale_and_bias(1.0, bias.tolist() if len(bias) > 1 else float(bias[0]))
    return changed


def own_predictions(model: catboost.CatBoost, F: F64) -> NDArray[np.generic]:
    """Predictions of the model for raw scores F (m, K): classes, numbers or raw scores."""
    squeezed = F[:, 0] if F.shape[1] == 1 else F
    if isinstance(model, catboost.CatBoostClassifier):
        classes = np.asarray(model.classes_)
        if F.shape[1] > 1:
            return classes[F.argmax(axis=1)][:, None]  # a column, as CatBoost has it
        threshold = model.get_probability_threshold()
        return classes[(F[:, 0] > np.log(threshold / (1 - threshold))).astype(int)]
    if isinstance(model, catboost.CatBoostRegressor):
        exponent = model._get_default_prediction_type() == "Exponent"
        return np.exp(squeezed) if exponent else squeezed
    return squeezed
