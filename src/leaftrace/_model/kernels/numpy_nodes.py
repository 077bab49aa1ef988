"""Steps whose leaves depend on other nodes, backwards: the twin of ``src/native/nodes.hpp``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints, Real
from .checks import checked, require

MOST_NODES = 1 << 30


def _check_numbers(name: str, numbers: Ints, least: int, end: int) -> None:
    """Refuse numbers below `least`, or from `end` on."""
    is_right = bool(np.all((numbers >= least) & (numbers < end)))
    require(is_right, f"{name} is beyond its table")


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
    """out (M, 2, B) = derivatives in the sums of g and h over each leaf, from fbar (M, B) in its value.

    The derivatives in the outputs of nodes go back along ``nodes`` in their order: those of the two
    nodes in ``pair`` get ``half`` of them. A leaf's sums are then those of all nodes above it.

    ``value``, ``leaf``              the node of each leaf's value, -1 if it has none, and its own
    ``splits``                       nodes with others below them, each after the one above it
    ``leaf_above``, ``split_above``  place among them of the split above, -1 if there is none
    ``slopes``                       derivatives of the output of a node in its own sums
    """
    require(0 <= n_nodes <= MOST_NODES, "n_nodes is no number of nodes")
    require(len(slopes) <= n_nodes, "more slopes than nodes")
    _check_numbers("value", value, -1, n_nodes)
    _check_numbers("leaf", leaf, 0, len(slopes))
    _check_numbers("leaf_above", leaf_above, -1, len(splits))
    _check_numbers("splits", splits, 0, len(slopes))
    _check_numbers("split_above", split_above, -1, len(splits))
    is_after = np.all(split_above < np.arange(len(splits)))
    require(bool(is_after), "a split does not come after the one above it")
    _check_numbers("nodes", nodes, 0, n_nodes)
    _check_numbers("pair", pair, 0, n_nodes)
    bar = np.zeros((n_nodes, fbar.shape[1]), fbar.dtype)
    np.add.at(bar, value[value >= 0], fbar[value >= 0])
    for node, sources, share in zip(nodes, pair, half.astype(fbar.dtype), strict=True):
        for source in sources:
            bar[source] += share * bar[node]
    own = slopes.astype(fbar.dtype)[:, :, None]
    sums = np.zeros((len(splits) + 1, 2, fbar.shape[1]), fbar.dtype)  # the last: above the root
    for k, (node, above) in enumerate(zip(splits, split_above, strict=True)):
        sums[k] = own[node] * bar[node] + sums[above]
    out[...] = own[leaf] * bar[leaf][:, None] + sums[leaf_above]
