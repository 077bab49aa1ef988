"""The order in which the outputs of nodes are computed, where they depend on other outputs.

See node_trees.py. Nodes of a round depend on nodes of earlier rounds alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints


@dataclass(frozen=True)
class Round:
    """Nodes that are computed together. Pairs are filled up with nodes of infinite output."""

    nodes: Ints  # (k,)
    lower: Ints  # (k, P, 2)
    upper: Ints  # (k, P, 2)


def rounds(source: Ints, share: F64, lower: Ints, upper: Ints) -> list[Round]:
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
    groups = [np.flatnonzero(level == k) for k in range(1, level.max(initial=0) + 1)]
    N = len(source)
    return [Round(g, _padded(g, lower, N), _padded(g, upper, N + 1)) for g in groups]


def _padded(nodes: Ints, bounds: Ints, filler: int) -> Ints:
    """(k, P, 2) the pairs of these nodes among bounds (., 3), filled up with a node."""
    place = np.full(max(bounds[:, 0].max(initial=0), nodes.max()) + 1, -1)
    place[nodes] = np.arange(len(nodes))
    mine = bounds[place[bounds[:, 0]] >= 0]
    mine = mine[np.argsort(mine[:, 0], kind="stable")]
    counts = np.bincount(place[mine[:, 0]], minlength=len(nodes))
    out = np.full((len(nodes), max(1, counts.max(initial=0)), 2), filler)
    rank = np.arange(len(mine)) - np.searchsorted(mine[:, 0], mine[:, 0])
    out[place[mine[:, 0]], rank] = mine[:, 1:]
    return out


def chosen(pairs: Ints, which: Ints, kept: NDArray[np.bool_]) -> Ints:
    """(k, 2) the pair that decides, of nodes with pairs (n, P, 2), choices (n, 1) and a mask (n, 1)."""
    return np.take_along_axis(pairs, which[:, :, None], axis=1)[kept[:, 0], 0]
