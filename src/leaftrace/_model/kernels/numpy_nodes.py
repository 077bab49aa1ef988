"""Steps whose leaves depend on other nodes, backwards: the twins of ``src/native/nodes.hpp``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Real
from .checks import check_numbers, checked, require

MOST_NODES = 1 << 30


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
