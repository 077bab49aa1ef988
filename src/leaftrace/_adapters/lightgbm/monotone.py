"""Monotone constraints of a LightGBM model, which bound the outputs of its nodes.

With monotone_constraints_method="basic" every monotone split puts the mean output of its children
between its two sides. Splits of categories are free, but the outputs of their children are bounded.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..._data.arrays import Ints
from ..._model.node_trees import NodeTree, midpoint_bounds
from .model import ParsedModel, Tree


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


def constrained_tree(parsed: ParsedModel, tree: Tree) -> NodeTree:
    """The nodes of a tree, with the bounds that its monotone splits give."""
    sign = split_signs(parsed, tree)
    lower, upper = midpoint_bounds(NodeTree(tree.children), sign)
    return NodeTree(tree.children, None, None, sign, lower, upper)
