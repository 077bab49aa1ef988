"""XGBoost models for users: a booster in the class of theirs, and one with other leaf values."""

from __future__ import annotations

import json
from copy import copy
from typing import Any

import numpy as np
import xgboost as xgb

from ..._data.arrays import F64
from .model import Trees
from .opening import OpenedModel


def with_booster(opened: OpenedModel, booster: xgb.Booster) -> Any:
    """A copy of the user's model with another booster; the booster itself for a Booster.

    A model that was read from a file becomes one of the class that wrote the file.
    """
    if opened.name == "Booster":
        return booster
    if opened.model is None:
        model = getattr(xgb, opened.name)()
        model.load_model(bytearray(booster.save_raw("json")))
        return model
    model = copy(opened.model)
    model._Booster = booster
    return model


def with_leaf_values(booster: xgb.Booster, trees: Trees, values: F64) -> xgb.Booster:
    """A copy of a booster with these leaf values (leaves, 1), which are rounded to float32.

    Rounds after the last of these trees are left out.
    """
    rounds = len(trees.rounds) - 1
    if trees.weight is None and rounds < booster.num_boosted_rounds():
        booster = booster[:rounds]
    content = json.loads(bytes(booster.save_raw("json")))
    gradient_booster = content["learner"]["gradient_booster"]
    forest = gradient_booster.get("gbtree", gradient_booster)["model"]["trees"]
    by_tree = np.split(values[:, 0].astype(np.float32), trees.edges[1:-1])
    for i, tree in enumerate(forest):
        columns = slice(i * trees.width, (i + 1) * trees.width)
        nodes = np.flatnonzero(trees.leaf[columns.start] >= 0)
        _write_leaves(tree, nodes, np.column_stack(by_tree[columns]))
    changed = xgb.Booster()
    changed.load_model(bytearray(json.dumps(content).encode()))
    changed.load_config(booster.save_config())
    return changed


def _write_leaves(tree: dict[str, Any], nodes: np.ndarray, values: np.ndarray) -> None:
    """Put values (L, O) into the leaves of a tree, which are these nodes (L,)."""
    width = values.shape[1]
    if width == 1:
        places = tree["split_conditions"]
    elif "leaf_weights" in tree:  # since 3.2; a leaf's "right child" is its place there
        places = tree["leaf_weights"]
        nodes = np.asarray(tree["right_children"])[nodes]
    else:
        places = tree["base_weights"]
    for node, vector in zip(nodes.tolist(), values.tolist(), strict=True):
        places[node * width : (node + 1) * width] = vector
