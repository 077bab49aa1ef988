"""CatBoost's options, one model each, for the table that support.py writes.

A maker returns (model, X, y, further arguments of Tracer)."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pandas as pd
from catboost import CatBoost, CatBoostClassifier, CatBoostRegressor, Pool

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 2}
SMALL = {**QUIET, "iterations": 20, "depth": 4}
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
THREE = np.digitize(SCORE, [-0.7, 0.7])
COUNTS = np.round(np.exp(SCORE / 2))
SIZES = np.where(SCORE < -1, 0.0, np.exp(SCORE / 2))
TARGETS = np.stack([SCORE, SCORE**2 + TABLE["c"]], axis=1)
CATEGORIES = TABLE.assign(kind=KIND, town=[f"town {t}" for t in TOWN])
W = rng.random(N) + 0.3
GIVEN = rng.normal(size=N)


def option(
    y=SCORE, X=TABLE, weight=None, baseline=None, categories=None, held=None, more=None, **kw
):
    """Return a maker that trains with these settings; ``more`` are further arguments of Tracer."""

    def make():
        pool = Pool(X, y, weight=weight, baseline=baseline, cat_features=categories)
        model = CatBoost({**SMALL, **kw}).fit(pool, eval_set=held)
        return model, X, y, {"sample_weight": weight, "baseline": baseline, **(more or {})}

    return make


class OwnObjective:
    """An objective of a user, with CatBoost's signs."""

    def calc_ders_range(self, scores, labels, weights):
        p = 1 / (1 + np.exp(-np.array(scores)))
        w = 1.0 if weights is None else np.array(weights)
        g = p - np.array(labels)
        return list(zip(-w * g, -w * (p * (1 - p) + 0.1), strict=True))


def own_objective():
    more = {"loss_function": OwnObjective(), "eval_metric": "Logloss"}
    model = CatBoostClassifier(**SMALL, **more).fit(TABLE, CLASSES, sample_weight=W)
    return model, TABLE, CLASSES, {"sample_weight": W}


def numbers(loss, y=SCORE, **kw):
    """Return a maker of a regression model."""
    return option(y, loss_function=loss, **kw)


def classes(**kw):
    """Return a maker of a model of two classes."""
    return option(CLASSES, loss_function="Logloss", **kw)


def three(**kw):
    """Return a maker of a model of three classes."""
    return option(THREE, loss_function="MultiClass", **kw)


def mixed(**kw):
    """Return a maker of a model with category columns."""
    return option(
        CLASSES, CATEGORIES, categories=["kind", "town"], **{"loss_function": "Logloss", **kw}
    )


def ranker(loss, weight=None, **kw):
    """Return a maker of a ranker."""

    def make():
        groups = np.arange(N) // 10
        pool = Pool(TABLE, THREE, group_id=groups, weight=weight)
        model = CatBoost({**SMALL, "loss_function": loss, **kw}).fit(pool)
        return model, TABLE, THREE, {"qid": groups, "sample_weight": weight}

    return make


def estimator(kind, y, **kw):
    """Return a maker of one of the scikit-learn classes."""

    def make():
        return kind(**{**QUIET, "iterations": 20, **kw}).fit(TABLE, y), TABLE, y, {}

    return make


def from_file(kind):
    """Return a maker of a model file."""

    def make():
        model, X, y, more = mixed()()
        path = os.path.join(tempfile.mkdtemp(), f"model.{kind}")
        model.save_model(path, format=kind)
        return path, X, y, more

    return make


def continued(rate, stages=False):
    """Return a maker of a model trained further with this learning rate; ``stages`` are told."""

    def make():
        first = CatBoost({**SMALL, "iterations": 10, "learning_rate": 0.1}).fit(TABLE, SCORE)
        second = CatBoost({**SMALL, "iterations": 10, "learning_rate": rate}).fit(
            TABLE, SCORE, init_model=first
        )
        told = [{"iterations": 10, "learning_rate": lr} for lr in (0.1, rate)]
        return second, TABLE, SCORE, {"params": {"stages": told}} if stages else {}

    return make


def rescaled():
    model, X, y, more = option()()
    model.set_scale_and_bias(2.0, 0.0)
    return model, X, y, more


def texts():
    X = TABLE.assign(words=[f"{k} {t}" for k, t in zip(KIND, TOWN, strict=True)])
    pool = Pool(X, CLASSES, text_features=["words"])
    return CatBoost({**SMALL, "loss_function": "Logloss"}).fit(pool), X, CLASSES, {}


