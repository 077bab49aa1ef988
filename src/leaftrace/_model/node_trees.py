"""Trees in which the value of a leaf depends on other nodes: smoothed along paths, or monotone.

Every node m, leaves included, has the step s_m of all rows below it. Its output is

    x = a_m s_m + (1 - a_m) o_above        path smoothing; a = 1 where there is none, and at the root
    o_m = x within its bounds              each bound is the mean (o_a + o_b) / 2 of two other outputs

and the value of a leaf is its output times the learning rate. Below some splits, x leans on s_above
instead of o_above (`NodeTree.leans_on_step`). A monotone split puts a bound between
its two sides: with *mid-points* everything on the lower side stays below the mean output of the two
children, everything on the other side above it (`midpoint_bounds`).

The outputs of two children are in order in a trained tree, because training refuses other splits.
With other rows they may swap; then a leaf among them takes their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints
from .kernels import kernels
from .leaf_rule import LeafRule
from .node_rounds import node_order
from .splits import TreeNodes

NO_BOUNDS = np.zeros((0, 3), np.int64)
FEW_LEAVES = 64  # of a step; their nodes are summed by a matrix


@dataclass(frozen=True)
class NodeTree:
    """The nodes of a tree of L leaves: splits are 0 .. L - 2, leaves L - 1 .. 2 L - 2.

    Leaves are in the order of the ensemble, and splits stand after the split above them.

    ``children``  (L - 1, 2) the nodes on the left and on the right of each split
    ``l2``        (N,) additional l2 of each node; None: none
    ``share``     (N,) a of each node; None: one
    ``sign``      (L - 1,) 1 if outputs rise from left to right of a split, -1 if they fall, 0 if
                  they are free
    ``lower``     (P, 3) a node, and two nodes whose mean output is a lower bound of its output
    ``upper``     the same for upper bounds
    ``leans_on_step``  (L - 1,) whether the nodes below a split lean on its step, not on its output;
                  None: nowhere
    """

    children: Ints
    l2: F64 | None = None
    share: F64 | None = None
    sign: Ints | None = None
    lower: Ints = field(default_factory=NO_BOUNDS.copy)
    upper: Ints = field(default_factory=NO_BOUNDS.copy)
    leans_on_step: NDArray[np.bool_] | None = None

    @property
    def n_nodes(self) -> int:
        return 2 * len(self.children) + 1

    @cached_property
    def parent(self) -> Ints:
        """(N,) the split above each node; the root has itself."""
        above = np.zeros(self.n_nodes, np.int64)
        above[self.children] = np.arange(len(self.children))[:, None]
        return above

    @cached_property
    def by_depth(self) -> list[Ints]:
        """The splits of each depth, from the root down."""
        S = len(self.children)
        found = []
        here = np.arange(min(S, 1))
        while len(here):
            found.append(here)
            below = self.children[here].ravel()
            here = below[below < S]
        return found


def monotone_tree(nodes: TreeNodes, direction: Ints) -> NodeTree:
    """The tree whose monotone splits keep their sides apart at mid-points.

    ``direction``: (d,) 1 for columns in which outputs rise, -1 where they fall, otherwise 0.
    """
    children = np.column_stack([nodes.left, nodes.right]).astype(np.int64)
    sign = direction[nodes.column]
    lower, upper = midpoint_bounds(NodeTree(children), sign)
    return NodeTree(children, sign=sign, lower=lower, upper=upper)


def midpoint_bounds(tree: NodeTree, sign: Ints) -> tuple[Ints, Ints]:
    """Lower and upper bounds (P, 3) of nodes, see `NodeTree`.

    A node has the bounds of the split above it. The nearest monotone split on each side decides,
    because the mean output of its children is within the bounds that both of them have.
    """
    bounds = np.full((2, tree.n_nodes, 2), -1)  # lower and upper: the two nodes, for nodes below it
    used = bounds.copy()  # for the node itself
    for splits in tree.by_depth:
        for side in (0, 1):
            child = tree.children[splits, side]
            used[:, child] = bounds[:, splits]
            bounds[:, child] = bounds[:, splits]
            # the right child of a rising split, or the left one of a falling split, is above the mean
            above = sign[splits] == (1 if side else -1)
            below = sign[splits] == (-1 if side else 1)
            bounds[0, child[above]] = tree.children[splits[above]]
            bounds[1, child[below]] = tree.children[splits[below]]
    lower, upper = (_listed(pairs) for pairs in used)
    return lower, upper


def _listed(pairs: Ints) -> Ints:
    """(P, 3) the nodes that have a pair (N, 2), with the pair."""
    nodes = np.flatnonzero(pairs[:, 0] >= 0)
    return np.column_stack([nodes, pairs[nodes]])


# ---- all nodes of a step ----


class StepNodes:
    """The nodes of all trees of a step, one tree after another.

    At the end stand further nodes without rows: the value of a leaf beside a monotone split is its
    output, or the mean of both sides if they have swapped. After them stand the outputs of splits
    whose nodes hold their steps, on which the nodes below them lean.

    ``leaf``    (M,) the node that each leaf is
    ``value``   (M,) the node whose output is its value
    ``source``  (N,) the node above, or the leaf whose value it is
    ``own``     (N,) the node with rows whose step it has
    ``share``   (N,)
    ``l2``      (N,)
    """

    def __init__(self, trees: Sequence[NodeTree]) -> None:
        offsets = np.cumsum([0, *[tree.n_nodes for tree in trees]])
        starts = offsets[:-1]
        self.with_rows = int(offsets[-1])
        self.l2 = _joined(trees, "l2", 0.0)
        self.leaf = np.concatenate(
            [
                np.arange(o + len(x.children), o + x.n_nodes)
                for o, x in zip(starts, trees, strict=True)
            ]
        )
        self._sums = _sum_order(trees, starts)
        shifts = list(zip(starts.tolist(), trees, strict=True))
        parent = np.concatenate([tree.parent + o for o, tree in shifts])
        lower = np.concatenate([tree.lower + o for o, tree in shifts])
        upper = np.concatenate([tree.upper + o for o, tree in shifts])
        high, low, pairs = _leaf_sides(trees, starts)
        extra = self.with_rows + np.arange(len(high) + len(low))
        at = np.concatenate([high, low])  # leaves whose value has a node of its own
        lower = np.concatenate([lower, np.column_stack([extra, pairs])[: len(high)]])
        upper = np.concatenate([upper, np.column_stack([extra, pairs])[len(high) :]])
        # splits whose step stays at their node, and whose output has a node of its own
        apart = np.concatenate([o + _apart(tree) for o, tree in shifts])
        share = _joined(trees, "share", 1.0)
        self.source = np.concatenate([parent, at, parent[apart]])
        self.share = np.concatenate([share, np.zeros(len(at)), share[apart]])
        self.share[apart] = 1
        self.N = len(self.source)
        self.own = np.concatenate([np.arange(self.with_rows), at, apart])
        output = np.arange(self.N)
        output[apart] = self.N - len(apart) + np.arange(len(apart))
        lower = output[lower]
        upper = output[upper]
        number = np.arange(self.N)
        number[at] = extra
        self.value = number[self.leaf]
        self.order = node_order(self.source, self.share, lower, upper)

    def with_l2(self, l2: F64) -> StepNodes:
        """The same nodes with another l2 (N,)."""
        other = copy(self)
        other.l2 = l2
        return other

    @property
    def smoothed(self) -> bool:
        """Whether outputs lean on those of the nodes above them."""
        return bool(np.any(self.share[: self.with_rows] < 1))

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """(M,) whether the value of a leaf may be at a bound."""
        depends = np.zeros(self.N, bool)
        depends[self.order.nodes] = True
        return depends[self.value]

    def node_sums(self, x: F64) -> F64:
        """(nodes with rows, ...) sums over the leaves below each node, of x (M, ...)."""
        if self._below is not None:
            return _product(self._below, x)
        out = np.zeros((self.with_rows, *x.shape[1:]), x.dtype)
        out[self.leaf] = x
        for splits, left, right in self._sums:
            out[splits] = out[left] + out[right]
        return out

    @cached_property
    def above(self) -> tuple[Ints, Ints, Ints]:
        """Splits from the roots down, and places among them of those above.

        (M,) of the split above each leaf, (S,) the nodes that are splits, (S,) of the split above
        each; -1 where there is none.
        """
        order = [np.zeros(0, np.int64), *[splits for splits, *_ in reversed(self._sums)]]
        splits = np.concatenate(order)
        place = np.full(self.with_rows, -1)
        place[splits] = np.arange(len(splits))
        source = self.source[splits]
        return place[self.source[self.leaf]], splits, np.where(source == splits, -1, place[source])

    @cached_property
    def _below(self) -> F64 | None:
        """(nodes with rows, M) 1 for the leaves below each node, for steps of few leaves.

        The product with it is faster there than the sums split by split, which give the same.
        """
        M = len(self.leaf)
        if M > FEW_LEAVES:
            return None
        below = np.zeros((self.with_rows, M))
        below[self.leaf, np.arange(M)] = 1
        for splits, left, right in self._sums:
            below[splits] = below[left] + below[right]
        return below

    def steps(
        self, rule: LeafRule, G: F64, H: F64, lam: F64 | float, slopes: bool = False
    ) -> NodeSteps:
        """The steps of all nodes from the sums G and H (M, B) over leaves; with slopes, if asked for."""
        columns = G.shape[1]
        shape = self.with_rows, columns
        found = NodeSteps(np.empty(shape), np.empty(shape) if slopes else None)
        kernels.node_steps(*self._summed(rule, G, H, lam, columns), found.s, found.slope)
        return found

    def _summed(
        self, rule: LeafRule, G: F64, H: F64, lam: F64 | float, columns: int
    ) -> tuple[Any, ...]:
        """The sums over leaves and their rule, as `kernels.node_steps` takes them."""
        every_lam = np.array(np.broadcast_to(lam, columns))
        sums = np.ascontiguousarray(G), np.ascontiguousarray(H)
        return *self._sum_arguments, self.l2, rule.bounds, every_lam, *sums

    def values(
        self,
        rule: LeafRule,
        G: F64,
        H: F64,
        lam: F64 | float,
        before: F64 | None = None,
        other: OtherSums | None = None,
    ) -> F64:
        """(M, B) outputs of the leaves from the sums G and H (M, B): `outputs` of `steps`.

        ``before``  (M,) outputs that are subtracted
        ``other``   leaves whose sums are these; G and H (M,) are those of all others, in every column
        """
        columns = G.shape[1] if other is None else other.ids.shape[1]
        out = np.empty((len(self.value), columns))
        sums = self._summed(rule, G, H, lam, columns)
        kernels.node_values(
            *sums, *self.order, *self._output_arguments, out, before, *(other or ())
        )
        return out

    def outputs(self, s: F64, active: ActiveBounds | None = None) -> F64:
        """(M, B) outputs of the leaves, from the steps s (nodes with rows, B).

        ``active`` takes note of what decides each output, if there is one column.
        """
        order = self.order
        out = np.empty((len(self.value), s.shape[1]))
        bound = None if active is None else np.empty(len(order.nodes), np.int32)
        kernels.node_outputs(*order, *self._output_arguments, s, out, bound)
        if active is not None and bound is not None:
            at = bound >= 0
            active.bind(order.nodes[at], order.pair(bound[at]))
        return out

    @cached_property
    def _sum_arguments(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The leaves, and splits with the nodes below them, as `kernels.node_steps` takes them."""
        depths = np.cumsum([0, *[len(splits) for splits, *_ in self._sums]])
        nothing = np.zeros(0, np.int64)
        splits, left, right = (
            np.concatenate([nothing, *[part[i] for part in self._sums]]) for i in range(3)
        )
        children = np.column_stack([left, right]).astype(np.int32)
        return self.leaf.astype(np.int32), depths, splits.astype(np.int32), children

    @cached_property
    def _output_arguments(self) -> tuple[Ints, Ints, F64, Ints]:
        """The nodes on which outputs depend, as `kernels.node_outputs` takes them."""
        source, own, value = (x.astype(np.int32) for x in (self.source, self.own, self.value))
        return source, own, self.share, value


