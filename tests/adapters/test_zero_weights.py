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


# ---- leaves in which no row has weight ----


def alone_at_zero(l2):
    """Return a model of squared error with a leaf whose only row, number 5, has weight zero."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=80), np.arange(80) < 40], axis=1)
    X[5, 0] = 50.0
    y = X[:, 1] + 0.1 * rng.normal(size=80)
    w = np.ones(80)
    w[5] = 0.0
    more = {**CATBOOST, "depth": 2, "l2_leaf_reg": l2}
    model = CatBoostRegressor(**more).fit(X, y, sample_weight=w)
    tracer = lt.Tracer(model, X, y, w, dtype="float64")
    e = tracer.engine.ensemble
    rows_in_leaf = [(e.leaves[t] == e.leaves[t, 5]).sum() for t in range(e.n_steps)]
    assert min(rows_in_leaf) == 1
    return tracer, X, y


def test_a_leaf_without_weight_and_l2_jumps_and_has_no_derivative():
    tracer, X, y = alone_at_zero(l2=0)
    others = np.delete(np.arange(80), 5)
    for ask in (tracer.influence, tracer.top):
        with pytest.raises(lt.InvalidInput, match=r"the first is row 5, have weight zero .* jumps"):
            ask(X[:9], y[:9])
    with pytest.raises(lt.InvalidInput, match=r"by rows=numpy.delete\(numpy.arange\(80\), \[5\]\)"):
        tracer.influence(X[:9], y[:9])
    with pytest.raises(lt.InvalidInput, match=r"leave them out of rows=, or"):
        tracer.influence(X[:9], y[:9], rows=[4, 5])
    with pytest.raises(lt.InvalidInput, match=r"the first is row 1, fall into a leaf .* jumps"):
        tracer.score_candidates(X[4:6], X[:9], y[:9], y[4:6])
    assert np.abs(tracer.influence(X[:9], y[:9], rows=others).values).max() < 10
    # Almost no weight is enough to move the leaf, and twice as much moves it as far.
    moved = []
    for weight in (0.0, 1e-6, 2e-6):
        w = np.ones(80)
        w[5] = weight
        moved.append(tracer.refit(sample_weight=w).predict(X[5:6])[0])
    assert abs(moved[1] - moved[0]) > 1e-2
    assert abs(moved[2] - moved[1]) < 1e-4


def test_a_leaf_without_weight_has_a_derivative_with_l2():
    tracer, X, _ = alone_at_zero(l2=1)
    slope = tracer.influence(X[5:6], of="prediction", rows=[5]).values[0, 0]
    step = 1e-3
    w = np.ones(80)
    w[5] = step
    change = tracer.refit(sample_weight=w).predict(X[5:6]) - tracer.refit().predict(X[5:6])
    np.testing.assert_allclose(slope, change[0] / step, rtol=1e-2)  # a one-sided difference
