"""XGBoost models for the contract tests. Nothing here uses leaftrace."""

from __future__ import annotations

import boosters
import numpy as np
import xgboost as xgb
from boosters import Case
from xgboost_reading import VERSION, booster_of, matrix, raw, rounds_of
from xgboost_structure import QUANTILES, refresh, structure


def coded(data):
    """Return the data with class labels as whole numbers, as XGBoost needs them."""
    return boosters.Data(
        data.X,
        data.codes.astype(int),
        data.codes,
        data.X_test,
        data.test_codes.astype(int),
        data.test_codes,
    )


def case(name, data, fit, weight=False, **more):
    """Return a case with XGBoost's tolerance."""
    weights = boosters.weights(len(data.y)) if weight else None
    more = {"structure": structure, "tolerance": 5e-7, **more}
    return Case(name, data, fit, raw, weight=weights, **more)


def boosted(name, data, rounds=15, refreshed=False, weight=False, baseline=None, **params):
    """Return a case of a Booster."""
    params = {"max_depth": 4, "seed": 7, "nthread": 1, **params}
    objective = params.get("objective", "reg:squarederror")
    if objective.startswith("multi:"):
        params["num_class"] = 3

    exact = params.get("tree_method") == "exact"

    def fit(X, y, w, margin):
        return xgb.train(params, matrix(X, label=y, weight=w, base_margin=margin), rounds)

    return case(
        name,
        data,
        fit,
        weight,
        baseline=baseline,
        smooth=objective not in QUANTILES or (exact and "base_score" in params),
        sides_only=objective in QUANTILES and exact,
        ordered=params.get("subsample", 1) < 1,
        own_refit=refresh(params) if refreshed else None,
    )


def wrapped(name, data, estimator, weight=False, ordered=False, **arguments):
    """Return a case of one of the scikit-learn classes."""

    def fit(X, y, w, margin):
        return estimator(n_jobs=1, **arguments).fit(X, y, sample_weight=w, base_margin=margin)

    return case(name, data, fit, weight, ordered=ordered)


def stopped_early():
    data = boosters.numbers()

    def fit(X, y, w, margin):
        model = xgb.XGBRegressor(n_jobs=1, n_estimators=40, max_depth=3, early_stopping_rounds=3)
        return model.fit(
            X, y, sample_weight=w, eval_set=[(data.X_test, data.y_test)], verbose=False
        )

    found = case("early stopping", data, fit, weight=True)
    assert rounds_of(found.model) < booster_of(found.model).num_boosted_rounds() < 40
    return found


def loaded():
    """Return a case of a loaded model, which has no training parameters."""
    data = coded(boosters.binary())
    params = {
        "max_depth": 3,
        "eta": 0.17,
        "reg_lambda": 2.5,
        "objective": "binary:logistic",
        "nthread": 1,
    }

    def fit(X, y, w, margin):
        booster = xgb.train(params, matrix(X, label=y, weight=w), 12)
        return xgb.Booster(model_file=booster.save_raw("ubj"))

    def read(c):
        return structure(c, {"learning_rate": "0.17", "reg_lambda": "2.5"})

    # A file does not keep these, and refits ask for them.
    given = {"params": {"min_child_weight": 1, "max_delta_step": 0}}
    return case("loaded", data, fit, weight=True, structure=read, tracer=given)


def loaded_monotone():
    """Return a case of a loaded model whose constraints the user gives by name."""
    data = boosters.frame("number")
    kinds = ["a", "b", "c", "d", "kind"]
    rising = {"a": 1, "b": -1}

    def fit(X, y, w, margin):
        params = {"max_depth": 4, "nthread": 1, "monotone_constraints": rising}
        booster = xgb.train(params, matrix(X, label=y, weight=w), 12)
        return xgb.Booster(model_file=booster.save_raw("ubj"))

    def read(c):
        signs = ",".join(str(rising.get(kind, 0)) for kind in kinds)
        return structure(c, {"monotone_constraints": f"({signs})"})

    given = {"min_child_weight": 1, "max_delta_step": 0, "monotone_constraints": rising}
    return case("loaded", data, fit, weight=True, structure=read, tracer={"params": given})


