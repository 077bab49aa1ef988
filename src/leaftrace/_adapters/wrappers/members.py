"""Models made of several models: their members, the rows each was trained on, and how they are combined.

VotingClassifier, VotingRegressor      every member on all rows, predictions averaged
StackingClassifier, StackingRegressor  the same, combined by a final model, which is held as it is
CalibratedClassifierCV                 a member a fold, with a calibrator, which is held as it is
imbalanced-learn's Pipeline            one member, on the rows that samplers chose
AutoGluon's TabularPredictor           the models in its best model: see autogluon.py
a Pipeline that ends in one of these   with rows that its earlier steps transform
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import Ints
from ..._data.errors import UnsupportedModel
from ..base import for_sklearn
from .folds import folds_of_splitter
from .one_model import base_names, unwrap
from .sampled import sampled_rows


@dataclass(frozen=True)
class Member:
    """A model inside another. ``rows``: positions of its training rows; None: all in their order."""

    name: str
    model: Any
    rows: Ints | None = None


@dataclass(frozen=True)
class MemberModel:
    """A model made of members.

    ``name``          of its class
    ``members``       the models inside
    ``with_members``  a function of as many models that gives a copy of the model made of these
    ``transform``     a function that gives rows as the members take them
    ``classes``       labels of a classifier in the order of its outputs
    ``combined``      a function of members (or stand-ins), rows as these take them and the name of a
                      method ("predict_proba", "predict") that gives the prediction of the whole;
                      None: the one member is all there is
    ``numbered``      whether members know classes by number, whatever they say
    ``not_smooth``    why its predictions have no derivatives in those of its members, if so
    """

    name: str
    members: Sequence[Member]
    with_members: Callable[[Sequence[Any]], Any]
    transform: Callable[[Any], Any]
    classes: NDArray[Any] | None
    combined: Callable[[Sequence[Any], Any, str], NDArray[Any]] | None
    not_smooth: str = ""
    numbered: bool = False

    def codes(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return class numbers of labels y (n,), as wrappers give them to their members."""
        assert self.classes is not None
        return inputs.class_codes(y, self.classes, "y").astype(int)


def is_made_of_members(model: Any) -> bool:
    """Whether a model is one that `members_of` opens."""
    inside = _inside(model)
    names = base_names(inside)
    if "autogluon.TabularPredictor" in names:
        return True
    if "sklearn.Pipeline" in names:
        return _has_samplers(inside) or (len(inside) > 0 and is_made_of_members(inside[-1]))
    return bool(names & {"sklearn._BaseHeterogeneousEnsemble", "sklearn.CalibratedClassifierCV"})


def members_of(model: Any, X: Any, y: Any, folds: Sequence[Ints] | None = None) -> MemberModel:
    """Open a model that is made of members.

    ``folds``: rows of each member, where the user gives them.
    """
    outer = unwrap(model)
    if outer is not None:
        inner, rewrap = outer
        found = members_of(inner, X, y, folds)
        made = found.with_members
        return replace(found, with_members=lambda models: rewrap(made(models)))
    names = base_names(model)
    if "autogluon.TabularPredictor" in names:
        from .autogluon import predictor_members

        return predictor_members(model, X)
    if "sklearn.Pipeline" in names:
        return _of_pipeline(model, X, y, folds)
    if not hasattr(model, "classes_") and not hasattr(model, "estimators_"):
        raise UnsupportedModel(f"this {type(model).__name__} is not fitted; call fit() first.")
    if "sklearn.CalibratedClassifierCV" in names:
        return _calibrated(model, X, y, folds)
    return _heterogeneous(model)


def _inside(model: Any) -> Any:
    """Return the model inside of all wrappers around one model; unfitted ones as they are."""
    while True:
        try:
            inner = unwrap(model)
        except UnsupportedModel:
            return model
        if inner is None:
            return model
        model = inner[0]


def _has_samplers(pipeline: Any) -> bool:
    return any(hasattr(step, "fit_resample") for _, step in pipeline.steps)


def _of_pipeline(pipeline: Any, X: Any, y: Any, folds: Sequence[Ints] | None) -> MemberModel:
    """Open a pipeline with samplers, or with a last step that is made of members."""

    def transform(rows: Any) -> Any:
        rows = for_sklearn(rows)
        for _, step in pipeline.steps[:-1]:  # samplers leave rows to predict as they are
            if hasattr(step, "transform"):
                rows = step.transform(rows)
        return rows

    def with_last(model: Any) -> Any:
        changed = copy(pipeline)
        changed.steps = [*pipeline.steps[:-1], (pipeline.steps[-1][0], model)]
        return changed

    name, last = pipeline.steps[-1]
    if not _has_samplers(pipeline):
        found = members_of(last, X, y, folds)
        made = found.with_members
        return replace(
            found,
            name=f"Pipeline with {found.name}",
            transform=transform,
            with_members=lambda models: with_last(made(models)),
        )
    if is_made_of_members(last):
        raise UnsupportedModel(
            "this pipeline has samplers before a model that is made of others; pass one of those, fitted, with the "
            "rows it was trained on."
        )
    return MemberModel(
        "Pipeline with samplers",
        [Member(name, last, sampled_rows(pipeline))],
        lambda models: with_last(models[0]),
        transform,
        getattr(last, "classes_", None),
        combined=None,
    )


