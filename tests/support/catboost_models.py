"""CatBoost models of many settings, each trained once a run, with what the oracle needs.

`cases_catboost.py` has the settings of the contract, which all libraries share.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import oracle
import pandas as pd
from catboost import CatBoost, CatBoostClassifier, Pool
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import leaftrace as lt

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 2}


class CatBoostCase:
    """A trained CatBoost model with its data, in the form that the oracle needs."""

    def __init__(
        self,
        name,
        model,
        X,
        y,
        codes,
        X_test,
        y_test,
        test_codes,
        weight=None,
        effective=None,
        baseline=None,
    ):
        self.name = name
        self.model = model
        self.X = X
        self.y = y
        self.codes = codes
        self.weight = weight
        self.baseline = baseline
        self.X_test = X_test
        self.y_test = y_test
        self.test_codes = test_codes
        n = len(codes)
        self.w = np.float32(np.ones(n) if weight is None else weight).astype(float)
        self.class_weight = np.ones(n) if effective is None else effective
        self.w_total = np.float32(np.float32(self.w) * np.float32(self.class_weight)).astype(float)


def _table_with_gaps(n=400, seed=3):
    """Return a table of numbers with missing values and a category column."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["a", "b", "c", "d"])
    X["kind"] = rng.choice(["red", "green", "blue"], n)
    score = X["a"] - X["b"] * (X["kind"] == "red") + 0.5 * rng.normal(size=n)
    X = X.mask(rng.random(X.shape) < 0.1).assign(kind=X["kind"])
    X.index = [f"row-{i}" for i in range(n)]
    return X, score.to_numpy()


def _split(X, y, codes, held=20):
    return X[:-held], y[:-held], codes[:-held], X[-held:], y[-held:], codes[-held:]


@cache
def case(name: str) -> CatBoostCase:
    """Return one of the settings in CASES, trained once a run."""
    build, settings_ = CASES[name]
    return build(name, dict(settings_))


def _binary(name, kw):
    weighted = kw.pop("weighted", False)
    baseline = kw.pop("given_baseline", False)
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X = X[order]
    y = y[order].astype(float)
    # Without noise, a few trees would fit everything.
    flip = np.random.default_rng(1).random(len(y)) < 0.15
    y[flip] = 1 - y[flip]
    X, y, _, X_test, y_test, _ = _split(X, y, y)
    rng = np.random.default_rng(2)
    w = rng.random(len(y)) + 0.3 if weighted else None
    b = rng.normal(size=len(y)) if baseline else None
    factor = None
    if "class_weights" in kw:
        factor = np.array(kw["class_weights"])[y.astype(int)]
    if "scale_pos_weight" in kw:
        factor = np.where(y == 1, kw["scale_pos_weight"], 1.0)
    model = CatBoostClassifier(**{**QUIET, "iterations": 30, "depth": 4, **kw})
    model.fit(Pool(X, y, weight=w, baseline=b))
    return CatBoostCase(name, model, X, y, y, X_test, y_test, y_test, w, factor, b)


def _regression(name, kw):
    weighted = kw.pop("weighted", False)
    count = kw.pop("count", False)
    fractions = kw.pop("fractions", False)
    early = kw.pop("early", False)
    X, y = load_diabetes(return_X_y=True)
    y = y / y.std()
    if count:
        y = np.round(3 * y)
    if fractions:
        y = y / y.max()
    y = np.float32(y).astype(float)
    X, y, _, X_test, y_test, _ = _split(X, y, y)
    w = np.random.default_rng(4).random(len(y)) * 2 if weighted else None
    model = CatBoost({**QUIET, "iterations": 30, "depth": 4, "loss_function": "RMSE", **kw})
    model.fit(Pool(X, y, weight=w), eval_set=(X_test, y_test) if early else None)
    return CatBoostCase(name, model, X, y, y, X_test, y_test, y_test, w)


def _multiclass(name, kw):
    weighted = kw.pop("weighted", False)
    X, codes = load_wine(return_X_y=True)
    order = np.random.default_rng(5).permutation(len(codes))
    X = X[order]
    codes = codes[order]
    rng = np.random.default_rng(6)
    noisy = rng.random(len(codes)) < 0.15
    codes[noisy] = rng.integers(0, 3, noisy.sum())
    y = np.array(["barolo", "grignolino", "barbera"])[codes]
    X, y, codes, X_test, y_test, test_codes = _split(X, y, codes)
    w = rng.random(len(y)) + 0.3 if weighted else None
    model = CatBoostClassifier(
        **{**QUIET, "iterations": 20, "depth": 3, "loss_function": "MultiClass", **kw}
    )
    model.fit(Pool(X, y, weight=w))
    number = {label: i for i, label in enumerate(model.classes_)}
    codes, test_codes = (np.array([float(number[v]) for v in labels]) for labels in (y, y_test))
    return CatBoostCase(name, model, X, y, codes, X_test, y_test, test_codes, w)


