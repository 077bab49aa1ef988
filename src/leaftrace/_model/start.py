"""Starting scores that come from the data: step 0, which every row is in.

A rule computes the score (K,) from labels and weights b (n,), and how it moves with them. What a library averages over
may be weighted otherwise than its leaves (LightGBM's init score knows no class weights), so b is not always w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from .._data.arrays import F64, Ints
from .losses import Loss


class BaseRule(Protocol):
    """How a starting score comes from the labels y (n,) and the weights b (n,) of the training rows."""

    @property
    def smooth(self) -> bool: ...
    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        """(K,) the score."""
        ...

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        """d score / d b_i (m, K), and d score / d y_i for b_i = 1 (m, K, Y), of rows with the labels ``at`` (m,)."""
        ...

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        """(K, B) the score without each of these rows."""
        ...

    def of_means(self, loss: Loss, y: F64) -> bool:
        """Whether the score knows of these labels no more than their weighted mean and total weight."""
        ...


FEW = 64  # so many different labels are kept as they are


def condensed(rule: BaseRule, loss: Loss, y: F64, b: F64) -> tuple[F64, F64]:
    """Few labels with weights that the rule gives the same score: those of parts, put together, condense again.

    All weights are float32 numbers, and so are the labels where the mean stands for them: a rule that rounds to float32
    finds nothing to round."""
    few = _few_labels(loss, y)
    totals = b
    if few is None and rule.of_means(loss, y):
        total = float(b.sum())
        few, totals = mean_labels(float(b @ y) / total, total)
    elif few is None:
        few, code = np.unique(y, return_inverse=True)
        totals = np.bincount(code, b).astype(np.float64)
    else:
        totals = np.bincount(np.searchsorted(few, y), b, len(few)).astype(np.float64)
    parts = float32_parts(totals)
    some = parts.ravel() > 0
    return np.tile(few, len(parts))[some], parts.ravel()[some]


def mean_labels(mean: float, total: float) -> tuple[F64, F64]:
    """(2,) the float32 numbers around a mean, with weights that give it and this total."""
    low = float(np.float32(mean))
    low = low if low <= mean else float(np.nextafter(np.float32(low), np.float32(-np.inf)))
    high = float(np.nextafter(np.float32(low), np.float32(np.inf)))
    share = (mean - low) / (high - low)
    return np.array([low, high]), total * np.array([1 - share, share])


def float32_parts(x: F64) -> F64:
    """(3, n) float32 numbers, none negative, that add up to x (n,), none negative."""
    parts = []
    for _ in range(3):
        part = x.astype(np.float32)
        part = np.where(part > x, np.nextafter(part, np.float32(0)), part).astype(np.float64)
        parts.append(part)
        x = x - part
    return np.stack(parts)


def _few_labels(loss: Loss, y: F64) -> F64 | None:
    """The different labels in order; None if they are many."""
    if loss.n_outputs > 1:
        return np.arange(loss.n_outputs, dtype=np.float64)
    seen = np.unique(y[:4096])
    if len(seen) > FEW:
        return None
    if np.array_equal(seen[np.minimum(np.searchsorted(seen, y), len(seen) - 1)], y):
        return seen
    seen = np.unique(y)
    return seen if len(seen) <= FEW else None


def targets(loss: Loss, y: F64) -> F64:
    """(n, K) labels as numbers: of classes, one-hot."""
    return y[:, None] if loss.n_outputs == 1 else np.eye(loss.n_outputs)[y.astype(int)]


@dataclass(frozen=True)
class Mean:
    """link(weighted mean of the labels). ``float32``: the mean is rounded before the link."""

    link: Literal["identity", "log", "logit", "centred log"] = "identity"
    float32: bool = False
    scale: float = 1.0  # the link's result is divided by it
    smooth: bool = True

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        mean = self._mean(loss, y, b)
        return self._link(mean.astype(np.float32).astype(np.float64) if self.float32 else mean)

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        mean = self._mean(loss, y, b)
        slope = self._slope(mean) / b.sum()
        by_label = slope if loss.n_outputs > 1 else slope.reshape(1, 1)
        return (targets(loss, at) - mean) @ slope.T, np.broadcast_to(
            by_label, (len(at), *by_label.shape)
        )

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        total = self._mean(loss, y, b)[:, None] * b.sum()
        left = total - b[index] * targets(loss, y[index]).T
        left = np.where(
            np.abs(left) < 1e-12 * np.abs(total), 0.0, left
        )  # nothing left, but for rounding
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._link(left / (b.sum() - b[index]))

    def of_means(self, loss: Loss, y: F64) -> bool:
        return True

    def _mean(self, loss: Loss, y: F64, b: F64) -> F64:
        if loss.n_outputs == 1:
            return np.array([np.average(y, weights=b)])
        return np.bincount(y.astype(int), b, loss.n_outputs) / b.sum()

    def _link(self, mean: F64) -> F64:
        """(K, ...) scores of means (K, ...)."""
        if self.link == "identity":
            return mean / self.scale
        logs = np.log(mean)
        if self.link == "logit":
            logs = logs - np.log1p(-mean)
        elif self.link == "centred log":
            logs = logs - logs.mean(axis=0)
        return logs / self.scale

    def _slope(self, mean: F64) -> F64:
        """(K, K) d link / d mean."""
        K = len(mean)
        if self.link == "identity":
            return np.eye(K) / self.scale
        slope = np.diag(1 / (mean * (1 - mean) if self.link == "logit" else mean))
        if self.link == "centred log":
            slope = slope - slope.mean(axis=0)
        return slope / self.scale


@dataclass(frozen=True)
class NewtonStep:
    """One Newton step from the score zero, without regularisation. One output."""

    smooth: bool = True

    def _sums(self, loss: Loss, y: F64) -> tuple[F64, F64]:
        state = loss.state(np.zeros((len(y), 1)))
        return loss.gradient(state, y)[:, 0], loss.hessian(state, y)[:, 0, 0]

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        g, h = self._sums(loss, y)
        return np.array([-(b @ g) / (b @ h)])

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        g, h = self._sums(loss, y)
        H = b @ h
        s = np.array([[-(b @ g) / H]])
        g, h = self._sums(loss, at)
        state = loss.state(np.zeros((len(at), 1)))
        steps = np.broadcast_to(s, (len(at), 1))
        by_label = loss.label_gradient(state, at) + loss.label_hessian_dot(state, at, steps)
        return (-(g + h * s[0, 0]) / H)[:, None], -by_label / H

    def of_means(self, loss: Loss, y: F64) -> bool:
        state = loss.state(np.zeros((len(y), 1)))
        one = np.ones((len(y), 1))
        slopes = loss.label_gradient(state, y), loss.label_hessian_dot(state, y, one)
        return all(np.ptp(slope, axis=0).max(initial=0.0) == 0 for slope in slopes)

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        g, h = self._sums(loss, y)
        return (-(b @ g - b[index] * g[index]) / (b @ h - b[index] * h[index]))[None]


class Constant(Protocol):
    """A starting score that is a statistic of the labels, such as their median."""

    def __call__(self, y: F64, b: F64) -> float: ...


@dataclass(frozen=True)
class OfLabels:
    """A statistic of the labels that does not move smoothly with their weights. One output."""

    statistic: Constant
    smooth: bool = False

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return np.array([self.statistic(y, b)])

    def effects(self, loss: Loss, y: F64, b: F64, at: F64) -> tuple[F64, F64]:
        raise NotImplementedError("a statistic of the labels has no derivative")

    def of_means(self, loss: Loss, y: F64) -> bool:
        return False

    def without(self, loss: Loss, y: F64, b: F64, index: Ints) -> F64:
        kept = [np.arange(len(y)) != i for i in index]
        return np.array([[self.statistic(y[k], b[k]) for k in kept]])
