"""How CatBoost chose its splits: the nodes of its trees, and the columns that it compared.

CatBoost scores a split by sums of G^2 / (W + lam) over the leaves of the tree, in a symmetric tree
over all nodes of a level at once. What is not modelled: the score function Cosine, the noise of
random_strength, weights of the bootstrap, the folds of Ordered boosting, and model_size_reg.

The columns are the numbers, then the categories that are compared one by one (those with at most
one_hot_max_size values), then the statistics of categories that the model uses: see split_values.py.
min_data_in_leaf is what a node needs to be split, not what its sides need.
"""

from __future__ import annotations

from typing import Any

import catboost
import numpy as np

from ..._data.arrays import F64
from ..._model.splits import SplitSearch, TreeNodes, nodes_of
from ..split_columns import splits_not_by_gain
from .model_json import Json, leaf_number, numbered_trees
from .split_values import SplitValues

# Settings that multiply or lower the scores of some columns.
_PENALTIES = ("feature_weights", "first_feature_use_penalties", "per_object_feature_penalties")


def split_search(
    model: catboost.CatBoost, columns: SplitValues, params: dict[str, Any], values: F64
) -> SplitSearch:
    """Return the search for the splits of a model; ``values`` (n, d) are the training rows'."""
    _refuse(params)
    outputs = len(model.get_leaf_values()) // int(sum(model.get_tree_leaf_counts()))
    combined = any(len(ctr["elements"]) > 1 for ctr in columns.statistics)
    return SplitSearch(
        trees=_trees(model, columns),
        columns=columns.kinds,
        values=values,
        by_weight=not str(params.get("score_function")).startswith("Newton"),
        # Combinations of categories are on offer only below splits by some of them.
        columns_sampled=float(params.get("rsm") or 1) < 1 or combined,
        joint=outputs > 1,
    )


def _refuse(params: dict[str, Any]) -> None:
    """Raise for models whose splits were not chosen by these scores."""
    for name in _PENALTIES:
        if params.get(name):
            raise splits_not_by_gain(f"{name} changes the gains of some columns")


def _trees(model: catboost.CatBoost, columns: SplitValues) -> list[TreeNodes]:
    """Return the inner nodes of all trees."""
    if "oblivious_trees" in columns.content:
        trees = columns.content["oblivious_trees"]
        return [_symmetric_nodes(columns, tree["splits"] or []) for tree in trees]
    return [_nested_nodes(columns, tree) for tree in numbered_trees(model)]


def _symmetric_nodes(columns: SplitValues, splits: list[Json]) -> TreeNodes:
    """Return the nodes of a tree in which all nodes of a level have the same split.

    Bit k of a leaf's number is its side of split k. So level k has the nodes 2^k - 1 + p, p being
    the bits before k."""
    level = np.repeat(np.arange(len(splits)), 1 << np.arange(len(splits))).astype(np.int32)
    first = (1 << level) - 1  # the first node of the level
    left = np.arange(len(level)) - first + (2 << level) - 1
    column = np.array([columns.column_of(split) for split in splits], np.int32)
    return TreeNodes(
        left.astype(np.int32), (left + (1 << level)).astype(np.int32), column[level], level
    )


def _nested_nodes(columns: SplitValues, tree: Json) -> TreeNodes:
    """Return the nodes of one of the `numbered_trees`."""
    nodes = [tree]
    children: list[tuple[int, int]] = []
    for node in nodes:  # which grows on the way
        if "split" in node:
            children.append((len(nodes), len(nodes) + 1))
            nodes += [node["left"], node["right"]]
        else:
            children.append((-1, -1))
    left, right = np.array(children).T
    column = [columns.column_of(node["split"]) if "split" in node else -1 for node in nodes]
    leaf = [-1 if "split" in node else leaf_number(node) for node in nodes]
    return nodes_of(left, right, np.array(column), np.array(leaf))
