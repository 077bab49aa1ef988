"""The kernels in NumPy: short definitions of the native ones, and oracles for their tests.

Every function writes into (adds to) the arrays it is given, like the function of the same name in
``src/native``. A step's trees are given by ``leaf`` (R, n), leaf numbers counted over all M leaves
of the step, and ``first`` (R,), the first output that each tree writes to.
"""

from __future__ import annotations

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._model.losses import Logistic, Loss, Poisson, SquaredError
from .numpy_removal import removal_step as removal_step


def sum_by_leaf(leaf: Ids, x: Real, out: Real) -> None:
    """out[l] += sum of x[j] over the rows j of leaf l. leaf (n,), x (n, ...), out (M, ...)."""
    columns = x.reshape(len(x), -1)
    sums = out.reshape(len(out), -1)
    for c in range(columns.shape[1]):
        sums[:, c] += np.bincount(leaf, columns[:, c], len(out)).astype(out.dtype)


def _loss(kernel: str) -> Loss:
    return {"squared": SquaredError(), "logistic": Logistic(), "poisson": Poisson()}[kernel]


def leaf_sums(loss: str, leaf: Ids, state: F64, shift: F64, y: F64, w: F64, sums: F64) -> None:
    """sums (M, 4) += w g, w h, w k over each leaf, at score A + S. One output.

    The fourth column is not used.
    """
    fn = _loss(loss)
    at = fn.moved(state, shift[leaf][:, None])
    sum_by_leaf(leaf, w[:, None] * _derivatives(fn, at, y), sums[:, :3])


def _derivatives(loss: Loss, at: F64, y: F64) -> F64:
    """(n, 3) g, h, k of one output."""
    g = loss.gradient(at, y)
    h = loss.hessian(at, y)[:, 0]
    k = loss.third_dot(at, y, np.ones((len(y), 1)))[:, 0]
    return np.concatenate([g, h, k], axis=1)


def tree_scores(leaf: Ids, first: Ints, offset: Ints, values: F64, A: F64) -> None:
    """A (n, K) += values[offset + leaf] (all leaves, O) over all trees."""
    for ids, o, start in zip(leaf, first, offset, strict=True):
        A[:, o : o + values.shape[1]] += values[start:][ids]


def tree_sums(leaf: Ids, first: Ints, offset: Ints, c: F64, out: F64) -> None:
    """out (all leaves, O) at offset + leaf += c (n, K) over all rows and trees.

    This is `tree_scores` transposed.
    """
    for ids, o, start in zip(leaf, first, offset, strict=True):
        sum_by_leaf(ids, c[:, o : o + out.shape[1]], out[start:])


def replay_sums(
    loss: str,
    leaf: Ids,
    skip: bool,
    edges: Ints,
    values: F64,
    A: F64,
    y: F64,
    w: F64,
    rounding: int,
    begin: int,
    end: int,
    sums: F64,
) -> None:
    """Sums over the leaves of steps of one tree and one output each, for rows begin .. end - 1.

    sums (all leaves, 8) += w g, w h, w k, w and 1 for w > 0 over each leaf. Before each step but
    the first, the values of the step before are added to A (n, 1).

    Leaves of tree r: edges[r] .. edges[r + 1]; ``skip``: the first tree only moves the scores.
    ``rounding``: bit flags for float32: 1 the terms w g and w h, 2 the derivatives before they are
    weighted, 4 the scores.
    """
    part = slice(begin, end)
    fn = _loss(loss)
    for r in range(int(skip), len(leaf)):
        if r > 0:
            A[part, 0] += values[edges[r - 1] :][leaf[r - 1, part]]
        if rounding & 4:
            A[part] = A[part].astype(np.float32)
        terms = _derivatives(fn, fn.state(A[part]), y[part])
        if rounding & 2:
            terms[:, :2] = terms[:, :2].astype(np.float32)
        terms *= w[part, None]
        if rounding & 1:
            terms[:, :2] = terms[:, :2].astype(np.float32)
        here = sums[edges[r] : edges[r + 1], :5]
        sum_by_leaf(leaf[r, part], np.column_stack([terms, w[part], w[part] > 0]), here)


