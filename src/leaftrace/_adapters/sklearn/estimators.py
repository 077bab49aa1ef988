"""scikit-learn: HistGradientBoosting, GradientBoosting, RandomForest, ExtraTrees and single trees.

A model is read by the first of these classes it derives from, so subclasses work.
"""

from __future__ import annotations

from typing import Any

from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from ..._data.errors import UnsupportedModel
from .forest import ForestSource
from .gradient import GradientSource
from .hist import HistSource
from .source import SklearnSource

_SOURCES: dict[type[SklearnSource], tuple[type, ...]] = {
    HistSource: (HistGradientBoostingClassifier, HistGradientBoostingRegressor),
    GradientSource: (GradientBoostingClassifier, GradientBoostingRegressor),
    ForestSource: (
        RandomForestClassifier,
        RandomForestRegressor,
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        DecisionTreeClassifier,
        DecisionTreeRegressor,
    ),
}
_INSIDE = "it is made of other models; pass one of those, fitted, with the rows it was trained on"
_NEAREST = {
    "AdaBoostClassifier": (
        "it weighs its trees by their errors; the nearest choice is GradientBoostingClassifier(loss='exponential')"
    ),
    "AdaBoostRegressor": "it takes a weighted median of its trees; the nearest choice is GradientBoostingRegressor",
    "BaggingClassifier": "the nearest choice is RandomForestClassifier, which bags trees",
    "BaggingRegressor": "the nearest choice is RandomForestRegressor, which bags trees",
    "IsolationForest": "its trees know no labels; the nearest choice is ExtraTreesRegressor",
    "RandomTreesEmbedding": "its trees know no labels; the nearest choice is ExtraTreesRegressor",
    "BaseSearchCV": "pass its best_estimator_",
    "CalibratedClassifierCV": _INSIDE,
    "_BaseHeterogeneousEnsemble": _INSIDE,
    "_MultiOutputEstimator": _INSIDE,
    "OneVsRestClassifier": _INSIDE,
    "OneVsOneClassifier": _INSIDE,
    "BaseThresholdClassifier": _INSIDE,
    "TransformedTargetRegressor": "pass its regressor_ with the transformed labels it was trained on",
}


def open_model(
    model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]
) -> SklearnSource:
    source = next(
        (source for source, classes in _SOURCES.items() if isinstance(model, classes)), None
    )
    if source is None:
        reason = next(
            (_NEAREST[c.__name__] for c in type(model).__mro__ if c.__name__ in _NEAREST), None
        )
        raise UnsupportedModel(
            f"{type(model).__name__} is not supported: "
            + (
                reason
                or "it has no leaves that hold training rows; the nearest choice is HistGradientBoosting"
            )
            + "."
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise UnsupportedModel(
            f"this {type(model).__name__} is not fitted; call fit() first."
        ) from None
    return source(model, X, y, sample_weight, baseline, given)
