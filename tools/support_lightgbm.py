"""LightGBM's options, one model each, for the table that support.py writes.

A maker returns (model, X, y, further arguments of Tracer)."""

from __future__ import annotations

import os
import tempfile

import lightgbm as lgb
import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

QUIET = {"verbosity": -1, "num_threads": 1}
SMALL = {**QUIET, "num_leaves": 12, "min_data_in_leaf": 8}
rng = np.random.default_rng(0)
N = 500
TABLE = pd.DataFrame(rng.normal(size=(N, 4)), columns=list("abcd"))
HOLES = TABLE.mask(rng.random(TABLE.shape) < 0.1)
KIND = rng.choice(["red", "green", "blue"], N)
TOWN = rng.integers(0, 30, N)
SCORE = (
    TABLE["a"] - TABLE["b"] * (KIND == "red") + rng.normal(size=30)[TOWN] + 0.5 * rng.normal(size=N)
).to_numpy()
CLASSES = np.where(SCORE > 0, "yes", "no")
BINARY = (SCORE > 0).astype(int)
THREE = np.digitize(SCORE, [-0.7, 0.7])
COUNTS = np.round(np.exp(SCORE / 2))
SIZES = np.exp(SCORE / 2)
SHARES = 1 / (1 + np.exp(-SCORE))
CATEGORIES = HOLES.assign(
    kind=pd.Categorical(KIND), town=pd.Categorical([f"town {t}" for t in TOWN])
)
W = rng.random(N) + 0.3
GIVEN = rng.normal(size=N)
MULTICLASS = {"objective": "multiclass", "num_class": 3}


def train(
    y=SCORE,
    X=TABLE,
    weight=None,
    init_score=None,
    rounds=15,
    file=False,
    more=None,
    callbacks=(),
    **settings,
):
    """Return a maker that trains with these settings; ``more`` are further arguments of Tracer."""

    def make():
        rows = lgb.Dataset(X, y, weight=weight, init_score=init_score)
        model = lgb.train({**SMALL, **settings}, rows, rounds, callbacks=list(callbacks))
        if file:
            handle, path = tempfile.mkstemp(suffix=".txt")
            os.close(handle)
            model.save_model(path)
            model = path
        return model, X, y, {"sample_weight": weight, "baseline": init_score, **(more or {})}

    return make


def binary(**settings):
    """Return a maker of a model of two classes."""
    return train(BINARY, objective="binary", **settings)


def three(**settings):
    """Return a maker of a model of three classes."""
    return train(THREE, **MULTICLASS, **settings)


def estimator(kind, X, y, weight=None, **settings):
    """Return a maker of one of the scikit-learn classes."""

    def make():
        model = kind(**QUIET, **{"n_estimators": 20, **settings}).fit(X, y, sample_weight=weight)
        return model, X, y, {"sample_weight": weight}

    return make


def continued():
    first = lgb.train(SMALL, lgb.Dataset(TABLE, SCORE), 6)
    model = lgb.train(
        {**SMALL, "learning_rate": 0.05}, lgb.Dataset(TABLE, SCORE), 6, init_model=first
    )
    return model, TABLE, SCORE, {}


def stopped():
    rows = lgb.Dataset(TABLE[100:], SCORE[100:])
    held = lgb.Dataset(TABLE[:100], SCORE[:100])
    stop = [lgb.early_stopping(3, verbose=False)]
    model = lgb.train(SMALL, rows, 300, valid_sets=[held], callbacks=stop)
    return model, TABLE[100:], SCORE[100:], {}


def refitted(decay, told=False):
    """Return a maker of a refitted model; ``told``: the model before the refit is given."""

    def make():
        model = lgb.train(SMALL, lgb.Dataset(TABLE, SCORE), 10)
        again = model.refit(TABLE[:300], SCORE[:300], decay_rate=decay)
        return again, TABLE[:300], SCORE[:300], {"params": {"refit_from": model}} if told else {}

    return make


def dataset(free):
    def make():
        rows = lgb.Dataset(TABLE, SCORE, weight=W, free_raw_data=free)
        return lgb.train(SMALL, rows, 10), rows, None, {}

    return make


def sparse():
    X = csr_matrix(np.where(rng.random((N, 4)) < 0.5, 0.0, TABLE))
    return lgb.train(SMALL, lgb.Dataset(X, SCORE), 10), X, SCORE, {}


