"""Leaf space: the backward pass over leaves instead of rows, for many queries.

Going backwards, a query feels leaf l' of step r through itself and through all later leaves whose rows are in l' too:

    fbar_{r,l'} = seed_{r,l'} + sum_{t > r} sum_l W[(t,l), (r,l')] fbar_{t,l},    W[(t,l), (r,l')] = sum of U_j over
                                                                                  rows j in both leaves
W is strictly lower triangular. One pass over the rows builds it, O(T^2 n); then a query costs a triangular solve,
O(leaves^2), whatever the number of rows. Same answers as the row form to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import Real
from .._kernels import block_width, kernels
from .._kernels.numpy import sum_by_leaf
from .._model.ensemble import Ensemble
from .backward import LeafAdjoint, lam_adjoint
from .queries import Queries
from .row_effects import Rows, empty_effects, fill_effects
from .workspace import Workspace


def has_leaf_form(ensemble: Ensemble) -> bool:
    """Boosting whose rows move their own leaf only; other schedules have the row form."""
    return ensemble.moves is None and ensemble.smoothing is None


def space_bytes(ensemble: Ensemble, itemsize: int) -> int:
    """Bytes of W."""
    starts = ensemble.step_leaves[:-1]
    counts = np.diff(ensemble.step_leaves)
    return int((starts * counts).sum()) * ensemble.leaf_outputs**2 * itemsize


@dataclass(frozen=True)
class LeafSpace:
    W: list[Real]  # for each step the transpose of its rows of W, (leaves before it times O, M O)
    base: list[Real]  # for each step (K, M O): what the starting score does to it

    def adjoint(self, work: Workspace, queries: Queries, columns: slice) -> LeafAdjoint:
        """What `leaf_adjoint` gives."""
        e = work.trace.ensemble
        count = len(range(len(queries))[columns])
        B = block_width(count)
        fbar, base = queries.seeds(columns, B, work.dtype)
        felt = fbar.reshape(-1, B)  # (leaves O, B), a view
        for t in reversed(range(e.n_steps)):
            here = e.leaf_range(t)
            own = felt[here.start * e.leaf_outputs : here.stop * e.leaf_outputs]
            kernels.lift(self.W[t], own, felt[: here.start * e.leaf_outputs])
            base += self.base[t] @ own
        return LeafAdjoint(fbar, base, lam_adjoint(work.trace, fbar), count)

    def __add__(self, other: LeafSpace) -> LeafSpace:
        """Of the rows of both."""
        pairs = zip((self.W, self.base), (other.W, other.base), strict=True)
        return LeafSpace(*([x + y for x, y in zip(a, b, strict=True)] for a, b in pairs))


def build(work: Workspace) -> LeafSpace:
    """Of all rows: where effects are not kept, chunk by chunk."""
    if work.keeps_effects:
        return of_rows(work, work.rows, work.effects[1])
    space = None
    for part in work.row_slices():
        rows = work.rows.take(part)
        V, U = empty_effects(work.trace, len(rows), work.dtype)
        fill_effects(work.trace, rows, slice(0, len(rows)), V, U)
        more = of_rows(work, rows, U)
        if space is None:
            space = more
            continue
        for total, x in zip(space.W + space.base, more.W + more.base, strict=True):
            total += x
    assert space is not None
    return space


def of_rows(work: Workspace, rows: Rows, U: Real) -> LeafSpace:
    """Of these rows, with their effects U (trees, n, O, K)."""
    e = work.trace.ensemble
    leaves = rows.leaves
    by_row = np.ascontiguousarray(leaves.T)  # (n, trees)
    O = e.leaf_outputs

    def step(t: int) -> tuple[Real, Real]:
        trees = e.trees(t)
        before = int(e.step_leaves[t])
        M = int(e.step_leaves[t + 1]) - before
        W = np.empty((before * O, M, O), work.dtype)
        base = np.zeros((M, O, e.n_outputs))
        for r, ids in enumerate(leaves[trees]):
            sum_by_leaf(ids, U[trees][r], base)
            begin, end = e.tree_leaves[trees.start + r : trees.start + r + 2] - before
            order = np.argsort(ids, kind="stable")
            edges = np.searchsorted(ids[order], np.arange(begin, end + 1))
            for o in range(O):
                out = np.empty((end - begin, before, O), work.dtype)
                earlier = slice(0, trees.start)
                pairs = by_row, e.tree_offset[earlier], e.first_output[earlier], order, edges
                kernels.pair_sums(*pairs, U[trees], r, o, out)
                W[:, begin:end, o] = out.reshape(len(out), -1).T
        return W.reshape(before * O, M * O), np.ascontiguousarray(
            base.reshape(M * O, -1).T.astype(work.dtype)
        )

    steps = list(work.map(step, range(e.n_steps)))
    return LeafSpace([W for W, _ in steps], [base for _, base in steps])
