"""Trees that split on target statistics: the leaves their rows were in during training.

Splits on target statistics are decided again, from the bins that training had. For all other splits
CatBoost itself decides on which side a row is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import catboost
import numpy as np

from ..._data.arrays import F64, Ids, Ints
from ..base import cumulative
from .model_json import Json, leaf_number, model_from_json, nested_leaf_weights, walk
from .order import Order
from .statistics import COUNT_KINDS, CategoricalRows, StatisticBins, target_statistics


class _SplitGroups:
    """Groups of splits, evaluated by CatBoost as a model of trees with one split each."""

    def __init__(self, content: Json, pool: catboost.Pool, groups: list[list[Json]]) -> None:
        self.pool = pool
        self.edges = cumulative([len(splits) for splits in groups])
        splits = [split for group in groups for split in group]
        self.model = model_of_splits(content, splits) if splits else None

    def answers(self, group: int) -> Ids:
        """Return on which side (splits, n) of the group's splits each row is, 0 or 1."""
        start, stop = self.edges[group : group + 2].tolist()
        if self.model is None or start == stop:
            return np.zeros((0, self.pool.num_row()), np.uint32)
        return self.model.calc_leaf_indexes(self.pool, start, stop).T


def model_of_splits(content: Json, splits: list[Json]) -> catboost.CatBoost:
    """Make a model with a tree of two leaves for each split, and the features of another model."""
    stumps = [{"splits": [s], "leaf_values": [0, 1], "leaf_weights": [1, 1]} for s in splits]
    without = ("trees", "oblivious_trees", "ctr_data")
    parts = {key: part for key, part in content.items() if key not in without}
    if any(split["split_type"] == "OnlineCtr" for split in splits):
        parts["ctr_data"] = content["ctr_data"]
    else:
        features = content["features_info"].items()
        parts["features_info"] = {key: part for key, part in features if key != "ctrs"}
    return model_from_json({**parts, "oblivious_trees": stumps, "scale_and_bias": [1, [0]]})


class StatisticTrees:
    """Trees of a model, and which target statistics their splits look at."""

    weights: list[F64]  # of the leaves of each tree, as training recorded them

    def __init__(self, content: Json, rows: CategoricalRows) -> None:
        info = content["features_info"]
        self.rows = rows
        self.split_index = split_indices(info)
        self.split_statistics = [ctr for ctr in info["ctrs"] for _ in ctr["borders"]]
        used = target_statistics(content)
        self.elements = _SplitGroups(
            content, rows.pool, [self._element_splits(ctr) for ctr in used]
        )
        self.group = {id(ctr): group for group, ctr in enumerate(used)}

    def _element_splits(self, ctr: Json) -> list[Json]:
        """Return the elements of a statistic that are not categories, as splits."""
        splits = []
        for element in ctr["elements"]:
            kind = element["combination_element"]
            if kind == "float_feature":
                index = self.split_index[kind, element["float_feature_index"], element["border"]]
                splits.append({**element, "split_type": "FloatFeature", "split_index": index})
            elif kind == "cat_feature_exact_value":
                index = self.split_index[kind, element["cat_feature_index"], element["value"]]
                splits.append({**element, "split_type": "OneHotFeature", "split_index": index})
        return splits

    def statistic(self, split: Json) -> Json | None:
        """Return the target statistic that a split looks at, or None."""
        if split["split_type"] != "OnlineCtr":
            return None
        ctr = self.split_statistics[split["split_index"] - len(self.split_index)]
        return None if ctr["ctr_type"] in COUNT_KINDS else ctr

    def bins_of(self, ctr: Json, bins: StatisticBins) -> Ids:
        """Return the bins (n,) of a statistic."""
        return bins.compute(ctr, list(self.elements.answers(self.group[id(ctr)])))

    def leaves(self, bins: StatisticBins) -> Ids:
        """Return the leaves (trees, n) of the rows, given the bins that training had."""
        raise NotImplementedError

    def weights_agree(self, leaves: Ids, order: Order) -> bool:
        """Check whether the leaves have the weights that training recorded."""
        w = self.rows.w[order.weighted_as]
        for ids, recorded in zip(leaves, self.weights, strict=True):
            weights = np.bincount(ids[order.rows], w, len(recorded))
            if not np.abs(weights - recorded).max() <= 1e-6 * recorded.max():
                return False
        return True


