"""The kernels in NumPy: short definitions of the native ones, and oracles for their tests.

Every function writes into (adds to) the arrays it is given, like the function of the same name in
``src/native``. A step's trees are given by ``leaf`` (R, n), leaf numbers counted over all M leaves
of the step, and ``first`` (R,), the first output that each tree writes to.
"""

from __future__ import annotations

import numpy as np

from ..._data.arrays import F64, Ids, Ints, Real
from ..losses import Loss
from .checks import (
    check_chain,
    check_edges,
    check_first,
    check_forest,
    check_ids,
    check_name,
    check_numbers,
    check_rows,
    check_state,
    check_together,
    checked,
    require,
)
from .numpy_choice import KeptChoices as KeptChoices
from .numpy_choice import choice_terms as choice_terms
from .numpy_classes import output_sums as output_sums
from .numpy_classes import separate_effects as separate_effects
from .numpy_classes import softmax_effects as softmax_effects
from .numpy_classes import weight_sums as weight_sums
from .numpy_effects import backward_scored as backward_scored
from .numpy_effects import loss_of
from .numpy_effects import row_effects as row_effects
from .numpy_node_values import node_outputs as node_outputs
from .numpy_node_values import node_steps as node_steps
from .numpy_node_values import node_values as node_values
from .numpy_node_values import pool_chains as pool_chains
from .numpy_nodes import node_adjoint as node_adjoint
from .numpy_nodes import node_rows as node_rows
from .numpy_queries import query_products as query_products
from .numpy_queries import query_shares as query_shares
from .numpy_ranks import rank_pairs as rank_pairs
from .numpy_removal import removal_step as removal_step
from .numpy_routes import find_leaves as find_leaves
from .numpy_routes import level_leaves as level_leaves
from .numpy_sweeps import advance as advance
from .numpy_sweeps import change_sums as change_sums
from .numpy_sweeps import sum_by_leaf as sum_by_leaf
from .numpy_sweeps import tangent_sums as tangent_sums
from .numpy_sweeps import top_leaves as top_leaves


@checked(
    leaf="ids n",
    state="float64 n C",
    shift="float64 M",
    y="float64 n",
    w="float64 n",
    sums="out float64 M 4",
)
def leaf_sums(loss: str, leaf: Ids, state: F64, shift: F64, y: F64, w: F64, sums: F64) -> None:
    """sums (M, 4) += w g, w h, w k over each leaf, at score A + S. One output.

    The fourth column is not used.
    """
    check_name(loss)
    check_ids(leaf, len(sums))
    check_state(state, loss, 1, state.dtype)
    fn = loss_of(loss)
    at = fn.moved(state, shift[leaf][:, None])
    sum_by_leaf(leaf, w[:, None] * _derivatives(fn, at, y), sums[:, :3])


def _derivatives(loss: Loss, at: F64, y: F64) -> F64:
    """(n, 3) g, h, k of one output."""
    g = loss.gradient(at, y)
    h = loss.hessian(at, y)[:, 0]
    k = loss.third_dot(at, y, np.ones((len(y), 1)))[:, 0]
    return np.concatenate([g, h, k], axis=1)


@checked(
    leaf="ids R n",
    first="int32 R",
    offset="int64 R",
    values="float64 M O",
    A="out float64 n K",
)
def tree_scores(leaf: Ids, first: Ints, offset: Ints, values: F64, A: F64) -> None:
    """A (n, K) += values[offset + leaf] (all leaves, O) over all trees."""
    check_first(first, values.shape[1], A.shape[1])
    check_forest(leaf, offset, len(values))
    for ids, o, start in zip(leaf, first, offset, strict=True):
        A[:, o : o + values.shape[1]] += values[start:][ids]


@checked(
    leaf="ids R n",
    first="int32 R",
    offset="int64 R",
    c="float64 n K",
    out="out float64 M O",
)
def tree_sums(leaf: Ids, first: Ints, offset: Ints, c: F64, out: F64) -> None:
    """out (all leaves, O) at offset + leaf += c (n, K) over all rows and trees.

    This is `tree_scores` transposed.
    """
    check_first(first, out.shape[1], c.shape[1])
    check_forest(leaf, offset, len(out))
    for ids, o, start in zip(leaf, first, offset, strict=True):
        sum_by_leaf(ids, c[:, o : o + out.shape[1]], out[start:])


