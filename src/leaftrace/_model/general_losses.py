"""Losses as plain functions of score and label, for one output.

NumPy replays them; LeafRefit has native code for them, too. Each loss has its ``value``, its
derivatives ``terms``

    g = dL/dA,   j = dg/dA,   h what the leaf rule divides by,   k = dh/dA

and the derivatives of g and h in the label, ``label_terms``. Changes of g and h are differences of
two values, which in float64 leaves ten digits of a change of one row in a million. The native ones
are in difference form, by families; ``changes`` has the name and the parameters of the family:

    residual, margin, relative   g and h in three straight pieces of A - y, of the margin, of
                                 (A - y) / max(1, |y|)
    exponentials                 g = e - y exp(a A) + (c + d y) exp(b A)
    sigmoid                      g = c (sigma(c A) - y), or c (sigma(c (A - y)) - 1/2)

and a few of one loss each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64
from .losses import Additive

Terms = tuple[F64, F64, F64, F64]  # g, j, h, k
KernelFamily = tuple[str, tuple[float, ...]]  # a family of native losses and its parameters
Piece = tuple[float, float, float]  # a, b, h: there g = a + b u, and h is constant


def pieces(
    family: str, low: float, high: float, below: Piece, between: Piece, above: Piece
) -> KernelFamily:
    """A family that is piecewise linear in u: pieces for u < low, low <= u <= high, u > high."""
    return family, (low, high, *below, *between, *above)


def sigmoids(x: F64) -> tuple[F64, F64]:
    """sigma(x) and sigma(-x) = 1 - sigma(x), both with all digits."""
    e = np.exp(-np.abs(x))
    large = 1 / (1 + e)
    small = e * large
    return np.where(x > 0, large, small), np.where(x > 0, small, large)


class General(Additive):
    """A loss of one output from its `terms` and `label_terms`, functions of arrays (n, ...)."""

    kernel = None
    n_outputs = 1

    def terms(self, A: F64, y: F64) -> Terms:
        """g, j, h, k."""
        raise NotImplementedError

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        """dg/dy and dh/dy; here for a loss that is a function of the residual A - y."""
        _, j, _, k = self.terms(A, y)
        return -j, -k

    def gradient(self, state: F64, y: F64) -> F64:
        return self.terms(state[:, 0], y)[0][:, None]

    def jacobian(self, state: F64, y: F64) -> F64:
        return self.terms(state[:, 0], y)[1][:, None, None]

    def hessian(self, state: F64, y: F64) -> F64:
        return self.terms(state[:, 0], y)[2][:, None, None]

    def hessian_diagonal(self, state: F64, y: F64) -> F64:
        return self.terms(state[:, 0], y)[2][:, None]

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        return (self.terms(state[:, 0], y)[3] * s[:, 0])[:, None, None]

    def label_gradient(self, state: F64, y: F64) -> F64:
        return self.label_terms(state[:, 0], y)[0][:, None, None]

    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64:
        return (self.label_terms(state[:, 0], y)[1] * s[:, 0])[:, None, None]

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        before = self.terms(state, y[:, None])
        after = self.terms(state + D[:, 0], y[:, None])
        return (after[0] - before[0])[:, None], (after[2] - before[2])[:, None, None]

    def response(self, state: F64) -> F64:
        return state[:, 0]


class _LogLink:
    """The score is the logarithm of the expected label."""

    def response(self, state: F64) -> F64:
        return np.exp(state[:, 0])


@dataclass(frozen=True)
class Gamma(_LogLink, General):
    """L = y exp(-A) + A with y > 0."""

    name: str = "gamma"
    changes = "exponentials", (-1.0, 0.0, 0.0, 0.0, 1.0)

    def value(self, A: F64, y: F64) -> F64:
        return y * np.exp(-A[..., 0]) + A[..., 0]

    def terms(self, A: F64, y: F64) -> Terms:
        e = y * np.exp(-A)
        return 1 - e, e, e, -e

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        e = np.exp(-A)
        return -e, e


@dataclass(frozen=True)
class Tweedie(_LogLink, General):
    """L = -y exp((1 - p) A) / (1 - p) + exp((2 - p) A) / (2 - p), variance power 1 < p < 2."""

    power: float
    name: str = "Tweedie"

    @property
    def changes(self) -> KernelFamily:
        return "exponentials", (1 - self.power, 2 - self.power, 1.0, 0.0, 0.0)

    def value(self, A: F64, y: F64) -> F64:
        a = 1 - self.power
        b = 2 - self.power
        return -y * np.exp(a * A[..., 0]) / a + np.exp(b * A[..., 0]) / b

    def terms(self, A: F64, y: F64) -> Terms:
        a = 1 - self.power
        b = 2 - self.power
        u = -y * np.exp(a * A)
        v = np.exp(b * A)
        h = a * u + b * v
        return u + v, h, h, a * a * u + b * b * v

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        a = 1 - self.power
        e = -np.exp(a * A)
        return e, a * e


@dataclass(frozen=True)
class Huber(General):
    """Squared error up to a residual of ``delta``, linear beyond. ``flat``: h is 1 there, too."""

    delta: float
    flat: bool = True
    name: str = "Huber"

    @property
    def changes(self) -> KernelFamily:
        d = self.delta
        h = float(self.flat)
        return pieces("residual", -d, d, (-d, 0.0, h), (0.0, 1.0, 1.0), (d, 0.0, h))

    def value(self, A: F64, y: F64) -> F64:
        r = np.abs(A[..., 0] - y)
        return np.where(r <= self.delta, 0.5 * r * r, self.delta * (r - 0.5 * self.delta))

    def terms(self, A: F64, y: F64) -> Terms:
        r = A - y
        inside = (np.abs(r) <= self.delta).astype(float)
        h = np.ones_like(r) if self.flat else inside
        return np.clip(r, -self.delta, self.delta), inside, h, np.zeros_like(r)


@dataclass(frozen=True)
class PseudoHuber(General):
    """L = d^2 (sqrt(1 + (r / d)^2) - 1), r = A - y."""

    slope: float
    name: str = "pseudo-Huber"

    @property
    def changes(self) -> KernelFamily:
        return "pseudo-Huber", (self.slope,)

    def value(self, A: F64, y: F64) -> F64:
        z = (A[..., 0] - y) / self.slope
        return self.slope**2 * z * z / (np.sqrt(1 + z * z) + 1)

    def terms(self, A: F64, y: F64) -> Terms:
        r = A - y
        root = np.sqrt(1 + (r / self.slope) ** 2)
        h = root**-3
        return r / root, h, h, -3 * h * r / (self.slope * root) ** 2


@dataclass(frozen=True)
class Fair(General):
    """L = c^2 (|r| / c - log(1 + |r| / c)), r = A - y."""

    c: float
    name: str = "fair"

    @property
    def changes(self) -> KernelFamily:
        return "fair", (self.c,)

    def value(self, A: F64, y: F64) -> F64:
        z = np.abs(A[..., 0] - y) / self.c
        return self.c**2 * (z - np.log1p(z))

    def terms(self, A: F64, y: F64) -> Terms:
        r = A - y
        over = self.c / (np.abs(r) + self.c)
        h = over * over
        return r * over, h, h, -2 * np.sign(r) * h * over / self.c


@dataclass(frozen=True)
class SquaredLog(General):
    """L = (log(1 + A) - log(1 + y))^2 / 2 with y > -1; h is kept above ``floor``."""

    floor: float = 1e-6
    name: str = "squared log error"

    @property
    def changes(self) -> KernelFamily:
        return "squared log", (self.floor,)

    def value(self, A: F64, y: F64) -> F64:
        return 0.5 * (np.log1p(np.maximum(A[..., 0], -1 + 1e-6)) - np.log1p(y)) ** 2

    def terms(self, A: F64, y: F64) -> Terms:
        inside = A > -1 + 1e-6
        x = np.maximum(A, -1 + 1e-6) + 1
        d = np.log(x) - np.log1p(y)
        j = (1 - d) / x**2
        h = np.maximum(j, self.floor)
        k = np.where(inside & (j > self.floor), (2 * d - 3) / x**3, 0.0)
        return d / x, np.where(inside, j, 0.0), h, k

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        x = np.maximum(A, -1 + 1e-6) + 1
        j = (1 - np.log(x) + np.log1p(y)) / x**2
        return -1 / (x * (1 + y)), np.where(j > self.floor, 1 / (x**2 * (1 + y)), 0.0)


@dataclass(frozen=True)
class ScaledLogistic(General):
    """Logistic loss of the score times ``scale`` (LightGBM's sigmoid), y in [0, 1]."""

    scale: float
    name: str = "logistic"

    @property
    def changes(self) -> KernelFamily:
        return "sigmoid", (self.scale, 0.0)

    def value(self, A: F64, y: F64) -> F64:
        x = self.scale * A[..., 0]
        return np.logaddexp(0.0, x) - y * x

    def terms(self, A: F64, y: F64) -> Terms:
        c = self.scale
        p, q = sigmoids(c * A)
        h = c * c * p * q
        return c * (p * (1 - y) - q * y), h, h, c * h * (q - p)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return np.full_like(A, -self.scale), np.zeros_like(A)

    def response(self, state: F64) -> F64:
        p, q = sigmoids(self.scale * state[:, 0])
        return np.stack([q, p], axis=1)


@dataclass(frozen=True)
class Hinge(General):
    """L = max(0, 1 - yA), labels {0, 1} taken as y = {-1, 1}; h is 1 if L > 0, otherwise zero."""

    name: str = "hinge"
    changes = pieces("margin", 0.0, 0.0, (-1.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))

    def value(self, A: F64, y: F64) -> F64:
        return np.maximum(0.0, 1 - (2 * y - 1) * A[..., 0])

    def terms(self, A: F64, y: F64) -> Terms:
        sign = 2 * y - 1
        counts = (sign * A < 1).astype(float)
        return -sign * counts, np.zeros_like(counts), counts, np.zeros_like(counts)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return -2 * ((2 * y - 1) * A < 1).astype(float), np.zeros_like(A)


@dataclass(frozen=True)
class Pinball(General):
    """Quantile error; for alpha = 1/2, half the absolute error.

    The leaves are quantiles, not Newton steps.
    """

    alpha: float = 0.5
    name: str = "quantile error"

    @property
    def changes(self) -> KernelFamily:
        above = 1 - self.alpha, 0.0, 1.0
        return pieces("residual", 0.0, 0.0, (-self.alpha, 0.0, 1.0), above, above)

    def value(self, A: F64, y: F64) -> F64:
        r = y - A[..., 0]
        return np.maximum(self.alpha * r, (self.alpha - 1) * r)

    def terms(self, A: F64, y: F64) -> Terms:
        g = np.where(y <= A, 1 - self.alpha, -self.alpha)
        return g, np.zeros_like(g), np.ones_like(g), np.zeros_like(g)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return np.zeros_like(A), np.zeros_like(A)
