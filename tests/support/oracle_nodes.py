"""Trees in which a leaf depends on other nodes, for the oracle: one plain walk from the root down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Node:
    """A node of a tree.

    ``leaf``   number of the leaf that it is, or None
    ``pair``   the nodes on both sides of its split
    ``sign``   1 if outputs rise from the first side to the second, -1 if they fall
    ``share``  part of its own step in its output; the rest is the output of the split above
    ``l2``     l2 of its step in addition to the others'
    """

    leaf: int | None = None
    pair: tuple = ()
    sign: int = 0
    share: float = 1.0
    l2: float = 0.0

    @property
    def smoothed(self):
        """Whether its output, or one below it, leans on another node."""
        return self.share < 1 or any(c.smoothed for c in self.pair)

    def outputs(self, step, L):
        """Return outputs (L,) of the leaves. ``step(node)`` is the step of all rows below a node."""
        return node_outputs(self, step, L)

    def leaves(self):
        """Return the numbers of the leaves below it."""
        return [self.leaf] if self.leaf is not None else [k for c in self.pair for k in c.leaves()]


def node_outputs(root, step, L):
    """Return outputs (L,) of the leaves. ``step(node)`` is the step of all rows below a node.

    Both sides of a split are kept within the bounds of the split. A monotone split then puts the
    mean of both outputs between everything on its one side and everything on the other."""
    out = np.zeros(L)

    def visit(node, output, low, high):
        if node.leaf is not None:
            out[node.leaf] = np.clip(output, low, high)  # moves it only if two sides have swapped
            return
        pair = [c.share * step(c) + (1 - c.share) * output for c in node.pair]
        pair = np.clip(pair, low, high)
        middle = pair.mean()
        lower, upper = node.pair if node.sign > 0 else reversed(node.pair)
        for child, own in zip(node.pair, pair, strict=True):
            bounds = (low, high)
            if node.sign and child is lower:
                bounds = (low, middle)
            elif node.sign and child is upper:
                bounds = (middle, high)
            visit(child, own, *bounds)

    visit(root, step(root), -np.inf, np.inf)
    return out


def tree_of(children, sign, root=0):
    """Return the root of a tree. ``children``: (left, right) of each split by its number.

    ``sign(split)`` gives the direction of a split; other numbers than splits are leaves."""
    if root not in children:
        return Node(leaf=root)
    pair = tuple(tree_of(children, sign, c) for c in children[root])
    return Node(pair=pair, sign=sign(root))
