"""New rows unlike anything in training: numbers beyond its range, categories that it does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.grouping import column, column_names, is_missing
from ..._data.student import student


@dataclass(frozen=True)
class UnlikeCheck:
    """Rows that have a value which no training row has.

    ``share``      of the new rows
    ``excess``     that share beyond the share of the test rows, with its interval from low to high
    ``columns``    (m,) the first such column of each new row, or ""
    """

    share: float
    excess: float
    low: float
    high: float
    columns: NDArray[Any]


def check_values(train: Any, new: Any, test: Any, confidence: float) -> UnlikeCheck | None:
    """Compare new rows with training rows column by column; None for tables without columns."""
    names = column_names(train)
    if not names or not column_names(new) or not column_names(test):
        return None
    found = [_first_unlike(train, X, names) for X in (new, test)]
    shares = [float((columns != "").mean()) for columns in found]
    sizes = [len(columns) for columns in found]
    # One row more and one unusual: zero of a few is no certainty.
    smooth = [(p * n + 1) / (n + 2) for p, n in zip(shares, sizes, strict=True)]
    error = np.sqrt(sum(p * (1 - p) / n for p, n in zip(smooth, sizes, strict=True)))
    half = student((1 - confidence) / 2, max(1, min(sizes) - 1)) * float(error)
    excess = shares[0] - shares[1]
    return UnlikeCheck(shares[0], excess, excess - half, excess + half, found[0])


def _first_unlike(train: Any, X: Any, names: list[Any]) -> NDArray[Any]:
    """(m,) the first column in which each row of X has a value unlike those of training, or ""."""
    out: NDArray[Any] | None = None
    for name in names:
        values = column(X, name, "X_new")
        out = np.full(len(values), "", dtype=object) if out is None else out
        unlike = _unlike(column(train, name, "X_train"), values)
        out[unlike & (out == "")] = str(name)
    assert out is not None
    return out


def _unlike(known: NDArray[Any], values: NDArray[Any]) -> NDArray[np.bool_]:
    """(m,) whether values are beyond those of training, or none of them. Missing ones need missing ones."""
    absent = is_missing(values)
    none_missing = not is_missing(known).any()
    known = known[~is_missing(known)]
    out = absent & none_missing
    if known.dtype.kind in "biuf" and values.dtype.kind in "biuf":
        low, high = (known.min(), known.max()) if len(known) else (np.inf, -np.inf)
        out[~absent] = (values[~absent] < low) | (values[~absent] > high)
        return out
    kinds = set(map(str, known.tolist()))
    out[~absent] = [str(value) not in kinds for value in values[~absent].tolist()]
    return out
