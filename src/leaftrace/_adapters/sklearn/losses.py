"""Losses and leaf statistics that only scikit-learn's GradientBoosting has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn._loss.loss import HuberLoss
from sklearn.utils.stats import _weighted_percentile

from ..._data.arrays import F64, Ids
from ..._model.general_losses import General, Terms, sigmoids
from ..._model.losses import Logistic
from .labels import ResidualStatistic


@dataclass(frozen=True)
class Exponential(General):
    """L = y exp(-A) + (1 - y) exp(A) with y in [0, 1]: AdaBoost's loss. p = sigma(2 A)."""

    name: str = "exponential"
    changes = "exponentials", (-1.0, 1.0, 1.0, -1.0, 0.0)

    def value(self, A: F64, y: F64) -> F64:
        return y * np.exp(-A[..., 0]) + (1 - y) * np.exp(A[..., 0])

    def terms(self, A: F64, y: F64) -> Terms:
        up = (1 - y) * np.exp(A)
        down = y * np.exp(-A)
        return up - down, up + down, up + down, up - down

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return -np.exp(A) - np.exp(-A), np.exp(-A) - np.exp(A)

    def response(self, state: F64) -> F64:
        p, q = sigmoids(2 * state[:, 0])
        return np.stack([q, p], axis=1)


@dataclass(frozen=True)
class RoundedLogistic(Logistic):
    """Logistic loss whose h = p (1 - p) is rounded where p is near 1.

    GradientBoosting takes p from g, as y - (y - p)."""

    rounded = True

    def hessian(self, state: F64, y: F64) -> F64:
        p = y + self.gradient(state, y)[:, 0]
        return (p * (1 - p))[:, None, None]


@dataclass(frozen=True)
class HuberLeaf:
    """The median of the residuals plus the mean of what is beyond it, cut at delta.

    Delta is a quantile of all absolute residuals, those of rows that were not drawn included."""

    quantile: float
    name: str = "median with outliers cut"

    def among(self, residual: F64, w: F64) -> ResidualStatistic:
        percent: Any = 100 * self.quantile
        delta = _weighted_percentile(np.abs(residual[w > 0]), w[w > 0], percent)
        loss = HuberLoss(quantile=self.quantile, delta=float(delta))
        return ResidualStatistic(self.name, loss.fit_intercept_only, weighted=True)

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        return self.among(residual, w)(leaf, M, residual, y, w)
