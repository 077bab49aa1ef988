"""Trees of LightGBM with monotone_constraints_method="intermediate", for the oracle, by their boxes.

Every node is a box: an interval of each column of numbers. The outputs of a new pair of leaves bound
each other, if their split is monotone, and the leaves across the nearest monotone split above, on each
side of each column, whose boxes overlap theirs in all other columns. If the new split is on that very
column, its farther side bounds only leaves that touch the split above.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

LEFT = 0
RIGHT = 1


@dataclass
class GrownNode:
    """A node of a dumped tree, with its box (column -> low, high) and the nodes that bound it."""

    content: dict
    above: object = None
    side: int = LEFT
    box: dict = field(default_factory=dict)
    pair: tuple = ()
    lower: list = field(default_factory=list)
    upper: list = field(default_factory=list)
    l2: float = 0.0
    monotone: bool = False  # whether a split above it is
    searched_again: bool = False  # because a new pair bounded it
    numbers: list | None = None  # of the leaves below it

    @property
    def column(self):
        """The column of its split, None for categories."""
        numerical = self.content.get("decision_type") == "<="
        return self.content["split_feature"] if numerical else None

    def leaves(self):
        if self.numbers is None:
            self.numbers = leaves_of(self.content)
        return self.numbers

    def grow(self):
        """Split it, as the dump says."""
        for side, name in enumerate(("left_child", "right_child")):
            box = dict(self.box)
            if self.column is not None:
                low, high = box.get(self.column, (-np.inf, np.inf))
                at = self.content["threshold"]
                box[self.column] = (low, at) if side == LEFT else (at, high)
            child = GrownNode(self.content[name], self, side, box, monotone=self.monotone)
            child.lower = copied(self.lower)
            child.upper = copied(self.upper)
            self.pair += (child,)

    @property
    def recorded(self):
        """The output that the model recorded."""
        return self.content.get("leaf_value", self.content.get("internal_value"))

    def current_leaves(self):
        """Return the leaves below it at this time."""
        return [self] if not self.pair else [x for c in self.pair for x in c.current_leaves()]


def copied(bounds):
    """Return a list of bounds, or lists by column, with lists of its own."""
    if isinstance(bounds, dict):
        return {column: list(held) for column, held in bounds.items()}
    return list(bounds)


def leaves_of(content):
    if "split_index" not in content:
        return [content.get("leaf_index", 0)]  # a tree without splits has no numbers
    return leaves_of(content["left_child"]) + leaves_of(content["right_child"])


class GrownTree:
    """A dumped tree that is grown again, split by split.

    ``smooth``      path_smooth, of a model in which every row has the same second derivative
    ``more_l2(split)``  l2 of both sides of a dumped split in addition to the others'
    """

    def __init__(self, content, directions, smooth=0.0, more_l2=None):
        self.content = content
        self.directions = directions
        self.smooth = smooth
        self.more_l2 = more_l2
        self.output = {}
        self.grown = None

    @property
    def smoothed(self):
        return self.smooth > 0

    def sign(self, node):
        return 0 if node.column is None else self.directions[node.column]

    def root(self):
        return GrownNode(self.content)

    def bounds_of(self, node, side):
        """Return the nodes that bound one child of a node from below and from above."""
        return node.lower, node.upper

    def outputs(self, step, L):
        """Return outputs (L,) of the leaves. ``step(node)`` is the step of all rows below a node.

        The tree grows once: what bounds a node is the same for other rows."""
        if self.grown is None:
            self.grow()
        root, bounds = self.grown
        self.output = {id(root): step(root)}
        for node in bounds:
            self.set_output(step, *node)
        return self.leaf_outputs(root, L)

    def grow(self):
        """Split leaves in the order of training, and note what bounds their children."""
        root = self.root()
        bounds = []
        while True:
            waiting = [x for x in root.current_leaves() if "split_index" in x.content]
            if not waiting:
                break
            node = min(waiting, key=lambda x: x.content["split_index"])
            node.grow()
            for child in node.pair:
                child.l2 = self.more_l2(node.content) if self.more_l2 else 0.0
                lower, upper = self.bounds_of(node, child.side)
                bounds.append((child, list(lower), list(upper)))
            self.bound(node)
        self.grown = root, bounds

    def set_output(self, step, node, lower, upper):
        """Compute the output of a node from its step, and from the outputs that bound it."""
        low = max([self.output[id(x)] for x in lower], default=-np.inf)
        high = min([self.output[id(x)] for x in upper], default=np.inf)
        self.output[id(node)] = np.clip(self.smoothed_step(step, node), low, high)

    def leaf_outputs(self, root, L):
        """Return the outputs (L,) of the leaves; two sides that have swapped meet in the middle."""
        out = np.zeros(L)
        for leaf in root.current_leaves():
            value = self.output[id(leaf)]
            sign = self.sign(leaf.above) if leaf.above else 0
            if sign:
                one, two = (self.output[id(x)] for x in leaf.above.pair)
                if sign * (two - one) < 0:
                    value = (one + two) / 2
            out[leaf.content.get("leaf_index", 0)] = value
        return out

    def smoothed_step(self, step, node):
        """Return the step of a node, mixed with the output of the split above, or with its step.

        The second is so where the split was searched for again."""
        if not self.smooth:
            return step(node)
        n = node.content.get("leaf_count", node.content.get("internal_count"))
        above = step(node.above) if node.above.searched_again else self.output[id(node.above)]
        return (n * step(node) + self.smooth * above) / (n + self.smooth)

    def bound(self, node):
        """Let the outputs of a new pair bound other leaves."""
        left, right = node.pair
        sign = self.sign(node)
        node.monotone |= sign != 0
        for child in node.pair:
            child.monotone = node.monotone
        if not node.monotone:
            return
        if sign:
            below, above = (left, right) if sign > 0 else (right, left)
            self.add(below, "upper", [above])
            self.add(above, "lower", [below])
        passed = set()
        while node.above is not None:
            side = node.side
            node = node.above
            if node.column is None or (node.column, side) in passed:
                continue
            passed.add((node.column, side))
            if self.sign(node):
                self.bound_across(node, side, left, right)

    def add(self, leaf, kind, nodes):
        """Bound a leaf by the outputs of these nodes."""
        getattr(leaf, kind).extend(nodes)

    def touch(self, leaf, kind, nodes):
        """Bound a leaf across a monotone split; it is searched again if its bound changes."""
        extreme = min if kind == "upper" else max
        old = [x.recorded for x in getattr(leaf, kind)]
        new = extreme(x.recorded for x in nodes)
        closer = abs(extreme([new, *old]) - extreme(old, default=np.inf))
        leaf.searched_again |= closer > 1e-5 * abs(new)  # outputs of splits have six digits
        self.add(leaf, kind, nodes)

    def bound_across(self, split, side, left, right):
        """Bound the leaves on the other side of a monotone split, by the new pair that is on ``side``."""
        column = split.column
        rises = self.sign(split) > 0
        # with the pair on the right of a rising split, the other leaves are below it
        kind = "upper" if rises == (side == RIGHT) else "lower"
        for leaf in split.pair[1 - side].current_leaves():
            found = []
            for new in (left, right):
                others = (set(leaf.box) | set(new.box)) - {column}
                if not all(overlap(leaf.box, new.box, k) for k in others):
                    continue
                is_far = left.above.column == column and new is (left if side == LEFT else right)
                if not is_far or touches(leaf, split, side):
                    found.append(new)
            if found:
                self.touch(leaf, kind, found)


def overlap(a, b, column):
    """Whether two boxes have common values of a column."""
    everything = (-np.inf, np.inf)
    low, high = a.get(column, everything)
    other_low, other_high = b.get(column, everything)
    return max(low, other_low) < min(high, other_high)


def touches(leaf, split, side):
    """Whether the box of a leaf begins, or ends, at a split; ``side`` is not the leaf's."""
    low, high = leaf.box[split.column]
    return (low if side == LEFT else high) == split.content["threshold"]
