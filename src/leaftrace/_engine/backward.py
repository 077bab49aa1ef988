"""The adjoint: exact influence of all n rows on a query in one backward pass, O(T n).

    abar_j = 0
    for t = T..1:   fbar_l  = sum_{x in l} c_x + sum_{j in l} abar_j       what Q feels of leaf l's value
                    abar_j += U_j' fbar_{l(j)}                             what Q feels of row j's score
    base:           fbar_0  = sum_x c_x + sum_j abar_j

Then, for each row,
    dQ/dw_i = sum_t V_i . fbar_{l(i)} + (d base/dw_i) . fbar_0 + (d lam/dw_i) sum_l (df_l/dlam) . fbar_l
and the same with the label effects Y in the place of V. SinglePoint leaves the abar out.

This is boosting, where step t - 1 is added to the scores before step t. Other moves (see _model/ensemble.py) are undone
one by one between the steps: what was added with a factor feels the abar with that factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .._data.arrays import F64, Ids, Real
from .._kernels import BLOCKS, block_width, kernels, zeros
from .._kernels import numpy as twins
from .._kernels.numpy import sum_by_leaf
from .._model.ensemble import BASE, Ensemble
from .queries import Queries
from .replay import Trace
from .row_effects import Rows, base_effect, base_label_effect, direct_effects, label_effects
from .workspace import ROW_CHUNK, Workspace


@dataclass(frozen=True)
class LeafAdjoint:
    """What a block of queries feels of every leaf value, the base score and lam."""

    fbar: Real  # (leaves, O, B); of smoothed trees (leaves, 2, B), as the row effects meet it
    base: F64  # (K, B)
    lam: F64  # (B,)
    columns: int  # of the B columns, how many are queries


def leaf_adjoint(
    work: Workspace,
    queries: Queries,
    columns: slice,
    *,
    knock_on: bool = True,
    out: Real | None = None,
) -> LeafAdjoint:
    """Run the backward pass for some of the queries. ``out`` (n, B), of effects that are not kept: see `one_pass`."""
    trace = work.trace
    e = work.trace.ensemble
    count = len(range(len(queries))[columns])
    B = block_width(count)
    fbar, base = queries.seeds(columns, B, work.dtype)
    if knock_on and not e.independent:
        abar = zeros((e.n_rows, e.n_outputs, B), work.dtype)
        for t in (
            _kept_steps(work, fbar, abar)
            if work.keeps_effects
            else _passing_steps(work, fbar, abar, out)
        ):
            if not e.boosts(t):
                _feel_moves(e, t, abar, fbar, base)
        base += abar.sum(axis=0, dtype=np.float64)
    return finished(trace, fbar, base, count)


def finished(trace: Trace, fbar: Real, base: F64, count: int) -> LeafAdjoint:
    """With what all leaves feel known."""
    e = trace.ensemble
    lam = lam_adjoint(trace, fbar)
    if e.smoothing is not None:
        fbar = np.concatenate(
            [felt_by_rows(trace, t, fbar[e.leaf_range(t)]) for t in range(e.n_steps)]
        )
    return LeafAdjoint(fbar, base, lam, count)


def _kept_steps(work: Workspace, fbar: Real, abar: Real) -> Iterator[int]:
    """Step by step, backwards, all rows at once."""
    e = work.trace.ensemble
    for t, U in work.knock_on_backwards():
        below = fbar[e.leaf_range(t - 1)] if e.boosts(t) else None
        backward_rows(
            work.trace,
            t,
            e.leaves,
            U,
            felt_by_rows(work.trace, t, fbar[e.leaf_range(t)]),
            abar,
            below,
        )
        yield t


def _passing_steps(work: Workspace, fbar: Real, abar: Real, out: Real | None) -> Iterator[int]:
    """The same for effects that are computed as they are needed."""
    e = work.trace.ensemble
    for t, A in work.scores_backwards():
        below = fbar[e.leaf_range(t - 1)] if e.boosts(t) else None
        backward_chunks(
            work, t, A, felt_by_rows(work.trace, t, fbar[e.leaf_range(t)]), abar, below, out
        )
        yield t


def backward_chunks(
    work: Workspace,
    t: int,
    A: F64,
    felt: Real,
    abar: Real,
    below: Real | None,
    out: Real | None = None,
) -> None:
    """`backward_rows` of all rows, at their scores A (n, K) before step t, chunk by chunk on the threads. Then
    out (n, B) += V felt: what rows do with their weights through this step."""
    n = len(work.rows)
    chunks = [slice(start, min(start + ROW_CHUNK, n)) for start in range(0, n, ROW_CHUNK)]

    def chunk(part: slice) -> Real | None:
        rows = work.rows.cut(part)
        V, U = work.step_effects(rows, t, A[part])
        sums = None if below is None else zeros(below.shape, work.dtype)
        backward_rows(work.trace, t, rows.leaves, U, felt, abar[part], sums)
        if out is not None:
            leaves = np.ascontiguousarray(rows.leaves[work.trace.ensemble.trees(t)])
            first = np.zeros(len(V), np.int64)
            kernels.expand(leaves, 0, len(rows), first, V, felt, out[part])
        return sums

    for sums in work.map(chunk, chunks):
        if below is not None:
            below += sums


def backward_rows(
    trace: Trace, t: int, leaves: Ids, U: Real, felt: Real, abar: Real, below: Real | None
) -> None:
    """Step t of the backward pass for some rows: abar (n, K, B) takes in what is felt of their leaves, and the leaves
    of the step below feel abar, unless None. leaves (trees, n), U (R, n, O, K), felt and below (M, O, B)."""
    e = trace.ensemble
    step_kernels: Any = kernels if e.smoothing is None else twins
    here = e.trees(t)
    next_ = None if below is None else e.trees(t - 1)
    step_kernels.backward_step(
        np.ascontiguousarray(leaves[here]),
        e.first_output[here],
        U,
        felt,
        abar,
        None if next_ is None else np.ascontiguousarray(leaves[next_]),
        None if next_ is None else e.first_output[next_],
        below,
    )


def lam_adjoint(trace: Trace, fbar: Real) -> F64:
    """(B,) what the queries feel of lam."""
    if not trace.ensemble.lam_slope:
        return np.zeros(fbar.shape[2])
    return np.einsum("mo,mob->b", trace.lam_effect, fbar)


def felt_by_rows(trace: Trace, t: int, fbar: Real) -> Real:
    """fbar (M, O, B) as the row effects of step t meet it."""
    spread = trace.steps[t].spread
    return (
        fbar if spread is None else np.einsum("kle,kb->leb", spread, fbar[:, 0]).astype(fbar.dtype)
    )


def _feel_moves(e: Ensemble, t: int, abar: Real, fbar: Real, base: F64) -> None:
    """The moves between step t - 1 and step t, backwards: each step moved feels what the rows' scores do."""
    for r, factor in reversed(e.moves_before(t)):
        if r == BASE:
            base += factor * abar.sum(axis=0, dtype=np.float64)
            continue
        leaves = fbar[e.leaf_range(r)]
        for ids, o in zip(e.leaves[e.trees(r)], e.first_output[e.trees(r)], strict=True):
            sum_by_leaf(ids, factor * abar[:, o : o + e.leaf_outputs], leaves)


