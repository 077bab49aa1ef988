"""Wrappers around one model that sees the rows as they are: searches, frozen and tuned models.

The model inside is traced; a refitted or retrained one comes back in a copy of the wrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble
from ..._model.training_set import TrainingSet
from ..base import Wrapped

if TYPE_CHECKING:
    from .. import Retrained, Source

Rewrap = Callable[[Any], Any]


def base_names(model: Any) -> set[str]:
    """Names of the classes that a model derives from, each with the package it is from."""
    return {f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in type(model).__mro__}


def unwrap(model: Any) -> tuple[Any, Rewrap] | None:
    """Return the model in a wrapper, and a function that puts another in its place; None: no wrapper."""
    names = base_names(model)
    if "sklearn.FrozenEstimator" in names:
        return model.estimator, _replacing(model, "estimator")
    if "sklearn.BaseSearchCV" in names or "optuna_integration.OptunaSearchCV" in names:
        return _best_of_search(model)
    if "optuna_integration._LightGBMBaseTuner" in names:
        booster = model.get_best_booster()
        # A tuner is a search and no model, so there is nothing to put a booster back into.
        return booster, lambda changed: changed
    return None


def innermost(model: Any) -> Any:
    """Return the model inside wrappers around one that sees the rows as they are."""
    inside = unwrap(model)
    if inside is not None:
        return innermost(inside[0])
    if "sklearn.TransformedTargetRegressor" in base_names(model):
        return innermost(getattr(model, "regressor_", model.regressor))
    return model


def _best_of_search(search: Any) -> tuple[Any, Rewrap]:
    name = type(search).__name__
    if not hasattr(search, "best_estimator_"):
        raise UnsupportedModel(
            f"this {name} has no best_estimator_: it is not fitted, or was made with refit=False and has kept no "
            "model; fit it with refit=True, or train the best parameters and pass that model."
        )
    return search.best_estimator_, _replacing(search, "best_estimator_")


def _replacing(wrapper: Any, attribute: str) -> Rewrap:
    """Return a function that gives a copy of the wrapper with another model as this attribute."""

    def rewrap(model: Any) -> Any:
        changed = copy(wrapper)
        setattr(changed, attribute, model)
        return changed

    return rewrap


class UnwrappedSource(Wrapped):
    """The model in a wrapper, with models of other training sets in copies of it."""

    def __init__(self, inner: Source, name: str, rewrap: Rewrap) -> None:
        self.inner = inner
        self.rewrap = rewrap
        self.wrapper = name

    @property
    def name(self) -> str:
        return f"{self.wrapper} with {self.inner.name}"

    def refitted_model(self, e: Ensemble) -> Any:
        return self.rewrap(self.inner.refitted_model(e))

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        return RewrappedRetrained(self.inner.retrain(rows, threads), self)

    def around(self, inner: Source) -> Source:
        """Return another model in the same wrapper."""
        return UnwrappedSource(inner, self.wrapper, self.rewrap)


class RewrappedRetrained:
    """A retrained model, in a copy of the wrapper. ``source``: the source of the wrapper."""

    def __init__(self, inner: Retrained, source: Any) -> None:
        self.inner = inner
        self.source = source
        self.rounds = inner.rounds

    @property
    def structure_changed(self) -> bool:
        return self.inner.structure_changed

    def scores(self, X: Any) -> Any:
        return self.inner.scores(X)

    def own_model(self) -> Any:
        return self.source.rewrap(self.inner.own_model())

    def open(self) -> Source:
        return self.source.around(self.inner.open())
