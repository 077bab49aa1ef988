"""Predictions of an XGBoost booster, and from them the leaves of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from xgboost.core import XGBoostError

from ..._data import inputs
from ..._data.arrays import Ids, Ints
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..base import pack_leaves
from ..own_leaves import OwnLeaves
from .model import Trees, best_rounds, error_reason
from .splits import stored_values
from .tables import MatrixBuilder

LEAF_BYTES = 32_000_000  # size of the leaf numbers that one call of XGBoost may return
_PART_CELLS = 250_000  # values of a table that are read at once
_LEAST_PART = 8192  # rows that are worth a matrix of their own


def predict(booster: xgb.Booster, matrix: xgb.DMatrix, **options: Any) -> NDArray[Any]:
    """booster.predict, which checks the names of columns where both sides have them."""
    both_named = bool(booster.feature_names and matrix.feature_names)
    try:
        return booster.predict(matrix, validate_features=both_named, **options)
    except (XGBoostError, ValueError) as error:
        hint = "; pass the table itself" if isinstance(matrix, xgb.QuantileDMatrix) else ""
        raise InvalidInput(
            f"XGBoost cannot predict these rows: {error_reason(error)}{hint}"
        ) from None


def predict_leaves(booster: xgb.Booster, X: NDArray[Any]) -> NDArray[Any]:
    """(m, trees) nodes of rows of numbers, by the call that reads the leaves of training rows."""
    return booster.predict(xgb.DMatrix(X), pred_leaf=True, validate_features=False)


def rounds_notes(booster: xgb.Booster, used: int, trained: int) -> list[str]:
    """A note on the rounds that predictions are made with, after early stopping."""
    best = best_rounds(booster)
    if best is None or best >= trained:
        return []
    if used < trained:
        return [f"predictions are those of the best {best} of {trained} rounds"]
    return [
        f"predictions are those of all {trained} rounds, as Booster.predict does; the best are {best}"
    ]


def leaves_of_rows(booster: xgb.Booster, matrix: xgb.DMatrix, trees: Trees) -> Ids:
    """(trees, m) leaf numbers of the rows of a matrix, computed for some rounds at a time."""
    m = matrix.num_row()
    rounds = len(trees.rounds) - 1
    round_bytes = 4 * max(m, 1) * int(np.diff(trees.rounds).max())
    at_once = max(1, LEAF_BYTES // round_bytes)

    def tree_by_tree() -> Iterator[NDArray[np.int64]]:
        for start in progress(range(0, rounds, at_once), rounds, "leaves", "round", at_once):
            stop = min(start + at_once, rounds)
            yield from _leaves_of_rounds(booster, matrix, trees, start, stop)

    return pack_leaves(tree_by_tree(), trees.edges, trees.steps, m)


def leaves_of_table(
    booster: xgb.Booster, matrices: MatrixBuilder, X: Any, trees: Trees, own: OwnLeaves
) -> Ids:
    """(trees, m) leaf numbers of the rows of a table, by our own traversal where it can be used.

    Rows are taken in parts, as XGBoost copies the values of a table to give them back."""
    if isinstance(X, xgb.DMatrix) or hasattr(X, "tocsr"):  # which can be too wide for all values
        return leaves_of_rows(booster, matrices.build(X), trees)
    m = inputs.row_count(X)
    columns = X.shape[1] if len(getattr(X, "shape", ())) == 2 else booster.num_features()
    size = max(_LEAST_PART, _PART_CELLS // max(1, columns))
    if m <= size:
        return _leaves_of_part(booster, matrices, X, trees, own)
    leaves = None
    for start in range(0, m, size):
        rows = np.arange(start, min(start + size, m))
        part = _leaves_of_part(booster, matrices, inputs.take_rows(X, rows), trees, own)
        if leaves is None:
            leaves = np.empty((len(part), m), part.dtype)
        leaves[:, rows[0] : rows[-1] + 1] = part
    assert leaves is not None
    return leaves


def _leaves_of_part(
    booster: xgb.Booster, matrices: MatrixBuilder, X: Any, trees: Trees, own: OwnLeaves
) -> Ids:
    """(trees, m) leaf numbers of the rows of a table that is read at once."""
    values = matrices.plain_values(X)
    matrix = matrices.build(X) if values is None else None

    def by_library(rows: Ints | None) -> Ids:
        if rows is None and matrix is not None:
            return leaves_of_rows(booster, matrix, trees)
        some = X if rows is None else inputs.take_rows(X, rows)
        return leaves_of_rows(booster, matrices.build(some), trees)

    if matrix is None:
        return own.find(len(X), lambda: values, by_library)
    return own.find(matrix.num_row(), lambda: stored_values(matrix), by_library)


def _leaves_of_rounds(
    booster: xgb.Booster, matrix: xgb.DMatrix, trees: Trees, start: int, stop: int
) -> Iterator[NDArray[np.int64]]:
    """Tree by tree (m,) the leaf of each row, for the rounds from ``start`` to ``stop``."""
    m = matrix.num_row()
    numbers = trees.leaf[trees.rounds[start] : trees.rounds[stop] : trees.width]
    # XGBoost predicts leaves from the first round on only, so for later rounds a model is cut out
    # that begins with them.
    part = booster[start:] if start else booster
    nodes = np.zeros(0)
    if m:
        nodes = predict(part, matrix, pred_leaf=True, iteration_range=(0, stop - start))
    for number, ids in zip(numbers, nodes.reshape(m, len(numbers)).T, strict=True):
        yield from [number[ids.astype(np.int64)]] * trees.width
