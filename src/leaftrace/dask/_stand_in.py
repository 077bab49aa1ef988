"""A few rows that stand for all training rows when a model is opened.

They have the same labels with the same weight of each, or the same mean. From labels and weights an
adapter takes sums (for the starting score) and the set of labels (classes and their weights). The
sums of leaves come later, from the rows themselves, and are compared with the model.
"""

from __future__ import annotations

import numpy as np

from .._data.arrays import F64
from .._model.start import float32_parts, mean_labels
from ._part import LabelSummary


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
