"""Reading an XGBoost booster: its trees and its training parameters, from its JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.routes import BY_CATEGORY, MISSING_LEFT, NodeRoutes, category_words, slots_of
from ..._model.splits import TreeNodes, nodes_of
from ..base import cumulative, f32

# Every parameter has one name here; XGBoost reports most under several.
ALIASES = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "gamma": "min_split_loss",
    "random_state": "seed",
    "n_jobs": "nthread",
}


@dataclass(frozen=True)
class Trees:
    """Trees with a number in each leaf.

    A tree with vectors, which XGBoost computes one output at a time, stands here as ``width``
    trees, one for each output.

    ``leaf``    for each tree (nodes,) the number of the leaf a node is, from 0; -1: not a leaf
    ``edges``   (trees + 1,) leaves of each tree in the list of all leaves
    ``values``  (leaves, 1); ``cover`` (leaves,) sum of second derivatives, or None
    ``output``  (trees,) the output a tree writes to
    ``rounds``  (rounds + 1,) trees of each round
    ``weight``  (trees,) factor by which DART multiplies each tree, or None
    ``nodes``   the inner nodes of each tree
    ``categorical``  columns that splits compare as categories
    ``routes``  the comparisons at the inner nodes of each tree
    """

    leaf: list[NDArray[np.int64]]
    edges: NDArray[np.int64]
    values: F64
    cover: F64 | None
    output: NDArray[np.int32]
    rounds: NDArray[np.int64]
    weight: NDArray[np.float32] | None
    width: int
    nodes: list[TreeNodes]
    categorical: list[int]
    routes: list[NodeRoutes]

    def __len__(self) -> int:
        return len(self.leaf)

    @property
    def steps(self) -> NDArray[np.int64]:
        """(T + 1,) trees of each step.

        A step is a round, whose trees read the same scores. DART moves single trees, so there it
        is a tree.
        """
        return self.rounds if self.weight is None else np.arange(len(self) + 1)

    def first(self, rounds: int) -> Trees:
        """The trees of the first rounds alone."""
        trees = int(self.rounds[rounds])
        leaves = int(self.edges[trees])
        return Trees(
            self.leaf[:trees],
            self.edges[: trees + 1],
            self.values[:leaves],
            None if self.cover is None else self.cover[:leaves],
            self.output[:trees],
            self.rounds[: rounds + 1],
            None if self.weight is None else self.weight[:trees],
            self.width,
            self.nodes[:trees],
            self.categorical,
            self.routes[:trees],
        )


def learner(booster: xgb.Booster) -> dict[str, Any]:
    """The part of the booster's JSON that holds the model."""
    return json.loads(bytes(booster.save_raw("json")))["learner"]


def parse_trees(model: dict[str, Any]) -> Trees:
    """The trees of a learner."""
    gradient_booster = model["gradient_booster"]
    weight = gradient_booster.get("weight_drop")
    forest = gradient_booster.get("gbtree", gradient_booster)["model"]
    features = int(model["learner_model_param"]["num_feature"])
    for t, tree in enumerate(forest["trees"]):
        if not _is_whole(tree, features):
            raise UnsupportedModel(
                f"tree {t} of this XGBoost model has nodes or columns that are not there; is its file whole? Save "
                "the model again."
            )
    if not _are_whole(forest.get("cats", {})):
        raise UnsupportedModel(
            "the categories that this XGBoost model stores do not fit together; is its file whole? Save the model "
            "again."
        )
    parsed = [_parse_tree(tree) for tree in forest["trees"]]
    width = parsed[0][1].shape[1] if parsed else 1
    nodes = [_inner_nodes(*pair) for pair in zip(forest["trees"], parsed, strict=True)]
    routes = [
        _routes(tree, leaf) for tree, (leaf, _, _) in zip(forest["trees"], parsed, strict=True)
    ]
    columns = [(number, values, cover) for number, vectors, cover in parsed for values in vectors.T]
    covers = [cover for _, _, cover in columns if cover is not None]
    rounds = np.asarray(forest["iteration_indptr"], np.int64)
    if rounds[0] != 0 or rounds[-1] != len(parsed) or (np.diff(rounds) < 1).any():
        raise UnsupportedModel(
            f"the {len(parsed)} trees of this XGBoost model do not fit its rounds; is its file whole?"
        )
    output = np.tile(np.arange(width), len(parsed)) if width > 1 else forest["tree_info"]
    return Trees(
        leaf=[number for number, _, _ in columns],
        edges=cumulative([len(values) for _, values, _ in columns]),
        values=f32(np.concatenate([[], *(values for _, values, _ in columns)]))[:, None],
        cover=f32(np.concatenate([[], *covers])) if len(covers) == len(columns) else None,
        output=np.asarray(output, np.int32),
        rounds=rounds * width,
        weight=None if weight is None else np.asarray(weight, np.float32),
        width=width,
        nodes=[tree for tree in nodes for _ in range(width)],
        categorical=sorted({c for tree in forest["trees"] for c in _category_columns(tree)}),
        routes=[tree for tree in routes for _ in range(width)],
    )


