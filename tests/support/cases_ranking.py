"""Rankers of every library for the contract in `test_ranking.py`, each with a twin in a few lines."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import lightgbm as lgb
import numpy as np
import ranking_twins as twins

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
    presence: bool = True

    def __post_init__(self):
        self.y = Y if self.y is None else self.y
        self.w = np.ones(N) if self.w is None else self.w
        self.arguments = self.arguments or {}


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


CASES = {
    "LightGBM: lambdarank": lightgbm(),
    "LightGBM: lambdarank with weights": lightgbm(w=W),
    "LightGBM: lambdarank, 3 places, sigmoid 2, l2": lightgbm(k=3, sigma=2.0, l2=1.0),
    "LightGBM: lambdarank, norm off": lightgbm(norm=False),
    "LightGBM: lambdarank, label_gain": lightgbm(
        label_gain="0,1,2,10", gains=lambda y: np.array([0.0, 1, 2, 10])[np.int_(y)]
    ),
}
