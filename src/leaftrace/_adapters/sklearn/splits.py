"""How scikit-learn's models chose their splits: the columns they compared, and what sides need.

HistGradientBoosting compares sums of G^2 / (H + l2_regularization) and sorts categories by
G / (H + 10), where missing ones are a category, too. It leaves categories of H below 10 on the
right, which is not modelled. Trees of sklearn.tree compare weighted variances; these differ from
sums of G^2 / W by a number that all splits of a node share, and so do Gini impurities of classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._model.ensemble import Ensemble
from ..._model.splits import ColumnKind, SplitSearch, TreeNodes, nodes_of
from ..split_columns import splits_not_by_gain
from .trees import ArrayTrees, Trees

_MIN_HESSIAN = 1e-3  # of HistGradientBoosting, which has no parameter for it
# The criteria whose splits are those of largest sum of G^2 / W.
_VARIANCES = ("squared_error", "friedman_mse", "gini")


def hist_search(trees: Trees, params: dict[str, Any], values: F64) -> SplitSearch:
    """Return the search for splits of a HistGradientBoosting model."""
    categorical = trees.model._is_categorical_remapped
    if categorical is None:
        categorical = np.zeros(values.shape[1], bool)
    kinds: list[ColumnKind] = ["sorted" if c else "missing" for c in categorical]
    # Interaction constraints take columns out, too.
    sampled = params.get("max_features", 1.0) < 1 or params.get("interaction_cst") is not None
    return SplitSearch(
        trees=hist_nodes(trees),
        columns=kinds,
        values=values,
        min_rows=float(params["min_samples_leaf"]),
        min_hessian=_MIN_HESSIAN,
        columns_sampled=sampled,
    )


def hist_nodes(trees: Trees) -> list[TreeNodes]:
    """Return the inner nodes of the trees of a HistGradientBoosting model."""
    predictors = [tree for step in trees.model._predictors for tree in step]
    return [
        _tree_nodes(trees, r, tree.nodes["left"], tree.nodes["right"], tree.nodes["feature_idx"])
        for r, tree in enumerate(predictors)
    ]


def array_nodes(trees: ArrayTrees) -> list[TreeNodes]:
    """Return the inner nodes of trees of sklearn.tree."""
    return [
        _tree_nodes(trees, r, tree.children_left, tree.children_right, tree.feature)
        for r, tree in enumerate(trees.trees)
    ]


def array_search(
    trees: ArrayTrees, params: dict[str, Any], values: F64, kind: ColumnKind, e: Ensemble
) -> SplitSearch:
    """Return the search for splits of trees of sklearn.tree; ``kind`` is that of all columns."""
    _refuse(_first_tree(trees.model))
    trained_rows = int(np.count_nonzero(e.w_factor))
    tree_weight = float(e.tree_weight(0).sum())  # with draws and weights, other trees differ a bit
    return SplitSearch(
        trees=array_nodes(trees),
        columns=[kind] * values.shape[1],
        values=values,
        by_weight=True,
        min_rows=_least_rows(params["min_samples_leaf"], trained_rows),
        min_hessian=float(params["min_weight_fraction_leaf"]) * tree_weight,
        columns_sampled=_first_tree(trees.model).max_features_ < values.shape[1],
        joint=trees.trees[0].value.shape[2] > 1,
    )


def _refuse(tree: Any) -> None:
    """Raise for models whose trees, as this one, were not split by variance."""
    if tree.splitter == "random":
        raise splits_not_by_gain("splitter='random' draws thresholds at random")
    if tree.criterion not in _VARIANCES:
        raise splits_not_by_gain(
            f"criterion={tree.criterion!r} compares splits by another measure than the sums of G^2 / W of "
            f"{', '.join(_VARIANCES)}"
        )


def _least_rows(setting: float, rows: int) -> float:
    """Return min_samples_leaf as a number of rows; a fraction is one of all rows."""
    is_count = isinstance(setting, (int, np.integer))
    return float(setting) if is_count else float(np.ceil(setting * rows))


def _first_tree(model: Any) -> Any:
    """Return the first tree of a model, which has its settings as all others have them."""
    return model if hasattr(model, "tree_") else np.ravel(model.estimators_)[0]


def _tree_nodes(trees: Trees, r: int, left: Ints, right: Ints, column: Ints) -> TreeNodes:
    """Return the inner nodes of tree r, from arrays (nodes,) of children and columns."""
    is_leaf = trees.is_leaf[r]
    number = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
    return nodes_of(left.astype(np.int64), right.astype(np.int64), column.astype(np.int64), number)
