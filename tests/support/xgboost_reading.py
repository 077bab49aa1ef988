"""Reading what the oracle needs from a booster: scores, leaves, training parameters."""

from __future__ import annotations

import json
from itertools import pairwise

import xgboost as xgb

VERSION = tuple(map(int, xgb.__version__.split(".")[:2]))


def booster_of(model):
    return model if isinstance(model, xgb.Booster) else model.get_booster()


def rounds_of(model):
    """Return the rounds that the model predicts with.

    The scikit-learn classes stop at the best iteration."""
    booster = booster_of(model)
    if isinstance(model, xgb.Booster) or booster.attr("best_iteration") is None:
        return booster.num_boosted_rounds()
    return int(booster.attr("best_iteration")) + 1


def matrix(X, **more):
    return xgb.DMatrix(X, enable_categorical=True, **more)


def raw(model, X):
    F = booster_of(model).predict(
        matrix(X), output_margin=True, iteration_range=(0, rounds_of(model))
    )
    return F.astype(float).reshape(len(F), -1)


def steps_of(model, X):
    """Return the steps of the oracle. All nodes of a tree count as leaves, most of them without rows."""
    booster = booster_of(model)
    rounds = rounds_of(model)
    gb = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    forest = gb.get("gbtree", gb)["model"]
    ids = booster.predict(matrix(X), pred_leaf=True, iteration_range=(0, rounds))
    ids = ids.reshape(len(ids), -1).astype(int)
    vectors = int(forest["trees"][0]["tree_param"]["size_leaf_vector"]) > 1
    trees = [
        (
            ids[:, t],
            int(forest["trees"][t]["tree_param"]["num_nodes"]),
            0 if vectors else forest["tree_info"][t],
        )
        for t in range(ids.shape[1])
    ]
    if gb["name"] == "dart":
        return [[tree] for tree in trees]
    edges = forest["iteration_indptr"][: rounds + 1]
    return [trees[a:b] for a, b in pairwise(edges)]


def config_of(model):
    """Return all training parameters by name; those of the objective take precedence."""
    config = json.loads(booster_of(model).save_config())["learner"]
    found = {}

    def walk(part):
        for name, value in part.items():
            if isinstance(value, dict):
                walk(value)
            elif isinstance(value, str):
                found[name] = value

    walk(config)
    walk(config["objective"])
    return found
