"""Labels and weights as scikit-learn models take them, and statistics fitted to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints
from ..._model.leaf_ranks import values_of_rank
from ..._model.start import Constant

FitConstant = Callable[[F64, F64 | None], Any]  # a number from values and their weights


@dataclass(frozen=True)
class WeightedLabels:
    """Labels and weights (n,) of the training rows as the model took them.

    ``w``           weights, class weights included; zero for rows held out
    ``factor``      what the user's weights are multiplied with: the class weights, or zero
    ``has_weights`` whether the user gave weights
    """

    y: F64
    w: F64
    factor: F64
    has_weights: bool

    def hold_out(self, held: NDArray[np.bool_]) -> WeightedLabels:
        """Return the same with weight zero for the rows held out."""
        w = np.where(held, 0.0, self.w)
        factor = np.where(held, 0.0, self.factor)
        return WeightedLabels(self.y, w, factor, self.has_weights)

    def starting_score(self, fit: FitConstant) -> Constant:
        """Return a function of labels and weights: ``fit`` of the rows that have weight."""

        def fit_labels(y: F64, b: F64) -> float:
            weights = b[b > 0] if self.has_weights else None
            return float(np.squeeze(fit(y[b > 0], weights)))

        return fit_labels


@dataclass
class ResidualStatistic:
    """A leaf that is a statistic of the residuals of its rows.

    ``weighted``  whether ``fit`` gets the weights of the rows
    ``quantile``  that ``fit`` gives, if it is NumPy's of rows without weights"""

    name: str
    fit: FitConstant
    weighted: bool
    quantile: float | None = None

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        if self.quantile is not None:
            counts = w > 0
            if not counts.all():
                leaf, residual = leaf[counts], residual[counts]
            return quantiles(leaf, M, residual, self.quantile)
        out = np.zeros(M)
        rows = np.flatnonzero(w > 0)
        rows = rows[np.argsort(leaf[rows], kind="stable")]
        for part in np.split(rows, np.flatnonzero(np.diff(leaf[rows].astype(np.int64))) + 1):
            if len(part):
                weights = w[part] if self.weighted else None
                out[leaf[part[0]]] = self.fit(residual[part], weights)
        return out


def quantiles(leaf: Ids, M: int, x: F64, level: float) -> F64:
    """Return the quantile (M,) of the x (n,) of each leaf as `np.percentile`, or `np.median`, computes it.

    Leaves without rows are zero."""

    def place(count: Ints) -> F64:
        return np.maximum(count - 1, 0) * (100 * level / 100)

    low, high, count = values_of_rank(leaf, M, x, lambda c: place(c).astype(np.intp))
    if level == 0.5:
        return np.where(count % 2 == 1, low, (low + high) / 2)
    share = place(count) - np.floor(place(count))
    gap = high - low
    return np.where(share < 0.5, low + gap * share, high - gap * (1 - share))
