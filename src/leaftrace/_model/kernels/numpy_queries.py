"""Backward steps over losses that couple the rows of a query: the twins of ``src/native/queries.hpp``.

The rows of query q are edges[q] .. edges[q + 1] - 1. ``x`` (M, B) is of the leaves of the step, and
``below``, if there is a step below, gets sums over its leaves, in which the rows are ``next_leaf``.
"""

from __future__ import annotations

import numpy as np

from ..._data.arrays import Ids, Ints, Real
from .checks import check_edges, check_ids, check_together, checked, require
from .numpy_sweeps import sum_by_leaf

MOST_SHARES = 1 << 30


def _check_rows(n: int, edges: Ints, next_leaf: Ids | None, below: Real | None) -> None:
    """Refuse queries that are not all n rows, and ids beyond their tables."""
    require(len(edges) > 0, "edges: there must be at least one")
    check_edges("edges", edges, n, 1)
    check_together(next_leaf=next_leaf, below=below)
    if next_leaf is not None and below is not None:
        check_ids(next_leaf, len(below))


@checked(
    leaf="ids C",
    columns="int64 Q+1",
    K="real cells",
    edges="int64 Q+1",
    x="real M B",
    out="out real n B",
    next_leaf="ids n ?",
    below="out real M' B ?",
)
def query_products(
    leaf: Ids,
    columns: Ints,
    K: Real,
    edges: Ints,
    x: Real,
    out: Real,
    next_leaf: Ids | None,
    below: Real | None,
) -> None:
    """out (n, B) += the matrix of each query times x of its leaves; then below += sums of out.

    The columns of query q are columns[q] .. columns[q + 1] - 1, and ``leaf`` has the leaf of each.
    ``K`` has the matrices one after another, each column by column: what the x of a leaf adds to all
    rows of the query.
    """
    check_edges("columns", columns, len(leaf), 1)
    _check_rows(len(out), edges, next_leaf, below)
    check_ids(leaf, len(x))
    sizes = np.diff(edges).tolist()
    counts = np.diff(columns).tolist()
    is_right = len(K) == sum(size * count for size, count in zip(sizes, counts, strict=True))
    require(is_right, "K has another size than the matrices of the queries")
    start = 0
    for begin, size, first, count in zip(
        edges.tolist(), sizes, columns.tolist(), counts, strict=False
    ):
        matrix = K[start : start + size * count].reshape(count, size).T
        out[begin : begin + size] += matrix @ x[leaf[first : first + count]]
        start += size * count
    if next_leaf is not None and below is not None:
        sum_by_leaf(next_leaf, out, below)


@checked(
    leaf="ids n",
    edges="int64 Q+1",
    right="real n R",
    own="real n O",
    left="real n O R",
    x="real M B",
    out="out real n O B",
    next_leaf="ids n ?",
    below="out real M' B ?",
)
def query_shares(
    leaf: Ids,
    edges: Ints,
    right: Real,
    own: Real,
    left: Real,
    x: Real,
    out: Real,
    next_leaf: Ids | None,
    below: Real | None,
) -> None:
    """out (n, O, B) += own x + left . (sums of right x over the query); then below += out[:, 0].

    This is `query_products` with matrices of low rank, and with several of them.
    """
    _check_rows(len(leaf), edges, next_leaf, below)
    check_ids(leaf, len(x))
    require(right.shape[1] <= MOST_SHARES, "sizes beyond any memory")
    if len(leaf):
        mine = x[leaf]
        sums = np.add.reduceat(right[:, :, None] * mine[:, None], edges[:-1], axis=0)  # (Q, R, B)
        shared = np.repeat(sums, np.diff(edges), axis=0)
        out += own[:, :, None] * mine[:, None] + np.einsum("nor,nrb->nob", left, shared)
    if next_leaf is not None and below is not None:
        sum_by_leaf(next_leaf, out[:, 0], below)
