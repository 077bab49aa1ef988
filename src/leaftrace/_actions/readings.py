"""How raw scores are read: what the model answers, which class it decides for, how far on the right side it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .._model.losses import Loss
from .._tracer.tracer import Tracer


@dataclass(frozen=True)
class Reading:
    """Of scores F (m, K)."""

    loss: Loss
    classes: (
        np.ndarray | None
    )  # labels by the number of their class; None: the model predicts numbers

    def response(self, F: F64) -> F64:
        """Class probabilities (m, classes), or what is expected of the label (m,)."""
        return self.loss.response(self.loss.state(F))

    @property
    def has_probabilities(self) -> bool:
        return self.response(np.zeros((1, self.loss.n_outputs))).ndim == 2

    def decision(self, F: F64) -> Ints:
        """(m,) numbers of the classes decided for. A score of two classes decides by its sign."""
        return (F[:, 0] > 0).astype(np.intp) if F.shape[1] == 1 else F.argmax(axis=1)


def reading(tracer: Tracer) -> Reading:
    loss = tracer.engine.ensemble.loss
    classes = tracer.classes
    unnamed = Reading(loss, classes)
    if classes is None and unnamed.has_probabilities:  # a booster that takes labels from 0 to 1
        classes = np.arange(unnamed.response(np.zeros((1, loss.n_outputs))).shape[1])
    return Reading(loss, classes)


@dataclass(frozen=True)
class Side:
    """The right side for one row: its class, or a number and how far from it a prediction may be."""

    reading: Reading
    code: float  # the row's label as the loss takes it
    tolerance: float = 0.0

    def margin(self, F: F64) -> float:
        """How far on the right side the scores F (K,) are; positive is right.

        Classes: the score of the right one above the highest of the others, or the score of two classes towards the
        right one. Numbers: the tolerance minus the error."""
        if self.reading.classes is None:
            return self.tolerance - abs(self.error(F))
        k = int(self.code)
        if len(F) == 1:
            return float(F[0] if k == 1 else -F[0])
        return float(F[k] - np.delete(F, k).max())

    def error(self, F: F64) -> float:
        """Of a number, in its unit."""
        return float(self.reading.response(F[None])[0] - self.code)

    def crossed(self, F: F64, start: F64) -> bool:
        """Whether the scores went from the wrong side, where they started, to the right one or beyond."""
        if self.reading.classes is None:
            return bool(np.sign(self.error(start)) * self.error(F) <= self.tolerance)
        return self.margin(F) > 0

    def loss(self, F: F64) -> float:
        return float(self.reading.loss.value(F[None], np.array([self.code]))[0])

    def answer(self, F: F64) -> float:
        """The probability of the right class, or the number predicted; NaN for classes without probabilities."""
        response = self.reading.response(F[None])[0]
        if self.reading.classes is None:
            return float(response)
        return float(response[int(self.code)]) if response.ndim else np.nan


def side_of(tracer: Tracer, x: Any, y: Any, tolerance: float | None) -> Side:
    """The right side for the row x with the label y; by default half the present error is tolerated."""
    read = reading(tracer)
    y = tracer.engine.source.own_labels(x) if y is None else y
    if y is None:
        raise InvalidInput("y is missing; pass the right label of x.")
    code = float(tracer.engine.labels(np.atleast_1d(np.asarray(y)), 1, "y")[0])
    if read.classes is None:
        F = tracer.engine.unchanged.scores(x)[0]
        tolerance = abs(Side(read, code).error(F)) / 2 if tolerance is None else tolerance
        if not tolerance > 0:
            raise InvalidInput(
                f"tolerance is {tolerance}; it is the error to get below, a number above zero."
            )
        return Side(read, code, float(tolerance))
    if tolerance is not None:
        raise InvalidInput(
            "tolerance= is for predictions of numbers; for classes, right is the class y."
        )
    if code != int(code):
        raise InvalidInput(
            f"y is {code:g}, a share and no class; which side of one half is right is not known."
        )
    return Side(read, code)


def slope(f: Any, F: F64, step: float = 1e-4) -> F64:
    """(K,) the gradient of f at the scores F (K,), by central differences: its error is of order step^2."""
    moves = step * np.eye(len(F))
    return np.array([(f(F + move) - f(F - move)) / (2 * step) for move in moves])
