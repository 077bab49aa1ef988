"""Tables as CatBoost reads them, and the leaves that the rows of a Pool fall into."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import catboost
import numpy as np

from ..._data import frames
from ..._data.arrays import Ids, Ints
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..base import cumulative, refuse_other_leaves, smallest_type

ROWS_AT_ONCE = 1 << 15
_ROWS_IN_CACHE = 4096
_VERSION = tuple(int(v) for v in re.findall(r"\d+", catboost.__version__)[:3])


def readable_table(X: Any) -> Any:
    """Return X, or a DataFrame of it where CatBoost cannot read this kind of table."""
    if frames.kind(X) == "polars" and _VERSION >= (1, 2, 10):
        return frames.categories_as_text(X)  # CatBoost reads categories as text anyway
    return frames.to_pandas(X)


def column_kinds(model: catboost.CatBoost) -> dict[str, Any]:
    """Return the columns of each kind that a fitted model has, as `Pool` takes them."""
    kinds = {
        "cat_features": model.get_cat_feature_indices(),
        "text_features": model.get_text_feature_indices(),
        "embedding_features": model.get_embedding_feature_indices(),
    }
    return {kind: columns for kind, columns in kinds.items() if columns}


def pool_of(model: catboost.CatBoost, table: Any, extra: dict[str, Any]) -> catboost.Pool:
    """Return a Pool of a table that CatBoost can read; ``extra`` holds labels, weights or a baseline."""
    try:
        return catboost.Pool(table, **column_kinds(model), **extra)
    except catboost.CatBoostError as error:
        raise InvalidInput(f"CatBoost cannot read these rows: {error}") from None


def sliced_pool(pool: catboost.Pool, keep: Ints) -> catboost.Pool:
    """Return a Pool with some of the rows; an error where that is not possible."""
    try:
        return pool.slice(keep.tolist())
    except catboost.CatBoostError as error:
        raise InvalidInput(
            "CatBoost takes only whole groups out of a Pool; leave out whole queries, or pass X_train and y_train as a "
            f"table. It says: {error}"
        ) from None


def leaf_numbers(model: catboost.CatBoost, pool: catboost.Pool) -> Ids:
    """Return the leaf (trees, rows) of each row, in the smallest type that holds the numbers.

    CatBoost returns uint32 with rows first. Asking for some rows at a time keeps that small, and
    several parts on our own threads are faster than its threads on one part. A pool with groups of
    rows, which only ranking needs, cannot be cut. CatBoost waits for ever for a thread of its own
    that could not start for want of memory, so few rows are read without any."""
    edges = cumulative(model.get_tree_leaf_counts())
    rows = pool.num_row()
    leaves = np.empty((len(edges) - 1, rows), smallest_type(int(np.diff(edges).max())))
    at_once = ROWS_AT_ONCE if pool.get_group_id_hash() is None else max(rows, 1)

    def fill(start: int) -> None:
        _fill_leaves(leaves, edges, model, pool, start, min(start + at_once, rows))

    if rows <= at_once:
        fill(0)
        return leaves
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        starts = range(0, rows, at_once)
        for _ in progress(threads.map(fill, starts), rows, "leaves", "row", at_once):
            pass
    return leaves


def _fill_leaves(
    leaves: Ids,
    edges: Ints,
    model: catboost.CatBoost,
    pool: catboost.Pool,
    start: int,
    stop: int,
) -> None:
    """Write the leaves of the rows from start to stop into ``leaves`` (trees, rows)."""
    if stop - start == pool.num_row():
        threads = -1 if pool.num_row() > ROWS_AT_ONCE else 1
        ids = model.calc_leaf_indexes(pool, thread_count=threads)
    else:
        ids = model.calc_leaf_indexes(pool.slice(np.arange(start, stop)), thread_count=1)
    refuse_other_leaves(ids.T, edges)
    for row in range(start, stop, _ROWS_IN_CACHE):  # a transposition that stays in the cache
        end = min(row + _ROWS_IN_CACHE, stop)
        leaves[:, row:end] = ids[row - start : end - start].astype(leaves.dtype).T
