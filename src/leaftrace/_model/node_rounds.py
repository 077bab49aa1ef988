"""The order in which the outputs of nodes are computed, where they depend on other outputs.

See node_trees.py. Nodes of a round depend on nodes of earlier rounds alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints


class NodeOrder(NamedTuple):
    """The nodes that depend on others, as `kernels.node_outputs` takes them.

    ``rounds``       (R + 1,) where each round begins among the nodes
    ``nodes``        (K,)
    ``lower_edges``  (K + 1,) where the lower bounds of each node begin
    ``lower``        (., 2) the two nodes whose mean output each bound is
    ``upper_edges``, ``upper``  the same for upper bounds
    """

    rounds: NDArray[np.int64]
    nodes: NDArray[np.int32]
    lower_edges: NDArray[np.int64]
    lower: NDArray[np.int32]
    upper_edges: NDArray[np.int64]
    upper: NDArray[np.int32]

    def pair(self, bound: Ints) -> Ints:
        """(k, 2) the nodes of bounds, which are counted through the lower and then the upper ones."""
        return np.concatenate([self.lower, self.upper])[bound]


def node_order(source: Ints, share: F64, lower: Ints, upper: Ints) -> NodeOrder:
    """The nodes that depend on others, in the order in which they can be computed."""
    mixed = np.flatnonzero(share < 1)
    edges = [np.column_stack([mixed, source[mixed]])]
    edges += [bounds[:, [0, c]] for bounds in (lower, upper) for c in (1, 2)]
    node, before = np.concatenate(edges).T
    level = np.zeros(len(source), np.int64)
    while True:
        deeper = level.copy()
        np.maximum.at(deeper, node, level[before] + 1)
        if np.array_equal(deeper, level):
            break
        level = deeper
    nodes = np.flatnonzero(level)
    nodes = nodes[np.argsort(level[nodes], kind="stable")]
    rounds = np.cumsum(np.bincount(level[nodes], minlength=1))
    place = np.full(len(source), -1)
    place[nodes] = np.arange(len(nodes))
    bounds = (*_by_node(place, lower, len(nodes)), *_by_node(place, upper, len(nodes)))
    return NodeOrder(rounds, nodes.astype(np.int32), *bounds)


def _by_node(place: Ints, bounds: Ints, count: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Bounds (., 3) in the order of their nodes: where those of each begin, and their pairs (., 2)."""
    at = place[bounds[:, 0]]
    edges = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=count))])
    return edges, np.ascontiguousarray(bounds[np.argsort(at, kind="stable"), 1:], np.int32)