def vectors():
    numbers = np.random.default_rng(5).normal(size=(N, 4)) + SCORE[:, None]
    X = TABLE.assign(vector=[list(map(float, row)) for row in numbers])
    pool = Pool(X, SCORE, embedding_features=["vector"])
    return CatBoost({**SMALL, "loss_function": "RMSE"}).fit(pool), X, SCORE, {}


def as_pool(X, categories=None):
    def make():
        pool = Pool(X, CLASSES, weight=W, cat_features=categories)
        return CatBoost({**SMALL, "loss_function": "Logloss"}).fit(pool), pool, None, {}

    return make


def rows():
    yield "CatBoostClassifier()", estimator(CatBoostClassifier, CLASSES)
    yield "CatBoostClassifier(), three classes", estimator(CatBoostClassifier, THREE)
    yield "CatBoostRegressor()", estimator(CatBoostRegressor, SCORE)
    # losses
    yield "RMSE", numbers("RMSE")
    yield "Logloss", classes()
    yield "CrossEntropy", numbers("CrossEntropy", 1 / (1 + np.exp(-SCORE)))
    yield "MultiClass", three()
    yield "MultiClassOneVsAll", option(THREE, loss_function="MultiClassOneVsAll")
    yield "Poisson", numbers("Poisson", COUNTS)
    yield "Tweedie", numbers("Tweedie:variance_power=1.4", SIZES)
    yield "Huber", numbers("Huber:delta=0.8")
    yield "Expectile", numbers("Expectile:alpha=0.7")
    yield "Lq, q >= 2", numbers("Lq:q=2.5")
    yield "LogCosh", numbers("LogCosh")
    yield (
        "LogCosh, leaf_estimation_method=Newton",
        numbers("LogCosh", leaf_estimation_method="Newton"),
    )
    yield "MAE", numbers("MAE")
    yield "MAE, leaf_estimation_method=Gradient", numbers("MAE", leaf_estimation_method="Gradient")
    yield "Quantile", numbers("Quantile:alpha=0.7")
    yield "MAPE", numbers("MAPE")
    yield "Lq, q < 2", numbers("Lq:q=1.5")
    yield "LogLinQuantile", numbers("LogLinQuantile", SIZES)
    yield "MultiQuantile", numbers("MultiQuantile:alpha=0.2,0.8")
    yield (
        "MultiQuantile, leaf_estimation_method=Gradient",
        numbers("MultiQuantile:alpha=0.2,0.8", leaf_estimation_method="Gradient"),
    )
    yield "RMSEWithUncertainty", numbers("RMSEWithUncertainty", weight=W)
    yield "MultiRMSE", numbers("MultiRMSE", TARGETS, weight=W)
    yield "MultiLogloss", numbers("MultiLogloss", (TARGETS > 0).astype(int))
    yield "MultiCrossEntropy", numbers("MultiCrossEntropy", 1 / (1 + np.exp(-TARGETS)))
    bounds = np.stack([SIZES + 0.1, np.where(CLASSES == "yes", -1.0, SIZES + 0.1)], axis=1)
    for shape in ("Normal", "Logistic", "Extreme"):
        yield f"SurvivalAft, {shape}", numbers(f"SurvivalAft:dist={shape};scale=1.2", bounds)
    yield "own objective (calc_ders_range)", own_objective
    # leaves
    yield "leaf_estimation_method=Gradient", classes(leaf_estimation_method="Gradient")
    yield (
        "leaf_estimation_iterations=10, backtracking",
        classes(leaf_estimation_iterations=10, learning_rate=0.3),
    )
    yield (
        "leaf_estimation_backtracking=No",
        classes(leaf_estimation_iterations=5, leaf_estimation_backtracking="No"),
    )
    yield "l2_leaf_reg=0", numbers("RMSE", l2_leaf_reg=0)
    yield "boost_from_average with Logloss", classes(boost_from_average=True)
    yield "boost_from_average=False", numbers("RMSE", boost_from_average=False)
    yield "model_shrink_rate", numbers("RMSE", model_shrink_rate=0.2)
    yield (
        "model_shrink_mode=Decreasing",
        numbers("RMSE", model_shrink_rate=0.2, model_shrink_mode="Decreasing"),
    )
    yield "model_shrink_rate with Logloss", classes(model_shrink_rate=0.1)
    yield "monotone_constraints", numbers("RMSE", monotone_constraints=[1, -1, 0, 0])
    yield "monotone_constraints with Logloss", classes(monotone_constraints=[1, -1, 0, 0])
    yield "langevin", numbers("RMSE", langevin=True)
    yield "langevin, Logloss", classes(langevin=True)
    yield (
        "langevin, leaf_estimation_method=Gradient",
        numbers("RMSE", langevin=True, leaf_estimation_method="Gradient"),
    )
    yield "posterior_sampling", numbers("RMSE", posterior_sampling=True)
    # trees
    yield "grow_policy=Depthwise", classes(grow_policy="Depthwise")
    yield "grow_policy=Lossguide", three(grow_policy="Lossguide", max_leaves=9)
    yield "boosting_type=Ordered", classes(boosting_type="Ordered")
    yield (
        "bootstrap_type=Bernoulli, rsm",
        classes(bootstrap_type="Bernoulli", subsample=0.6, rsm=0.5),
    )
    yield "bootstrap_type=Bayesian", classes(bootstrap_type="Bayesian", bagging_temperature=2)
    yield "bootstrap_type=MVS", classes(bootstrap_type="MVS", subsample=0.6)
    yield "random_strength", numbers("RMSE", random_strength=5)
    yield (
        "early stopping",
        numbers(
            "RMSE",
            held=(TABLE[:100], SCORE[:100]),
            iterations=200,
            learning_rate=0.5,
            early_stopping_rounds=2,
        ),
    )
    # rows
    yield "sample weights", classes(weight=W)
    yield "sample weights of zero", numbers("RMSE", weight=np.where(np.arange(N) % 9, W, 0.0))
    yield "class_weights", classes(class_weights=[1.0, 3.0], weight=W)
    yield "auto_class_weights=Balanced", three(auto_class_weights="Balanced")
    yield "scale_pos_weight", classes(scale_pos_weight=2.5)
    yield "baseline", classes(baseline=GIVEN)
    yield "a Pool as training data", as_pool(TABLE)
    yield "continued training (init_model)", continued(0.1)
    yield "continued training with another learning rate", continued(0.2)
    yield "continued training with another learning rate, stages given", continued(0.2, True)
    # columns
    yield "missing values", classes(X=HOLES)
    yield "missing values, nan_mode=Max", classes(X=HOLES, nan_mode="Max")
    yield "categories, one-hot", mixed(one_hot_max_size=40)
    yield "categories, target statistics (the default)", mixed()
    yield "categories, has_time", mixed(has_time=True)
    yield "categories, Ordered", mixed(boosting_type="Ordered")
    yield "categories, combinations", mixed(max_ctr_complexity=4)
    yield "categories, Lossguide", mixed(grow_policy="Lossguide")
    yield "categories, weights and class weights", mixed(weight=W, auto_class_weights="Balanced")
    yield (
        "categories, simple_ctr=Buckets",
        mixed(simple_ctr=["Buckets", "BinarizedTargetMeanValue"]),
    )
    yield "categories, counts only", mixed(simple_ctr="Counter", combinations_ctr="Counter")
    yield "categories, regression", option(SCORE, CATEGORIES, categories=["kind", "town"])
    yield (
        "categories, three classes",
        option(THREE, CATEGORIES, categories=["kind", "town"], loss_function="MultiClass"),
    )
    yield "categories, ctr_leaf_count_limit", mixed(ctr_leaf_count_limit=4)
    yield "text columns", texts
    yield "embedding columns", vectors
    # files
    yield ".cbm file", from_file("cbm")
    yield ".json file", from_file("json")
    yield "set_scale_and_bias", rescaled
    # rankers
    yield "QueryRMSE", ranker("QueryRMSE")
    yield "QueryRMSE, weights", ranker("QueryRMSE", W)
    yield "QuerySoftMax", ranker("QuerySoftMax")
    yield (
        "QuerySoftMax, beta, Newton",
        ranker("QuerySoftMax:beta=2;lambda=0.1", leaf_estimation_method="Newton"),
    )
    yield "PairLogit", ranker("PairLogit")
    yield (
        "PairLogit, leaf_estimation_method=Gradient",
        ranker("PairLogit", leaf_estimation_method="Gradient"),
    )
    yield "LambdaMart", ranker("LambdaMart", l2_leaf_reg=0)
    yield "LambdaMart, sigma, top", ranker("LambdaMart:sigma=2;top=3", l2_leaf_reg=0)
    yield "LambdaMart, l2_leaf_reg", ranker("LambdaMart", l2_leaf_reg=3)
    yield "PairLogitPairwise", ranker("PairLogitPairwise")
    yield "YetiRank", ranker("YetiRank")
    yield "YetiRank, bootstrap_type=Bernoulli", ranker("YetiRank", bootstrap_type="Bernoulli")
    yield "YetiRankPairwise", ranker("YetiRankPairwise")
    yield "Cox", option(np.exp(SCORE) * np.where(KIND == "red", -1, 1), loss_function="Cox")
