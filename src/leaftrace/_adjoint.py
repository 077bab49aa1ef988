"""The adjoint: exact influence of all n rows on a query in one backward pass, O(T n).

    abar_j = 0
    for t = T..1:   fbar_l  = sum_{x in l} c_x + sum_{j in l} abar_j       what Q feels of leaf l's value
                    abar_j += U_j' fbar_{l(j)}                             what Q feels of row j's score
    base:           fbar_0  = sum_x c_x + sum_j abar_j

Then, for each row,
    dQ/dw_i = sum_t V_i . fbar_{l(i)} + (d base/dw_i) . fbar_0 + (d lam/dw_i) sum_l (df_l/dlam) . fbar_l
and the same with the label effects Y in the place of V. SinglePoint leaves the abar out.

This is boosting, where step t - 1 is added to the scores before step t. Other moves (see _ensemble.py) are undone one
by one between the steps: what was added with a factor feels the abar with that factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from . import _twins
from ._arrays import F64, Real
from ._effects import Rows, base_effect, base_label_effect, direct_effects, label_effects
from ._ensemble import BASE, Ensemble
from ._kernels import BLOCKS, block_width, kernels, zeros
from ._queries import Queries
from ._replay import Trace
from ._twins import sum_by_leaf
from ._workspace import Workspace


@dataclass(frozen=True)
class LeafAdjoint:
    """What a block of queries feels of every leaf value, the base score and lam."""

    fbar: Real  # (leaves, O, B); of smoothed trees (leaves, 2, B), as the row effects meet it
    base: F64  # (K, B)
    lam: F64  # (B,)
    columns: int  # of the B columns, how many are queries


def leaf_adjoint(work: Workspace, queries: Queries, columns: slice, *, knock_on: bool = True) -> LeafAdjoint:
    """Run the backward pass for some of the queries."""
    trace, e = work.trace, work.trace.ensemble
    count = len(range(len(queries))[columns])
    B = block_width(count)
    fbar, base = queries.seeds(columns, B, work.dtype)
    step_kernels: Any = kernels if e.smoothing is None else _twins
    if knock_on and not e.independent:
        abar = zeros((e.n_rows, e.n_outputs, B), work.dtype)
        for t, U in work.knock_on_backwards():
            here, next_ = e.trees(t), e.trees(t - 1) if e.boosts(t) else None
            step_kernels.backward_step(
                e.leaves[here],
                e.first_output[here],
                U,
                _felt(trace, t, fbar[e.leaf_range(t)]),
                abar,
                None if next_ is None else e.leaves[next_],
                None if next_ is None else e.first_output[next_],
                None if next_ is None else fbar[e.leaf_range(t - 1)],
            )
            if next_ is None:
                _feel_moves(e, t, abar, fbar, base)
        base += abar.sum(axis=0, dtype=np.float64)
    lam = lam_adjoint(trace, fbar)
    if e.smoothing is not None:
        fbar = np.concatenate([_felt(trace, t, fbar[e.leaf_range(t)]) for t in range(e.n_steps)])
    return LeafAdjoint(fbar, base, lam, count)


def lam_adjoint(trace: Trace, fbar: Real) -> F64:
    """(B,) what the queries feel of lam."""
    if not trace.ensemble.lam_slope:
        return np.zeros(fbar.shape[2])
    return np.einsum("mo,mob->b", trace.lam_effect, fbar)


def _felt(trace: Trace, t: int, fbar: Real) -> Real:
    """fbar (M, O, B) as the row effects of step t meet it."""
    spread = trace.steps[t].spread
    return fbar if spread is None else np.einsum("kle,kb->leb", spread, fbar[:, 0]).astype(fbar.dtype)


def _feel_moves(e: Ensemble, t: int, abar: Real, fbar: Real, base: F64) -> None:
    """The moves between step t - 1 and step t, backwards: each step moved feels what the rows' scores do."""
    for r, factor in reversed(e.before(t)):
        if r == BASE:
            base += factor * abar.sum(axis=0, dtype=np.float64)
            continue
        leaves = fbar[e.leaf_range(r)]
        for ids, o in zip(e.leaves[e.trees(r)], e.first_output[e.trees(r)], strict=True):
            sum_by_leaf(ids, factor * abar[:, o : o + e.leaf_outputs], leaves)


def expand_training(work: Workspace, adjoint: LeafAdjoint, index: np.ndarray | None) -> Real:
    """(rows, columns) dQ/dw of the training rows, or of those in `index`."""
    parts = [_expand(work, adjoint, rows, V) for rows, V in work.direct_effects(index)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def expand_candidates(work: Workspace, adjoint: LeafAdjoint, rows: Rows) -> Real:
    """(rows, columns) dQ/dw, at weight zero, of rows that are not in the training set."""
    return _expand(work, adjoint, rows, direct_effects(work.trace, rows, work.dtype))


def _expand(work: Workspace, adjoint: LeafAdjoint, rows: Rows, V: Real) -> Real:
    e = work.trace.ensemble
    out = zeros((len(rows), adjoint.fbar.shape[2]), work.dtype)
    # Rows do not depend on each other: a block of few columns spreads its rows over the threads.
    pieces = work.n_jobs if adjoint.columns < BLOCKS[-1] else 1
    edges = [len(rows) * p // pieces for p in range(pieces + 1)]

    def piece(begin_end: tuple[int, int]) -> None:
        kernels.expand(rows.leaves, *begin_end, e.tree_offset, V, adjoint.fbar, out)

    list(work.map(piece, pairwise(edges)))
    out += (e.lam_slope * adjoint.lam).astype(work.dtype)
    if not np.all(rows.factor == 1):
        out *= rows.factor.astype(work.dtype)[:, None]
    if e.base_rule is not None:
        out += (base_effect(work.trace, rows) @ adjoint.base).astype(work.dtype)
    return out[:, : adjoint.columns]


def expand_labels(work: Workspace, adjoint: LeafAdjoint, rows: Rows) -> Real:
    """(rows, columns, Y) dQ/dy of these rows."""
    e = work.trace.ensemble
    Y, Y0 = label_effects(work.trace, rows, work.dtype), base_label_effect(work.trace, rows)
    out = np.zeros((Y.shape[3], len(rows), adjoint.fbar.shape[2]), work.dtype)
    for y in range(Y.shape[3]):
        kernels.expand(rows.leaves, 0, len(rows), e.tree_offset, np.ascontiguousarray(Y[..., y]), adjoint.fbar, out[y])
        out[y] += (Y0[..., y] @ adjoint.base).astype(work.dtype)
    return np.moveaxis(out, 0, 2)[:, : adjoint.columns]
