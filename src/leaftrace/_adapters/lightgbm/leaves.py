"""LightGBM's objectives: the loss, what multiplies its second derivative, the starting score, quantile leaves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids
from ..._model.ensemble import Rounding
from ..._model.general_losses import (
    Fair,
    Gamma,
    Huber,
    KernelFamily,
    Pinball,
    ScaledLogistic,
    Terms,
    Tweedie,
    pieces,
)
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..._model.separate_losses import OneVsAll
from ..._model.start import BaseRule, LabelStatistic, Mean
from ..base import f32


@dataclass(frozen=True)
class RoundedPoisson(Poisson):
    """To be rounded by `SteepRounding`, which the native replay does not know."""

    rounded = True


@dataclass(frozen=True)
class CrossEntropy(Logistic):
    """Logistic with labels from 0 to 1, of which LightGBM (from 4.4) computes 1 - y in float32."""

    rounded = True

    def gradient(self, state: F64, y: F64) -> F64:
        p, q = state.T
        return (p * f32(1 - y) - q * y)[:, None]


@dataclass(frozen=True)
class SteepRounding(Rounding):
    """h is rounded after it is multiplied with the `steepness`, which rate and l2 have taken in."""

    factor: float = 1.0

    def apply(self, x: F64, w: F64, drawn: NDArray[Any] | None = None) -> F64:
        if x.ndim < 3:
            return super().apply(x, w, drawn)
        return super().apply(self.factor * x, w, drawn) / self.factor


@dataclass(frozen=True)
class AbsoluteError(Pinball):
    """L = |r|, or |r| / max(1, |y|) if ``relative`` (MAPE)."""

    relative: bool = False
    name: str = "absolute error"

    @property
    def changes(self) -> KernelFamily:
        of = "relative" if self.relative else "residual"
        return pieces(of, 0.0, 0.0, (-1.0, 0.0, 1.0), (0.0, 0.0, 1.0), (1.0, 0.0, 1.0))

    def value(self, A: F64, y: F64) -> F64:
        return np.abs(y - A[..., 0]) * self._scale(y)

    def terms(self, A: F64, y: F64) -> Terms:
        g = np.sign(A - y) * self._scale(y)
        return g, np.zeros_like(g), np.ones_like(g), np.zeros_like(g)

    def _scale(self, y: F64) -> F64:
        return f32(1 / np.maximum(1, np.abs(y))) if self.relative else np.ones_like(y)


@dataclass
class Percentile:
    """LightGBM's percentile of residuals. Its weighted and its unweighted form differ, also where all weights are
    equal; and 4.1 corrected the unweighted form, 4.7 the weighted one."""

    alpha: float
    weighted: bool
    relative: bool = False  # weights divided by max(1, |y|)
    version: tuple[int, ...] = (4, 7)
    name: str = "percentile of residuals"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        rows = np.flatnonzero(w > 0)
        rows = rows[np.lexsort((residual[rows], leaf[rows]))]
        begin = np.searchsorted(leaf[rows], np.arange(M + 1))
        v = residual[rows]
        w = self._weights(y, w)[rows]
        return np.array([self._of(v[a:b], w[a:b]) for a, b in pairwise(begin)])

    def of_labels(self, y: F64, b: F64) -> float:
        """The starting score: the percentile of the labels, in float32."""
        order = np.argsort(y, kind="stable")
        order = order[b[order] > 0]
        return float(np.float32(self._of(y[order].astype(np.float32), self._weights(y, b)[order])))

    def _weights(self, y: F64, w: F64) -> F64:
        return f32(f32(1 / np.maximum(1, np.abs(y))) * w) if self.relative else w

    def _of(self, v: np.ndarray, w: F64) -> float:
        """Of sorted values."""
        n = len(v)
        if n <= 1:
            return float(v[0]) if n else 0.0
        if not self.weighted:
            at = (n - 1) * (1 - self.alpha) if self.version >= (4, 1) else n * (1 - self.alpha) - 1
            if at < 0:
                return float(v[-1])
            below = n - 1 - int(at)  # the at-th largest, counted from 0, is v[below]
            return (
                float(v[0])
                if below < 1
                else float(v[below]) - float(v[below] - v[below - 1]) * (at - int(at))
            )
        total = np.cumsum(w)
        share = total[-1] * self.alpha
        i = min(int(np.searchsorted(total, share, side="right")), n - 1)
        if i in (0, n - 1):
            return float(v[i])
        k, otherwise = (i - 1, v[i - 1]) if self.version >= (4, 7) else (i, v[i])
        step = total[k + 1] - total[k]
        if step < 1:
            return float(otherwise)
        return (share - total[k]) / step * float(v[i] - v[i - 1]) + float(v[i - 1])


@dataclass(frozen=True)
class Objective:
    """What an objective computes, but for its `steepness`."""

    loss: Loss
    base: BaseRule
    rounding: Rounding
    statistic: Percentile | None = None
    labels: tuple[float, float] = (-np.inf, np.inf)
    classes: int = 0


OBJECTIVES = (
    "regression", "huber", "fair", "poisson", "gamma", "tweedie", "binary", "cross_entropy", "multiclass",
    "multiclassova", "regression_l1", "quantile", "mape",
)  # fmt: skip


def steepness(name: str, p: dict[str, Any], K: int) -> float:
    """What multiplies h beyond the loss's own. Steps are that much smaller, so rate, l2 and max_step take it in."""
    if name == "poisson":
        return float(np.exp(p["poisson_max_delta_step"]))
    return K / (K - 1) if name == "multiclass" else 1.0


