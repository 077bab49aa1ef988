"""The user's tables as LightGBM takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm as lgb
import numpy as np
from scipy.sparse import csr_matrix, issparse

from ..._data import frames, inputs
from ..._data.arrays import Ids, Real
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.parquet import PartedTable
from ..._model.linear_leaves import with_columns
from ..split_columns import numbers
from .linear import is_linear, linear_features
from .model import ParsedModel
from .opening import VERSION


def model_table(booster: lgb.Booster, X: Any) -> Any:
    """X with the booster's columns in their order, by name where there are names."""
    if isinstance(X, lgb.Dataset):
        X = _raw_data(X)
    names = booster.feature_name()
    frame = frames.kind(X)
    if frame or hasattr(X, "iloc"):
        given = _column_names(frames.as_narwhals(X) if frame else X)
        X = frames.renamed(X, given) if frame else X.set_axis(given, axis=1)
        trained_on_array = names == [f"Column_{i}" for i in range(len(names))]
        if trained_on_array and not set(names) & set(given):
            names = [str(i) for i in range(len(names))]
    elif issparse(X):
        X = csr_matrix(X)
    X = inputs.columns(X, names)
    # LightGBM takes numbers alone from polars and Arrow; anything else ends the whole process.
    if frame and (frames.has_categories(X, "LightGBM") or VERSION < (4, 7)):
        X = frames.to_pandas(X)
    if hasattr(X, "iloc") and (categories := booster.pandas_categorical):
        columns = [name for name, dtype in X.dtypes.items() if dtype == "category"]
        X = frames.order_categories(X, dict(zip(columns, categories, strict=False)))
    return X


def compared_numbers(table: Any) -> Real | None:
    """(n, d) the numbers that LightGBM compares with thresholds; None for sparse tables.

    It reads arrays of whole numbers as float32."""
    if issparse(table):
        return None
    if isinstance(table, np.ndarray):
        return table if table.dtype in (np.float32, np.float64) else table.astype(np.float32)
    return numbers(table)


def with_linear_columns(
    parsed: ParsedModel, leaves: Ids, X: Any, table_of: Callable[[Any], Any]
) -> Ids:
    """Leaves (trees, m) of the rows of X, with the columns that leaves read if they are linear.

    ``table_of``: gives a user's table as the booster takes it.
    """
    if not is_linear(parsed):
        return leaves
    if isinstance(X, PartedTable):
        raise UnsupportedModel(
            "linear_tree=True needs the columns of all training rows in memory; pass the table itself."
        )
    table = table_of(X)
    features = linear_features(parsed)
    if issparse(table):
        columns = table.tocsc()[:, features].toarray()
    else:
        found = compared_numbers(table)
        assert found is not None
        columns = found[:, features]
    # A model of categories alone has no such columns; an empty one stands for them.
    columns = columns.astype(np.float64) if len(features) else np.zeros((leaves.shape[1], 1))
    return with_columns(leaves, columns)


def _raw_data(dataset: lgb.Dataset) -> Any:
    """The table that a Dataset was made of."""
    try:
        return dataset.construct().get_data()
    except lgb.basic.LightGBMError:
        raise InvalidInput(
            "this lightgbm.Dataset has freed its raw data, so its rows cannot be put through the trees; make "
            "it with free_raw_data=False, or pass the table itself."
        ) from None


def _column_names(X: Any) -> list[str]:
    """Names of the columns, changed as LightGBM changes them."""
    return [str(c).replace(" ", "_") for c in X.columns]


def table_length(table: Any) -> int:
    return table.shape[0] if hasattr(table, "shape") else len(table)
