"""scikit-learn: HistGradientBoosting, GradientBoosting, RandomForest, ExtraTrees and single trees.

A model is read as the first of these classes that it derives from, so subclasses work.
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
# Why a class, or one it derives from, is not supported, and what to use instead.
_NEAREST = {
    "AdaBoostClassifier": (
        "it weighs its trees by their errors; the nearest choice is GradientBoostingClassifier(loss='exponential')"
    ),
    "AdaBoostRegressor": "it takes a weighted median of its trees; the nearest choice is GradientBoostingRegressor",
    "BaggingClassifier": "the nearest choice is RandomForestClassifier, which bags trees",
    "BaggingRegressor": "the nearest choice is RandomForestRegressor, which bags trees",
    "IsolationForest": "its trees know no labels; the nearest choice is ExtraTreesRegressor",
    "RandomTreesEmbedding": "its trees know no labels; the nearest choice is ExtraTreesRegressor",
    "CalibratedClassifierCV": _INSIDE,
    "_BaseHeterogeneousEnsemble": _INSIDE,
    "_MultiOutputEstimator": _INSIDE,
    "OneVsRestClassifier": _INSIDE,
    "OneVsOneClassifier": _INSIDE,
    "BaseThresholdClassifier": _INSIDE,
}


def open_model(
    model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]
) -> SklearnSource:
    """Open a fitted model with its training data.

    ``given`` holds parameters from the user that replace those of the model."""
    source = _source_class(model)
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise UnsupportedModel(
            f"this {type(model).__name__} is not fitted; call fit() first."
        ) from None
    return source(model, X, y, sample_weight, baseline, given)


def _source_class(model: Any) -> type[SklearnSource]:
    """Return the kind of source for this model, or raise with the nearest supported choice."""
    for source, classes in _SOURCES.items():
        if isinstance(model, classes):
            return source
    name = type(model).__name__
    for parent in type(model).__mro__:
        if parent.__name__ in _NEAREST:
            raise UnsupportedModel(f"{name} is not supported: {_NEAREST[parent.__name__]}.")
    raise UnsupportedModel(
        f"{name} is not supported: it has no leaves that hold training rows; the nearest choice is "
        "HistGradientBoosting."
    )
