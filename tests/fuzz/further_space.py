"""Configurations of rarer options of all libraries, and of objectives that users write."""

from __future__ import annotations

import cases_own_objectives as own
from xgboost_reading import VERSION

from . import catboost_space, lightgbm_space, xgboost_space
from .data import RATES, common, draw_data

SPACES = {"CatBoost": catboost_space, "LightGBM": lightgbm_space, "XGBoost": xgboost_space}
OWN = {
    "focal": ("two classes", own.focal, own.focal_loss, 1),
    "softmax": ("three classes", own.softmax, own.softmax_loss, 3),
    "one-sided": ("any", own.one_sided, own.one_sided_loss, 1),
}


def draw_configuration(draw):
    kind = draw.pick([own_objective, own_objective, exact_quantiles, by_gradients, quantised, root])
    return kind(draw)


def own_objective(draw):
    name = draw.pick(list(OWN))
    settings = draw.some({"learning_rate": RATES, "lambda": [0.1, 10.0], "max_depth": [2, 4]})
    data = draw_data(draw, OWN[name][0], categories=False)
    model = draw.pick(["XGBoost", "LightGBM"])
    if model == "LightGBM" and "lambda" in settings:  # the oracle knows it by its own name
        settings["lambda_l2"] = settings.pop("lambda")
    return {"model": model, "objective": name, "settings": settings, "data": data}


def exact_quantiles(draw):
    objective = draw.pick(["reg:absoluteerror", "reg:quantileerror"])
    settings = {"objective": objective, "tree_method": "exact", "base_score": 0.3}
    settings |= draw.some({"eta": RATES, "reg_lambda": [0.1, 10.0], "reg_alpha": [0.1]})
    if objective == "reg:quantileerror":
        settings["quantile_alpha"] = 0.3
    return {
        "model": "XGBoost",
        "settings": settings,
        "data": draw_data(draw, "any", categories=False),
    }


def by_gradients(draw):
    """Draw rows by their gradients, or uniformly for versions that cannot."""
    objective = draw.pick(["reg:squarederror", "binary:logistic", "count:poisson"])
    settings = {"objective": objective, "tree_method": "hist", "subsample": draw.pick([0.4, 0.8])}
    settings |= {"sampling_method": "gradient_based"} if VERSION >= (3, 2) else {}
    settings |= draw.some({"eta": RATES, "min_child_weight": [0.0, 3.0], "seed": [5]})
    data = draw_data(draw, xgboost_space.TARGETS[objective], categories=False)
    return {"model": "XGBoost", "settings": settings, "data": data}


def quantised(draw):
    objective = draw.pick(["regression", "binary", "poisson"])
    settings = {"objective": objective, "use_quantized_grad": True, "boost_from_average": False}
    settings |= draw.some({"learning_rate": RATES, "lambda_l2": [0.1, 10.0], "num_leaves": [3, 31]})
    settings |= {"min_data_in_leaf": draw.pick([2, 5]), "min_data_in_bin": 1}
    data = draw_data(draw, lightgbm_space.TARGETS[objective], categories=False)
    return {"model": "LightGBM", "settings": settings, "data": data}


def root(draw):
    settings = {"loss_function": "Lq:q=1.5"}
    settings |= draw.some({"learning_rate": RATES, "depth": [1, 6], "l2_leaf_reg": [0.1, 30.0]})
    return {
        "model": "CatBoost",
        "settings": settings,
        "data": draw_data(draw, "any", categories=False),
    }


def case_of(configuration):
    if "objective" not in configuration:
        made = SPACES[configuration["model"]].case_of(configuration)
        made.smooth = True
        return made
    _, objective, loss, K = OWN[configuration["objective"]]
    data, more = common(configuration)
    make = own.xgboost_case if configuration["model"] == "XGBoost" else own.lightgbm_case
    made = make(data, objective, loss, K, **configuration["settings"])
    made.weight = more["weight"]
    return made