def _categories(name, kw):
    X, score = _table_with_gaps()
    y = np.where(score > 0, "yes", "no")
    codes = (score > 0).astype(float)
    X, y, codes, X_test, y_test, test_codes = _split(X, y, codes)
    model = CatBoostClassifier(
        **{**QUIET, "iterations": 30, "depth": 4, "cat_features": ["kind"], **kw}
    )
    model.fit(X, y)
    return CatBoostCase(name, model, X, y, codes, X_test, y_test, test_codes)


CASES = {
    "logloss newton 1": (
        _binary,
        {"leaf_estimation_iterations": 1, "leaf_estimation_method": "Newton"},
    ),
    "logloss newton 10 backtracking": (
        _binary,
        {"leaf_estimation_iterations": 10, "learning_rate": 0.3},
    ),
    "logloss newton 5 plain": (
        _binary,
        {
            "leaf_estimation_iterations": 5,
            "leaf_estimation_backtracking": "No",
            "learning_rate": 0.3,
        },
    ),
    "logloss gradient 3": (
        _binary,
        {
            "leaf_estimation_iterations": 3,
            "leaf_estimation_method": "Gradient",
            "leaf_estimation_backtracking": "No",
        },
    ),
    "logloss weights": (_binary, {"weighted": True, "l2_leaf_reg": 1.7}),
    "logloss class weights": (_binary, {"weighted": True, "class_weights": [1.0, 3.5]}),
    "logloss scale_pos_weight": (
        _binary,
        {"scale_pos_weight": 2.5, "leaf_estimation_iterations": 4},
    ),
    "logloss boost from average": (_binary, {"boost_from_average": True, "weighted": True}),
    "logloss baseline": (_binary, {"given_baseline": True}),
    "logloss bayesian": (_binary, {"bootstrap_type": "Bayesian", "random_strength": 3}),
    "logloss bernoulli rsm": (
        _binary,
        {"bootstrap_type": "Bernoulli", "subsample": 0.6, "rsm": 0.5},
    ),
    "logloss mvs": (_binary, {"bootstrap_type": "MVS", "subsample": 0.6}),
    "logloss depthwise": (_binary, {"grow_policy": "Depthwise"}),
    "logloss lossguide": (_binary, {"grow_policy": "Lossguide", "max_leaves": 9}),
    "logloss ordered": (_binary, {"boosting_type": "Ordered"}),
    "logloss deep": (
        _binary,
        {"depth": 9, "iterations": 6, "leaf_estimation_iterations": 2},
    ),  # 512 leaves a tree
    "logloss l2 zero": (_binary, {"l2_leaf_reg": 0.0, "depth": 3, "leaf_estimation_iterations": 1}),
    "categories and missing values": (_categories, {"one_hot_max_size": 5}),
    "categories nan max": (_categories, {"one_hot_max_size": 5, "nan_mode": "Max"}),
    "rmse default rule": (_regression, {}),
    "rmse weights": (_regression, {"weighted": True}),
    "rmse no average": (_regression, {"boost_from_average": False}),
    "rmse gradient": (_regression, {"leaf_estimation_method": "Gradient", "weighted": True}),
    "rmse early stopping": (
        _regression,
        {"early": True, "iterations": 200, "learning_rate": 0.3, "early_stopping_rounds": 5},
    ),
    "cross entropy": (
        _regression,
        {"loss_function": "CrossEntropy", "fractions": True, "weighted": True},
    ),
    "poisson": (_regression, {"loss_function": "Poisson", "count": True, "weighted": True}),
    "poisson newton 5": (
        _regression,
        {
            "loss_function": "Poisson",
            "count": True,
            "leaf_estimation_method": "Newton",
            "leaf_estimation_iterations": 5,
        },
    ),
    "multiclass": (_multiclass, {}),
    "multiclass weights": (_multiclass, {"weighted": True, "l2_leaf_reg": 0.7}),
    "multiclass newton 3": (
        _multiclass,
        {
            "leaf_estimation_iterations": 3,
            "leaf_estimation_method": "Newton",
            "leaf_estimation_backtracking": "No",
        },
    ),
    "multiclass gradient 2": (
        _multiclass,
        {
            "leaf_estimation_iterations": 2,
            "leaf_estimation_method": "Gradient",
            "leaf_estimation_backtracking": "No",
        },
    ),
}


def tracer_of(c, **kw):
    """Return a tracer of a case, in float64 unless ``kw`` says otherwise."""
    return lt.Tracer(c.model, c.X, c.y, c.weight, baseline=c.baseline, **{"dtype": "float64", **kw})


def structure_of(c, tracer):
    """Return the oracle's structure of a case, and the steps of its test rows."""
    scales = [list(step.scale) for step in tracer.engine.work.trace.steps]
    offset = 0.0 if c.baseline is None else np.float32(c.baseline)[:, None].astype(float)
    pool = tracer.engine.source._pool
    structure, steps = oracle.from_catboost(c.model, pool(c.X), scales, offset)
    return structure, steps(pool(c.X_test))
