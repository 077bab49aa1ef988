"""Growth of trees with monotone_constraints_method="advanced".

The bounds of a leaf are functions of each column: a leaf across a monotone split bounds only the part
of the column in which the two are next to each other. The children of a split take the bounds of
their own part. When a new pair of leaves touches a leaf, its bounds are put together again, from the
outputs of all leaves that are next to it by then.

LightGBM's way has five peculiarities, which are repeated here:

- the part of a right child begins with the bin of the split, which the left child has, too;
- if new pairs touch a leaf both from below and from above, only the lower bounds are put together
  again;
- where missing values go right although they could go left, the left child has the bounds of the
  first bin of the column, the right child those of all bins;
- splits of categories have the bounds of method "intermediate";
- a leaf of missing values alone has no bins, but its bound may hold in some (see `_PartsOf._held`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._data.arrays import F64, Ints
from .growth import Growth, Step, Touch
from .model import MISSING_NOTHING, Tree

Place = tuple[float, int]  # the bin of a threshold, or the bin after it
SIX_DIGITS = 2e-5  # of recorded outputs of splits, relative
START: Place = (float("-inf"), 0)
END: Place = (float("inf"), 0)


class Part(NamedTuple):
    """A node whose output bounds a leaf in the bins from ``start`` to before ``end`` of a column."""

    node: int
    start: Place = START
    end: Place = END


Parts = list[Part]


class AdvancedGrowth(Growth):
    """The growth of a tree, with bounds of leaves by column.

    ``parts``  for each node, by column: the lower and the upper bounds it has while it is a leaf.
               Columns are those that a split at or below the node compares.
    """

    def __init__(self, tree: Tree, sign: Ints, lowest: F64) -> None:
        super().__init__(tree, sign, lowest)
        below: list[set[int]] = [set() for _ in self.parent]
        for split in reversed(range(len(self.children))):
            left, right = self.children[split]
            below[split] = below[left] | below[right]
            if not self.categorical[split]:
                below[split].add(self.features[split])
        self.parts: list[dict[int, tuple[Parts, Parts]]] = [
            {f: ([], []) for f in sorted(features)} for features in below
        ]
        missing_right = ~tree.default_left & (tree.missing != MISSING_NOTHING)
        self.missing_right = missing_right.tolist()
        self.recorded = np.append(tree.split_values, tree.values)

    def bounds_of_side(self, split: int, side: int) -> tuple[list[int], list[int]]:
        """The nodes that bound one child of a split from below and from above."""
        if self.categorical[split]:
            return super().bounds_of_side(split, side)
        own = self.thresholds[split]
        found: list[list[int]] = []
        for as_upper, parts in enumerate(self.parts[split][self.features[split]]):
            if not self.missing_right[split]:
                kept = [p for p in parts if (p.end > (own, 1) if side else p.start <= (own, 0))]
            elif side:
                kept = parts
            else:
                kept = [p for p in parts if self._in_first_bin(p, split, bool(as_upper))]
            found.append([p.node for p in kept])
        return found[0], found[1]

    def _in_first_bin(self, part: Part, split: int, as_upper: bool) -> bool:
        """Whether a part begins with the first bin of the column of a split.

        A part that begins with the bin of a split may do so. The model does not say which thresholds
        are of first bins: they can be no other than the smallest, and not those where the left child
        of the split is beyond the bound.
        """
        if part.start != (self.lowest[self.features[split]], 0):
            return part.start == START
        child = self.recorded[self.children[split][0]]
        bound = self.recorded[part.node]
        beyond = child - bound if as_upper else bound - child
        return bool(beyond <= SIX_DIGITS * abs(bound))

    def inherit(self, split: int, child: int) -> None:
        """Give a new leaf the bounds of the split above it."""
        super().inherit(split, child)
        for feature in self.parts[child]:
            low, high = self.parts[split][feature]
            self.parts[child][feature] = (list(low), list(high))

    def add(self, node: int, new: list[int], as_upper: bool) -> None:
        """Bound a leaf by these nodes, in all bins."""
        super().add(node, new, as_upper)
        for sides in self.parts[node].values():
            sides[as_upper].extend(Part(other) for other in new)

    def search_again(self, touches: list[Touch], split: int) -> None:
        """Put the bounds of touched leaves together again."""
        from_below = {touch.leaf for touch in touches if not touch.as_upper}
        for leaf in {touch.leaf for touch in touches}:
            as_upper = leaf not in from_below
            for feature, sides in self.parts[leaf].items():
                sides[as_upper][:] = _PartsOf(self, feature, as_upper, split).found(leaf)


class _PartsOf:
    """The search for the nodes that bound a leaf in the bins of a column, right after a split."""

    def __init__(self, growth: AdvancedGrowth, feature: int, as_upper: bool, split: int) -> None:
        self.growth = growth
        self.feature = feature
        self.as_upper = as_upper
        self.split = split
        self.parts: Parts = []
        # the highest bound from each place on, of lower bounds; of upper ones the lowest, with other sign
        self.steps = {START: float("-inf")}

    def _held(self, node: int, start: Place, end: Place) -> tuple[Place, Place]:
        """The place where the bound of a node is held that is found from a start to an end.

        A leaf of missing values alone has no bins. Its bound is held from its start to where the
        bounds that were found before change, if they change at its start, and otherwise at its end.
        """
        if start >= end and start not in self.steps:
            return end, end
        if start >= end:
            end = min((place for place in self.steps if place > start), default=END)
        for place in (start, end):
            if place not in self.steps and place != END:
                self.steps[place] = self.steps[max(p for p in self.steps if p < place)]
        value = self.growth.recorded[node] * (-1 if self.as_upper else 1)
        before = None
        for place in sorted(self.steps):
            if start <= place < end:
                self.steps[place] = max(value, self.steps[place])
            if self.steps[place] == before:
                del self.steps[place]
            else:
                before = self.steps[place]
        return start, end

    def found(self, leaf: int) -> Parts:
        """Go up from a leaf, and down across each monotone split that it is beside."""
        growth = self.growth
        start, end = START, END
        steps: list[Step] = []
        for above, from_right, can_be_near in growth.way_up(leaf, steps):
            threshold = growth.thresholds[above]
            if growth.features[above] == self.feature:
                if from_right:
                    start = max(start, (threshold, 0))
                else:
                    end = min(end, (threshold, 1))
            rises = growth.sign[above] > 0
            if can_be_near and growth.sign[above] and (rises != from_right) == self.as_upper:
                other = growth.children[above][0 if from_right else 1]
                across = growth.features[above] == self.feature
                self._go_down(other, start, end, steps, across)
        return self.parts

    def _go_down(
        self, node: int, start: Place, end: Place, steps: list[Step], across: bool
    ) -> None:
        """Note the leaves below a node that are next to the bins from ``start`` to before ``end``.

        ``across``: the monotone split between is on the same column.
        """
        growth = self.growth
        if growth.is_leaf(node, self.split):
            self.parts.append(Part(node, *self._held(node, start, end)))
            return
        go_left, go_right = growth.next_to(node, steps)
        is_own = not growth.categorical[node] and growth.features[node] == self.feature
        if go_left and go_right and growth.sign[node] and (across or not is_own):
            # The one side bounds more closely than the other.
            go_left = (growth.sign[node] > 0) == self.as_upper
            go_right = not go_left
        left, right = growth.children[node]
        after: Place = (growth.thresholds[node], 1)
        if go_left:
            self._go_down(left, start, min(end, after) if is_own else end, steps, across)
        if go_right:
            self._go_down(right, max(start, after) if is_own else start, end, steps, across)
