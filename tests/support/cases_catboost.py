"""CatBoost models for the contract tests."""

from __future__ import annotations

import numpy as np
import pandas as pd
from boosters import Case, binary, frame, numbers, split, three_classes, weights
from catboost import CatBoost, CatBoostClassifier, CatBoostRegressor, Pool
from catboost_structure import QUIET, kinds_of, own_refit, raw, structure

RISING = [1, 0, -1, 1, 0, 0, -1, 0, 0, 0]
SMALL = {**QUIET, "iterations": 25, "depth": 4}


class CatBoostCase(Case):
    """A case of CatBoost. ``on_targets`` says whether it splits on target statistics.

    Rows count in CatBoost's l2 term, so a row of weight zero is not the same as a removed row."""

    on_targets = False


def make(
    name,
    data,
    estimator=CatBoost,
    weighted=False,
    baseline=None,
    on_targets=False,
    early=False,
    **kw,
):
    def fit(X, y, sample_weight, given):
        pool = Pool(X, y, weight=sample_weight, baseline=given, **kinds_of(X))
        held = (data.X_test, data.y_test) if early else None
        return estimator(**{**SMALL, **kw}).fit(pool, eval_set=held)

    extra = {"tolerance": kw.pop("tolerance", 1e-9), "smooth": kw.pop("smooth", True)}
    if kw.pop("refit", False):
        extra["own_refit"] = own_refit
    if estimator is CatBoost:  # which takes its settings as a dictionary
        settings = kw
        kw = {}

        def estimator(**more):
            return CatBoost({**more, **settings})

    case = CatBoostCase(
        name,
        data,
        fit,
        raw,
        structure,
        weight=weights(len(data.y)) if weighted else None,
        baseline=baseline,
        ordered=on_targets,
        counts_rows=True,
        **extra,
    )
    case.on_targets = on_targets
    return case


def three_kinds():
    """Return data of three classes with category columns."""
    d = frame("number", many=True)
    score = np.r_[d.y, d.y_test]
    codes = np.digitize(score, np.quantile(score, [0.33, 0.66])).astype(float)
    return split(pd.concat([d.X, d.X_test]), np.array(["A", "B", "C"])[codes.astype(int)], codes)


def texts_and_vectors():
    """Return data with a text column and a column of vectors."""
    d = frame("number", many=True)
    X = pd.concat([d.X, d.X_test])
    words = [f"{kind} {town} town" for kind, town in zip(X["kind"], X["town"], strict=True)]
    vectors = np.random.default_rng(4).normal(size=(len(X), 4)) + X[["a"]].fillna(0).to_numpy()
    X = X[["c", "d"]].assign(words=words, vector=[list(map(float, v)) for v in vectors])
    score = np.r_[d.y, d.y_test]
    return split(X, score, score)


