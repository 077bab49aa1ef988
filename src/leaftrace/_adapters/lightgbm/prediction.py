"""Predictions of a LightGBM booster, and from them the leaves of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightgbm as lgb
import numpy as np

from ..._data.errors import InvalidInput
from ..._data.progress import progress
from .calls import calling, threads_of_prediction
from .model import ParsedModel
from .tables import table_length

LEAF_BYTES = 32_000_000  # size of the leaf numbers that one call of LightGBM may return


def predict(booster: lgb.Booster, table: Any, **options: Any) -> np.ndarray:
    """(n, ...) booster.predict."""
    try:
        with calling():
            found = np.asarray(booster.predict(table, **threads_of_prediction(), **options))
    except (ValueError, TypeError, lgb.basic.LightGBMError) as error:
        raise InvalidInput(f"LightGBM cannot read these rows: {error}") from None
    return found.reshape(table_length(table), -1)


def leaf_numbers(booster: lgb.Booster, table: Any, parsed: ParsedModel) -> Iterator[np.ndarray]:
    """Tree by tree (n,) the leaf of each row, for as many trees as the parsed model has."""
    n = table_length(table)
    T = parsed.iterations
    step_bytes = 8 * max(n, 1) * parsed.outputs  # LightGBM returns float64, rows first
    at_once = max(1, LEAF_BYTES // step_bytes)
    starts = range(0, T if n else 0, at_once)
    for start in progress(starts, T, "leaves", "step", at_once):
        count = min(at_once, T - start)
        yield from predict(
            booster, table, start_iteration=start, num_iteration=count, pred_leaf=True
        ).T
