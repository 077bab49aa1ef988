"""How XGBoost chose its splits: the columns it compared, and what both sides of a split need.

The gain of a split is the sum over its sides of G^2 / (H + reg_lambda). In trees with vectors in their leaves,
min_child_weight holds single outputs of a side at zero, and does not rule out the split. Many categories are
sorted by G / (H + reg_lambda). What is left out here: max_cat_threshold, which bounds how many go to one side; that
missing values of categories go to either side, as they are taken for a category of their own; and that with both
max_delta_step and reg_alpha, gains leave reg_alpha out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from xgboost.core import XGBoostError

from ..._data.arrays import F64
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._model.splits import ColumnKind, SplitSearch
from ..._model.tree_paths import TreePaths, paths_of_routes
from .ensemble import XGBoostRun
from .model import error_reason
from .objectives import as_float32, loss_and_factor

if TYPE_CHECKING:
    from .source import XGBoostSource


def split_search(run: XGBoostRun, types: Sequence[str] | None, values: F64) -> SplitSearch:
    """The search for the splits of the trees of a run.

    ``types``   the kind of each feature as XGBoost names it, or None for numbers
    ``values``  (n, d) columns of the training rows
    """
    params = run.params
    hessian_factor = loss_and_factor(run.objective, params, len(run.base))[1]
    categorical = [types is not None and types[f] == "c" for f in range(values.shape[1])]
    one_hot = int(params.get("max_cat_to_onehot", 4))
    least = as_float32(params["min_child_weight"]) / hessian_factor
    joint = run.trees.width > 1
    return SplitSearch(
        trees=run.trees.nodes,
        columns=[_kind(c, x, one_hot) for c, x in zip(categorical, values.T, strict=True)],
        values=values,
        min_hessian=0.0 if joint else least,
        output_hessian=least if joint else 0.0,
        columns_sampled=_columns_sampled(run),
        joint=joint,
    )


def _columns_sampled(run: XGBoostRun) -> bool:
    """Whether nodes compared some of the columns only. A file does not keep that, but the user may say it."""
    names = ("colsample_bytree", "colsample_bylevel", "colsample_bynode")
    drawn = any(float(run.params.get(name, 1)) < 1 for name in names)
    is_unknown = run.loaded and not any(name in run.given for name in names)
    return is_unknown or drawn or bool(run.params.get("interaction_constraints"))


def _kind(categorical: bool, values: F64, one_hot: int) -> ColumnKind:
    if not categorical:
        return "missing"
    return "one-hot" if np.nanmax(values, initial=0) + 1 < one_hot else "sorted"


def tree_paths(self: XGBoostSource, X: Any) -> TreePaths:
    """The sides that rows to predict take at all splits, with the covers of leaves: a method."""
    trees = self.trees
    if trees.cover is None:
        raise UnsupportedModel(
            "XGBoost records no covers for trees with vectors in their leaves, and SHAP values need them."
        )
    cover = np.split(trees.cover, trees.edges[1:-1])
    values = stored_values(self._matrix(X))
    return paths_of_routes(trees.routes, cover, values, self.booster.feature_names)


def columns_of(matrix: xgb.DMatrix) -> F64:
    """(n, d) the values in a matrix; NaN for those that are missing."""
    return stored_values(matrix).astype(np.float64)


def stored_values(matrix: xgb.DMatrix) -> NDArray[np.float32]:
    """(n, d) the values in a matrix as XGBoost keeps them; NaN for those that are missing."""
    try:
        stored: Any = matrix.get_data()
    except XGBoostError as error:
        raise InvalidInput(
            "StructureInfluence needs the values of the training rows, which this matrix does not give; pass the "
            f"table itself. XGBoost says: {error_reason(error)}"
        ) from None
    if stored.nnz == stored.shape[0] * stored.shape[1]:
        return stored.data.reshape(stored.shape)
    out = np.full(stored.shape, np.nan, np.float32)
    rows = np.repeat(np.arange(stored.shape[0]), np.diff(stored.indptr))
    out[rows, stored.indices] = stored.data
    return out
