"""Rankers of every library for the contract in `test_ranking.py`, each with a twin in a few lines."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import catboost
import lightgbm as lgb
import lightgbm_draws
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

    ``query_terms``  (A, y, order, pi, t, rows, w) -> w g, w h of a query: see `ranking_twins.refit`
    ``w``            (n,) weights as the loss uses them
    ``leaves``       X -> (trees, rows) leaves
    ``own_refit``    (case, weights (n,), kept rows) -> raw scores of X_TEST by the library's own
                     refit, or None
    ``lam``          l2 that is multiplied by the mean weight
    ``centred``      whether leaves are centred by the weight of their rows
    ``prior``        of leaves that are solved all at once, or None
    ``arguments``    further arguments of Tracer
    ``kept_weights``  kept rows -> (n,) weights without the others, if these change then
    ``scale``        of weights in ``w`` by sample weights
    ``bags``         (trees, n) 1 for rows of the queries that LightGBM drew, or None
    ``times``        (trees, n) how often each tree is added to the score of a row, or None
    ``tolerance``    of refits, relative to the largest score
    """

    model: Any
    query_terms: Callable
    leaves: Callable
    rate: float
    l2: float = 0.0
    lam: float = 0.0
    centred: bool = False
    prior: float | None = None
    y: np.ndarray = None
    w: np.ndarray = None
    own_refit: Callable | None = None
    arguments: dict = None
    scale: float = 1.0
    y_test: np.ndarray = None
    kept_weights: Callable | None = None
    tolerance: float = 1e-4
    bags: np.ndarray | None = None
    times: np.ndarray | None = None

    def __post_init__(self):
        self.y = Y if self.y is None else self.y
        self.w = np.ones(N) if self.w is None else self.w
        self.arguments = self.arguments or {}
        self.y_test = Y_TEST if self.y_test is None else self.y_test


def gain(y):
    return 2.0**y - 1


def weighted(w, terms):
    """Return the function `terms` with its g and h times w."""
    return lambda *args, **more: tuple(w * x for x in terms(*args, **more))


# ---- LightGBM ----

SMALL = {"verbosity": -1, "num_threads": 1, "num_leaves": 6, "min_data_in_leaf": 5, "learning_rate": 0.2}  # fmt: skip


def lightgbm_leaves(booster, rows):
    return np.asarray(booster.predict(rows, pred_leaf=True)).reshape(len(rows), -1).T


def lightgbm_refit(case, w, keep):
    sizes = np.bincount(np.repeat(np.arange(len(SIZES)), SIZES)[keep])
    sizes = sizes[sizes > 0]
    refitted = case.model.refit(X[keep], case.y[keep], decay_rate=0.0, weight=w[keep], group=sizes)
    return refitted.predict(X_TEST, raw_score=True)


def query_bags(model, fraction):
    """Return (trees, n) 1 for rows of the queries that each tree drew, for less than 1024 queries."""
    random = lightgbm_draws.Random(3)  # the default of bagging_seed
    drawn = [[random.next() < fraction for _ in SIZES] for _ in range(model.num_trees())]
    return np.repeat(np.array(drawn, float), SIZES, axis=1)


def times_added(bags):
    """Return (trees, n) how often LightGBM adds each tree to the scores of rows.

    It goes through a list of all rows: first those of the bag, then what stood there before."""
    listed = np.zeros(bags.shape[1], int)
    times = np.zeros_like(bags)
    for bag, out in zip(bags, times, strict=True):
        inside = np.flatnonzero(bag)
        listed[: len(inside)] = inside
        for row in listed:
            out[row] += 1
    return times