def ranker(weight=None, **settings):
    """Return a maker of a ranker."""

    def make():
        sizes = np.full(N // 10, 10)
        rows = lgb.Dataset(TABLE, THREE, group=sizes, weight=weight)
        model = lgb.train({**SMALL, **settings}, rows, 15)
        return model, TABLE, THREE, {"qid": sizes, "sample_weight": weight}

    return make


def own_objective():
    model = lgb.LGBMRegressor(
        **QUIET, n_estimators=3, objective=lambda y, F: (np.tanh(F - y), 1 - np.tanh(F - y) ** 2)
    )
    return model.fit(TABLE, SCORE), TABLE, SCORE, {}


def rows():
    yield (
        "LGBMClassifier, defaults: missing values, categories, class names",
        estimator(lgb.LGBMClassifier, CATEGORIES, CLASSES, n_estimators=100),
    )
    yield "LGBMClassifier, defaults, three classes", estimator(lgb.LGBMClassifier, HOLES, THREE)
    yield (
        "LGBMRegressor, defaults: missing values, categories",
        estimator(lgb.LGBMRegressor, CATEGORIES, SCORE, n_estimators=100),
    )
    yield (
        "class_weight='balanced', weights",
        estimator(lgb.LGBMClassifier, TABLE, CLASSES, W, class_weight="balanced"),
    )
    yield (
        "class_weight={...}, three classes",
        estimator(lgb.LGBMClassifier, TABLE, THREE, class_weight={1: 2.5}),
    )

    yield "objective regression, weights", train(weight=W)
    yield "objective regression, reg_sqrt", train(SIZES, reg_sqrt=True)
    yield "objective huber, weights", train(objective="huber", alpha=0.8, weight=W)
    yield "objective fair, weights", train(objective="fair", weight=W)
    yield "objective poisson, weights", train(COUNTS, objective="poisson", weight=W)
    yield "objective gamma, weights", train(SIZES, objective="gamma", weight=W)
    yield (
        "objective tweedie, weights",
        train(SIZES, objective="tweedie", tweedie_variance_power=1.3, weight=W),
    )
    yield "objective binary, weights", binary(weight=W)
    yield "objective binary, sigmoid", binary(sigmoid=0.7)
    yield "objective binary, is_unbalance", binary(is_unbalance=True)
    yield "objective binary, scale_pos_weight", binary(scale_pos_weight=2.3)
    yield "objective cross_entropy, weights", train(SHARES, objective="cross_entropy", weight=W)
    yield "objective multiclass, weights", three(weight=W)
    yield (
        "objective multiclassova, weights",
        train(THREE, objective="multiclassova", num_class=3, weight=W),
    )
    yield (
        "objective multiclassova, scale_pos_weight",
        train(THREE, objective="multiclassova", num_class=3, scale_pos_weight=2.0),
    )
    yield "objective regression_l1", train(objective="regression_l1")
    yield "objective regression_l1, weights", train(objective="regression_l1", weight=W)
    yield "objective quantile, weights", train(objective="quantile", alpha=0.3, weight=W)
    yield "objective mape", train(SIZES, objective="mape")

    yield "lambda_l1, lambda_l2", train(lambda_l1=1.0, lambda_l2=2.0)
    yield "max_delta_step", binary(max_delta_step=0.4)
    yield "path_smooth", train(path_smooth=3.0)
    yield "path_smooth, objective binary, weights", binary(path_smooth=3.0, weight=W)
    yield (
        "cat_l2, many categories",
        train(X=CATEGORIES, cat_l2=3.0, min_data_per_group=5, cat_smooth=1.0),
    )
    yield "one-hot splits of many categories", train(X=CATEGORIES, max_cat_to_onehot=50)
    yield "boost_from_average=False", train(boost_from_average=False)
    yield "init_score", binary(init_score=GIVEN)
    yield (
        "a schedule of learning rates",
        train(callbacks=[lgb.reset_parameter(learning_rate=lambda t: 0.3 * 0.9**t)], weight=W),
    )
    yield (
        "extra_trees, feature_fraction, feature_fraction_bynode",
        train(extra_trees=True, feature_fraction=0.7, feature_fraction_bynode=0.7),
    )
    yield "interaction_constraints", train(interaction_constraints=[[0, 1], [2, 3]])
    yield "max_bin, min_data_in_bin", train(max_bin=15, min_data_in_bin=10)
    yield "use_missing=False", train(X=HOLES, use_missing=False)
    yield "zero_as_missing", train(X=HOLES.fillna(0.0), zero_as_missing=True)
    yield "scipy sparse matrix", sparse
    yield "lightgbm.Dataset as training rows", dataset(free=False)

    yield (
        "bagging_fraction, bagging_freq, weights",
        train(bagging_fraction=0.6, bagging_freq=2, weight=W),
    )
    yield (
        "pos_bagging_fraction, neg_bagging_fraction",
        binary(pos_bagging_fraction=0.5, neg_bagging_fraction=0.8, bagging_freq=1),
    )
    yield "bagging, three classes", three(bagging_fraction=0.6, bagging_freq=1)
    yield "data_sample_strategy='goss'", binary(data_sample_strategy="goss", learning_rate=0.25)
    yield (
        "data_sample_strategy='goss', weights",
        binary(data_sample_strategy="goss", learning_rate=0.25, weight=W),
    )
    yield (
        "data_sample_strategy='goss', three classes",
        three(data_sample_strategy="goss", learning_rate=0.25),
    )
    yield "boosting='dart'", train(boosting="dart", drop_rate=0.3, skip_drop=0.2)
    yield (
        "boosting='dart', uniform_drop, three classes",
        three(boosting="dart", uniform_drop=True, drop_rate=0.3),
    )
    yield (
        "boosting='dart', xgboost_dart_mode, bagging",
        train(
            boosting="dart",
            xgboost_dart_mode=True,
            drop_rate=0.3,
            bagging_fraction=0.6,
            bagging_freq=1,
        ),
    )
    yield "boosting='rf', bagging", binary(boosting="rf", bagging_fraction=0.6, bagging_freq=1)
    yield "boosting='rf', feature_fraction", train(boosting="rf", feature_fraction=0.5)
    yield (
        "use_quantized_grad, quant_train_renew_leaf",
        train(use_quantized_grad=True, quant_train_renew_leaf=True),
    )

    yield "early stopping", stopped
    yield "continued training (init_model)", continued
    yield "Booster.refit(decay_rate=0)", refitted(0.0)
    yield ".txt file", three(file=True, weight=W)
    yield ".txt file, categories", train(X=CATEGORIES, file=True)
    yield (
        ".txt file, parameters of more than six digits",
        train(file=True, learning_rate=0.0371829456, lambda_l2=1.23456789),
    )

    yield "Booster.refit(decay_rate=0.9), the default", refitted(0.9)
    yield "Booster.refit(decay_rate=0.9), params={'refit_from'}", refitted(0.9, told=True)
    yield "use_quantized_grad without quant_train_renew_leaf", train(use_quantized_grad=True)
    yield "use_quantized_grad, binary, weights", binary(use_quantized_grad=True, weight=W)
    rising = [1, -1, 0, 0]
    yield "monotone_constraints", train(monotone_constraints=rising, monotone_penalty=1.0)
    yield "monotone_constraints, path_smooth", train(monotone_constraints=rising, path_smooth=2.0)
    for method in ("intermediate", "advanced"):
        settings = {"monotone_constraints": rising, "monotone_constraints_method": method}
        yield f"monotone_constraints_method={method}", binary(**settings)
        yield (
            f"monotone_constraints_method={method}, path_smooth, monotone_penalty",
            train(**settings, path_smooth=2.0, monotone_penalty=1.0),
        )
    yield "linear_tree", train(linear_tree=True)
    yield (
        "linear_tree, linear_lambda, l2",
        train(linear_tree=True, linear_lambda=0.1, lambda_l2=2.0),
    )
    yield (
        "linear_tree, binary, weights, bagging",
        binary(linear_tree=True, weight=W, bagging_fraction=0.6, bagging_freq=1),
    )
    yield "linear_tree, path_smooth", train(linear_tree=True, path_smooth=2.0)
    yield "objective cross_entropy_lambda", train(SHARES, objective="cross_entropy_lambda")
    yield "lambdarank", ranker(objective="lambdarank")
    yield "lambdarank, weights", ranker(W, objective="lambdarank")
    yield "lambdarank, lambdarank_norm=False", ranker(objective="lambdarank", lambdarank_norm=False)
    yield (
        "lambdarank, truncation level, sigmoid, label_gain",
        ranker(
            objective="lambdarank", lambdarank_truncation_level=3, sigmoid=2.0, label_gain="0,1,5"
        ),
    )
    yield (
        "lambdarank, bagging",
        ranker(objective="lambdarank", bagging_fraction=0.7, bagging_freq=2),
    )
    yield "rank_xendcg", ranker(objective="rank_xendcg", objective_seed=7)
    yield (
        "lambdarank, bagging_by_query, fraction of 0.5 or less",
        ranker(objective="lambdarank", bagging_fraction=0.4, bagging_freq=1, bagging_by_query=True),
    )
    yield (
        "lambdarank, bagging_by_query, fraction above 0.5",
        ranker(objective="lambdarank", bagging_fraction=0.7, bagging_freq=1, bagging_by_query=True),
    )
    yield "own objective", own_objective
    yield (
        "boosting='rf' with goss",
        binary(
            boosting="rf", data_sample_strategy="goss", feature_fraction=0.5, learning_rate=0.25
        ),
    )
