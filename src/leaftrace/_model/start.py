"""Starting scores that come from the data: step 0, which depends on every row.

A rule computes the score (K,) from labels and weights b (n,), and its derivatives in both. A
library may weight rows otherwise than in its leaves (LightGBM's init score ignores class weights),
so b is not always w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .losses import Loss


class BaseRule(Protocol):
    """A starting score as a function of labels y (n,) and weights b (n,) of the training rows."""

    @property
    def smooth(self) -> bool:
        """Whether the score has derivatives."""
        ...

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        """(K,) the score."""
        ...

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        """Derivatives of the score for rows with the labels ``at`` (m,).

        They are d score / d b_i (m, K), and d score / d y_i for b_i = 1 (m, K, Y).
        """
        ...

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        """(K, B) the scores without each one of these rows."""
        ...

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        """Whether the score depends on the labels only by their weighted mean and total weight."""
        ...


def finite_start(rule: BaseRule, loss: Loss, y: F64, b: F64) -> F64:
    """(K,) the score of a rule for some training rows; an error if it is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        score = rule.fit(loss, y, b)
    if not np.isfinite(score).all():
        raise InvalidInput(
            "this training set has no starting score for the model: that is the logarithm of the mean label, or the "
            "log-odds of a class, and infinite if all labels are zero, or if a class has all rows or none. Keep some "
            "rows of each class, or with counts some that are not zero."
        )
    return score


MAX_DISTINCT_LABELS = 64  # up to this many are kept exactly


def condense_labels(rule: BaseRule, loss: Loss, y: F64, b: F64) -> tuple[F64, F64]:
    """A few labels with weights for which the rule gives the same score.

    Condensed labels of parts of the rows can be joined and condensed again. All weights are float32
    numbers, and so are labels that replace their mean: a rule that rounds to float32 changes
    nothing.
    """
    if loss.several_numbers:
        return y, b
    labels, totals = _label_totals(rule, loss, y, b)
    parts = float32_parts(totals)
    is_used = parts.ravel() > 0
    return np.tile(labels, len(parts))[is_used], parts.ravel()[is_used]


def _label_totals(rule: BaseRule, loss: Loss, y: F64, b: F64) -> tuple[F64, F64]:
    """A few labels and the total weight of each; two around the mean if the rule needs no more."""
    labels = _distinct_labels(loss, y)
    if labels is not None:
        return labels, np.bincount(np.searchsorted(labels, y), b, len(labels)).astype(np.float64)
    if rule.needs_only_mean(loss, y):
        total = float(b.sum())
        return mean_labels(float(b @ y) / total, total)
    labels, code = np.unique(y, return_inverse=True)
    return labels, np.bincount(code, b).astype(np.float64)


def mean_labels(mean: float, total: float) -> tuple[F64, F64]:
    """(2,) the float32 numbers around a mean, with weights that give this mean and total."""
    low = float(np.float32(mean))
    low = low if low <= mean else float(np.nextafter(np.float32(low), np.float32(-np.inf)))
    high = float(np.nextafter(np.float32(low), np.float32(np.inf)))
    share = (mean - low) / (high - low)
    return np.array([low, high]), total * np.array([1 - share, share])


def float32_parts(x: F64) -> F64:
    """(3, n) float32 numbers that add up to x (n,); none of either is negative."""
    parts = []
    for _ in range(3):
        part = x.astype(np.float32)
        part = np.where(part > x, np.nextafter(part, np.float32(0)), part).astype(np.float64)
        parts.append(part)
        x = x - part
    return np.stack(parts)


def _distinct_labels(loss: Loss, y: F64) -> F64 | None:
    """The different labels in order; None if there are more than MAX_DISTINCT_LABELS."""
    if loss.n_outputs > 1:
        return np.arange(loss.n_outputs, dtype=np.float64)
    seen = np.unique(y[:4096])
    if len(seen) > MAX_DISTINCT_LABELS:
        return None
    if np.array_equal(seen[np.minimum(np.searchsorted(seen, y), len(seen) - 1)], y):
        return seen
    seen = np.unique(y)
    return seen if len(seen) <= MAX_DISTINCT_LABELS else None


def target_matrix(loss: Loss, y: F64) -> F64:
    """(n, K) labels as numbers; classes are one-hot."""
    if y.ndim == 2:
        return y
    return y[:, None] if loss.n_outputs == 1 else np.eye(loss.n_outputs)[y.astype(int)]


