"""Rankers of every library for the contract in `test_ranking.py`, each with a twin in a few lines."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import lightgbm as lgb
import numpy as np
import ranking_twins as twins
import xgboost as xgb

rng = np.random.default_rng(14)
SIZES = rng.integers(2, 9, 15)
SIZES[5] = 1
N = int(SIZES.sum())
X = rng.normal(size=(N, 4))
Y = np.clip(np.round(X[:, 0] + 0.7 * X[:, 1] + 0.6 * rng.normal(size=N) + 1), 0, 3)
TEST_SIZES = np.array([6, 9, 4, 7])
X_TEST = rng.normal(size=(TEST_SIZES.sum(), 4))
Y_TEST = np.clip(np.round(X_TEST[:, 0] + 0.5 * rng.normal(size=len(X_TEST)) + 1), 0, 3)
W = rng.random(N) + 0.5
ROUNDS = 5


@dataclass
class Case:
    """A ranker and what its tests need.

    ``query_terms``  (A, y, order, pi, t, rows) -> g, h of a query: see `ranking_twins.refit`
    ``w``            (n,) weights as the loss uses them
    ``leaves``       X -> (trees, rows) leaves
    ``own_refit``    (case, weights (n,), kept rows) -> raw scores of X_TEST by the library's own
                     refit, or None
    ``arguments``    further arguments of Tracer
    ``kept_weights``  kept rows -> (n,) weights without the others, if these change then
    ``scale``        of weights in ``w`` by sample weights
    ``tolerance``    of refits, relative to the largest score
    """

    model: Any
    query_terms: Callable
    leaves: Callable
    rate: float
    l2: float = 0.0
    y: np.ndarray = None
    w: np.ndarray = None
    own_refit: Callable | None = None
    arguments: dict = None
    scale: float = 1.0
    y_test: np.ndarray = None
    kept_weights: Callable | None = None
    tolerance: float = 1e-4

    def __post_init__(self):
        self.y = Y if self.y is None else self.y
        self.w = np.ones(N) if self.w is None else self.w
        self.arguments = self.arguments or {}
        self.y_test = Y_TEST if self.y_test is None else self.y_test


def gain(y):
    return 2.0**y - 1


# ---- LightGBM ----

SMALL = {"verbosity": -1, "num_threads": 1, "num_leaves": 6, "min_data_in_leaf": 5, "learning_rate": 0.2}  # fmt: skip


def lightgbm_leaves(booster, rows):
    return np.asarray(booster.predict(rows, pred_leaf=True)).reshape(len(rows), -1).T


def lightgbm_refit(case, w, keep):
    sizes = np.bincount(np.repeat(np.arange(len(SIZES)), SIZES)[keep])
    sizes = sizes[sizes > 0]
    refitted = case.model.refit(X[keep], case.y[keep], decay_rate=0.0, weight=w[keep], group=sizes)
    return refitted.predict(X_TEST, raw_score=True)


def lightgbm(w=None, k=30, sigma=1.0, norm=True, gains=gain, l2=0.0, **params):
    def make():
        settings = {
            **SMALL, "objective": "lambdarank", "lambdarank_truncation_level": k, "sigmoid": sigma,
            "lambdarank_norm": norm, "lambda_l2": l2, **params,
        }  # fmt: skip
        model = lgb.train(settings, lgb.Dataset(X, Y, group=SIZES, weight=w), ROUNDS)

        def terms(A, y, order, pi, t, rows):
            c = "log2" if norm else "none"
            return twins.lambdas(A, y, order, pi, k, gains, sigma, phi=norm, c=c, ideal_over=k)

        return Case(
            model, terms, partial(lightgbm_leaves, model), 0.2, l2, w=w,
            own_refit=lightgbm_refit if w is None else None,
            arguments={"sample_weight": w},
        )  # fmt: skip

    return make


# ---- XGBoost ----

QUERY_WEIGHTS = rng.random(len(SIZES)) + 0.5
NUMBER = np.repeat(np.arange(len(SIZES)), SIZES)
RELEVANT = (Y > 1).astype(float)


def xgboost_leaves(booster, rows):
    """Return leaves (trees, rows), numbered among the leaves of each tree."""
    nodes = booster.predict(xgb.DMatrix(rows), pred_leaf=True).astype(int).T
    trained = booster.predict(xgb.DMatrix(X), pred_leaf=True).astype(int).T
    return np.array([np.searchsorted(np.unique(a), b) for a, b in zip(trained, nodes, strict=True)])


def xgboost_refit(case, w, keep, **params):
    """Refresh the leaves on the rows that are kept; weights are those of queries."""
    sizes = np.bincount(NUMBER[keep], minlength=len(SIZES))
    kept = sizes > 0
    matrix = xgb.DMatrix(X[keep], case.y[keep])
    matrix.set_group(sizes[kept])
    if "sample_weight" in case.arguments:
        matrix.set_weight(QUERY_WEIGHTS[kept])
    again = {"process_type": "update", "updater": "refresh", "refresh_leaf": True}
    booster = xgb.train({**params, **again}, matrix, ROUNDS, xgb_model=case.model)
    return booster.predict(xgb.DMatrix(X_TEST), output_margin=True)


def xgboost(objective, w=None, y=Y, k=32, phi=True, c=True, gains=gain, refreshes=True, **params):
    def make():
        settings = {
            "objective": objective, "max_depth": 3, "eta": 0.2, "nthread": 1, "min_child_weight": 0.0,
            "lambdarank_normalization": c, "lambdarank_score_normalization": phi, "verbosity": 0, **params,
        }  # fmt: skip
        if params.get("lambdarank_pair_method") != "mean":
            settings["lambdarank_num_pair_per_sample"] = k
        matrix = xgb.DMatrix(X, y)
        matrix.set_group(SIZES)
        if w is not None:
            matrix.set_weight(w)
        model = xgb.train(settings, matrix, ROUNDS)
        weight = {"rank:ndcg": "ndcg", "rank:map": "map", "rank:pairwise": "pairwise"}[objective]
        normaliser = "log2" if c else "none"

        def terms(A, y, order, pi, t, rows):
            return twins.lambdas(
                A, y, order, pi, k, gains, 1.0, 2.0, phi, normaliser, ideal_over=k, weight=weight
            )

        own = np.ones(len(SIZES)) if w is None else w
        scale = len(SIZES) / own.sum()

        def kept_weights(keep):
            return own[NUMBER] / own[np.unique(NUMBER[keep])].mean()

        return Case(
            model, terms, partial(xgboost_leaves, model), 0.2, 1.0, y=y, w=scale * own[NUMBER],
            own_refit=partial(xgboost_refit, **settings) if refreshes else None,
            arguments={} if w is None else {"sample_weight": w[NUMBER]}, scale=scale,
            y_test=np.minimum(Y_TEST, y.max()), kept_weights=kept_weights,
        )  # fmt: skip

    return make


CASES = {
    "LightGBM: lambdarank": lightgbm(),
    "LightGBM: lambdarank with weights": lightgbm(w=W),
    "LightGBM: lambdarank, 3 places, sigmoid 2, l2": lightgbm(k=3, sigma=2.0, l2=1.0),
    "LightGBM: lambdarank, norm off": lightgbm(norm=False),
    "LightGBM: lambdarank, label_gain": lightgbm(
        label_gain="0,1,2,10", gains=lambda y: np.array([0.0, 1, 2, 10])[np.int_(y)]
    ),
    "LightGBM: rank_xendcg, drawn numbers": lightgbm(objective="rank_xendcg", objective_seed=7),
    "LightGBM: rank_xendcg with weights, drawn numbers": lightgbm(w=W, objective="rank_xendcg"),
    "XGBoost: rank:ndcg": xgboost("rank:ndcg"),
    "XGBoost: rank:ndcg with weights": xgboost("rank:ndcg", w=QUERY_WEIGHTS),
    "XGBoost: rank:ndcg, linear gain, 3 pairs, no normalisers": xgboost(
        "rank:ndcg", k=3, phi=False, c=False, gains=lambda y: y, ndcg_exp_gain=False
    ),
    "XGBoost: rank:pairwise": xgboost("rank:pairwise"),
    "XGBoost: rank:map": xgboost("rank:map", y=RELEVANT),
    "XGBoost: rank:ndcg, drawn pairs": xgboost(
        "rank:ndcg",
        w=QUERY_WEIGHTS,
        lambdarank_pair_method="mean",
        lambdarank_num_pair_per_sample=2,
    ),
    "XGBoost: rank:pairwise, drawn pairs": xgboost("rank:pairwise", lambdarank_pair_method="mean"),
    "XGBoost: rank:map, drawn pairs": xgboost(
        "rank:map", y=RELEVANT, lambdarank_pair_method="mean", lambdarank_num_pair_per_sample=3
    ),
}
# Rankers whose pairs or numbers are drawn at random, which no twin repeats.
DRAWN = [name for name in CASES if "drawn" in name]
