"""The user's tables as DMatrices, with the columns and categories of the model."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from xgboost.core import XGBoostError

from ..._data import frames, inputs
from ..._data.arrays import Ints
from ..._data.errors import InvalidInput
from .model import error_reason

_VERSION = tuple(int(v) for v in re.findall(r"\d+", xgb.__version__)[:2])


class MatrixBuilder:
    """Makes DMatrices for a booster. ``missing``: the number that stands for a missing value."""

    def __init__(self, booster: xgb.Booster, missing: float) -> None:
        self.booster = booster
        self.missing = missing
        names = booster.feature_names or map(str, range(booster.num_features()))
        self.columns = list(names)

    def build(self, X: Any, kind: type[xgb.DMatrix] = xgb.DMatrix, **fields: Any) -> xgb.DMatrix:
        """X as a matrix of this kind, with these fields; a matrix is returned as it is."""
        if isinstance(X, xgb.DMatrix):
            if X.num_col() != len(self.columns):
                raise InvalidInput(
                    f"X has {X.num_col()} columns, but the model was trained on {len(self.columns)}."
                )
            return X
        X = inputs.columns(_with_joined_names(X), self.columns)
        if hasattr(X, "iloc"):
            frames.refuse_shared_names([str(c) for c in X.columns])
        if frames.kind(X) and (frames.has_categories(X, "XGBoost") or _VERSION < (3, 1)):
            X = self._in_order_of_training(frames.to_pandas(X))
        elif hasattr(X, "iloc") and self.categories:
            X = frames.order_categories(X, self.categories)
        types = self.booster.feature_types
        if types and "c" in types and not hasattr(X, "columns"):
            fields["feature_types"] = types
        try:
            return kind(X, missing=self.missing, enable_categorical=True, **fields)
        except (XGBoostError, ValueError) as error:
            raise InvalidInput(f"XGBoost cannot read these rows: {error_reason(error)}") from None

    def plain_values(self, X: Any) -> NDArray[np.float32] | None:
        """(m, d) the values of an array as a matrix would keep them, NaN for missing ones.

        None for what XGBoost has to read itself: other tables, and arrays that it refuses."""
        is_plain = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "fiu"
        if not is_plain or X.shape[1] != len(self.columns):
            return None
        with np.errstate(over="ignore"):
            values = np.asarray(X, np.float32)
        if not np.isnan(self.missing):
            values = np.where(values == np.float32(self.missing), np.float32(np.nan), values)
        return None if np.isinf(values).any() else values

    def _in_order_of_training(self, X: Any) -> Any:
        """A DataFrame made of another kind of table, with categories in the order of training."""
        unknown = [
            c for c in X.columns if X[c].dtype == "category" and str(c) not in self.categories
        ]
        if unknown:
            raise InvalidInput(
                f"the column '{unknown[0]}' is a category, and this model knows categories by their number only "
                "(XGBoost before 3.1); pass a pandas DataFrame with the categories of training."
            )
        return frames.order_categories(X, self.categories)

    @cached_property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of each column in the order of training.

        The trees that XGBoost grows depend on that order.
        """
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            return {}
        found = self.booster.get_categories(export_to_arrow=True) if _VERSION >= (3, 1) else None
        if found is None or found.empty():
            return {}
        return {name: values.to_pylist() for name, values in found.to_arrow() if values is not None}


def group_sizes(matrix: xgb.DMatrix) -> Ints | None:
    """Sizes of the groups of a matrix; None if it has none."""
    edges = matrix.get_uint_info("group_ptr")
    return np.diff(edges).astype(np.int64) if edges.size > 1 else None


def take_rows(matrix: xgb.DMatrix, keep: Ints) -> xgb.DMatrix:
    """Some rows of a matrix, without its labels and weights."""
    try:
        return matrix.slice(keep.tolist(), allow_groups=True)
    except XGBoostError as error:
        raise InvalidInput(
            f"rows of this matrix cannot be taken; pass the table itself. XGBoost says: {error_reason(error)}"
        ) from None


def _with_joined_names(X: Any) -> Any:
    """A DataFrame whose columns have several levels, with their names joined as XGBoost does."""
    if getattr(getattr(X, "columns", None), "nlevels", 1) == 1:
        return X
    return X.set_axis([" ".join(map(str, names)) for names in X.columns], axis=1)
