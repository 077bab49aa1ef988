"""Configurations of scikit-learn."""

from __future__ import annotations

from inspect import signature

import sklearn.ensemble
from boosters import Case
from cases_sklearn import VERSION, balanced, trained
from sklearn.utils.class_weight import compute_class_weight
from sklearn_forest import balance, forest_raw, forest_structure
from sklearn_gradient import gradient_raw, gradient_structure
from sklearn_hist import hist_raw, hist_structure

from .data import CLASSES, RATES, common, draw_data, draw_directions

NOT_SMOOTH = {"absolute_error", "quantile", "huber"}
HIST_TARGETS = {
    "squared_error": "any", "absolute_error": "any", "quantile": "any", "poisson": "counts", "gamma": "positive",
    "two": "two classes", "three": "three classes",
}  # fmt: skip
GRADIENT_TARGETS = {
    "squared_error": "any", "absolute_error": "any", "quantile": "any", "huber": "any", "exponential": "two classes",
    "two": "two classes", "three": "three classes",
}  # fmt: skip


def draw_configuration(draw):
    return draw.pick([draw_hist, draw_gradient, draw_forest])(draw)


def draw_hist(draw):
    loss = draw.pick([*HIST_TARGETS, "two"])
    settings = {} if loss in ("two", "three") else {"loss": loss}
    settings |= draw.some(
        {
            "learning_rate": RATES, "max_leaf_nodes": [3, 8], "max_depth": [1, 3], "min_samples_leaf": [1, 5],
            "l2_regularization": [0.1, 10.0], "max_features": [0.5], "max_bins": [4, 16], "random_state": [3],
        }
    )  # fmt: skip
    if draw.chance(0.5):
        settings["min_samples_leaf"] = draw.pick([1, 2, 5])
    if loss == "quantile":
        settings["quantile"] = draw.pick([0.3, 0.9])
    if loss in ("two", "three") and draw.chance(0.25):
        settings["class_weight"] = "balanced"
    if draw.chance(0.1) and loss not in NOT_SMOOTH:
        settings |= {"early_stopping": True, "validation_fraction": 0.3}
    data = draw_data(draw, HIST_TARGETS[loss])
    directions = draw_directions(draw, data)
    if directions and loss != "three" and "categories" not in data:
        settings["monotonic_cst"] = directions
    return {"model": "HistGradientBoosting", "settings": settings, "data": data}


def draw_gradient(draw):
    loss = draw.pick([*GRADIENT_TARGETS, "two"])
    settings = {} if loss in ("two", "three") else {"loss": loss}
    settings |= draw.some(
        {
            "learning_rate": RATES, "max_depth": [1, 3, 6], "min_samples_leaf": [1, 5], "max_leaf_nodes": [4],
            "max_features": [0.5], "subsample": [0.5, 0.8], "init": ["zero"], "min_impurity_decrease": [0.01],
            "ccp_alpha": [0.001],
        }
    )  # fmt: skip
    settings["random_state"] = draw.whole(100)
    if loss in ("quantile", "huber"):
        settings["alpha"] = draw.pick([0.3, 0.9])
    if loss == "huber":
        settings.pop("subsample", None)  # not supported
    data = draw_data(draw, GRADIENT_TARGETS[loss], categories=False, missing=False)
    return {"model": "GradientBoosting", "settings": settings, "data": data}


def draw_forest(draw):
    model = draw.pick(["RandomForest", "ExtraTrees"])
    target = draw.pick(["any", "two classes", "three classes"])
    settings = draw.some(
        {
            "max_depth": [1, 3, 6], "min_samples_leaf": [2, 5], "max_features": [0.5], "ccp_alpha": [0.001],
            "max_leaf_nodes": [4], "bootstrap": [True, False], "min_weight_fraction_leaf": [0.05],
        }
    )  # fmt: skip
    settings["random_state"] = draw.whole(100)
    if model == "RandomForest" and draw.chance(0.3) and settings.get("bootstrap", True):
        settings["max_samples"] = 0.6
    if target != "any" and draw.chance(0.3):
        weights = ["balanced", "balanced_subsample"] if settings.get("bootstrap") else ["balanced"]
        settings["class_weight"] = draw.pick(weights)
    if target == "any" and draw.chance(0.2):
        settings["criterion"] = "absolute_error"
    data = draw_data(draw, target, categories=False, missing=False)
    out = {"model": model, "settings": settings, "data": data}
    directions = draw_directions(draw, data)
    if directions and target != "three classes" and "criterion" not in settings:
        settings["monotonic_cst"] = directions
    if draws_by_weight(model, settings):
        out["weights"] = "none"
    return out


def draws_by_weight(model, settings):
    """Whether weights are only the chances of being drawn, as in bootstraps since scikit-learn 1.9."""
    bootstrap = settings.get("bootstrap", model == "RandomForest")
    return bootstrap and VERSION >= (1, 9)


def case_of(configuration):
    data, more = common(configuration)
    model = configuration["model"]
    settings = dict(configuration["settings"])
    hist = model == "HistGradientBoosting"
    settings["max_iter" if hist else "n_estimators"] = configuration["rounds"]
    classifies = configuration["data"]["target"] in CLASSES
    estimator = getattr(sklearn.ensemble, model + ("Classifier" if classifies else "Regressor"))
    # Where class weights are chances of being drawn, leaves do not have them.
    balances = settings.get("class_weight") == "balanced" and not draws_by_weight(model, settings)

    def structure(case):
        factor = balanced(case) if balances else 1.0
        if hist:
            return hist_structure(case, factor, stratify=classifies)
        if model == "GradientBoosting":
            return gradient_structure(case)
        if balances and "sample_weight" in signature(compute_class_weight).parameters:
            codes = case.data.codes.astype(int)
            factor = balance(codes, case.w)[codes]
        return forest_structure(case, factor)

    raw = hist_raw if hist else gradient_raw if model == "GradientBoosting" else forest_raw
    loss = settings.get("loss", settings.get("criterion"))
    smooth = loss not in NOT_SMOOTH
    fit = trained(lambda: estimator(**settings))
    ordered = settings.get("bootstrap", model == "RandomForest") or "subsample" in settings
    return Case("", data, fit, raw, structure, smooth=smooth, ordered=ordered, **more)
