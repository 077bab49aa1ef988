"""LightGBM models for the contract tests."""

from __future__ import annotations

from dataclasses import replace

import lightgbm as lgb
import numpy as np
from boosters import Case, Data, binary, frame, numbers, three_classes, weights
from lightgbm_formulas import VERSION
from lightgbm_structure import DEFAULTS, leaf_values, structure
from scipy.sparse import csr_matrix

QUIET = {"verbosity": -1, "num_threads": 1, "force_row_wise": True}
SMALL = {**QUIET, "num_leaves": 12, "min_data_in_leaf": 8, "learning_rate": 0.15}


def raw(model, X):
    booster = getattr(model, "booster_", model)
    F = np.asarray(booster.predict(X, raw_score=True)).reshape(X.shape[0], -1)
    forest = "\naverage_output" in booster.model_to_string()[:2000]
    # raw_score of a forest is a sum, which predict() divides by the number of trees.
    return F / booster.current_iteration() if forest else F


def train(data, rounds=15, weighted=False, baseline=None, callbacks=(), **settings):
    """Return a case of lightgbm.train with these settings."""
    params = {**SMALL, **settings}
    like = {k: v for k, v in params.items() if k in DEFAULTS}

    def fit(X, y, weight, given):
        rows = lgb.Dataset(X, y, weight=weight, init_score=given)
        return lgb.train(params, rows, rounds, callbacks=list(callbacks))

    def refit(case, w):
        again = case.model.refit(
            case.data.X, case.data.y, decay_rate=0.0, weight=w, init_score=case.baseline
        )
        return raw(again, case.data.X_test)

    drawn = params.get("bagging_freq", 0) > 0 or params.get("data_sample_strategy") == "goss"
    rounded = params.get("use_quantized_grad") and not params.get("quant_train_renew_leaf")
    can_refit = params.get("boosting", "gbdt") == "gbdt" and not drawn
    can_refit &= not params.get("path_smooth") and not params.get("use_quantized_grad")
    can_refit &= params.get("boost_from_average") is False
    return Case(
        name="",
        data=data,
        fit=fit,
        raw=raw,
        structure=lambda case: structure(case, **like),
        weight=weights(len(data.codes)) if weighted else None,
        baseline=baseline,
        smooth=params.get("objective") not in ("regression_l1", "quantile", "mape"),
        ordered=drawn or rounded,
        counts_rows=True,
        own_refit=refit if can_refit else None,
    )


def wrapper(kind, data, like, weighted=False, **settings):
    """Return a case of LGBMClassifier or LGBMRegressor with these settings.

    ``like`` has the same settings by the names that `structure` uses."""

    def fit(X, y, weight, given):
        return kind(**QUIET, **settings).fit(X, y, sample_weight=weight, init_score=given)

    return Case(
        name="",
        data=data,
        fit=fit,
        raw=raw,
        structure=lambda case: structure(case, **like),
        weight=weights(len(data.codes)) if weighted else None,
        counts_rows=True,
    )


KINDS = [0, 0, 0, 0, 4, 30]  # bins of the columns of `frame`: categories and one for others


def classifier_defaults():
    """Return a classifier of class names, with missing values and two category columns."""
    like = {"objective": "binary", "kinds": KINDS}
    return wrapper(lgb.LGBMClassifier, frame(many=True), like, n_estimators=20)


def regressor_defaults():
    return wrapper(lgb.LGBMRegressor, frame("number", many=True), {"kinds": KINDS}, n_estimators=20)


def three_classes_defaults():
    like = {"objective": "multiclass", "num_class": 3}
    return wrapper(lgb.LGBMClassifier, three_classes(text=True), like, n_estimators=12)


def balanced_classes():
    data = binary(text=True)
    share = np.bincount(data.codes.astype(int)) / len(data.codes)
    like = {
        "objective": "binary",
        "scale_pos_weight": 1.7,
        "lambda_l2": 0.5,
        "class_weight": 1 / (2 * share),
    }
    settings = {"class_weight": "balanced", "scale_pos_weight": 1.7, "reg_lambda": 0.5}
    return wrapper(lgb.LGBMClassifier, data, like, True, n_estimators=15, **settings)


def weighted_classes():
    more = {"max_delta_step": 0.9, "lambda_l1": 0.3, "lambda_l2": 0.7}
    like = {
        "objective": "multiclass",
        "num_class": 3,
        "class_weight": np.array([1.0, 2.5, 1.0]),
        **more,
    }
    return wrapper(
        lgb.LGBMClassifier,
        three_classes(text=True),
        like,
        True,
        n_estimators=12,
        class_weight={"barolo": 2.5},
        **more,
    )


