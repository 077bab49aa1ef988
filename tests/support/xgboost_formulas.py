"""XGBoost's formulas from its documentation: derivatives, losses, starting scores, quantiles."""

from __future__ import annotations

import json

import numpy as np
from oracle import sigmoid, softmax
from xgboost_reading import VERSION


def f32(x):
    return np.float32(x).astype(float)


def diagonal(h):
    return h[:, :, None] * np.eye(h.shape[1])


def derivatives(objective, p):
    """Return (A, y) -> g (n, K), h (n, K, K)."""

    def of_rows(A, y):
        t = y[:, None]
        if objective in ("binary:logistic", "reg:logistic", "binary:logitraw"):
            q = sigmoid(A)
            return q - t, (q * (1 - q))[..., None]
        if objective.startswith("multi:"):
            q = softmax(A)
            return q - np.eye(A.shape[1])[y.astype(int)], diagonal(2 * q * (1 - q))
        if objective == "count:poisson":
            return np.exp(A) - t, np.exp(A + f32(p["max_delta_step"]))[..., None]
        if objective == "reg:gamma":
            return 1 - t * np.exp(-A), (t * np.exp(-A))[..., None]
        if objective == "reg:tweedie":
            a = 1 - f32(p["tweedie_variance_power"])
            b = 2 - f32(p["tweedie_variance_power"])
            g = -t * np.exp(a * A) + np.exp(b * A)
            h = -t * a * np.exp(a * A) + b * np.exp(b * A)
            return g, h[..., None]
        if objective == "reg:pseudohubererror":
            d = f32(p["huber_slope"])
            z = A - t
            root = np.sqrt(1 + z**2 / d**2)
            return z / root, (d**2 / ((d**2 + z**2) * root))[..., None]
        if objective == "reg:squaredlogerror":
            h = (1 - np.log1p(A) + np.log1p(t)) / (A + 1) ** 2
            return (np.log1p(A) - np.log1p(t)) / (A + 1), np.maximum(h, 1e-6)[..., None]
        if objective == "binary:hinge":
            s = 2 * t - 1
            counts = (s * A < 1).astype(float)
            return -s * counts, counts[..., None]
        if objective == "reg:absoluteerror":  # without quantiles for leaves
            return np.sign(A - t), np.ones((*A.shape, 1))
        if objective == "reg:quantileerror":
            return np.where(t <= A, 1 - alpha_of(p), -alpha_of(p)), np.ones((*A.shape, 1))
        return A - t, np.ones((*A.shape, 1))

    return of_rows


def loss_value(objective, p):
    """Return (F, y) -> losses (m,)."""

    def of_rows(F, y):
        f = F[:, 0]
        if objective in ("binary:logistic", "reg:logistic", "binary:logitraw"):
            return np.logaddexp(0, f) - y * f
        if objective.startswith("multi:"):
            return np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(y)), y.astype(int)]
        if objective == "count:poisson":
            return np.exp(f) - y * f
        if objective == "reg:gamma":
            return f + y * np.exp(-f)
        if objective == "reg:tweedie":
            a = 1 - f32(p["tweedie_variance_power"])
            b = 2 - f32(p["tweedie_variance_power"])
            return -y * np.exp(a * f) / a + np.exp(b * f) / b
        if objective == "reg:pseudohubererror":
            d = f32(p["huber_slope"])
            return d**2 * (np.sqrt(1 + ((f - y) / d) ** 2) - 1)
        if objective == "reg:squaredlogerror":
            return (np.log1p(f) - np.log1p(y)) ** 2 / 2
        if objective == "binary:hinge":
            return np.maximum(0, 1 - (2 * y - 1) * f)
        if objective == "reg:absoluteerror":
            return np.abs(y - f) / (1 if p["tree_method"] == "exact" else 2)
        if objective == "reg:quantileerror":
            a = alpha_of(p)
            return np.maximum(a * (y - f), (a - 1) * (y - f))
        return (f - y) ** 2 / 2

    return of_rows


def alpha_of(p):
    alpha = json.loads(p["quantile_alpha"])
    return f32(alpha[0] if isinstance(alpha, list) else alpha)


def base_value(objective, p, weighted, scale_pos_weight):
    """Return (y, w) -> estimated starting score (K,), with w before scale_pos_weight."""
    g_h = derivatives(objective, p)

    def newton(y, w):
        w = w * np.where(y == 1, scale_pos_weight, 1.0)
        g, h = g_h(np.zeros((len(y), 1)), y)
        return np.array([-(w @ g[:, 0]) / (w @ h[:, 0, 0])])

    def start(y, w):
        if objective.startswith("multi:"):
            K = int(p["num_class"])
            share = np.bincount(y.astype(int), w, K) / w.sum()
            logs = np.log(share + 1e-6)
            if VERSION >= (3, 2):
                return logs - logs.mean()
            return share if VERSION >= (3, 1) else np.full(K, 0.5)
        if objective == "binary:hinge":
            return np.array([float(newton(y, w)[0] > 0) if VERSION >= (2, 1) else 0.5])
        if objective in ("reg:absoluteerror", "reg:quantileerror"):
            alpha = 0.5 if objective == "reg:absoluteerror" else alpha_of(p)
            return np.array([quantile(y, w, alpha, weighted)])
        always_newton = objective in ("reg:pseudohubererror", "reg:squaredlogerror")
        if always_newton or VERSION < (3, 0) or scale_pos_weight != 1:
            return newton(y, w)
        mean = np.array([w @ y / w.sum()])
        if objective in ("binary:logistic", "reg:logistic"):
            return np.log(mean / (1 - mean))
        return np.log(mean) if objective in ("count:poisson", "reg:gamma", "reg:tweedie") else mean

    return start


def quantile(x, w, alpha, weighted):
    """Return XGBoost's quantile.

    With weights it is the first value whose cumulated weight reaches alpha of all, otherwise it lies
    between two values."""
    order = np.argsort(f32(x), kind="stable")
    x = f32(x)[order]
    w = w[order]
    if weighted:
        below = np.cumsum(np.float32(w), dtype=np.float32)
        return x[min(int((below < np.float32(below[-1] * alpha)).sum()), len(x) - 1)]
    n = len(x)
    if alpha <= 1 / (n + 1):
        return x[0]
    if alpha >= n / (n + 1):
        return x[-1]
    place = alpha * (n + 1)
    k = int(np.floor(place)) - 1
    return x[k] + (place - 1 - k) * (x[k + 1] - x[k])


def quantile_leaf(alpha, weighted):
    """Return (ids, L, residual, y, w) -> leaf values (L,)."""

    def values(ids, L, residual, y, w):
        out = np.zeros(L)
        for leaf in np.unique(ids[w > 0]):
            here = (ids == leaf) & (w > 0)
            out[leaf] = quantile(residual[here], w[here], alpha, weighted)
        return out

    return values


def link(objective, base_score):
    """Return the raw score of a base_score."""
    if objective in ("binary:logistic", "reg:logistic"):
        return np.log(base_score / (1 - base_score))
    if objective in ("count:poisson", "reg:gamma", "reg:tweedie"):
        return np.log(base_score)
    return base_score