def one_pass(work: Workspace, queries: Queries, columns: slice) -> Real:
    """`expand_training` of `leaf_adjoint`, where effects are not kept: each step's are computed once, for both. When a
    step's turn comes, what is felt of its leaves is known."""
    count = len(range(len(queries))[columns])
    n = len(work.rows)
    out = zeros((n, block_width(count)), work.dtype)
    adjoint = leaf_adjoint(work, queries, columns, out=out)
    for start in range(0, n, ROW_CHUNK):
        part = slice(start, min(start + ROW_CHUNK, n))
        _complete(work, adjoint, work.rows.cut(part), out[part])
    return out[:, :count]


def expand_training(work: Workspace, adjoint: LeafAdjoint, index: np.ndarray | None) -> Real:
    """(rows, columns) dQ/dw of the training rows, or of those in `index`."""
    if work.keeps_effects:
        (rows, V) = next(work.direct_effects(index))
        # Rows do not depend on each other: a block of few columns spreads its rows over the threads.
        return _expand(work, adjoint, rows, V, work.n_jobs if adjoint.columns < BLOCKS[-1] else 1)
    chunks = work.row_slices() if index is None else work.row_chunks(index)
    starts = np.cumsum(
        [0, *(len(range(len(work.rows))[c]) if isinstance(c, slice) else len(c) for c in chunks)]
    )
    out = np.empty((starts[-1], adjoint.columns), work.dtype)

    def chunk(c: int) -> None:
        out[starts[c] : starts[c + 1]] = expand_candidates(work, adjoint, work.rows.take(chunks[c]))

    list(work.map(chunk, range(len(chunks))))
    return out


def expand_candidates(work: Workspace, adjoint: LeafAdjoint, rows: Rows) -> Real:
    """(rows, columns) dQ/dw of any rows: at weight zero, of those that are not in the training set."""
    return _expand(work, adjoint, rows, direct_effects(work.trace, rows, work.dtype))


def _expand(work: Workspace, adjoint: LeafAdjoint, rows: Rows, V: Real, pieces: int = 1) -> Real:
    e = work.trace.ensemble
    out = zeros((len(rows), adjoint.fbar.shape[2]), work.dtype)
    edges = [len(rows) * p // pieces for p in range(pieces + 1)]

    def piece(begin_end: tuple[int, int]) -> None:
        kernels.expand(rows.leaves, *begin_end, e.tree_offset, V, adjoint.fbar, out)

    list(work.map(piece, pairwise(edges)))
    _complete(work, adjoint, rows, out)
    return out[:, : adjoint.columns]


def _complete(work: Workspace, adjoint: LeafAdjoint, rows: Rows, out: Real) -> None:
    """From sums of V fbar to dQ/dw: lam, class weights and the starting score."""
    e = work.trace.ensemble
    out += (e.lam_slope * adjoint.lam).astype(work.dtype)
    if not np.all(rows.factor == 1):
        out *= rows.factor.astype(work.dtype)[:, None]
    if e.base_rule is not None:
        out += (base_effect(work.trace, rows) @ adjoint.base).astype(work.dtype)


def expand_labels(work: Workspace, adjoint: LeafAdjoint, rows: Rows) -> Real:
    """(rows, columns, Y) dQ/dy of these rows."""
    e = work.trace.ensemble
    Y = label_effects(work.trace, rows, work.dtype)
    Y0 = base_label_effect(work.trace, rows)
    out = np.zeros((Y.shape[3], len(rows), adjoint.fbar.shape[2]), work.dtype)
    for y in range(Y.shape[3]):
        kernels.expand(
            rows.leaves,
            0,
            len(rows),
            e.tree_offset,
            np.ascontiguousarray(Y[..., y]),
            adjoint.fbar,
            out[y],
        )
        out[y] += (Y0[..., y] @ adjoint.base).astype(work.dtype)
    return np.moveaxis(out, 0, 2)[:, : adjoint.columns]
