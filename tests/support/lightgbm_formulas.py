"""LightGBM's objectives: derivatives, losses, starting scores and leaves that are quantiles."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
from oracle import sigmoid, softmax

VERSION = tuple(int(part) for part in lgb.__version__.split(".")[:2])


def one_output(g, h):
    """Return the derivatives of a model with one output, from functions of score and label."""

    def derivatives(A, y):
        a = A[:, 0]
        return g(a, y)[:, None], (h(a, y) * np.ones(len(y)))[:, None, None]

    return derivatives


def logistic(c):
    def value(F, y):
        return np.logaddexp(0, c * F[:, 0]) - y * c * F[:, 0]

    def h(a, y):
        return c * c * sigmoid(c * a) * sigmoid(-c * a)

    return one_output(lambda a, y: c * (sigmoid(c * a) - y), h), value


def one_against_all(c, K):
    def derivatives(A, y):
        p = sigmoid(c * A)
        return c * (p - np.eye(K)[y.astype(int)]), (c * c * p * (1 - p))[:, :, None] * np.eye(K)

    def value(F, y):
        return (np.logaddexp(0, c * F) - c * F * np.eye(K)[y.astype(int)]).sum(axis=1)

    return derivatives, value


def all_classes(K):
    def derivatives(A, y):
        p = softmax(A)
        return p - np.eye(K)[y.astype(int)], (K / (K - 1) * p * (1 - p))[:, :, None] * np.eye(K)

    return (
        derivatives,
        lambda F, y: np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(y)), y.astype(int)],
    )


def formulas(p):
    """Return (derivatives, loss value) of an objective with smooth leaves."""
    a = p["alpha"]
    c = p["fair_c"]
    rho = p["tweedie_variance_power"]
    return {
        "regression": (
            one_output(lambda f, y: f - y, lambda f, y: 1.0),
            lambda F, y: (F[:, 0] - y) ** 2 / 2,
        ),
        "huber": (
            one_output(lambda f, y: np.clip(f - y, -a, a), lambda f, y: 1.0),
            lambda F, y: np.where(
                np.abs(F[:, 0] - y) <= a,
                (F[:, 0] - y) ** 2 / 2,
                a * np.abs(F[:, 0] - y) - a * a / 2,
            ),
        ),
        "fair": (
            one_output(
                lambda f, y: c * (f - y) / (np.abs(f - y) + c),
                lambda f, y: c * c / (np.abs(f - y) + c) ** 2,
            ),
            lambda F, y: c * c * (np.abs(F[:, 0] - y) / c - np.log(1 + np.abs(F[:, 0] - y) / c)),
        ),
        "poisson": (
            one_output(
                lambda f, y: np.exp(f) - y, lambda f, y: np.exp(f + p["poisson_max_delta_step"])
            ),
            lambda F, y: np.exp(F[:, 0]) - y * F[:, 0],
        ),
        "gamma": (
            one_output(lambda f, y: 1 - y * np.exp(-f), lambda f, y: y * np.exp(-f)),
            lambda F, y: F[:, 0] + y * np.exp(-F[:, 0]),
        ),
        "tweedie": (
            one_output(
                lambda f, y: np.exp((2 - rho) * f) - y * np.exp((1 - rho) * f),
                lambda f, y: (
                    (2 - rho) * np.exp((2 - rho) * f) - (1 - rho) * y * np.exp((1 - rho) * f)
                ),
            ),
            lambda F, y: (
                np.exp((2 - rho) * F[:, 0]) / (2 - rho)
                - y * np.exp((1 - rho) * F[:, 0]) / (1 - rho)
            ),
        ),
        "binary": logistic(p["sigmoid"]),
        "cross_entropy": logistic(1.0),
        "cross_entropy_lambda": logistic(1.0),  # without weights
        "multiclass": all_classes(p["num_class"]) if p["num_class"] > 1 else None,
        "multiclassova": one_against_all(p["sigmoid"], p["num_class"]),
    }[p["objective"]]


def start(p, class_weight):
    """Return the function (y, w) -> starting score.

    ``class_weight`` has the weight of each class number, as in the wrapper."""

    def score(y, w):
        if class_weight is not None:
            w = w * class_weight[y.astype(int)]
        if p["num_class"] > 1:
            share = np.bincount(y.astype(int), w, p["num_class"]) / w.sum()
            if p["objective"] == "multiclassova":
                return np.log(share / (1 - share)) / p["sigmoid"]
            return np.log(share)
        mean = (w * y).sum() / w.sum()
        if p["objective"] in ("poisson", "gamma", "tweedie"):
            return np.array([np.log(mean)])
        if p["objective"] in ("binary", "cross_entropy"):
            return np.array([np.log(mean / (1 - mean)) / p["sigmoid"]])
        if p["objective"] == "cross_entropy_lambda":
            return np.array([np.log(np.exp(mean) - 1)])
        return np.array([mean])

    return score


def percentile(v, w, alpha, weighted):
    """Return LightGBM's percentile of values, which depends on its version."""
    if len(v) == 1:
        return v[0]
    if not weighted:
        down = np.sort(v)[::-1]
        at = (len(v) - 1) * (1 - alpha) if VERSION >= (4, 1) else len(v) * (1 - alpha) - 1
        k = int(np.floor(at))
        if k < 0:
            return down[0]
        return down[-1] if k + 1 >= len(v) else down[k] - (down[k] - down[k + 1]) * (at - k)
    order = np.argsort(v, kind="stable")
    v = v[order]
    total = np.cumsum(w[order])
    share = total[-1] * alpha
    k = min(int((total <= share).sum()), len(v) - 1)
    if k in (0, len(v) - 1):
        return v[k]
    if VERSION < (4, 7):
        gap = total[k + 1] - total[k]
        return v[k - 1] + (share - total[k]) / gap * (v[k] - v[k - 1]) if gap >= 1 else v[k]
    gap = total[k] - total[k - 1]
    return v[k - 1] + (share - total[k - 1]) / gap * (v[k] - v[k - 1]) if gap >= 1 else v[k - 1]


def quantile_leaves(p, weighted):
    """Return (leaf, loss value, starting score) of regression_l1, quantile and mape."""
    relative = p["objective"] == "mape"
    alpha = float(np.float32(p["alpha"])) if p["objective"] == "quantile" else 0.5

    def scaled(y, w):
        if not relative:
            return w
        return np.float32(np.float32(1 / np.maximum(1, np.abs(y))) * np.float32(w)).astype(float)

    def leaf(ids, L, residual, y, w):
        out = np.zeros(L)
        for k in np.unique(ids):  # rows of weight zero take part
            here = ids == k
            out[k] = percentile(residual[here], scaled(y, w)[here], alpha, weighted or relative)
        return out

    def value(F, y):
        r = y - F[:, 0]
        if p["objective"] == "quantile":
            return np.maximum(alpha * r, (alpha - 1) * r)
        return np.abs(r) / (np.maximum(1, np.abs(y)) if relative else 1.0)

    def base(y, w):
        return np.float32([percentile(y, scaled(y, w), alpha, weighted or relative)]).astype(float)

    return leaf, value, base
