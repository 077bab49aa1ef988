"""The leaves that training rows were in when CatBoost split on target statistics of categories.

In training, a target statistic of a row comes from the rows before it in a random order; the
finished model counts all rows instead. So the finished model puts some of its training rows into
other leaves than training did.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import catboost

from ..._data.arrays import Ids
from ..._data.errors import InvalidInput, UnsupportedModel
from ..base import cumulative, refuse_other_leaves
from .model_json import Json, numbered_trees
from .order import training_orders
from .statistic_trees import NestedTrees, StatisticTrees, SymmetricTrees
from .statistics import TARGET_KINDS, CategoricalRows, StatisticBins, target_statistics

_NOTE = "target statistics of categories recomputed, in the random order of training, as part of the fixed structure"
_NOT_CONFIRMED = (
    ", which the weights of the leaves do not confirm (likely other training rows or labels, or a model trained on "
    "rows in groups or by another version of CatBoost)"
)


@dataclass(frozen=True)
class TrainingLeaves:
    """The leaves (trees, n) of training rows, and whether recorded weights confirm them."""

    leaves: Ids
    confirmed: bool
    trees: StatisticTrees
    bins: StatisticBins

    @property
    def note(self) -> str:
        """A remark for the verdict on the replay."""
        return _NOTE + ("" if self.confirmed else _NOT_CONFIRMED)

    def statistic(self, ctr: Json) -> Ids:
        """Return the bins (n,) of a target statistic that the rows had in training."""
        return self.trees.bins_of(ctr, self.bins)


def training_leaves(
    model: catboost.CatBoost, content: Json, params: Json, rows: CategoricalRows
) -> TrainingLeaves:
    """Return the leaves in training.

    ``content`` is the model as JSON. Where no order of rows is confirmed, the likeliest is taken."""
    edges = cumulative(model.get_tree_leaf_counts())
    outputs = len(model.get_leaf_values()) // int(edges[-1])
    _refuse(content, params, rows, outputs)
    trees = _trees(model, content, rows)
    tried: list[TrainingLeaves] = []
    for order in training_orders(params, len(rows.y)):
        bins = StatisticBins(content, rows, order.rows, outputs)
        leaves = trees.leaves(bins)
        refuse_other_leaves(leaves, edges)
        if trees.weights_agree(leaves, order):
            return TrainingLeaves(leaves, True, trees, bins)
        tried.append(TrainingLeaves(leaves, False, trees, bins))
    return tried[0]


def _trees(model: catboost.CatBoost, content: Json, rows: CategoricalRows) -> StatisticTrees:
    if "oblivious_trees" in content:
        return SymmetricTrees(content, rows)
    return NestedTrees(content, rows, numbered_trees(model))


def _refuse(content: Json, params: Json, rows: CategoricalRows, outputs: int) -> None:
    """Raise for statistics, settings and tables whose leaves are not reconstructed."""
    kinds = {ctr["ctr_type"] for ctr in target_statistics(content)}
    if unknown := sorted(kinds - set(TARGET_KINDS)):
        raise UnsupportedModel(
            f"target statistics of the kind {', '.join(unknown)} are not supported; use Borders."
        )
    if params.get("task_type", "CPU") != "CPU":
        raise UnsupportedModel(
            "on a GPU, CatBoost computes target statistics in an order that is not replayed here; train with "
            "task_type='CPU', or with one_hot_max_size at least the largest number of categories."
        )
    if isinstance(rows.X, catboost.Pool):
        raise InvalidInput(
            "this model splits on target statistics of category columns, and a Pool does not give the categories of "
            "its rows; pass the table and the labels themselves: Tracer(model, X_train, y_train)."
        )
    if outputs == 1 and _has_several_borders(params):
        raise UnsupportedModel(
            "target statistics of the kind BinarizedTargetMeanValue are supported with TargetBorderCount=1 only; use "
            "that, or Borders."
        )


def _has_several_borders(params: Json) -> bool:
    """Check for BinarizedTargetMeanValue with more than one border of the target."""
    keys = ("simple_ctr", "combinations_ctr", "per_feature_ctr")
    text = " ".join(str(params.get(key)) for key in keys)
    return bool(re.search(r"BinarizedTargetMeanValue[^',]*TargetBorderCount=(?!1\b)", text))
