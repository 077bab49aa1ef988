"""Opening a model made of others: a tracer for each member, with the rows that it was trained on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._adapters.wrappers.folds import given_folds
from .._adapters.wrappers.members import (
    Member,
    MemberModel,
    fold_models,
    is_made_of_members,
    members_of,
)
from .._data import inputs
from .._data.arrays import Ints
from .._data.errors import FidelityWarning, InvalidInput, LeaftraceError, UnsupportedModel
from .._model.reading import Reading
from .tracer import Tracer


@dataclass(frozen=True)
class OpenedMembers:
    """A model made of others, opened.

    ``made``     the model
    ``tracers``  of its members, by name; those that are held as they are have none
    ``rows``     positions of the training rows of each member with a tracer
    ``y``        (n,) labels of the training rows, as given
    ``classes``  of the whole model, or None
    """

    made: MemberModel
    tracers: dict[str, Tracer]
    rows: dict[str, Ints]
    y: np.ndarray
    classes: np.ndarray | None


def open_members(
    model: Any, X: Any, y: Any, weight: Any, folds: Any, fidelity: str, settings: dict[str, Any]
) -> OpenedMembers:
    """Open a model with the arguments of `MembersTracer`."""
    n = inputs.row_count(X)
    if y is None:
        raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
    labels = inputs.vector(y, "y_train", n)
    weights = None if weight is None else inputs.weights(weight, n)
    made = _read(model, X, labels, folds)
    tracers: dict[str, Tracer] = {}
    rows: dict[str, Ints] = {}
    X_inside = made.transform(X)
    for member in made.members:
        kept = np.arange(n) if member.rows is None else member.rows
        table = X_inside if member.rows is None else inputs.take_rows(X_inside, kept)
        if isinstance(table, np.ndarray) or not hasattr(table, "iloc"):
            named = table
        else:  # rows that were drawn twice would share a label
            named = table.reset_index(drop=True)
        arguments = (member.model, named, member_labels(made, member, labels)[kept])
        own_weight = None if weights is None else weights[kept]
        try:
            _refuse_nested(member)
            tracer = Tracer(*arguments, own_weight, fidelity=fidelity, **settings)  # type: ignore[arg-type]
        except LeaftraceError as error:
            _hold_or_raise(member, made, error, fidelity)
            continue
        tracers[member.name] = tracer
        rows[member.name] = kept
    if not tracers:
        raise UnsupportedModel(f"no member of this {made.name} can be traced.")
    classes = made.classes
    if classes is None:
        source = next(iter(tracers.values())).engine.source
        classes = Reading(source.ensemble.loss, source.classes).with_numbered_classes().classes
    return OpenedMembers(made, tracers, rows, labels, classes)


def _read(model: Any, X: Any, y: np.ndarray, folds: Any) -> MemberModel:
    """Find the members, with folds as the user gives them or as they are found again."""
    if isinstance(model, Mapping) and "estimator" in model:  # of cross_validate
        folds = model.get("indices") if folds is None else folds
        model = model["estimator"]
    if is_made_of_members(model):
        rows = None
        if folds is not None:
            count = len(getattr(model, "calibrated_classifiers_", folds))
            rows = given_folds(folds, X, y, count)
        return members_of(model, X, y, rows)
    models = getattr(model, "boosters", model)
    if isinstance(models, (str, bytes)) or not hasattr(models, "__len__"):
        raise InvalidInput(
            f"models is a {type(model).__name__}; it can be a list of fitted models, a CVBooster of lightgbm.cv, the "
            "result of cross_validate(..., return_estimator=True, return_indices=True), or a CalibratedClassifierCV."
        )
    if folds is None:
        raise InvalidInput(
            "folds is missing; pass the rows that each model was trained on: folds=list(cv.split(X, y))."
        )
    return fold_models(model, given_folds(folds, X, y, len(models)))


def member_labels(made: MemberModel, member: Member, y: np.ndarray) -> np.ndarray:
    """Labels as a member was given them: by name, or by the numbers that wrappers give to classes."""
    if made.numbered:
        return made.codes(y)
    known = getattr(member.model, "classes_", None)
    if made.classes is None or known is None or made.combined is None:
        return y
    if {*map(str, known)} == {*map(str, made.classes)}:
        return y
    return made.codes(y)


def _refuse_nested(member: Member) -> None:
    """Raise an error for a member that is itself made of others."""
    if is_made_of_members(member.model):
        raise UnsupportedModel("it is itself made of other models; pass it alone.")


def _hold_or_raise(member: Member, made: MemberModel, error: LeaftraceError, fidelity: str) -> None:
    """Raise the error of a member, or say in a warning that it is held as it is."""
    name = f"the member '{member.name}' of this {made.name} ({type(member.model).__name__})"
    if fidelity == "raise" or made.combined is None:
        hold = ""
        if isinstance(error, UnsupportedModel) and made.combined is not None:
            hold = ' fidelity="warn" goes on with this member held as it is.'
        raise type(error)(f"{name} cannot be traced: {error}{hold}") from None
    if fidelity == "warn":
        warnings.warn(f"{name} is held as it is: {error}", FidelityWarning, stacklevel=5)
