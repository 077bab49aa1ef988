"""Quantiles as scikit-learn computes them, and leaves that are quantiles."""

from __future__ import annotations

import numpy as np


def lower_quantile(values, w, q):
    """Return the smallest value with at least the share q of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(w[order])
    return values[order][np.searchsorted(total, q * total[-1])]


def median(values, w):
    """Return the weighted median, halfway between two values if the weight splits there."""
    order = np.argsort(values, kind="stable")
    values = values[order]
    total = np.cumsum(w[order])
    k = int(np.argmax(total >= total[-1] / 2))
    return values[k] if total[k] != total[-1] / 2 else (values[k] + values[k + 1]) / 2


def by_leaf(function):
    """Return (ids, L, residual, y, w) -> (L,), from a function of a leaf's residuals and weights."""

    def values(ids, L, residual, y, w):
        out = np.zeros(L)
        for leaf in np.unique(ids[w > 0]):
            here = (ids == leaf) & (w > 0)
            out[leaf] = function(residual[here], w[here])
        return out

    return values


def pinball(q):
    return lambda F, y: np.where(y > F[:, 0], q * (y - F[:, 0]), (1 - q) * (F[:, 0] - y))
