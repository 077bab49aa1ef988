"""The sides that rows take at the splits of a CatBoost model, with the weights of its leaves.

CatBoost itself shares the SHAP value of a statistic of several categories equally among them; so a
combination of features is a player of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import UnsupportedModel
from ..._model.routes import NodeRoutes, slots_of
from ..._model.tree_paths import PathTree, TreePaths, goes_left
from .model_json import Json, leaf_number, nested_leaf_weights, numbered_trees
from .split_values import SplitValues
from .statistic_trees import split_indices


def tree_paths(
    model: catboost.CatBoost, columns: SplitValues, leaves: Ids, values: Callable[[], F64]
) -> TreePaths:
    """Return the sides that some rows take at all splits.

    ``leaves``  (trees, m) of the rows
    ``values``  gives their columns (m, d), which symmetric trees do not need
    """
    players = Players(columns.content["features_info"])
    if "oblivious_trees" in columns.content:
        trees = columns.content["oblivious_trees"]
        paths = [_symmetric_tree(players, tree) for tree in trees]

        def left(r: int, rows: slice) -> NDArray[np.bool_]:
            split = _split_numbers(len(trees[r]["splits"] or []))
            return leaves[r, rows][:, None].astype(np.int64) >> split & 1 == 0

    else:
        nested = numbered_trees(model)
        weights = nested_leaf_weights(nested)
        routes = [_nested_routes(columns, tree) for tree in nested]
        compared = values()
        paths = [
            PathTree(tree.children, players.of_columns(columns, tree.column), weight)
            for tree, weight in zip(routes, weights, strict=True)
        ]

        def left(r: int, rows: slice) -> NDArray[np.bool_]:
            return goes_left(routes[r], compared[rows])

    return TreePaths(paths, left, players.features, list(model.feature_names_ or []) or None)


class Players:
    """Sets of features that splits look at, numbered in the order in which they are asked for."""

    def __init__(self, info: Json) -> None:
        self.features: list[tuple[int, ...]] = []
        kinds = ("float", "categorical")
        self._flat = {
            (kind, f["feature_index"]): int(f["flat_feature_index"])
            for kind in kinds
            for f in info.get(f"{kind}_features") or []
        }
        # So that every feature has a number, whether or not a split looks at it.
        for feature in sorted(self._flat.values()):
            self._number((feature,))
        self._ctrs: dict[int, Json] = {}
        split = len(split_indices(info))
        for ctr in info.get("ctrs") or []:
            for _ in ctr["borders"]:
                self._ctrs[split] = ctr
                split += 1

    def _number(self, features: tuple[int, ...]) -> int:
        if features not in self.features:
            self.features.append(features)
        return self.features.index(features)

    def of_split(self, split: Json) -> int:
        """Return the player of a split."""
        if split["split_type"] == "FloatFeature":
            return self._number((self._flat["float", split["float_feature_index"]],))
        if split["split_type"] == "OneHotFeature":
            return self._number((self._flat["categorical", split["cat_feature_index"]],))
        found = set()
        for element in self._ctrs[split["split_index"]]["elements"]:
            is_number = "float_feature_index" in element
            kind = "float" if is_number else "categorical"
            index = element["float_feature_index" if is_number else "cat_feature_index"]
            found.add(self._flat[kind, index])
        return self._number(tuple(sorted(found)))

    def of_columns(self, columns: SplitValues, column: Ints) -> Ints:
        """Return the players (N,) of splits by columns of numbers."""
        places = [int(feature["flat_feature_index"]) for feature in columns.floats]
        return np.array([self._number((places[c],)) for c in column], np.int64)


def _symmetric_tree(players: Players, tree: Json) -> PathTree:
    """Return a symmetric tree as CatBoost computes SHAP values: its last split is at the root.

    Covers of inner nodes depend on that order. Bit k of a leaf's number is its side of split k, so
    leaves stand in the order of their numbers.
    """
    splits = tree["splits"] or []
    player = np.array([players.of_split(split) for split in splits], np.int64)
    node = np.arange((1 << len(splits)) - 1)
    children = np.stack([2 * node + 1, 2 * node + 2], axis=1).astype(np.int32)
    weights = np.asarray(tree["leaf_weights"], np.float64)
    return PathTree(children, player[_split_numbers(len(splits))], weights)


def _split_numbers(splits: int) -> Ints:
    """Return the number (N,) of the split at each node, level by level from the last split on."""
    return np.repeat(np.arange(splits)[::-1], 1 << np.arange(splits))


def _nested_routes(columns: SplitValues, tree: Json) -> NodeRoutes:
    """Return the comparisons of one of the `numbered_trees`."""
    nodes = [tree]
    children: list[tuple[int, int]] = []
    for node in nodes:  # which grows on the way
        if "split" not in node:
            children.append((-1, -1))
            continue
        if node["split"]["split_type"] != "FloatFeature":
            raise UnsupportedModel(
                "SHAP values of CatBoost's trees that are not symmetric can be traced where all splits compare "
                "numbers; this model has splits by categories. Train it with grow_policy='SymmetricTree'."
            )
        children.append((len(nodes), len(nodes) + 1))
        nodes += [node["left"], node["right"]]
    below, above = np.array(children).T
    leaf = np.array([-1 if "split" in node else leaf_number(node) for node in nodes])
    inner, slots = slots_of(below, above, leaf)
    splits = [nodes[i]["split"] for i in inner]
    return NodeRoutes(
        slots,
        np.array([columns.column_of(split) for split in splits], np.int32),
        np.array([split["border"] for split in splits], np.float64),
        np.zeros(len(inner), np.uint8),
    )