@dataclass(frozen=True)
class Mean:
    """A starting score that is link(weighted mean of the labels).

    ``float32``: the mean is rounded before the link.
    """

    link: Literal["identity", "log", "logit", "centred log", "log expm1"] = "identity"
    float32: bool = False
    scale: float = 1.0  # the link's result is divided by it
    smooth: bool = True

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        mean = self._mean(loss, y, b)
        if self.float32:
            mean = mean.astype(np.float32).astype(np.float64)
        return self._link(mean)

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        mean = self._mean(loss, y, b)
        slope = self._slope(mean) / b.sum()
        by_label = slope if loss.n_outputs > 1 else slope.reshape(1, 1)
        by_weight = (target_matrix(loss, at) - mean) @ slope.T
        return by_weight, np.broadcast_to(by_label, (len(at), *by_label.shape))

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        total = self._mean(loss, y, b)[:, None] * b.sum()
        left = total - b[index] * target_matrix(loss, y[index]).T
        is_rounding = np.abs(left) < 1e-12 * np.abs(total)
        left = np.where(is_rounding, 0.0, left)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._link(left / (b.sum() - b[index]))

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return True

    def _mean(self, loss: Loss, y: F64, b: F64) -> F64:
        """(K,) the weighted mean of the labels."""
        if y.ndim == 2:
            return b @ y / b.sum()
        if loss.n_outputs == 1:
            return np.array([np.average(y, weights=b)])
        return np.bincount(y.astype(int), b, loss.n_outputs) / b.sum()

    def _link(self, mean: F64) -> F64:
        """(K, ...) scores of means (K, ...); infinite for a class that has all rows or none."""
        if self.link == "identity":
            return mean / self.scale
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._log_link(mean) / self.scale

    def _log_link(self, mean: F64) -> F64:
        """(K, ...) the link of means (K, ...), if it is made of logarithms."""
        if self.link == "log expm1":
            return np.log(np.expm1(mean))
        logs = np.log(mean)
        if self.link == "logit":
            logs = logs - np.log1p(-mean)
        elif self.link == "centred log":
            logs = logs - logs.mean(axis=0)
        return logs

    def _slope(self, mean: F64) -> F64:
        """(K, K) d link / d mean."""
        K = len(mean)
        if self.link == "identity":
            return np.eye(K) / self.scale
        if self.link == "log expm1":
            return np.diag(-1 / np.expm1(-mean)) / self.scale
        slope = np.diag(1 / (mean * (1 - mean) if self.link == "logit" else mean))
        if self.link == "centred log":
            slope = slope - slope.mean(axis=0)
        return slope / self.scale


@dataclass(frozen=True)
class NewtonStep:
    """A starting score that is one Newton step from zero, without regularisation. One output."""

    smooth: bool = True

    def _derivatives(self, loss: Loss, y: F64) -> tuple[F64, F64]:
        """g and h (n,) at the score zero."""
        state = loss.state(np.zeros((len(y), 1)))
        return loss.gradient(state, y)[:, 0], loss.hessian(state, y)[:, 0, 0]

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        g, h = self._derivatives(loss, y)
        return np.array([-(b @ g) / (b @ h)])

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        g, h = self._derivatives(loss, y)
        H = b @ h
        s = np.array([[-(b @ g) / H]])
        g, h = self._derivatives(loss, at)
        state = loss.state(np.zeros((len(at), 1)))
        steps = np.broadcast_to(s, (len(at), 1))
        by_label = loss.label_gradient(state, at) + loss.label_hessian_dot(state, at, steps)
        return (-(g + h * s[0, 0]) / H)[:, None], -by_label / H

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        state = loss.state(np.zeros((len(y), 1)))
        one = np.ones((len(y), 1))
        slopes = loss.label_gradient(state, y), loss.label_hessian_dot(state, y, one)
        return all(np.ptp(slope, axis=0).max(initial=0.0) == 0 for slope in slopes)

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        g, h = self._derivatives(loss, y)
        return (-(b @ g - b[index] * g[index]) / (b @ h - b[index] * h[index]))[None]


class Constant(Protocol):
    """A statistic of weighted labels, such as their median."""

    def __call__(self, y: F64, b: F64) -> float: ...


@dataclass(frozen=True)
class LabelStatistic:
    """A starting score that is a statistic of the labels and has no derivatives. One output."""

    statistic: Constant
    smooth: bool = False

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return np.array([self.statistic(y, b)])

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        raise NotImplementedError("a statistic of the labels has no derivative")

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return False

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        kept = [np.arange(len(y)) != i for i in index]
        return np.array([[self.statistic(y[k], b[k]) for k in kept]])


@dataclass(frozen=True)
class LabelStatistics:
    """Starting scores that are a statistic of the labels for each output, without derivatives."""

    statistics: tuple[Constant, ...]
    smooth: bool = False

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        columns = [y] * len(self.statistics) if y.ndim == 1 else list(y.T)
        return np.array([s(c, b) for s, c in zip(self.statistics, columns, strict=True)])

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        raise NotImplementedError("a statistic of the labels has no derivative")

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return False

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        kept = [np.arange(len(y)) != i for i in index]
        return np.stack([self.fit(loss, y[k], b[k]) for k in kept], axis=1)


@dataclass(frozen=True)
class MeanAndLogSpread:
    """Starting scores of a normal distribution: mean and log standard deviation of the labels."""

    smooth: bool = True

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return np.array(self._scores(*self._moments(y, b)))

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        mean, variance = self._moments(y, b)
        d = (at - mean) / b.sum()
        by_weight = np.stack([d, 0.5 * ((at - mean) * d / variance - 1 / b.sum())], axis=1)
        by_label = np.stack([np.full(len(at), 1 / b.sum()), d / variance], axis=1)
        return by_weight, by_label[:, :, None]

    def needs_only_mean(self, loss: Loss, y: F64) -> bool:
        return False

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        mean, variance = self._moments(y, b)
        left = b.sum() - b[index]
        d = y[index] - mean
        shift = -b[index] * d / left  # of the mean
        rest = (variance * b.sum() - b[index] * d * d) / left - shift**2
        return np.stack(self._scores(mean + shift, rest))

    def _moments(self, y: F64, b: F64) -> tuple[float, float]:
        mean = float(b @ y) / float(b.sum())
        return mean, float(b @ (y - mean) ** 2) / float(b.sum())

    def _scores(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        return mean, 0.5 * np.log(variance)