def nodes_by_step(trees: Sequence[NodeTree], step_trees: Ints) -> list[StepNodes]:
    """The nodes of every step; step_trees (T + 1,) as in `Ensemble`."""
    edges = step_trees.tolist()
    return [StepNodes(trees[a:b]) for a, b in pairwise(edges)]


class OtherSums(NamedTuple):
    """Leaves (R, B) whose sums are not those of the other columns, and what they are, (R, B) each."""

    ids: NDArray[np.int32]
    G: F64
    H: F64


@dataclass(frozen=True)
class NodeSteps:
    """Steps of the nodes with rows, (N, B).

    ``slope``: their derivative in the sum of g, if asked for; times s it is that in the sum of h.
    """

    s: F64
    slope: F64 | None


class ActiveBounds:
    """The sources of each output of a step: own, rest and (a, b) of _engine/node_slopes.py."""

    def __init__(self, nodes: StepNodes) -> None:
        self.own = nodes.share.copy()
        self.rest = 1 - nodes.share
        self.pair = np.column_stack([nodes.source, nodes.source])  # (N, 2)

    def bind(self, nodes: Ints, pair: Ints) -> None:
        """Note that these nodes are at the bound that these pairs (k, 2) give."""
        self.own[nodes] = 0
        self.rest[nodes] = 1
        self.pair[nodes] = pair


