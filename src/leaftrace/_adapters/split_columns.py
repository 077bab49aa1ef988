"""Columns of the user's tables as numbers, and refusals, for the search for splits of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._data import frames
from .._data.arrays import F64
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.parquet import PartedTable
from .._data.wording import words


def splits_not_by_gain(reason: str) -> UnsupportedModel:
    """Return the error for a model whose search for splits cannot be described."""
    return UnsupportedModel(
        f"StructureInfluence softens a choice of splits by their gain, and {reason}; use {words().leaf_method} or "
        f"{words().refit_method}, which hold the splits fixed, or training again (Retrain())."
    )


def numbers(table: Any) -> F64:
    """Return a table of any kind as numbers (n, d); missing values are NaN.

    Categories of pandas become their codes."""
    if frames.kind(table):
        table = frames.to_pandas(table)
    if hasattr(table, "iloc"):
        columns = [_numbers_of_column(table.iloc[:, i]) for i in range(table.shape[1])]
        return np.stack(columns, axis=1) if columns else np.zeros((len(table), 0))
    if hasattr(table, "toarray"):
        table = table.toarray()
    return np.array(table, dtype=np.float64)


def _numbers_of_column(column: Any) -> F64:
    """Return a column (n,) of pandas as numbers."""
    if hasattr(column, "sparse"):
        column = column.sparse.to_dense()
    if hasattr(column, "cat"):
        codes = np.asarray(column.cat.codes).astype(np.float64)
        return np.where(codes < 0, np.nan, codes)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def columns_of_training(columns: Callable[[Any], F64], X: Any) -> F64:
    """Return ``columns`` (n, d) of a training table, read part by part if it is in files.

    An error if the result would be larger than the memory that such a table may take."""
    if not isinstance(X, PartedTable):
        return columns(X)
    out: F64 | None = None
    for rows, part in X.parts():
        found = columns(part)
        if out is None:
            needed = 8 * len(X) * found.shape[1]
            if needed > X.memory:
                raise InvalidInput(
                    f"StructureInfluence compares all columns of all training rows, here {needed / 1e9:.1f} GB, and "
                    f"memory_limit is {X.memory / 1e9:.1f} GB; use LeafInfluence(), which needs the leaves alone, or "
                    "give Tracer.from_files a larger memory_limit."
                )
            out = np.empty((len(X), found.shape[1]))
        out[rows] = found
    assert out is not None
    return out
