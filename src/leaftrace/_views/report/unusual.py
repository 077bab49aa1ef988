"""Values of a test row that hardly any training row has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.cells import CellTable, short

_SHARE = 0.001  # of the training rows beyond a value, below which it is unusual
_CHANCE = 0.05  # that a row like the others has an unusual value in any column


def unusual_values(train: CellTable, test: CellTable, rows: Ints) -> list[list[str]]:
    """The unusual values of some test rows in words: ``z = 0 (0.04 % of training rows are as low)``.

    ``train, test``  the tables, with the columns that may be shown
    ``rows``         positions of the test rows

    A number is unusual if hardly any training row is as high, or as low; a category if no training
    row has it. Tables that cannot be read column by column give nothing.
    """
    found: list[list[str]] = [[] for _ in rows]
    if not _has_columns(train.table, test.table):
        return found
    limit = min(_SHARE, _CHANCE / (2 * max(1, len(train.names))))
    for name, i, j in zip(train.names, train.places, test.places, strict=True):
        trained = _column(train.table, i)
        asked = (
            _column(test.table, j)[rows]
            if _is_array(test.table)
            else _column(test.table, j).iloc[rows]
        )
        words = _unusual_numbers if _is_number(trained) and _is_number(asked) else _unseen
        for row, text in words(trained, asked, limit):
            found[row].append(f"{short(name, 40)} {text}")
    return found


def _has_columns(*tables: Any) -> bool:
    return all(hasattr(X, "iloc") or isinstance(X, np.ndarray) for X in tables)


def _is_array(X: Any) -> bool:
    return isinstance(X, np.ndarray)


def _column(X: Any, j: int) -> Any:
    return X.iloc[:, j] if hasattr(X, "iloc") else X[:, j]


def _is_number(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "iuf"


def _unusual_numbers(trained: Any, asked: Any, limit: float) -> Iterator[tuple[int, str]]:
    """The positions of unusual numbers, and what is unusual about them."""
    known = np.sort(np.asarray(trained, dtype=float))
    known = known[: np.count_nonzero(~np.isnan(known))]
    values: F64 = np.asarray(asked, dtype=float)
    if not len(known):
        return
    below = np.searchsorted(known, values, side="right") / len(known)
    above = 1.0 - np.searchsorted(known, values, side="left") / len(known)
    for row in np.flatnonzero(np.isfinite(values) & (np.minimum(below, above) < limit)):
        way = "low" if below[row] < above[row] else "high"
        share = min(below[row], above[row])
        how_many = f"{share:.2%} of training rows are" if share else "no training row is"
        yield int(row), f"= {short(values[row])} ({how_many} as {way})"


def _unseen(trained: Any, asked: Any, limit: float) -> Iterator[tuple[int, str]]:
    """The positions of categories that no training row has."""
    del limit
    known = set(map(str, trained))
    for row, value in enumerate(map(str, asked)):
        if value not in known:
            yield row, f"= {short(value, 40)} (no training row has it)"
