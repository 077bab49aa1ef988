"""A loss that the user gives by its derivatives: the objective that a model was trained with.

The function gives g and h, unweighted, for margins and labels of rows, each row by itself. Leaves
divide by h as it is. The derivatives of training need j = dg/dA and k = dh/dA as well. These are not
taken from h, because objectives often replace it: both are computed from the function itself, by
complex steps or differences (numeric_derivative.py), unless the user gives k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..losses import Additive, Loss
from .numeric_derivative import derivative, takes_complex

NEEDS_LOSS = (
    "this model was trained with an objective of its own, which gives derivatives and not the loss itself; pass the "
    "loss, params={'objective': f, 'loss': L} with L(margin, y) -> one number a row, or ask for of='prediction', for a "
    "goal or for a gradient of yours."
)


@dataclass(frozen=True)
class OwnFunctions:
    """The functions that a user gives, of margins (n,) or (n, K) and labels (n,).

    ``objective``  gives g and h, unweighted, each of the shape of the margins
    ``third``      gives dh/dA of one output (n,), or None
    ``loss``       gives the loss (n,), or None
    """

    objective: Callable[[Any, Any], Any]
    third: Callable[[Any, Any], Any] | None = None
    loss: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class OwnLoss(Additive):
    """A loss of K outputs by the user's functions.

    ``classes``     number of classes if labels are class numbers; 0 if they are numbers
    ``link``        a loss of the library whose response the model gives, or None: raw scores
    ``is_complex``  whether the objective takes complex margins
    """

    functions: OwnFunctions
    n_outputs: int = 1
    classes: int = 0
    link: Loss | None = None
    is_complex: bool = False
    name: str = "own"
    kernel = None
    changes = "numpy", ()

    @property
    def several_numbers(self) -> bool:
        return self.link is None and self.n_outputs > 1

    def gradient(self, state: F64, y: F64) -> F64:
        return self._terms(state, y)[:, 0]

    def hessian(self, state: F64, y: F64) -> F64:
        return self._terms(state, y)[:, 1, :, None] * np.eye(self.n_outputs)

    def hessian_diagonal(self, state: F64, y: F64) -> F64:
        return self._terms(state, y)[:, 1]

    def jacobian(self, state: F64, y: F64) -> F64:
        return self._slopes(state, y)[:, 0]

    def third_dot(self, state: F64, y: F64, s: F64) -> F64:
        if self.functions.third is not None:
            k = _one_a_row("third", self.functions.third(state[:, 0], y), y)
            return (k * s[:, 0])[:, None, None]
        return self._slopes(state, y)[:, 1] * s[:, :, None]

    def label_gradient(self, state: F64, y: F64) -> F64:
        return self._label_slopes(state, y)[:, 0]

    def label_hessian_dot(self, state: F64, y: F64, s: F64) -> F64:
        return self._label_slopes(state, y)[:, 1] * s[:, :, None]

    def difference(self, state: F64, D: F64, y: F64) -> tuple[F64, F64]:
        before = self._terms(state, y)
        columns = [self._terms(state + d, y) - before for d in np.moveaxis(D, 2, 0)]
        change = np.stack(columns, axis=-1)  # (n, 2, K, B)
        return change[:, 0], change[:, 1, :, None] * np.eye(self.n_outputs)[None, :, :, None]

    def value(self, A: F64, y: F64) -> F64:
        if self.functions.loss is None:
            raise InvalidInput(NEEDS_LOSS)
        flat = A.reshape(-1, A.shape[-1])
        labels = np.broadcast_to(y, A.shape[:-1]).ravel()
        return self._loss_of(flat, labels).reshape(A.shape[:-1])

    def value_gradient(self, F: F64, y: F64) -> F64:
        """(n, K) the gradient of `value`, which need not be that of the objective."""
        if self.functions.loss is None:
            raise InvalidInput(NEEDS_LOSS)
        columns = [self._value_slope(F, y, k) for k in range(self.n_outputs)]
        return np.concatenate(columns, axis=1)

    def response(self, state: F64) -> F64:
        if self.link is not None:
            return self.link.response(self.link.state(state))
        return state[:, 0] if self.n_outputs == 1 else state

    # ---- the user's functions ----

    def _terms(self, A: np.ndarray, y: F64) -> np.ndarray:
        """(n, 2, K) g and h at scores A (n, K), which may be complex."""
        g, h = self.functions.objective(_squeezed(A), y)
        kind = np.complex128 if np.iscomplexobj(A) else np.float64
        return np.stack([np.asarray(x, kind).reshape(A.shape) for x in (g, h)], axis=1)

    def _slopes(self, A: F64, y: F64) -> F64:
        """(n, 2, K, K) derivatives of g and h in each score."""
        K = self.n_outputs
        columns = [self._slopes_in(A, y, k) for k in range(K)]
        return np.stack(columns, axis=-1).reshape(len(A), 2, K, K)

    def _slopes_in(self, A: F64, y: F64, k: int) -> F64:
        """(n, 2 K) derivatives of g and h in the score of output k."""

        def terms_at(x: np.ndarray, rows: Ints) -> np.ndarray:
            return self._terms(_with_column(A[rows], k, x), y[rows]).reshape(len(rows), -1)

        return derivative(terms_at, A[:, k], self.is_complex)

    def _label_slopes(self, A: F64, y: F64) -> F64:
        """(n, 2, K, Y) derivatives of g and h in the label.

        A label between classes is a row with a part of its weight in each of them.
        """
        if not self.classes:

            def terms_at(x: np.ndarray, rows: Ints) -> np.ndarray:
                return self._terms(A[rows], x).reshape(len(rows), -1)

            slopes = derivative(terms_at, y, try_complex=False)
            return slopes.reshape(len(A), 2, self.n_outputs, 1)
        by_class = [self._terms(A, np.full(len(A), float(c))) for c in range(self.classes)]
        if self.n_outputs == 1:
            return (by_class[1] - by_class[0])[..., None]
        return np.stack(by_class, axis=-1)

    def _loss_of(self, A: F64, y: F64) -> F64:
        """(n,) the user's loss at scores A (n, K)."""
        assert self.functions.loss is not None
        return _one_a_row("loss", self.functions.loss(_squeezed(A), y), y)

    def _value_slope(self, F: F64, y: F64, k: int) -> F64:
        """(n, 1) the derivative of the user's loss in the score of output k."""

        def value_at(x: np.ndarray, rows: Ints) -> np.ndarray:
            return self._loss_of(_with_column(F[rows], k, x), y[rows])[:, None]

        return derivative(value_at, F[:, k], try_complex=False)


