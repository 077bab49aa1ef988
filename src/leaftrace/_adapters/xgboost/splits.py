"""How XGBoost chose its splits: the columns it compared, and what both sides of a split need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xgboost as xgb

from ..._data.arrays import F64
from ..._model.splits import ColumnKind, SplitSearch
from .ensemble import XGBoostRun
from .objectives import as_float32, loss_and_factor


def split_search(run: XGBoostRun, types: Sequence[str] | None, values: F64) -> SplitSearch:
    """The search for the splits of the trees of a run.

    ``types``   the kind of each feature as XGBoost names it, or None for numbers
    ``values``  (n, d) columns of the training rows
    """
    params = run.params
    hessian_factor = loss_and_factor(run.objective, params, len(run.base))[1]
    onehot = int(params.get("max_cat_to_onehot", 4))
    sampled = ("colsample_bytree", "colsample_bylevel", "colsample_bynode")
    return SplitSearch(
        trees=run.trees.nodes,
        columns=[
            _kind(types is not None and types[f] == "c", column, onehot)
            for f, column in enumerate(values.T)
        ],
        values=values,
        min_hessian=as_float32(params["min_child_weight"]) / hessian_factor,
        # A file does not keep whether columns were drawn.
        columns_sampled=run.loaded or any(float(params.get(name, 1)) < 1 for name in sampled),
        joint=run.trees.width > 1,
    )


def _kind(categorical: bool, values: F64, onehot: int) -> ColumnKind:
    if not categorical:
        return "missing"
    return "one-hot" if np.nanmax(values, initial=0) + 1 < onehot else "sorted"


def columns_of(matrix: xgb.DMatrix) -> F64:
    """(n, d) the values in a matrix; NaN for those that are missing."""
    stored: Any = matrix.get_data()
    out = np.full(stored.shape, np.nan)
    rows = np.repeat(np.arange(stored.shape[0]), np.diff(stored.indptr))
    out[rows, stored.indices] = stored.data
    return out
