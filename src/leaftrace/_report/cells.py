"""Cells of a user's tables as plain values: what a page or a JSON file can hold, and how two rows differ.

Tables of any kind are read a few rows at a time. Values become None, bool, int, float or str; text is cleaned of what
no page can show and shortened.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data import inputs
from .._data.arrays import Ints
from .._data.errors import InvalidInput
from .._data.inputs import row_count, row_index

TEXT = 200  # characters of one value that are kept
# a training row's value beside the test row's
SAME = "="
HIGHER = ">"
LOWER = "<"
OTHER = "!"

Plain = None | bool | int | float | str


def plain(x: Any) -> Plain:
    """A cell as JSON has it. Missing values of any kind are None; infinities, which JSON lacks, are words."""
    if x is None or isinstance(x, str):
        return x
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, (int, np.integer)):
        return int(x)
    if isinstance(x, (float, np.floating)):
        x = float(x)
        return None if math.isnan(x) else x if math.isfinite(x) else str(x)
    if type(x).__name__ in ("NAType", "NaTType") or (isinstance(x, np.datetime64) and np.isnat(x)):
        return None
    return x.isoformat() if isinstance(x, (datetime.date, datetime.time)) else str(x)


def short(x: Any, limit: int = TEXT) -> Plain:
    """The same with text cut to `limit` characters, and those that no page can show replaced: control characters, lone
    surrogates, separators of lines, turns of the reading direction."""
    x = plain(x)
    if not isinstance(x, str):
        return x
    cut = x[:limit] + ("…" if len(x) > limit else "")
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


_plain: Any = np.frompyfunc(plain, 1, 1)


@dataclass(frozen=True)
class Grid:
    """A table whose cells can be read: its columns that are not redacted, and names of its rows."""

    table: Any
    names: list[str]  # of the columns shown
    places: list[int]  # where they are in the table
    rows: np.ndarray  # (n,) names of the rows, or positions if these are redacted

    def take(self, rows: Ints) -> np.ndarray:
        """(rows, columns) plain values, as objects."""
        if not self.names:
            return np.empty((len(rows), 0), dtype=object)
        part = inputs.take_rows(self.table, np.asarray(rows))
        return _plain(_objects(part)[:, self.places])

    def row(self, position: int) -> dict[str, Plain]:
        """How a row is named: by its index, and where it stands."""
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
    names = (
        getattr(X, "column_names", None)
        if hasattr(X, "column_names")
        else getattr(X, "columns", None)
    )
    if names is not None:
        return [str(name) for name in names]
    return [f"column {j}" for j in range(np.shape(X)[1])]


def open_grids(X_train: Any, X_test: Any, hidden: Iterable[str]) -> tuple[Grid, Grid]:
    """Both tables with the columns they share, in the order of training, without those redacted."""
    hidden = sorted(hidden)
    train = column_names(X_train)
    test = column_names(X_test)
    known = {*(train or ()), *(test or ()), *_index_names(X_train), *_index_names(X_test), "index"}
    for name in hidden:
        if name not in known:
            have = (
                ", ".join(f"'{short(c, 40)}'" for c in (train or test or [])[:8])
                or "none that can be read"
            )
            raise InvalidInput(
                f"redact names '{name}', but there is no such column; the columns are {have}"
                f"{' ...' if len(train or test or []) > 8 else ''}, and 'index' stands for the names of the rows."
            )
    shared = [] if train is None or test is None else _shared(train, test)
    shared = [(name, i, j) for name, i, j in shared if name not in hidden]
    names = [str(short(name)) for name, _, _ in shared]
    grids = []
    for X, places in ((X_train, [i for _, i, _ in shared]), (X_test, [j for _, _, j in shared])):
        n = row_count(X)
        by_position = "index" in hidden or bool(set(_index_names(X)) & set(hidden))
        grids.append(Grid(X, names, places, np.arange(n) if by_position else row_index(X, n)))
    return grids[0], grids[1]


def _index_names(X: Any) -> list[str]:
    index = getattr(X, "index", None)
    return (
        [] if index is None or callable(index) else [str(n) for n in index.names if n is not None]
    )


def _shared(train: Sequence[str], test: Sequence[str]) -> list[tuple[str, int, int]]:
    """(name, place in train, place in test): by name, or by place where one of the tables has no names."""
    if set(train) & set(test):
        place = {name: j for j, name in reversed(list(enumerate(test)))}
        return [(name, i, place[name]) for i, name in enumerate(train) if name in place]
    names = test if train and train[0] == "column 0" else train
    return [(name, i, i) for i, name in enumerate(names[: min(len(train), len(test))])]


@dataclass(frozen=True)
class Comparison:
    """Rows beside one row: the columns that tell most, values and marks."""

    columns: list[str]
    values: list[Plain]  # of the one row
    others: list[list[Plain]]
    marks: list[list[str]]


def compare(names: list[str], one: np.ndarray, others: np.ndarray, most: int) -> Comparison:
    """``one`` (columns,) and ``others`` (rows, columns) are plain values. Of more columns than `most`, those in which
    most rows differ are kept, then those in which they differ by the largest share of the column's range."""
    differs = others != one  # (rows, columns)
    x = _numbers(others)
    ours = _numbers(one[None])
    if len(names) > most:
        every = np.concatenate([x, ours])
        filled = ~np.isnan(every).all(axis=0)
        span = np.zeros(len(names))
        span[filled] = np.nanmax(every[:, filled], axis=0) - np.nanmin(every[:, filled], axis=0)
        far = np.nan_to_num(np.abs(x - ours)).mean(axis=0) / np.where(span > 0, span, 1.0)
        chosen = np.sort(np.lexsort((-far, -differs.sum(axis=0)))[:most])
    else:
        chosen = np.arange(len(names))
    marks = np.where(~differs, SAME, np.where(x > ours, HIGHER, np.where(x < ours, LOWER, OTHER)))
    return Comparison(
        [names[j] for j in chosen],
        [short(v) for v in one[chosen]],
        [[short(v) for v in row[chosen]] for row in others],
        marks[:, chosen].tolist(),
    )


def _numbers(values: np.ndarray) -> np.ndarray:
    """The numbers among plain values, NaN for everything else."""
    out = [
        [
            float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else np.nan
            for v in row
        ]
        for row in values
    ]
    return np.array(out, dtype=float).reshape(values.shape)
