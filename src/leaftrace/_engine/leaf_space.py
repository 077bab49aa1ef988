"""Leaf space: the backward pass over leaves instead of rows, for many queries.

Going backwards, a query depends on the value of leaf l' of step r directly, and through all later
leaves that share rows with l':

    fbar_{r,l'} = seed_{r,l'} + sum_{t > r} sum_l W[(t,l), (r,l')] fbar_{t,l},    W[(t,l), (r,l')] = sum of U_j over
                                                                                  rows j in both leaves
W is strictly lower triangular. One pass over the rows builds it, O(T^2 n); then a query costs a
triangular solve, O(leaves^2), whatever the number of rows. The results are those of the row form,
to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import Ids, Real
from .._model.ensemble import Ensemble
from .._model.kernels import block_width, kernels
from .._model.kernels.arguments import TreePairs
from .._model.kernels.numpy import sum_by_leaf
from .backward import LeafAdjoint, lam_adjoint
from .placed_rows import PlacedRows
from .queries import Queries
from .row_effects import empty_effects, fill_effects
from .workspace import Workspace


def has_leaf_form(ensemble: Ensemble) -> bool:
    """Whether the model is boosting in which rows move their own leaf only.

    Others have the row form.
    """
    return ensemble.moves is None and not ensemble.joins_leaves


def space_bytes(ensemble: Ensemble, itemsize: int) -> int:
    """Bytes of W."""
    starts = ensemble.step_leaves[:-1]
    counts = np.diff(ensemble.step_leaves)
    return int((starts * counts).sum()) * ensemble.leaf_outputs**2 * itemsize


@dataclass(frozen=True)
class LeafSpace:
    """The effects of leaves on later leaves. Those of parts of the rows can be added."""

    W: list[Real]  # for each step the transpose of its rows of W, (leaves before it times O, M O)
    base: list[Real]  # for each step (K, M O): effect of the starting score on its leaves

    def adjoint(self, work: Workspace, queries: Queries, columns: slice) -> LeafAdjoint:
        """Solve for the derivatives of some queries; the same as `leaf_adjoint`."""
        e = work.trace.ensemble
        count = len(range(len(queries))[columns])
        B = block_width(count)
        fbar, base = queries.seeds(columns, B, work.dtype)
        flat = fbar.reshape(-1, B)  # (leaves O, B), a view
        for t in reversed(range(e.n_steps)):
            here = e.leaf_range(t)
            own = flat[here.start * e.leaf_outputs : here.stop * e.leaf_outputs]
            kernels.lift(self.W[t], own, flat[: here.start * e.leaf_outputs])
            base += self.base[t] @ own
        return LeafAdjoint(fbar, base, lam_adjoint(work.trace, fbar), count)

    def __add__(self, other: LeafSpace) -> LeafSpace:
        W = [mine + theirs for mine, theirs in zip(self.W, other.W, strict=True)]
        base = [mine + theirs for mine, theirs in zip(self.base, other.base, strict=True)]
        return LeafSpace(W, base)


def build_leaf_space(work: Workspace) -> LeafSpace:
    """The leaf space of all training rows; chunk by chunk if effects are not kept."""
    if work.keeps_effects:
        return _leaf_space_of(work, work.rows, work.effects[1])
    space = None
    for part in work.row_slices():
        rows = work.rows.take(part)
        V, U = empty_effects(work.trace, len(rows), work.dtype)
        fill_effects(work.trace, rows, slice(0, len(rows)), V, U)
        chunk = _leaf_space_of(work, rows, U)
        if space is None:
            space = chunk
            continue
        for total, x in zip(space.W + space.base, chunk.W + chunk.base, strict=True):
            total += x
    assert space is not None
    return space


def _leaf_space_of(work: Workspace, rows: PlacedRows, U: Real) -> LeafSpace:
    """The leaf space of some rows, with their effects U (trees, n, O, K)."""
    by_row = np.ascontiguousarray(rows.leaves.T)  # (n, trees)

    def effects_of_step(t: int) -> tuple[Real, Real]:
        return _effects_on_step(work, rows.leaves, by_row, U, t)

    steps = list(work.map(effects_of_step, range(work.trace.ensemble.n_steps)))
    return LeafSpace([W for W, _ in steps], [base for _, base in steps])


def _effects_on_step(
    work: Workspace, leaves: Ids, by_row: Ids, U: Real, t: int
) -> tuple[Real, Real]:
    """W (leaves before step t times O, M O) and base (K, M O) of step t.

    leaves (trees, n), by_row (n, trees), U (trees, n, O, K).
    """
    e = work.trace.ensemble
    O = e.leaf_outputs
    trees = e.trees(t)
    before = int(e.step_leaves[t])
    M = int(e.step_leaves[t + 1]) - before
    W = np.empty((before * O, M, O), work.dtype)
    base = np.zeros((M, O, e.n_outputs))
    earlier = slice(0, trees.start)
    for r, ids in enumerate(leaves[trees]):
        sum_by_leaf(ids, U[trees][r], base)
        begin, end = e.tree_leaves[trees.start + r : trees.start + r + 2] - before
        order = np.argsort(ids, kind="stable")
        edges = np.searchsorted(ids[order], np.arange(begin, end + 1))
        pairs = TreePairs(by_row, e.tree_offset[earlier], e.first_output[earlier], order, edges)
        for o in range(O):
            sums = np.empty((end - begin, before, O), work.dtype)
            kernels.pair_sums(*pairs, U[trees], r, o, sums)
            W[:, begin:end, o] = sums.reshape(len(sums), -1).T
    flat_base = base.reshape(M * O, -1).T.astype(work.dtype)
    return W.reshape(before * O, M * O), np.ascontiguousarray(flat_base)
