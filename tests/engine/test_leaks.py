"""Tracers that are made, used and dropped 300 times leave nothing behind."""

import gc
import sys
import weakref
from pathlib import Path

import catboost
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

import leaftrace as lt

CYCLES = 300
FIRST = 60  # cycles in which libraries and allocators may still grow
ROWS = 3000
# A tracer of this size holds more than 100 bytes a row, so that one that is never freed adds 72 MB.
MOST_GROWTH = 12_000_000

MODELS = {
    "catboost": catboost.CatBoostRegressor(
        iterations=2, depth=2, verbose=0, thread_count=1, allow_writing_files=False
    ),
    "gradient boosting": GradientBoostingRegressor(n_estimators=2, max_depth=2),
    "hist gradient boosting": HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=4),
    "lightgbm": lgb.LGBMRegressor(n_estimators=2, num_leaves=4, n_jobs=1, verbose=-1),
    "xgboost": xgb.XGBRegressor(n_estimators=2, max_depth=2, n_jobs=1),
}


def resident():
    """Bytes of the process that are in memory."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


@pytest.fixture(scope="module", params=MODELS)
def world(request):
    X = np.random.default_rng(0).standard_normal((ROWS, 3))
    y = X[:, 0] + X[:, 1]
    return MODELS[request.param].fit(X, y), X, y


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow(world):
    model, X, y = world
    for cycle in range(CYCLES):
        tracer = lt.Tracer(model, X, y, n_jobs=1)
        tracer.influence(X[:2], y[:2])
        del tracer
        if cycle == FIRST:
            gc.collect()
            before = resident()
    gc.collect()
    assert resident() - before < MOST_GROWTH


def test_tracers_and_results_are_in_no_reference_cycle(world):
    """They are freed at once, and not when the collector of cycles comes by."""
    model, X, y = world
    gc.collect()
    gc.disable()
    try:
        tracer = lt.Tracer(model, X, y, n_jobs=1)
        influence = tracer.influence(X[:2], y[:2])
        refit = tracer.refit(without=[0])
        alive = [weakref.ref(x) for x in (tracer, tracer.engine, tracer.engine.work, influence)]
        del tracer, influence, refit
        assert [ref() for ref in alive] == [None] * len(alive)
    finally:
        gc.enable()
