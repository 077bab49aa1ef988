"""Rounding to float32 in training: errors of the replay it explains, and its part in influences.

A booster that keeps scores in float32 rounds them at every step, each time by a random part of the
last bit u, so after t steps a score is off by about u (t / 12)^1/2, and a gradient by h times that.
Derivatives are those of the training program without rounding, taken at the rounded scores; they
are off in about the proportion in which gradients are,

    (sum_tj (w_j h_j)^2 (t u_j^2 + v_j^2) / 12  /  sum_tj (w_j g_j)^2)^1/2

where v is the last bit of the label. This is small unless scores are much larger than residuals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from .._data.arrays import F64
from .._model.ensemble import Ensemble
from .._model.kernels.numpy import sum_by_leaf
from .._model.leaf_rule import UncertainStatistic
from .._model.value_noise import value_noise

# Rounding that changes influences by this part of them is said in the verdict.
SAID_FROM = 0.01


def has_rounding_noise(e: Ensemble) -> bool:
    """Whether rounding in training may show in leaf values of this model."""
    if e.rule.statistic is not None:
        return isinstance(e.rule.statistic, UncertainStatistic)
    return e.rounding.derivatives or e.rounding.terms


def scores_before(e: Ensemble, steps: Collection[int]) -> Iterator[tuple[int, F64]]:
    """(t, the model's scores (n, K) before step t) for these steps."""
    A = e.start()
    for t in range(max(steps, default=-1) + 1):
        e.move(t, e.leaves, A)
        if t in steps:
            yield t, A


def step_noise(e: Ensemble, t: int, A: F64, values: F64, D: F64) -> F64:
    """(M, O) possible rounding errors of the leaf values of step t, at scores A (n, K).

    ``values``  (M, O) the values found
    ``D``       (M, O) with lam
    """
    statistic = e.rule.statistic
    if not isinstance(statistic, UncertainStatistic):
        return value_noise(e.rate(t), _gradient_sizes(e, t, A), D)
    model = e.values[e.leaf_range(t)]
    fits = np.zeros(len(model), bool)
    for r in range(*e.trees(t).indices(len(e.leaves))):
        residual = e.labels_of(e.first_output[r]) - A[:, e.first_output[r]]
        own = np.unique(e.leaves[r])
        steps = model[:, 0] / e.rate(t)
        fits[own] = statistic.fits(e.leaves[r], len(model), residual, steps)[own]
    return np.where(fits[:, None], np.abs(values - model), 0.0)


def _gradient_sizes(e: Ensemble, t: int, A: F64) -> F64:
    """(M, O) sums of w |g| over the leaves of step t, at scores A (n, K)."""
    leaves = e.leaf_range(t)
    sizes = np.zeros((leaves.stop - leaves.start, e.leaf_outputs))
    g = np.abs(e.gradients(A, t))
    trees = e.trees(t)
    for r in range(trees.start, trees.stop):
        first = e.first_output[r]
        own = g[:, first : first + e.leaf_outputs]
        sum_by_leaf(e.leaves[r], e.tree_weight(r)[:, None] * own, sizes)
    return sizes


def score_rounding(e: Ensemble, A: F64) -> float:
    """Relative change of gradients, and so of influences, by scores that are kept in float32.

    ``A``: (n, K) scores before the last step, where gradients are smallest. Only if the change there
    is worth a word are those of all steps computed.
    """
    if not e.rounding.scores or e.rule.statistic is not None or e.coupled:
        return 0.0
    noise, size = _rounding_terms(e, A, e.n_steps)
    if noise <= SAID_FROM**2 * size:
        return 0.0
    A = e.start()
    noise = size = 0.0
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
        A[:] = A.astype(np.float32)
        terms = _rounding_terms(e, A, t + 1)
        noise += terms[0]
        size += terms[1]
    return float(np.sqrt(noise / size)) if size > 0 else 0.0


def _rounding_terms(e: Ensemble, A: F64, roundings: int) -> tuple[float, float]:
    """Sums over rows of the squared rounding of w g, after this many of scores A, and of (w g)^2."""
    state = e.loss.state(A)
    w = e.w[:, None]
    squares = (
        roundings * _last_bit(A) ** 2 + _last_bit(_finite_labels(e)).max(axis=1, keepdims=True) ** 2
    )
    noise = (w * e.second_derivatives(A)) ** 2 * squares / 12
    size = (w * e.loss.gradient(state, e.y)) ** 2
    return float(noise.sum()), float(size.sum())


def _finite_labels(e: Ensemble) -> F64:
    """(n, Y) labels, with zero for ends of intervals that are open."""
    y = e.y.reshape(e.n_rows, -1)
    return np.where(np.isfinite(y), y, 0.0)


def _last_bit(x: F64) -> F64:
    """The distance from each number to the next one in float32."""
    return np.spacing(np.abs(x).astype(np.float32)).astype(np.float64)


def rounding_note(e: Ensemble, A: F64) -> list[str]:
    """A sentence for the verdict, if rounding changes influences so much that users should know.

    ``A``: (n, K) scores before the last step.
    """
    change = score_rounding(e, A)
    if change < SAID_FROM:
        return []
    return [
        f"training kept scores in float32, whose rounding at scores around {np.abs(A).max():.0e} changes gradients by "
        f"roughly {change:.0%}: influences differ as much from those of training without rounding; subtract a constant "
        "from the labels before training to avoid it"
    ]
