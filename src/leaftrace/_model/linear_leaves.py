"""Leaves that are linear functions of columns, as LightGBM's `linear_tree` fits them.

The values of such a leaf are 2 + P numbers: c, b and slopes v. A row with the numbers x in the columns of
its leaf gets

    b + v . x      if x has no missing number in a column whose slope is not zero
    c              otherwise

c is a leaf value like any other. b and v minimise the same quadratic over the rows of the leaf without missing
numbers, see _engine/linear_steps.py. A leaf that is not fitted that way has b = c and v = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ids, Ints
from .._data.errors import UnsupportedModel

NO_SLOPE = 1e-35  # slopes that are not larger are zero


class LeavesWithColumns(np.ndarray):
    """Leaves (trees, m) of rows, with the columns (m, d) that linear leaves read.

    Some of the rows, x[:, rows], have their part of the columns. Any other view or copy has none, and where
    columns are needed `columns_of` raises an error, so that none can be mixed up.
    """

    columns: F64 | None = None

    def __array_finalize__(self, obj: Any) -> None:
        self.columns = None

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        takes_rows = isinstance(key, tuple) and len(key) == 2 and _is_everything(key[0])
        if not (takes_rows and isinstance(found, LeavesWithColumns)):
            return found
        if found.ndim == 2 and self.columns is not None:
            found.columns = self.columns[key[1]]
        return found


def _is_everything(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


def with_columns(leaves: Ids, columns: F64) -> LeavesWithColumns:
    """Leaves (trees, m) together with columns (m, d)."""
    found = np.asarray(leaves).view(LeavesWithColumns)
    found.columns = columns
    return found


def columns_of(leaves: Ids) -> F64:
    """(m, d) the columns that come with these leaves (trees, m)."""
    columns = getattr(leaves, "columns", None)
    if columns is None:
        refuse_linear("this question")
    return columns


def refuse_linear(what: str) -> NoReturn:
    """Raise an error about linear leaves. ``what``: is not for them."""
    raise UnsupportedModel(
        f"{what} is not for leaves that are linear functions of columns (linear_tree); use influence() with "
        "LeafInfluence(), LeafRefit() or Retrain(), label_influence(), score_candidates(), refit() or retrain()."
    )


def take_rows(leaves: Ids, index: Ints) -> Ids:
    """(trees, rows) leaves of some rows in one piece of memory, with the columns that they have."""
    taken = np.take(np.asarray(leaves), index, axis=1)  # eight times as fast as leaves[:, index]
    columns = getattr(leaves, "columns", None)
    return taken if columns is None else with_columns(taken, columns[index])


def in_one_piece(leaves: Ids) -> Ids:
    """Leaves (trees, m) in one piece of memory, with the columns that they have."""
    found = np.ascontiguousarray(leaves)
    columns = getattr(leaves, "columns", None)
    return found if columns is None else with_columns(found, columns)


def joined_rows(first: Ids, second: Ids) -> Ids:
    """(trees, rows of both) leaves of rows of two sets, with the columns that they have."""
    found = np.concatenate([np.asarray(first), np.asarray(second)], axis=1)
    if getattr(first, "columns", None) is None:
        return found
    return with_columns(found, np.concatenate([columns_of(first), columns_of(second)]))


def as_trained(leaves: Ids) -> Ids:
    """Leaves (trees, m) with the columns that they have as training reads them: in float32."""
    columns = getattr(leaves, "columns", None)
    if columns is None:
        return leaves
    return with_columns(leaves, columns.astype(np.float32).astype(np.float64))


@dataclass(frozen=True)
class LinearLeaves:
    """The linear functions of leaves, but for their values.

    ``used``    (leaves, P) the columns of each leaf, -1 after the last
    ``fitted``  (leaves,) whether a leaf is fitted as a linear function, if it has enough rows
    ``l2``      of slopes, the only one that functions have
    """

    used: Ints
    fitted: NDArray[np.bool_]
    l2: float

    def part(self, leaves: slice) -> LinearLeaves:
        """Some of the leaves."""
        return replace(self, used=self.used[leaves], fitted=self.fitted[leaves])

    def numbers(self, ids: Ids, columns: F64) -> F64:
        """(m, P) the numbers that leaves ids (m,) read of their rows; zero after the last one."""
        at = self.used[ids]
        return np.where(at >= 0, np.take_along_axis(columns, np.maximum(at, 0), axis=1), 0.0)

    def factors(self, ids: Ids, columns: F64, values: F64) -> F64:
        """(m, 2 + P) the derivatives of the outputs of rows in the values (leaves, 2 + P) of their leaves."""
        x = self.numbers(ids, columns)
        has_slope = values[ids, 2:] != 0
        missing = np.any(np.isnan(x) & has_slope, axis=1)
        out = np.empty((len(x), 2 + x.shape[1]))
        out[:, 0] = missing
        out[:, 1] = ~missing
        out[:, 2:] = np.where(missing[:, None] | np.isnan(x), 0.0, x)
        return out

    def outputs(self, ids: Ids, columns: F64, values: F64) -> F64:
        """(m,) the outputs of rows in leaves ids (m,), summed in the order of the columns."""
        factors = self.factors(ids, columns, values)
        own = values[ids]
        out = np.where(factors[:, 0] > 0, own[:, 0], own[:, 1])
        for p in range(2, own.shape[1]):
            out += np.where(own[:, p] != 0, own[:, p] * factors[:, p], 0.0)
        return out