def split_indices(info: Json) -> dict[tuple[str, int, Any], int]:
    """Return the numbers of splits on numbers and on single categories.

    CatBoost counts splits over all features: on numbers, on single categories, then on statistics.
    """
    borders = [
        ("float_feature", feature["feature_index"], border)
        for feature in info.get("float_features") or []
        for border in feature.get("borders") or []
    ]
    values = [
        ("cat_feature_exact_value", feature["feature_index"], value)
        for feature in info.get("categorical_features") or []
        for value in feature.get("values") or []
    ]
    return {key: index for index, key in enumerate([*borders, *values])}


class SymmetricTrees(StatisticTrees):
    """Trees with the same split at all nodes of a level: bit d of a leaf's number is its side."""

    def __init__(self, content: Json, rows: CategoricalRows) -> None:
        super().__init__(content, rows)
        self.trees = [tree["splits"] or [] for tree in content["oblivious_trees"]]
        self.weights = [np.asarray(tree["leaf_weights"]) for tree in content["oblivious_trees"]]

    def leaves(self, bins: StatisticBins) -> Ids:
        """Replace the bits of splits on target statistics in the finished model's leaves."""
        leaves = self.rows.leaves.copy()
        for ctr, places in self._places():
            found = self.bins_of(ctr, bins)
            for t, d, border in places:
                bit = leaves.dtype.type(1 << d)
                leaves[t] = np.where(found >= border, leaves[t] | bit, leaves[t] & ~bit)
        return leaves

    def _places(self) -> list[tuple[Json, list[tuple[int, int, int]]]]:
        """Return each target statistic with the tree, level and border of every split on it.

        Statistics come in the order of the file, in which those of the same elements are adjacent.
        """
        uses: dict[int, tuple[Json, list[tuple[int, int, int]]]] = {}
        for t, splits in enumerate(self.trees):
            for d, split in enumerate(splits):
                ctr = self.statistic(split)
                if ctr is not None:
                    _, places = uses.setdefault(self.group[id(ctr)], (ctr, []))
                    places.append((t, d, round(split["border"])))
        return [uses[group] for group in sorted(uses)]


class NestedTrees(StatisticTrees):
    """Trees of nested nodes, each with a split of its own."""

    def __init__(self, content: Json, rows: CategoricalRows, trees: list[Json]) -> None:
        super().__init__(content, rows)
        self.trees = trees
        self.weights = nested_leaf_weights(trees)
        other_splits = [
            [
                split
                for node in walk(tree)
                if (split := node.get("split")) and not self.statistic(split)
            ]
            for tree in trees
        ]
        self.others = _SplitGroups(content, rows.pool, other_splits)

    def leaves(self, bins: StatisticBins) -> Ids:
        leaves = np.empty_like(self.rows.leaves)
        known = {}
        for t, tree in enumerate(self.trees):
            answers = iter(self.others.answers(t))
            for leaf, rows in self._rows_by_leaf(
                tree, np.arange(leaves.shape[1]), answers, bins, known
            ):
                leaves[t, rows] = leaf_number(leaf)
        return leaves

    def _rows_by_leaf(
        self,
        node: Json,
        rows: Ints,
        answers: Iterator[Ids],
        bins: StatisticBins,
        known: dict[int, Ids],
    ) -> Iterator[tuple[Json, Ints]]:
        """Yield the leaves below a node with those of these rows that reach them.

        ``answers`` gives the sides of the splits on anything but target statistics, in the order of
        `walk`; ``known`` keeps the bins of statistics."""
        if "split" not in node:
            yield node, rows
            return
        ctr = self.statistic(node["split"])
        if ctr is None:
            right = next(answers)[rows] > 0
        else:
            if id(ctr) not in known:
                known[id(ctr)] = self.bins_of(ctr, bins)
            right = known[id(ctr)][rows] >= round(node["split"]["border"])
        yield from self._rows_by_leaf(node["left"], rows[~right], answers, bins, known)
        yield from self._rows_by_leaf(node["right"], rows[right], answers, bins, known)
