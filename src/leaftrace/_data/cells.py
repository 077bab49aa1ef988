"""Cells of users' tables as values that a page, a picture or a JSON file can hold.

Tables of any kind are read a few rows at a time. Values become None, bool, int, float or str. Text
is shortened, and characters that no page can show are replaced.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import inputs
from .arrays import Ints
from .errors import InvalidInput
from .row_labels import row_index

MAX_TEXT = 200  # characters of a value that are kept
LISTED_COLUMNS = 8  # in a message about a column that does not exist

CellValue = None | bool | int | float | str


def cell_value(x: Any) -> CellValue:
    """A cell in the types of JSON.

    Missing values of any kind are None; infinities, which JSON lacks, are words."""
    if x is None or isinstance(x, str):
        return x
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, (int, np.integer)):
        return int(x)
    if isinstance(x, (float, np.floating)):
        return _float_value(float(x))
    if type(x).__name__ in ("NAType", "NaTType") or (isinstance(x, np.datetime64) and np.isnat(x)):
        return None
    return x.isoformat() if isinstance(x, (datetime.date, datetime.time)) else str(x)


def _float_value(x: float) -> CellValue:
    if math.isnan(x):
        return None
    return x if math.isfinite(x) else str(x)


def short(x: Any, limit: int = MAX_TEXT) -> CellValue:
    """A `cell_value` with text cut to `limit` characters.

    Characters that no page can show are replaced: control characters, lone surrogates, separators
    of lines, changes of the reading direction."""
    x = cell_value(x)
    if not isinstance(x, str):
        return x
    cut = x[:limit] + ("…" if len(x) > limit else "")
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


_cell_values: Any = np.frompyfunc(cell_value, 1, 1)


@dataclass(frozen=True)
class CellTable:
    """A table whose cells can be read.

    ``names``   columns that are not redacted
    ``places``  positions of these columns in the table
    ``rows``    (n,) names of the rows, or positions if the names are redacted
    """

    table: Any
    names: list[str]
    places: list[int]
    rows: np.ndarray

    def take(self, rows: Ints) -> np.ndarray:
        """(rows, columns) cell values, as objects."""
        if not self.names:
            return np.empty((len(rows), 0), dtype=object)
        part = inputs.take_rows(self.table, np.asarray(rows))
        return _cell_values(_objects(part)[:, self.places])

    def row(self, position: int) -> dict[str, CellValue]:
        """The name and the position of a row."""
        return {"row": short(self.rows[position]), "position": int(position)}


def _objects(part: Any) -> np.ndarray:
    """(rows, columns) the cells of a small table, as they are."""
    if hasattr(part, "iloc"):
        return part.to_numpy(dtype=object)
    if hasattr(part, "toarray"):
        return part.toarray()
    if hasattr(part, "column_names"):  # Arrow
        columns = [column.to_pylist() for column in part.columns]
    elif hasattr(part, "get_columns"):  # Polars
        columns = [column.to_list() for column in part.get_columns()]
    else:
        return np.asarray(part)
    out = np.empty((len(part), len(columns)), dtype=object)
    for j, column in enumerate(columns):
        out[:, j] = column
    return out


def column_names(X: Any) -> list[str] | None:
    """Names of the columns; None if the cells cannot be read (a booster's own matrix)."""
    if hasattr(X, "get_label"):
        return None
    attribute = "column_names" if hasattr(X, "column_names") else "columns"
    names = getattr(X, attribute, None)
    if names is not None:
        return [str(name) for name in names]
    return [f"column {j}" for j in range(np.shape(X)[1])]


def open_cell_tables(
    X_train: Any, X_test: Any, redacted: Iterable[str]
) -> tuple[CellTable, CellTable]:
    """Both tables with the columns they share, in the order of training, without redacted ones."""
    redacted = sorted(redacted)
    train = column_names(X_train)
    test = column_names(X_test)
    index_names = {*_index_names(X_train), *_index_names(X_test), "index"}
    _check_redacted(redacted, train, test, index_names)
    shared = [] if train is None or test is None else _shared(train, test)
    shared = [(name, i, j) for name, i, j in shared if name not in redacted]
    names = [str(short(name)) for name, _, _ in shared]
    places_train = [i for _, i, _ in shared]
    places_test = [j for _, _, j in shared]
    return (
        CellTable(X_train, names, places_train, _row_names(X_train, redacted)),
        CellTable(X_test, names, places_test, _row_names(X_test, redacted)),
    )


def _check_redacted(
    redacted: Sequence[str],
    train: Sequence[str] | None,
    test: Sequence[str] | None,
    index_names: set[str],
) -> None:
    """Raise an error if a column to redact does not exist."""
    existing = {*(train or ()), *(test or ()), *index_names}
    for name in redacted:
        if name in existing:
            continue
        columns = train or test or []
        listed = ", ".join(f"'{short(c, 40)}'" for c in columns[:LISTED_COLUMNS])
        raise InvalidInput(
            f"redact names '{name}', but there is no such column; the columns are "
            f"{listed or 'none that can be read'}{' ...' if len(columns) > LISTED_COLUMNS else ''}, "
            "and 'index' stands for the names of the rows."
        )


def _row_names(X: Any, redacted: Sequence[str]) -> np.ndarray:
    """(n,) names of the rows, or positions if the index is redacted."""
    n = inputs.row_count(X)
    if "index" in redacted or set(_index_names(X)) & set(redacted):
        return np.arange(n)
    return row_index(X, n)


def _index_names(X: Any) -> list[str]:
    """Names of the levels of a DataFrame's index."""
    index = getattr(X, "index", None)
    if index is None or callable(index):
        return []
    return [str(name) for name in index.names if name is not None]


def _shared(train: Sequence[str], test: Sequence[str]) -> list[tuple[str, int, int]]:
    """Columns of both tables: (name, position in train, position in test).

    They are matched by name, or by position where one of the tables has no names."""
    if set(train) & set(test):
        place = {name: j for j, name in reversed(list(enumerate(test)))}
        return [(name, i, place[name]) for i, name in enumerate(train) if name in place]
    names = test if train and train[0] == "column 0" else train
    return [(name, i, i) for i, name in enumerate(names[: min(len(train), len(test))])]
