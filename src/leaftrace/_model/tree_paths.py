"""The ways to the leaves of trees, and the weights of leaf values in SHAP values.

With trees and covers fixed, path-dependent TreeSHAP values a set S of players at a row x by

    v(S) = sum_l f_l prod_{p on the way to l} (o_p if p in S else z_p)

where o_p is 1 if x takes the side of leaf l at every split by p, and z_p is the product of the shares
of the cover on that side. A player is a feature, or several that the model combined. The SHAP value
of p is linear in the leaf values f; the weight of f_l in it is

    (o_p - z_p) * integral_0^1 prod_{q on the way to l, q != p} (t o_q + (1 - t) z_q) dt

which is Shapley's average over all orders of players. The product is a polynomial in t, so a
Gauss-Legendre rule with enough points is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints, Real
from .routes import BY_CATEGORY, MISSING_LEFT, ZERO_MISSING, NodeRoutes

_LARGEST_ZERO = float(np.float32(1e-35))
_CELLS_AT_ONCE = 2_000_000  # numbers in an array of rows, leaves and splits


@dataclass(frozen=True)
class PathTree:
    """A tree with N inner nodes and N + 1 leaves, numbered by slots as in `NodeRoutes`.

    ``children``  (N, 2) slots of the left and the right child
    ``player``    (N,) the player whose values the split compares
    ``cover``     (N + 1,) cover of each leaf, as the library has recorded it
    """

    children: NDArray[np.int32]
    player: Ints
    cover: F64

    @cached_property
    def _covers(self) -> F64:
        """(2 N + 1,) cover of each slot: that of an inner node is the sum over its children."""
        N = len(self.children)
        cover = np.append(np.zeros(N), self.cover)
        for node in range(N - 1, -1, -1):  # children stand after their parents
            cover[node] = cover[self.children[node]].sum()
        return cover

    @cached_property
    def ways(self) -> Ways:
        """The splits on the way to each leaf, joined by player."""
        N = len(self.children)
        parent = np.full(2 * N + 1, -1)
        parent[self.children] = np.arange(N)[:, None]
        is_left = np.zeros(2 * N + 1, bool)
        is_left[self.children[:, 0]] = True
        share = np.ones(2 * N + 1)
        below = self._covers[self.children]  # (N, 2)
        above = self._covers[:N, None]
        share[self.children] = np.divide(below, above, out=np.zeros_like(below), where=above > 0)
        slot = np.arange(N, 2 * N + 1)
        nodes = []
        sides = []
        shares = []
        while np.any(parent[slot] >= 0):  # a level up for all leaves; those at the root stay there
            moving = parent[slot] >= 0
            nodes.append(np.where(moving, parent[slot], -1))
            sides.append(is_left[slot])
            shares.append(np.where(moving, share[slot], 1.0))
            slot = np.where(moving, parent[slot], slot)
        return Ways.joined(self.player, nodes, sides, shares, N + 1)


@dataclass(frozen=True)
class Ways:
    """Splits on the ways to L leaves, at most D on each.

    ``node``    (L, D) the split; -1 beyond the root
    ``left``    (L, D) whether the way goes left there
    ``player``  (L, D) its player; -1 beyond the root
    ``first``   (L, D) the first place on the way with the same player
    ``share``   (L, D) z of the player at its first place, 1 at all other places
    """

    node: Ints
    left: NDArray[np.bool_]
    player: Ints
    first: Ints
    share: F64

    @classmethod
    def joined(
        cls,
        player: Ints,
        nodes: Sequence[Ints],
        sides: Sequence[NDArray[np.bool_]],
        shares: Sequence[F64],
        leaves: int,
    ) -> Ways:
        """Put together levels (L,) of the ways; ``player`` (N,) is that of each inner node."""
        if not nodes:
            nothing = np.zeros((leaves, 0), np.int64)
            return cls(nothing, nothing > 0, nothing, nothing, nothing.astype(float))
        node = np.stack(nodes, axis=1)
        of_way = np.append(player, -1)[node]  # (L, D); -1 takes the last
        first = np.argmax(of_way[:, :, None] == of_way[:, None, :], axis=2)
        share = np.ones(node.shape)
        every_leaf = np.arange(leaves)
        for d, ratio in enumerate(shares):
            share[every_leaf, first[:, d]] *= ratio
        return cls(node, np.stack(sides, axis=1), of_way, first, share)

    def agreement(self, left: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(m, L, D) o of each player at its first place, True at all other places.

        ``left``: (m, N) whether rows go left at each split.
        """
        m = len(left)
        out = np.ones((m, *self.node.shape), bool)
        every_leaf = np.arange(len(self.node))
        for d in range(self.node.shape[1]):
            agrees = (left[:, self.node[:, d]] == self.left[:, d]) | (self.node[:, d] < 0)
            out[:, every_leaf, self.first[:, d]] &= agrees
        return out

    def weights(self, left: NDArray[np.bool_], player: int) -> tuple[Ints, F64]:
        """Leaves (k,) with the player on their way, and the weights (m, k) of their values."""
        leaves = np.flatnonzero((self.player == player).any(axis=1))
        some = self._of_leaves(leaves)
        place = np.argmax(some.player == player, axis=1)
        every_leaf = np.arange(len(leaves))
        o = some.agreement(left)
        out = o[:, every_leaf, place] - some.share[every_leaf, place]
        z = some.share.copy()
        z[every_leaf, place] = 1.0
        o[:, every_leaf, place] = True
        players = int((some.first == np.arange(some.first.shape[1])).sum(axis=1).max(initial=1))
        points, size = np.polynomial.legendre.leggauss(players // 2 + 1)
        integral = np.zeros(out.shape)
        for t, w in zip((points + 1) / 2, size / 2, strict=True):
            integral += w * np.prod(np.where(o, t + (1 - t) * z, (1 - t) * z), axis=2)
        return leaves, out * integral

    def _of_leaves(self, leaves: Ints) -> Ways:
        """The ways to some of the leaves."""
        return Ways(
            self.node[leaves],
            self.left[leaves],
            self.player[leaves],
            self.first[leaves],
            self.share[leaves],
        )


@dataclass(frozen=True)
class TreePaths:
    """The trees of a model with the sides that some rows take at all splits.

    ``trees``    those of the `Ensemble`, in its order
    ``left``     gives for tree r and some rows (m', N) whether they go left at each split
    ``players``  for each player the numbers of its features: one, or several that it combines
    ``names``    of the features, or None
    """

    trees: Sequence[PathTree]
    left: Callable[[int, slice], NDArray[np.bool_]]
    players: Sequence[tuple[int, ...]]
    names: Sequence[str] | None = None

    def feature_weights(self, r: int, rows: slice, feature: int) -> F64:
        """(m', L) weights of the leaf values of tree r in the SHAP value of a feature, at some rows.

        The value of a combination is shared equally by its features.
        """
        tree = self.trees[r]
        left = self.left(r, rows)
        out = np.zeros((len(left), len(tree.cover)))
        at_once = max(1, _CELLS_AT_ONCE // max(1, tree.ways.node.size))
        for player in np.unique(tree.player):
            features = self.players[player]
            if feature not in features:
                continue
            for start in range(0, len(left), at_once):
                part = slice(start, start + at_once)
                leaves, weights = tree.ways.weights(left[part], int(player))
                out[part, leaves] += weights / len(features)
        return out


def paths_of_routes(
    routes: Sequence[NodeRoutes],
    cover: Sequence[F64],
    values: Real,
    names: Sequence[str] | None,
    columns: Ints | None = None,
) -> TreePaths:
    """The ways of rows through trees that are given by their comparisons.

    ``cover``    for each tree (L,) the cover of its leaves
    ``values``   (m, d) values that the splits compare
    ``columns``  (d,) the number of the feature that each of these is; None: its own
    """
    trees = [
        PathTree(tree.children, tree.column.astype(np.int64), leaves)
        for tree, leaves in zip(routes, cover, strict=True)
    ]
    features = range(values.shape[1]) if columns is None else columns.tolist()
    players = [(int(feature),) for feature in features]
    return TreePaths(trees, lambda r, rows: goes_left(routes[r], values[rows]), players, names)


def goes_left(tree: NodeRoutes, values: Real) -> NDArray[np.bool_]:
    """(m, N) whether rows with these values (m, d) go left at each split of a tree."""
    x = np.asarray(values)[:, tree.column].astype(np.float64)
    by_category = (tree.flags & BY_CATEGORY) > 0
    zero = ((tree.flags & ZERO_MISSING) > 0) & ~by_category & (np.abs(x) <= _LARGEST_ZERO)
    missing = np.isnan(x) | zero
    left = x <= tree.threshold
    for node in np.flatnonzero(by_category).tolist():
        assert tree.categories is not None
        left[:, node] = _in_set(x[:, node], tree.categories[node])
    return np.where(missing, (tree.flags & MISSING_LEFT) > 0, left)


def _in_set(x: F64, words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """(m,) whether categories are in a set of 32 bits a word."""
    inside = (x > -1) & (x < 32.0 * len(words))
    category = np.where(inside, x, 0).astype(np.int64)
    word = np.append(words, np.uint32(0))[category // 32].astype(np.int64)
    return inside & (word >> (category % 32) & 1 > 0)