def _category_columns(tree: dict[str, Any]) -> list[int]:
    """Columns that a tree splits by categories."""
    return np.asarray(tree["split_indices"])[tree["categories_nodes"]].astype(int).tolist()


def _inner_nodes(
    tree: dict[str, Any], parsed: tuple[NDArray[np.int64], F64, F64 | None]
) -> TreeNodes:
    """The inner nodes of a tree whose leaves have been numbered."""
    left = np.asarray(tree["left_children"])
    right = np.asarray(tree["right_children"])
    return nodes_of(left, right, np.asarray(tree["split_indices"]), parsed[0])


def _routes(tree: dict[str, Any], leaf: NDArray[np.int64]) -> NodeRoutes:
    """The comparisons of a tree: value < threshold goes left, and categories in the set go right."""
    left = np.asarray(tree["left_children"], np.int64)
    right = np.asarray(tree["right_children"], np.int64)
    inner, children = slots_of(left, right, leaf)
    by_category = np.asarray(tree["split_type"])[inner] == 1
    threshold = np.asarray(tree["split_conditions"], np.float32)[inner]
    at_most = np.nextafter(threshold, np.float32(-np.inf)).astype(np.float64)
    missing_left = np.asarray(tree["default_left"])[inner].astype(bool)
    # Sets of categories go left here, so the sides of their nodes change places.
    children[by_category] = children[by_category, ::-1]
    flags = MISSING_LEFT * (missing_left != by_category) + BY_CATEGORY * by_category
    sets = [np.zeros(0, np.uint32)] * len(inner)
    if by_category.any():
        place = {node: i for i, node in enumerate(inner.tolist())}
        start = np.asarray(tree["categories_segments"], np.int64)
        stop = start + np.asarray(tree["categories_sizes"], np.int64)
        categories = np.asarray(tree["categories"], np.int64)
        for i, node in enumerate(tree["categories_nodes"]):
            if node in place:
                sets[place[node]] = category_words(categories[start[i] : stop[i]])
    column = np.asarray(tree["split_indices"])[inner].astype(np.int32)
    return NodeRoutes(children, column, at_most, flags.astype(np.uint8), sets)


_NO_CHILD = -1


def _is_whole(tree: dict[str, Any], features: int) -> bool:
    """Whether a tree refers only to nodes, columns and categories that are there.

    XGBoost does not look, and crashes or never ends when it predicts.
    """
    left = np.asarray(tree["left_children"])
    inner = left != _NO_CHILD
    children = np.concatenate([left[inner], np.asarray(tree["right_children"])[inner]])
    # Every node but the root is the child of one node at most, so there is no way around in circles.
    if np.any((children < 1) | (children >= len(left))) or len(np.unique(children)) < len(children):
        return False
    column = np.asarray(tree["split_indices"])[inner]
    start = np.asarray(tree["categories_segments"], np.int64)
    stop = start + np.asarray(tree["categories_sizes"], np.int64)
    return bool(
        np.all((column >= 0) & (column < features))
        and np.all((start >= 0) & (start <= stop) & (stop <= len(tree["categories"])))
    )


