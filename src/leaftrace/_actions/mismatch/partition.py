"""Groups of training rows whose weight `mismatch` may change.

They are made by the values of columns and of the label, or are the leaves of a small tree over
them. Training and test rows are grouped together, so that their shares can be compared.

The tree splits where the slopes of a loss in the weights differ most: for a node with rows of
weight w_i and slope r_i,

    gain = S_left^2 / W_left + S_right^2 / W_right - S^2 / W,     W = sum w_i,  S = sum w_i r_i
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.frames import to_numpy
from ..._data.grouping import MISSING, Groups, as_text, bin_edges, column, groups_of_values

TREE_BINS = 32


@dataclass(frozen=True)
class Partition:
    """Groups of training and test rows.

    ``names``       (G,)
    ``train`` (n,)  number of the group of each training row
    ``test`` (m,)   number of the group of each test row; -1: no training row is like it
    """

    names: list[str]
    train: Ints
    test: Ints


@dataclass(frozen=True)
class GroupedColumn:
    """A column of training and test rows together, cut into groups.

    ``groups``  of the n + m rows
    ``lower``   for numbers, the lower bound of each group; None if groups have no order
    """

    groups: Groups
    lower: Sequence[float] | None

    @property
    def known(self) -> int:
        """Number of groups that are not `missing`, which stands last."""
        last = self.groups.names[-1]
        return len(self.groups) - (isinstance(last, str) and last == MISSING)


def label_column(y_train: Any, y_test: Any, name: str, bins: int, classes: bool) -> GroupedColumn:
    """The labels as a column. ``classes``: they have no order."""
    return _cut(to_numpy(y_train), to_numpy(y_test), name, bins, ordered=not classes)


def table_column(X_train: Any, X_test: Any, name: Any, bins: int) -> GroupedColumn:
    """A column of the tables, by its name or position."""
    x = column(X_train, name, "features")
    x_test = column(X_test, name, "features")
    title = str(name) if isinstance(name, str) else f"column {name}"
    return _cut(x, x_test, title, bins, ordered=True)


def _cut(x: Any, x_test: Any, name: str, bins: int, ordered: bool) -> GroupedColumn:
    """Cut values of training and test rows into groups. ``ordered``: values have an order."""
    edges = bin_edges(x, bins) if ordered else None
    groups = groups_of_values(np.concatenate([x, x_test]), edges, name)
    if edges is not None:  # training rows are in every bin, so the groups are the bins
        return GroupedColumn(groups, [-np.inf, *edges.tolist()])
    if not ordered or x.dtype.kind not in "iuf" or x_test.dtype.kind not in "iuf":
        return GroupedColumn(groups, None)
    return GroupedColumn(groups, [float(v) for v in groups.names if not isinstance(v, str)])


def by_values(columns: Sequence[GroupedColumn], n: int) -> Partition:
    """A group for each combination of values that training rows have."""
    codes = np.stack([c.groups.code for c in columns])  # (columns, n + m)
    kinds, first, train = np.unique(codes[:, :n], axis=1, return_index=True, return_inverse=True)
    number = {tuple(kind): g for g, kind in enumerate(kinds.T.tolist())}
    test = np.array(
        [number.get(tuple(kind), -1) for kind in codes[:, n:].T.tolist()], dtype=np.intp
    )
    names = [" and ".join(c.groups.phrase(c.groups.code[row]) for c in columns) for row in first]
    return Partition(names, train.reshape(n), test)


@dataclass(frozen=True)
class _Split:
    """A split of a node.

    ``at``     number of a group of the column
    ``below``  whether all groups up to it go left, or it alone
    """

    gain: float
    column: GroupedColumn
    at: int
    below: bool

    def left(self, rows: Ints) -> np.ndarray:
        """Which of these rows go left."""
        code = self.column.groups.code[rows]
        return code <= self.at if self.below else code == self.at

    def phrases(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(key, phrase) for the rows on the left and on the right.

        On a path through the tree, a later phrase replaces an earlier one of the same key.
        """
        groups = self.column.groups
        known = self.column.known
        by = groups.by
        if not self.below:
            here = groups.phrase(self.at)
            other = f"{by} is not {as_text(groups.names[self.at])}"
            if self.at < known and len(groups) == 2:
                other = groups.phrase(1 - self.at)
            return (here, here), (other, other)
        assert self.column.lower is not None
        edge = as_text(self.column.lower[self.at + 1])
        below = f"{by} < {edge}"
        above = f"{by} >= {edge}" + (" or missing" if known < len(groups) else "")
        if not groups.binned:  # a single value is named
            below = groups.phrase(0) if self.at == 0 else below
            above = groups.phrase(known - 1) if self.at + 2 == len(groups) else above
        return (f"{by} <", below), (f"{by} >=", above)


