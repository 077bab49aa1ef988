"""TREX: a linear surrogate of the model on its leaves. Its predictions are sums over training rows.

    min over W of  sum_i w_i L(y_i, F(x_i)) / sum_i w_i + l2 |W|^2,         F(x) = F_0(x) + W . phi(x)

phi(x) has a_l at the leaves of x (_kernel.py), F_0 is the model's starting score. At the optimum,
where the gradient is zero,

    W = sum_i alpha_i phi(x_i),   alpha_i = -w_i g_i / (2 l2 sum w),   so   F(x) = F_0(x) + sum_i alpha_i K(x_i, x)

(the representer theorem), and TREX(i, x) = Q(F) - Q(F without alpha_i K(x_i, x)). W has a number
for each leaf and output, far fewer than the n x n of a kernel. Newton's method with conjugate
gradients finds it, with two passes over the rows for each of their steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import InvalidInput, LeaftraceError, UnsupportedModel
from .._engine.methods import Baseline
from .._engine.queries import Queries
from .._engine.workspace import Workspace
from .._model.ensemble import Ensemble
from .._model.kernels import kernels
from ._kernel import Weighting, by_training_rows, check_weighting, embedding

TOLERANCE = 1e-7  # for the gradient at the optimum, relative to that at W = 0
STEPS = 100  # of Newton's method, at most; it takes five to ten


@dataclass(frozen=True)
class TREX(Baseline):
    """Representer values of a surrogate model, which is linear on the leaves.

    >>> tracer.influence(X_test, y_test, method=TREX())                         # doctest: +SKIP

    By Brophy, Hammoudeh and Lowd (JMLR 2023). The surrogate minimises the model's own loss, mean
    over the weighted training rows, plus l2 |W|^2. Its prediction is a sum over training rows of
    alpha_i K(x_i, x). The score is the change of the query without the row's part of the sum, with
    alpha as it is. With of="prediction" that is the representer value alpha_i K(x_i, x) itself.

    ``weighting``  of the leaves, as in `TreeSim`. With "count" and the default l2, the authors'
                   setting, the surrogate of a large training set hardly learns; "path" is closer to
                   the model
    ``l2``         penalty; the default is the authors'

    It differs from the authors' code: the surrogate starts at the model's starting score, while
    theirs has no intercept; it is solved to its optimum, without which the decomposition does not
    hold; alpha has no factor 1/2 for squared errors, which their loss does not have; sample weights
    count.
    """

    weighting: Weighting = "count"
    l2: float = 0.003

    def __post_init__(self) -> None:
        check_weighting(self.weighting, "TREX")
        if not isinstance(self.l2, (int, float)) or not 0 < self.l2 < np.inf:
            raise InvalidInput(f"TREX has l2={self.l2!r}; it is a number above zero.")

    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        e = work.trace.ensemble
        a = embedding(e, self.weighting)
        W, alpha = fit(e, a, self.l2)  # (leaves, K), (n, K)
        given = queries.scores - e.scores(queries.leaves)  # (m, K) baseline of the test rows
        start = e.finished_base + given
        surrogate = replace(queries, scores=_scores(e, queries.leaves, a, W, start))

        def effect(rows: Ints, K: Real) -> Real:
            return -surrogate.change(-np.einsum("nk,nm->mkn", alpha[rows], K)).T

        return by_training_rows(work, index, queries.leaves, a, effect, 2 * e.n_outputs)


def fit(e: Ensemble, a: F64, l2: float) -> tuple[F64, F64]:
    """W (leaves, K) of the surrogate, and alpha (n, K)."""
    surrogate = _Surrogate(e, a, l2)
    W = np.zeros((len(a), e.n_outputs))
    A = np.tile(e.finished_base, (e.n_rows, 1)) + (0.0 if e.offset is None else e.offset)
    size = np.inf
    first = np.inf
    if not e.loss.jacobian(e.loss.state(A), e.y).any():
        raise UnsupportedModel(
            f"TREX needs a loss whose gradient moves with the score, and the {e.loss.name} loss of this model has "
            "none; TreeSim() needs no loss."
        )
    for step in range(STEPS):
        g = surrogate.w * e.loss.gradient(e.loss.state(A), e.y)
        slope = surrogate.leaf_sums(g) + 2 * l2 * W
        size = float(np.linalg.norm(slope))
        first = size if step == 0 else first
        if size <= TOLERANCE * first:
            return W, -g / (2 * l2)
        product = surrogate.curvature_product(A)
        direction = _conjugate_gradients(product, -slope, min(0.1, size / first) * size)
        moved = surrogate.scores(direction)
        length = surrogate.step_length(A, W, moved, direction, slope)
        W = W + length * direction
        A = A + length * moved
    raise LeaftraceError(
        f"the surrogate of TREX did not settle in {STEPS} steps of Newton's method: its gradient is "
        f"{size / first:.1g} of what it was; a larger l2 makes it easier."
    )


class _Surrogate:
    """The linear model on the leaves of the training rows, and its objective."""

    def __init__(self, e: Ensemble, a: F64, l2: float) -> None:
        self.e = e
        self.a = a
        self.l2 = l2
        self.w = (e.w / e.total_weight)[:, None]  # (n, 1)

    def scores(self, W: F64) -> F64:
        """(n, K) W . phi of the training rows."""
        return _scores(self.e, self.e.leaves, self.a, W)

    def leaf_sums(self, c: F64) -> F64:
        """(leaves, K) sums of a c over the rows of each leaf, for c (n, K)."""
        e = self.e
        sums = np.zeros((len(self.a), e.n_outputs))
        kernels.tree_sums(e.leaves, _all_outputs(e), e.tree_offset, c, sums)
        return sums * self.a[:, None]

    def objective(self, A: F64, W: F64) -> float:
        """The objective at weights W, with which the training rows have scores A (n, K)."""
        losses = self.e.loss.value(A, self.e.y)
        return float(self.w[:, 0] @ losses + self.l2 * np.vdot(W, W))

    def curvature_product(self, A: F64) -> Callable[[F64], F64]:
        """A function that multiplies (leaves, K) by the second derivative of the objective at A."""
        loss = self.e.loss
        curve = _positive(loss.jacobian(loss.state(A), self.e.y)) * self.w[:, None]  # (n, K, K)

        def product(P: F64) -> F64:
            slopes = np.einsum("nab,nb->na", curve, self.scores(P))
            return self.leaf_sums(slopes) + 2 * self.l2 * P

        return product

    def step_length(self, A: F64, W: F64, moved: F64, direction: F64, slope: F64) -> float:
        """The part of a step that lowers the objective: 1, halved until it does.

        ``moved``: (n, K) changes of scores by the whole step; ``slope``: gradient at W.
        """
        before = self.objective(A, W)
        fall = float(np.vdot(slope, direction))
        length = 1.0
        is_rounding = not fall < -1e-12 * abs(before)
        if is_rounding:  # then the step is small
            return length
        while length >= 1e-10:
            after = self.objective(A + length * moved, W + length * direction)
            if after <= before + 1e-4 * length * fall:
                break
            length /= 2
        return length


def _conjugate_gradients(product: Callable[[F64], F64], b: F64, tolerance: float) -> F64:
    """x with |product(x) - b| <= tolerance."""
    x = np.zeros_like(b)
    residual = b
    direction = b
    size = float(np.vdot(residual, residual))
    for _ in range(b.size):
        if size <= tolerance**2:
            break
        image = product(direction)
        length = size / float(np.vdot(direction, image))
        x = x + length * direction
        residual = residual - length * image
        before = size
        size = float(np.vdot(residual, residual))
        direction = residual + size / before * direction
    return x


def _positive(j: F64) -> F64:
    """Second derivatives j (n, K, K) of the loss, cut at zero for losses that are not convex.

    Losses of several outputs are convex.
    """
    return np.maximum(j, 0.0) if j.shape[1] == 1 else j


def _scores(e: Ensemble, leaves: Ids, a: F64, W: F64, start: F64 | float = 0.0) -> F64:
    """(rows, K) start + W . phi of rows with these leaves (trees, rows)."""
    A = np.zeros((leaves.shape[1], W.shape[1])) + start
    weights = W * a[:, None]
    kernels.tree_scores(np.ascontiguousarray(leaves), _all_outputs(e), e.tree_offset, weights, A)
    return A


def _all_outputs(e: Ensemble) -> np.ndarray:
    """(trees,) first output of each tree: leaves of the surrogate write to all outputs."""
    return np.zeros(len(e.first_output), np.int32)
