"""BoostInLCA: BoostIn through the lowest node that two rows share, instead of a leaf.

    BoostInLCA(i, x) = sum_t a_v c_ix^t v_i,       v = the lowest node of tree t that holds both i and x

    a_v   = exp(depth of v) / (sum of exp(d) over the depths d = 0 .. depth of the tree)
    v_i   = -eta (g_i + h_i s_v) / (H_v + lam)          d(value of v)/dw_i, if v were a leaf
    s_v   = -G_v / (H_v + lam),   G and H over the rows of v
    c_ix  = dL/dF at the starting score plus eta s of the shared nodes of the trees up to t

BoostIn has the trees alone in which v is a leaf, a = 1, and the score of x before the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._data.errors import UnsupportedModel
from .._data.progress import progress
from .._engine.methods import SplitBaseline
from .._engine.placed_rows import forward_scores
from .._engine.queries import Queries
from .._engine.workspace import Workspace
from .._model.ensemble import Ensemble
from .._model.splits import TreeNodes
from ._rows import needs_loss

_CHUNK_BYTES = 1 << 26  # of scores for pairs of training and test rows


@dataclass(frozen=True)
class BoostInLCA(SplitBaseline):
    """BoostIn through the lowest common ancestors of the two rows, the deeper the more.

    >>> tracer.influence(X_test, y_test, method=BoostInLCA())                   # doctest: +SKIP

    By Choubey (Rochester Institute of Technology, 2025), from the formulas of his code. Two rows
    always share the root of a tree, so each pair has an effect in each tree. It differs from that
    code as our `BoostIn` does: the model's own starting score, weights and regularisation count.
    """

    def values(
        self, work: Workspace, trees: Sequence[TreeNodes], queries: Queries, index: Ints
    ) -> Real:
        needs_loss(queries, "BoostInLCA")
        e = work.trace.ensemble
        _check(e)
        m = queries.leaves.shape[1]
        most = max(1, _CHUNK_BYTES // (8 * m * e.n_outputs))
        chunks = [index[start : start + most] for start in range(0, len(index), most)]
        done = work.map(lambda rows: _values_of_rows(work, trees, queries, rows), chunks)
        shown = progress(done, len(index), "training rows", "row", most)
        return np.concatenate([np.zeros((0, len(queries)), work.dtype), *shown])


class _Nodes(NamedTuple):
    """All nodes of a tree, by slot, and the lowest node that each two leaves share."""

    shared: Ints  # (L, L) slots
    step: F64  # (slots,) s
    slope: F64  # (slots,) eta a / (H + lam)
    g: F64  # (n,)
    h: F64  # (n,)


def _values_of_rows(
    work: Workspace, trees: Sequence[TreeNodes], queries: Queries, rows: Ints
) -> Real:
    """(rows, queries) values of these training rows."""
    e = work.trace.ensemble
    assert queries.y is not None
    m = queries.leaves.shape[1]
    given = queries.scores - e.scores(queries.leaves)  # (m, K) scores that the user gave the rows
    F = np.tile(e.base + given, (len(rows), 1))  # (pairs, K), all test rows for each training row
    y = np.tile(queries.y, len(rows))
    out = np.zeros((len(rows), m))
    for t, step in _steps(work, trees):
        pairs = []
        for r, nodes in step:
            first = e.tree_leaves[r] - e.tree_offset[r]  # leaves are numbered within their step
            own = e.leaves[r, rows][:, None] - first
            pairs.append(nodes.shared[own, queries.leaves[r] - first])  # (rows, m)
            F[:, e.first_output[r]] += e.rate(t) * nodes.step[pairs[-1]].ravel()
        c = queries.criterion.value_gradient(F, y).reshape(len(rows), m, -1)
        for (r, nodes), pair in zip(step, pairs, strict=True):
            g = nodes.g[rows][:, None]
            h = nodes.h[rows][:, None]
            drawn = 1.0 if e.sample is None else e.sample[r][rows][:, None]
            effect = -nodes.slope[pair] * (g + h * nodes.step[pair])
            out += drawn * c[..., e.first_output[r]] * effect
    out *= e.w_factor[rows][:, None]
    return queries.reduced(out.T).T.astype(work.dtype)


def _steps(
    work: Workspace, trees: Sequence[TreeNodes]
) -> Iterator[tuple[int, list[tuple[int, _Nodes]]]]:
    """(step, its trees and their nodes) from the first step to the last."""
    e = work.trace.ensemble
    for t, A in forward_scores(work.trace, work.rows):
        g = e.loss.gradient(e.loss.state(A), e.y)
        h = e.second_derivatives(A) if e.rule.newton else np.ones_like(A)
        step = []
        for r in range(e.trees(t).start, e.trees(t).stop):
            o = int(e.first_output[r])
            step.append((r, _nodes_of_tree(e, r, t, trees[r], g[:, o], h[:, o])))
        yield t, step


def _nodes_of_tree(e: Ensemble, r: int, t: int, tree: TreeNodes, g: F64, h: F64) -> _Nodes:
    """The nodes of tree r, from derivatives g and h (n,) of all training rows before step t."""
    inner = len(tree.left)
    leaves = inner + 1
    w = e.tree_weight(r)
    G = np.zeros(inner + leaves)
    H = np.zeros(inner + leaves)
    own = e.leaves[r] - (e.tree_leaves[r] - e.tree_offset[r])
    G[inner:] = np.bincount(own, w * g, leaves)
    H[inner:] = np.bincount(own, w * h, leaves)
    below = np.eye(inner + leaves, dtype=bool)[:, inner:]  # (slots, leaves)
    depth = np.zeros(inner + leaves)
    shared = np.full((leaves, leaves), -1)
    shared[np.arange(leaves), np.arange(leaves)] = inner + np.arange(leaves)
    for node in reversed(range(inner)):  # children before their parents
        left = tree.left[node]
        right = tree.right[node]
        G[node] = G[left] + G[right]
        H[node] = H[left] + H[right]
        below[node] = below[left] | below[right]
        shared[np.ix_(below[left], below[right])] = node
        shared[np.ix_(below[right], below[left])] = node
    for node in range(inner):
        depth[[tree.left[node], tree.right[node]]] = depth[node] + 1
    D = H + e.lam
    step = np.divide(-G, D, out=np.zeros_like(G), where=D > 0)
    deeper = np.exp(depth) / np.exp(np.arange(depth.max() + 1)).sum()
    slope = np.divide(e.rate(t) * deeper, D, out=np.zeros_like(G), where=D > 0)
    return _Nodes(shared, step, slope, g, h)


def _check(e: Ensemble) -> None:
    """Raise an error for a model that these formulas do not fit."""
    rule = e.rule
    simple = e.moves is None and not e.joins_leaves and e.leaf_l2 is None
    if not simple or e.leaf_outputs > 1 or rule.iterations > 1 or rule.l1 > 0:
        raise UnsupportedModel(
            "BoostInLCA is for boosting with one plain step for each leaf and one output in each tree; this model has "
            "vector leaves, several steps for a leaf, l1, smoothing or steps that are not simply added. BoostIn() "
            "takes it."
        )