@dataclass(frozen=True)
class _Node:
    """A node of the tree.

    ``rows``   of training and test rows together
    ``path``   phrases of the splits above it, by their keys
    ``split``  the best one of this node, if there is one
    """

    rows: Ints
    path: dict[str, str]
    split: _Split | None


def by_tree(
    columns: Sequence[GroupedColumn], w: F64, slopes: F64, max_groups: int, min_rows: int
) -> Partition:
    """The leaves of a tree that is split where it gains most, until it has ``max_groups`` leaves.

    ``w, slopes`` (n,): of the training rows.
    """
    n = len(w)
    every = np.arange(len(columns[0].groups.code))

    def node(rows: Ints, path: dict[str, str]) -> _Node:
        inside = rows[rows < n]
        found = (_best_split(c, inside, w[inside], slopes[inside], min_rows) for c in columns)
        splits = [s for s in found if s is not None]
        return _Node(rows, path, max(splits, key=lambda s: s.gain, default=None))

    leaves = [node(every, {})]
    while len(leaves) < max_groups:
        gains = [0.0 if leaf.split is None else leaf.split.gain for leaf in leaves]
        best = int(np.argmax(gains))
        cut = leaves[best].split
        if cut is None:
            break
        parent = leaves.pop(best)
        left = cut.left(parent.rows)
        for side, (key, phrase) in zip((left, ~left), cut.phrases(), strict=True):
            leaves.append(node(parent.rows[side], {**parent.path, key: phrase}))
    code = np.empty(len(every), np.intp)
    for g, leaf in enumerate(leaves):
        code[leaf.rows] = g
    names = [" and ".join(leaf.path.values()) or "all rows" for leaf in leaves]
    return Partition(names, code[:n], code[n:])


def _best_split(
    column: GroupedColumn, rows: Ints, w: F64, slopes: F64, min_rows: int
) -> _Split | None:
    """The split of these training rows by this column that gains most; None if none gains."""
    G = len(column.groups)
    known = column.known
    code = column.groups.code[rows]
    ordered = column.lower is not None
    parts = (np.ones(len(rows)), w, w * slopes)
    sums = np.stack([np.bincount(code, x, G) for x in parts])  # (3, G): count, W, S
    total = sums.sum(axis=1, keepdims=True)
    left = sums.copy()  # each group alone
    if ordered:  # all groups up to each one, but missing alone
        left[:, :known] = np.cumsum(sums[:, :known], axis=1)
    right = total - left
    allowed = (np.minimum(left[0], right[0]) >= min_rows) & (left[1] > 0) & (right[1] > 0)
    if ordered:
        allowed[known - 1] = False  # all known groups: the same split as missing alone
    if not allowed.any():
        return None
    W = total[1]
    S = total[2]
    divisor = np.where(allowed, [left[1], right[1]], 1.0)
    gain = np.where(allowed, left[2] ** 2 / divisor[0] + right[2] ** 2 / divisor[1] - S**2 / W, 0.0)
    at = int(gain.argmax())
    if gain[at] <= 1e-9 * (w * slopes**2).sum():  # rounding
        return None
    return _Split(float(gain[at]), column, at, ordered and at < known)
