"""Growth of trees with monotone_constraints_method="intermediate", split by split.

The output of one child of a monotone split bounds the other child. Each new pair of leaves also bounds
those leaves across a monotone split above it that are next to it. A bound holds for the children of a
leaf when it is split later; outputs that stand do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..._data.arrays import F64, Ints
from ..._model.node_trees import NO_BOUNDS
from .model import Tree


class Step(NamedTuple):
    """A split of numbers that a path goes up over."""

    feature: int
    threshold: float
    from_right: bool


class Touch(NamedTuple):
    """New bounds of a leaf: the nodes that give them, and those of the same kind that it had."""

    leaf: int
    as_upper: bool
    new: list[int]
    old: list[int]


@dataclass
class NewPair:
    """The children of a new split on the way through the tree, from one node to the next.

    ``steps``  the splits it went up over
    """

    split: int
    left: int
    right: int
    steps: list[Step] = field(default_factory=list)


class Growth:
    """The growth of a tree: split i is the i-th, and its bounds hold from then on.

    ``lowest``: (features,) smallest thresholds of the model.
    ``low``, ``high``: for each node the nodes whose outputs bound it while it is a leaf.
    ``touches``: all bounds that leaves got from new pairs across monotone splits, in order.
    """

    def __init__(self, tree: Tree, sign: Ints, lowest: F64) -> None:
        self.tree = tree
        self.lowest = lowest.tolist()
        self.sign = sign.tolist()
        self.children = tree.children.tolist()
        self.parent = tree.parent.tolist()
        self.features = tree.features.tolist()
        self.thresholds = tree.thresholds.tolist()
        self.categorical = tree.categorical.tolist()
        self.low: list[list[int]] = [[] for _ in self.parent]
        self.high: list[list[int]] = [[] for _ in self.parent]
        self.touches: list[Touch] = []

    def bounds(self) -> tuple[Ints, Ints]:
        """Lower and upper bounds (P, 3) of nodes, as `NodeTree` takes them.

        The outputs of two children are bounded as their split was while it was a leaf.
        """
        lower: list[tuple[int, int, int]] = []
        upper: list[tuple[int, int, int]] = []
        # whether a split above is monotone, or the node's own
        monotone = [False] * len(self.parent)
        for split, pair in enumerate(self.children):
            for side, child in enumerate(pair):
                low, high = self.bounds_of_side(split, side)
                lower += [(child, a, a) for a in low]
                upper += [(child, a, a) for a in high]
            monotone[split] |= self.sign[split] != 0
            if not monotone[split]:
                continue
            for child in pair:
                monotone[child] = True
                self.inherit(split, child)
            self._bound_pair(split)
            before = len(self.touches)
            self._go_up(split, NewPair(split, *pair))
            self.search_again(self.touches[before:], split)
        return _array(lower), _array(upper)

    def bounds_of_side(self, split: int, side: int) -> tuple[list[int], list[int]]:
        """The nodes that bound one child of a split from below and from above."""
        return self.low[split], self.high[split]

    def inherit(self, split: int, child: int) -> None:
        """Give a new leaf the bounds of the split above it."""
        self.low[child] = list(self.low[split])
        self.high[child] = list(self.high[split])

    def add(self, node: int, new: list[int], as_upper: bool) -> None:
        """Bound a leaf by these nodes."""
        bounds = self.high if as_upper else self.low
        bounds[node] += new

    def search_again(self, touches: list[Touch], split: int) -> None:
        """Change what changes when the splits of touched leaves are searched again: nothing here."""

    def is_leaf(self, node: int, split: int) -> bool:
        """Whether a node is a leaf right after this split."""
        return node >= len(self.children) or node > split

    def _bound_pair(self, split: int) -> None:
        """Bound the children of a monotone split by each other."""
        below, above = self.children[split]
        if self.sign[split] < 0:
            below, above = above, below
        if self.sign[split]:
            self.add(below, [above], True)
            self.add(above, [below], False)

    def way_up(self, node: int, steps: list[Step]) -> Iterator[tuple[int, bool, bool]]:
        """The splits of numbers above a node, from the nearest on.

        With each comes whether the node is on its right, and whether leaves across it can be next to
        the node: they cannot where the path has left this feature on the same side before. ``steps``
        gets those that can, each after it has been handled.
        """
        while (above := self.parent[node]) >= 0:
            from_right = self.children[above][1] == node
            feature = self.features[above]
            if not self.categorical[above]:
                passed = any(s.feature == feature and s.from_right == from_right for s in steps)
                yield above, from_right, not passed
                if not passed:
                    steps.append(Step(feature, self.thresholds[above], from_right))
            node = above

    def next_to(self, node: int, steps: list[Step]) -> tuple[bool, bool]:
        """Whether the left and the right side of a split are next to where these steps came from."""
        left = right = True
        if not self.categorical[node]:
            threshold = self.thresholds[node]
            for step in steps:
                if step.feature == self.features[node]:
                    right &= step.from_right or threshold < step.threshold
                    left &= not step.from_right or threshold > step.threshold
        return left, right

    def _go_up(self, node: int, new: NewPair) -> None:
        """Follow the path from a new split to the root, and bound leaves across monotone splits."""
        for above, from_right, can_be_near in self.way_up(node, new.steps):
            if can_be_near and self.sign[above]:
                other = self.children[above][0 if from_right else 1]
                rises = self.sign[above] > 0
                self._go_down(other, new, rises == from_right, True, True)

    def _go_down(
        self, node: int, new: NewPair, as_upper: bool, by_left: bool, by_right: bool
    ) -> None:
        """Bound the leaves below a node that are next to the new pair.

        ``as_upper``           whether the new outputs are upper bounds
        ``by_left, by_right``  which of the two children they are next to
        """
        if self.is_leaf(node, new.split):
            # LightGBM takes the left one if neither is next to it, which missing values can do.
            nodes = [new.left] * (by_left or not by_right) + [new.right] * by_right
            old = (self.high if as_upper else self.low)[node]
            self.touches.append(Touch(node, as_upper, nodes, list(old)))
            self.add(node, nodes, as_upper)
            return
        left_sees_right = True
        right_sees_left = True
        if not self.categorical[node] and self.features[node] == self.features[new.split]:
            right_sees_left = self.thresholds[node] < self.thresholds[new.split]
            left_sees_right = self.thresholds[node] > self.thresholds[new.split]
        go_left, go_right = self.next_to(node, new.steps)
        left, right = self.children[node]
        if go_left:
            self._go_down(left, new, as_upper, by_left, by_right and left_sees_right)
        if go_right:
            self._go_down(right, new, as_upper, by_left and right_sees_left, by_right)


def _array(bounds: list[tuple[int, int, int]]) -> Ints:
    """(P, 3) a list of bounds, each once."""
    return np.array(sorted(set(bounds)), np.int64).reshape(-1, 3) if bounds else NO_BOUNDS
