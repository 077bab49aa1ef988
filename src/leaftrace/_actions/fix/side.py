"""The right side for one row: whether scores are on it, and how far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import InvalidInput
from ..._model.reading import Reading
from ..._tracer.tracer import Tracer

_STEP = 1e-4  # of central differences


@dataclass(frozen=True)
class Side:
    """The right side for one row: its class, or a number with a tolerance.

    ``code``       the row's label as the loss takes it
    ``tolerance``  for numbers: the largest error of a right prediction
    """

    reading: Reading
    code: float
    tolerance: float = 0.0

    def margin(self, F: F64) -> float:
        """Distance of the scores F (K,) from the wrong side; positive is right.

        For classes it is the score of the right class above the highest other one or, if two
        classes have one score, the score towards the right class. For numbers it is the tolerance
        minus the error.
        """
        if self.reading.classes is None:
            return self.tolerance - abs(self.error(F))
        k = int(self.code)
        if len(F) == 1:
            return float(F[0] if k == 1 else -F[0])
        return float(F[k] - np.delete(F, k).max())

    def error(self, F: F64) -> float:
        """Signed error of a predicted number, in its unit."""
        return float(self.reading.response(F[None])[0] - self.code)

    def crossed(self, F: F64, start: F64) -> bool:
        """Whether scores that started on the wrong side are now on the right one or beyond."""
        if self.reading.classes is None:
            return bool(np.sign(self.error(start)) * self.error(F) <= self.tolerance)
        return self.margin(F) > 0

    def loss(self, F: F64) -> float:
        """Loss of the row at the scores F (K,)."""
        return float(self.reading.loss.value(F[None], np.array([self.code]))[0])

    def answer(self, F: F64) -> float:
        """Probability of the right class, or the predicted number; NaN for classes without
        probabilities."""
        response = self.reading.response(F[None])[0]
        if self.reading.classes is None:
            return float(response)
        return float(response[int(self.code)]) if response.ndim else np.nan


def side_of(tracer: Tracer, x: Any, y: Any, tolerance: float | None) -> Side:
    """The right side for the row x with the label y.

    ``tolerance``: for numbers; None: half the present error.
    """
    reading = tracer.engine.reading.with_numbered_classes()
    y = tracer.engine.test_labels(x, y)
    if y is None:
        raise InvalidInput("y is missing; pass the right label of x.")
    code = float(tracer.engine.test_codes(np.atleast_1d(np.asarray(y)), 1, "y")[0])
    if reading.classes is None:
        if tolerance is None:
            F = tracer.engine.unchanged.scores(x)[0]
            error = abs(Side(reading, code).error(F))
            return Side(reading, code, error / 2 or float(np.finfo(float).tiny))
        if not tolerance > 0:
            raise InvalidInput(
                f"tolerance is {tolerance}; it is the error to get below, a number above zero."
            )
        return Side(reading, code, float(tolerance))
    if tolerance is not None:
        raise InvalidInput(
            "tolerance= is for predictions of numbers; for classes, right is the class y."
        )
    if code != int(code):
        raise InvalidInput(
            f"y is {code:g}, a share and no class; which side of one half is right is not known."
        )
    return Side(reading, code)


def numeric_gradient(function: Callable[[F64], float], F: F64) -> F64:
    """(K,) gradient of a function at the scores F (K,), by central differences.

    Its error is of the order of the squared step.
    """
    moves = _STEP * np.eye(len(F))
    return np.array([(function(F + move) - function(F - move)) / (2 * _STEP) for move in moves])
