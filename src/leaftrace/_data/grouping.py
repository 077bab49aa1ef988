"""Groups of rows: by labels, or by a column of their table. A column of many numbers falls into bins of about equal
size; missing values are a group of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import F64, Ints
from .errors import InvalidInput
from .frames import plain as plain

MISSING = "missing"
FEW = 10  # a column of at most so many different numbers is taken value by value


@dataclass(frozen=True)
class Groups:
    """A partition of rows. Every group has rows, and groups stand in the order of their values."""

    names: NDArray[Any]  # (G,)
    code: Ints  # (n,) which group a row is in
    by: str = ""  # the column that makes them
    binned: bool = False  # names are bins of numbers

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def count(self) -> Ints:
        """(G,) rows of each group."""
        return np.bincount(self.code, minlength=len(self.names))

    def rows(self, g: int) -> Ints:
        return np.flatnonzero(self.code == g)

    def phrase(self, g: Any) -> str:
        """The name of a group with that of its column: `age in [40, 50)`, `town = Rome`, `town is missing`."""
        name = shown(self.names[g])
        if not self.by:
            return name
        if name == MISSING:
            return f"{self.by} is missing"
        if self.binned:
            return f"{self.by} in {name}" if name.startswith("[") else f"{self.by} {name}"
        return f"{self.by} = {name}"

    def take(self, index: Ints) -> Groups:
        """The groups of some of the rows."""
        used, code = np.unique(self.code[index], return_inverse=True)
        return Groups(self.names[used], code, self.by, self.binned)

    def sums(self, values: NDArray[Any]) -> F64:
        """(G, queries) totals of values (n, queries)."""
        out = np.empty((len(self.names), values.shape[1]))
        for j, column in enumerate(values.T):
            out[:, j] = np.bincount(self.code, column, minlength=len(self.names))
        return out

    def means(self, values: NDArray[Any]) -> F64:
        """(G, queries)."""
        return self.sums(values) / self.count[:, None]


@dataclass(frozen=True)
class Tables:
    """Where the columns of a result's rows and queries are found."""

    train: Any = None
    rows: Ints | None = None  # which rows of ``train`` the result is about; None: all
    test: Any = None
    reduced: bool = False  # the test rows are one query
    kind: str = ""  # of the tables that the result makes, by `_frames.kind`

    def train_groups(self, given: Any, n: int, bins: int) -> Groups:
        groups = groups_of(given, self.train, n, "groups", bins=bins)
        return groups.take(self.rows) if self.rows is not None and _is_name(given) else groups

    def test_groups(self, given: Any, m: int, bins: int) -> Groups:
        return groups_of(given, self.test, m, "test_groups", self.train, bins)


def groups_of(given: Any, table: Any, n: int, what: str, like: Any = None, bins: int = 5) -> Groups:
    """Groups of n rows, from a label for each or from the name of a column of their table.

    ``what``  the argument's name, for messages
    ``like``  a table whose column says where the bins are, so that training and test rows get the same ones
    """
    if _is_name(given):
        x = column(table, given, what)
        same = str(given) in map(str, column_names(like))
        return split(x, bin_edges(column(like, given, what) if same else x, bins), str(given))
    labels = plain(given)
    if labels.shape != (n,):
        raise InvalidInput(
            f"{what} has shape {labels.shape}; expected ({n},), a label for each row, or the name of a column."
        )
    return split(labels)


def _is_name(given: Any) -> bool:
    return isinstance(given, (str, int, np.integer))


def split(x: NDArray[Any], edges: F64 | None = None, by: str = "") -> Groups:
    """The groups of values x (n,): between edges, or value by value."""
    absent = is_missing(x)
    code = np.zeros(len(x), np.intp)
    if edges is not None:
        names, code[~absent] = np.unique(
            np.searchsorted(edges, x[~absent], side="right"), return_inverse=True
        )
        names = np.array([bin_name(edges, int(b)) for b in names], dtype=object)
    else:
        names, code[~absent] = _distinct(x[~absent])
    if absent.any():
        code[absent] = len(names)
        names = np.array([*names.tolist(), MISSING], dtype=object)
    return Groups(names, code, by, edges is not None)


