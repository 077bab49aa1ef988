"""Configurations of CatBoost."""

from __future__ import annotations

from cases_catboost import make
from catboost_structure import QUIET

from .data import CLASSES, RATES, common, draw_data, draw_directions

NOT_SMOOTH = {"MAE", "Quantile:alpha=0.7"}
TARGETS = {
    "RMSE": "any", "MAE": "any", "Quantile:alpha=0.7": "any", "Huber:delta=0.6": "any", "Lq:q=2.5": "any",
    "Expectile:alpha=0.7": "any", "LogCosh": "any", "Poisson": "counts", "Tweedie:variance_power=1.3": "counts",
    "CrossEntropy": "fractions", "Logloss": "two classes", "MultiClass": "three classes",
    "MultiClassOneVsAll": "three classes",
}  # fmt: skip


MANY_CLASSES = ("three classes",)


def draw_configuration(draw):
    objective = draw.pick([*TARGETS, "Logloss", "Logloss", "RMSE"])
    settings = {"loss_function": objective}
    settings |= draw.some(
        {
            "learning_rate": RATES, "depth": [1, 3, 6], "l2_leaf_reg": [0.0, 0.1, 30.0], "random_strength": [0.0],
            "rsm": [0.5], "leaf_estimation_iterations": [1, 2, 5], "leaf_estimation_backtracking": ["No"],
            "random_seed": [3], "border_count": [4], "min_data_in_leaf": [5],
        }
    )  # fmt: skip
    if objective == "RMSE" and draw.chance(0.2):  # scores of other losses are rounded to few digits
        settings["model_shrink_rate"] = 0.1
        settings["leaf_estimation_iterations"] = 1
    exact = objective in NOT_SMOOTH
    if objective == "LogCosh" or (draw.chance(0.4) and not exact):
        settings["leaf_estimation_method"] = draw.pick(["Newton", "Gradient"])
    if exact:
        settings.pop("leaf_estimation_iterations", None)
    if settings.get("leaf_estimation_iterations", 1) == 1:
        settings.pop("leaf_estimation_backtracking", None)
    settings |= draw.pick(
        [
            {}, {}, {"bootstrap_type": "No"}, {"bootstrap_type": "Bernoulli", "subsample": 0.6},
            {"bootstrap_type": "Bayesian", "bagging_temperature": 3.0}, {"bootstrap_type": "MVS", "subsample": 0.7},
        ]
    )  # fmt: skip
    settings |= draw.pick(
        [{}, {}, {"grow_policy": "Depthwise"}, {"grow_policy": "Lossguide", "max_leaves": 6}]
    )
    target = TARGETS[objective]
    if target in CLASSES and draw.chance(0.2):
        settings["auto_class_weights"] = draw.pick(["Balanced", "SqrtBalanced"])
    if objective in ("RMSE", "Logloss", "CrossEntropy", "Poisson") and draw.chance(0.2):
        settings["boost_from_average"] = draw.chance(0.5)
    data = draw_data(draw, target)
    out = {"settings": settings, "data": data}
    if data.get("categories"):
        settings["one_hot_max_size"] = draw.pick([2, 30])
    elif draw.chance(0.1) and "model_shrink_rate" not in settings:
        out["baseline"] = True
    directions = draw_directions(draw, data)
    if directions and not exact and "grow_policy" not in settings and target not in MANY_CLASSES:
        settings["monotone_constraints"] = dict(enumerate(directions))
        settings.setdefault("model_shrink_rate", 0)
    return out


def case_of(configuration):
    data, more = common(configuration)
    settings = {
        "depth": 4,
        **QUIET,
        "thread_count": 1,
        "iterations": configuration["rounds"],
        **configuration["settings"],
    }
    kinds = configuration["data"].get("categories", 0)
    on_targets = kinds > settings.get("one_hot_max_size", 2)
    smooth = settings["loss_function"] not in NOT_SMOOTH
    made = make(
        "", data, baseline=more.get("baseline"), on_targets=on_targets, smooth=smooth, **settings
    )
    made.weight = more["weight"]
    return made