def early_stopping():
    case = train(numbers())

    def fit(X, y, weight, given):
        rows = lgb.Dataset(X, y)
        held = lgb.Dataset(case.data.X_test, case.data.y_test, reference=rows)
        model = lgb.train(
            SMALL,
            rows,
            200,
            valid_sets=[held],
            callbacks=[lgb.early_stopping(5, verbose=False)],
            keep_training_booster=True,
        )
        assert 5 < model.best_iteration < 100
        return model

    case.fit = fit
    return case


def sparse():
    data = numbers()
    holes = np.random.default_rng(6).random((len(data.y) + len(data.y_test), data.X.shape[1])) < 0.4
    X = csr_matrix(np.where(holes, 0, np.concatenate([data.X, data.X_test])))
    n = len(data.y)
    case = train(
        Data(X[:n], data.y, data.codes, X[n:], data.y_test, data.test_codes),
        zero_as_missing=True,
        extra_trees=True,
    )
    return case


def schedule():
    case = train(
        numbers(),
        weighted=True,
        callbacks=[lgb.reset_parameter(learning_rate=lambda t: 0.3 * 0.9**t)],
    )
    case.structure = lambda case: structure(case, rates=[0.3 * 0.9**t for t in range(15)])
    return case


def continued():
    """Return a case of six iterations, and nine more with another learning rate."""
    case = train(numbers())

    def fit(X, y, weight, given):
        first = lgb.train(SMALL, lgb.Dataset(X, y), 6)
        return lgb.train({**SMALL, "learning_rate": 0.05}, lgb.Dataset(X, y), 9, init_model=first)

    case.fit = fit
    case.structure = lambda case: structure(case, rates=[0.15] * 6 + [0.05] * 9)
    return case


def refitted_with_decay():
    """Return a case of a model that was refitted to other rows, and keeps a part of its old values."""
    case = train(numbers(), 8, weighted=True, boost_from_average=False, lambda_l2=0.5)
    rows = np.arange(0, len(case.data.codes), 2)
    old = case.fit(case.data.X[rows], case.data.y[rows] + 0.3, None, None)

    def fit(X, y, weight, given):
        return old.refit(X, y, decay_rate=0.7, weight=weight)

    def read(case):
        made, steps = structure(case, boost_from_average=False, lambda_l2=0.5)
        leaves = [leaf_values(tree) for tree in old.dump_model()["tree_info"]]
        return replace(made, lr=0.3 * 0.15, shift=[0.7 * v for v in leaves]), steps

    case.fit = fit
    case.structure = read
    case.tracer = {"params": {"refit_from": old}}
    case.own_refit = lambda case, w: raw(
        old.refit(case.data.X, case.data.y, decay_rate=0.7, weight=w), case.data.X_test
    )
    return case


def half_zero(case):
    """Return the case with the weights of half its rows set to zero."""
    is_zero = np.random.default_rng(8).random(len(case.weight)) < 0.5
    case.weight = np.where(is_zero, 0.0, case.weight)
    return case


def scores(data, K=1):
    return np.random.default_rng(4).normal(size=(len(data.codes), K)).squeeze() * 0.3


