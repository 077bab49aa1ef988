"""path_smooth with bounds that depend on the order of splits: growth.py, advanced.py.

The numbers of rows are found split by split, in the order of growth, for then all outputs that bound
the next two are known.

When a new pair of leaves changes the bounds of another leaf, LightGBM searches its split again. Then
the outputs of its children lean on the leaf's step, not on its output.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._model.node_trees import NodeTree
from .advanced import AdvancedGrowth
from .growth import Growth, Touch
from .share_search import MAX_TRIALS, Bounds, ShareSearch


def searched_again(growth: Growth, search: ShareSearch) -> NDArray[np.bool_]:
    """(L - 1,) the splits that were searched again. Method "advanced" does so at any new bound."""
    S = len(search.tree.children)
    found = np.zeros(S, bool)
    always = isinstance(growth, AdvancedGrowth)
    for touch in growth.touches:
        if touch.leaf < S:
            found[touch.leaf] |= always or _is_closer(touch, search)
    return found


def _is_closer(touch: Touch, search: ShareSearch) -> bool:
    """Whether a new bound is closer than those that a leaf had."""
    if not touch.old:
        return True
    sign = -1 if touch.as_upper else 1
    new = max(touch.new, key=lambda node: sign * search.out[node])
    old = max(touch.old, key=lambda node: sign * search.out[node])
    error = search.accuracy[new] + search.accuracy[old]
    return bool(sign * (search.out[new] - search.out[old]) > error)


def grown_shares(search: ShareSearch, tree: NodeTree) -> F64:
    """(2 L - 1,) a of every node; from the recorded rows, if no numbers give the recorded outputs."""
    shares = search.rows / (search.rows + search.smooth)
    shares[0] = 1
    found = _GrownSearch(search, tree).solved()
    return shares if found is None else found


class _Choice(NamedTuple):
    """Shares (2,) of the children of a split, and the outputs (2,) that they give."""

    share: F64
    out: F64


class _GrownSearch:
    """The search in the order of growth.

    ``out``   (2 L - 1,) outputs that the choices so far give
    ``left``  for each split the choices that are left; None if they depend on earlier ones
    """

    def __init__(self, search: ShareSearch, tree: NodeTree) -> None:
        self.search = search
        self.tree = tree
        self.lower = _by_node(tree.lower, tree.n_nodes)
        self.upper = _by_node(tree.upper, tree.n_nodes)
        self.out = search.raw.copy()
        self.left: list[list[_Choice] | None] = [None] * len(tree.children)

    def solved(self) -> F64 | None:
        """(2 L - 1,) the shares, or None if there are none.

        If nothing fits a split, the choice for the split above it is taken back.
        """
        share = np.ones(self.tree.n_nodes)
        split = 0
        trials = 0
        while split < len(self.left):
            choices = self.left[split]
            if choices is None:
                choices = self.left[split] = self._choices(split)
            pair = self.tree.children[split]
            if choices:
                share[pair], self.out[pair] = choices[0]
                split += 1
                continue
            trials += 1
            if split == 0 or trials > MAX_TRIALS:
                return None
            above = int(self.tree.parent[split])
            self.left[above + 1 :] = [None] * (len(self.left) - above - 1)
            self.left[above] = (self.left[above] or [])[1:]
            split = above
        return share

    def _choices(self, split: int) -> list[_Choice]:
        """The choices for a split that give the recorded outputs, the likeliest first."""
        search = self.search
        pair = self.tree.children[split]
        on_step = self.tree.leans_on_step is not None and self.tree.leans_on_step[split]
        above = float(search.raw[split] if on_step else self.out[split])
        sides = [self._bounds(int(node)) for node in pair]
        low, high = np.array(sides).T  # (2,)
        found = []
        for n in search.candidates(split, above, sides):
            number = np.array([n, search.rows[split] - n])
            share = number / (number + search.smooth)
            mixed = share * search.raw[pair] + (1 - share) * above
            out = np.where(mixed < low, low, np.minimum(mixed, high))
            if np.all(np.abs(out - search.out[pair]) <= search.accuracy[pair]):
                found.append(_Choice(share, out))
        return found

    def _bounds(self, node: int) -> Bounds:
        """The bounds of a node, from the outputs so far."""
        low = [float(self.out[pair].mean()) for pair in self.lower[node]]
        high = [float(self.out[pair].mean()) for pair in self.upper[node]]
        return max(low, default=-np.inf), min(high, default=np.inf)


def _by_node(bounds: Ints, N: int) -> list[list[Ints]]:
    """The pairs of nodes of bounds (P, 3), for each of N nodes."""
    found: list[list[Ints]] = [[] for _ in range(N)]
    for node, a, b in bounds:
        found[node].append(np.array([a, b]))
    return found
