"""Rows beside one row, feature by feature: which values are the same, higher, lower or others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import F64
from .cells import CellValue, short

# How the value of a row compares with that of the row it stands beside.
SAME = "="
NEAR = "~"  # numbers that differ by little
HIGHER = ">"
LOWER = "<"
OTHER = "!"


@dataclass(frozen=True)
class Comparison:
    """Rows beside one row.

    ``columns``  names of the columns that are shown
    ``values``   those of the one row
    ``others``   those of each other row
    ``marks``    for each other row, how its values compare
    """

    columns: list[str]
    values: list[CellValue]
    others: list[list[CellValue]]
    marks: list[list[str]]


def compare(
    names: list[str],
    row: np.ndarray,
    others: np.ndarray,
    most: int,
    *,
    use: F64 | None = None,
    scale: F64 | None = None,
) -> Comparison:
    """Put cell values ``row`` (columns,) and ``others`` (rows, columns) side by side.

    ``use``    (columns,) how far the model uses each column: those that it uses most come first.
               None: columns stay in their order

    Of columns that are used alike, those come first in which most rows differ, and of these those
    that differ by the largest share of the column's range. At most `most` are kept.

    ``scale``  (columns,) differences of numbers below this are small, and are not marked as higher
               or lower; NaN or None: all are
    """
    differs = others != row  # (rows, columns)
    theirs = _numbers(others)
    ours = _numbers(row[None])
    chosen = np.arange(len(names))
    by_difference = (-_mean_distance(theirs, ours), -differs.sum(axis=0))
    if use is not None:
        chosen = np.lexsort((*by_difference, -use))[:most]
    elif len(names) > most:
        chosen = np.sort(np.lexsort(by_difference)[:most])
    unequal = np.where(theirs > ours, HIGHER, np.where(theirs < ours, LOWER, OTHER))
    marks = np.where(~differs, SAME, unequal)
    if scale is not None:
        marks[differs & (np.abs(theirs - ours) < scale)] = NEAR
    return Comparison(
        [names[j] for j in chosen],
        [short(v) for v in row[chosen]],
        [[short(v) for v in other[chosen]] for other in others],
        marks[:, chosen].tolist(),
    )


def _mean_distance(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """(columns,) mean distance of the rows from the one row, as a share of the column's range."""
    together = np.concatenate([theirs, ours])
    filled = ~np.isnan(together).all(axis=0)
    span = np.zeros(together.shape[1])
    largest = np.nanmax(together[:, filled], axis=0)
    smallest = np.nanmin(together[:, filled], axis=0)
    span[filled] = largest - smallest
    distance = np.nan_to_num(np.abs(theirs - ours)).sum(axis=0) / max(len(theirs), 1)
    return distance / np.where(span > 0, span, 1.0)


def _numbers(values: np.ndarray) -> np.ndarray:
    """The numbers among cell values, NaN for everything else."""
    flat = [_number(value) for value in values.ravel()]
    return np.array(flat, dtype=float).reshape(values.shape)


def _number(value: CellValue) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return np.nan
