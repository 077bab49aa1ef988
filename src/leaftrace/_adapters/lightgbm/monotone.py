"""Monotone constraints of a LightGBM model, which bound the outputs of its nodes.

With monotone_constraints_method="basic" every monotone split puts the mean output of its children
between its two sides: see _model/node_trees.py. Splits of categories are free, but the outputs of
their children are bounded.

With "intermediate" the output of the one child bounds the other side instead, and each new pair of
leaves also bounds those leaves across a monotone split above it that are next to it: `_Growth`.
monotone_penalty changes gains alone, so only which splits there are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..._data.arrays import Ints
from ..._model.node_trees import NO_BOUNDS, NodeTree, midpoint_bounds
from .model import ParsedModel, Tree

METHODS = ("basic", "intermediate")  # that are replayed


def directions(params: dict[str, Any]) -> Ints:
    """1, -1 or 0 for each of the first columns; empty if none is constrained."""
    found = re.findall(r"-?\d+", str(params.get("monotone_constraints", "")))
    numbers = np.array([int(v) for v in found], np.int64)
    return numbers if numbers.any() else numbers[:0]


def split_signs(parsed: ParsedModel, tree: Tree) -> Ints:
    """(L - 1,) 1 if outputs rise from the left to the right of a split, -1 if they fall, else 0."""
    direction = np.zeros(len(parsed.categories), np.int64)
    given = directions(parsed.params)
    direction[: len(given)] = given
    return np.where(tree.categorical, 0, direction[tree.features])


def constrained_tree(parsed: ParsedModel, tree: Tree) -> NodeTree:
    """The nodes of a tree, with the bounds that its monotone splits give."""
    sign = split_signs(parsed, tree)
    if parsed.params.get("monotone_constraints_method", "basic") == "basic":
        lower, upper = midpoint_bounds(NodeTree(tree.children), sign)
    else:
        lower, upper = _Growth(tree, sign).bounds()
    return NodeTree(tree.children, None, None, sign, lower, upper)


@dataclass
class _NewPair:
    """The children of a new split on the way through the tree, from one node to the next.

    ``steps``  (feature, threshold, whether it came from the right) of the splits it went up over
    """

    split: int
    left: int
    right: int
    steps: list[tuple[int, float, bool]] = field(default_factory=list)


class _Growth:
    """The growth of a tree, split by split: split i is the i-th, and bounds hold from then on.

    ``low``, ``high``: for each node the nodes whose outputs bound it while it is a leaf.
    """

    def __init__(self, tree: Tree, sign: Ints) -> None:
        self.tree = tree
        self.sign = sign.tolist()
        self.children = tree.children.tolist()
        self.parent = tree.parent.tolist()
        self.features = tree.features.tolist()
        self.thresholds = tree.thresholds.tolist()
        self.categorical = tree.categorical.tolist()
        self.low: list[list[int]] = [[] for _ in self.parent]
        self.high: list[list[int]] = [[] for _ in self.parent]

    def bounds(self) -> tuple[Ints, Ints]:
        """Lower and upper bounds (P, 3) of nodes, as `NodeTree` takes them.

        The outputs of two children are bounded as their split was while it was a leaf.
        """
        lower: list[tuple[int, int, int]] = []
        upper: list[tuple[int, int, int]] = []
        monotone = [False] * len(
            self.parent
        )  # whether a split above is monotone, or the node's own
        for split, pair in enumerate(self.children):
            lower += [(child, a, a) for child in pair for a in self.low[split]]
            upper += [(child, a, a) for child in pair for a in self.high[split]]
            monotone[split] |= self.sign[split] != 0
            if not monotone[split]:
                continue
            for child in pair:
                monotone[child] = True
                self.low[child] = list(self.low[split])
                self.high[child] = list(self.high[split])
            self._bound_pair(split)
            self._go_up(split, _NewPair(split, *pair))
        return _array(lower), _array(upper)

    def _bound_pair(self, split: int) -> None:
        """Bound the children of a monotone split by each other."""
        below, above = self.children[split]
        if self.sign[split] < 0:
            below, above = above, below
        if self.sign[split]:
            self.high[below].append(above)
            self.low[above].append(below)

    def _go_up(self, node: int, new: _NewPair) -> None:
        """Follow the path from a new split to the root, and bound leaves across monotone splits."""
        while (above := self.parent[node]) >= 0:
            from_right = self.children[above][1] == node
            feature = self.features[above]
            # Where the path has left this feature on the same side before, other leaves are nearer.
            left_before = any(f == feature and side == from_right for f, _, side in new.steps)
            if not self.categorical[above] and not left_before:
                if self.sign[above]:
                    other = self.children[above][0 if from_right else 1]
                    rises = self.sign[above] > 0
                    self._go_down(other, new, rises == from_right, True, True)
                new.steps.append((feature, self.thresholds[above], from_right))
            node = above

    def _go_down(
        self, node: int, new: _NewPair, as_upper: bool, by_left: bool, by_right: bool
    ) -> None:
        """Bound the leaves below a node that are next to the new pair.

        ``as_upper``           whether the new outputs are upper bounds
        ``by_left, by_right``  which of the two children they are next to
        """
        if node >= len(self.children) or node > new.split:  # a leaf at that time
            bounds = self.high if as_upper else self.low
            bounds[node] += [new.left] * by_left + [new.right] * by_right
            return
        go_left = True
        go_right = True
        left_sees_right = True
        right_sees_left = True
        if not self.categorical[node]:
            threshold = self.thresholds[node]
            for feature, other, side in new.steps:
                if feature == self.features[node]:
                    go_right &= side or threshold < other
                    go_left &= not side or threshold > other
            if self.features[node] == self.features[new.split]:
                right_sees_left = threshold < self.thresholds[new.split]
                left_sees_right = threshold > self.thresholds[new.split]
        left, right = self.children[node]
        if go_left:
            self._go_down(left, new, as_upper, by_left, by_right and left_sees_right)
        if go_right:
            self._go_down(right, new, as_upper, by_left and right_sees_left, by_right)


def _array(bounds: list[tuple[int, int, int]]) -> Ints:
    """(P, 3) a list of bounds, each once."""
    return np.array(sorted(set(bounds)), np.int64).reshape(-1, 3) if bounds else NO_BOUNDS