def cases():
    """Yield (name, data, arguments of `make`) of all settings."""
    baseline = np.random.default_rng(7).normal(size=len(binary().y))
    classifier = CatBoostClassifier
    regressor = CatBoostRegressor
    yield "default classifier", binary(text=True), {"estimator": classifier, "depth": None}
    yield "default regressor", numbers(), {"estimator": regressor, "depth": None, "refit": True}
    yield (
        "default classifier of three classes (multiclass)",
        three_classes(),
        {"estimator": classifier, "depth": 3},
    )
    yield "logloss, weights, class weights", binary(), {
        "estimator": classifier, "weighted": True, "auto_class_weights": "Balanced",
    }  # fmt: skip
    yield "logloss, 3 Newton steps with backtracking", binary(), {
        "estimator": classifier, "leaf_estimation_iterations": 3, "learning_rate": 0.5, "l2_leaf_reg": 0.3,
    }  # fmt: skip
    yield (
        "logloss, baseline",
        binary(),
        {"estimator": classifier, "baseline": baseline, "iterations": 12},
    )
    yield "cross entropy from the average, Depthwise, Bernoulli", numbers("fractions"), {
        "loss_function": "CrossEntropy", "boost_from_average": True, "grow_policy": "Depthwise", "subsample": 0.6,
        "bootstrap_type": "Bernoulli",
    }  # fmt: skip
    yield "poisson, weights, gradient steps", numbers("counts"), {
        "loss_function": "Poisson", "leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 2,
        "leaf_estimation_backtracking": "No", "weighted": True,
    }  # fmt: skip
    yield "one-vs-all, weights", three_classes(text=True), {
        "loss_function": "MultiClassOneVsAll", "weighted": True, "depth": 3,
    }  # fmt: skip
    yield "softmax, gradient steps without l2", three_classes(), {
        "loss_function": "MultiClass", "leaf_estimation_method": "Gradient", "l2_leaf_reg": 0, "depth": 2,
        "iterations": 6,
    }  # fmt: skip
    yield (
        "tweedie",
        numbers("positive"),
        {"loss_function": "Tweedie:variance_power=1.3", "weighted": True},
    )
    yield (
        "huber",
        numbers(),
        {"loss_function": "Huber:delta=0.6", "weighted": True, "iterations": 12},
    )
    yield "lq", numbers(), {"loss_function": "Lq:q=2.5"}
    yield "lq, gradient steps", numbers(), {"loss_function": "Lq:q=1.5", "iterations": 8}
    yield "langevin, gradient steps, weights", numbers(), {
        "loss_function": "RMSE", "langevin": True, "diffusion_temperature": 100, "model_shrink_rate": 0,
        "leaf_estimation_method": "Gradient", "iterations": 8, "weighted": True,
    }  # fmt: skip
    yield "expectile", numbers(), {"loss_function": "Expectile:alpha=0.7", "iterations": 12}
    yield (
        "log-cosh, Newton",
        numbers(),
        {"loss_function": "LogCosh", "leaf_estimation_method": "Newton"},
    )
    yield "log-cosh", numbers(), {"loss_function": "LogCosh", "smooth": False}
    yield "absolute error", numbers(), {"loss_function": "MAE", "smooth": False}
    yield (
        "quantile, weights",
        numbers(),
        {"loss_function": "Quantile:alpha=0.7", "smooth": False, "weighted": True},
    )
    yield (
        "shrinking model",
        numbers(),
        {"loss_function": "RMSE", "model_shrink_rate": 0.3, "learning_rate": 0.3},
    )
    yield "shrinking model, ever less", numbers(), {
        "loss_function": "RMSE", "model_shrink_rate": 0.3, "model_shrink_mode": "Decreasing", "weighted": True,
    }  # fmt: skip
    yield "monotone, its own shrinking", numbers(), {
        "estimator": regressor, "weighted": True, "monotone_constraints": RISING,
    }  # fmt: skip
    yield "monotone, logloss, backtracking", binary(), {
        "estimator": classifier, "monotone_constraints": [-1, -1, 1, 0, 1] + [0] * 25, "model_shrink_rate": 0,
        "leaf_estimation_iterations": 3, "learning_rate": 0.5, "l2_leaf_reg": 0.3,
    }  # fmt: skip
    yield "monotone, poisson, gradient steps, weights", numbers("counts"), {
        "loss_function": "Poisson", "leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 3,
        "leaf_estimation_backtracking": "No", "weighted": True, "monotone_constraints": RISING, "model_shrink_rate": 0,
    }  # fmt: skip
    yield "early stopping", numbers(), {
        "estimator": regressor, "early": True, "iterations": 200, "learning_rate": 0.4, "early_stopping_rounds": 3,
    }  # fmt: skip
    yield (
        "categories one-hot, missing values",
        frame(),
        {"estimator": classifier, "one_hot_max_size": 5},
    )
    yield "categories by target statistics, weights", frame(many=True), {
        "estimator": classifier, "weighted": True, "on_targets": True, "leaf_estimation_iterations": 1, "refit": True,
    }  # fmt: skip
    yield "categories by target statistics, numbers", frame("number", many=True), {
        "estimator": regressor, "on_targets": True, "depth": None,
    }  # fmt: skip
    yield "combinations of categories, Ordered", frame(many=True), {
        "estimator": classifier, "weighted": True, "on_targets": True, "boosting_type": "Ordered", "depth": 5,
        "max_ctr_complexity": 4, "one_hot_max_size": 3, "random_seed": 11,
    }  # fmt: skip
    yield "text and embeddings, weights", texts_and_vectors(), {
        "estimator": regressor, "weighted": True, "on_targets": True, "iterations": 8,
    }  # fmt: skip
    yield "categories, multiclass, Lossguide", three_kinds(), {
        "estimator": classifier, "weighted": True, "on_targets": True, "grow_policy": "Lossguide", "max_leaves": 8,
        "simple_ctr": ["Buckets:Prior=0.3", "Borders"], "class_weights": [1.0, 2.0, 0.5],
    }  # fmt: skip


CASES = {
    name: (lambda name=name, data=data, kw=kw: make(name, data, **kw)) for name, data, kw in cases()
}
