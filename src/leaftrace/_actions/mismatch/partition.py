"""Groups of training rows that `mismatch` may weigh up or down: by the values of columns and of the label, or as the
leaves of a small tree over them. Training and test rows are grouped together, so that shares can be compared.

The tree splits where the slopes of a loss in the weights differ most: for a node with rows of weight w_i and slope r_i,

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
    names: list[str]  # (G,)
    train: Ints  # (n,) group of each training row
    test: Ints  # (m,) group of each test row; -1: no training row is like it


@dataclass(frozen=True)
class Column:
    """A column of training and test rows together, cut into groups.

    ``lower``: for numbers, the lower bound of each group; None where groups have no order"""

    groups: Groups  # of n + m rows
    lower: Sequence[float] | None

    @property
    def known(self) -> int:
        """How many groups are not `missing`, which stands last."""
        last = self.groups.names[-1]
        return len(self.groups) - (isinstance(last, str) and last == MISSING)


def label_column(y_train: Any, y_test: Any, name: str, bins: int, classes: bool) -> Column:
    """``classes``: labels have no order."""
    return _cut(to_numpy(y_train), to_numpy(y_test), name, bins, ordered=not classes)


def table_column(X_train: Any, X_test: Any, name: Any, bins: int) -> Column:
    x = column(X_train, name, "features")
    x_test = column(X_test, name, "features")
    return _cut(
        x, x_test, str(name) if isinstance(name, str) else f"column {name}", bins, ordered=True
    )


def _cut(x: Any, x_test: Any, name: str, bins: int, ordered: bool) -> Column:
    edges = bin_edges(x, bins) if ordered else None
    groups = groups_of_values(np.concatenate([x, x_test]), edges, name)
    if edges is not None:  # the training rows alone have some in each bin, so groups are the bins
        return Column(groups, [-np.inf, *edges.tolist()])
    numbers = ordered and x.dtype.kind in "iuf" and x_test.dtype.kind in "iuf"
    return Column(
        groups, [float(v) for v in groups.names if not isinstance(v, str)] if numbers else None
    )


def by_values(columns: Sequence[Column], n: int) -> Partition:
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
    gain: float
    column: Column
    at: int  # a group of the column
    below: bool  # whether all groups up to it go left, or it alone

    def left(self, rows: Ints) -> np.ndarray:
        code = self.column.groups.code[rows]
        return code <= self.at if self.below else code == self.at

    def phrases(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """What is true left and right of it, each with a key: of two phrases of one key the later says it all."""
        groups = self.column.groups
        known = self.column.known
        by = self.column.groups.by
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
    rows: Ints  # of training and test rows together
    path: dict[str, str]
    split: _Split | None


def by_tree(
    columns: Sequence[Column], w: F64, slopes: F64, max_groups: int, min_rows: int
) -> Partition:
    """The leaves of a tree, grown where it gains most until it has ``max_groups``. w, slopes: (n,)."""
    n = len(w)
    every = np.arange(len(columns[0].groups.code))

    def node(rows: Ints, path: dict[str, str]) -> _Node:
        inside = rows[rows < n]
        splits = [_best_split(c, inside, w[inside], slopes[inside], min_rows) for c in columns]
        return _Node(
            rows,
            path,
            max((s for s in splits if s is not None), key=lambda s: s.gain, default=None),
        )

    leaves = [node(every, {})]
    while len(leaves) < max_groups:
        gains = [0.0 if leaf.split is None else leaf.split.gain for leaf in leaves]
        best = int(np.argmax(gains))
        if (cut := leaves[best].split) is None:
            break
        parent = leaves.pop(best)
        left = cut.left(parent.rows)
        (here, there) = cut.phrases()
        leaves += [
            node(parent.rows[side], {**parent.path, key: phrase})
            for side, (key, phrase) in ((left, here), (~left, there))
        ]
    code = np.empty(len(every), np.intp)
    for g, leaf in enumerate(leaves):
        code[leaf.rows] = g
    names = [" and ".join(leaf.path.values()) or "all rows" for leaf in leaves]
    return Partition(names, code[:n], code[n:])


def _best_split(column: Column, rows: Ints, w: F64, slopes: F64, min_rows: int) -> _Split | None:
    G = len(column.groups)
    known = column.known
    code = column.groups.code[rows]
    ordered = column.lower is not None
    sums = np.stack(
        [np.bincount(code, x, G) for x in (np.ones(len(rows)), w, w * slopes)]
    )  # (3, G): count, W, S
    # each group alone
    total = sums.sum(axis=1, keepdims=True)
    left = sums.copy()
    if ordered:  # all groups up to each, but missing alone
        left[:, :known] = np.cumsum(sums[:, :known], axis=1)
    right = total - left
    allowed = (np.minimum(left[0], right[0]) >= min_rows) & (left[1] > 0) & (right[1] > 0)
    if ordered:
        allowed[known - 1] = False  # all that are known: the same as missing alone
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
