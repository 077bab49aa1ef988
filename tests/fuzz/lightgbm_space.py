"""Configurations of LightGBM."""

from __future__ import annotations

import lightgbm as lgb
from boosters import Case
from cases_lightgbm import QUIET, raw
from lightgbm_structure import DEFAULTS, structure

from .data import CLASSES, RATES, common, draw_data, draw_directions

TARGETS = {
    "regression": "any", "huber": "any", "fair": "any", "regression_l1": "any", "quantile": "any", "mape": "positive",
    "poisson": "counts", "gamma": "positive", "tweedie": "counts", "cross_entropy": "fractions",
    "binary": "two classes", "multiclass": "three classes", "multiclassova": "three classes",
}  # fmt: skip
NOT_SMOOTH = {"regression_l1", "quantile", "mape"}


def draw_configuration(draw):
    objective = draw.pick([*TARGETS, "binary", "binary", "regression", "multiclass"])
    target = TARGETS[objective]
    settings = {"objective": objective}
    settings |= draw.some(
        {
            "num_leaves": [3, 8, 31], "max_depth": [1, 3, 6], "min_data_in_leaf": [1, 5], "learning_rate": RATES,
            "min_sum_hessian_in_leaf": [0.0, 0.5], "lambda_l1": [0.1, 2.0], "lambda_l2": [0.1, 1.0, 30.0],
            "max_delta_step": [0.1, 1.0], "feature_fraction": [0.5], "feature_fraction_bynode": [0.5],
            "extra_trees": [True], "boost_from_average": [False], "max_bin": [4, 15], "min_data_in_bin": [1],
            "min_gain_to_split": [0.01],
        }
    )  # fmt: skip
    settings |= draw_lightgbm_sampling(draw, objective)
    if objective in ("binary", "multiclassova"):
        unbalanced = {"is_unbalance": True} if objective == "binary" else {}
        choices = [{}, {"scale_pos_weight": 3.0}, {"sigmoid": 0.7}, unbalanced]
        settings |= draw.pick(choices)
    if objective in ("huber", "quantile"):
        settings["alpha"] = draw.pick([0.3, 0.9])
    data = draw_data(draw, target)
    if data["rows"] <= 30:  # otherwise there are hardly any splits
        settings |= {"min_data_in_leaf": draw.pick([1, 2, 3]), "min_data_in_bin": 1}
    out = {"settings": settings, "data": data}
    if draw.chance(0.1) and settings.get("boosting") != "rf":
        out["baseline"] = True
    if objective == "regression" and "categories" not in data and draw.chance(0.3):
        # Of other objectives and with weights, the smoothing counts rows in a way the oracle cannot repeat.
        settings["path_smooth"] = draw.pick([0.5, 10.0])
        out["weights"] = "none"
    directions = draw_directions(draw, data)
    # A first tree without a split, as constraints may leave it, makes a DART model that is refused.
    if directions and objective not in NOT_SMOOTH and settings.get("boosting") != "dart":
        settings["monotone_constraints"] = [*directions, *([0] if "categories" in data else [])]
        settings |= draw.some({"monotone_penalty": [1.0]})
        if "missing" not in data:  # leaves of missing values alone are not replayed
            settings |= draw.some({"monotone_constraints_method": ["intermediate", "advanced"]})
    return out


def draw_lightgbm_sampling(draw, objective):
    """Draw how rows and trees are sampled."""
    kind = draw.pick(["none", "none", "bagging", "bagging of classes", "goss", "dart", "rf"])
    settings = {}
    if kind in ("bagging", "rf") or (kind == "dart" and draw.chance(0.3)):
        settings = {"bagging_fraction": draw.pick([0.5, 0.8]), "bagging_freq": draw.pick([1, 1, 3])}
        settings |= draw.some({"bagging_seed": [11]})
    if kind == "rf":
        settings["boosting"] = "rf"
    if kind == "bagging of classes" and objective == "binary":
        settings = {"pos_bagging_fraction": 0.9, "neg_bagging_fraction": 0.5, "bagging_freq": 1}
    if kind == "goss":
        settings["data_sample_strategy"] = "goss"
        settings |= draw.some({"top_rate": [0.3], "other_rate": [0.3]})
    if kind == "dart":
        settings |= {"boosting": "dart", "drop_rate": draw.pick([0.1, 0.5]), "skip_drop": 0.2}
        settings |= draw.some(
            {"uniform_drop": [True], "xgboost_dart_mode": [True], "max_drop": [2]}
        )
    return settings


def case_of(configuration):
    data, more = common(configuration)
    settings = configuration["settings"]
    params = {**QUIET, "num_leaves": 12, **settings}
    K = CLASSES.get(configuration["data"]["target"], 1)
    if K > 2:
        params["num_class"] = K
    like = {k: v for k, v in params.items() if k in DEFAULTS}
    if configuration["data"].get("categories"):
        binned = lgb.Dataset(data.X, data.y, params=params).construct()
        like["kinds"] = [binned.feature_num_bin(j) for j in range(data.X.shape[1])]

    def fit(X, y, weight, given):
        rows = lgb.Dataset(X, y, weight=weight, init_score=given)
        return lgb.train(params, rows, configuration["rounds"])

    draws_rows = bool({"bagging_freq", "data_sample_strategy"} & {*params})
    smooth = params["objective"] not in NOT_SMOOTH
    return Case(
        "",
        data,
        fit,
        raw,
        lambda case: structure(case, **like),
        smooth=smooth,
        ordered=draws_rows,
        **more,
    )
