"""LightGBM's objectives: loss, factor of h, starting score, percentiles, weights of classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints
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
from ..._model.leaf_ranks import values_of_rank
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..._model.separate_losses import OneVsAll
from ..._model.start import BaseRule, LabelStatistic, Mean
from ..._model.target_unit import TargetUnit
from ..base import f32
from .model import ParsedModel


@dataclass(frozen=True)
class RoundedPoisson(Poisson):
    """Poisson loss for `SteepRounding`, which the native replay does not have."""

    rounded = True


@dataclass(frozen=True)
class CrossEntropy(Logistic):
    """Logistic loss with labels y from 0 to 1. LightGBM (from 4.4) computes 1 - y in float32."""

    rounded = True

    def gradient(self, state: F64, y: F64) -> F64:
        p, q = state.T
        return (p * f32(1 - y) - q * y)[:, None]


@dataclass(frozen=True)
class SteepRounding(Rounding):
    """Rounding of h times the `steepness`, which the ensemble has in its rate and l2 instead."""

    factor: float = 1.0

    @property
    def hessian_factor(self) -> float:
        return self.factor

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
    """LightGBM's percentile of residuals.

    Its weighted and its unweighted form differ, also where all weights are equal. Version 4.1
    corrected the unweighted form, 4.7 the weighted one. The weighted form takes rows by their
    position among all others, so that rows of weight zero count; without weights there are none.
    """

    alpha: float
    weighted: bool
    relative: bool = False  # weights divided by max(1, |y|)
    version: tuple[int, ...] = (4, 7)
    name: str = "percentile of residuals"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        if not self.weighted:
            counts = self._counts(w)
            if not counts.all():
                leaf, residual = leaf[counts], residual[counts]
            return self._of_leaves(leaf, M, residual)
        rows = np.flatnonzero(self._counts(w))
        rows = rows[np.lexsort((residual[rows], leaf[rows]))]
        begin = np.searchsorted(leaf[rows], np.arange(M + 1))
        v = residual[rows]
        w = self._weights(y, w)[rows]
        return np.array([self._of_sorted(v[a:b], w[a:b]) for a, b in pairwise(begin)])

    def _of_leaves(self, leaf: Ids, M: int, residual: F64) -> F64:
        """The percentile (M,) of rows without weights in each leaf: as `_unweighted_form`."""

        def place(count: Ints) -> F64:
            rows = count.astype(np.float64)
            if self.version >= (4, 1):
                return (rows - 1) * (1 - self.alpha)
            return rows * (1 - self.alpha) - 1

        def rank(count: Ints) -> Ints:
            at = place(count)
            # The rank below the at-th largest; the largest one where there is none so large.
            return np.where(at < 0, count - 1, count - 2 - at.astype(np.intp))

        low, high, count = values_of_rank(leaf, M, residual, rank)
        at = place(count)
        single = (at < 0) | (count - 1 - at.astype(np.intp) < 1)
        return np.where(single, low, high - (high - low) * (at - at.astype(np.intp)))

    def label_percentile(self, y: F64, b: F64) -> float:
        """The starting score: the percentile of the labels, in float32."""
        order = np.argsort(y, kind="stable")
        order = order[self._counts(b)[order]]
        labels = y[order].astype(np.float32)
        return float(np.float32(self._of_sorted(labels, self._weights(y, b)[order])))

    def _counts(self, w: F64) -> NDArray[np.bool_]:
        """(n,) whether a row counts."""
        return np.ones(len(w), bool) if self.weighted else w > 0

    def _weights(self, y: F64, w: F64) -> F64:
        return f32(f32(1 / np.maximum(1, np.abs(y))) * w) if self.relative else w

    def _of_sorted(self, v: np.ndarray, w: F64) -> float:
        """The percentile of sorted values v (n,) with weights w (n,)."""
        if len(v) <= 1:
            return float(v[0]) if len(v) else 0.0
        return self._weighted_form(v, w) if self.weighted else self._unweighted_form(v)

    def _unweighted_form(self, v: np.ndarray) -> float:
        """The percentile of rows without weights: interpolated, counted from the largest value."""
        n = len(v)
        at = (n - 1) * (1 - self.alpha) if self.version >= (4, 1) else n * (1 - self.alpha) - 1
        if at < 0:
            return float(v[-1])
        below = n - 1 - int(at)  # the at-th largest, counted from 0, is v[below]
        if below < 1:
            return float(v[0])
        return float(v[below]) - float(v[below] - v[below - 1]) * (at - int(at))

    def _weighted_form(self, v: np.ndarray, w: F64) -> float:
        """The percentile of rows with weights: interpolated only where a weight is at least one."""
        n = len(v)
        total = np.cumsum(w)
        share = total[-1] * self.alpha
        i = min(int(np.searchsorted(total, share, side="right")), n - 1)
        if i in (0, n - 1):
            return float(v[i])
        k = i - 1 if self.version >= (4, 7) else i
        step = total[k + 1] - total[k]
        if step < 1:
            return float(v[k])
        return (share - total[k]) / step * float(v[i] - v[i - 1]) + float(v[i - 1])


@dataclass(frozen=True)
class Objective:
    """The functions and settings of an objective, without its `steepness`.

    ``statistic``  the percentile that its leaves are, or None
    ``labels``     range of its labels
    ``classes``    number of classes; 0 for labels that are numbers
    """

    loss: Loss
    base: BaseRule
    rounding: Rounding
    statistic: Percentile | None = None
    labels: tuple[float, float] = (-np.inf, np.inf)
    classes: int = 0


INTENSITY = "cross_entropy_lambda"  # whose gradients are not proportional to the weights of rows
QUANTILES = ("regression_l1", "quantile", "mape")  # leaves are quantiles of their rows
OBJECTIVES = (
    "regression", "huber", "fair", "poisson", "gamma", "tweedie", "binary", "cross_entropy", "multiclass",
    "multiclassova", *QUANTILES, INTENSITY,
)  # fmt: skip


def steepness(name: str, params: dict[str, Any], K: int) -> float:
    """The factor by which LightGBM multiplies the h of the loss.

    Steps are that much smaller, so learning rate, l2 and max_step of the ensemble include it.
    """
    if name == "poisson":
        return float(np.exp(params["poisson_max_delta_step"]))
    return K / (K - 1) if name == "multiclass" else 1.0


def objective(
    name: str, params: dict[str, Any], K: int, weighted: bool, version: tuple[int, ...]
) -> Objective:
    """LightGBM's objective of this name. ``weighted``: rows have weights other than one."""
    # w g is rounded once. With weights of one, rounding g before changes nothing, and GOSS, which
    # multiplies afterwards, needs it.
    once = Rounding(derivatives=not weighted, terms=True)
    if name in QUANTILES:
        return _percentile_objective(name, params, weighted, version, once)
    steep = SteepRounding(derivatives=not weighted, terms=True, factor=steepness(name, params, K))
    sigmoid = float(params["sigmoid"])
    positive = (0.0, np.inf)
    match name:
        case "regression":
            return Objective(SquaredError(), Mean(), Rounding(derivatives=True, terms=True))
        case "huber":
            return Objective(Huber(float(params["alpha"])), Mean(), once)
        case "fair":
            return Objective(Fair(float(params["fair_c"])), Mean(), once)
        case "poisson":
            return Objective(RoundedPoisson(), Mean("log"), steep, labels=positive)
        case "gamma":
            return Objective(Gamma(), Mean("log"), once, labels=positive)
        case "tweedie":
            loss = Tweedie(float(params["tweedie_variance_power"]))
            return Objective(loss, Mean("log"), once, labels=positive)
        case "binary":
            loss = Logistic() if sigmoid == 1 else ScaledLogistic(sigmoid)
            return Objective(loss, Mean("logit", scale=sigmoid), once, classes=2)
        case "cross_entropy":
            loss = CrossEntropy() if version >= (4, 4) else Logistic()
            return Objective(loss, Mean("logit"), once, labels=(0.0, 1.0))
        case "cross_entropy_lambda":  # without weights, the derivatives of cross_entropy
            return Objective(Logistic(), Mean("log expm1"), once, labels=(0.0, 1.0))
        case "multiclass":
            return Objective(Softmax(K), Mean("log"), steep, classes=K)
        case _:  # multiclassova
            return Objective(OneVsAll(K, sigmoid), Mean("logit", scale=sigmoid), once, classes=K)


