"""Rows of weight zero, which some libraries count, and where they leave leaves without derivatives."""

import lightgbm as lgb
import numpy as np
import pytest
from catboost import CatBoostRegressor
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from xgboost import XGBRegressor

import leaftrace as lt

# ---- leaves that are medians ----

LIGHTGBM = {
    "n_estimators": 4,
    "learning_rate": 0.3,
    "min_child_samples": 1,
    "verbose": -1,
    "n_jobs": 1,
}
CATBOOST = {"iterations": 6, "depth": 1, "verbose": 0, "allow_writing_files": False}
MEDIANS = {
    "LightGBM": lambda: lgb.LGBMRegressor(objective="mae", **LIGHTGBM),
    "LightGBM, quantile": lambda: lgb.LGBMRegressor(objective="quantile", alpha=0.3, **LIGHTGBM),
    "XGBoost": lambda: XGBRegressor(objective="reg:absoluteerror", n_estimators=6, n_jobs=1),
    "CatBoost": lambda: CatBoostRegressor(loss_function="MAE", **CATBOOST),
    "GradientBoosting": lambda: GradientBoostingRegressor(loss="absolute_error", n_estimators=6),
    "HistGradientBoosting": lambda: HistGradientBoostingRegressor(
        loss="absolute_error", max_iter=6
    ),
}


def one_split(seed):
    """Return rows of one column of zeros and ones, which every tree splits alike, and their weights."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, 120).astype(float)
    y = np.float32(0.2 + 3 * X + rng.gamma(1.0, size=120)).astype(float)
    w = np.float32(2 * rng.random(120) * (rng.random(120) < 0.5)).astype(float)
    return X[:, None], y, w


@pytest.mark.parametrize("name", MEDIANS)
def test_medians_are_those_of_a_retraining_that_cannot_split_otherwise(name):
    """Take out rows of any weight, or give them weight zero; trees have one split at most."""
    rows = np.array([[0.0], [1.0]])
    moved = []
    for seed in range(2):
        X, y, w = one_split(seed)
        model = MEDIANS[name]().fit(X, y, sample_weight=w)
        tracer = lt.Tracer(model, X, y, w, dtype="float64")
        gone = np.concatenate([np.flatnonzero(w == 0)[:25], np.flatnonzero(w)[:3]])
        keep = np.delete(np.arange(len(y)), gone)
        expected = MEDIANS[name]().fit(X[keep], y[keep], sample_weight=w[keep]).predict(rows)
        found = tracer.refit(without=gone).predict(rows)
        np.testing.assert_allclose(found, expected, rtol=1e-6)  # XGBoost keeps scores in float32
        zeroed = w.copy()
        zeroed[gone] = 0
        expected = MEDIANS[name]().fit(X, y, sample_weight=zeroed).predict(rows)
        found = tracer.refit(sample_weight=zeroed).predict(rows)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        light = np.flatnonzero(w == 0)
        change = tracer.influence(rows, method=lt.LeafRefit(), of="prediction", rows=light).values
        for row, values in zip(light[:3], change, strict=False):
            without = tracer.refit(without=[row]).predict(rows)
            np.testing.assert_allclose(values, model.predict(rows) - without, atol=1e-6)
        moved.append(np.abs(change).max())
    # The libraries that go by the position of a row among others notice that it has gone.
    assert (max(moved) > 1e-3) == (name.startswith("LightGBM") or name == "CatBoost")
