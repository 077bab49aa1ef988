"""Sums that `value_noise` needs to tell rounding of gradients from errors of a replay."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from .._data.arrays import F64
from .._kernels.numpy import sum_by_leaf
from .._model.ensemble import Ensemble


def has_rounding_noise(e: Ensemble) -> bool:
    """Whether leaf values of this model come from gradients in float32."""
    rounded = e.rounding.derivatives or e.rounding.terms
    return rounded and e.rule.statistic is None and e.smoothing is None


def gradient_sizes(e: Ensemble, steps: Collection[int]) -> dict[int, F64]:
    """For each of these steps (M, O) the sums of w |g| over its leaves, at the model's scores."""
    sizes = {}
    A = e.start()
    for t in range(max(steps, default=-1) + 1):
        e.move(t, e.leaves, A)
        if t in steps:
            sizes[t] = _step_sizes(e, t, A)
    return sizes


def _step_sizes(e: Ensemble, t: int, A: F64) -> F64:
    """(M, O) sums of w |g| over the leaves of step t, at scores A (n, K)."""
    leaves = e.leaf_range(t)
    sizes = np.zeros((leaves.stop - leaves.start, e.leaf_outputs))
    g = np.abs(e.loss.gradient(e.loss.state(A), e.y))
    trees = e.trees(t)
    for r in range(trees.start, trees.stop):
        first = e.first_output[r]
        own = g[:, first : first + e.leaf_outputs]
        sum_by_leaf(e.leaves[r], e.tree_weight(r)[:, None] * own, sizes)
    return sizes
