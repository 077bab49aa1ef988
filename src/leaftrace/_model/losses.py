"""Losses: derivatives in the score and the label, and their changes in difference form.

The derivatives of a training row are computed from a *state*: a function of the row's score ``A``,
chosen so that moving the score by a leaf's step costs no exponential per row
(``exp(A + S) = exp(A) exp(S)``, and ``exp(S)`` is computed once a leaf).

    state = loss.state(A)                      # (n, C)  from scores (n, K)
    loss.moved(state, loss.shift(S)[leaf])     # the state at A + S

For a row, with K outputs:

    g = dL/dA        (n, K)        h               (n, K, K)   what the leaf rule divides by
    j = dg/dA        (n, K, K)     k.s = d(h s)/dA (n, K, K)
    dg/dy, d(h s)/dy (n, K, Y): one column for each number in a label

A Newton step has h = j; if a library bounds or replaces its second derivative, they differ.
``difference(state, D, y)`` gives ``g(A + D) - g(A)`` and the same for h, for changes D (n, K, B),
without cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .._data.arrays import F64

OwnTerms = tuple[F64, F64, F64, F64]  # g, j, h, k, each (n, K)


class Criterion(Protocol):
    """The part of a loss that test rows need: its value at their scores, and how these are read.

    Arrays are float64; n rows, K outputs, C numbers of state for each row.
    """

    @property
    def name(self) -> str: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def several_numbers(self) -> bool:
        """Whether the response is a number for each output, instead of class probabilities."""
        ...

    def state(self, A: F64, out: F64 | None = None) -> F64:
        """(n, C) from scores (n, K); may write to ``out``, which saves allocating a large array."""
        ...

    def value(self, A: F64, y: F64) -> F64: ...
    def value_gradient(self, F: F64, y: F64) -> F64:
        """(n, K) the gradient of `value` at scores F (n, K); g, unless training uses another."""
        ...

    def response(self, state: F64) -> F64:
        """Class probabilities (n, classes), or the expected label (n,), for the score."""
        ...


class Loss(Criterion, Protocol):
    """The interface of a loss for the engine."""

    @property
    def kernel(self) -> str | None:
        """The name of the native kernels that replay the loss and compute effects of its rows.

        None if NumPy does that.
        """
        ...

    @property
    def changes(self) -> tuple[str, tuple[float, ...]]:
        """The family of native kernels for `difference`, and its parameters.

        The families of ``kernel`` have no parameters; the others are in src/native/general.hpp.
        "numpy" has no native kernels.
        """
        ...

    @property
    def rounded(self) -> bool:
        """Whether state or derivatives are rounded as some library does.

        Then NumPy replays the loss, not a native kernel.
        """
        ...

    @property
    def exponential(self) -> bool:
        """Whether differences are computed from exp(D) - 1."""
        ...

    def shift(self, S: F64) -> F64: ...
    def moved(self, state: F64, shift: F64) -> F64: ...

    # g, h, j, k.s, dg/dy and d(h s)/dy
    def gradient(self, state: F64, y: F64) -> F64: ...
    def hessian(self, state: F64, y: F64) -> F64: ...
    def hessian_diagonal(self, state: F64, y: F64) -> F64:
        """(n, K) h of each output in itself."""
        ...

    def jacobian(self, state: F64, y: F64) -> F64: ...
    def third_dot(self, state: F64, y: F64, s: F64) -> F64: ...
    def third_diagonal(self, state: F64, y: F64) -> F64:
        """(n, K, K) the derivatives of `hessian_diagonal` in all scores."""
        ...

    def own_terms(self, state: F64, y: F64) -> OwnTerms | None:
        """g, j, h and k of each output in its own score; None if outputs depend on each other."""
        ...

    def label_gradient(self, state: F64, y: F64) -> F64: ...
    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64: ...

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]: ...


class _Newton:
    """Losses whose h is the derivative of g."""

    def jacobian(self: Loss, state: F64, y: F64) -> F64:
        return self.hessian(state, y)


class _Common:
    """Parts that most losses share: g is the gradient of `value`, and the response has one kind."""

    rounded = False
    several_numbers = False

    def value_gradient(self: Loss, F: F64, y: F64) -> F64:
        return self.gradient(self.state(F), y)

    def third_diagonal(self: Loss, state: F64, y: F64) -> F64:
        units = np.eye(self.n_outputs)
        rows = (len(y), self.n_outputs)
        outputs = range(self.n_outputs)
        found = [self.third_dot(state, y, np.broadcast_to(units[o], rows))[:, o] for o in outputs]
        return np.stack(found, axis=1)

    def own_terms(self, state: F64, y: F64) -> OwnTerms | None:
        return None


class Additive(_Common):
    """Losses whose state is the score itself."""

    exponential = False

    def state(self, A: F64, out: F64 | None = None) -> F64:
        return A

    def shift(self, S: F64) -> F64:
        return S

    def moved(self, state: F64, shift: F64) -> F64:
        return state + shift


class _Exponential(_Common):
    """Losses whose state is computed from exp(A)."""

    exponential = True

    def shift(self, S: F64) -> F64:
        return np.exp(S)


class _OneOutput:
    """Losses with K = 1, dg/dy = -1 and dh/dy = 0."""

    n_outputs = 1

    def hessian_diagonal(self: Loss, state: F64, y: F64) -> F64:
        return self.hessian(state, y)[:, 0]

    def label_gradient(self, state: F64, y: F64) -> F64:
        return np.full((len(y), 1, 1), -1.0)

    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64:
        return np.zeros((len(y), 1, 1))


@dataclass(frozen=True)
class SquaredError(Additive, _OneOutput, _Newton):
    """L = (A - y)^2 / 2, so that g = A - y as in every booster."""

    name: str = "squared error"
    kernel: str = "squared"
    changes = "squared", ()

    def value(self, A: F64, y: F64) -> F64:
        return 0.5 * (A[..., 0] - y) ** 2

    def gradient(self, state: F64, y: F64) -> F64:
        return state - y[:, None]

    def hessian(self, state: F64, y: F64) -> F64:
        return np.ones((len(state), 1, 1))

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        return np.zeros((len(state), 1, 1))

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        return D, np.zeros_like(D)[..., None, :]

    def response(self, state: F64) -> F64:
        return state[:, 0]


@dataclass(frozen=True)
class Logistic(_Exponential, _OneOutput, _Newton):
    """L = log(1 + exp A) - y A with y in [0, 1]: Logloss and CrossEntropy.

    State: p = sigma(A) and q = 1 - p.
    """

    name: str = "logistic"
    kernel: str = "logistic"
    changes = "logistic", ()

    def state(self, A: F64, out: F64 | None = None) -> F64:
        # sigma(|A|) and sigma(-|A|), in pieces that stay in the cache: this runs once a step over
        # all rows.
        out = np.empty((len(A), 2)) if out is None else out
        for start in range(0, len(A), 4096):
            score = A[start : start + 4096, 0]
            e = np.exp(-np.abs(score))
            large = 1 / (1 + e)
            small = e * large
            out[start : start + 4096, 0] = np.where(score > 0, large, small)
            out[start : start + 4096, 1] = np.where(score > 0, small, large)
        return out

    def moved(self, state: F64, shift: F64) -> F64:
        p = state[:, :1] * shift
        q = state[:, 1:]
        return np.concatenate([p, q], axis=1) / (p + q)

    def value(self, A: F64, y: F64) -> F64:
        return np.logaddexp(0.0, A[..., 0]) - y * A[..., 0]

    def gradient(self, state: F64, y: F64) -> F64:
        # p - y without cancellation when p is near 1 and y = 1.
        p, q = state.T
        return (p * (1 - y) - q * y)[:, None]

    def hessian(self, state: F64, y: F64) -> F64:
        return (state[:, 0] * state[:, 1])[:, None, None]

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        p, q = state.T
        return (p * q * (q - p) * s[:, 0])[:, None, None]

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        p = state[:, :1, None]
        q = state[:, 1:, None]
        E = np.expm1(D)
        dg = p * q * E / (q + p * (1 + E))
        return dg, (dg * (q - p - dg))[:, None]

    def response(self, state: F64) -> F64:
        return state[:, ::-1]


@dataclass(frozen=True)
class Poisson(_Exponential, _OneOutput, _Newton):
    """L = exp A - y A with y >= 0. State: exp A."""

    name: str = "Poisson"
    kernel: str = "poisson"
    changes = "poisson", ()

    def state(self, A: F64, out: F64 | None = None) -> F64:
        return np.exp(A)

    def moved(self, state: F64, shift: F64) -> F64:
        return state * shift

    def value(self, A: F64, y: F64) -> F64:
        return np.exp(A[..., 0]) - y * A[..., 0]

    def gradient(self, state: F64, y: F64) -> F64:
        return state - y[:, None]

    def hessian(self, state: F64, y: F64) -> F64:
        return state[..., None]

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        return (state * s)[..., None]

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        dg = state[..., None] * np.expm1(D)
        return dg, dg[:, None]

    def response(self, state: F64) -> F64:
        return state[:, 0]


@dataclass(frozen=True)
class Softmax(_Exponential, _Newton):
    """L = log sum exp A - A_y with y a class number. State: p = softmax(A).

    Label derivatives are those in the row's one-hot target t (n, K): g = p - t.
    """

    n_outputs: int
    name: str = "softmax"
    kernel: str = "softmax"
    changes = "softmax", ()

    def state(self, A: F64, out: F64 | None = None) -> F64:
        e = np.exp(A - A.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def moved(self, state: F64, shift: F64) -> F64:
        p = state * shift
        return p / p.sum(axis=1, keepdims=True)

    def value(self, A: F64, y: F64) -> F64:
        top = A.max(axis=-1, keepdims=True)
        classes = np.broadcast_to(y.astype(int), A.shape[:-1])[..., None]
        chosen = np.take_along_axis(A, classes, -1)
        return (top + np.log(np.exp(A - top).sum(axis=-1, keepdims=True)) - chosen)[..., 0]

    def gradient(self, state: F64, y: F64) -> F64:
        g = state.copy()
        g[np.arange(len(y)), y.astype(int)] -= 1
        return g

    def hessian(self, state: F64, y: F64) -> F64:
        return state[:, :, None] * (np.eye(self.n_outputs) - state[:, None, :])

    def hessian_diagonal(self, state: F64, y: F64) -> F64:
        return state * (1 - state)

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        # h s = p (s - c), c = p.s; its derivative is diag(r) - r p' - p r' with r = p (s - c).
        p = state
        r = state * (s - np.sum(state * s, axis=1, keepdims=True))
        left = r[:, :, None] * (np.eye(self.n_outputs) - p[:, None, :])
        return left - p[:, :, None] * r[:, None, :]

    def third_diagonal(self, state: F64, y: F64) -> F64:
        return (1 - 2 * state)[:, :, None] * self.hessian(state, y)

    def label_gradient(self, state: F64, y: F64) -> F64:
        return np.broadcast_to(-np.eye(self.n_outputs), (len(y), self.n_outputs, self.n_outputs))

    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64:
        return np.zeros((len(y), self.n_outputs, self.n_outputs))

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        p = state[..., None]  # (n, K, 1)
        E = np.expm1(D)  # (n, K, B)
        mean = (p * E).sum(axis=1, keepdims=True)
        dp = p * (E - mean) / (1 + mean)
        cross = dp[:, :, None] * (p + dp)[:, None] + p[:, :, None] * dp[:, None]
        return dp, np.eye(self.n_outputs)[None, :, :, None] * dp[:, :, None] - cross

    def response(self, state: F64) -> F64:
        return state
