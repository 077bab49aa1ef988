"""A few rows that stand for all of them where a model is opened: same labels, same weight of each (or the same mean).

What an adapter reads from labels and weights are sums (of the starting score) and what labels there are (classes, their
weights); the sums of leaves come later, from the rows themselves, and are compared with the model."""

from __future__ import annotations

import numpy as np

from .._data.arrays import F64
from .._model.start import float32_parts, mean_labels
from ._part import Labels


def stand_in_rows(labels: Labels) -> tuple[np.ndarray, F64]:
    """Labels and weights, all float32 numbers, as training would round them."""
    if labels.of_label is not None:
        names = np.array(list(labels.of_label))
        order = np.argsort(names)
        weights = np.array(list(labels.of_label.values()))[order]
        names = names[order]
    else:
        names, weights = mean_labels(labels.total / labels.weight, labels.weight)
    parts = float32_parts(weights)
    some = parts.ravel() > 0
    # A label without weight is still a label.
    some[: len(names)] = True
    return np.tile(names, len(parts))[some], parts.ravel()[some]
