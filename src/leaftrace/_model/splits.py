"""The inner nodes of trees, and the splits that training could have chosen there.

Adapters make these from a model for methods that let splits change. Which candidates are compared
at a node follows from the values of the columns (`Source.split_columns`), put into bins by
_engine/split_bins.py, and from the limits here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64

# The candidate splits of a column:
#   "ordered"    a threshold; values at most that go left. There are no missing values, or an
#                infinite number stands for them.
#   "missing"    a threshold, with missing values on either side, and missing against the rest
#   "one-hot"    one category goes left
#   "sorted"     categories sorted by G / (H + l2) at the node; a threshold in that order
ColumnKind = Literal["ordered", "missing", "one-hot", "sorted"]


@dataclass(frozen=True)
class TreeNodes:
    """The N inner nodes of a tree with L leaves; N is L - 1, or zero for a tree without splits.

    Slots number all nodes of the tree: inner nodes are 0 .. N - 1, parents before their children,
    and the leaf with number l in the tree is slot N + l.

    ``left``    (N,) slot of the left child
    ``right``   (N,) slot of the right child
    ``column``  (N,) column of the split, or -1 if it is none of the columns that are compared
    ``choice``  (N,) number of the choice that split the node, from 0, in ascending order. Nodes
                that were split by one choice, as all nodes in a level of a symmetric tree, share
                its number; elsewhere each node has its own.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    column: NDArray[np.int32]
    choice: NDArray[np.int32]


@dataclass(frozen=True)
class SplitSearch:
    """How training chose the splits of an `Ensemble`'s trees.

    ``trees``            the inner nodes of each tree
    ``columns``          (d,) the kind of each column that is compared
    ``values``           (n, d) the columns of the training rows as training had them: categories
                         are numbers from 0, missing values are NaN
    ``by_weight``        gains divide by sums of weights: sum G^2 / (W + lam); otherwise by sums of
                         second derivatives: sum G^2 / (H + lam)
    ``min_rows``         rows drawn for the tree that each side of a split needs
    ``rows_estimated``   whether those rows are estimated: the side's part of the node's w h
    ``min_hessian``      sum of w h that each side needs, h being the loss's own; with ``by_weight``
                         it is a sum of w
    ``output_hessian``   sum of w h below which an output of a side has no gain and no value; 0: no limit
    ``category_l2``      additional l2 of splits of the kind "sorted"
    ``columns_sampled``  whether training drew the columns to compare at a node, tree or level
    ``joint``            whether the trees of a step are one tree with a vector in each leaf; then
                         they have the same nodes, and the gains of its outputs are added
    """

    trees: Sequence[TreeNodes]
    columns: Sequence[ColumnKind]
    values: F64
    by_weight: bool = False
    min_rows: float = 1.0
    rows_estimated: bool = False
    min_hessian: float = 0.0
    output_hessian: float = 0.0
    category_l2: float = 0.0
    columns_sampled: bool = False
    joint: bool = False


def nodes_of(
    left: NDArray[np.integer],
    right: NDArray[np.integer],
    column: NDArray[np.integer],
    leaf: NDArray[np.integer],
) -> TreeNodes:
    """The inner nodes of a tree given by its nodes' children.

    ``left``, ``right``  (nodes,) children of each node; node 0 is the root
    ``column``           (nodes,) column of each inner node's split
    ``leaf``             (nodes,) number of the leaf that a node is, or -1 for inner nodes
    """
    inner = []
    waiting = [0] if len(leaf) and leaf[0] < 0 else []
    while waiting:
        node = waiting.pop()
        inner.append(node)
        waiting += [int(child) for child in (right[node], left[node]) if leaf[child] < 0]
    order = np.asarray(inner, np.int64)
    slot = np.where(leaf < 0, 0, len(order) + leaf)
    slot[order] = np.arange(len(order))
    return TreeNodes(
        slot[left[order]].astype(np.int32),
        slot[right[order]].astype(np.int32),
        column[order].astype(np.int32),
        np.arange(len(order), dtype=np.int32),
    )
