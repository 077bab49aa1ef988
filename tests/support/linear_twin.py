"""LightGBM's linear trees in a few lines of NumPy, from LightGBM's own dump of the model and in float64.

A tree is a list of leaves, each with the sorted features of numbers on its path. Tree 0 of each class has constants.
"""

from __future__ import annotations

import numpy as np


def paths(booster):
    """Return for each tree (leaves) the features of numbers above each leaf."""

    def visit(node, above, found):
        if "leaf_index" in node or "split_index" not in node:
            found[node.get("leaf_index", 0)] = sorted(above)
            return
        more = {node["split_feature"]} if node["decision_type"] == "<=" else set()
        visit(node["left_child"], above | more, found)
        visit(node["right_child"], above | more, found)

    trees = []
    for tree in booster.dump_model()["tree_info"]:
        found = {}
        visit(tree["tree_structure"], set(), found)
        trees.append([found[leaf] for leaf in range(len(found))])
    return trees


def derivatives(loss, A, y):
    """Return g and h (n, K) as LightGBM has them."""
    if loss == "regression":
        return A - y[:, None], np.ones_like(A)
    if loss == "poisson":
        return np.exp(A) - y[:, None], np.exp(A + 0.7)
    if loss == "binary":
        p = 1 / (1 + np.exp(-A))
        return p - y[:, None], p * (1 - p)
    p = np.exp(A - A.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    K = A.shape[1]
    return p - np.eye(K)[y.astype(int)], K / (K - 1) * p * (1 - p)


def start(loss, y, w, K):
    """Return the starting score (K,)."""
    if loss == "multiclass":
        return np.log([w[y == k].sum() / w.sum() for k in range(K)])
    mean = np.array([w @ y / w.sum()])
    if loss == "binary":
        return np.log(mean / (1 - mean))
    return np.log(mean) if loss == "poisson" else mean


def loss_value(loss, F, y):
    """Return the loss (m,) of rows with scores F (m, K)."""
    if loss == "regression":
        return (F[:, 0] - y) ** 2 / 2
    if loss == "poisson":
        return np.exp(F[:, 0]) - y * F[:, 0]
    if loss == "binary":
        return np.logaddexp(0, F[:, 0]) - y * F[:, 0]
    return np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(y)), y.astype(int)]


class Twin:
    """The structure of a model: leaves of its training rows, and settings.

    ``bags``   for each iteration (n,) 1 for rows drawn, or None
    ``moves``  (rates, moves) of DART: see `lightgbm_draws.dart`; None for boosting
    """

    def __init__(self, booster, X, params, bags=None, moves=None):
        self.booster = booster
        self.p = {"lambda_l1": 0.0, "lambda_l2": 0.0, "max_delta_step": 0.0, "linear_lambda": 0.0}
        self.p |= params
        self.paths = paths(booster)
        self.ids = booster.predict(X, pred_leaf=True).astype(int).reshape(len(X), -1)
        self.x = np.asarray(X, np.float32).astype(float)
        self.K = booster.num_model_per_iteration()
        self.bags = bags
        T = len(self.paths) // self.K
        self.rates = np.full(T, params["learning_rate"]) if moves is None else moves[0]
        self.moves = [[(t - 1, 1.0)] if t else [] for t in range(T + 1)]
        self.moves = self.moves if moves is None else moves[1]

    def refit(self, y, w, keep=None):
        """Return (starting score, leaves of each tree); a leaf is (c, b, features, slopes)."""
        keep = np.ones(len(y), bool) if keep is None else keep
        base = start(self.p["objective"], y[keep], w[keep], self.K)
        if not self.p.get("boost_from_average", True):
            base = np.zeros(self.K)
        A = np.tile(base, (len(y), 1))
        trees = []
        for t in range(len(self.rates)):
            A = self._moved(A, t, base, trees, self.x, self.ids)
            g, h = derivatives(self.p["objective"], A, y)
            drawn = keep if self.bags is None else keep & (self.bags[t] > 0)
            for k in range(self.K):
                r = t * self.K + k
                rows = [
                    np.flatnonzero(drawn & (self.ids[:, r] == i)) for i in range(len(self.paths[r]))
                ]
                trees.append(
                    [
                        self._leaf(own, w * g[:, k], w * h[:, k], r, leaf, keep)
                        for leaf, own in enumerate(rows)
                    ]
                )
        return base, trees

    def _leaf(self, rows, wg, wh, r, leaf, keep):
        p = self.p
        rate = self.rates[r // self.K]
        G = wg[rows].sum()
        H = wh[rows].sum() + p["lambda_l2"]
        c = -np.sign(G) * max(abs(G) - p["lambda_l1"], 0) / H if H > 0 else 0.0
        if p["max_delta_step"] > 0:
            c = np.clip(c, -p["max_delta_step"], p["max_delta_step"])
        features = self.paths[r][leaf]
        everything = [f for path in self.paths[r] for f in path]
        x = self.x[np.ix_(rows, features)]
        known = ~np.isnan(x).any(axis=1)
        if np.isnan(self.x[keep][:, everything]).any():
            count = np.cumprod(~np.isnan(x), axis=1).sum()
        else:
            count = len(rows)
        if r < self.K or count < len(features) + 1:
            return rate * c, rate * c, [], []
        z = np.column_stack([x, np.ones(len(x))])[known]
        if not len(z):
            return rate * c, 0.0, [], []
        M = (z * wh[rows][known, None]).T @ z
        M += p["linear_lambda"] * np.diag([1.0] * len(features) + [0.0])
        theta = -rate * np.linalg.solve(M, z.T @ wg[rows][known])
        return rate * c, theta[-1], features, theta[:-1]

    def _moved(self, A, t, base, trees, x, ids):
        A = A.copy()
        for step, factor in self.moves[t]:
            if step == -1:
                A += factor * base
                continue
            for k in range(self.K):
                r = step * self.K + k
                A[:, k] += factor * outputs(trees[r], x, ids[:, r])
        return A

    def predict(self, fitted, X):
        """Return the scores (m, K) of other rows."""
        base, trees = fitted
        ids = self.booster.predict(X, pred_leaf=True).astype(int).reshape(len(X), -1)
        F = np.tile(base, (len(X), 1))
        for t in range(len(self.rates) + 1):
            F = self._moved(F, t, base, trees, np.asarray(X, float), ids)
        return F


def outputs(leaves, x, ids):
    """Return what a tree adds to the scores of rows x (m, d) in leaves ids (m,)."""
    out = np.zeros(len(x))
    for i, (c, b, features, slopes) in enumerate(leaves):
        rows = ids == i
        own = x[np.ix_(rows, features)]
        out[rows] = np.where(np.isnan(own).any(axis=1), c, b + own @ np.asarray(slopes))
    return out