@checked(
    leaf="ids R n",
    skip="bool",
    edges="int64 R+1",
    values="float64 M",
    A="out float64 n 1",
    y="float64 n",
    w="float64 n",
    rounding="int",
    begin="int",
    end="int",
    sums="out float64 M 8",
)
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
    check_name(loss)
    check_chain(leaf, edges, begin, end, len(values))
    require(0 <= rounding <= 7, "rounding is not a sum of 1, 2 and 4")
    part = slice(begin, end)
    fn = loss_of(loss)
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


@checked(
    leaf="ids R n",
    first="int32 R",
    U="real R n O K",
    fbar="real M O B",
    abar="out real n K B",
    next_leaf="ids R' n ?",
    next_first="int32 R' ?",
    fbar_next="out real M' O' B ?",
)
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

    U (R, n, O, K), fbar (M, O, B). O counts the effects of a row here, so it may be more than K.
    """
    check_ids(leaf, len(fbar))
    check_together(next_leaf=next_leaf, next_first=next_first, fbar_next=fbar_next)
    if next_leaf is not None and next_first is not None and fbar_next is not None:
        check_first(next_first, fbar_next.shape[1], abar.shape[1])
        check_ids(next_leaf, len(fbar_next))
    for ids, u in zip(leaf, U, strict=True):
        abar += np.einsum("nok,nob->nkb", u, fbar[ids])
    if next_leaf is not None and next_first is not None and fbar_next is not None:
        for ids, o in zip(next_leaf, next_first, strict=True):
            sum_by_leaf(ids, abar[:, o : o + fbar_next.shape[1]], fbar_next)


@checked(
    leaf="ids R n",
    begin="int",
    end="int",
    offset="int64 R",
    V="real R n O",
    fbar="real M O B",
    out="out real n B",
    place="int32 L ?",
)
def expand(
    leaf: Ids,
    begin: int,
    end: int,
    offset: Ints,
    V: Real,
    fbar: Real,
    out: Real,
    place: Ints | None = None,
) -> None:
    """out (n, B) += sum over all trees r of V[r] . fbar[offset[r] + leaf[r]].

    This is for rows begin .. end - 1. V (R, n, O), fbar (all leaves, O, B). With ``place`` (all
    leaves,) it is fbar[place[offset[r] + leaf[r]]].
    """
    if place is None:
        place = np.arange(len(fbar), dtype=np.int32)
    check_rows(begin, end, leaf.shape[1])
    check_forest(leaf[:, begin:end], offset, len(place))
    check_numbers("place", place, 0, len(fbar))
    for ids, start, v in zip(leaf, offset, V, strict=True):
        rows = place[start:][ids[begin:end]]
        out[begin:end] += np.einsum("no,nob->nb", v[begin:end], fbar[rows])


@checked(
    ids="ids n trees",
    offset="int64 earlier",
    first="int32 earlier",
    order="int64 n",
    edges="int64 L+1",
    U="real R n O_u K",
    r="int",
    o="int",
    out="out real L M O",
)
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
    n, trees = ids.shape
    require(len(offset) <= trees, "more earlier trees than trees")
    check_first(first, out.shape[2], U.shape[3])
    check_forest(ids.T[: len(offset)], offset, out.shape[1])
    check_edges("edges", edges, n, least=0)
    require(bool(np.all((order >= 0) & (order < n))), "order names a row that is not there")
    require(0 <= r < len(U), "r is not a tree of U")
    require(0 <= o < U.shape[2], "o is not an output of U")
    leaf = np.repeat(np.arange(len(out)), np.diff(edges))  # of each row in order
    L, M, O = out.shape
    out[:] = 0
    for start, k, tree in zip(offset, first, ids.T, strict=False):
        for i in range(O):
            pairs = np.bincount(leaf * M + start + tree[order], U[r, order, o, k + i], L * M)
            out[:, :, i] += pairs.reshape(L, M).astype(out.dtype)


@checked(W="real rows inner", own="real inner B", out="out real rows B")
def lift(W: Real, own: Real, out: Real) -> None:
    """out (rows, B) += W (rows, inner) own (inner, B)."""
    out += W @ own