def binary():
    return coded(boosters.binary())


def three_classes():
    return coded(boosters.three_classes())


def some_scores(data):
    return np.float32(0.3 * np.random.default_rng(4).normal(size=len(data.y)))


CASES = {
    "XGBRegressor defaults": lambda: wrapped("reg", boosters.numbers(), xgb.XGBRegressor, n_estimators=15),
    "XGBClassifier defaults": lambda: wrapped("clf", binary(), xgb.XGBClassifier, n_estimators=15),
    "XGBClassifier defaults, multiclass": lambda: wrapped("multi", three_classes(), xgb.XGBClassifier, n_estimators=7),
    "XGBRFRegressor defaults": lambda: wrapped(
        "forest", boosters.numbers(), xgb.XGBRFRegressor, ordered=True, n_estimators=12
    ),
    "XGBRFClassifier defaults": lambda: wrapped(
        "forest", binary(), xgb.XGBRFClassifier, ordered=True, n_estimators=12
    ),
    "categories and missing values": lambda: wrapped(
        "frame", coded(boosters.frame()), xgb.XGBClassifier, enable_categorical=True, n_estimators=12, max_depth=4
    ),
    "many categories, approx": lambda: wrapped(
        "frame",
        boosters.frame("number", many=True),
        xgb.XGBRegressor,
        enable_categorical=True,
        tree_method="approx",
        n_estimators=12,
    ),
    "scale_pos_weight, weights": lambda: wrapped(
        "spw", binary(), xgb.XGBClassifier, weight=True, scale_pos_weight=2.5, n_estimators=12, max_depth=3
    ),
    "early stopping": stopped_early,
    "loaded from a file": loaded,
    "penalties and bounds": lambda: boosted(
        "limits",
        boosters.numbers(),
        weight=True,
        refreshed=True,
        reg_alpha=1.5,
        reg_lambda=0.3,
        max_delta_step=0.6,
        min_child_weight=4,
        gamma=0.2,
        base_score=0.2,
    ),
    "exact, pruned": lambda: boosted(
        "exact", boosters.numbers(), refreshed=True, tree_method="exact", gamma=0.8, base_score=0.5
    ),
    "lossguide, columns sampled": lambda: boosted(
        "lossguide",
        binary(),
        weight=True,
        refreshed=True,
        objective="binary:logistic",
        grow_policy="lossguide",
        max_leaves=9,
        min_child_weight=0.4,
        colsample_bynode=0.5,
        base_score=0.4,
    ),
    "multiclass, parallel trees": lambda: boosted(
        "parallel",
        three_classes(),
        8,
        weight=True,
        refreshed=True,
        objective="multi:softmax",
        num_parallel_tree=2,
        colsample_bynode=0.5,
        base_score=0.5,
    ),
    "multiclass, vector leaves": lambda: boosted(
        "vectors",
        three_classes(),
        12,
        weight=True,
        objective="multi:softprob",
        multi_strategy="multi_output_tree",
        tree_method="hist",
        min_child_weight=0.01,
    ),
    "baseline": lambda: boosted(
        "baseline",
        boosters.numbers(),
        weight=True,
        refreshed=True,
        baseline=some_scores(boosters.numbers()),
    ),
    "subsample": lambda: boosted("rows", boosters.numbers(), weight=True, subsample=0.6, colsample_bytree=0.7),
    "subsample, exact": lambda: boosted(
        "rows", binary(), objective="binary:logistic", tree_method="exact", subsample=0.7
    ),
    "subsample, multiclass": lambda: boosted(
        "rows", three_classes(), 8, objective="multi:softprob", subsample=0.7, weight=True, min_child_weight=0.4
    ),
    "dart": lambda: boosted(
        "dart", binary(), weight=True, objective="binary:logistic", booster="dart", rate_drop=0.3
    ),
    "dart, one drop": lambda: boosted(
        "dart", boosters.numbers(), 10, weight=True, booster="dart", rate_drop=0.1, one_drop=1
    ),
    "dart, subsample, multiclass": lambda: boosted(
        "dart", three_classes(), 8, objective="multi:softprob", booster="dart", rate_drop=0.2, subsample=0.8
    ),
    "poisson": lambda: boosted(
        "poisson", boosters.numbers("counts"), weight=True, refreshed=True, objective="count:poisson", base_score=2.0
    ),
    "poisson, estimated start": lambda: boosted(
        "poisson", boosters.numbers("counts"), weight=True, objective="count:poisson", max_delta_step=0.4
    ),
    "gamma": lambda: boosted("gamma", boosters.numbers("positive"), weight=True, objective="reg:gamma"),
    "tweedie": lambda: boosted(
        "tweedie", boosters.numbers("positive"), weight=True, objective="reg:tweedie", tweedie_variance_power=1.3
    ),
    "pseudo-Huber": lambda: boosted(
        "huber",
        boosters.numbers(),
        weight=True,
        objective="reg:pseudohubererror",
        huber_slope=0.7,
        max_depth=3,
        eval_metric="rmse",  # XGBoost 2.0.0 fails with its default
    ),
    "squared log error": lambda: boosted(
        "log", boosters.numbers("positive"), weight=True, objective="reg:squaredlogerror"
    ),
    "logistic of fractions": lambda: boosted("fractions", boosters.numbers("fractions"), objective="reg:logistic"),
    "logitraw": lambda: boosted("raw", binary(), weight=True, objective="binary:logitraw"),
    "hinge": lambda: boosted("hinge", binary(), 8, weight=True, objective="binary:hinge"),
    "monotone, weights": lambda: boosted(
        "monotone", boosters.numbers(), weight=True, monotone_constraints="(1,0,-1,1,0,0,-1)", min_child_weight=4
    ),
    "monotone, exact, logistic, penalties": lambda: boosted(
        "monotone",
        binary(),
        objective="binary:logistic",
        tree_method="exact",
        monotone_constraints="(-1,-1,1,0,1)",
        reg_alpha=0.5,
        max_delta_step=0.7,
        gamma=0.1,
    ),
    "monotone, multiclass, approx, lossguide, subsample": lambda: boosted(
        "monotone",
        three_classes(),
        6,
        objective="multi:softprob",
        tree_method="approx",
        monotone_constraints="(1,-1,0,0,1,1)",
        grow_policy="lossguide",
        max_leaves=9,
        subsample=0.8,
        min_child_weight=0.4,
    ),
    "monotone, loaded from a file": loaded_monotone,
    "absolute error": lambda: boosted("mae", boosters.numbers(), 10, objective="reg:absoluteerror"),
    "absolute error, exact": lambda: boosted(
        "mae", boosters.numbers(), 5, objective="reg:absoluteerror", tree_method="exact", base_score=0.15, reg_alpha=0.4
    ),
    "quantile error, exact, weights": lambda: boosted(
        "quantile",
        boosters.numbers(),
        8,
        weight=True,
        objective="reg:quantileerror",
        quantile_alpha=0.3,
        tree_method="exact",
    ),
    "quantile error, weights, subsample": lambda: boosted(
        "quantile", boosters.numbers(), 9, weight=True, objective="reg:quantileerror", quantile_alpha=0.3, subsample=0.8
    ),
}  # fmt: skip
if VERSION >= (3, 2):  # earlier versions draw by gradients on GPUs only
    CASES["subsample by gradients, weights"] = lambda: boosted(
        "rows",
        binary(),
        6,
        weight=True,
        objective="binary:logistic",
        tree_method="hist",
        subsample=0.5,
        sampling_method="gradient_based",
        base_score=0.4,
    )
