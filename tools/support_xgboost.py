"""XGBoost's options, one model each, for the table that support.py writes.

A maker returns (model, X, y, further arguments of Tracer)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse
import xgboost as xgb
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 6)).astype(np.float32)
SCORE = X[:, 0] - X[:, 1] * X[:, 2] + 0.5 * RNG.normal(size=N)
NUMBER = SCORE.astype(np.float32)
CLASS = (SCORE > 0).astype(int)
CLASSES = np.digitize(SCORE, [-0.7, 0.7])
COUNT = RNG.poisson(np.exp(0.5 * X[:, 0]))
POSITIVE = np.float32(np.exp(0.5 * SCORE))
WEIGHT = np.float32(RNG.random(N) + 0.3)
MARGIN = np.float32(0.3 * RNG.normal(size=N))
FRAME = pd.DataFrame(X, columns=list("abcdef")).mask(RNG.random(X.shape) < 0.1)
FRAME["colour"] = pd.Categorical(RNG.choice(["red", "green", "blue"], N))
FRAME["town"] = pd.Categorical([f"town-{c:02d}" for c in RNG.integers(0, 30, N)])
SPARSE = scipy.sparse.csr_matrix(np.where(X > 0.5, X, 0))
BASE = {"nthread": 1, "max_depth": 4}
RISING = "(1,-1,0,1,0,0)"


def booster(y=NUMBER, rows=X, rounds=20, weight=None, base_margin=None, callbacks=None, **params):
    """Return a maker of a Booster with these parameters."""

    def make():
        matrix = xgb.DMatrix(
            rows, y, weight=weight, base_margin=base_margin, enable_categorical=True
        )
        given = {"sample_weight": weight, "baseline": base_margin}
        model = xgb.train({**BASE, **params}, matrix, rounds, callbacks=callbacks)
        return model, rows, y, {name: value for name, value in given.items() if value is not None}

    return make


def estimator(cls, y=NUMBER, rows=X, fit=None, **params):
    """Return a maker of one of the scikit-learn classes."""
    return lambda: (cls(n_jobs=1, **params).fit(rows, y, **(fit or {})), rows, y, {})


def early_stopping(as_booster):
    def make():
        model = xgb.XGBRegressor(n_jobs=1, n_estimators=60, early_stopping_rounds=3)
        model.fit(X[:300], NUMBER[:300], eval_set=[(X[300:], NUMBER[300:])], verbose=False)
        return model.get_booster() if as_booster else model, X[:300], NUMBER[:300], {}

    return make


def file(ending, given=None, **params):
    """Return a maker of a model file, which stores no training parameters; ``given`` are for Tracer."""

    def make():
        path = Path(tempfile.mkdtemp()) / f"model.{ending}"
        booster(**params)()[0].save_model(path)
        return path, X, NUMBER, {"params": given or {}}

    return make


def matrix():
    rows = xgb.DMatrix(X, NUMBER, weight=WEIGHT, base_margin=MARGIN)
    return xgb.train(BASE, rows, 20), rows, None, {}


def continued(**params):
    def make():
        rows = xgb.DMatrix(X, NUMBER)
        first = xgb.train({**BASE, **params}, rows, 10)
        return xgb.train({**BASE, **params, "eta": 0.1}, rows, 10, xgb_model=first), X, NUMBER, {}

    return make


def pipeline():
    model = make_pipeline(StandardScaler(), xgb.XGBRegressor(n_jobs=1, n_estimators=20))
    return model.fit(X, NUMBER), X, NUMBER, {}


TARGETS = np.float32(np.c_[NUMBER, NUMBER**2 + X[:, 3]])


def ranker(objective="rank:ndcg", y=None, **settings):
    """Return a maker of a ranker."""

    def make():
        labels = CLASS if y is None else y
        sizes = np.full(N // 10, 10)
        rows = xgb.DMatrix(X, labels, group=sizes)
        model = xgb.train({**BASE, "objective": objective, **settings}, rows, 10)
        return model, X, labels, {"qid": sizes}

    return make


def cox():
    y = np.where(np.arange(N) % 3, POSITIVE, -POSITIVE)
    rows = xgb.DMatrix(X, y)
    return xgb.train({**BASE, "objective": "survival:cox"}, rows, 10), X, y, {}


def survival(distribution):
    def make():
        bounds = np.stack([POSITIVE, np.where(CLASS, POSITIVE, np.inf)], axis=1)
        rows = xgb.DMatrix(X, label_lower_bound=bounds[:, 0], label_upper_bound=bounds[:, 1])
        params = {**BASE, "objective": "survival:aft", "aft_loss_distribution": distribution}
        return xgb.train(params, rows, 10), X, bounds, {}

    return make


def own_objective(y, prediction):
    r = prediction - y
    return np.where(r > 0, 2.0, 1.0) * r, np.where(r > 0, 2.0, 1.0)


def own_objective_of_booster():
    def objective(scores, rows):
        g, h = own_objective(rows.get_label(), scores)
        return WEIGHT * g, WEIGHT * h

    model = xgb.train(BASE, xgb.DMatrix(X, NUMBER), 20, obj=objective)
    given = {"objective": lambda margin, y: own_objective(y, margin)}
    return model, X, NUMBER, {"sample_weight": WEIGHT, "params": given}


MULTI = {"objective": "multi:softprob", "num_class": 3}


def rows():
    yield "XGBRegressor()", estimator(xgb.XGBRegressor)
    yield "XGBClassifier()", estimator(xgb.XGBClassifier, CLASS)
    yield "XGBClassifier(), three classes", estimator(xgb.XGBClassifier, CLASSES)
    yield "XGBRFRegressor()", estimator(xgb.XGBRFRegressor)
    yield "XGBRFClassifier()", estimator(xgb.XGBRFClassifier, CLASS)
    yield (
        "XGBRFClassifier(), three classes",
        estimator(xgb.XGBRFClassifier, CLASSES, n_estimators=30),
    )
    yield "Booster", booster()
    yield "Pipeline that ends in XGBRegressor", pipeline
    yield "objective=reg:logistic", booster(CLASS * 0.8 + 0.1, objective="reg:logistic")
    yield "objective=binary:logistic", booster(CLASS, objective="binary:logistic")
    yield "objective=binary:logitraw", booster(CLASS, objective="binary:logitraw")
    yield "objective=binary:hinge", booster(CLASS, objective="binary:hinge")
    yield "objective=multi:softmax", booster(CLASSES, objective="multi:softmax", num_class=3)
    yield "objective=multi:softprob", booster(CLASSES, **MULTI)
    yield "objective=count:poisson", booster(COUNT, objective="count:poisson")
    yield "objective=reg:gamma", booster(POSITIVE, objective="reg:gamma")
    yield (
        "objective=reg:tweedie",
        booster(POSITIVE, objective="reg:tweedie", tweedie_variance_power=1.3),
    )
    yield "objective=reg:squaredlogerror", booster(POSITIVE, objective="reg:squaredlogerror")
    yield (
        "objective=reg:pseudohubererror",
        booster(objective="reg:pseudohubererror", huber_slope=0.7, eval_metric="rmse"),
    )
    yield "objective=reg:absoluteerror", booster(objective="reg:absoluteerror")
    yield "objective=reg:quantileerror", booster(objective="reg:quantileerror", quantile_alpha=0.3)
    yield (
        "objective=reg:quantileerror, weights",
        booster(objective="reg:quantileerror", quantile_alpha=0.3, weight=WEIGHT),
    )
    yield "tree_method=exact, with pruning", booster(tree_method="exact", gamma=0.5)
    yield "tree_method=approx", booster(tree_method="approx")
    yield "grow_policy=lossguide", booster(grow_policy="lossguide", max_leaves=12, max_depth=0)
    yield "reg_alpha, reg_lambda", booster(reg_alpha=1.5, reg_lambda=0.3)
    yield (
        "reg_lambda=0, min_child_weight=0",
        booster(CLASS, objective="binary:logistic", reg_lambda=0, min_child_weight=0, rounds=100),
    )
    yield "max_delta_step", booster(max_delta_step=0.3)
    yield (
        "count:poisson, max_delta_step",
        booster(COUNT, objective="count:poisson", max_delta_step=0.2),
    )
    yield "min_child_weight, gamma", booster(min_child_weight=10, gamma=0.3)
    yield "sample weights", booster(weight=WEIGHT)
    yield (
        "scale_pos_weight",
        booster(CLASS, objective="binary:logistic", scale_pos_weight=3, weight=WEIGHT),
    )
    yield (
        "colsample_bytree, _bylevel, _bynode",
        booster(colsample_bytree=0.7, colsample_bylevel=0.8, colsample_bynode=0.8),
    )
    yield "num_parallel_tree", booster(num_parallel_tree=4, colsample_bynode=0.5, rounds=8)
    yield (
        "multi_strategy=multi_output_tree",
        booster(CLASSES, **MULTI, multi_strategy="multi_output_tree"),
    )
    yield "interaction_constraints", booster(interaction_constraints="[[0,1],[2,3,4,5]]")
    yield "base_score given", booster(base_score=0.3)
    yield "base_margin", booster(base_margin=MARGIN)
    yield "subsample, hist", booster(subsample=0.7)
    yield (
        "subsample, approx, parallel trees",
        booster(subsample=0.7, tree_method="approx", num_parallel_tree=2, rounds=8),
    )
    yield "subsample, exact", booster(subsample=0.7, tree_method="exact")
    yield "subsample, three classes", booster(CLASSES, **MULTI, subsample=0.7)
    yield "subsample, seed_per_iteration", booster(subsample=0.7, seed_per_iteration=True, seed=3)
    yield "booster=dart", booster(booster="dart", rate_drop=0.2)
    yield (
        "booster=dart, weighted, forest, skip_drop, subsample",
        booster(
            booster="dart",
            rate_drop=0.2,
            sample_type="weighted",
            normalize_type="forest",
            skip_drop=0.3,
            subsample=0.8,
        ),
    )
    yield "booster=dart, three classes", booster(CLASSES, **MULTI, booster="dart", rate_drop=0.2)
    yield (
        "missing values and categories (DataFrame)",
        estimator(xgb.XGBClassifier, CLASS, FRAME, enable_categorical=True),
    )
    yield (
        "categories, one-hot splits",
        estimator(xgb.XGBRegressor, rows=FRAME, enable_categorical=True, max_cat_to_onehot=100),
    )
    yield "sparse matrix", estimator(xgb.XGBRegressor, rows=SPARSE)
    yield "missing=0", estimator(xgb.XGBRegressor, rows=np.where(X > 0, X, 0), missing=0.0)
    yield "DMatrix with labels, weights and base_margin", matrix
    yield "early stopping, XGBRegressor (best rounds)", early_stopping(False)
    yield "early stopping, Booster (all rounds)", early_stopping(True)
    yield "300 rounds, labels around 200,000", booster(np.float32(2e5 + 5e4 * SCORE), rounds=300)
    yield (
        "learning rates set by a callback",
        booster(callbacks=[xgb.callback.LearningRateScheduler(lambda i: 0.3 * 0.95**i)]),
    )
    yield "continued training, another learning rate", continued()
    yield "continued training with subsample", continued(subsample=0.7)
    yield ".ubj file", file("ubj", eta=0.17, reg_lambda=2.5)
    yield ".json file", file("json", eta=0.17, reg_lambda=2.5, reg_alpha=0.5)
    yield "file, subsample not given", file("ubj", subsample=0.7, seed=3)
    yield (
        "file, params={'subsample', 'seed'}",
        file("ubj", {"subsample": 0.7, "seed": 3}, subsample=0.7, seed=3),
    )
    yield (
        "several values of quantile_alpha",
        booster(objective="reg:quantileerror", quantile_alpha=[0.1, 0.9]),
    )
    yield (
        "objective=reg:absoluteerror, tree_method=exact",
        booster(objective="reg:absoluteerror", tree_method="exact"),
    )
    yield "monotone_constraints", booster(monotone_constraints=RISING)
    for method in ("exact", "approx"):
        yield (
            f"monotone_constraints, tree_method={method}",
            booster(
                CLASS, tree_method=method, objective="binary:logistic", monotone_constraints=RISING
            ),
        )
    yield (
        "file, params={'monotone_constraints'}",
        file("ubj", {"monotone_constraints": RISING}, monotone_constraints=RISING),
    )
    yield "sampling_method=gradient_based", booster(subsample=0.5, sampling_method="gradient_based")
    yield "booster=dart, one_drop", booster(booster="dart", rate_drop=0.1, one_drop=1)
    yield (
        "booster=dart, one_drop, sample_type=weighted",
        booster(booster="dart", rate_drop=0.1, one_drop=1, sample_type="weighted"),
    )
    yield "booster=gblinear", estimator(xgb.XGBRegressor, booster="gblinear")
    yield "own objective, XGBRegressor", estimator(xgb.XGBRegressor, objective=own_objective)
    yield "own objective, xgb.train(obj=), weights", own_objective_of_booster
    yield "several targets, reg:squarederror", booster(TARGETS)
    yield "several targets, reg:absoluteerror", booster(TARGETS, objective="reg:absoluteerror")
    yield (
        "several targets, binary:logistic, weights",
        booster((TARGETS > 0).astype(int), objective="binary:logistic", weight=WEIGHT),
    )
    yield (
        "several targets, multi_strategy=multi_output_tree",
        booster(TARGETS, multi_strategy="multi_output_tree", tree_method="hist"),
    )
    yield "rank:ndcg", ranker()
    yield "rank:ndcg, lambdarank_pair_method=mean", ranker(lambdarank_pair_method="mean")
    yield (
        "rank:ndcg, linear gain, no normalisation",
        ranker(
            ndcg_exp_gain=False,
            lambdarank_normalization=False,
            lambdarank_score_normalization=False,
        ),
    )
    yield "rank:pairwise", ranker("rank:pairwise")
    yield (
        "rank:pairwise, lambdarank_pair_method=mean",
        ranker("rank:pairwise", lambdarank_pair_method="mean"),
    )
    yield "rank:map", ranker("rank:map")
    yield "rank:map, lambdarank_pair_method=mean", ranker("rank:map", lambdarank_pair_method="mean")
    yield "rank:ndcg, subsample", ranker(subsample=0.7, seed=3)
    yield "rank:ndcg, lambdarank_unbiased", ranker(lambdarank_unbiased=True)
    yield "survival:cox", cox
    for distribution in ("normal", "logistic", "extreme"):
        yield f"objective=survival:aft, {distribution}", survival(distribution)
