"""Columns in which training rows differ most from a test row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.cells import CellTable

_LARGE = 1.0  # standard deviations from which two numbers count as different


def differing_columns(
    train: CellTable, test: CellTable, trained: Ints, position: int, scale: F64, most: int
) -> list[str]:
    """For each of the training rows, the columns in which it differs most from the test row, and how many more.

    ``trained``   positions of the training rows
    ``position``  that of the test row
    ``scale``     (columns,) standard deviation of each column of numbers, see `column_scales`; NaN
                  for others, whose values are the same or not
    ``most``      how many columns to name; one more is named rather than counted
    """
    own = test.take(np.array([position]))[0]
    return [
        _in_words([train.names[j] for j in _largest(_distances(own, other, scale))], most)
        for other in train.take(trained)
    ]


def _in_words(names: list[str], most: int) -> str:
    """The first of the names, and how many more there are."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def column_scales(train: CellTable) -> F64:
    """(columns,) standard deviations of columns of numbers, NaN for other columns."""
    scales = np.full(len(train.names), np.nan)
    X = train.table
    for j, place in enumerate(train.places):
        column = X.iloc[:, place] if hasattr(X, "iloc") else _column_of_array(X, place)
        if column is not None and getattr(column.dtype, "kind", "O") in "iuf":
            values = np.asarray(column, dtype=float)
            known = values[np.isfinite(values)]
            scales[j] = known.std() if len(known) else 0.0
    return scales


def _column_of_array(X: Any, place: int) -> Any:
    return X[:, place] if isinstance(X, np.ndarray) else None


def _distances(own: np.ndarray, other: np.ndarray, scale: F64) -> F64:
    """(columns,) distances in standard deviations; other values are 0 or 2 apart."""
    apart = np.where(own == other, 0.0, 2.0 * _LARGE)
    for j in np.flatnonzero(np.isfinite(scale)):
        if own[j] is not None and other[j] is not None and not isinstance(own[j], str):
            apart[j] = abs(float(own[j]) - float(other[j])) / scale[j] if scale[j] > 0 else 0.0
    return apart.astype(float)


def _largest(distances: F64) -> list[int]:
    order = np.argsort(-distances, kind="stable")
    return [int(j) for j in order if distances[j] >= _LARGE]
