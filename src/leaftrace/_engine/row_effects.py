"""Row effects: how each training row moves its own leaf's value, through its weight, its score or its label.

    V (trees, n, O)     df_l / dw_i       direct effect          = sum_q N_q (g_i + h_i s_q)
    U (trees, n, O, K)  df_l / dA_j       knock-on effect        = w_j sum_q N_q (j_j + k_j.s_q)
    Y (trees, n, O, Y)  df_l / dy_i       label effect           = w_i sum_q N_q (dg_i/dy + dh_i/dy s_q)

with N, s of the leaf that holds the row (see replay.py), all times how often the tree drew the row. V needs nothing of
the training set but the leaf tables, so it is also defined for rows that were never trained on.

In a smoothed tree a row moves other leaves than its own, through the nodes above them. Its effects there are two
numbers in the place of O, (g_i, h_i) for V and w_j (j_j, k_j) for U, and ``StepTrace.spread`` carries sums of them over
leaves to the values of all leaves of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64, Ids, Real
from .._kernels import kernels
from .._model.ensemble import Ensemble, take_sample
from .replay import Trace


@dataclass(frozen=True)
class Rows:
    """Rows as the leaves see them: training rows, or candidates with a label of their own (weight 0)."""

    leaves: Ids  # (trees, n)
    start: F64  # (n, K) score before the first step
    y: F64
    w: F64
    factor: F64  # (n,) dw / d(sample weight)
    base_factor: F64  # (n,) the same for the weight in the starting score
    sample: Sequence[np.ndarray] | None = None  # for each tree (n,) how often it drew the row

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: slice | np.ndarray) -> Rows:
        leaves = np.ascontiguousarray(self.leaves[:, index])
        sample = None if self.sample is None else take_sample(self.sample, index)
        start = self.start[index]
        y = self.y[index]
        w = self.w[index]
        return Rows(leaves, start, y, w, self.factor[index], self.base_factor[index], sample)

    def cut(self, part: slice) -> Rows:
        """Like `take`, without a copy: the rows of a tree then lie apart from those of the next."""
        sample = None if self.sample is None else take_sample(self.sample, part)
        start = self.start[part]
        y = self.y[part]
        w = self.w[part]
        return Rows(
            self.leaves[:, part], start, y, w, self.factor[part], self.base_factor[part], sample
        )


def training_rows(trace: Trace) -> Rows:
    e = trace.ensemble
    base_factor = e.w_factor if e.base_factor is None else e.base_factor
    return Rows(e.leaves, e.start(), e.y, e.w, e.w_factor, base_factor, e.sample)


def candidate_rows(
    trace: Trace, leaves: Ids, start: F64, y: F64, factor: F64, base_factor: F64
) -> Rows:
    """Rows that were never trained on, with weight zero.

    A tree would draw them as often as it drew the others on average, and give them the weight that
    it gives their class."""
    e = trace.ensemble
    sample = None
    if e.sample is not None:
        classes = e.sample_class_weight or [None] * len(e.sample)
        sample = [_expected_draws(e, s, c, y) for s, c in zip(e.sample, classes, strict=True)]
    return Rows(leaves, start, y, np.zeros(len(y)), factor, base_factor, sample)


def _expected_draws(e: Ensemble, drawn: np.ndarray, class_weight: F64 | None, y: F64) -> F64:
    """(rows,) how often a tree would draw rows with labels y, times the weight of their class.

    ``drawn`` (n,): the same for the training rows; ``class_weight`` (C,), or None for none."""
    trained = e.w_factor > 0
    if class_weight is None:
        return np.full(len(y), drawn[trained].mean())
    own = class_weight[e.y[trained].astype(int)]
    counts = np.divide(drawn[trained], own, out=np.zeros(len(own)), where=own > 0)
    return counts.mean() * class_weight[y.astype(int)]


def empty_effects(trace: Trace, n: int, dtype: np.dtype) -> tuple[Real, Real]:
    """Room for V (trees, n, O) and U (trees, n, O, K)."""
    e = trace.ensemble
    V = np.empty((len(e.first_output), n, e.effect_outputs), dtype)
    return V, np.empty((*V.shape, e.n_outputs), dtype)


def fill_effects(trace: Trace, rows: Rows, part: slice, V: Real, U: Real) -> None:
    """V and U of some of these rows, all steps."""
    e = trace.ensemble
    if _one_output(e) and e.moves is None and len(e.leaves) == e.n_steps:
        A = rows.start[part, 0].copy()
        _one_output_effects(
            trace, rows, part, slice(0, e.n_steps), rows.leaves, A, V[..., 0], U[..., 0, 0]
        )
        _draw(rows, slice(0, e.n_steps), part, V, U)
        return
    rows = rows.take(part)
    V = V[:, part]
    U = U[:, part]
    for t, A in forward_scores(trace, rows):
        step_effects(trace, rows, t, A, V[e.trees(t)], U[e.trees(t)])


def direct_effects(trace: Trace, rows: Rows, dtype: np.dtype) -> Real:
    """V (trees, n, O) of these rows."""
    V, U = empty_effects(trace, len(rows), dtype)
    fill_effects(trace, rows, slice(0, len(rows)), V, U)
    return V


def _one_output(e: Ensemble) -> bool:
    """Whether a kernel computes the effects, from the scores."""
    return e.n_outputs == 1 and e.loss.kernel is not None and e.smoothing is None


def _one_output_effects(
    trace: Trace, rows: Rows, part: slice, steps: slice, leaves: Ids, A: F64, V: Real, U: Real
) -> None:
    """V, U (R, n) of some rows in steps of one tree each, from the scores A before the first, which move on."""
    e = trace.ensemble
    at = trace.steps[steps]
    ends = e.step_leaves[steps.start : steps.stop + 1]
    values = np.ascontiguousarray(e.values[ends[0] : ends[-1], 0])
    tables = np.concatenate([[0], np.cumsum([step.s.size for step in at])])
    shift, s, N = (
        np.concatenate([x.ravel() for x in xs])
        for xs in zip(*[(x.S, x.s, x.N) for x in at], strict=True)
    )
    which = part.start, part.stop, ends - ends[0], values, tables, e.loss.shift(shift), s, N
    kernels.row_effects(e.loss.kernel, e.rule.newton, leaves, *which, A, rows.y, rows.w, V, U)


def _draw(rows: Rows, trees: slice, part: slice, V: Real, U: Real) -> None:
    """Effects times how often the tree drew the row."""
    if rows.sample is not None:
        for drawn, v, u in zip(rows.sample[trees], V, U, strict=True):
            v[part] *= drawn[part, None]
            u[part] *= drawn[part, None, None]


def forward_scores(trace: Trace, rows: Rows) -> Iterator[tuple[int, F64]]:
    """(t, A^{t-1}) for each step; the array is reused."""
    e = trace.ensemble
    A = rows.start.copy()
    for t in range(e.n_steps):
        e.move(t, rows.leaves, A)
        yield t, A


def step_effects(trace: Trace, rows: Rows, t: int, A: F64, V: Real, U: Real) -> None:
    """Fill V (R, n, O) and U (R, n, O, K) of step t from the scores A (n, K) before it."""
    e = trace.ensemble
    step = trace.steps[t]
    loss = e.loss
    newton = e.rule.newton
    if step.spread is not None:
        state = loss.state(A)
        eye = np.eye(e.n_outputs)
        g = loss.gradient(state, rows.y)
        j = loss.jacobian(state, rows.y)
        for o, v, u in zip(e.first_output[e.trees(t)], V, U, strict=True):
            one = np.broadcast_to(eye[o], A.shape)
            v[:, 0], v[:, 1] = g[:, o], loss.hessian(state, rows.y)[:, o, o]
            u[:, 0], u[:, 1] = j[:, o], loss.third_dot(state, rows.y, one)[:, o]
            u *= rows.w[:, None, None]
    elif _one_output(e):
        every = slice(0, len(rows))
        for ids, v, u in zip(rows.leaves[e.trees(t)], V, U, strict=True):
            _one_output_effects(
                trace,
                rows,
                every,
                slice(t, t + 1),
                ids[None],
                A[:, 0],
                v[None, :, 0],
                u[None, :, 0, 0],
            )
    else:
        V[...] = 0
        U[...] = 0
        for r, q, at, s, out in _iterations(trace, rows, t, A):
            ids = rows.leaves[e.trees(t)][r]
            o = slice(out, out + e.leaf_outputs)
            h = loss.hessian(at, rows.y)
            hs = np.einsum("nab,nb->na", h, s) if newton else s
            slope = loss.jacobian(at, rows.y)
            slope = slope + loss.third_dot(at, rows.y, s) if newton else slope
            N = step.N[q, ids]
            V[r] += np.einsum("nab,nb->na", N, (loss.gradient(at, rows.y) + hs)[:, o])
            U[r] += np.einsum("nab,nbk->nak", N, slope[:, o]) * rows.w[:, None, None]
    _draw(rows, e.trees(t), slice(0, len(rows)), V, U)


def label_effects(trace: Trace, rows: Rows, dtype: np.dtype) -> Real:
    """Y (trees, n, O, Y): label effects."""
    e = trace.ensemble
    labels = e.loss.label_gradient(e.loss.state(rows.start[:1]), rows.y[:1]).shape[-1]
    Y = np.zeros((len(e.first_output), len(rows), e.effect_outputs, labels), dtype)
    for t, A in forward_scores(trace, rows):
        if e.smoothing is not None:
            _smoothed_label_effects(trace, rows, t, A, Y[e.trees(t)])
            continue
        for r, q, at, s, out in _iterations(trace, rows, t, A):
            tree = e.trees(t).start + r
            slope = e.loss.label_gradient(at, rows.y)
            if e.rule.newton:
                slope = slope + e.loss.label_hessian_dot(at, rows.y, s)
            N = trace.steps[t].N[q, rows.leaves[tree]]
            w = rows.w if rows.sample is None else rows.w * rows.sample[tree]
            Y[tree] += (
                np.einsum("nab,nby->nay", N, slope[:, out : out + e.leaf_outputs])
                * w[:, None, None]
            )
    return Y


def _smoothed_label_effects(trace: Trace, rows: Rows, t: int, A: F64, Y: Real) -> None:
    e = trace.ensemble
    state = trace.ensemble.loss.state(A)
    slope = e.loss.label_gradient(state, rows.y)
    for r, o in enumerate(e.first_output[e.trees(t)]):
        one = np.broadcast_to(np.eye(e.n_outputs)[o], A.shape)
        w = rows.w if rows.sample is None else rows.w * rows.sample[e.trees(t).start + r]
        Y[r, :, 0] = slope[:, o] * w[:, None]
        Y[r, :, 1] = e.loss.label_hessian_dot(state, rows.y, one)[:, o] * w[:, None]


def _iterations(
    trace: Trace, rows: Rows, t: int, A: F64
) -> Iterator[tuple[int, int, F64, F64, int]]:
    """Tree r, inner iteration q of step t: (r, q, state there, s of each row's leaf (n, K), first output)."""
    e = trace.ensemble
    step = trace.steps[t]
    state = e.loss.state(A)
    for r, (ids, out) in enumerate(
        zip(rows.leaves[e.trees(t)], e.first_output[e.trees(t)], strict=True)
    ):
        for q in range(len(step.scale)):
            at = state if q == 0 else e.loss.moved(state, e.loss.shift(step.S[q])[ids])
            s = np.zeros_like(A)
            s[:, out : out + e.leaf_outputs] = step.s[q, ids]
            yield r, q, at, s, int(out)


def base_effect(trace: Trace, rows: Rows) -> F64:
    """(n, K): d base / d(sample weight of row i)."""
    e = trace.ensemble
    if e.base_rule is None:
        return np.zeros((len(rows), e.n_outputs))
    return e.base_rule.effects(e.loss, *trace.base_labels, rows.y)[0] * rows.base_factor[:, None]


def base_label_effect(trace: Trace, rows: Rows) -> F64:
    """(n, K, Y): d base / dy_i."""
    e = trace.ensemble
    if e.base_rule is None:
        return np.zeros_like(e.loss.label_gradient(e.loss.state(rows.start), rows.y))
    b = (
        np.divide(rows.w, rows.factor, out=np.zeros_like(rows.w), where=rows.factor > 0)
        * rows.base_factor
    )
    return e.base_rule.effects(e.loss, *trace.base_labels, rows.y)[1] * b[:, None, None]