def objective(
    name: str, p: dict[str, Any], K: int, weighted: bool, version: tuple[int, ...]
) -> Objective:
    """What LightGBM's objective of this name computes. ``weighted``: rows have weights other than one."""
    # w g is rounded once. With weights of one, rounding g before is no more than that, and what GOSS needs: it
    # multiplies afterwards.
    once = Rounding(derivatives=not weighted, terms=True)
    steep = SteepRounding(derivatives=not weighted, terms=True, factor=steepness(name, p, K))
    sigmoid = float(p["sigmoid"])

    def percentile(loss: Loss, alpha: float, relative: bool = False) -> Objective:
        statistic = Percentile(alpha, weighted or relative, relative, version)
        return Objective(loss, LabelStatistic(statistic.of_labels), once, statistic=statistic)

    match name:
        case "regression":
            return Objective(SquaredError(), Mean(), Rounding(derivatives=True, terms=True))
        case "huber":
            return Objective(Huber(float(p["alpha"])), Mean(), once)
        case "fair":
            return Objective(Fair(float(p["fair_c"])), Mean(), once)
        case "poisson":
            return Objective(RoundedPoisson(), Mean("log"), steep, labels=(0.0, np.inf))
        case "gamma":
            return Objective(Gamma(), Mean("log"), once, labels=(0.0, np.inf))
        case "tweedie":
            return Objective(
                Tweedie(float(p["tweedie_variance_power"])), Mean("log"), once, labels=(0.0, np.inf)
            )
        case "binary":
            loss = Logistic() if sigmoid == 1 else ScaledLogistic(sigmoid)
            return Objective(loss, Mean("logit", scale=sigmoid), once, classes=2)
        case "cross_entropy":
            cross_entropy = CrossEntropy() if version >= (4, 4) else Logistic()
            return Objective(cross_entropy, Mean("logit"), once, labels=(0.0, 1.0))
        case "multiclass":
            return Objective(Softmax(K), Mean("log"), steep, classes=K)
        case "multiclassova":
            return Objective(OneVsAll(K, sigmoid), Mean("logit", scale=sigmoid), once, classes=K)
        case "regression_l1":
            return percentile(AbsoluteError(), 0.5)
        case "quantile":
            alpha = float(np.float32(p["alpha"]))
            return percentile(Pinball(alpha), alpha)
        case _:
            return percentile(AbsoluteError(relative=True), 0.5, relative=True)
