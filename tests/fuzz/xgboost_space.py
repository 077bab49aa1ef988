"""Configurations of XGBoost."""

from __future__ import annotations

import xgboost as xgb
from boosters import Case
from xgboost_reading import matrix, raw
from xgboost_structure import structure

from .data import CLASSES, RATES, common, draw_data, draw_directions

NOT_SMOOTH = {"reg:absoluteerror", "reg:quantileerror"}
HIST_ONLY = {"grow_policy", "max_leaves", "max_bin", "colsample_bynode"}
TARGETS = {
    "reg:squarederror": "any", "reg:pseudohubererror": "any", "reg:absoluteerror": "any", "reg:quantileerror": "any",
    "reg:squaredlogerror": "positive", "reg:gamma": "positive", "reg:tweedie": "counts", "count:poisson": "counts",
    "reg:logistic": "fractions", "binary:logistic": "two classes", "binary:logitraw": "two classes",
    "binary:hinge": "two classes", "multi:softprob": "three classes", "multi:softmax": "five classes",
}  # fmt: skip


def draw_configuration(draw):
    objective = draw.pick([*TARGETS, "binary:logistic", "binary:logistic", "reg:squarederror"])
    settings = {"objective": objective}
    settings |= draw.some(
        {
            "eta": RATES, "max_depth": [1, 3, 6], "min_child_weight": [0.0, 0.1, 3.0], "reg_lambda": [0.0, 0.1, 10.0],
            "reg_alpha": [0.1, 2.0], "gamma": [0.1], "max_delta_step": [0.1, 1.0], "colsample_bytree": [0.5],
            "colsample_bylevel": [0.5], "colsample_bynode": [0.5], "grow_policy": ["lossguide"], "max_leaves": [4],
            "tree_method": ["hist", "approx", "exact"], "base_score": [0.3], "max_bin": [4, 16], "seed": [5],
        }
    )  # fmt: skip
    if settings.get("tree_method") == "exact":
        settings = {k: v for k, v in settings.items() if k not in HIST_ONLY}
        if objective in NOT_SMOOTH:
            del settings["tree_method"]
    if draw.chance(0.3):
        settings["subsample"] = draw.pick([0.5, 0.8])
    kind = draw.pick(["gbtree"] * 4 + ["dart", "parallel", "vector"])
    if kind == "dart":
        settings |= {"booster": "dart", "rate_drop": draw.pick([0.1, 0.5])}
    elif kind == "parallel":
        settings["num_parallel_tree"] = 4
    elif kind == "vector" and objective == "multi:softprob" and "tree_method" not in settings:
        settings |= {"multi_strategy": "multi_output_tree", "tree_method": "hist"}
        settings["min_child_weight"] = 0.01  # the oracle has none for vectors
    if objective.startswith("binary:") and draw.chance(0.3):
        settings["scale_pos_weight"] = draw.pick([0.3, 5.0])
    if objective == "reg:quantileerror":
        settings["quantile_alpha"] = draw.pick([0.3, 0.9])
    if objective == "reg:pseudohubererror":
        settings["huber_slope"] = draw.pick([0.3, 1.0, 10.0])
    categories = settings.get("tree_method") != "exact"
    out = {"settings": settings, "data": draw_data(draw, TARGETS[objective], categories)}
    if draw.chance(0.1):
        out["baseline"] = True
    directions = draw_directions(draw, out["data"])
    if directions and "multi_strategy" not in settings:
        settings["monotone_constraints"] = f"({','.join(map(str, directions))})"
    return out


def case_of(configuration):
    data, more = common(configuration)
    params = {"nthread": 1, "verbosity": 0, **configuration["settings"]}
    K = CLASSES.get(configuration["data"]["target"], 1)
    if K > 2:
        params["num_class"] = K

    def fit(X, y, w, margin):
        return xgb.train(
            params, matrix(X, label=y, weight=w, base_margin=margin), configuration["rounds"]
        )

    return Case(
        "", data, fit, raw, structure, tolerance=5e-7, smooth=params["objective"] not in NOT_SMOOTH,
        ordered="subsample" in params, **more,
    )  # fmt: skip
