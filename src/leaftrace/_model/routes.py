"""The comparisons at the inner nodes of trees, which decide in which leaf a row falls.

Every library compares in a way of its own. Adapters bring all of them into one form: a value that is
at most the threshold goes left. Where values are float32, ``value < threshold`` is ``value <=`` the
float32 number before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints

# Bits of `NodeRoutes.flags`.
MISSING_LEFT = 1  # missing values (NaN) go left; without it, right
ZERO_MISSING = 2  # numbers up to 1e-35 in size are missing, too
BY_CATEGORY = 4  # categories in the node's set go left, others right


@dataclass(frozen=True)
class NodeRoutes:
    """The comparisons of one tree with N inner nodes and N + 1 leaves.

    Slots number its nodes as in `TreeNodes`: inner nodes are 0 .. N - 1, parents before their
    children, and the leaf with number l is slot N + l.

    ``children``    (N, 2) slots of the left and the right child
    ``column``      (N,) column that is compared
    ``threshold``   (N,) values at most that go left; not used where categories are compared
    ``flags``       (N,) sums of the bits above
    ``categories``  (N,) for each node the categories that go left, as 32 bits a word; None if no
                    node compares categories
    """

    children: NDArray[np.int32]
    column: NDArray[np.int32]
    threshold: F64
    flags: NDArray[np.uint8]
    categories: Sequence[NDArray[np.uint32]] | None = None


@dataclass(frozen=True)
class Routes:
    """The comparisons of all trees of a model, joined as the kernel takes them.

    ``edges``   (R + 1,) inner nodes of each tree in the list of all N inner nodes
    ``words``   (N + 1,) words of each node in ``bits``
    """

    edges: NDArray[np.int64]
    column: NDArray[np.int32]
    threshold: F64
    children: NDArray[np.int32]
    flags: NDArray[np.uint8]
    words: NDArray[np.int64]
    bits: NDArray[np.uint32]


@dataclass(frozen=True)
class LevelRoutes:
    """The comparisons of symmetric trees, in which all nodes of a level compare the same.

    Level k of a tree decides bit k of the leaf's number, which is set for values above the threshold,
    both as float32.

    ``edges``      (R + 1,) levels of each tree in the list of all levels
    ``column``     (levels,) column that is compared
    ``threshold``  (levels,)
    ``above``      (columns of a table,) 1 where missing values are above all thresholds, otherwise 0
    """

    edges: NDArray[np.int64]
    column: NDArray[np.int32]
    threshold: F64
    above: NDArray[np.uint8]


def join_routes(trees: Sequence[NodeRoutes]) -> Routes:
    """Join the comparisons of single trees."""
    sizes = [len(tree.column) for tree in trees]
    nothing = np.zeros(0, np.uint32)
    sets: list[NDArray[np.uint32]] = []
    for tree in trees:
        sets += [nothing] * len(tree.column) if tree.categories is None else tree.categories
    return Routes(
        edges=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        column=_joined([tree.column for tree in trees], np.int32),
        threshold=_joined([tree.threshold for tree in trees], np.float64),
        children=_joined([tree.children.ravel() for tree in trees], np.int32).reshape(-1, 2),
        flags=_joined([tree.flags for tree in trees], np.uint8),
        words=np.concatenate([[0], np.cumsum([len(s) for s in sets])]).astype(np.int64),
        bits=_joined(sets, np.uint32),
    )


def _joined(arrays: Sequence[NDArray], kind: type) -> NDArray:
    """One array of all numbers in these, of this type."""
    return np.concatenate([np.zeros(0, kind), *arrays]).astype(kind)


def slots_of(left: Ints, right: Ints, leaf: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """Number the nodes of a tree by slots, where parents stand before their children.

    ``left``, ``right``  (nodes,) children of each node; node 0 is the root
    ``leaf``             (nodes,) number of the leaf that a node is, or -1 for inner nodes

    Returns the inner nodes (N,) in the order of their slots, and ``children`` (N, 2). Nodes that
    were cut off, to which no way leads, are left out.
    """
    waiting = np.zeros(1 if len(leaf) and leaf[0] < 0 else 0, np.int64)
    levels = [waiting]
    while len(waiting):
        below = np.concatenate([left[waiting], right[waiting]])
        waiting = below[leaf[below] < 0]
        levels.append(waiting)
    inner = np.concatenate(levels)
    slot = np.where(leaf < 0, 0, len(inner) + leaf)
    slot[inner] = np.arange(len(inner))
    return inner, np.stack([slot[left[inner]], slot[right[inner]]], axis=1).astype(np.int32)


def category_words(categories: Ints) -> NDArray[np.uint32]:
    """The set of these categories, as 32 bits a word."""
    words = np.zeros(int(categories.max(initial=-1)) // 32 + 1, np.uint32)
    np.bitwise_or.at(words, categories // 32, np.uint32(1) << (categories % 32).astype(np.uint32))
    return words
