"""`Goal`: a scalar of all test predictions with its gradient, and the base of the ones in `goals`.

Goals of probabilities P need dP/dF. Five points of the model's own link give it for every loss, one
output at a time:

    dP/dF_k = (8 (P(F + h) - P(F - h)) - (P(F + 2h) - P(F - 2h))) / 12h,      error of order h^4
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .._data.inputs import class_codes
from .._data.row_labels import aligned
from .coupled.scalars import QueryScalar
from .losses import Criterion
from .reading import Reading

STEP = 1e-3  # h above: the error is 1e-12 from h^4, and 1e-13 from rounding


@dataclass(frozen=True)
class GoalRows:
    """The test rows and the link of their model, for goals that need more than predictions."""

    reading: Reading
    y: F64 | None  # (m,) labels as the loss takes them
    count: int  # m
    index: np.ndarray | None = None  # (m,) labels of the rows in their table, or None

    @property
    def loss(self) -> Criterion:
        return self.reading.loss

    @property
    def classes(self) -> np.ndarray | None:
        return self.reading.classes

    def labels(self, goal: str) -> F64:
        """(m,) labels; an error that names the goal if there are none."""
        if self.y is None:
            raise InvalidInput(f"{goal} needs the labels of the test rows; pass y_test.")
        return self.y

    def in_order(self, values: Any, name: str) -> Any:
        """Values for the test rows in their order. ``name``: of the argument, for messages."""
        return aligned(values, self.index, name, "X_test")

    def response(self, F: F64) -> F64:
        """(m, C) class probabilities, or (m, 1) the expected label."""
        P = self.reading.response(F)
        return P[:, None] if P.ndim == 1 else P

    def pulled_back(self, F: F64, c: F64) -> F64:
        """dQ/dF (m, K) from c = dQ/dP (m, C); the response of a row depends on its own scores."""
        out = np.empty_like(F)
        for k, h in enumerate(STEP * np.eye(F.shape[1])):
            near = self.response(F + h) - self.response(F - h)
            far = self.response(F + 2 * h) - self.response(F - 2 * h)
            out[:, k] = (c * (8 * near - far)).sum(axis=1) / (12 * STEP)
        return out

    def class_number(self, label: Any, goal: str) -> int:
        """The column of a class in the response; the second of two if no label is given."""
        C = self.reading.response_width
        if not C:
            if label is not None:
                raise InvalidInput(
                    f"{goal} has label={label!r}, but this model predicts numbers, not classes."
                )
            return 0
        classes = self.reading.with_numbered_classes().classes
        assert classes is not None
        if label is not None:
            return int(class_codes(np.array([label]), classes, "label")[0])
        if C > 2:
            raise InvalidInput(
                f"{goal}: say with label= which of the classes {', '.join(map(str, classes))} is meant."
            )
        return 1

    def needs_classes(self, goal: str) -> None:
        """Raise an error unless the model predicts probabilities of classes."""
        if self.classes is None or not self.reading.has_probabilities:
            raise InvalidInput(
                f"{goal} is for classifiers with probabilities; this model has the {self.loss.name} loss."
            )


@dataclass(frozen=True)
class Goal:
    """A goal of your own: a number computed from all test predictions.

    >>> Goal(lambda F: float(np.tanh(F).mean()), lambda F: (1 - np.tanh(F) ** 2) / len(F), name="mean_tanh").name
    'mean_tanh'

    ``value``     a number from raw predictions, (m,) or (m, K) for several outputs
    ``gradient``  its gradient there, of the same shape. Without it central differences are taken:
                  value is called 2 m K times for each question
    ``name``      for tables: they have a column ``<name>_change_if_removed``
    ``lower_is_better``  with True or False tables have the words `harmful` and `helpful`, otherwise
                  `raises` and `lowers`
    """

    value: Callable[[F64], float]
    gradient: Callable[[F64], Any] | None = None
    name: str = "goal"
    lower_is_better: bool | None = None

    def bind(self, test: GoalRows) -> Goal:
        """The goal for these test rows; it has a gradient."""
        return self if self.gradient is not None else replace(self, gradient=self._differences)

    def at(self, F: F64) -> float:
        """The value for scores (m, K)."""
        value = self.value(squeezed(F))
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"the goal '{self.name}' gave {type(value).__name__}; expected one number."
            ) from None
        if not np.isfinite(value):
            raise InvalidInput(
                f"the goal '{self.name}' has the value {value}; expected a finite number."
            )
        return value

    def _differences(self, scores: F64) -> F64:
        """The gradient by central differences.

        For a mean over m rows the error is 1e-9 from h^2, and 1e-12 m from rounding.
        """
        F = np.array(scores, dtype=float)
        h = 1e-4
        out = np.empty_like(F)
        for i in np.ndindex(F.shape):
            F[i] += h
            above = self.at(F)
            F[i] -= 2 * h
            out[i] = (above - self.at(F)) / (2 * h)
            F[i] = scores[i]
        return out


def squeezed(F: F64) -> F64:
    """Scores in the shape that users get: (m,) for one output, otherwise (m, K)."""
    return F[:, 0] if F.ndim == 2 and F.shape[1] == 1 else F


class ReadyGoal:
    """A goal whose value and gradient depend on the model and its test rows; `bind` makes them."""

    name: ClassVar[str]

    def bind(self, test: GoalRows) -> Goal:
        """The goal for these test rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class ShapGoal:
    """SHAP values of features at test rows, as `goals.shap` makes it.

    ``features``  their names or positions; None for all
    ``several``   whether columns are features, not test rows
    """

    features: tuple[Any, ...] | None
    several: bool


class QueryGoal:
    """A goal of each query of ranked test rows."""

    name: ClassVar[str]
    lower_is_better: ClassVar[bool] = False

    def scalar(self, y: F64, number: Ints) -> QueryScalar:
        """The goal for test rows with labels y (m,) and queries (m,)."""
        raise NotImplementedError
