"""Models of survival times in intervals, for the contract tests."""

from __future__ import annotations

from dataclasses import replace

import boosters
import numpy as np
import oracle
import xgboost as xgb
from boosters import Case
from catboost import CatBoost, Pool
from catboost_structure import QUIET
from scipy import stats
from xgboost_reading import raw
from xgboost_structure import structure as xgboost_structure

# Distributions, and the slopes of their log densities.
SHAPES = {
    "normal": (stats.norm, lambda z: -z),
    "logistic": (stats.logistic, lambda z: 1 - 2 * oracle.sigmoid(z)),
    "extreme": (stats.gumbel_l, lambda z: 1 - np.exp(z)),
}


def times():
    """Return diabetes with intervals of times as labels: known, or open on one side or on none."""
    d = boosters.numbers()
    X = np.concatenate([d.X, d.X_test])
    time = np.exp(np.r_[d.y, d.y_test] / 2)
    kind = np.random.default_rng(9).random(len(time))
    upper = np.where(kind < 0.3, 1.6 * time, time)
    upper[kind < 0.15] = np.inf
    lower = np.where(kind > 0.92, 0.0, time)
    y = np.float32(np.stack([lower, upper], axis=1)).astype(float)
    return boosters.split(X, y, y)


def formulas(distribution, scale):
    """Return (derivatives, loss) of the oracle from scipy's densities; h by differences of g."""
    shape, log_slope = SHAPES[distribution]

    def ends(A, y):
        with np.errstate(divide="ignore"):
            return ((np.log(y) - A[:, None]) / scale).T

    def slope(A, y):
        low, high = ends(A, y)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            density = np.nan_to_num(shape.pdf(high)) - np.nan_to_num(shape.pdf(low))  # at infinity
            inside = density / (shape.cdf(high) - shape.cdf(low))
            return np.where(low == high, log_slope(low), inside) / scale

    def derivatives(A, y):
        e = 1e-3
        a, b, c, d = (slope(A[:, 0] + k * e, y) for k in (-2, -1, 1, 2))
        h = np.clip((8 * (c - b) - (d - a)) / (12 * e), 1e-16, 15)
        return np.clip(slope(A[:, 0], y), -15, 15)[:, None], h[:, None, None]

    def loss(F, y):
        low, high = ends(F[:, 0], y)
        with np.errstate(divide="ignore"):
            inside = -np.log(shape.cdf(high) - shape.cdf(low))
        return np.where(low == high, np.log(scale) - shape.logpdf(low), inside)

    return derivatives, loss


def xgboost_case(distribution):
    data = times()
    params = {"objective": "survival:aft", "max_depth": 3, "nthread": 1, "min_child_weight": 0.01}
    params |= {"aft_loss_distribution": distribution, "aft_loss_distribution_scale": 1.25}

    def fit(X, y, w, margin):
        rows = xgb.DMatrix(X, weight=w)
        rows.set_info(label_lower_bound=y[:, 0], label_upper_bound=y[:, 1])
        return xgb.train(params, rows, 8)

    def structure(case):
        found, steps = xgboost_structure(case)
        derivatives, loss = formulas(distribution, 1.25)
        more = {"derivatives": derivatives, "loss_value": loss, "base_value": None}
        return replace(found, base=np.log([0.5]), class_weight=1.0, **more), steps

    weights = boosters.weights(len(data.y))
    return Case("", data, fit, raw, structure, weight=weights, tolerance=5e-7)


def catboost_case():
    """Return a CatBoost model; it takes logarithms of times in float32, to about five digits."""
    data = times()

    def bounds(y):
        return np.where((y == 0) | np.isinf(y), -1.0, y)

    data = replace(data, y=bounds(data.y), y_test=bounds(data.y_test))
    settings = {**QUIET, "iterations": 8, "depth": 3, "eval_metric": "SurvivalAft"}

    def fit(X, y, w, baseline):
        return CatBoost({**settings, "loss_function": "SurvivalAft:dist=Logistic;scale=1.25"}).fit(
            Pool(X, y)
        )

    def fast_log(x):
        bits = np.float32(x).view(np.int32)
        m = ((bits & 0x7FFFFF) | 0x3F000000).view(np.float32)
        f = np.float32
        y = bits.astype(np.float32) * f(1.1920928955078125e-7)
        y = y - f(124.22551499) - f(1.498030302) * m - f(1.72587999) / (f(0.3520887068) + m)
        return (f(0.69314718) * y).astype(float)

    codes = [
        np.where((y == 0) | np.isinf(y), y, np.exp(fast_log(np.where(y > 0, y, 1.0))))
        for y in (data.codes, data.test_codes)
    ]
    data = replace(data, codes=codes[0], test_codes=codes[1])

    def structure(case):
        found, steps = oracle.from_catboost(case.model, case.data.X)
        derivatives, loss = formulas("logistic", 1.25)
        more = {"derivatives": derivatives, "loss_value": loss, "l2_scales": False}
        return replace(found, base=0.0, **more), steps(case.data.X_test)

    def raw_scores(model, X):
        return model.predict(X, prediction_type="RawFormulaVal").reshape(-1, 1)

    return Case("", data, fit, raw_scores, structure, counts_rows=True)


CASES = {
    "XGBoost, normal": lambda: xgboost_case("normal"),
    "XGBoost, extreme": lambda: xgboost_case("extreme"),
    "CatBoost, logistic": catboost_case,
}
