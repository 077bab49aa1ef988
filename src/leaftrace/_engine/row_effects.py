"""Row effects: how each training row moves its own leaf's value by its weight, score or label.

    V (trees, n, O)     df_l / dw_i       direct effect          = sum_q N_q (g_i + h_i s_q)
    U (trees, n, O, K)  df_l / dA_j       knock-on effect        = w_j sum_q N_q (j_j + k_j.s_q)
    Y (trees, n, O, Y)  df_l / dy_i       label effect           = w_i sum_q N_q (dg_i/dy + dh_i/dy s_q)

with N, s of the leaf that holds the row (see replay.py), all times how often the tree drew the row.
V needs nothing of the training set but the tables of leaves, so it is also defined for rows that
were never trained on.

Where leaves depend on other nodes (smoothed or monotone trees), a row also moves other leaves than
its own. Its effects there are two numbers instead of O, (g_i, h_i) for V and w_j (j_j, k_j) for U, and
``StepTrace.slopes`` carries sums of them over leaves to the values of all leaves of the tree. So it does
for pooled leaves (see pooled_leaves.py), where an effect has a number for each run of iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .._data.arrays import F64, Ids, Real
from .._model.ensemble import Ensemble
from .._model.kernels import kernels
from .._model.kernels.arguments import LinearisedLeaves, ScoredRows, TreeChain
from .._model.linear_leaves import refuse_linear
from .._model.losses import OwnTerms
from .placed_rows import PlacedRows, forward_scores
from .pooled_leaves import PoolSlopes
from .replay import StepTrace, Trace

# ---- direct and knock-on effects ----


def empty_effects(trace: Trace, n: int, dtype: np.dtype) -> tuple[Real, Real]:
    """Uninitialised V (trees, n, O) and U (trees, n, O, K)."""
    e = trace.ensemble
    if e.linear is not None:
        refuse_linear("this question")
    V = np.empty((len(e.first_output), n, trace.effect_outputs), dtype)
    return V, np.empty((*V.shape, e.n_outputs), dtype)


def direct_effects(trace: Trace, rows: PlacedRows, dtype: np.dtype) -> Real:
    """V (trees, n, O) of these rows."""
    V, U = empty_effects(trace, len(rows), dtype)
    fill_effects(trace, rows, slice(0, len(rows)), V, U)
    return V


def fill_effects(trace: Trace, rows: PlacedRows, part: slice, V: Real, U: Real) -> None:
    """Compute V and U of some of these rows, for all steps."""
    e = trace.ensemble
    if has_native_effects(e) and e.moves is None and len(e.leaves) == e.n_steps:
        every_step = slice(0, e.n_steps)
        for effect in range(trace.effect_outputs):
            A = rows.start[part, 0].copy()
            scored = ScoredRows(A, rows.y, rows.w)
            _native_effects(trace, every_step, effect, rows.leaves, part, scored, V, U)
        _multiply_by_draws(rows, every_step, part, V, U)
        return
    if _has_native_classes(trace) and e.moves is None:
        every_step = slice(0, e.n_steps)
        scored = ScoredRows(rows.start[part].copy(), rows.y, rows.w)
        _class_effects(trace, every_step, rows.leaves, part, scored, V, U)
        _multiply_by_draws(rows, slice(0, len(e.leaves)), part, V, U)
        return
    rows = rows.take(part)
    V = V[:, part]
    U = U[:, part]
    for t, A in forward_scores(trace, rows):
        step_effects(trace, rows, t, A, V[e.trees(t)], U[e.trees(t)])


def step_effects(trace: Trace, rows: PlacedRows, t: int, A: F64, V: Real, U: Real) -> None:
    """Fill V (R, n, O) and U (R, n, O, K) of step t from the scores A (n, K) before it."""
    e = trace.ensemble
    if e.step_nodes is not None:
        _effects_on_sums(trace, rows, t, A, V, U)
    elif has_native_effects(e):
        every_row = slice(0, len(rows))
        scored = ScoredRows(A[:, 0], rows.y, rows.w)
        step = slice(t, t + 1)
        for ids, v, u in zip(rows.leaves[e.trees(t)], V, U, strict=True):
            for effect in range(trace.effect_outputs):
                _native_effects(trace, step, effect, ids[None], every_row, scored, v[None], u[None])
    elif _has_native_classes(trace) and V.flags.c_contiguous and U.flags.c_contiguous:
        scored = ScoredRows(A, rows.y, rows.w)
        leaves = rows.leaves[e.trees(t)]
        _class_effects(trace, slice(t, t + 1), leaves, slice(0, len(rows)), scored, V, U)
    else:
        _general_effects(trace, rows, t, A, V, U)
    _multiply_by_draws(rows, e.trees(t), slice(0, len(rows)), V, U)


def has_native_effects(e: Ensemble) -> bool:
    """Whether a kernel computes V and U, from scores of one output."""
    return e.n_outputs == 1 and e.loss.kernel is not None and e.step_nodes is None


def _native_effects(
    trace: Trace,
    steps: slice,
    effect: int,
    leaves: Ids,
    part: slice,
    scored: ScoredRows,
    V: Real,
    U: Real,
) -> None:
    """V (R, n, E), U (R, n, E, 1) of some rows in steps of one tree each: one number of their effects.

    ``scored``: scores A of the rows in `part` before the first step, which move on; y and w of all.
    """
    e = trace.ensemble
    step_leaves = e.step_leaves[steps.start : steps.stop + 1]
    values = np.ascontiguousarray(e.values[step_leaves[0] : step_leaves[-1], 0])
    chain = TreeChain(leaves, step_leaves - step_leaves[0], values)
    direct = V[..., effect]
    knock_on = U[..., effect, 0]
    if V.shape[2] > 1:
        direct = np.zeros(V.shape[:2], V.dtype)
        knock_on = np.zeros(V.shape[:2], V.dtype)
    kernels.row_effects(
        e.loss.kernel,
        e.rule.newton,
        chain.ids,
        part.start,
        part.stop,
        chain.edges,
        chain.values,
        *linearised_leaves(trace, steps, effect),
        *scored,
        direct,
        knock_on,
    )
    if V.shape[2] > 1:
        V[:, part, effect] = direct[:, part]
        U[:, part, effect, 0] = knock_on[:, part]


def _has_native_classes(trace: Trace) -> bool:
    """Whether a kernel computes V and U from scores of several classes.

    Inner iterations move the scores of all classes, so there each tree writes to all of them."""
    e = trace.ensemble
    one_iteration = all(len(step.scale) == 1 for step in trace.steps)
    is_softmax = e.n_outputs > 1 and e.loss.kernel == "softmax" and e.step_nodes is None
    one_effect = trace.effect_outputs == e.leaf_outputs
    return is_softmax and one_effect and (one_iteration or e.leaf_outputs == e.n_outputs)


def _class_effects(
    trace: Trace, steps: slice, leaves: Ids, part: slice, scored: ScoredRows, V: Real, U: Real
) -> None:
    """V (R, n, O), U (R, n, O, K) of some rows in all trees of these steps.

    ``scored``: scores A of the rows in `part` before the first step, which move on; y and w of all.
    """
    e = trace.ensemble
    O = e.leaf_outputs
    trees = e.step_trees[steps.start : steps.stop + 1]
    edges = e.step_leaves[steps.start : steps.stop + 1]
    tables = linearised_leaves(trace, steps, 0)
    kernels.softmax_effects(
        e.rule.newton,
        np.ascontiguousarray(leaves),
        np.ascontiguousarray(e.first_output[trees[0] : trees[-1]]),
        trees - trees[0],
        edges - edges[0],
        np.ascontiguousarray(e.values[edges[0] : edges[-1]]),
        tables.edges // O,
        tables.shift.reshape(-1, O),
        tables.s.reshape(-1, O),
        tables.N.reshape(-1, O, O),
        part.start,
        part.stop,
        *scored,
        V,
        U,
    )


def linearised_leaves(trace: Trace, steps: slice, effect: int) -> LinearisedLeaves:
    """The linearised leaves of these steps, one after another, for one of the effects of rows."""
    traces = trace.steps[steps]
    edges = np.concatenate([[0], np.cumsum([step.s.size for step in traces])])
    S = np.concatenate([step.S.ravel() for step in traces])
    s = np.concatenate([step.s.ravel() for step in traces])
    N = np.concatenate([_factors(step, effect).ravel() for step in traces])
    return LinearisedLeaves(edges, trace.ensemble.loss.shift(S), s, N)


def _factors(step: StepTrace, effect: int) -> F64:
    """(Q, M, O, O) N of a step, for one of the effects of rows: a run of iterations of pooled leaves."""
    if not isinstance(step.slopes, PoolSlopes):
        return step.N
    return np.where((step.slopes.run == effect)[:, None, None, None], step.N, 0.0)


def _effects_on_sums(trace: Trace, rows: PlacedRows, t: int, A: F64, V: Real, U: Real) -> None:
    """V and U of a step whose leaves depend on other nodes, before they are multiplied by draws."""
    e = trace.ensemble
    loss = e.loss
    state = loss.state(A)
    eye = np.eye(e.n_outputs)
    g = loss.gradient(state, rows.y)
    j = loss.jacobian(state, rows.y)
    for o, v, u in zip(e.first_output[e.trees(t)], V, U, strict=True):
        output = np.broadcast_to(eye[o], A.shape)
        v[:, 0] = g[:, o]
        v[:, 1] = loss.hessian(state, rows.y)[:, o, o]
        u[:, 0] = j[:, o]
        u[:, 1] = loss.third_dot(state, rows.y, output)[:, o]
        u *= rows.w[:, None, None]


def _general_effects(trace: Trace, rows: PlacedRows, t: int, A: F64, V: Real, U: Real) -> None:
    """V and U of a step of any loss, before they are multiplied by draws."""
    loss = trace.ensemble.loss
    newton = trace.ensemble.rule.newton
    V[...] = 0
    U[...] = 0
    own = loss.own_terms(loss.state(A), rows.y)
    if own is not None and trace.effect_outputs == trace.ensemble.leaf_outputs:
        _separate_effects(trace, rows, t, A, own, V, U)
        return
    has_weight = bool(rows.w.any())  # candidates have none, and no knock-on effect
    for it in _tree_iterations(trace, rows, t, A):
        hs = it.s  # the gradient rule has h = 1
        if newton:
            hs = np.einsum("nab,nb->na", loss.hessian(it.state, rows.y), it.s)
        direct = (loss.gradient(it.state, rows.y) + hs)[:, it.outputs]
        V[it.r][:, it.effects] += np.einsum("nab,nb->na", it.N, direct)
        if not has_weight:
            continue
        slope = loss.jacobian(it.state, rows.y)
        if newton:
            slope = slope + loss.third_dot(it.state, rows.y, it.s)
        knock_on = np.einsum("nab,nbk->nak", it.N, slope[:, it.outputs])
        U[it.r][:, it.effects] += knock_on * rows.w[:, None, None]


def _separate_effects(
    trace: Trace, rows: PlacedRows, t: int, A: F64, own: OwnTerms, V: Real, U: Real
) -> None:
    """The same for outputs that do not depend on each other; V and U are zero before.

    ``own``: derivatives at the scores A (n, K).
    """
    e = trace.ensemble
    step = trace.steps[t]
    leaves = rows.leaves[e.trees(t)]
    for ids, o, v, u in zip(leaves, e.first_output[e.trees(t)].tolist(), V, U, strict=True):
        for q in range(len(step.scale)):
            terms = own
            if q > 0:
                moved = e.loss.moved(e.loss.state(A), e.loss.shift(step.S[q])[ids])
                terms = e.loss.own_terms(moved, rows.y)
                assert terms is not None
            tables = (np.ascontiguousarray(x[q]) for x in (step.s, step.N))
            kernels.separate_effects(e.rule.newton, ids, o, *terms, *tables, rows.w, v, u)


def _multiply_by_draws(rows: PlacedRows, trees: slice, part: slice, V: Real, U: Real) -> None:
    """Multiply effects by how often each tree drew the row."""
    if rows.sample is not None:
        for drawn, v, u in zip(rows.sample[trees], V, U, strict=True):
            v[part] *= drawn[part, None]
            u[part] *= drawn[part, None, None]


class _TreeIteration(NamedTuple):
    """One inner iteration of a step, for the rows in one of its trees."""

    r: int  # number of the tree in the step
    outputs: slice  # that the tree writes to
    effects: slice  # numbers in the effect of a row that the iteration adds to
    state: F64  # (n, C) of the loss at the scores of the iteration
    s: F64  # (n, K) s of each row's leaf
    N: F64  # (n, O, O) N of each row's leaf
    D: F64  # (n, O, O) D of each row's leaf


def _tree_iterations(trace: Trace, rows: PlacedRows, t: int, A: F64) -> Iterator[_TreeIteration]:
    """All inner iterations of step t in each of its trees, from the scores A (n, K) before it."""
    e = trace.ensemble
    step = trace.steps[t]
    start = e.loss.state(A)
    leaves = rows.leaves[e.trees(t)]
    for r, (ids, o) in enumerate(zip(leaves, e.first_output[e.trees(t)], strict=True)):
        outputs = slice(int(o), int(o) + e.leaf_outputs)
        for q in range(len(step.scale)):
            effects = slice(0, e.leaf_outputs)
            if isinstance(step.slopes, PoolSlopes):
                effects = slice(step.slopes.run[q], step.slopes.run[q] + 1)
            state = start if q == 0 else e.loss.moved(start, e.loss.shift(step.S[q])[ids])
            s = np.zeros_like(A)
            s[:, outputs] = step.s[q, ids]
            yield _TreeIteration(r, outputs, effects, state, s, step.N[q, ids], step.D[q, ids])


def joining_effects(trace: Trace, rows: PlacedRows, weight: F64, dtype: np.dtype) -> Real:
    """V (trees, n, O) of rows of weight zero, with the denominators that leaves would have with them.

    The derivative at weight zero divides by the D of the leaf. Where the rows that have weight leave it
    next to none, one more row would move the leaf far less than that says. Here N has D + w h in the
    place of D, with h (1 by the gradient rule) and the weight w of the row.

    ``weight``: (n,) that each row would have
    """
    e = trace.ensemble
    V = np.zeros((len(e.first_output), len(rows), trace.effect_outputs))
    for t, A in forward_scores(trace, rows):
        for it in _tree_iterations(trace, rows, t, A):
            own = np.broadcast_to(np.eye(e.leaf_outputs), it.N.shape)
            hs = it.s
            if e.rule.newton:
                hessian = e.loss.hessian(it.state, rows.y)
                hs = np.einsum("nab,nb->na", hessian, it.s)
                own = hessian[:, it.outputs, it.outputs]
            direct = (e.loss.gradient(it.state, rows.y) + hs)[:, it.outputs]
            damped = _damped(it.D, weight[:, None, None] * own, direct)
            V[e.trees(t)][it.r][:, it.effects] += np.einsum("nab,nb->na", it.N, damped)
    return V.astype(dtype)


def _damped(D: F64, own: F64, direct: F64) -> F64:
    """(n, O) D (D + own)^-1 direct; all D and own (n, O, O). Where that has no inverse, direct itself."""
    if direct.shape[1] == 1:
        total = (D + own)[:, 0]
        return np.divide(D[:, 0] * direct, total, out=direct.copy(), where=total > 0)
    total = D + own
    solvable = np.linalg.cond(total) < 1 / np.finfo(float).eps
    out = direct.copy()
    solved = np.linalg.solve(total[solvable], direct[solvable][:, :, None])
    out[solvable] = np.einsum("nab,nbc->na", D[solvable], solved)
    return out


# ---- label effects ----


def label_effects(trace: Trace, rows: PlacedRows, dtype: np.dtype) -> Real:
    """Y (trees, n, O, Y): label effects."""
    e = trace.ensemble
    labels = e.loss.label_gradient(e.loss.state(rows.start[:1]), rows.y[:1]).shape[-1]
    Y = np.zeros((len(e.first_output), len(rows), trace.effect_outputs, labels), dtype)
    for t, A in forward_scores(trace, rows):
        if e.step_nodes is not None:
            _label_effects_on_sums(trace, rows, t, A, Y[e.trees(t)])
            continue
        for it in _tree_iterations(trace, rows, t, A):
            tree = e.trees(t).start + it.r
            slope = e.loss.label_gradient(it.state, rows.y)
            if e.rule.newton:
                slope = slope + e.loss.label_hessian_dot(it.state, rows.y, it.s)
            effect = np.einsum("nab,nby->nay", it.N, slope[:, it.outputs])
            Y[tree][:, it.effects] += effect * rows.drawn_weight(tree)[:, None, None]
    return Y


def _label_effects_on_sums(trace: Trace, rows: PlacedRows, t: int, A: F64, Y: Real) -> None:
    """Y (R, n, 2, Y) of a step whose leaves depend on other nodes."""
    e = trace.ensemble
    state = e.loss.state(A)
    slope = e.loss.label_gradient(state, rows.y)
    for r, o in enumerate(e.first_output[e.trees(t)]):
        output = np.broadcast_to(np.eye(e.n_outputs)[o], A.shape)
        w = rows.drawn_weight(e.trees(t).start + r)
        Y[r, :, 0] = slope[:, o] * w[:, None]
        Y[r, :, 1] = e.loss.label_hessian_dot(state, rows.y, output)[:, o] * w[:, None]


# ---- effects on the starting score ----


def base_effect(trace: Trace, rows: PlacedRows) -> F64:
    """(n, K): d base / d(sample weight of row i)."""
    e = trace.ensemble
    if e.base_rule is None:
        return np.zeros((len(rows), e.n_outputs))
    return e.base_rule.effects(e.loss, *trace.base_labels, rows.y)[0] * rows.base_factor[:, None]


def base_label_effect(trace: Trace, rows: PlacedRows) -> F64:
    """(n, K, Y): d base / dy_i."""
    e = trace.ensemble
    if e.base_rule is None:
        return np.zeros_like(e.loss.label_gradient(e.loss.state(rows.start), rows.y))
    held_out = np.zeros_like(rows.w)
    sample_weight = np.divide(rows.w, rows.factor, out=held_out, where=rows.factor > 0)
    b = sample_weight * rows.base_factor
    return e.base_rule.effects(e.loss, *trace.base_labels, rows.y)[1] * b[:, None, None]
