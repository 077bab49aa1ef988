"""Values of leaves that depend on other nodes, or on their chain: the twins of ``src/native/node_values.hpp``."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from .checks import check_edges, check_numbers, check_together, checked, require
from .numpy_removal import bounded_step

AT_ONCE = 1 << 22  # means of parts of chains that are held at a time


@checked(
    leaf="int32 M",
    depths="int64 Z+1",
    splits="int32 S",
    children="int32 S 2",
    l2="float64 W",
    bounds="float64 3",
    lam="float64 columns",
    G="float64 M columns",
    H="float64 M columns",
    s="out float64 W columns",
    slope="out float64 W columns ?",
)
def node_steps(
    leaf: NDArray[np.int32],
    depths: Ints,
    splits: NDArray[np.int32],
    children: NDArray[np.int32],
    l2: F64,
    bounds: F64,
    lam: F64,
    G: F64,
    H: F64,
    s: F64,
    slope: F64 | None = None,
) -> None:
    """s (W, B) = steps of all nodes from sums of g and h over leaves, G and H (M, B).

    ``leaf``      the node that each leaf is
    ``splits``    the other nodes, those of one depth after another, the deepest first; ``depths``: where
                  each depth begins
    ``children``  the two nodes below each split
    ``bounds``    l1, the longest step and the least sum of h; ``l2`` of each node, ``lam`` of each column
    ``slope``     (W, B) = derivatives of the steps in the sums of g
    """
    require(len(depths) > 0, "edges of depths: there must be at least one")
    check_edges("depths", depths, len(splits), least=0)
    for name, numbers in (("leaf", leaf), ("splits", splits), ("children", children)):
        check_numbers(name, numbers, 0, len(l2))
    sums = np.zeros((2, *s.shape))
    sums[:, leaf] = G, H
    for begin, end in pairwise(depths.tolist()):
        sums[:, splits[begin:end]] = sums[:, children[begin:end]].sum(axis=2)
    D = sums[1] + lam + l2[:, None]
    s[...], moves = bounded_step(sums[0], sums[1], D, *bounds.tolist())
    if slope is not None:
        slope[...] = np.where(moves, -1.0 / np.where(D > 0, D, 1.0), 0.0)


@checked(
    rounds="int64 R+1",
    nodes="int32 k",
    lower_edges="int64 k+1",
    lower="int32 P 2",
    upper_edges="int64 k+1",
    upper="int32 Q 2",
    source="int32 n",
    own="int32 n",
    share="float64 n",
    value="int32 M",
    s="float64 W columns",
    out="out float64 M columns",
    bound="out int32 k ?",
)
def node_outputs(
    rounds: Ints,
    nodes: NDArray[np.int32],
    lower_edges: Ints,
    lower: NDArray[np.int32],
    upper_edges: Ints,
    upper: NDArray[np.int32],
    source: NDArray[np.int32],
    own: NDArray[np.int32],
    share: F64,
    value: NDArray[np.int32],
    s: F64,
    out: F64,
    bound: NDArray[np.int32] | None = None,
) -> None:
    """out (M, B) = outputs of leaves from the steps s (W, B) of nodes: see ``_model/node_trees.py``.

    ``nodes``, with ``rounds``, edges and pairs of nodes: see `NodeOrder` in ``_model/node_rounds.py``
    ``source``, ``own``, ``share``, ``value``: see `StepNodes` in ``_model/node_trees.py``
    ``bound``  (K,) = the bound that decides the output of each node, counted through the lower and then
               the upper ones, or -1; for a single column
    """
    require(len(rounds) > 0, "edges of rounds: there must be at least one")
    check_edges("rounds", rounds, len(nodes), least=0)
    check_edges("lower_edges", lower_edges, len(lower), least=0)
    check_edges("upper_edges", upper_edges, len(upper), least=0)
    require(bound is None or s.shape[1] == 1, "the bounds that decide are those of one column")
    tables = {"nodes": nodes, "lower": lower, "upper": upper, "source": source, "value": value}
    for name, numbers in tables.items():
        check_numbers(name, numbers, 0, len(source))
    check_numbers("own", own, 0, len(s))
    mixed = np.flatnonzero(share[nodes] < 1)
    _check_rounds(rounds, nodes, mixed, source[nodes[mixed], None])
    for edges, pairs in ((lower_edges, lower), (upper_edges, upper)):
        _check_rounds(rounds, nodes, np.repeat(np.arange(len(nodes)), np.diff(edges)), pairs)
    outputs = s[own]
    for begin, end in pairwise(rounds.tolist()):
        at = nodes[begin:end]
        mixed = share[at, None] * outputs[at] + (1 - share[at, None]) * outputs[source[at]]
        x = np.where(share[at, None] == 1, outputs[at], mixed)
        low, lows = _tightest(lower_edges[begin : end + 1], lower, outputs, 1)
        high, highs = _tightest(upper_edges[begin : end + 1], upper, outputs, -1)
        is_low = x < low
        is_high = ~is_low & (x > high)
        outputs[at] = np.where(is_low, low, np.where(is_high, high, x))
        if bound is not None:
            decided = np.where(is_high[:, 0], len(lower) + highs, -1)
            bound[begin:end] = np.where(is_low[:, 0], lows, decided)
    out[...] = outputs[value]


@checked(
    leaf="int32 M",
    depths="int64 Z+1",
    splits="int32 S",
    children="int32 S 2",
    l2="float64 W",
    bounds="float64 3",
    lam="float64 columns",
    G="float64 M columns | M",
    H="float64 M columns | M",
    rounds="int64 R+1",
    nodes="int32 k",
    lower_edges="int64 k+1",
    lower="int32 P 2",
    upper_edges="int64 k+1",
    upper="int32 Q 2",
    source="int32 n",
    own="int32 n",
    share="float64 n",
    value="int32 L",
    out="out float64 L columns",
    before="float64 L ?",
    ids="int32 X columns ?",
    own_G="float64 X columns ?",
    own_H="float64 X columns ?",
)
def node_values(
    leaf: NDArray[np.int32],
    depths: Ints,
    splits: NDArray[np.int32],
    children: NDArray[np.int32],
    l2: F64,
    bounds: F64,
    lam: F64,
    G: F64,
    H: F64,
    rounds: Ints,
    nodes: NDArray[np.int32],
    lower_edges: Ints,
    lower: NDArray[np.int32],
    upper_edges: Ints,
    upper: NDArray[np.int32],
    source: NDArray[np.int32],
    own: NDArray[np.int32],
    share: F64,
    value: NDArray[np.int32],
    out: F64,
    before: F64 | None = None,
    ids: NDArray[np.int32] | None = None,
    own_G: F64 | None = None,
    own_H: F64 | None = None,
) -> None:
    """out (M, B) = `node_outputs` of `node_steps`, from sums of g and h over leaves, G and H.

    ``G``, ``H``          (M, B), or (M,) if they are the same in all columns
    ``before``            (M,) outputs that are subtracted
    ``ids``               (R, B) leaves whose sums are others, ``own_G`` and ``own_H`` (R, B)

    The native kernel computes what is the same in all columns once.
    """
    s = np.empty((len(l2), len(lam)))
    check_together(ids=ids, own_G=own_G, own_H=own_H)
    every = [_in_columns(sums, len(lam)) for sums in (G, H)]
    if ids is not None and own_G is not None and own_H is not None:
        check_numbers("ids", ids, 0, len(leaf))
        for sums, own_sums in zip(every, (own_G, own_H), strict=True):
            sums[ids, np.arange(len(lam))] = own_sums
    node_steps(leaf, depths, splits, children, l2, bounds, lam, *every, s)
    order = rounds, nodes, lower_edges, lower, upper_edges, upper
    node_outputs(*order, source, own, share, value, s, out)
    if before is not None:
        out -= before[:, None]


def _in_columns(sums: F64, columns: int) -> F64:
    """(M, columns) a copy of sums, which may be those of all columns (M,)."""
    return np.repeat(sums[:, None], columns, axis=1) if sums.ndim == 1 else sums.copy()


def _check_rounds(
    rounds: Ints, nodes: NDArray[np.int32], dependent: Ints, on: NDArray[np.int32]
) -> None:
    """Refuse nodes that depend on others of their own round or a later one.

    ``dependent``: (k,) places of nodes that depend on the nodes ``on`` (k, .).
    """
    place = np.full(max(int(nodes.max(initial=0)), int(on.max(initial=0))) + 1, -1)
    place[nodes] = np.arange(len(nodes))
    require(bool(np.all(place[nodes] == np.arange(len(nodes)))), "a node stands there twice")
    begins = rounds[np.searchsorted(rounds, dependent, side="right") - 1]
    is_before = bool(np.all(place[on] < begins[:, None]))
    require(is_before, "a node depends on another one of its round or of a later one")


def _tightest(
    edges: Ints, pairs: NDArray[np.int32], outputs: F64, sign: int
) -> tuple[F64, NDArray[np.int64]]:
    """The largest (sign 1) or smallest bounds (k, B) of some nodes, and their first numbers in column 0."""
    begin, end = edges[[0, -1]].tolist()
    node = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    means = 0.5 * outputs[pairs[begin:end]].sum(axis=1)
    best = np.full((len(edges) - 1, outputs.shape[1]), -sign * np.inf)
    (np.maximum if sign > 0 else np.minimum).at(best, node, means)
    first = np.full(len(best), -1)
    found = np.flatnonzero(means[:, 0] == best[node, 0])[::-1]
    first[node[found]] = begin + found
    return best, first


@checked(
    chains="int64 C d",
    u="float64 M columns",
    D="float64 M columns",
    out="out float64 M columns",
)
def pool_chains(chains: Ints, least_weight: float, u: F64, D: F64, out: F64) -> None:
    """out (M, B) = isotonic regression of u (M, B) with weights D (M, B) along chains (C, n) of leaves.

    The value of a leaf is the largest, over parts that begin at or before it, of the least mean of
    such a part up to an end at or after it. Weights are at least ``least_weight``.
    """
    require(least_weight > 0, "least_weight is not above zero")
    check_numbers("chains", chains, 0, len(u))
    n = chains.shape[1]
    is_part = np.tri(n, dtype=bool).T[None, :, :, None]  # (1, begin, end, 1)
    columns = max(1, AT_ONCE // max(1, chains.size * n))
    for start in range(0, u.shape[1], columns):
        part = slice(start, start + columns)
        w = np.maximum(D[chains, part], least_weight)  # (C, n, b)
        x = u[chains, part]
        # (C, begin, end, b) over the parts of a chain
        total = np.cumsum(np.where(is_part, w[:, None], 0.0), axis=2)
        sums = np.cumsum(np.where(is_part, (w * x)[:, None], 0.0), axis=2)
        means = np.where(is_part, sums / np.where(is_part, total, 1.0), np.inf)
        least = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]
        out[chains, part] = np.where(is_part, least, -np.inf).max(axis=1)
