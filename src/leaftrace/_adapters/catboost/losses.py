"""Losses that no other library than CatBoost has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._data.arrays import F64
from ..._model.general_losses import General, KernelFamily, Pinball, Terms, pieces, sigmoids
from ..base import f32


@dataclass(frozen=True)
class LogCosh(General):
    """L = log cosh r, r = A - y."""

    name: str = "log-cosh"
    changes = "sigmoid", (2.0, 1.0)  # tanh r = 2 (sigma(2 r) - 1/2)

    def value(self, A: F64, y: F64) -> F64:
        r = A[..., 0] - y
        return np.logaddexp(r, -r) - np.log(2)

    def terms(self, A: F64, y: F64) -> Terms:
        g = np.tanh(A - y)
        p, q = sigmoids(2 * (A - y))
        h = 4 * p * q  # 1 - g^2 would have no digits far from the label
        return g, h, h, -2 * g * h


@dataclass(frozen=True)
class Lq(General):
    """L = |A - y|^q. Leaves of q < 2 are gradient steps, and h is not used."""

    q: float
    name: str = "Lq"

    @property
    def changes(self) -> KernelFamily:
        return ("power", (self.q,)) if self.q >= 2 else ("numpy", ())

    def value(self, A: F64, y: F64) -> F64:
        return np.abs(A[..., 0] - y) ** self.q

    def terms(self, A: F64, y: F64) -> Terms:
        q = self.q
        r = A - y
        a = np.abs(r)
        sign = np.sign(r)
        if q < 2:  # the slope of g is infinite where a row is hit exactly, and zero stands for it
            j = np.where(a > 0, q * (q - 1) * np.where(a > 0, a, 1.0) ** (q - 2), 0.0)
            return q * sign * a ** (q - 1), j, np.ones_like(j), np.zeros_like(j)
        h = q * (q - 1) * a ** (q - 2)
        k = (q - 2) * sign * h / np.where(a > 0, a, 1.0)
        return q * sign * a ** (q - 1), h, h, k


@dataclass(frozen=True)
class Expectile(General):
    """L = c r^2, r = A - y; c is alpha below the label and 1 - alpha above it."""

    alpha: float
    name: str = "expectile"

    @property
    def changes(self) -> KernelFamily:
        below = 2 * self.alpha
        above = 2 * (1 - self.alpha)
        return pieces(
            "residual", 0.0, 0.0, (0.0, below, below), (0.0, above, above), (0.0, above, above)
        )

    def value(self, A: F64, y: F64) -> F64:
        r = A[..., 0] - y
        return self._c(r) * r * r

    def terms(self, A: F64, y: F64) -> Terms:
        r = A - y
        h = 2 * self._c(r)
        return h * r, h, h, np.zeros_like(h)

    def _c(self, r: F64) -> F64:
        return np.where(r < 0, self.alpha, 1 - self.alpha)


@dataclass(frozen=True)
class Quantile(Pinball):
    """Quantile error whose gradient is zero for residuals below ``delta``."""

    delta: float = 0.0

    def __init__(self, alpha: float, delta: float) -> None:
        super().__init__(alpha)
        object.__setattr__(self, "delta", delta)

    @property
    def changes(self) -> KernelFamily:
        family, (_, _, *numbers) = super().changes
        if self.delta == 0:
            return super().changes
        inside = float(np.nextafter(self.delta, 0.0))  # a residual of delta is outside
        return family, (-inside, inside, *numbers[:3], 0.0, 0.0, 1.0, *numbers[6:])

    def terms(self, A: F64, y: F64) -> Terms:
        g, j, h, k = super().terms(A, y)
        return np.where(np.abs(y - A) < self.delta, 0.0, g), j, h, k


@dataclass(frozen=True)
class RelativeError(General):
    """L = |A - y| / max(1, |y|). Leaves are medians instead of Newton steps."""

    name: str = "relative error"
    changes = pieces("relative", 0.0, 0.0, (-1.0, 0.0, 1.0), (1.0, 0.0, 1.0), (1.0, 0.0, 1.0))

    def value(self, A: F64, y: F64) -> F64:
        return np.abs(A[..., 0] - y) / np.maximum(1.0, np.abs(y))

    def terms(self, A: F64, y: F64) -> Terms:
        g = np.where(y > A, -1.0, 1.0) * f32(1 / np.maximum(1.0, np.abs(y)))
        return g, np.zeros_like(g), np.ones_like(g), np.zeros_like(g)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return np.zeros_like(A), np.zeros_like(A)


@dataclass(frozen=True)
class LogLinQuantile(General):
    """Quantile error of exp(A). Its leaves are gradient steps, and h is not used."""

    alpha: float
    name: str = "log-linear quantile"
    changes = "numpy", ()

    def value(self, A: F64, y: F64) -> F64:
        r = y - np.exp(A[..., 0])
        return np.maximum(self.alpha * r, (self.alpha - 1) * r)

    def terms(self, A: F64, y: F64) -> Terms:
        e = np.exp(A)
        g = np.where(y > e, -self.alpha, 1 - self.alpha) * e
        return g, g, np.ones_like(g), np.zeros_like(g)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return np.zeros_like(A), np.zeros_like(A)

    def response(self, state: F64) -> F64:
        return np.exp(state[:, 0])
