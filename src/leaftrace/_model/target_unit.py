"""Labels and predictions in the unit of the target, where a model is trained on transformed labels.

    T(y) = label that training fits,      T^-1(F) = prediction,      F = raw score
    L(F, y) = loss(T^-1(F), y),           dL/dF = loss'(T^-1(F), y) dT^-1/dF

Derivatives of T and of T^-1 are taken by differences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64
from .further_losses.numeric_derivative import derivative
from .general_losses import Pinball
from .losses import Criterion, Loss, SquaredError

_LEAST_SCALE = 1e-3  # of a label, as a share of the mean: steps below would be lost in rounding


@dataclass(frozen=True)
class TargetUnit:
    """The unit of labels as users give them.

    ``transform``  labels (m,) as training fits them, from labels as given
    ``back``       predictions (m,) from raw scores (m, 1)
    ``labels``     (n,) of the training rows, as given
    """

    transform: Callable[[F64], F64]
    back: Callable[[F64], F64]
    labels: F64

    def slopes(self, F: F64) -> F64:
        """(m, 1) slopes of predictions in the scores F (m, 1)."""
        return derivative(lambda x, rows: self.back(x[:, None])[:, None], F[:, 0], False)

    def label_slopes(self, y: F64) -> F64:
        """(m,) slopes of transformed labels in the labels y (m,); NaN where there are none."""
        size = np.abs(y)
        scale = np.maximum(size, _LEAST_SCALE * size.mean())  # steps are relative to it
        scale[scale == 0] = 1.0
        with np.errstate(all="ignore"):
            slopes = derivative(
                lambda x, rows: self.transform(x * scale[rows])[:, None], y / scale, False
            )
        return slopes[:, 0] / scale


def criterion_of(trained: Loss, unit: TargetUnit | None) -> Criterion:
    """The loss of test rows: that of training, or one in the unit of the target.

    In that unit it is half the squared error, or the quantile error if that was trained.
    """
    if unit is None:
        return trained
    return InTargetUnit(trained if isinstance(trained, Pinball) else SquaredError(), unit)


@dataclass(frozen=True)
class InTargetUnit:
    """A loss of predictions in the unit of the target, as a function of raw scores F (m, 1)."""

    of: Loss
    unit: TargetUnit
    n_outputs: int = 1
    several_numbers: bool = False

    @property
    def name(self) -> str:
        return self.of.name

    def state(self, A: F64, out: F64 | None = None) -> F64:
        return A

    def response(self, state: F64) -> F64:
        return self.unit.back(state)

    def value(self, A: F64, y: F64) -> F64:
        predicted = self.unit.back(A.reshape(-1, 1)).reshape(A.shape)
        return self.of.value(predicted, y)

    def value_gradient(self, F: F64, y: F64) -> F64:
        predicted = self.unit.back(F)[:, None]
        return self.of.value_gradient(predicted, y) * self.unit.slopes(F)
