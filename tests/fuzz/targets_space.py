"""Configurations of models with several labels a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import sklearn.ensemble
from cases_targets import (
    catboost_case,
    forest_case,
    log_odds,
    logistic,
    logistic_loss,
    mean,
    squared,
    squared_loss,
    xgboost_case,
)  # fmt: skip

from . import checks
from .data import RATES, WEIGHTS, common, draw_data
from .sklearn_space import draws_by_weight

NUMBERS = (squared, squared_loss)
SHARES = (logistic, logistic_loss)
# Labels, derivatives and loss, starting score.
OBJECTIVES = {
    "reg:squarederror": ("numbers", NUMBERS, mean),
    "binary:logistic": ("classes", SHARES, log_odds),
    "reg:logistic": ("shares", SHARES, log_odds),
    "MultiRMSE": ("numbers", NUMBERS, mean),
    "MultiLogloss": ("classes", SHARES, None),
    "MultiCrossEntropy": ("shares", SHARES, None),
}


def draw_configuration(draw):
    """Draw a model of several labels: plain values, so that they can be printed and simplified."""
    drawn = draw.pick([draw_xgboost, draw_xgboost, draw_catboost, draw_forest])(draw)
    data = draw_data(draw, "any", categories=False, missing=drawn["model"] == "XGBoost")
    data["labels"] = draw.pick([2, 2, 3])
    weights = draw.pick(WEIGHTS)
    if draws_by_weight(drawn["model"], drawn["settings"]):
        weights = "none"
    rounds = draw.pick([1, 3, 8])
    return {"library": "targets", "weights": weights, "rounds": rounds, **drawn, "data": data}


def draw_xgboost(draw):
    settings = {"objective": draw.pick(["reg:squarederror", "binary:logistic", "reg:logistic"])}
    settings |= draw.some(
        {
            "eta": RATES, "max_depth": [1, 6], "min_child_weight": [0.1, 3.0], "reg_lambda": [0.0, 0.1, 10.0],
            "reg_alpha": [0.1, 2.0], "max_delta_step": [0.1, 1.0], "colsample_bytree": [0.5], "subsample": [0.5, 0.8],
            "seed": [5],
        }
    )  # fmt: skip
    if draw.chance(0.4):
        settings |= {"multi_strategy": "multi_output_tree", "min_child_weight": 0.01}
    return {"model": "XGBoost", "settings": settings}


def draw_catboost(draw):
    loss = draw.pick(["MultiRMSE", "MultiLogloss", "MultiCrossEntropy"])
    settings = {"loss_function": loss, "leaf_estimation_backtracking": "No"}
    settings |= draw.some(
        {
            "learning_rate": RATES, "depth": [1, 6], "l2_leaf_reg": [0.0, 0.1, 30.0], "random_strength": [0.0],
            "leaf_estimation_iterations": [1, 2, 5], "random_seed": [3], "border_count": [4],
            "leaf_estimation_method": ["Newton", "Gradient"], "bootstrap_type": ["No", "Bernoulli"],
        }
    )  # fmt: skip
    if loss == "MultiRMSE":
        settings["leaf_estimation_iterations"] = 1
    return {"model": "CatBoost", "settings": settings}


def draw_forest(draw):
    model = draw.pick(["RandomForest", "ExtraTrees"])
    settings = draw.some(
        {
            "max_depth": [1, 3, 6], "min_samples_leaf": [2, 5], "max_features": [0.5], "ccp_alpha": [0.001],
            "max_leaf_nodes": [4], "bootstrap": [True, False],
        }
    )  # fmt: skip
    return {"model": model, "settings": {**settings, "random_state": draw.whole(100)}}


def with_labels(data, kind, count, seed):
    """Return the data with ``count`` columns of labels: "numbers", "classes" of 0 and 1, "shares"."""
    first = np.r_[data.codes, data.test_codes]
    noise = np.random.default_rng(seed).normal(size=(len(first), count - 1))
    spread = first.std() or 1.0
    y = np.column_stack([first, first[:, None] * [1, -1][: count - 1] + spread * noise])
    if kind != "numbers":
        y = np.argsort(np.argsort(y, axis=0), axis=0) / len(y)
    if kind == "classes":
        y = np.where(y < 0.5, 0.0, 1.0)
        y[: 2 * count] = np.eye(2 * count, count)  # every label occurs in the training rows
    y = np.float32(y).astype(float)
    k = len(data.codes)
    return replace(data, y=y[:k], codes=y[:k], y_test=y[k:], test_codes=y[k:])


def case_of(configuration):
    found, more = common(configuration)
    described = configuration["data"]
    settings = dict(configuration["settings"])
    name = settings.get("objective", settings.get("loss_function", "MultiRMSE"))
    kind, formulas, start = OBJECTIVES[name]
    data = with_labels(found, kind, described["labels"], described["seed"] + 3)
    rounds = configuration["rounds"]
    if configuration["model"] == "XGBoost":
        case = xgboost_case(data, formulas, start, rounds, **settings)
        case.ordered = "subsample" in settings
    elif configuration["model"] == "CatBoost":
        loss = settings.pop("loss_function")
        settings |= {"thread_count": 1, "iterations": rounds}
        case = catboost_case(data, loss, formulas, start, **settings)
    else:
        estimator = getattr(sklearn.ensemble, configuration["model"] + "Regressor")
        case = forest_case(data, lambda: estimator(rounds, **settings))
        case.ordered = settings.get("bootstrap", configuration["model"] == "RandomForest")
    case.weight = more["weight"]
    return case


def run(configuration):
    """Train the model of a configuration and check everything. Return the outcome."""
    return checks.run(configuration, case_of)