def _heterogeneous(model: Any) -> MemberModel:
    """Open a Voting* or Stacking* model."""
    names = [name for name, given in model.estimators if given is not None and given != "drop"]

    def with_members(models: Sequence[Any]) -> Any:
        changed = copy(model)
        changed.estimators_ = list(models)
        changed.named_estimators_ = copy(model.named_estimators_)
        changed.named_estimators_.update(zip(names, models, strict=True))
        return changed

    not_smooth = ""
    if getattr(model, "voting", "soft") == "hard":
        not_smooth = "voting='hard' counts votes"
    if "predict" in getattr(model, "stack_method_", ()) and hasattr(model, "classes_"):
        not_smooth = "stack_method='predict' hands on the classes that members predict"
    members = [Member(n, e) for n, e in zip(names, model.estimators_, strict=True)]
    classes = getattr(model, "classes_", None)
    combined = _by_its_own_code(with_members)
    name = type(model).__name__
    return MemberModel(name, members, with_members, for_sklearn, classes, combined, not_smooth)


def _calibrated(model: Any, X: Any, y: Any, folds: Sequence[Ints] | None) -> MemberModel:
    """Open a CalibratedClassifierCV. Members share their model if it was trained beforehand."""
    parts = model.calibrated_classifiers_
    models = [part.estimator for part in parts]
    first = [_inside(inner) for inner in models]
    trained_once = all(inner is first[0] for inner in first)

    def with_members(changed_models: Sequence[Any]) -> Any:
        changed = copy(model)
        given = list(changed_models) * (len(parts) if trained_once else 1)
        changed.calibrated_classifiers_ = []
        for part, inner in zip(parts, given, strict=True):
            again = copy(part)
            again.estimator = inner
            changed.calibrated_classifiers_.append(again)
        return changed

    if trained_once:
        members = [Member("estimator", models[0])]
    else:
        rows = folds_of_splitter(model.cv, X, y, len(parts)) if folds is None else folds
        if len(rows) != len(models):
            raise UnsupportedModel(
                f"there are {len(rows)} folds, but this CalibratedClassifierCV has {len(models)} members."
            )
        members = [
            Member(f"fold {k}", inner, kept)
            for k, (inner, kept) in enumerate(zip(models, rows, strict=True))
        ]
    combined = _by_its_own_code(with_members)
    classes = np.asarray(model.classes_)
    # Trees give few different scores, so that many test rows are at the kinks themselves.
    kinks = "method='isotonic' has kinks at the scores of calibration rows"
    not_smooth = kinks if model.method == "isotonic" else ""
    name = type(model).__name__
    return MemberModel(name, members, with_members, for_sklearn, classes, combined, not_smooth)


def _by_its_own_code(with_members: Callable[[Sequence[Any]], Any]) -> Any:
    """Return the `combined` of a wrapper that combines predictions by its own methods."""

    def combined(models: Sequence[Any], X: Any, method: str) -> NDArray[Any]:
        return np.asarray(getattr(with_members(models), method)(X))

    return combined


def fold_models(models: Any, rows: Sequence[Ints]) -> MemberModel:
    """Open models of a cross-validation, in a list or a CVBooster, with the rows of each.

    Their prediction is the mean of those of all."""
    boosters = _listed(models)

    def with_members(changed: Sequence[Any]) -> Any:
        if not hasattr(models, "boosters"):
            return list(changed)
        again = copy(models)
        again.boosters = list(changed)
        return again

    def combined(changed: Sequence[Any], X: Any, method: str) -> NDArray[Any]:
        return np.mean([getattr(model, method)(X) for model in changed], axis=0)

    members = [
        Member(f"fold {k}", model, kept)
        for k, (model, kept) in enumerate(zip(boosters, rows, strict=True))
    ]
    name = f"{len(members)} models of folds"
    return MemberModel(name, members, with_members, lambda X: X, None, combined)


def _listed(models: Any) -> list[Any]:
    """Return the models of a list or a CVBooster."""
    return list(getattr(models, "boosters", models))
