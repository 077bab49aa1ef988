"""Models with objectives that users write, for the contract tests: of XGBoost, LightGBM, CatBoost."""

from __future__ import annotations

import warnings
from dataclasses import replace

import boosters
import cases_lightgbm
import catboost
import lightgbm as lgb
import numpy as np
import oracle
import xgboost as xgb
from boosters import Case
from cases_xgboost import coded
from xgboost_reading import matrix, raw
from xgboost_structure import structure as xgboost_structure


def focal(margin, y):
    """Return derivatives of -q^2 log p, p the probability of the label and q = 1 - p."""
    s = 2 * y - 1
    p = 1 / (1 + np.exp(-s * margin))
    q = 1 - p
    g = s * (2 * q**2 * p * np.log(p) - q**3)
    slope = 2 * (q**2 - 2 * q * p) * np.log(p) + 2 * q**2 + 3 * q**2
    return g, slope * p * q


def focal_loss(margin, y):
    q = 1 / (1 + np.exp((2 * y - 1) * margin))
    return -(q**2) * np.log(1 - q)


def one_sided(margin, y):
    """Return a Huber gradient that is steeper above the label, with a hessian of the user's choice.

    It is written with |r|, which complex steps do not differentiate."""
    r = margin - y
    slope = np.where(r > 0, 0.8, 0.3)
    return slope * np.sign(r) * np.minimum(np.abs(r), 0.7), np.full_like(
        r, 0.6
    ) + 0.1 * slope * r**2


def one_sided_loss(margin, y):
    r = margin - y
    a = np.abs(r)
    return np.where(r > 0, 0.8, 0.3) * np.where(a < 0.7, r**2 / 2, 0.7 * (a - 0.35))


def softmax(margin, y):
    p = oracle.softmax(margin)
    return p - np.eye(3)[y.astype(int)], 1.5 * p * (1 - p) + 0.01


def softmax_loss(margin, y):
    top = margin.max(axis=1)
    chosen = margin[np.arange(len(y)), y.astype(int)]
    return top + np.log(np.exp(margin - top[:, None]).sum(axis=1)) - chosen


def in_oracle(structure, objective, loss, K=1):
    """Return the structure with the user's functions in place of the library's."""

    def derivatives(A, y):
        g, h = objective(A[:, 0] if K == 1 else A, y)
        return g.reshape(A.shape), h.reshape(A.shape)[:, :, None] * np.eye(K)

    def value(F, y):
        return loss(F[:, 0] if K == 1 else F, y)

    return replace(
        structure, derivatives=derivatives, loss_value=value, base_value=None, class_weight=1.0
    )


def weighted(objective, labels, weights):
    """Return an objective of train(): its derivatives times the weights of the rows."""

    def of_rows(scores, rows):
        g, h = objective(scores, labels(rows))
        w = weights(rows)
        if w is None or not len(w):
            return g, h
        w = np.asarray(w).reshape(-1, *[1] * (g.ndim - 1))
        return w * g, w * h

    return of_rows


def given(objective, loss):
    return {"params": {"objective": objective, "loss": loss}}


def xgboost_case(data, objective, loss, K=1, **params):
    params = {"max_depth": 3, "nthread": 1, "min_child_weight": 0.01, **params}
    params |= {"num_class": K, "objective": "multi:softprob"} if K > 1 else {}
    train = weighted(objective, xgb.DMatrix.get_label, xgb.DMatrix.get_weight)

    def fit(X, y, w, margin):
        return xgb.train(params, matrix(X, label=y, weight=w), 10, obj=train)

    def structure(case):
        found, steps = xgboost_structure(case, own=True)
        return in_oracle(found, objective, loss, K), steps

    return Case(
        "",
        coded(data) if data.codes.dtype != data.y.dtype else data,
        fit,
        raw,
        structure,
        weight=boosters.weights(len(data.y)),
        tracer=given(objective, loss),
        tolerance=5e-7,
    )


def lightgbm_case(data, objective, loss, K=1, **params):
    params = {**cases_lightgbm.SMALL, "num_class": K, **params}
    train = weighted(objective, lgb.Dataset.get_label, lgb.Dataset.get_weight)

    def fit(X, y, w, baseline):
        rows = lgb.Dataset(X, y, weight=w)
        return lgb.train({**params, "objective": train}, rows, 10)

    def structure(case):
        like = {k: v for k, v in params.items() if k in cases_lightgbm.DEFAULTS}
        found, steps = cases_lightgbm.structure(case, **like, boost_from_average=False)
        return in_oracle(found, objective, loss, K), steps

    return Case(
        "",
        data,
        fit,
        cases_lightgbm.raw,
        structure,
        weight=boosters.weights(len(data.y)),
        tracer=given(objective, loss),
        counts_rows=True,
    )


class FocalForCatBoost:
    def calc_ders_range(self, scores, labels, weights):
        g, h = focal(np.array(scores), np.array(labels))
        w = 1.0 if weights is None else np.array(weights)
        return list(zip(-w * g, -w * h, strict=True))


def catboost_case():
    """Return a classifier that holds its objective, so that only the loss is given."""
    data = boosters.binary(text=True)

    def fit(X, y, w, baseline):
        model = catboost.CatBoostClassifier(
            loss_function=FocalForCatBoost(),
            eval_metric="Logloss",
            iterations=12,
            depth=3,
            verbose=0,
            allow_writing_files=False,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Failed to import numba")
            return model.fit(X, y, sample_weight=w)

    def structure(case):
        found, steps = oracle.from_catboost(case.model, case.data.X)
        found = replace(found, base=0.0)
        return in_oracle(found, focal, focal_loss), steps(case.data.X_test)

    return Case(
        "",
        data,
        fit,
        lambda model, X: model.predict(X, prediction_type="RawFormulaVal").reshape(-1, 1),
        structure,
        weight=boosters.weights(len(data.y)),
        tracer={"params": {"loss": focal_loss}},
        counts_rows=True,
    )


CASES = {
    "XGBoost, focal": lambda: xgboost_case(boosters.binary(), focal, focal_loss),
    "XGBoost, three classes": lambda: xgboost_case(
        boosters.three_classes(), softmax, softmax_loss, 3, max_depth=2
    ),
    "LightGBM, other hessian": lambda: lightgbm_case(
        boosters.numbers(), one_sided, one_sided_loss, lambda_l2=0.5
    ),
    "LightGBM, three classes": lambda: lightgbm_case(
        boosters.three_classes(), softmax, softmax_loss, 3
    ),
    "CatBoost, focal": catboost_case,
}
