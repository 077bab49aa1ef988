"""Models of several numbers for the contract tests: several targets, quantiles, distributions."""

from __future__ import annotations

from dataclasses import replace

import boosters
import numpy as np
import oracle
import xgboost as xgb
from boosters import Case
from catboost import CatBoost, Pool
from catboost_structure import QUIET
from sklearn.ensemble import ExtraTreesRegressor
from sklearn_forest import forest_structure
from xgboost_formulas import f32, quantile
from xgboost_reading import matrix, raw
from xgboost_structure import structure as xgboost_structure

SMALL = {**QUIET, "iterations": 10, "depth": 3}


def two_targets(kind="numbers"):
    """Return diabetes with two columns of labels: "numbers", "classes" of 0 and 1, or "shares"."""
    d = boosters.numbers()
    X = np.concatenate([d.X, d.X_test])
    first = np.r_[d.y, d.y_test]
    rng = np.random.default_rng(8)
    y = np.stack([first, np.abs(first) + 20 * X[:, 2] + 0.3 * rng.normal(size=len(X))], axis=1)
    if kind == "classes":
        y = (y > np.median(y, axis=0)).astype(float)
    elif kind == "shares":
        y = 1 / (1 + np.exp(-y))
    y = np.float32(y).astype(float)
    return boosters.split(X, y, y)


def squared(A, y):
    return A - y, np.ones(A.shape)[:, :, None] * np.eye(A.shape[1])


def squared_loss(F, y):
    return ((F - y) ** 2).sum(axis=1) / 2


def logistic(A, y):
    p = oracle.sigmoid(A)
    return p - y, (p * (1 - p))[:, :, None] * np.eye(A.shape[1])


def logistic_loss(F, y):
    return (np.logaddexp(0, F) - y * F).sum(axis=1)


def uncertain(A, y):
    """Return CatBoost's natural gradient of a normal distribution."""
    d = y - A[:, 0]
    z = d**2 * np.exp(-2 * A[:, 1])
    h = np.stack([np.ones_like(d), 2 * z], axis=1)
    return np.stack([-d, 1 - z], axis=1), h[:, :, None] * np.eye(2)


def uncertain_loss(F, y):
    return F[:, 1] + (y - F[:, 0]) ** 2 * np.exp(-2 * F[:, 1]) / 2


def mean(y, w):
    return w @ y / w.sum()


def mean_and_spread(y, w):
    m = w @ y / w.sum()
    return np.array([m, 0.5 * np.log(w @ (y - m) ** 2 / w.sum())])


def log_odds(y, w):
    return np.log(mean(y, w) / (1 - mean(y, w)))


def pinball(F, y):
    levels = np.array([0.2, 0.7])
    r = y[:, None] - F
    return np.maximum(levels * r, (levels - 1) * r).sum(axis=1)


def xgboost_case(data, formulas, start, rounds=8, **params):
    K = data.y.shape[1]
    params = {
        "max_depth": 3,
        "nthread": 1,
        "tree_method": "hist",
        "min_child_weight": 0.05,
        **params,
    }

    def fit(X, y, w, margin):
        return xgb.train(params, matrix(X, label=y, weight=w), rounds)

    def structure(case):
        found, steps = xgboost_structure(case)
        vectors = params.get("multi_strategy") == "multi_output_tree"
        derivatives, loss = formulas
        more = {"derivatives": derivatives, "loss_value": loss, "base_value": start}
        return replace(found, K=K, O=K if vectors else 1, class_weight=1.0, **more), steps

    weights = boosters.weights(len(data.y))
    return Case("", data, fit, raw, structure, weight=weights, tolerance=5e-7)


