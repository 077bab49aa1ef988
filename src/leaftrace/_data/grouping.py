"""Groups of rows: by labels, or by a column of their table.

A column of many different numbers is cut into bins of about equal size; missing values are a group
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import F64, Ints
from .errors import InvalidInput
from .frames import to_numpy
from .row_labels import aligned, labels_of

MISSING = "missing"
MAX_DISTINCT_NUMBERS = 10  # columns of at most this many different numbers are not binned
MAX_NAMES_IN_MESSAGE = 8


@dataclass(frozen=True)
class Groups:
    """A partition of rows into groups in the order of their values. No group is empty."""

    names: NDArray[Any]  # (G,)
    code: Ints  # (n,) number of each row's group
    by: str = ""  # name of the column that the groups come from
    binned: bool = False  # the names are bins of numbers

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def count(self) -> Ints:
        """(G,) number of rows in each group."""
        return np.bincount(self.code, minlength=len(self.names))

    def rows(self, g: int) -> Ints:
        """Positions of the rows of group g."""
        return np.flatnonzero(self.code == g)

    def phrase(self, g: Any) -> str:
        """Group and column in words: `age in [40, 50)`, `town = Rome`, `town is missing`."""
        name = as_text(self.names[g])
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
        """(G, queries) means of values (n, queries)."""
        return self.sums(values) / self.count[:, None]


@dataclass(frozen=True)
class SourceTables:
    """The tables that a result was computed from, to look up columns of its rows and queries."""

    train: Any = None
    rows: Ints | None = None  # the rows of ``train`` in the result; None: all
    test: Any = None
    reduced: bool = False  # the test rows are one query
    kind: str = ""  # of the tables that the result makes: see `frames.kind`
    labels: Any = None  # of all rows of ``train``; None: not known

    def label_of(self, i: int) -> Any:
        """The label of the result's training row i; None: not known."""
        if self.labels is None:
            return None
        return self.labels[i if self.rows is None else self.rows[i]]

    def train_groups(self, given: Any, n: int, bins: int) -> Groups:
        """Groups of the result's n training rows, by labels or by a column of ``train``."""
        if self.rows is None:
            return groups_of(given, self.train, n, "groups", bins=bins)
        if _is_name(given):
            return groups_of(given, self.train, n, "groups", bins=bins).take(self.rows)
        labels = labels_of(self.train)
        labels = None if labels is None else labels[self.rows]
        given = to_numpy(aligned(given, labels, "groups", "these rows of X_train"))
        return groups_of(given, self.train, n, "groups", bins=bins)

    def test_groups(self, given: Any, m: int, bins: int) -> Groups:
        """Groups of the m queries, by labels or by a column of ``test``."""
        return groups_of(given, self.test, m, "test_groups", self.train, bins)


def groups_of(given: Any, table: Any, n: int, what: str, like: Any = None, bins: int = 5) -> Groups:
    """Groups of n rows, from a label for each or from the name of a column of their table.

    ``what``  name of the argument, for messages
    ``like``  table whose column defines the bins, so that training and test rows get the same ones
    """
    if _is_name(given):
        x = column(table, given, what)
        is_in_like = str(given) in map(str, column_names(like))
        binned = column(like, given, what) if is_in_like else x
        return groups_of_values(x, bin_edges(binned, bins), str(given))
    labels = to_numpy(aligned(given, labels_of(table), what, "the table of these rows"))
    if labels.shape != (n,):
        raise InvalidInput(
            f"{what} has shape {labels.shape}; expected ({n},), a label for each row, or the name of a column."
        )
    return groups_of_values(labels)


def _is_name(given: Any) -> bool:
    return isinstance(given, (str, int, np.integer))


def groups_of_values(x: NDArray[Any], edges: F64 | None = None, by: str = "") -> Groups:
    """The groups of values x (n,): bins between the edges, or one group for each value."""
    absent = is_missing(x)
    code = np.zeros(len(x), np.intp)
    if edges is not None:
        bins = np.searchsorted(edges, x[~absent], side="right")
        numbers, code[~absent] = np.unique(bins, return_inverse=True)
        names = np.array([bin_name(edges, int(b)) for b in numbers], dtype=object)
    else:
        names, code[~absent] = _distinct(x[~absent])
    if absent.any():
        code[absent] = len(names)
        names = np.array([*names.tolist(), MISSING], dtype=object)
    return Groups(names, code, by, edges is not None)


