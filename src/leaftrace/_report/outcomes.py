"""What a model says of rows: classes and probabilities, or numbers, and the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._adapters import Source
from .._data.arrays import F64, Ints
from .._data.cells import CellValue, short
from .._engine.refit import AlteredModel

CLASSES = 5  # probabilities that are shown of one row


@dataclass(frozen=True)
class Outcomes:
    """m rows through one model."""

    scores: F64  # (m, K) raw
    probability: F64 | None  # (m, classes)
    number: F64 | None  # (m,) the expected label, where there are no classes
    predicted: Ints | None  # (m,) class numbers
    codes: F64 | None  # (m,) labels as the loss takes them
    loss: F64 | None  # (m,)
    classes: np.ndarray | None

    def watched(self, j: int) -> int | None:
        """The class whose probability is followed: that of the label, or without one the predicted."""
        if self.predicted is None:
            return None
        return int(self.predicted[j] if self.codes is None else self.codes[j])

    def of(self, j: int, watched: int | None = None) -> dict[str, Any]:
        """Everything that is said of row j."""
        out: dict[str, Any] = {"loss": None if self.loss is None else _finite(self.loss[j])}
        if self.predicted is None or self.classes is None:
            assert self.number is not None
            return out | {"prediction": _finite(self.number[j])}
        out["predicted"] = short(self.classes[self.predicted[j]])
        out["correct"] = None if self.codes is None else bool(self.codes[j] == self.predicted[j])
        if self.probability is not None:
            watched = self.watched(j) if watched is None else watched
            out["probability"] = _finite(self.probability[j, watched])
            likely = np.argsort(-self.probability[j], kind="stable")[:CLASSES]
            out["probabilities"] = [
                {"label": short(self.classes[c]), "probability": _finite(self.probability[j, c])}
                for c in likely
            ]
        return out


def outcomes(model: AlteredModel, X: Any, y: Any = None) -> Outcomes:
    """``y`` None: without labels and loss."""
    return outcomes_of(model.source, model.scores(X), y)


def outcomes_of(source: Source, F: F64, y: Any = None) -> Outcomes:
    """Of raw scores (m, K)."""
    loss = source.ensemble.loss
    classes = source.classes
    response = loss.response(loss.state(F))
    codes = None if y is None else source.labels(y, len(F), "y_test")
    value = None if codes is None else loss.value(F, codes)
    if classes is None:  # of two shares, that of one: fractions under the cross entropy
        return Outcomes(
            F, None, response if response.ndim == 1 else response[:, -1], None, codes, value, None
        )
    if response.ndim == 1:  # a margin, not a probability
        return Outcomes(F, None, None, (F[:, 0] > 0).astype(int), codes, value, classes)
    return Outcomes(F, response, None, response.argmax(axis=1), codes, value, classes)


def _finite(x: Any) -> CellValue:
    return short(float(x))
