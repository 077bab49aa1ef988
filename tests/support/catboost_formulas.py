"""CatBoost's losses, from its documentation."""

from __future__ import annotations

import numpy as np
from oracle import sigmoid


def pinball(alpha):
    return lambda F, y: np.where(y > F[:, 0], alpha * (y - F[:, 0]), (1 - alpha) * (F[:, 0] - y))


def column(g, h):
    return g, h[..., None]


def huber(delta):
    def derivatives(A, y):
        r = A - y[:, None]
        return column(np.clip(r, -delta, delta), (np.abs(r) <= delta).astype(float))

    def value(F, y):
        r = np.abs(F[:, 0] - y)
        return np.where(r <= delta, r**2 / 2, delta * r - delta**2 / 2)

    return {"derivatives": derivatives, "loss_value": value}


def tweedie(p):
    def derivatives(A, y):
        u = y[:, None] * np.exp((1 - p) * A)
        v = np.exp((2 - p) * A)
        return column(v - u, (p - 1) * u + (2 - p) * v)

    return {
        "derivatives": derivatives,
        "loss_value": lambda F, y: (
            y * np.exp((1 - p) * F[:, 0]) / (p - 1) + np.exp((2 - p) * F[:, 0]) / (2 - p)
        ),
    }


def lq(q):
    def derivatives(A, y):
        r = A - y[:, None]
        g = q * np.sign(r) * np.abs(r) ** (q - 1)
        # CatBoost has no second derivative of q below 2, and gradient steps instead.
        return column(g, q * (q - 1) * np.abs(r) ** (q - 2) if q >= 2 else np.ones_like(r))

    return {"derivatives": derivatives, "loss_value": lambda F, y: np.abs(F[:, 0] - y) ** q}


def expectile(alpha):
    alpha = float(np.float32(alpha))

    def c(r):
        return np.where(r < 0, alpha, 1 - alpha)

    def derivatives(A, y):
        r = A - y[:, None]
        return column(2 * c(r) * r, 2 * c(r))

    return {
        "derivatives": derivatives,
        "loss_value": lambda F, y: c(F[:, 0] - y) * (F[:, 0] - y) ** 2,
    }


def one_vs_all(A, y):
    p = sigmoid(A)
    K = A.shape[1]
    return p - np.eye(K)[y.astype(int)], (p * (1 - p))[..., None] * np.eye(K)


def one_vs_all_value(F, y):
    return (np.logaddexp(0, F) - np.eye(F.shape[1])[y.astype(int)] * F).sum(axis=1)


def weighted_quantile(x, w, alpha, delta):
    """Return the lowest x with alpha of the weight up to it, moved by delta to fall between the x."""
    order = np.argsort(x, kind="stable")
    q = x[order][min(np.searchsorted(np.cumsum(w[order]), alpha * w.sum() - 2e-16), len(x) - 1)]
    if delta:
        enough = w[x < q].sum() + alpha * w[x == q].sum() >= alpha * w.sum() - 2e-16
        q += -delta if enough else delta
    return float(np.float32(q))


def quantile(alpha, delta=1e-6):
    def leaf(ids, L, residual, y, w):
        out = np.zeros(L)
        r = np.float32(residual).astype(float)
        for k in np.unique(ids):
            out[k] = weighted_quantile(r[ids == k], np.ones(np.sum(ids == k)), alpha, delta)
        return out

    base = {"base_value": lambda y, w: np.array([weighted_quantile(y, w, alpha, delta)])}
    return {"leaf": leaf, "loss_value": pinball(alpha), **base}


def log_cosh_leaf(ids, L, residual, y, w):
    """Return the root of sum tanh(c - r), by bisection to 1e-9; the lower end, rounded to float32."""
    out = np.zeros(L)
    for k in np.unique(ids):
        r = np.float32(residual[ids == k]).astype(float)
        low = r.min()
        high = r.max()
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if np.tanh(middle - r).sum() > 0 else (middle, high)
        out[k] = np.float32(low)
    return out


def log_cosh_derivatives(A, y):
    r = A - y[:, None]
    return column(np.tanh(r), np.cosh(r) ** -2.0)


LOG_COSH = {
    "derivatives": log_cosh_derivatives,
    "loss_value": lambda F, y: np.logaddexp(F[:, 0] - y, y - F[:, 0]) - np.log(2),
}
SETTINGS = {
    "Tweedie:variance_power=1.3": tweedie(1.3),
    "Huber:delta=0.6": huber(0.6),
    "Lq:q=2.5": lq(2.5),
    "Lq:q=1.5": lq(1.5),
    "Expectile:alpha=0.7": expectile(0.7),
    "MultiClassOneVsAll": {
        "derivatives": one_vs_all,
        "loss_value": one_vs_all_value,
        "diagonal": True,
    },
    "MAE": quantile(0.5),
    "Quantile:alpha=0.7": quantile(0.7),
}
LOSSES = {
    "RMSE": "squared",
    "Logloss": "logistic",
    "CrossEntropy": "logistic",
    "Poisson": "poisson",
}