def _percentile_objective(
    name: str,
    params: dict[str, Any],
    weighted: bool,
    version: tuple[int, ...],
    rounding: Rounding,
) -> Objective:
    """An objective whose leaves are percentiles of residuals."""
    relative = name == "mape"
    if name == "quantile":
        alpha = float(np.float32(params["alpha"]))
        loss = Pinball(alpha)
    else:
        alpha = 0.5
        loss = AbsoluteError(relative=relative)
    statistic = Percentile(alpha, weighted or relative, relative, version)
    return Objective(
        loss, LabelStatistic(statistic.label_percentile), rounding, statistic=statistic
    )


def label_weights(parsed: ParsedModel, params: dict[str, Any], y: F64) -> F64:
    """(n,) is_unbalance and scale_pos_weight, which the starting score ignores.

    (n, K) for one against all, unless all are one.
    """
    if parsed.objective[0] == "multiclassova":
        weights = one_against_all(parsed, params, y, y)
        return weights if np.any(weights != 1) else np.ones(len(y))
    if parsed.objective[0] != "binary":
        return np.ones(len(y))
    positive = y > 0
    return np.where(positive, *_side_weights(params, positive))


def one_against_all(
    parsed: ParsedModel, params: dict[str, Any], labels: NDArray[Any], y: F64
) -> F64:
    """(rows, K) weights of rows with these labels in the trees of each class.

    ``y`` (n,): labels of the training rows, which decide the weights.
    """
    classes = range(parsed.outputs)
    sides = [np.where(labels == k, *_side_weights(params, y == k)) for k in classes]
    return np.stack(sides, axis=1)


def _side_weights(params: dict[str, Any], positive: NDArray[np.bool_]) -> tuple[float, float]:
    """Weights of positive and of negative rows."""
    positives = np.count_nonzero(positive)
    negatives = np.count_nonzero(~positive)
    positive_weight = 1.0
    negative_weight = 1.0
    if params["is_unbalance"] and positives and negatives:
        if positives > negatives:
            negative_weight = positives / negatives
        else:
            positive_weight = negatives / positives
    return positive_weight * float(params["scale_pos_weight"]), negative_weight


def rounded_root(y: F64) -> F64:
    """Labels as reg_sqrt fits them: square roots in float32, with the sign of the label."""
    return np.sign(y) * f32(np.sqrt(f32(np.abs(y))))


def signed_square(F: F64) -> F64:
    """(m,) predictions with reg_sqrt from scores F (m, 1)."""
    return np.sign(F[:, 0]) * F[:, 0] ** 2


def root_unit(y: F64) -> TargetUnit:
    """The unit of labels y (n,) that reg_sqrt takes the roots of."""
    return TargetUnit(lambda labels: np.sign(labels) * np.sqrt(np.abs(labels)), signed_square, y)
