"""CatBoost models as json files tell of them: trees with their splits, statistics of categories, weights of leaves."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import catboost
import numpy as np

from ..._data.arrays import F64

Json = dict[str, Any]


def written(model: catboost.CatBoost) -> Json:
    """The model as CatBoost writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        model.save_model(path, format="json")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def read(file: Json) -> catboost.CatBoost:
    """The other way."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(file, out)
        return catboost.CatBoost().load_model(path, format="json")


def numbered(model: catboost.CatBoost) -> list[Json]:
    """Trees as nested nodes, with each leaf's number in place of its value: the file has leaves in another order."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.cbm")
        model.save_model(path)
        copy = catboost.CatBoost().load_model(path)
    numbers = np.concatenate([np.arange(count) for count in model.get_tree_leaf_counts()]).astype(
        np.float64
    )
    copy.set_leaf_values(np.repeat(numbers, len(model.get_leaf_values()) // len(numbers)))
    return written(copy)["trees"]


def nodes(node: Json) -> Iterator[Json]:
    """All nodes below one, itself first and left ones before right ones."""
    yield node
    if "split" in node:
        yield from nodes(node["left"])
        yield from nodes(node["right"])


def number(leaf: Json) -> int:
    """Of a leaf of `numbered` trees."""
    return int(np.ravel(leaf["value"])[0])


def nested_weights(trees: list[Json]) -> list[F64]:
    """(leaves,) for each of `numbered` trees."""
    leaves = [[node for node in nodes(tree) if "split" not in node] for tree in trees]
    return [
        np.array([leaf["weight"] for leaf in sorted(tree, key=number)], dtype=np.float64)
        for tree in leaves
    ]


def leaf_weights(model: catboost.CatBoost, file: Json) -> F64:
    """(leaves,) weights recorded in training, of leaves of any number of outputs."""
    if "oblivious_trees" in file:
        return np.concatenate([tree["leaf_weights"] for tree in file["oblivious_trees"]])
    return np.concatenate(nested_weights(numbered(model)))
