"""Trees of LightGBM with monotone_constraints_method="advanced", for the oracle, by their boxes.

A leaf holds its bounds for each column, each with the interval of that column in which it acts: the
interval that its box has in common with the other leaf's, or its own if the monotone split between
the two is on that very column. The left side of a split takes all bounds that begin before it, also
those that end before the leaf begins; the right side all that end after it. When a new pair of leaves
touches a leaf, its lower bounds are made again from the leaves that are beside it then; its upper
bounds, if only they were touched.
"""

from __future__ import annotations

import numpy as np
from lightgbm_growth import RIGHT, GrownTree, overlap

EVERYWHERE = (-np.inf, np.inf)
CATEGORIES = None  # the bounds of splits of categories, which are never made again


def columns_of(content):
    if "split_index" not in content:
        return set()
    own = {content["split_feature"]} if content["decision_type"] == "<=" else set()
    return own | columns_of(content["left_child"]) | columns_of(content["right_child"])


class AdvancedTree(GrownTree):
    """A dumped tree that is grown again: bounds are lists of (node, interval) by column."""

    def root(self):
        root = super().root()
        keys = [CATEGORIES, *columns_of(self.content)]
        root.lower = {key: [] for key in keys}
        root.upper = {key: [] for key in keys}
        self.touched = {}
        return root

    def bounds_of(self, node, side):
        return tuple(self.reached(node, side, bounds) for bounds in (node.lower, node.upper))

    def reached(self, node, side, bounds):
        """Return the nodes whose bounds one side of a split has."""
        held = bounds[node.column]
        if node.column is CATEGORIES:
            return [other for other, _ in held]
        if node.content["missing_type"] != "None" and not node.content["default_left"]:
            # a scan from the left: the first bin for the left side, all for the right one
            return [other for other, (low, _) in held if side == RIGHT or low == -np.inf]
        at = node.content["threshold"]
        return [other for other, (low, high) in held if (high > at if side == RIGHT else low < at)]

    def add(self, leaf, kind, nodes):
        for held in getattr(leaf, kind).values():
            held.extend((node, EVERYWHERE) for node in nodes)

    def touch(self, leaf, kind, nodes):
        self.add(leaf, kind, nodes)
        leaf.searched_again = True
        self.touched.setdefault(id(leaf), (leaf, set()))[1].add(kind)

    def bound(self, node):
        self.touched = {}
        super().bound(node)
        for leaf, kinds in self.touched.values():
            kind = "lower" if "lower" in kinds else "upper"
            held = getattr(leaf, kind)
            for column in held:
                if column is not CATEGORIES:
                    held[column] = self.made_again(leaf, kind, column)

    def made_again(self, leaf, kind, column):
        """Return the bounds of a leaf in a column, from the leaves that are beside it now."""
        found = []
        passed = set()
        node = leaf
        while node.above is not None:
            side = node.side
            node = node.above
            if node.column is None or (node.column, side) in passed:
                continue
            passed.add((node.column, side))
            is_above = (self.sign(node) > 0) == (side == RIGHT)  # the leaf, above the others
            if self.sign(node) and is_above == (kind == "lower"):
                other = node.pair[1 - side]
                found += self.beside(other, leaf, kind, column, node.column)
        return found

    def beside(self, node, leaf, kind, column, across):
        """Return the leaves below a node that are beside a leaf, across a split on a column."""
        own = leaf.box.get(column, EVERYWHERE)
        if not node.pair:
            low, high = node.box.get(column, EVERYWHERE)
            common = (max(low, own[0]), min(high, own[1]))
            return [(node, own if column == across else common)]
        sides = [
            child
            for child in node.pair
            if all(overlap(child.box, leaf.box, k) for k in child.box if k != across)
        ]
        nearer_counts = node.column != column or column == across
        if len(sides) == 2 and self.sign(node) and nearer_counts:
            # of two sides of another monotone split, the one that is closer to the leaf
            sides = sides[:1] if (self.sign(node) > 0) == (kind == "upper") else sides[1:]
        return [
            bound for child in sides for bound in self.beside(child, leaf, kind, column, across)
        ]
