"""Rows beside one row, feature by feature: which values are the same, higher, lower or others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .cells import CellValue, short

# How the value of a row compares with that of the row it stands beside.
SAME = "="
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


def compare(names: list[str], row: np.ndarray, others: np.ndarray, most: int) -> Comparison:
    """Put cell values ``row`` (columns,) and ``others`` (rows, columns) side by side.

    Of more columns than `most`, those in which most rows differ are kept, then those in which they
    differ by the largest share of the column's range."""
    differs = others != row  # (rows, columns)
    theirs = _numbers(others)
    ours = _numbers(row[None])
    chosen = np.arange(len(names))
    if len(names) > most:
        distance = _mean_distance(theirs, ours)
        chosen = np.sort(np.lexsort((-distance, -differs.sum(axis=0)))[:most])
    unequal = np.where(theirs > ours, HIGHER, np.where(theirs < ours, LOWER, OTHER))
    marks = np.where(~differs, SAME, unequal)
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
    distance = np.nan_to_num(np.abs(theirs - ours)).mean(axis=0)
    return distance / np.where(span > 0, span, 1.0)


def _numbers(values: np.ndarray) -> np.ndarray:
    """The numbers among cell values, NaN for everything else."""
    flat = [_number(value) for value in values.ravel()]
    return np.array(flat, dtype=float).reshape(values.shape)


def _number(value: CellValue) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return np.nan
