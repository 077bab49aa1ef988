"""Losses as plain functions of score and label. NumPy replays them; LeafRefit has them in native code, too.

Each says what it is (``value``), its derivatives ``terms``

    g = dL/dA,   j = dg/dA,   h what the leaf rule divides by,   k = dh/dA

and how g and h move with the label (``label_terms``). Changes are differences of totals: in float64 that leaves ten
digits of a change of one row in a million. The native ones (``changes``) are in difference form, by families:

    residual, margin, relative   g and h in three straight pieces of A - y, of the margin, of (A - y) / max(1, |y|)
    exponentials                 g = e - y exp(a A) + (c + d y) exp(b A)
    sigmoid                      g = c (sigma(c A) - y), or c (sigma(c (A - y)) - 1/2)

and a few of one loss each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64
from .losses import Additive

Terms = tuple[F64, F64, F64, F64]
Told = tuple[str, tuple[float, ...]]
Piece = tuple[float, float, float]


def pieces(of: str, low: float, high: float, below: Piece, between: Piece, above: Piece) -> Told:
    """For the kernels: g = a + b u and h where u < low, low <= u <= high, u > high; pieces (a, b, h)."""
    return of, (low, high, *below, *between, *above)


class General(Additive):
    """Shapes for one output. `terms` and `label_terms` take and give arrays (n, ...). Each loss has its ``changes``."""

    kernel = None
    n_outputs = 1

    def terms(self, A: F64, y: F64) -> Terms:
        raise NotImplementedError

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        """dg/dy, dh/dy: here of a loss of the residual A - y."""
        _, j, _, k = self.terms(A, y)
        return -j, -k

    def gradient(self, state: F64, y: F64) -> F64:
        return self.terms(state[:, 0], y)[0][:, None]

    def jacobian(self, state: F64, y: F64) -> F64:
        return self.terms(state[:, 0], y)[1][:, None, None]

    def hessian(self, state: F64, y: F64) -> F64:
        return self.terms(state[:, 0], y)[2][:, None, None]

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
    def changes(self) -> Told:
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
    """Squared error up to a residual of ``delta``, linear beyond. ``flat``: h is 1 beyond too."""

    delta: float
    flat: bool = True
    name: str = "Huber"

    @property
    def changes(self) -> Told:
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
    def changes(self) -> Told:
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
    def changes(self) -> Told:
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
    def changes(self) -> Told:
        return "squared log", (self.floor,)

    def value(self, A: F64, y: F64) -> F64:
        return 0.5 * (np.log1p(np.maximum(A[..., 0], -1 + 1e-6)) - np.log1p(y)) ** 2

    def terms(self, A: F64, y: F64) -> Terms:
        inside = A > -1 + 1e-6
        x = np.maximum(A, -1 + 1e-6) + 1
        d = np.log(x) - np.log1p(y)
        j = (1 - d) / x**2
        h = np.maximum(j, self.floor)
        return (
            d / x,
            np.where(inside, j, 0.0),
            h,
            np.where(inside & (j > self.floor), (2 * d - 3) / x**3, 0.0),
        )

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
    def changes(self) -> Told:
        return "sigmoid", (self.scale, 0.0)

    def value(self, A: F64, y: F64) -> F64:
        x = self.scale * A[..., 0]
        return np.logaddexp(0.0, x) - y * x

    def terms(self, A: F64, y: F64) -> Terms:
        c = self.scale
        p = 1 / (1 + np.exp(-c * A))
        h = c * c * p * (1 - p)
        return c * (p - y), h, h, c * h * (1 - 2 * p)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return np.full_like(A, -self.scale), np.zeros_like(A)

    def response(self, state: F64) -> F64:
        p = 1 / (1 + np.exp(-self.scale * state[:, 0]))
        return np.stack([1 - p, p], axis=1)


@dataclass(frozen=True)
class Hinge(General):
    """L = max(0, 1 - yA) with y in {0, 1} read as {-1, 1}; h is 1 where the row counts, zero elsewhere."""

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
    """Absolute error (alpha = 1/2, twice) and quantile error: the leaves are quantiles, not Newton steps."""

    alpha: float = 0.5
    name: str = "quantile error"

    @property
    def changes(self) -> Told:
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


class _Separate(Additive):
    """K outputs that do not see each other, each with a target of 0 or 1."""

    kernel = None
    n_outputs: int
    scale = 1.0

    def _one(self, state: F64) -> Terms:
        """g for the target 0, j, h, k, each (n, K); the target c takes c times the scale off g."""
        raise NotImplementedError

    def gradient(self, state: F64, y: F64) -> F64:
        return self._one(state)[0] - self.scale * np.eye(self.n_outputs)[y.astype(int)]

    def jacobian(self, state: F64, y: F64) -> F64:
        return self._one(state)[1][:, :, None] * np.eye(self.n_outputs)

    def hessian(self, state: F64, y: F64) -> F64:
        return self._one(state)[2][:, :, None] * np.eye(self.n_outputs)

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        return (self._one(state)[3] * s)[:, :, None] * np.eye(self.n_outputs)

    def label_gradient(self, state: F64, y: F64) -> F64:
        return np.broadcast_to(
            -self.scale * np.eye(self.n_outputs), (len(y), self.n_outputs, self.n_outputs)
        )

    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64:
        return np.zeros((len(y), self.n_outputs, self.n_outputs))

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        before = self._one(state[..., None])
        after = self._one(state[..., None] + D)
        dh = (after[2] - before[2])[:, :, None] * np.eye(self.n_outputs)[None, :, :, None]
        return after[0] - before[0], dh


@dataclass(frozen=True)
class OneVsAll(_Separate):
    """A logistic loss for each class, of the score times ``scale``."""

    n_outputs: int
    scale: float = 1.0
    name: str = "one-vs-all logistic"

    @property
    def changes(self) -> Told:
        return "sigmoid", (self.scale, 0.0)

    def _one(self, state: F64) -> Terms:
        c = self.scale
        p = 1 / (1 + np.exp(-c * state))
        h = c * c * p * (1 - p)
        return c * p, h, h, c * h * (1 - 2 * p)

    def value(self, A: F64, y: F64) -> F64:
        x = self.scale * A
        chosen = np.take_along_axis(x, np.broadcast_to(y.astype(int), A.shape[:-1])[..., None], -1)[
            ..., 0
        ]
        return np.logaddexp(0.0, x).sum(axis=-1) - chosen

    def response(self, state: F64) -> F64:
        p = 1 / (1 + np.exp(-self.scale * state))
        return p / p.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Brier(_Separate):
    """L = |F - target|^2 / 2 for class probabilities F: what the leaves of a forest minimise."""

    n_outputs: int
    name: str = "Brier"
    changes = pieces("residual", 0.0, 0.0, (0.0, 1.0, 1.0), (0.0, 1.0, 1.0), (0.0, 1.0, 1.0))

    def _one(self, state: F64) -> Terms:
        one = np.ones_like(state)
        return state, one, one, np.zeros_like(state)

    def value(self, A: F64, y: F64) -> F64:
        target = np.eye(self.n_outputs)[y.astype(int)]
        return 0.5 * ((A - target) ** 2).sum(axis=-1)

    def response(self, state: F64) -> F64:
        return state