def _product(a: F64, x: F64) -> F64:
    """The product of a (k, m) and x (m, ...), in the type of x."""
    return (a.astype(x.dtype) @ x.reshape(len(x), -1)).reshape(len(a), *x.shape[1:])


def _joined(trees: Sequence[NodeTree], name: str, default: float) -> F64:
    """(N,) a field of the nodes of all trees."""
    fields = [(getattr(tree, name), tree.n_nodes) for tree in trees]
    return np.concatenate([np.full(n, default) if x is None else x for x, n in fields])


def _apart(tree: NodeTree) -> Ints:
    """The splits on whose steps others lean."""
    return np.flatnonzero([] if tree.leans_on_step is None else tree.leans_on_step)


def _sum_order(trees: Sequence[NodeTree], starts: Ints) -> list[tuple[Ints, Ints, Ints]]:
    """(splits, left, right) of all trees, the deepest splits first."""
    depth = max(len(tree.by_depth) for tree in trees)
    order = []
    for d in reversed(range(depth)):
        pairs = zip(starts, trees, strict=True)
        here = [(o, x, x.by_depth[d]) for o, x in pairs if d < len(x.by_depth)]
        splits = np.concatenate([o + at for o, _, at in here])
        children = np.concatenate([o + x.children[at] for o, x, at in here])
        order.append((splits, children[:, 0], children[:, 1]))
    return order


def _leaf_sides(trees: Sequence[NodeTree], starts: Ints) -> tuple[Ints, Ints, Ints]:
    """Leaves on the upper and on the lower side of monotone splits, and the two sides (k, 2)."""
    high: list[Ints] = []
    low: list[Ints] = []
    for start, tree in zip(starts.tolist(), trees, strict=True):
        if tree.sign is None:
            continue
        for side in (0, 1):
            child = tree.children[:, side]
            is_leaf = child >= len(tree.children)
            rows = np.column_stack([child, tree.children]) + start
            high.append(rows[is_leaf & (tree.sign == (1 if side else -1))])
            low.append(rows[is_leaf & (tree.sign == (-1 if side else 1))])
    nothing = np.zeros((0, 3), np.int64)
    upper = np.concatenate([nothing, *high])
    lower = np.concatenate([nothing, *low])
    return upper[:, 0], lower[:, 0], np.concatenate([upper[:, 1:], lower[:, 1:]])