def _distinct(x: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """Like np.unique with the inverse, also for values that do not compare with each other."""
    if x.dtype != object:
        return np.unique(x, return_inverse=True)
    values = list(dict.fromkeys(x.tolist()))
    try:
        values.sort()
    except TypeError:
        values.sort(key=lambda v: (type(v).__name__, str(v)))
    number = {value: i for i, value in enumerate(values)}
    names = np.empty(len(values), dtype=object)
    names[:] = values
    return names, np.array([number[v] for v in x.tolist()], dtype=np.intp)


def bin_edges(x: NDArray[Any], bins: int) -> F64 | None:
    """Ascending inner edges of bins [edge, next edge) with about equal numbers of rows; None: value by value.

    An edge lies between two neighbouring values, at the shortest number there is."""
    if bins < 2:
        raise InvalidInput(f"bins is {bins}; it is a number of bins, 2 or more.")
    if x.dtype.kind not in "iuf":
        return None
    values, count = np.unique(x[~is_missing(x)], return_counts=True)
    if len(values) <= FEW:
        return None
    share = np.cumsum(count[:-1]) / count.sum()  # of rows below the gap after each value
    gaps = np.unique([np.abs(share - q).argmin() for q in np.arange(1, bins) / bins])
    return np.array([_shortest(float(values[g]), float(values[g + 1])) for g in gaps])


def _shortest(low: float, high: float) -> float:
    """A number of few digits in (low, high]."""
    for digits in range(1, 17):
        for x in (high, (low + high) / 2):
            if low < (short := float(f"{x:.{digits}g}")) <= high:
                return short
    return high


def bin_name(edges: F64, b: int) -> str:
    if b == 0:
        return f"< {shown(edges[0])}"
    return (
        f">= {shown(edges[-1])}"
        if b == len(edges)
        else f"[{shown(edges[b - 1])}, {shown(edges[b])})"
    )


def shown(value: Any) -> str:
    return f"{value:.16g}" if isinstance(value, (float, np.floating)) else str(value)


def is_missing(x: NDArray[Any]) -> NDArray[np.bool_]:
    if x.dtype == object:
        return np.array([v is None or v != v for v in x.tolist()], dtype=bool)
    return (
        np.isnan(x)
        if x.dtype.kind == "f"
        else np.isnat(x)
        if x.dtype.kind in "mM"
        else np.zeros(x.shape, bool)
    )


def column_names(table: Any) -> list[Any]:
    """The columns of a table: their names, or their positions where they have none."""
    names = getattr(table, "column_names", getattr(table, "columns", None))
    if names is not None and not callable(names):
        return list(names)
    shape = getattr(table, "shape", None) or (
        np.shape(table) if isinstance(table, (list, tuple)) else ()
    )
    return list(range(shape[1])) if len(shape) == 2 and hasattr(table, "__getitem__") else []


def column(table: Any, name: Any, what: str) -> NDArray[Any]:
    """A column of a table by its name, or of a plain array by its position."""
    names = column_names(table)
    if not names:
        kind = (
            "this result does not know its table"
            if table is None
            else f"a {type(table).__name__} has no columns"
        )
        raise InvalidInput(
            f"{what} names the column {name!r}, but {kind}; pass a label for each row instead."
        )
    found = [c for c in names if c == name] or [c for c in names if str(c) == str(name)]
    if not found:
        shown = ", ".join(repr(c) for c in names[:8]) + (
            f" and {len(names) - 8} more" if len(names) > 8 else ""
        )
        raise InvalidInput(f"{what} names the column {name!r}, but the columns are {shown}.")
    if not hasattr(table, "column_names") and not hasattr(table, "columns"):
        x: Any = (table if hasattr(table, "shape") else np.asarray(table))[:, [found[0]]]
        return plain(x.toarray() if hasattr(x, "toarray") else x).ravel()
    return plain(table[found[0]])