def _are_whole(categories: dict[str, Any]) -> bool:
    """Whether the stored categories of each column are all there, each once in their sorted order.

    XGBoost does not look, and aborts when it finds the categories of a table among them.
    """
    counts: list[int] = []
    for column in categories.get("enc", []):
        values = column["values"]
        offsets = column.get("offsets")
        if not offsets:  # numbers, or a column without categories
            counts.append(len(values))
            continue
        if offsets[0] != 0 or offsets[-1] != len(values) or np.any(np.diff(offsets) < 0):
            return False
        counts.append(len(offsets) - 1)
    if not counts:
        return True
    ends = np.cumsum([0, *counts]).tolist()
    order = categories["sorted_idx"]
    return (
        categories["feature_segments"] == ends
        and len(order) == ends[-1]
        and all(
            sorted(order[end - count : end]) == list(range(count))
            for end, count in zip(ends[1:], counts, strict=True)
        )
    )


def _parse_tree(tree: dict[str, Any]) -> tuple[NDArray[np.int64], F64, F64 | None]:
    """(nodes,) the number of the leaf each node is, leaf values (L, O), cover (L,)."""
    left = np.asarray(tree["left_children"])
    right = np.asarray(tree["right_children"])
    inner = left >= 0
    alive = np.zeros(len(left), bool)  # a pruned tree keeps the nodes it has cut off
    alive[0] = alive[left[inner]] = alive[right[inner]] = True
    nodes = np.flatnonzero(alive & ~inner)
    number = np.full(len(left), -1)
    number[nodes] = np.arange(len(nodes))
    width = int(tree["tree_param"]["size_leaf_vector"])
    if width <= 1:
        values = np.asarray(tree["split_conditions"])[nodes, None]
        cover = np.asarray(tree["sum_hessian"])[nodes]
        return number, values, cover
    if "leaf_weights" in tree:  # since 3.2; a leaf's "right child" is its place there
        return number, np.asarray(tree["leaf_weights"]).reshape(-1, width)[right[nodes]], None
    return number, np.asarray(tree["base_weights"]).reshape(-1, width)[nodes], None


def parameters(booster: xgb.Booster) -> dict[str, str]:
    """Training parameters that the booster reports, by one name each.

    A loaded model reports XGBoost's defaults, but for those of its objective, which the file keeps.
    """
    config = json.loads(booster.save_config())["learner"]
    found: dict[str, str] = {}
    for section in (config, config["objective"]):  # Poisson's max_delta_step stands in both
        pending: list[dict[str, Any]] = [section]
        while pending:
            for name, value in pending.pop().items():
                if isinstance(value, dict):
                    pending.append(value)
                elif isinstance(value, str) and name != "name":
                    found[ALIASES.get(name, name)] = value
    return found


def is_loaded(booster: xgb.Booster) -> bool:
    """Whether the booster was surely loaded from a file.

    Training sets up a metric, loading does not. Evaluating a loaded model does.
    """
    config = json.loads(booster.save_config())["learner"]
    metric_disabled = config["learner_train_param"]["disable_default_eval_metric"] != "0"
    return not config["metrics"] and not metric_disabled


def best_rounds(booster: xgb.Booster) -> int | None:
    """Number of rounds up to the best one of early stopping; None without early stopping.

    The scikit-learn classes predict with these rounds, a Booster with all of them.
    """
    best = booster.attr("best_iteration")
    return None if best is None else int(best) + 1


def error_reason(error: Exception) -> str:
    """The message of XGBoost's error, without time, place and stack."""
    return re.sub(r"^\[[^\]]*\] \S+: ", "", str(error).strip().splitlines()[0])
