"""Predictions of a model for rows: classes and probabilities, or numbers, and the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.cells import CellValue, short
from ..._model.reading import Reading

MAX_CLASSES = 5  # probabilities that are shown of one row


@dataclass(frozen=True)
class Outcomes:
    """Predictions of one model for m rows.

    ``scores``       (m, K) raw scores
    ``probability``  (m, C) class probabilities; None: the model has none
    ``number``       (m,) the predicted number; None: the model has classes
    ``decision``     (m,) numbers of the predicted classes; None: the model predicts numbers
    ``codes``        (m,) labels as the loss takes them; None: they are not known
    ``loss``         (m,) loss of each row, if its label is known
    ``classes``      (C,) labels of the classes, if the model has classes
    """

    scores: F64
    probability: F64 | None
    number: F64 | None
    decision: Ints | None
    codes: F64 | None
    loss: F64 | None
    classes: np.ndarray | None

    def watched_class(self, j: int) -> int | None:
        """The class whose probability is shown for row j: its label, or else the predicted one."""
        if self.decision is None:
            return None
        return int(self.decision[j] if self.codes is None else self.codes[j])

    def describe(self, j: int, watched: int | None = None) -> dict[str, Any]:
        """The prediction for row j as values for JSON.

        ``watched``: the class whose probability is shown; by default its `watched_class`."""
        facts: dict[str, Any] = {"loss": None if self.loss is None else _number(self.loss[j])}
        if self.decision is None or self.classes is None:
            assert self.number is not None
            return facts | {"prediction": _number(self.number[j])}
        facts["predicted"] = short(self.classes[self.decision[j]])
        facts["correct"] = None if self.codes is None else bool(self.codes[j] == self.decision[j])
        if self.probability is not None:
            watched = self.watched_class(j) if watched is None else watched
            facts["probability"] = _number(self.probability[j, watched])
            facts["probabilities"] = self._likely_classes(self.probability[j])
        return facts

    def _likely_classes(self, probability: F64) -> list[dict[str, CellValue]]:
        """The classes with the highest probabilities (C,)."""
        assert self.classes is not None
        likely = np.argsort(-probability, kind="stable")[:MAX_CLASSES]
        return [
            {"label": short(self.classes[c]), "probability": _number(probability[c])}
            for c in likely
        ]


def outcomes_of(reading: Reading, F: F64, codes: F64 | None) -> Outcomes:
    """The predictions that raw scores F (m, K) stand for.

    ``codes`` (m,): labels as the loss takes them, or None."""
    loss = None if codes is None else reading.loss.value(F, codes)
    if reading.classes is None:
        return Outcomes(F, None, reading.number(F), None, codes, loss, None)
    probability = reading.probability(F)
    return Outcomes(F, probability, None, reading.decision(F), codes, loss, reading.classes)


def _number(x: Any) -> CellValue:
    """A number for JSON: infinities are words, NaN is None."""
    return short(float(x))
