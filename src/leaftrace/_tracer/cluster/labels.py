"""Labels of all rows in a few numbers, and a few rows that stand for all when a model is opened.

The stand-in rows have the same labels with the same weight of each, or the same mean. From labels and
weights an adapter takes sums (for the starting score) and the set of labels (classes and their
weights). The sums of leaves come later, from the rows themselves, and are compared with the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64
from ..._data.frames import to_numpy
from ..._model.start import float32_parts, mean_labels

MAX_DISTINCT_LABELS = 1000  # up to this many are counted one by one


@dataclass(frozen=True)
class LabelSummary:
    """Labels of all rows: the weight of each, or the mean and range of many numbers."""

    n: int
    weight: float
    weight_by_label: dict[Any, float] | None  # None: too many labels
    total: float = 0.0  # sum of weight times label
    low: float = np.inf
    high: float = -np.inf
    sizes: tuple[int, ...] = ()  # number of rows of each partition
    several: bool = False  # rows have several labels, which nothing is known of

    def __add__(self, other: LabelSummary) -> LabelSummary:
        return LabelSummary(
            self.n + other.n,
            self.weight + other.weight,
            _add_weights(self.weight_by_label, other.weight_by_label),
            self.total + other.total,
            min(self.low, other.low),
            max(self.high, other.high),
            self.sizes + other.sizes,
            self.several or other.several,
        )


def _add_weights(a: dict[Any, float] | None, b: dict[Any, float] | None) -> dict[Any, float] | None:
    """Weights of the labels of both; None if they are too many."""
    if a is None or b is None:
        return None
    both = dict(a)
    for label, weight in b.items():
        both[label] = both.get(label, 0.0) + weight
    return both if len(both) <= MAX_DISTINCT_LABELS else None


def summarise_labels(y: Any, w: Any) -> LabelSummary:
    """Summarise the labels y and weights w (or None) of a partition."""
    y = to_numpy(y)
    n = len(y)
    w = np.ones(n) if w is None else inputs.numbers(w, "sample_weight", n)
    if (w < 0).any():
        raise inputs.InvalidInput(
            "sample_weight has negative values; weights must be zero or more."
        )
    weight = float(w.sum())
    if y.ndim == 2 and y.shape[1] > 1:
        return LabelSummary(n, weight, None, sizes=(n,), several=True)
    y = inputs.vector(y.ravel(), "y", n)
    names, code = np.unique(y, return_inverse=True)
    weights = np.bincount(code, w, len(names))
    by_label = dict(zip(names.tolist(), weights.tolist(), strict=True))
    if y.dtype.kind not in "iufb" or not n:
        return LabelSummary(n, weight, by_label, sizes=(n,))
    numbers = y.astype(np.float64)
    few = by_label if len(names) <= MAX_DISTINCT_LABELS else None
    total = float(w @ numbers)
    return LabelSummary(n, weight, few, total, numbers.min(), numbers.max(), (n,))


def stand_in_rows(labels: LabelSummary) -> tuple[np.ndarray, F64]:
    """Labels and weights of the stand-in rows.

    All are float32 numbers, so training would not round them.
    """
    if labels.weight_by_label is not None:
        names = np.array(list(labels.weight_by_label))
        order = np.argsort(names)
        weights = np.array(list(labels.weight_by_label.values()))[order]
        names = names[order]
    else:
        names, weights = mean_labels(labels.total / labels.weight, labels.weight)
    parts = float32_parts(weights)
    some = parts.ravel() > 0
    # A label without weight is still a label.
    some[: len(names)] = True
    return np.tile(names, len(parts))[some], parts.ravel()[some]