def row_effects(
    loss: str,
    newton: bool,
    leaf: Ids,
    begin: int,
    end: int,
    edges: Ints,
    values: F64,
    tables: Ints,
    shift: F64,
    s: F64,
    N: F64,
    A: F64,
    y: F64,
    w: F64,
    V: Real,
    U: Real,
) -> None:
    """V, U (R, n): direct and knock-on effects of rows begin .. end - 1 on their leaves' values.

    Steps are as in `replay_sums`. A (end - begin,) has the scores of these rows; shift, s, N of
    tree r are (Q, M) at tables[r] .. tables[r + 1].
    """
    part = slice(begin, end)
    fn = _loss(loss)
    y = y[part]
    w = w[part]
    for r, ids in enumerate(leaf[:, part]):
        if r > 0:
            A += values[edges[r - 1] :][leaf[r - 1, part]]
        state = fn.state(A[:, None])
        v = np.zeros(len(y))
        u = np.zeros(len(y))
        here = slice(tables[r], tables[r + 1])
        iterations = (x[here].reshape(-1, edges[r + 1] - edges[r]) for x in (shift, s, N))
        for shift_q, s_q, N_q in zip(*iterations, strict=True):
            at = fn.moved(state, shift_q[ids][:, None])
            step = s_q[ids]
            h = fn.hessian(at, y)[:, 0, 0]
            v += N_q[ids] * (fn.gradient(at, y)[:, 0] + (h if newton else 1.0) * step)
            u += N_q[ids] * (h + newton * fn.third_dot(at, y, step[:, None])[:, 0, 0])
        V[r, part] = v
        U[r, part] = w * u


def backward_step(
    leaf: Ids,
    first: Ints,
    U: Real,
    fbar: Real,
    abar: Real,
    next_leaf: Ids | None,
    next_first: Ints | None,
    fbar_next: Real | None,
) -> None:
    """abar (n, K, B) += U' fbar[leaf], then fbar_next += sums of abar over the next step's leaves.

    U (R, n, O, K), fbar (M, O, B).
    """
    for ids, u in zip(leaf, U, strict=True):
        abar += np.einsum("nok,nob->nkb", u, fbar[ids])
    if next_leaf is not None and next_first is not None and fbar_next is not None:
        for ids, o in zip(next_leaf, next_first, strict=True):
            sum_by_leaf(ids, abar[:, o : o + fbar_next.shape[1]], fbar_next)


def expand(leaf: Ids, begin: int, end: int, offset: Ints, V: Real, fbar: Real, out: Real) -> None:
    """out (n, B) += sum over all trees r of V[r] . fbar[offset[r] + leaf[r]].

    This is for rows begin .. end - 1. V (R, n, O), fbar (all leaves, O, B).
    """
    for ids, start, v in zip(leaf, offset, V, strict=True):
        out[begin:end] += np.einsum("no,nob->nb", v[begin:end], fbar[start:][ids[begin:end]])


def advance(leaf: Ids, first: Ints, d: Real, D: Real) -> None:
    """D (n, K, B) += d[leaf]: adds the changes d (M, O, B) of the leaves to those of scores."""
    for ids, o in zip(leaf, first, strict=True):
        D[:, o : o + d.shape[1]] += d[ids]


def _sweep(
    leaf: Ids,
    first: Ints,
    O: int,
    exponential: bool,
    before: Ids | None,
    first_before: Ints | None,
    d_before: Real | None,
    pick: Real | None,
    D: Real,
    ranking: Real | None,
) -> None:
    """Add the changes of the step before to D, and rank the leaves of this step.

    ranking (M, B) += sums of |D| over the rows with pick 1. ``exponential``: D and d_before hold
    exp(D) - 1, and D becomes (1 + D)(1 + d) - 1. Both sweeps below begin with this.
    """
    if before is not None and first_before is not None and d_before is not None:
        for ids, o in zip(before, first_before, strict=True):
            part = D[:, o : o + d_before.shape[1]]
            part += d_before[ids] * (1 + part) if exponential else d_before[ids]
    if ranking is not None:
        for ids, o in zip(leaf, first, strict=True):
            changes = np.abs(D[:, o : o + O]).sum(axis=1)
            sum_by_leaf(ids, changes if pick is None else pick[:, None] * changes, ranking)


