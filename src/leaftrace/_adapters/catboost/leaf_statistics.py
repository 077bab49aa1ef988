"""Leaves of the method Exact: statistics of the residuals, whatever the rows' weights.

Residuals and results are rounded to float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints
from ..._model.leaf_ranks import values_of_rank
from ..base import f32


@dataclass
class QuantileOfResiduals:
    """The alpha quantile: the lowest residual with at least alpha of all weight up to it.

    It is then moved by ``delta``: down if the weight below it and alpha of the weight at it are
    enough, otherwise up.
    ``relative``: weights are divided by residuals beyond 1. (MAPE divides by the residual, not by
    the label.)
    ``weighted``: weights of rows count, as they do for several quantiles at once."""

    alpha: float
    delta: float
    relative: bool = False
    weighted: bool = False
    name: str = "quantile of residuals"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        if not (self.weighted or self.relative):
            return self._of_leaves(leaf, M, f32(residual))
        weights = w if self.weighted else np.ones(len(residual))
        return self._quantiles(leaf, M, f32(residual), weights)

    def _of_leaves(self, leaf: Ids, M: int, x: F64) -> F64:
        """Return the same as `_quantiles` of rows that all have weight one."""

        def enough(count: Ints) -> F64:
            return count * self.alpha - np.finfo(float).eps

        q, _, count = values_of_rank(leaf, M, x, lambda c: np.ceil(enough(c)).astype(np.intp) - 1)
        if self.delta > 0:
            one = np.ones(len(x))
            q = np.where(count > 0, q + self._shift(leaf, M, x, one, q, enough(count)), 0.0)
        return f32(q)

    def _shift(self, leaf: Any, M: int, x: F64, w: F64, q: F64, enough: F64) -> F64:
        """Return by how much quantiles q (M,) are moved."""
        below = np.bincount(leaf, w * (x < q[leaf]), M)
        equal = np.bincount(leaf, w * (x == q[leaf]), M)
        return np.where(below + equal * self.alpha >= enough, -self.delta, self.delta)

    def of_labels(self, y: F64, b: F64) -> float:
        """Return the quantile of labels y (n,) with weights b (n,), the starting score."""
        return float(self._quantiles(np.zeros(len(y), dtype=np.intp), 1, f32(y), b)[0])

    def _quantiles(self, leaf: Any, M: int, x: F64, w: F64) -> F64:
        """Return the quantile (M,) in each leaf of values x (n,) with weights w (n,)."""
        if self.relative:
            w = f32(w / np.maximum(1.0, np.abs(x)))
        order = np.lexsort((x, leaf))
        x = x[order]
        w = w[order]
        leaf = leaf[order]
        total = np.bincount(leaf, w, M)
        enough = total * self.alpha - np.finfo(float).eps
        q, filled = _lowest_reaching(leaf, M, x, w, enough)
        if self.delta > 0:
            q = np.where(filled, q + self._shift(leaf, M, x, w, q, enough), 0.0)
        return f32(q)


def _lowest_reaching(leaf: Any, M: int, x: F64, w: F64, enough: F64) -> tuple[F64, Any]:
    """Return the lowest value (M,) with this much weight up to it, and which leaves have rows.

    The rows are sorted by leaf, then by x (n,). Leaves without rows get zero."""
    count = np.bincount(leaf, minlength=M)
    start = np.cumsum(count) - count
    reached = np.cumsum(w)
    reached = reached - np.concatenate([[0.0], reached])[start][leaf]
    has_enough = reached >= enough[leaf]
    at = start + np.bincount(leaf[~has_enough], minlength=M)
    filled = count > 0
    q = np.zeros(M)
    q[filled] = x[np.minimum(at, start + count - 1)[filled]]
    return q, filled


@dataclass
class LogCoshMinimum:
    """The constant with the least log-cosh loss against the residuals, by bisection to 1e-9."""

    name: str = "log-cosh minimum"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        x = f32(residual)
        left = np.full(M, np.inf)
        right = np.full(M, -np.inf)
        np.minimum.at(left, leaf, x)
        np.maximum.at(right, leaf, x)
        filled = right >= left
        left = np.where(filled, left, 0.0)
        right = np.where(filled, right, 0.0)
        for _ in range(100):
            wide = right - left > 1e-9
            if not wide.any():
                break
            middle = (left + right) / 2
            above = np.bincount(leaf, np.tanh(middle[leaf] - x), M) > 0
            right = np.where(wide & above, middle, right)
            left = np.where(wide & ~above, middle, left)
        return f32(left)

    def fits(self, leaf: Ids, M: int, residual: F64, values: F64) -> NDArray[np.bool_]:
        """Return whether the slope of the loss rounds to zero at these values (M,).

        Between residuals far apart it does so in a wide range, where rounding decides."""
        distance = values[leaf] - f32(residual)
        slope = np.bincount(leaf, np.tanh(distance), M)
        curvature = np.bincount(leaf, np.cosh(np.clip(distance, -300.0, 300.0)) ** -2.0, M)
        of_slope = np.finfo(np.float64).eps * np.bincount(leaf, minlength=M)
        of_value = np.finfo(np.float32).eps * np.abs(values)
        return np.abs(slope) <= of_slope + curvature * of_value
