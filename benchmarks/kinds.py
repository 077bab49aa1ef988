"""Measure rankers against regressions of the same size: CPU seconds of an answer.

    python benchmarks/kinds.py            # prints a table

Both models of a line have the same rows, trees and leaves, and the answer is LeafInfluence of all training rows
on the same number of queries. Times are CPU seconds of one thread, medians of a few runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import catboost
import lightgbm as lgb
import numpy as np
import xgboost as xgb

import leaftrace as lt

ROWS = 10_000
TREES = 100
IN_QUERY = 20  # rows
IN_LONG_QUERY = 100
COLUMNS = 32  # questions at a time
RUNS = 3


def data():
    """Return X, labels of a ranking, sizes of queries."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 8))
    score = X[:, 0] - X[:, 1] + 0.5 * np.sin(3 * X[:, 2]) + rng.normal(size=ROWS)
    return X, np.digitize(score, [-1, 0, 1, 2]).astype(float)


def seconds(tracer, X, **more) -> float:
    """Return CPU seconds of influences on the predictions of some rows, after one to warm up."""
    ask: Callable = lambda: tracer.influence(X[:COLUMNS], of="prediction", **more)  # noqa: E731
    ask()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        ask()
        times.append(time.process_time() - start)
    return float(np.median(times))


def traced(model, X, y, **more):
    return lt.Tracer(model, X, y, n_jobs=1, **more)


def rankers(X, y):
    """Yield (name, seconds of a ranker, seconds of a regression)."""
    qid = np.arange(ROWS) // IN_QUERY
    sizes = np.full(ROWS // IN_QUERY, IN_QUERY)
    small = {"verbosity": -1, "num_leaves": 31, "num_threads": 1}
    plain = lgb.train(small, lgb.Dataset(X, y), TREES)
    rows = lgb.Dataset(X, y, group=sizes)
    for name in ("lambdarank", "rank_xendcg"):
        ranker = lgb.train({**small, "objective": name}, rows, TREES)
        yield (
            f"LightGBM {name}",
            seconds(traced(ranker, X, y, qid=qid), X),
            seconds(traced(plain, X, y), X),
        )
    long = lgb.Dataset(X, y, group=np.full(ROWS // IN_LONG_QUERY, IN_LONG_QUERY))
    ranker = lgb.train({**small, "objective": "lambdarank"}, long, TREES)
    yield (
        f"LightGBM lambdarank, {IN_LONG_QUERY} rows a query",
        seconds(traced(ranker, X, y, qid=np.arange(ROWS) // IN_LONG_QUERY), X),
        seconds(traced(plain, X, y), X),
    )
    params = {"max_depth": 5, "nthread": 1}
    matrix = xgb.DMatrix(X, y)
    plain = xgb.train(params, matrix, TREES)
    matrix.set_group(sizes)
    ranker = xgb.train({**params, "objective": "rank:ndcg"}, matrix, TREES)
    yield (
        "XGBoost rank:ndcg",
        seconds(traced(ranker, X, y, qid=qid), X),
        seconds(traced(plain, X, y), X),
    )
    small = {
        "iterations": TREES,
        "depth": 5,
        "verbose": 0,
        "thread_count": 1,
        "allow_writing_files": False,
    }
    plain = catboost.CatBoost({**small, "loss_function": "RMSE"}).fit(X, y)
    pool = catboost.Pool(X, y, group_id=qid)
    for name in ("QueryRMSE", "PairLogit"):
        ranker = catboost.CatBoost({**small, "loss_function": name}).fit(pool)
        yield (
            f"CatBoost {name}",
            seconds(traced(ranker, X, y, qid=qid), X),
            seconds(traced(plain, X, y), X),
        )


def main() -> None:
    X, y = data()
    print(f"{ROWS:,} rows, {TREES} trees, {COLUMNS} questions; CPU seconds")
    print("| ranker | seconds | plain | ratio |")
    print("| --- | --- | --- | --- |")
    for name, mine, plain in rankers(X, y):
        print(f"| {name} | {mine:.3f} | {plain:.3f} | {mine / plain:.1f} |", flush=True)


if __name__ == "__main__":
    main()
