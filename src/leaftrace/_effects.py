"""Row effects: how each training row moves its own leaf's value, through its weight, its score or its label.

    V (trees, n, O)     df_l / dw_i       direct effect          = sum_q N_q (g_i + h_i s_q)
    U (trees, n, O, K)  df_l / dA_j       knock-on effect        = w_j sum_q N_q (h_j + k_j.s_q)
    Y (trees, n, O, Y)  df_l / dy_i       label effect           = w_i sum_q N_q (dg_i/dy + dh_i/dy s_q)

with N, s of the leaf that holds the row (see _replay.py). V needs nothing of the training set but the leaf tables, so
it is also defined for rows that were never trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ._arrays import F64, Ids, Real
from ._kernels import kernels
from ._replay import Trace


@dataclass(frozen=True)
class Rows:
    """Rows as the leaves see them: training rows, or candidates with a label of their own (weight 0)."""

    leaves: Ids  # (trees, n)
    start: F64  # (n, K) score before the first step
    y: F64
    w: F64

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: slice | np.ndarray) -> Rows:
        leaves = np.ascontiguousarray(self.leaves[:, index])
        return Rows(leaves, self.start[index], self.y[index], self.w[index])


def training_rows(trace: Trace) -> Rows:
    e = trace.ensemble
    return Rows(e.leaves, e.start(), e.y, e.w)


def empty_effects(trace: Trace, n: int, dtype: np.dtype) -> tuple[Real, Real]:
    """Room for V (trees, n, O) and U (trees, n, O, K)."""
    e = trace.ensemble
    V = np.empty((len(e.first_output), n, e.leaf_outputs), dtype)
    return V, np.empty((*V.shape, e.n_outputs), dtype)


def fill_effects(trace: Trace, rows: Rows, V: Real, U: Real) -> None:
    """V and U of these rows, all steps."""
    e = trace.ensemble
    for t, A in forward_scores(trace, rows):
        step_effects(trace, rows, t, A, V[e.trees(t)], U[e.trees(t)])


def direct_effects(trace: Trace, rows: Rows, dtype: np.dtype) -> Real:
    """V (trees, n, O) of these rows."""
    V, U = empty_effects(trace, len(rows), dtype)
    fill_effects(trace, rows, V, U)
    return V


def forward_scores(trace: Trace, rows: Rows) -> Iterator[tuple[int, F64]]:
    """(t, A^{t-1}) for each step; the array is reused."""
    e = trace.ensemble
    A = rows.start.copy()
    for t in range(e.n_steps):
        yield t, A
        e.add_leaf_values(t, e.values[e.leaf_range(t)], rows.leaves, A)


def step_effects(trace: Trace, rows: Rows, t: int, A: F64, V: Real, U: Real) -> None:
    """Fill V (R, n, O) and U (R, n, O, K) of step t from the scores A (n, K) before it."""
    e, step = trace.ensemble, trace.steps[t]
    loss, newton = e.loss, e.rule.newton
    if e.n_outputs == 1:
        state, shift = loss.state(A), loss.shift(step.S[..., 0])
        s, N = np.ascontiguousarray(step.s[..., 0]), np.ascontiguousarray(step.N[..., 0, 0])
        for ids, v, u in zip(rows.leaves[e.trees(t)], V, U, strict=True):
            kernels.row_effects(loss.kernel, newton, ids, state, shift, s, N, rows.y, rows.w, v[:, 0], u[:, 0, 0])
        return
    V[...], U[...] = 0, 0
    for r, q, at, s, out in _iterations(trace, rows, t, A):
        ids, o = rows.leaves[e.trees(t)][r], slice(out, out + e.leaf_outputs)
        h = loss.hessian(at, rows.y)
        hs = np.einsum("nab,nb->na", h, s) if newton else s
        slope = h + loss.third_dot(at, rows.y, s) if newton else h
        N = step.N[q, ids]
        V[r] += np.einsum("nab,nb->na", N, (loss.gradient(at, rows.y) + hs)[:, o])
        U[r] += np.einsum("nab,nbk->nak", N, slope[:, o]) * rows.w[:, None, None]


def label_effects(trace: Trace, rows: Rows, dtype: np.dtype) -> Real:
    """Y (trees, n, O, Y): label effects."""
    e = trace.ensemble
    labels = e.loss.label_gradient(e.loss.state(rows.start[:1]), rows.y[:1]).shape[-1]
    Y = np.zeros((len(e.first_output), len(rows), e.leaf_outputs, labels), dtype)
    for t, A in forward_scores(trace, rows):
        for r, q, at, s, out in _iterations(trace, rows, t, A):
            tree = e.trees(t).start + r
            slope = e.loss.label_gradient(at, rows.y)
            if e.rule.newton:
                slope = slope + e.loss.label_hessian_dot(at, rows.y, s)
            N = trace.steps[t].N[q, rows.leaves[tree]]
            Y[tree] += np.einsum("nab,nby->nay", N, slope[:, out : out + e.leaf_outputs]) * rows.w[:, None, None]
    return Y


def _iterations(trace: Trace, rows: Rows, t: int, A: F64) -> Iterator[tuple[int, int, F64, F64, int]]:
    """Tree r, inner iteration q of step t: (r, q, state there, s of each row's leaf (n, K), first output)."""
    e, step = trace.ensemble, trace.steps[t]
    state = e.loss.state(A)
    for r, (ids, out) in enumerate(zip(rows.leaves[e.trees(t)], e.first_output[e.trees(t)], strict=True)):
        for q in range(len(step.scale)):
            at = state if q == 0 else e.loss.moved(state, e.loss.shift(step.S[q])[ids])
            s = np.zeros_like(A)
            s[:, out : out + e.leaf_outputs] = step.s[q, ids]
            yield r, q, at, s, int(out)


def base_effect(trace: Trace, rows: Rows) -> F64:
    """(n, K): d base / dw_i. Step 0 is one leaf with every row, at its optimum, so s = 0 there."""
    loss, e = trace.ensemble.loss, trace.ensemble
    state = loss.state(np.tile(e.base, (len(rows), 1)))
    return loss.gradient(state, rows.y) @ trace.base_slope.T


def base_label_effect(trace: Trace, rows: Rows) -> F64:
    """(n, K, Y): d base / dy_i."""
    loss, e = trace.ensemble.loss, trace.ensemble
    state = loss.state(np.tile(e.base, (len(rows), 1)))
    return np.einsum("ab,nby->nay", trace.base_slope, loss.label_gradient(state, rows.y)) * rows.w[:, None, None]
