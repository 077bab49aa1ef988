"""Monotone constraints of a LightGBM model, which bound the outputs of its nodes.

With monotone_constraints_method="basic" every monotone split puts the mean output of its children
between its two sides: see _model/node_trees.py. Splits of categories are free, but the outputs of
their children are bounded.

With "intermediate" and "advanced" the output of the one child bounds the other side instead, and new
leaves bound others: see growth.py and advanced.py. monotone_penalty changes gains alone, so only which
splits there are.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..._data.arrays import Ints
from ..._model.node_trees import NodeTree, midpoint_bounds
from .advanced import AdvancedGrowth
from .growth import Growth
from .model import MISSING_NOTHING, ParsedModel, Tree

GROWTHS: dict[str, type[Growth]] = {"intermediate": Growth, "advanced": AdvancedGrowth}


def directions(params: dict[str, Any]) -> Ints:
    """1, -1 or 0 for each of the first columns; empty if none is constrained."""
    found = re.findall(r"-?\d+", str(params.get("monotone_constraints", "")))
    numbers = np.array([int(v) for v in found], np.int64)
    return numbers if numbers.any() else numbers[:0]


def split_signs(parsed: ParsedModel, tree: Tree) -> Ints:
    """(L - 1,) 1 if outputs rise from the left to the right of a split, -1 if they fall, else 0."""
    direction = np.zeros(len(parsed.categories), np.int64)
    given = directions(parsed.params)
    direction[: len(given)] = given
    return np.where(tree.categorical, 0, direction[tree.features])


def growth_of(parsed: ParsedModel, tree: Tree) -> Growth | None:
    """The growth of a tree whose bounds depend on the order of its splits; None for mid-points."""
    kind = GROWTHS.get(parsed.params.get("monotone_constraints_method", "basic"))
    sign = split_signs(parsed, tree)
    return kind(tree, sign, parsed.lowest) if kind and sign.any() else None


def constrained_tree(parsed: ParsedModel, tree: Tree, growth: Growth | None = None) -> NodeTree:
    """The nodes of a tree, with the bounds that its monotone splits give.

    ``growth``: that of the tree, if the caller wants to know more about it afterwards.
    """
    sign = split_signs(parsed, tree)
    growth = growth or growth_of(parsed, tree)
    bare = NodeTree(tree.children)
    lower, upper = midpoint_bounds(bare, sign) if growth is None else growth.bounds()
    return NodeTree(tree.children, None, None, sign, lower, upper)


def suspected_bounds(parsed: ParsedModel) -> str:
    """Words for bounds that are not replayed, if the model may have such: of leaves of missing values."""
    method = parsed.params.get("monotone_constraints_method")
    if method != "advanced" or not len(directions(parsed.params)):
        return ""
    numbers = (tree.missing[~tree.categorical] for tree in parsed.trees)
    if not any(np.any(missing != MISSING_NOTHING) for missing in numbers):
        return ""
    return (
        "likely a leaf that holds missing values alone, which moves bounds of monotone_constraints_method='advanced' "
        "in a way that is not replayed: train with 'intermediate', or fill in missing values"
    )
