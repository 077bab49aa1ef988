"""The oracle's structure of GradientBoosting models, read from scikit-learn alone."""

from __future__ import annotations

import numpy as np
from oracle import Structure, sigmoid
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn_quantiles import by_leaf, lower_quantile, pinball


def exponential(A, y):
    """Return derivatives; a label between 0 and 1 is a mixture of both classes."""
    one = y[:, None] * np.exp(-A)
    zero = (1 - y[:, None]) * np.exp(A)
    return zero - one, (zero + one)[..., None]


def half_logit(y, w):
    """Return the starting score of the exponential loss."""
    p = (w * y).sum() / w.sum()
    return np.array([0.5 * np.log(p / (1 - p))])


def first_quantile(y, w, q, given):
    """Return the starting score of a quantile, which lies between two labels if no weights are given."""
    return np.quantile(y, q) if given is None else lower_quantile(y, w, q)


def huber_leaf(quantile):
    """Return (residual, w) -> leaf function, with delta from the rows of all leaves."""

    def of_step(residual, w):
        delta = lower_quantile(np.abs(residual[w > 0]), w[w > 0], quantile)

        def leaf(r, v):
            m = lower_quantile(r, v, 0.5)
            return m + np.average(np.clip(r - m, -delta, delta), weights=v)

        return by_leaf(leaf)

    return of_step


def gradient_structure(case):
    """Return the structure of a GradientBoosting model, and the steps of its test rows."""
    model = case.model
    p = case.model.get_params()
    n = len(case.w)
    T, K = model.estimators_.shape
    counts = [[tree.tree_.node_count for tree in step] for step in model.estimators_]

    def steps(X):
        nodes = model.apply(X).reshape(len(X), T, K).astype(int)
        return [[(nodes[:, t, k], counts[t][k], k) for k in range(K)] for t in range(T)]

    order = np.arange(n)
    if p["n_iter_no_change"]:
        groups = case.data.codes if hasattr(model, "classes_") else None
        order = train_test_split(
            order,
            random_state=p["random_state"],
            test_size=p["validation_fraction"],
            stratify=groups,
        )[0]
    used = np.isin(np.arange(n), order).astype(float)
    more = {}
    if p["subsample"] < 1:
        more["sample"] = [[mask] * K for mask in drawn_rows(p, T, K, order, n)]
    level = p.get("alpha")
    if p["loss"] == "exponential":
        more |= {
            "derivatives": exponential,
            "loss_value": lambda F, y: np.exp(np.where(y == 1, -F[:, 0], F[:, 0])),
            "base_value": half_logit,
        }
    elif p["loss"] in ("absolute_error", "quantile"):
        q = 0.5 if p["loss"] == "absolute_error" else level
        more |= {"leaf": by_leaf(lambda v, w: lower_quantile(v, w, q)), "loss_value": pinball(q)}
        more["base_value"] = lambda y, w: np.array([first_quantile(y, w, q, case.weight)])
    elif p["loss"] == "huber":
        delta = model._loss.closs.delta
        more |= {
            "leaf_of_step": huber_leaf(level),
            "base_value": lambda y, w: np.array([first_quantile(y, w, 0.5, case.weight)]),
        }
        more["loss_value"] = lambda F, y: huber_value(y - F[:, 0], delta)
    if model.init is not None:
        more.pop("base_value", None)
    names = {"squared_error": "squared", "log_loss": "softmax" if K > 1 else "logistic"}
    structure = Structure(
        loss=names.get(p["loss"], p["loss"]),
        steps=steps(case.data.X),
        K=K,
        O=1,
        newton=True,
        l2=0.0,
        l2_scales=False,
        lr=p["learning_rate"] * ((K - 1) / K if K > 1 else 1),
        scales=[[1.0]] * T,
        base="mean" if model.init is None else 0.0,
        class_weight=used,
        **more,
    )
    return structure, steps(case.data.X_test)


def huber_value(r, delta):
    r = np.abs(r)
    return np.where(r <= delta, r**2 / 2, delta * (r - delta / 2))


def drawn_rows(p, T, K, order, n):
    """Return masks of the rows of each step, drawn as scikit-learn draws them.

    It samples without replacement, and draws one number for the seed of each tree."""
    rng = np.random.RandomState(p["random_state"])
    size = int(p["subsample"] * len(order))
    masks = []
    for _ in range(T):
        mask = np.zeros(n)
        left = size
        u = rng.uniform(size=len(order))
        for i, row in enumerate(order):
            if u[i] * (len(order) - i) < left:
                mask[row] = 1
                left = left - 1
        masks.append(mask)
        for _ in range(K):
            rng.randint(0, 0x7FFFFFFF)
    return masks


class Before(BaseEstimator):
    """An init estimator whose scores are F."""

    def __init__(self, F=None):
        self.F = F

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.F

    def predict_proba(self, X):
        p = sigmoid(self.F)
        return np.stack([1 - p, p], axis=1)


def gradient_refit(case, w):
    """Refit with scikit-learn itself.

    Each tree is grown again on one feature, its leaf numbers, from the scores before it."""
    model = case.model
    kept = w > 0
    y = case.data.codes
    train, test = (model.apply(X).reshape(len(X), -1) for X in (case.data.X, case.data.X_test))
    mean = np.average(y, weights=w)
    start = mean if model.loss == "squared_error" else np.log(mean / (1 - mean))
    F = np.full(len(train), start)
    G = np.full(len(test), start)
    for ids, at in zip(train.T[:, :, None], test.T[:, :, None], strict=True):
        again = type(model)(loss=model.loss, n_estimators=1, max_depth=None, init=Before(F[kept]))
        again.fit(ids[kept], y[kept], sample_weight=w[kept])
        tree = again.estimators_[0, 0]
        F = F + again.learning_rate * tree.predict(ids)
        G = G + again.learning_rate * tree.predict(at)
    return G[:, None]


def gradient_raw(model, X):
    if hasattr(model, "classes_"):
        return model.decision_function(X).reshape(len(X), -1)
    return model.predict(X)[:, None]