def xgboost_quantiles():
    data = boosters.numbers()
    params = {"max_depth": 3, "nthread": 1, "objective": "reg:quantileerror"}
    params["quantile_alpha"] = [0.2, 0.7]

    def fit(X, y, w, margin):
        return xgb.train(params, matrix(X, label=y, weight=w), 6)

    def structure(case):
        def start(y, w):
            return np.array([quantile(y, w, f32(a), True) for a in (0.2, 0.7)])

        class ByOutput:
            """Leaf values by level; the oracle calls it tree after tree, the outputs in turn."""

            calls = 0

            def __call__(self, ids, L, residual, y, w):
                alpha = f32((0.2, 0.7)[self.calls % 2])
                self.calls += 1
                out = np.zeros(L)
                for leaf in np.unique(ids):
                    out[leaf] = quantile(residual[ids == leaf], w[ids == leaf], alpha, True)
                return out

        found, steps = xgboost_structure(case)
        return replace(found, K=2, leaf=ByOutput(), base_value=start, loss_value=pinball), steps

    weights = boosters.weights(len(data.y))
    return Case("", data, fit, raw, structure, weight=weights, tolerance=5e-7, smooth=False)


def catboost_case(data, loss, formulas, start=None, **params):
    def fit(X, y, w, baseline):
        return CatBoost({**SMALL, "loss_function": loss, **params}).fit(Pool(X, y, weight=w))

    def structure(case):
        found, steps = oracle.from_catboost(case.model, case.data.X)
        derivatives, loss_value = formulas
        more = {"derivatives": derivatives, "loss_value": loss_value, "base_value": start}
        return replace(found, diagonal=True, base=0.0, **more), steps(case.data.X_test)

    def raw_scores(model, X):
        return model.predict(X, prediction_type="RawFormulaVal").reshape(len(X), -1)

    weights = boosters.weights(len(data.y))
    return Case(
        "", data, fit, raw_scores, structure, weight=weights, counts_rows=True,
        sides_only=loss.startswith("LogLin"),
    )  # fmt: skip


def log_linear(A, y):
    """Return the gradient of the quantile error of exp(A) for the quantile 0.3; h is not used."""
    e = np.exp(A)
    return np.where(y[:, None] > e, -0.3, 0.7) * e, np.ones((*A.shape, 1))


def log_linear_loss(F, y):
    r = y - np.exp(F[:, 0])
    return np.maximum(0.3 * r, -0.7 * r)


def forest_case(data, make):
    def fit(X, y, w, baseline):
        return make().fit(X, y, sample_weight=w)

    def structure(case):
        found, steps = forest_structure(case)
        K = data.y.shape[1]
        more = {"derivatives": squared, "loss_value": squared_loss}
        return replace(found, K=K, O=K, base=mean(data.y, case.w), **more), steps

    return Case(
        "", data, fit, lambda model, X: model.predict(X), structure,
        weight=boosters.weights(len(data.y)),
    )  # fmt: skip


CASES = {
    "XGBoost, squared error, a tree an output": lambda: xgboost_case(
        two_targets(), (squared, squared_loss), mean, reg_alpha=0.5, max_delta_step=0.7
    ),
    "XGBoost, logistic, vector leaves": lambda: xgboost_case(
        two_targets("classes"),
        (logistic, logistic_loss),
        log_odds,
        objective="binary:logistic",
        multi_strategy="multi_output_tree",
    ),
    "XGBoost, two quantiles": xgboost_quantiles,
    "CatBoost, MultiRMSE": lambda: catboost_case(
        two_targets(), "MultiRMSE", (squared, squared_loss), mean
    ),
    "CatBoost, MultiCrossEntropy": lambda: catboost_case(
        two_targets("shares"),
        "MultiCrossEntropy",
        (logistic, logistic_loss),
        leaf_estimation_iterations=2,
        leaf_estimation_backtracking="No",
    ),
    "CatBoost, RMSEWithUncertainty": lambda: catboost_case(
        boosters.numbers(), "RMSEWithUncertainty", (uncertain, uncertain_loss), mean_and_spread
    ),
    "CatBoost, LogLinQuantile": lambda: catboost_case(
        boosters.numbers("positive"), "LogLinQuantile:alpha=0.3", (log_linear, log_linear_loss)
    ),
    "scikit-learn, forest": lambda: forest_case(
        two_targets(),
        lambda: ExtraTreesRegressor(6, max_depth=3, max_features=4, random_state=0),
    ),
}