def lightgbm(w=None, k=30, sigma=1.0, norm=True, gains=gain, l2=0.0, **params):
    def make():
        settings = {
            **SMALL, "objective": "lambdarank", "lambdarank_truncation_level": k, "sigmoid": sigma,
            "lambdarank_norm": norm, "lambda_l2": l2, **params,
        }  # fmt: skip
        model = lgb.train(settings, lgb.Dataset(X, Y, group=SIZES, weight=w), ROUNDS)

        def terms(A, y, order, pi, t, rows, w):
            c = "log2" if norm else "none"
            return weighted(w, twins.lambdas)(
                A, y, order, pi, k, gains, sigma, phi=norm, c=c, ideal_over=k
            )

        by_query = "bagging_freq" in params
        bags = query_bags(model, params["bagging_fraction"]) if by_query else None
        return Case(
            model, terms, partial(lightgbm_leaves, model), 0.2, l2, w=w,
            own_refit=lightgbm_refit if w is None and not by_query else None,
            arguments={"sample_weight": w}, bags=bags, times=times_added(bags) if by_query else None,
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

        def terms(A, y, order, pi, t, rows, w):
            return weighted(w, twins.lambdas)(
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


# ---- CatBoost ----


def catboost_leaves(model, rows):
    return model.calc_leaf_indexes(rows).T


def catboost_ranker(
    loss, terms, w=None, l2=3.0, centred=False, together=False, subtracts=False, **params
):
    """Return a maker of a case. ``subtracts``: l2 is subtracted from second derivatives."""

    def make():
        settings = {
            "iterations": ROUNDS,
            "depth": 3,
            "learning_rate": 0.2,
            "l2_leaf_reg": l2,
            **params,
        }
        model = catboost.CatBoost(
            {
                "loss_function": loss,
                "verbose": 0,
                "thread_count": 1,
                "allow_writing_files": False,
                **settings,
            }
        )
        weights = None if w is None else w.astype(np.float32)
        model.fit(catboost.Pool(X, Y, group_id=NUMBER, weight=weights))
        own = np.ones(N) if w is None else weights.astype(float)
        rate = float(np.float32(0.2))
        return Case(
            model, terms, partial(catboost_leaves, model), rate, w=own, centred=centred,
            l2=l2 if together else 0.0, lam=0.0 if together else -l2 if subtracts else l2,
            prior=float(np.float32(0.1)) if together else None,
            arguments={} if w is None else {"sample_weight": weights}, tolerance=1e-9,
        )  # fmt: skip

    return make


def query_rmse(A, y, order, pi, t, rows, w):
    v = w * pi
    r = A - y
    return v * (r - (v * r).sum() / v.sum()), v


def query_softmax(A, y, order, pi, t, rows, w, beta=1.0, floor=0.01, newton=False):
    v = w * pi
    p = v * np.exp(beta * A)
    p = p / p.sum()
    T = (v * y).sum()
    h = beta * T * (beta * p * (1 - p) + floor) if newton else v
    return (beta * (T * p - v * y), h) if T > 0 else (0 * v, h if not newton else 0 * v)


def pairwise_logit(A, y, order, pi, t, rows, w, newton=True):
    d = A[:, None] - A
    pairs = (y[:, None] > y) * pi[:, None] * pi
    rho = 1 / (1 + np.exp(d))
    lam = -pairs * rho
    eta = pairs * rho * (1 - rho) if newton else pairs
    return w * (lam.sum(axis=1) - lam.sum(axis=0)), w * (eta.sum(axis=1) + eta.sum(axis=0))


def lambda_mart(A, y, order, pi, t, rows, w, **settings):
    g, h = twins.lambdas(A, y, order, pi, gain=lambda y: y, **settings)
    return w * g, w * h


CASES = {
    "LightGBM: lambdarank": lightgbm(),
    "LightGBM: lambdarank with weights": lightgbm(w=W),
    "LightGBM: lambdarank, 3 places, sigmoid 2, l2": lightgbm(k=3, sigma=2.0, l2=1.0),
    "LightGBM: lambdarank, norm off": lightgbm(norm=False),
    "LightGBM: lambdarank, label_gain": lightgbm(
        label_gain="0,1,2,10", gains=lambda y: np.array([0.0, 1, 2, 10])[np.int_(y)]
    ),
    "LightGBM: lambdarank, bags of queries": lightgbm(
        bagging_by_query=True, bagging_fraction=0.7, bagging_freq=1
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
    "CatBoost: QueryRMSE": catboost_ranker("QueryRMSE", query_rmse),
    "CatBoost: QueryRMSE with weights": catboost_ranker("QueryRMSE", query_rmse, w=W),
    "CatBoost: QuerySoftMax": catboost_ranker("QuerySoftMax", query_softmax),
    "CatBoost: QuerySoftMax, beta 2, Newton, weights": catboost_ranker(
        "QuerySoftMax:beta=2;lambda=0.1",
        partial(query_softmax, beta=2.0, floor=0.1, newton=True),
        w=W,
        leaf_estimation_method="Newton",
    ),
    "CatBoost: PairLogit": catboost_ranker("PairLogit", pairwise_logit, centred=True),
    "CatBoost: PairLogit, Gradient": catboost_ranker(
        "PairLogit",
        partial(pairwise_logit, newton=False),
        centred=True,
        leaf_estimation_method="Gradient",
    ),
    "CatBoost: PairLogitPairwise": catboost_ranker(
        "PairLogitPairwise", pairwise_logit, l2=5.0, centred=True, together=True
    ),
    "CatBoost: LambdaMart": catboost_ranker("LambdaMart", partial(lambda_mart, k=np.inf), l2=0.0),
    "CatBoost: LambdaMart, l2": catboost_ranker(
        "LambdaMart", partial(lambda_mart, k=np.inf), l2=0.25, subtracts=True
    ),
    "CatBoost: YetiRank, drawn pairs": catboost_ranker("YetiRank", None, l2=0.0),
    "CatBoost: YetiRankPairwise, drawn pairs": catboost_ranker(
        "YetiRankPairwise:permutations=4", None, l2=5.0, rsm=0.7, random_seed=3
    ),
    "CatBoost: LambdaMart, 3 places, sigma 2": catboost_ranker(
        "LambdaMart:metric=NDCG;top=3;sigma=2;norm=false",
        partial(lambda_mart, k=3, ideal_over=3, sigma=2.0, phi=False, c="none"),
        l2=0.0,
    ),
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