ROUNDS = {"objective": "multiclass", "num_class": 3, "rounds": 10}
CASES = {
    "LGBMClassifier, defaults": classifier_defaults,
    "LGBMRegressor, defaults": regressor_defaults,
    "LGBMClassifier, defaults, multiclass": three_classes_defaults,
    "regression, weights, l1, l2, max_delta_step": lambda: train(
        numbers(),
        weighted=True,
        lambda_l1=1.0,
        lambda_l2=2.0,
        max_delta_step=0.5,
        boost_from_average=False,
    ),
    "huber, weights": lambda: train(  # no residual is close to this alpha
        numbers(), 8, True, objective="huber", alpha=1.25, boost_from_average=False
    ),
    "fair": lambda: train(numbers(), objective="fair", fair_c=0.8),
    "poisson, weights, l2": lambda: train(
        numbers("counts"), weighted=True, objective="poisson", lambda_l2=1.0
    ),
    "gamma, no starting score": lambda: train(
        numbers("positive"), objective="gamma", boost_from_average=False
    ),
    "tweedie, weights": lambda: train(
        numbers("positive"), weighted=True, objective="tweedie", tweedie_variance_power=1.3
    ),
    "cross_entropy_lambda": lambda: train(numbers("fractions"), objective="cross_entropy_lambda"),
    "cross_entropy, weights": lambda: train(
        numbers("fractions"), weighted=True, objective="cross_entropy"
    ),
    "binary, sigmoid, is_unbalance": lambda: train(
        binary(), objective="binary", sigmoid=0.7, is_unbalance=True
    ),
    "LGBMClassifier, balanced, scale_pos_weight, weights": balanced_classes,
    "multiclass, class_weight, weights, l1, l2, max_delta_step": weighted_classes,
    "multiclassova, weights, scale_pos_weight": lambda: train(
        three_classes(),
        10,
        True,
        objective="multiclassova",
        num_class=3,
        sigmoid=1.2,
        scale_pos_weight=1.8,
    ),
    "init_score": lambda: train(
        binary(),
        weighted=True,
        baseline=scores(binary()),
        objective="binary",
        boost_from_average=False,
    ),
    "multiclass, init_score": lambda: train(
        three_classes(), baseline=scores(three_classes(), 3), **ROUNDS
    ),
    "bagging, weights": lambda: train(
        numbers(), weighted=True, bagging_fraction=0.6, bagging_freq=2
    ),
    "binary, bagging of classes": lambda: train(
        binary(),
        objective="binary",
        pos_bagging_fraction=0.5,
        neg_bagging_fraction=0.8,
        bagging_freq=1,
    ),
    "multiclass, bagging": lambda: train(
        three_classes(), bagging_fraction=0.7, bagging_freq=1, **ROUNDS
    ),
    "GOSS": lambda: train(
        binary(), objective="binary", data_sample_strategy="goss", learning_rate=0.25
    ),
    "GOSS, weights": lambda: train(
        binary(), weighted=True, objective="binary", data_sample_strategy="goss", learning_rate=0.25
    ),
    "random forest, GOSS": lambda: train(
        binary(),
        objective="binary",
        boosting="rf",
        data_sample_strategy="goss",
        feature_fraction=0.6,
        learning_rate=0.25,
    ),
    "DART, weights": lambda: train(
        numbers(), weighted=True, boosting="dart", drop_rate=0.3, skip_drop=0.2
    ),
    "DART as in XGBoost, bagging": lambda: train(
        binary(),
        objective="binary",
        boosting="dart",
        drop_rate=0.3,
        skip_drop=0.2,
        xgboost_dart_mode=True,
        bagging_fraction=0.6,
        bagging_freq=1,
    ),
    "multiclass, DART": lambda: train(
        three_classes(), boosting="dart", uniform_drop=True, drop_rate=0.3, skip_drop=0.2, **ROUNDS
    ),
    "forest": lambda: train(
        binary(), objective="binary", boosting="rf", bagging_fraction=0.6, bagging_freq=1
    ),
    "early stopping": early_stopping,
    "sparse, zero_as_missing, extra_trees": sparse,
    "schedule of learning rates, weights": schedule,
    "continued training": continued,
    "refitted with decay": refitted_with_decay,
    "path_smooth, l2": lambda: train(numbers(), path_smooth=4.0, lambda_l2=0.5),
    "regression_l1, weights": lambda: train(numbers(), weighted=True, objective="regression_l1"),
    "regression_l1, half of the weights zero": lambda: half_zero(
        train(numbers(), weighted=True, objective="regression_l1")
    ),
    "quantile, bagging, half of the weights zero": lambda: half_zero(
        train(
            numbers(),
            weighted=True,
            objective="quantile",
            alpha=0.3,
            bagging_fraction=0.6,
            bagging_freq=2,
        )
    ),
    "mape, half of the weights zero": lambda: half_zero(
        train(numbers("positive"), weighted=True, objective="mape")
    ),
    "quantile, bagging": lambda: train(
        numbers(), objective="quantile", alpha=0.3, bagging_fraction=0.6, bagging_freq=1
    ),
    "mape": lambda: train(numbers("positive"), objective="mape"),
}
if VERSION >= (4, 6):  # earlier versions fail in a check of LightGBM itself
    CASES["quantised, weights"] = lambda: train(
        numbers(), 8, True, use_quantized_grad=True, boost_from_average=False, lambda_l2=0.5
    )
    CASES["quantised, leaves renewed"] = lambda: train(
        numbers(), use_quantized_grad=True, quant_train_renew_leaf=True
    )
