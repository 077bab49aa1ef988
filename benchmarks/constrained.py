"""Measure monotone models against models without constraints: CPU seconds of every answer.

    python benchmarks/constrained.py [WORDS]      # prints the table, or its lines with these words

Both models of a line have the same rows and settings. Their answers are asked in turns, on one thread,
and a cell is the ratio of the median times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from xgboost import XGBRegressor

import leaftrace as lt
from measuring import QUIET, markdown, ratio, show

ROWS = 10_000
TREES = 100
DEEP_TREES = 20
REMOVED = 128  # rows, one after another
GROUP = 200  # rows, at once
RUNS = 9
LONG_RUNS = 3  # of answers that take longer than a second
SIGNS = [1, -1, 0, 0, 0, 0, 0, 0]
LIGHT = {"n_estimators": TREES, "num_leaves": 31, "verbose": -1, "n_jobs": 1}
CAT = {"iterations": TREES, "depth": 5, "thread_count": 1, "model_shrink_rate": 0, **QUIET}
FOREST = {"n_estimators": DEEP_TREES, "random_state": 0, "n_jobs": 1}

Make = Callable[..., Any]
# name, model, what makes it monotone
MODELS: list[tuple[str, Make, dict[str, Any]]] = [
    (
        "XGBoost",
        partial(XGBRegressor, n_estimators=TREES, max_depth=5, n_jobs=1),
        {"monotone_constraints": tuple(SIGNS)},
    ),
    *(
        (
            f"LightGBM, {method}",
            partial(LGBMRegressor, **LIGHT),
            {"monotone_constraints": SIGNS, "monotone_constraints_method": method},
        )
        for method in ("basic", "intermediate", "advanced")
    ),
    (
        "HistGradientBoosting",
        partial(HistGradientBoostingRegressor, max_iter=TREES, early_stopping=False),
        {"monotonic_cst": SIGNS},
    ),
    ("CatBoost", partial(CatBoostRegressor, **CAT), {"monotone_constraints": SIGNS}),
    (
        "RandomForest, depth 8",
        partial(RandomForestRegressor, max_depth=8, **FOREST),
        {"monotonic_cst": SIGNS},
    ),
    (
        "RandomForest, leaves of 3 rows",
        partial(RandomForestRegressor, min_samples_leaf=3, **FOREST),
        {"monotonic_cst": SIGNS},
    ),
    ("RandomForest, defaults", partial(RandomForestRegressor, **FOREST), {"monotonic_cst": SIGNS}),
]


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return generated rows whose labels rise in the first column and fall in the second."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, len(SIGNS)))
    return X, X[:, 0] - X[:, 1] + 0.5 * np.sin(3 * X[:, 2]) + rng.normal(size=ROWS)


def answers(X: np.ndarray) -> dict[str, Callable[[lt.Tracer], object]]:
    """Return what is asked of both models."""
    removed = np.arange(REMOVED)
    group = np.arange(GROUP)
    return {
        "1 query": lambda tracer: tracer.influence(X[:1], of="prediction"),
        "32 queries": lambda tracer: tracer.influence(X[:32], of="prediction"),
        "128 queries": lambda tracer: tracer.influence(X[:128], of="prediction"),
        f"LeafRefit of {REMOVED} rows": lambda tracer: tracer.influence(
            X[:32], of="prediction", method=lt.LeafRefit(), rows=removed
        ),
        f"refit without {GROUP} rows": lambda tracer: tracer.refit(group).predict(X[:32]),
    }


def seconds(ask: Callable[[], object]) -> float:
    """Return the time on the processor that an answer takes."""
    start = time.process_time()
    ask()
    return time.process_time() - start


def in_turns(ask: Callable[[lt.Tracer], object], tracers: list[lt.Tracer]) -> np.ndarray:
    """Return the median seconds of each tracer's answer."""
    first = [seconds(partial(ask, tracer)) for tracer in tracers]
    runs = LONG_RUNS if max(first) > 1 else RUNS
    times = [[seconds(partial(ask, tracer)) for tracer in tracers] for _ in range(runs)]
    return np.median(times, axis=0)


def line(name: str, make: Make, constraints: dict[str, Any]) -> list[str]:
    """Return the ratios of one model."""
    X, y = data()
    models = [make(**more).fit(X, y) for more in (constraints, {})]
    tracers = [lt.Tracer(model, X, y, n_jobs=1) for model in models]
    leaves = [int(tracer.engine.ensemble.step_leaves[-1]) for tracer in tracers]
    cells = [name, " / ".join(f"{n:,}" for n in leaves)]
    for ask in answers(X).values():
        mine, plain = in_turns(ask, tracers)
        cells.append(f"{ratio(mine / plain)} ({show(mine)})")
    return cells


def section(words: str = "") -> str:
    """Return the table, or its lines with these words."""
    head = ["model", "leaves, with and without", *answers(data()[0])]
    return markdown([head, *(line(*model) for model in MODELS if words in model[0])])


if __name__ == "__main__":
    print(section(" ".join(sys.argv[1:])))