def own_loss(
    functions: OwnFunctions, A: F64, y: F64, *, classes: int = 0, link: Loss | None = None
) -> OwnLoss:
    """The loss of these functions, which are tried at scores A (n, K) of rows with labels y (n,)."""
    loss = OwnLoss(functions, A.shape[1], classes, link)
    if functions.third is not None and loss.n_outputs > 1:
        raise InvalidInput(
            f"params has third, which is for models of one output; this one has {loss.n_outputs}. Leave it out."
        )
    _check_terms(functions, A, y)
    first = slice(0, 1000)

    def terms_at(x: np.ndarray, rows: Ints) -> np.ndarray:
        return loss._terms(_with_column(A[first][rows], 0, x), y[first][rows]).reshape(
            len(rows), -1
        )

    is_complex = takes_complex(terms_at, A[first, 0])
    return OwnLoss(functions, loss.n_outputs, classes, link, is_complex)


def _check_terms(functions: OwnFunctions, A: F64, y: F64) -> None:
    """Raise an error if the objective does not give g and h of each row by itself."""
    found = _as_given(functions, A, y)
    half = slice(0, max(1, len(y) // 2))
    part = _as_given(functions, A[half], y[half])
    for whole, some in zip(found, part, strict=True):
        if not np.allclose(whole[half], some, rtol=1e-6, atol=1e-12):
            raise InvalidInput(
                "the objective gives other derivatives for half of the rows than for the same rows among all; "
                "it must be a function f(margin, y) of each row by itself: take the labels from its second argument, "
                "and do not divide by the number of rows."
            )


def _as_given(functions: OwnFunctions, A: F64, y: F64) -> list[F64]:
    """g and h, as arrays of the right shape; otherwise an error that says what is wrong."""
    margin = _squeezed(A)
    result = functions.objective(margin, y)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise InvalidInput(
            f"the objective returned {type(result).__name__}; expected (grad, hess), two arrays."
        )
    arrays = [np.asarray(x, np.float64) for x in result]
    for name, x in zip(("grad", "hess"), arrays, strict=True):
        if x.shape != margin.shape and x.size != margin.size:
            raise InvalidInput(
                f"the objective returned {name} of shape {x.shape} for margins of shape {margin.shape}; expected the "
                "same shape."
            )
        if not np.isfinite(x).all():
            raise InvalidInput(f"the objective returned {name} with missing or infinite values.")
    return [x.reshape(A.shape) for x in arrays]


def _one_a_row(name: str, found: Any, y: F64) -> F64:
    """(n,) what one of the user's functions gave for rows with labels y (n,)."""
    try:
        numbers = np.asarray(found, np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"the function params[{name!r}] gave {found!r:.60}; expected one number a row."
        ) from None
    if numbers.shape != y.shape:
        raise InvalidInput(
            f"the function params[{name!r}] gave shape {numbers.shape} for {len(y)} rows; expected one number a row, "
            f"shape {y.shape}."
        )
    return numbers


def _squeezed(A: np.ndarray) -> np.ndarray:
    """Scores (n, K) as the user's functions take them: (n,) for one output."""
    return A[:, 0] if A.shape[1] == 1 else A


def _with_column(A: F64, k: int, x: np.ndarray) -> np.ndarray:
    """Scores (n, K) with x (n,) in column k."""
    out = A.astype(np.result_type(A, x))
    out[:, k] = x
    return out