def tangent_sums(
    leaf: Ids,
    first: Ints,
    before: Ids | None,
    first_before: Ints | None,
    d_before: Real | None,
    pick: Real | None,
    U: Real,
    D: Real,
    ranking: Real | None,
    out: Real,
) -> None:
    """out (M, O, B) += sums of U D over each leaf. U (R, n, O, K), D (n, K, B)."""
    O = min(out.shape[1], D.shape[1])
    _sweep(leaf, first, O, False, before, first_before, d_before, pick, D, ranking)
    for ids, u in zip(leaf, U, strict=True):
        sum_by_leaf(ids, np.einsum("nok,nkb->nob", u, D), out)


def change_sums(
    loss: Loss,
    leaf: Ids,
    first: Ints,
    before: Ids | None,
    first_before: Ints | None,
    d_before: Real | None,
    pick: Real | None,
    form: int,
    state: Real,
    y: F64,
    w: Real,
    shift: Real | None,
    inner: Real | None,
    mask: Real | None,
    D: Real,
    ranking: Real | None,
    dG: Real,
    dH: Real,
) -> None:
    """dG (M, O, B), dH (M, O, O, B) += sums of the changes of w g and w h when scores change by D.

    w (n,), or (R, n) if trees drew rows differently. ``form``: D holds changes (0, or 2 if they are
    small), or exp(change) - 1 (1).

    In an inner iteration (one tree a step) the state is first moved by ``shift`` (M, O), and scores
    change by ``mask * D``, then by the leaf's own change ``inner`` (M, O, B).
    """
    O = dG.shape[1]
    exponential = form == 1
    _sweep(leaf, first, O, exponential, before, first_before, d_before, pick, D, ranking)
    change = D
    if shift is not None and inner is not None and mask is not None:
        state = loss.moved(state, shift[leaf[0]])
        change = mask[leaf[0]][:, None] * D
        change = change + inner[leaf[0]] * (1 + change if exponential else 1)
    dg, dh = loss.difference(state, np.log1p(change) if exponential else change, y)
    for ids, o, tree_w in zip(leaf, first, np.broadcast_to(w, leaf.shape), strict=True):
        sum_by_leaf(ids, tree_w[:, None, None] * dg[:, o : o + O], dG)
        sum_by_leaf(ids, tree_w[:, None, None, None] * dh[:, o : o + O, o : o + O], dH)


def pair_sums(
    ids: Ids,
    offset: Ints,
    first: Ints,
    order: Ints,
    edges: Ints,
    U: Real,
    r: int,
    o: int,
    out: Real,
) -> None:
    """Sums over the rows that each leaf of tree r shares with each leaf of the earlier trees.

    out (L, M, O) = sums of U[r, :, o] (n, K). ids (n, trees) by row; earlier tree i has leaves
    offset[i] + ids[:, i] and outputs first[i] .. + O; the rows of leaf l are
    order[edges[l] : edges[l + 1]].
    """
    leaf = np.empty(len(ids), np.int64)
    leaf[order] = np.repeat(np.arange(len(out)), np.diff(edges))
    L, M, O = out.shape
    out[:] = 0
    for start, k, tree in zip(offset, first, ids.T, strict=False):
        for i in range(O):
            pairs = np.bincount(leaf * M + start + tree, U[r, :, o, k + i], L * M)
            out[:, :, i] += pairs.reshape(L, M).astype(out.dtype)


def top_leaves(sums: Real, k: int, mask: Real) -> None:
    """mask (M, B) = 1 for the k leaves with the largest sums of each column, otherwise 0.

    Among equal sums the first leaves are taken.
    """
    mask[:] = 0
    np.put_along_axis(mask, np.argsort(-sums, axis=0, kind="stable")[:k], 1, axis=0)


def lift(W: Real, own: Real, out: Real) -> None:
    """out (rows, B) += W (rows, inner) own (inner, B)."""
    out += W @ own
