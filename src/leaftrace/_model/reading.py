"""`Reading`: the meaning of raw scores, as probabilities, decisions or numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints
from .losses import Criterion
from .target_unit import InTargetUnit

_ROUNDING = 1e-12  # of sums of a few hundred float64 numbers, by the largest score of a row


@dataclass(frozen=True)
class Reading:
    """How the raw scores F (m, K) of a model are read.

    ``classes`` (C,)  labels in the order of their numbers; None: the model predicts numbers
    """

    loss: Criterion
    classes: NDArray[Any] | None

    def response(self, F: F64) -> F64:
        """Class probabilities (m, C), or the expected label (m,)."""
        return self.loss.response(self.loss.state(F))

    @cached_property
    def response_width(self) -> int:
        """Number of class probabilities C; zero where the response is numbers."""
        if self.loss.several_numbers or isinstance(self.loss, InTargetUnit):
            return 0
        at_zero = self.response(np.zeros((1, self.loss.n_outputs)))
        return 0 if at_zero.ndim == 1 else at_zero.shape[1]

    @property
    def has_probabilities(self) -> bool:
        """Whether the response is class probabilities."""
        return self.response_width > 0

    def probability(self, F: F64) -> F64 | None:
        """Class probabilities (m, C) of a classifier; None where the model has none."""
        if self.classes is None or not self.has_probabilities:
            return None
        return self.response(F)

    def decision(self, F: F64) -> Ints:
        """(m,) numbers of the predicted classes. A single score decides by its sign.

        Of classes that are level, the first is predicted, as libraries do; rounding may tell them
        apart, as in forests, where many rows have as many votes for a class as for another."""
        if F.shape[1] == 1:
            return (F[:, 0] > 0).astype(np.intp)
        below = F.max(axis=1, keepdims=True) - F
        return (below <= _ROUNDING * np.abs(F).max(axis=1, keepdims=True)).argmax(axis=1)

    def number(self, F: F64) -> F64:
        """(m,) the expected label; for labels that are shares of two classes, the second's share.

        (m, K) for models of several numbers.
        """
        response = self.response(F)
        is_number = response.ndim == 1 or self.loss.several_numbers
        return response if is_number else response[:, -1]

    def predicted(self, F: F64) -> NDArray[Any]:
        """(m,) predicted labels: those of the predicted classes, or numbers."""
        return self.number(F) if self.classes is None else self.classes[self.decision(F)]

    def with_numbered_classes(self) -> Reading:
        """The same, with classes 0, 1, ... for a booster that takes shares of classes as labels."""
        if self.classes is not None or not self.has_probabilities:
            return self
        return replace(self, classes=np.arange(self.response_width))

    def spelled_as(self, codes: F64, labels: NDArray[Any]) -> NDArray[Any]:
        """(C,) class labels, spelled as in these rows, whose class numbers are `codes`.

        They keep the type of these labels if every class has a row.
        """
        numbers, rows = np.unique(codes.astype(int), return_index=True)
        given = labels[rows]
        spelling = np.array(self.classes, dtype=object)
        if len(given) == len(spelling):
            return given
        spelling[numbers] = given
        return spelling
