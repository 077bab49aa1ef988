"""Steps whose leaves depend on other nodes: the twins of ``src/native/nodes.hpp`` and ``node_values.hpp``."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints, Real
from .checks import check_edges, check_numbers, checked, require
from .numpy_removal import bounded_step

MOST_NODES = 1 << 30
AT_ONCE = 1 << 22  # means of parts of chains that are held at a time


@checked(
    n_nodes="int",
    value="int32 M",
    leaf="int32 M",
    leaf_above="int32 M",
    splits="int32 S",
    split_above="int32 S",
    nodes="int32 D",
    pair="int32 D 2",
    half="float64 D",
    slopes="float64 W 2",
    fbar="real M B",
    out="out real M 2 B",
)
def node_adjoint(
    n_nodes: int,
    value: NDArray[np.int32],
    leaf: NDArray[np.int32],
    leaf_above: NDArray[np.int32],
    splits: NDArray[np.int32],
    split_above: NDArray[np.int32],
    nodes: NDArray[np.int32],
    pair: NDArray[np.int32],
    half: F64,
    slopes: F64,
    fbar: Real,
    out: Real,
) -> None:
    """out (M, 2, B) += derivatives in the sums of g and h over each leaf, from fbar (M, B) in its value.

    The derivatives in the outputs of nodes go back along ``nodes`` in their order: those of the two
    nodes in ``pair`` get ``half`` of them. A leaf's sums are then those of all nodes above it.

    ``value``, ``leaf``              the node of each leaf's value, -1 if it has none, and its own
    ``splits``                       nodes with others below them, each after the one above it
    ``leaf_above``, ``split_above``  place among them of the split above, -1 if there is none
    ``slopes``                       derivatives of the output of a node in its own sums
    """
    _check_step(n_nodes, value, leaf, leaf_above, splits, split_above, nodes, pair, slopes)
    bar, _ = _node_derivatives(n_nodes, value, nodes, pair, half, fbar)
    own = slopes.astype(fbar.dtype)[:, :, None]
    sums = np.zeros((len(splits) + 1, 2, fbar.shape[1]), fbar.dtype)  # the last: above the root
    for k, (node, above) in enumerate(zip(splits, split_above, strict=True)):
        sums[k] = own[node] * bar[node] + sums[above]
    out += own[leaf] * bar[leaf][:, None] + sums[leaf_above]


def _check_step(
    n_nodes: int,
    value: NDArray[np.int32],
    leaf: NDArray[np.int32],
    leaf_above: NDArray[np.int32],
    splits: NDArray[np.int32],
    split_above: NDArray[np.int32],
    nodes: NDArray[np.int32],
    pair: NDArray[np.int32],
    slopes: F64,
) -> None:
    """Refuse a step whose nodes are not there, or not in order."""
    require(0 <= n_nodes <= MOST_NODES, "n_nodes is no number of nodes")
    require(len(slopes) <= n_nodes, "more slopes than nodes")
    check_numbers("value", value, -1, n_nodes)
    check_numbers("leaf", leaf, 0, len(slopes))
    check_numbers("leaf_above", leaf_above, -1, len(splits))
    check_numbers("splits", splits, 0, len(slopes))
    check_numbers("split_above", split_above, -1, len(splits))
    is_after = np.all(split_above < np.arange(len(splits)))
    require(bool(is_after), "a split does not come after the one above it")
    check_numbers("nodes", nodes, 0, n_nodes)
    check_numbers("pair", pair, 0, n_nodes)


def _node_derivatives(
    n_nodes: int,
    value: NDArray[np.int32],
    nodes: NDArray[np.int32],
    pair: NDArray[np.int32],
    half: F64,
    fbar: Real,
) -> tuple[Real, NDArray[np.bool_]]:
    """(N, B) derivatives in the outputs of nodes, and (N,) whether they depend on any of fbar (M, B)."""
    bar = np.zeros((n_nodes, fbar.shape[1]), fbar.dtype)
    reached = np.zeros(n_nodes, bool)
    np.add.at(bar, value[value >= 0], fbar[value >= 0])
    reached[value[(value >= 0) & np.any(fbar != 0, axis=1)]] = True
    for node, sources, share in zip(nodes, pair, half.astype(fbar.dtype), strict=True):
        for source in sources:
            bar[source] += share * bar[node]
            reached[source] |= reached[node]
    return bar, reached


@checked(
    n_nodes="int",
    value="int32 M",
    leaf="int32 M",
    leaf_above="int32 M",
    splits="int32 S",
    split_above="int32 S",
    nodes="int32 D",
    pair="int32 D 2",
    half="float64 D",
    slopes="float64 W 2",
    fbar="real M B",
    first="int",
    rows="out real X 2 B",
    place="out int32 M",
)
def node_rows(
    n_nodes: int,
    value: NDArray[np.int32],
    leaf: NDArray[np.int32],
    leaf_above: NDArray[np.int32],
    splits: NDArray[np.int32],
    split_above: NDArray[np.int32],
    nodes: NDArray[np.int32],
    pair: NDArray[np.int32],
    half: F64,
    slopes: F64,
    fbar: Real,
    first: int,
    rows: Real,
    place: NDArray[np.int32],
) -> int:
    """rows[place] (M, 2, B) = what `node_adjoint` adds to its result; the row after the last that was written.

    They are written from row ``first`` on, and row 0 has zeros. Queries often are about few leaves;
    leaves below the same nodes that these depend on share a row.
    """
    _check_step(n_nodes, value, leaf, leaf_above, splits, split_above, nodes, pair, slopes)
    has_room = 0 < first <= len(rows) and len(splits) + len(leaf) <= len(rows) - first
    require(has_room, "there is no room for the rows")
    bar, reached = _node_derivatives(n_nodes, value, nodes, pair, half, fbar)
    own = slopes.astype(fbar.dtype)[:, :, None]
    last = np.zeros(len(splits) + 1, np.int32)  # the row of each split; the last: above the root
    for found, at, above in ((last, splits, split_above), (place, leaf, leaf_above)):
        for k, (node, split) in enumerate(zip(at, above, strict=True)):
            found[k] = last[split]
            if reached[node]:
                rows[first] = rows[last[split]] + own[node] * bar[node]
                found[k] = first
                first += 1
    return first


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
    G="float64 M columns",
    H="float64 M columns",
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
) -> None:
    """out (M, B) = `node_outputs` of `node_steps`, from sums of g and h over leaves, G and H (M, B).

    The native kernel computes what is the same in all columns once.
    """
    s = np.empty((len(l2), len(lam)))
    node_steps(leaf, depths, splits, children, l2, bounds, lam, G, H, s)
    order = rounds, nodes, lower_edges, lower, upper_edges, upper
    node_outputs(*order, source, own, share, value, s, out)


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
