"""CatBoost models as JSON: trees with their splits, statistics of categories, weights of leaves."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import catboost
import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel

Json = dict[str, Any]


def model_to_json(model: catboost.CatBoost) -> Json:
    """Return what CatBoost writes into a JSON file of the model."""
    with tempfile.TemporaryDirectory() as folder, _explained_errors():
        path = os.path.join(folder, "model.json")
        model.save_model(path, format="json")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


@contextmanager
def _explained_errors() -> Iterator[None]:
    """Re-raise CatBoost's errors about JSON files, with their likely reason."""
    try:
        yield
    except catboost.CatBoostError as error:
        raise UnsupportedModel(
            "CatBoost cannot write this model as JSON and read it again, as splits on categories need; likely its leaf "
            "values exploded in training. Train again with a smaller learning rate or more l2_leaf_reg. "
            f"CatBoost says: {error}"
        ) from None


def model_from_json(content: Json) -> catboost.CatBoost:
    """Load a model from the content of a JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        with _explained_errors():
            return catboost.CatBoost().load_model(path, format="json")


def numbered_trees(model: catboost.CatBoost) -> list[Json]:
    """Return the trees as nested nodes, with each leaf's number in place of its value.

    The JSON file lists the leaves of nested trees in another order than CatBoost numbers them."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.cbm")
        model.save_model(path)
        copy = catboost.CatBoost().load_model(path)
    counts = model.get_tree_leaf_counts()
    numbers = np.concatenate([np.arange(count) for count in counts]).astype(np.float64)
    copy.set_leaf_values(np.repeat(numbers, len(model.get_leaf_values()) // len(numbers)))
    return model_to_json(copy)["trees"]


def walk(node: Json) -> Iterator[Json]:
    """Yield a node and all nodes below it, left ones before right ones."""
    yield node
    if "split" in node:
        yield from walk(node["left"])
        yield from walk(node["right"])


def leaf_number(leaf: Json) -> int:
    """Return the number of a leaf of `numbered_trees`."""
    return int(np.ravel(leaf["value"])[0])


def nested_leaf_weights(trees: list[Json]) -> list[F64]:
    """Return the recorded weights (leaves,) of each of the `numbered_trees`."""
    weights = []
    for tree in trees:
        leaves = [node for node in walk(tree) if "split" not in node]
        leaves.sort(key=leaf_number)
        weights.append(np.array([leaf["weight"] for leaf in leaves], dtype=np.float64))
    return weights


def leaf_weights(model: catboost.CatBoost, content: Json) -> F64:
    """Return the weights (leaves,) recorded in training, for any number of outputs."""
    if "oblivious_trees" in content:
        return np.concatenate([tree["leaf_weights"] for tree in content["oblivious_trees"]])
    return np.concatenate(nested_leaf_weights(numbered_trees(model)))
