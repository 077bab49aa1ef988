"""Steps of training whose leaves are linear functions: see _model/linear_leaves.py.

With z = (1, x) the numbers of a row in its leaf, the unshrunk b and slopes of the leaf are

    theta = -M^-1 sum w g z,   M = sum w h z z' + l2 (for slopes alone)

over its rows without missing numbers. Its constant c is a leaf value of the usual kind over all its rows. A leaf
with fewer rows than numbers in theta keeps the constant. Where a column of the tree has missing numbers, LightGBM
counts the numbers of a row up to the first missing one instead of the row. So a leaf may be fitted to no row at all:
all of theta is zero then, and all its rows get zero.

Differentials are those of replay.py with z' theta in the place of s: a weight, score or label moves theta by
-M^-1 z (direct), direct = g + h z' theta for the weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ids, Ints
from .._model.ensemble import Ensemble
from .._model.linear_leaves import NO_SLOPE, LinearLeaves, columns_of
from .leaf_equations import LeafEquations
from .steps import Step, TrainingScores, run_on_rows

if TYPE_CHECKING:
    from concurrent.futures import Executor

NOISE = 1e-11  # relative size of numbers that are left by rounding alone
BY_CHANCE = 1e-7  # relative size of outputs that a slope of almost zero is responsible for
SMALLEST_SLOPE = 1e-30  # a slope that is not zero, but changes no output


@dataclass(frozen=True)
class LinearStep:
    """The linear functions of the M leaves of a step.

    ``theta``    (M, 1 + P) b and slopes before the learning rate
    ``inverse``  (M, 1 + P, 1 + P) M^-1; zero for leaves that are constants, and beyond their last column
    ``fitted``   (M,) whether a leaf is a linear function, not a constant
    ``follows``  (M, 1 + P, 1 + P) the numbers of a row of the leaf from those that the equations decide
    ``undecided`` (M,) whether rounding decided which slopes of a leaf are zero
    """

    theta: F64
    inverse: F64
    fitted: NDArray[np.bool_]
    follows: F64
    undecided: NDArray[np.bool_]

    def values(self, rate: float, constants: F64) -> F64:
        """(M, 2 + P) the values of leaves with these constants (M,), which include the learning rate."""
        own = rate * self.theta
        own[~self.fitted, 0] = constants[~self.fitted]
        return np.column_stack([constants, own])


def rows_by_leaf(ids: Ids, M: int) -> Iterator[tuple[int, Ints]]:
    """(leaf, its rows) of each of the M leaves that has rows; ids (n,)."""
    order = np.argsort(ids, kind="stable")
    edges = np.searchsorted(ids[order], np.arange(M + 1))
    for leaf in np.flatnonzero(np.diff(edges)):
        yield int(leaf), order[edges[leaf] : edges[leaf + 1]]


def fit_numbers(linear: LinearLeaves, ids: Ids, columns: F64) -> F64:
    """(n, 1 + P) z of each row, zero for rows with missing numbers."""
    x = linear.numbers(ids, columns)
    z = np.column_stack([np.ones(len(x)), x])
    z[np.isnan(x).any(axis=1)] = 0.0
    return z


def fit_step(e: Ensemble, t: int, A: F64) -> LinearStep:
    """Fit the linear functions of step t at scores A (n, K)."""
    assert e.linear is not None
    here = e.linear.part(e.leaf_range(t))
    M, P = here.used.shape
    theta = np.zeros((M, 1 + P))
    inverse = np.zeros((M, 1 + P, 1 + P))
    fitted = np.zeros(M, bool)
    follows = np.zeros_like(inverse)
    undecided = np.zeros(M, bool)
    model = e.values[e.leaf_range(t)]
    g = e.gradients(A, t)
    h = e.second_derivatives(A, t)
    columns = columns_of(e.leaves)
    for r in range(e.trees(t).start, e.trees(t).stop):
        ids = np.asarray(e.leaves[r])
        o = int(e.first_output[r])
        drawn = None if e.sample is None else e.sample[r]
        wg = e.rounding.apply(g[:, o], e.w, drawn)
        wh = e.rounding.apply(h[:, o, None, None], e.w, drawn)[:, 0, 0]
        z = fit_numbers(here, ids, columns)
        enough = here.fitted & (_counts(e, r, here) >= 1 + (here.used >= 0).sum(axis=1))
        for leaf, rows in rows_by_leaf(ids, M):
            if not enough[leaf]:
                continue
            fitted[leaf] = True
            own = z[rows]
            p = np.arange(1 + (here.used[leaf] >= 0).sum())
            equations = (own * wh[rows, None]).T @ own
            equations = equations[np.ix_(p, p)] + here.l2 * np.diag(p > 0)
            found = truncated_inverse(equations)
            inverse[leaf][np.ix_(p, p)] = found
            follows[leaf] = _dependence(equations, found, 1 + P)
            theta[leaf, p] = -found @ (own.T @ wg[rows])[p]
            undecided[leaf] = _settle_slopes(
                theta[leaf], own, np.diag(inverse[leaf]) > 0, model[leaf, 2:] != 0
            )
    theta[:, 1:][np.abs(theta[:, 1:]) <= NO_SLOPE] = 0.0
    return LinearStep(theta, inverse, fitted, follows, undecided)


def _dependence(equations: F64, solved: F64, size: int) -> F64:
    """(size, size) the matrix that gives the numbers of a row from those that the equations decide."""
    taken = np.diag(solved) > 0
    out = np.zeros((size, size))
    size = len(taken)
    out[:size, :size] = np.where(taken[:, None], np.eye(size), equations @ solved)
    return out


def _settle_slopes(theta: F64, z: F64, solved: NDArray[np.bool_], has_slope: Any) -> bool:
    """Settle which slopes of a leaf are zero, in place; return whether rounding decided it in training.

    A single row, for example, decides no slopes: what l2 makes zero is then zero or almost zero, by chance. Such
    slopes stay what they are in the model, as the outputs of rows with missing numbers depend on it.

    ``z``          (rows, 1 + P) the numbers of its rows
    ``solved``     (1 + P,) numbers of theta that the equations decide
    ``has_slope``  (P,) which slopes are not zero in the model
    """
    reach = np.abs(z).max(axis=0)
    moved = np.abs(theta) * reach
    by_chance = (moved[1:] <= BY_CHANCE * moved.max()) & (reach[1:] > 0) & solved[1:]
    slopes = theta[1:]
    slopes[by_chance & ~has_slope] = 0.0
    slopes[by_chance & has_slope & (slopes == 0)] = SMALLEST_SLOPE
    return bool(by_chance.any())


def _counts(e: Ensemble, r: int, here: LinearLeaves) -> F64:
    """(M,) rows that tree r was fitted to in each leaf; their numbers, if some are missing in the tree."""
    columns = columns_of(e.leaves)
    ids = np.asarray(e.leaves[r])
    there = slice(None) if e.removed is None else ~e.removed
    drawn = e.drawn_rows(r)
    M = len(here.used)
    own = np.arange(e.tree_leaves[r], e.tree_leaves[r + 1]) - e.tree_offset[r]
    used = np.unique(here.used[own])
    used = used[used >= 0]
    if not np.isnan(columns[there][:, used]).any():
        return np.bincount(ids[drawn], minlength=M).astype(float)
    known = np.cumprod(~np.isnan(here.numbers(ids, columns)), axis=1) * (here.used[ids] >= 0)
    return np.bincount(ids[drawn], known.sum(axis=1)[drawn], M).astype(float)


def truncated_inverse(equations: F64) -> F64:
    """The inverse of the part of a symmetric matrix (1 + p, 1 + p) that decides a function, zero elsewhere.

    Eigen's full pivoting takes the largest remaining pivot until all are rounding beside the first, and the numbers
    that are left are zero: the slope of a column that is the same in all rows of the leaf, for example, or the
    intercept. Of equal pivots it takes the first, where the intercept stands last and pivots change places.
    """
    diagonal = np.diag(equations)
    size = len(diagonal)
    least = np.finfo(float).eps * size * diagonal.max()
    rest = equations.copy()
    order = [*range(1, size), 0]
    taken: list[int] = []
    for step in range(size):
        pivots = np.diag(rest)[order[step:]]
        # what is left of a column that follows from others is noise
        pivots = np.where(pivots > NOISE * diagonal[order[step:]], pivots, 0.0)
        if not pivots.max() > least:
            break
        place = step + int(np.argmax(pivots >= (1 - NOISE) * pivots.max()))
        order[step], order[place] = order[place], order[step]
        at = order[step]
        taken.append(at)
        rest = rest - np.outer(rest[:, at], rest[at]) / rest[at, at]
    part = np.ix_(taken, taken)
    scale = 1 / np.sqrt(diagonal[taken])
    out = np.zeros_like(equations)
    out[part] = np.linalg.inv(equations[part] * np.outer(scale, scale)) * np.outer(scale, scale)
    return out


def refitted_functions(
    e: Ensemble, t: int, scores: TrainingScores, values: F64, threads: Executor | None
) -> F64:
    """(M, 2 + P) the values of the leaves of step t, to which the scores are brought.

    ``values``: (leaves, 2 + P), of which those of the steps before move the scores.
    """
    e.move(t, e.leaves, scores.A, values)
    step = Step(e.constants, t, threads)
    step.stand(scores)
    equations = LeafEquations(e.constants, t)
    path = run_on_rows(equations.iterate_with_scales([1.0]), step)
    constants = equations.values(path[-1].after())[:, 0]
    return fit_step(e, t, scores.A).values(e.rate(t), constants)


def output_errors(e: Ensemble, t: int, found: F64, spread: F64) -> tuple[F64, float]:
    """Errors (M,) of the leaves of step t in the outputs of rows, and the largest output of the model.

    ``found``: (M, 2 + P) values. A slope also counts by its change over the ``spread`` (d,) of its column, as
    the rows of a leaf may hardly differ in a column where other rows do.
    """
    assert e.linear is not None
    here = e.linear.part(e.leaf_range(t))
    model = e.values[e.leaf_range(t)]
    difference = found - model
    wide = np.where(here.used >= 0, spread[np.maximum(here.used, 0)], 0.0)
    errors = np.maximum(np.abs(difference[:, 0]), np.abs(difference[:, 2:] * wide).max(axis=1))
    largest = float(np.abs(model[:, 0]).max(initial=0.0))
    columns = columns_of(e.leaves)
    for ids in e.leaves[e.trees(t)]:
        ids = np.asarray(ids)
        factors = here.factors(ids, columns, model)
        off = np.abs(np.einsum("np,np->n", factors, difference[ids]))
        np.maximum.at(errors, ids, off)
        largest = max(largest, float(np.abs(here.outputs(ids, columns, model)).max(initial=0.0)))
    return errors, largest