def _distinct(x: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """np.unique with the inverse, also for values that do not compare with each other."""
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
    """Ascending inner edges of bins [edge, next edge) with about equal numbers of rows.

    None if each value is a group. An edge lies between two neighbouring values, at a number of
    few digits.
    """
    if bins < 2:
        raise InvalidInput(f"bins is {bins}; it is a number of bins, 2 or more.")
    if x.dtype.kind not in "iuf":
        return None
    values, count = np.unique(x[~is_missing(x)], return_counts=True)
    if len(values) <= MAX_DISTINCT_NUMBERS:
        return None
    share = np.cumsum(count[:-1]) / count.sum()  # of the rows up to each value
    gaps = np.unique([np.abs(share - q).argmin() for q in np.arange(1, bins) / bins])
    return np.array([_short_number(float(values[g]), float(values[g + 1])) for g in gaps])


def _short_number(low: float, high: float) -> float:
    """A number of few digits in (low, high], rounded from the upper end or the middle."""
    for digits in range(1, 17):
        for x in (high, (low + high) / 2):
            if low < (short := float(f"{x:.{digits}g}")) <= high:
                return short
    return high


def bin_name(edges: F64, b: int) -> str:
    """The name of bin b: `< 20`, `[20, 40)`, `>= 40`."""
    if b == 0:
        return f"< {as_text(edges[0])}"
    if b == len(edges):
        return f">= {as_text(edges[-1])}"
    return f"[{as_text(edges[b - 1])}, {as_text(edges[b])})"


def as_text(value: Any) -> str:
    """A value as text: floats with as many digits as they need, up to 16."""
    return f"{value:.16g}" if isinstance(value, (float, np.floating)) else str(value)


def is_missing(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is None, NaN or NaT."""
    if x.dtype == object:
        return np.array([v is None or v != v for v in x.tolist()], dtype=bool)
    if x.dtype.kind == "f":
        return np.isnan(x)
    if x.dtype.kind in "mM":
        return np.isnat(x)
    return np.zeros(x.shape, bool)


def column_names(table: Any) -> list[Any]:
    """The columns of a table: their names, or their positions if they have none."""
    names = getattr(table, "column_names", getattr(table, "columns", None))
    if names is not None and not callable(names):
        return list(names)
    shape = getattr(table, "shape", None)
    if not shape:
        shape = np.shape(table) if isinstance(table, (list, tuple)) else ()
    is_array = hasattr(table, "__getitem__") or hasattr(table, "tocsc")
    return list(range(shape[1])) if len(shape) == 2 and is_array else []


def column(table: Any, name: Any, what: str) -> NDArray[Any]:
    """A column of a table by its name, or of an array by its position."""
    key = _column_key(table, name, what)
    if hasattr(table, "column_names") or hasattr(table, "columns"):
        return to_numpy(table[key])
    array: Any = table if hasattr(table, "shape") else np.asarray(table)
    if hasattr(array, "tocsc"):  # not all sparse matrices give columns
        array = array.tocsc()
    x: Any = array[:, [key]]
    return to_numpy(x.toarray() if hasattr(x, "toarray") else x).ravel()


def _column_key(table: Any, name: Any, what: str) -> Any:
    """The table's own name for a column, which need not be text."""
    names = column_names(table)
    if not names:
        reason = f"a {type(table).__name__} has no columns"
        if table is None:
            reason = "this result does not know its table"
        raise InvalidInput(
            f"{what} names the column {name!r}, but {reason}; pass a label for each row instead."
        )
    found = [c for c in names if c == name] or [c for c in names if str(c) == str(name)]
    if not found:
        listed = ", ".join(repr(c) for c in names[:MAX_NAMES_IN_MESSAGE])
        if len(names) > MAX_NAMES_IN_MESSAGE:
            listed += f" and {len(names) - MAX_NAMES_IN_MESSAGE} more"
        raise InvalidInput(f"{what} names the column {name!r}, but the columns are {listed}.")
    return found[0]
