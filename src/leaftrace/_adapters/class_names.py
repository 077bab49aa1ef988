"""Names for the classes of a model that has only numbers for them, such as a saved booster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data import frames, inputs
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._model.early_stopping import map_eval_set
from .._model.reading import Reading
from .._model.training_set import TrainingSet
from .base import Wrapped

if TYPE_CHECKING:
    from . import Retrained, Source


def check_class_names(classes: Any | None, names: Sequence[Any], argument: str) -> None:
    """Raise an error unless these names fit the classes of the model. ``argument``: its name."""
    if classes is None:
        raise InvalidInput(
            f"{argument} names the classes of a classifier, but this model predicts numbers; leave it out."
        )
    if len(names) != len(classes):
        raise InvalidInput(
            f"{argument} has {len(names)} names, but the model has {len(classes)} classes; "
            "name each, in its order."
        )
    if classes.tolist() != list(range(len(names))):
        raise InvalidInput(
            f"{argument} is for a model that knows its classes by number; this one has their names."
        )


def numbers_of(labels: NDArray[Any], names: Sequence[Any]) -> NDArray[Any]:
    """Class numbers of labels that are names; labels that are not stay as they are."""
    number = {str(name): code for code, name in enumerate(names)}
    given = [str(label) for label in labels.tolist()]
    if not set(given) <= set(number):
        return labels
    return np.array([number[label] for label in given])


def open_with_names(open_with: Callable[[Any], Source], y: Any, names: Sequence[Any]) -> Source:
    """Open a model with names for its classes. ``open_with``: opens it with labels by number."""
    if y is None:
        return with_names(open_with(None), names, "class_names")
    labels = frames.to_numpy(y)
    codes = numbers_of(labels, names)
    some_are_names = bool(set(map(str, labels.tolist())) & set(map(str, names)))
    if codes is labels and some_are_names:  # says which labels are not among the classes
        inputs.class_codes(labels, np.array([*names], dtype=object), "y_train")
    return with_names(open_with(codes), names, "class_names")


def with_names(source: Source, names: Sequence[Any], argument: str) -> NamedClasses:
    """Give names to the classes of a model. ``argument``: what the user gave them as, for messages.

    A booster that takes shares of classes as labels (XGBoost without its scikit-learn class) counts
    as a classifier from here on."""
    reading = Reading(source.ensemble.loss, source.classes)
    check_class_names(reading.with_numbered_classes().classes, names, argument)
    return NamedClasses(source, names)


def given_names(source: Source) -> NDArray[Any] | None:
    """(C,) names that the user gave to classes the model has only numbers for, or None."""
    return source.names if isinstance(source, NamedClasses) else None


def stored_labels(source: Source, y: Any) -> Any:
    """Labels as the model stores them: class numbers in place of names that the user gave."""
    names = given_names(source)
    if names is None or y is None:
        return y
    return numbers_of(frames.to_numpy(y), names.tolist())


class NamedClasses(Wrapped):
    """A model with names for its classes. Labels may be given by name or by number."""

    def __init__(self, inner: Source, names: Sequence[Any]) -> None:
        self.inner = inner
        self.names = np.array([*names], dtype=object)

    @property
    def classes(self) -> NDArray[Any]:
        return self.names

    def labels(self, y: Any, length: int, name: str) -> F64:
        given = inputs.vector(y, name, length)
        codes = numbers_of(given, self.names.tolist())
        by_number = codes.dtype.kind in "biuf" and bool(
            np.isin(codes, range(len(self.names))).all()
        )
        if not by_number:  # says which labels are not among the classes
            return inputs.class_codes(given, self.names, name)
        return self.inner.labels(codes, length, name)

    def named(self, y: Any) -> NDArray[Any]:
        """(n,) the names of these labels, given by name or by number."""
        codes = self.labels(y, len(y), "y")
        return self.names[codes.astype(int)]

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        names = self.names.tolist()
        if rows.y is not None:
            rows = replace(rows, y=numbers_of(rows.y, names))
        if rows.added is not None:
            X, y, w = rows.added
            rows = replace(rows, added=(X, numbers_of(y, names), w))
        by_number = map_eval_set(rows.eval_set, y=lambda labels: numbers_of(labels, names))
        rows = replace(rows, eval_set=by_number)
        return RetrainedWithNames(self.inner.retrain(rows, threads), names)


class RetrainedWithNames:
    """A retrained model whose classes keep their names."""

    def __init__(self, inner: Retrained, names: Sequence[Any]) -> None:
        self.inner = inner
        self.names = names
        self.rounds = inner.rounds

    @property
    def structure_changed(self) -> bool:
        return self.inner.structure_changed

    def scores(self, X: Any) -> F64:
        return self.inner.scores(X)

    def own_model(self) -> Any:
        return self.inner.own_model()

    def open(self) -> Source:
        return NamedClasses(self.inner.open(), self.names)
