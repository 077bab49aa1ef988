"""Losses of several outputs that do not depend on each other: one for each class.

They are sums over the outputs of a loss of one score, whose target is 1 for the row's class and 0
for the others. As in `general_losses`, NumPy replays them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64
from .general_losses import KernelFamily, Terms, pieces, sigmoids
from .losses import Additive, OwnTerms

_ROUNDING = 1e-12  # of sums over the trees of a forest, whose shares are at most one


class SeparateOutputs(Additive):
    """A loss of K outputs that do not depend on each other, each with a target of 0 or 1."""

    kernel = None
    n_outputs: int
    scale = 1.0

    def _terms_for_zero(self, state: F64) -> Terms:
        """g, j, h, k, each (n, K), for the target 0; the target 1 subtracts the scale from g."""
        raise NotImplementedError

    def gradient(self, state: F64, y: F64) -> F64:
        return self._terms_for_zero(state)[0] - self.scale * np.eye(self.n_outputs)[y.astype(int)]

    def own_terms(self, state: F64, y: F64) -> OwnTerms:
        return self.gradient(state, y), *self._terms_for_zero(state)[1:]

    def jacobian(self, state: F64, y: F64) -> F64:
        return self._terms_for_zero(state)[1][:, :, None] * np.eye(self.n_outputs)

    def hessian(self, state: F64, y: F64) -> F64:
        return self._terms_for_zero(state)[2][:, :, None] * np.eye(self.n_outputs)

    def hessian_diagonal(self, state: F64, y: F64) -> F64:
        return self._terms_for_zero(state)[2]

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        return (self._terms_for_zero(state)[3] * s)[:, :, None] * np.eye(self.n_outputs)

    def label_gradient(self, state: F64, y: F64) -> F64:
        return np.broadcast_to(
            -self.scale * np.eye(self.n_outputs), (len(y), self.n_outputs, self.n_outputs)
        )

    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64:
        return np.zeros((len(y), self.n_outputs, self.n_outputs))

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        before = self._terms_for_zero(state[..., None])
        after = self._terms_for_zero(state[..., None] + D)
        dh = (after[2] - before[2])[:, :, None] * np.eye(self.n_outputs)[None, :, :, None]
        return after[0] - before[0], dh


@dataclass(frozen=True)
class OneVsAll(SeparateOutputs):
    """A logistic loss for each class, of the score times ``scale``."""

    n_outputs: int
    scale: float = 1.0
    name: str = "one-vs-all logistic"

    @property
    def changes(self) -> KernelFamily:
        return "sigmoid", (self.scale, 0.0)

    def _terms_for_zero(self, state: F64) -> Terms:
        c = self.scale
        p, q = sigmoids(c * state)
        h = c * c * p * q
        return c * p, h, h, c * h * (q - p)

    def gradient(self, state: F64, y: F64) -> F64:
        p, q = sigmoids(self.scale * state)
        is_own = np.eye(self.n_outputs, dtype=bool)[y.astype(int)]
        return self.scale * np.where(is_own, -q, p)

    def value(self, A: F64, y: F64) -> F64:
        x = self.scale * A
        classes = np.broadcast_to(y.astype(int), A.shape[:-1])[..., None]
        chosen = np.take_along_axis(x, classes, -1)[..., 0]
        return np.logaddexp(0.0, x).sum(axis=-1) - chosen

    def response(self, state: F64) -> F64:
        p = self.own_probabilities(state)
        return p / p.sum(axis=1, keepdims=True)

    def own_probabilities(self, F: F64) -> F64:
        """(m, K) the probability of each class against all others; they do not sum to one."""
        return sigmoids(self.scale * F)[0]


@dataclass(frozen=True)
class Brier(SeparateOutputs):
    """L = |F - target|^2 / 2 for class probabilities F, which the leaves of a forest minimise."""

    n_outputs: int
    name: str = "Brier"
    changes = pieces("residual", 0.0, 0.0, (0.0, 1.0, 1.0), (0.0, 1.0, 1.0), (0.0, 1.0, 1.0))

    def _terms_for_zero(self, state: F64) -> Terms:
        one = np.ones_like(state)
        return state, one, one, np.zeros_like(state)

    def value(self, A: F64, y: F64) -> F64:
        target = np.eye(self.n_outputs)[y.astype(int)]
        return 0.5 * ((A - target) ** 2).sum(axis=-1)

    def response(self, state: F64) -> F64:
        """The scores; those that rounding put below zero or above one are zero and one."""
        nearest = np.clip(state, 0.0, 1.0)
        return np.where(np.abs(state - nearest) <= _ROUNDING, nearest, state)
