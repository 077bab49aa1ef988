"""Losses of several numbers: a label for each output, or one label that several outputs describe.

Each has ``value`` and its `Terms`: g, its derivatives in all scores, the diagonal h that leaves
divide by, and the derivatives of that; and the derivatives of g and h in the labels. The leaves of
all of them are solved one output at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..._data.arrays import F64
from ..general_losses import sigmoids
from ..losses import Additive, OwnTerms


class Terms(NamedTuple):
    """Derivatives of rows at their scores."""

    g: F64  # (n, K)
    j: F64  # (n, K, K) dg_k / dA_l
    h: F64  # (n, K)
    k: F64  # (n, K, K) dh_k / dA_l


class SeveralNumbers(Additive):
    """A loss of K numbers from its `terms` and `label_terms`. Labels y are (n, Y), or (n,)."""

    kernel = None
    several_numbers = True
    changes = "numpy", ()
    n_outputs: int

    def terms(self, A: F64, y: F64) -> Terms:
        raise NotImplementedError

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        """dg/dy and dh/dy, each (n, K, Y)."""
        raise NotImplementedError

    def gradient(self, state: F64, y: F64) -> F64:
        return self.terms(state, y).g

    def jacobian(self, state: F64, y: F64) -> F64:
        return self.terms(state, y).j

    def hessian(self, state: F64, y: F64) -> F64:
        return diagonal(self.terms(state, y).h)

    def hessian_diagonal(self, state: F64, y: F64) -> F64:
        return self.terms(state, y).h

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        return self.terms(state, y).k * s[:, :, None]

    def label_gradient(self, state: F64, y: F64) -> F64:
        return self.label_terms(state, y)[0]

    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64:
        return self.label_terms(state, y)[1] * s[:, :, None]

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        before = self.terms(state, y)
        after = [self.terms(state + d, y) for d in np.moveaxis(D, 2, 0)]
        dg = np.stack([terms.g - before.g for terms in after], axis=-1)
        dh = np.stack([diagonal(terms.h - before.h) for terms in after], axis=-1)
        return dg, dh

    def response(self, state: F64) -> F64:
        return state


def diagonal(x: F64) -> F64:
    """(n, K, K) matrices with x (n, K) on their diagonals."""
    return x[:, :, None] * np.eye(x.shape[1])


class SeparateNumbers(SeveralNumbers):
    """A loss of K numbers that do not depend on each other, from its `own_terms`."""

    def own_terms(self, state: F64, y: F64) -> OwnTerms:
        raise NotImplementedError

    def terms(self, A: F64, y: F64) -> Terms:
        g, j, h, k = self.own_terms(A, y)
        return Terms(g, diagonal(j), h, diagonal(k))

    def gradient(self, state: F64, y: F64) -> F64:
        return self.own_terms(state, y)[0]

    def hessian_diagonal(self, state: F64, y: F64) -> F64:
        return self.own_terms(state, y)[2]


@dataclass(frozen=True)
class SquaredTargets(SeparateNumbers):
    """L = |A - y|^2 / 2 for labels y (n, K)."""

    n_outputs: int
    name: str = "squared error"

    def value(self, A: F64, y: F64) -> F64:
        return 0.5 * ((A - y) ** 2).sum(axis=-1)

    def own_terms(self, state: F64, y: F64) -> OwnTerms:
        one = np.ones_like(state)
        return state - y, one, one, np.zeros_like(state)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        one = diagonal(np.ones_like(A))
        return -one, 0 * one


@dataclass(frozen=True)
class LogisticTargets(SeparateNumbers):
    """A logistic loss for each column of the labels y (n, K), which are from 0 to 1."""

    n_outputs: int
    name: str = "logistic"

    def value(self, A: F64, y: F64) -> F64:
        return (np.logaddexp(0.0, A) - y * A).sum(axis=-1)

    def own_terms(self, state: F64, y: F64) -> OwnTerms:
        p, q = sigmoids(state)
        h = p * q
        return p * (1 - y) - q * y, h, h, h * (q - p)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        one = diagonal(np.ones_like(A))
        return -one, 0 * one

    def response(self, state: F64) -> F64:
        return sigmoids(state)[0]


@dataclass(frozen=True)
class QuantileTargets(SeparateNumbers):
    """Quantile errors of one label for several quantiles ``alpha``, or of a label for each output.

    A residual below ``delta`` has no gradient.
    """

    alpha: tuple[float, ...]
    delta: float = 0.0
    name: str = "quantile error"

    @property
    def n_outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.alpha)

    def value(self, A: F64, y: F64) -> F64:
        r = _columns(y, A) - A
        return np.maximum(self._alpha * r, (self._alpha - 1) * r).sum(axis=-1)

    def own_terms(self, state: F64, y: F64) -> OwnTerms:
        r = _columns(y, state) - state
        g = np.where(r <= 0, 1 - self._alpha, -self._alpha)
        g = np.where(np.abs(r) < self.delta, 0.0, g)
        zero = np.zeros_like(state)
        return g, zero, np.ones_like(state), zero

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        zero = np.zeros((*A.shape, 1 if y.ndim == 1 else y.shape[1]))
        return zero, zero

    @property
    def _alpha(self) -> F64:
        return np.array(self.alpha)


def _columns(y: F64, A: F64) -> F64:
    """Labels beside scores A (..., n, K): (n, 1) for one label a row."""
    return y[:, None] if y.ndim == 1 else y


@dataclass(frozen=True)
class NormalDistribution(SeveralNumbers):
    """Mean A_0 and log standard deviation A_1 of a label: L = A_1 + (y - A_0)^2 exp(-2 A_1) / 2.

    Training follows the natural gradient: g = -(y - A_0), 1 - z, h = 1, 2 z with
    z = (y - A_0)^2 exp(-2 A_1), which is not the gradient of L.
    """

    n_outputs: int = 2
    name: str = "normal distribution"

    def value(self, A: F64, y: F64) -> F64:
        return A[..., 1] + 0.5 * (y - A[..., 0]) ** 2 * np.exp(-2 * A[..., 1])

    def value_gradient(self, F: F64, y: F64) -> F64:
        d = y - F[:, 0]
        q = np.exp(-2 * F[:, 1])
        return np.stack([-d * q, 1 - d * d * q], axis=1)

    def terms(self, A: F64, y: F64) -> Terms:
        d = y - A[:, 0]
        q = np.exp(-2 * A[:, 1])
        z = d * d * q
        j = np.zeros((len(A), 2, 2))
        j[:, 0, 0] = 1.0
        j[:, 1, 0] = 2 * d * q
        j[:, 1, 1] = 2 * z
        k = np.zeros_like(j)
        k[:, 1, 0] = -4 * d * q
        k[:, 1, 1] = -4 * z
        return Terms(
            np.stack([-d, 1 - z], axis=1), j, np.stack([np.ones_like(d), 2 * z], axis=1), k
        )

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        slope = 2 * (y - A[:, 0]) * np.exp(-2 * A[:, 1])  # of z
        one = np.ones_like(slope)
        return np.stack([-one, -slope], axis=1)[..., None], np.stack([0 * one, 2 * slope], axis=1)[
            ..., None
        ]
