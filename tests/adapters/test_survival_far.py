"""Survival times far from the scores, where probabilities vanish in the boosters' own numbers."""

import numpy as np
import pytest
import xgboost as xgb
from catboost import CatBoost

import leaftrace as lt


def rows_of(spread):
    """Return a table, lower and upper ends of times; a third is known, ends of the others may be open."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 4))
    time = np.exp(spread * (X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=240)))
    kind = rng.integers(0, 4, 240)
    lower = np.where(kind == 1, 0.0, time)
    upper = np.where(kind == 2, np.inf, np.where(kind == 3, 1.5 * time, time))
    return X, lower, upper


@pytest.mark.parametrize("spread", [1.5, 5.0])
@pytest.mark.parametrize("distribution", ["normal", "logistic", "extreme"])
def test_xgboost(distribution, spread):
    X, lower, upper = rows_of(spread)
    rows = xgb.DMatrix(X)
    rows.set_float_info("label_lower_bound", lower)
    rows.set_float_info("label_upper_bound", upper)
    params = {"objective": "survival:aft", "aft_loss_distribution": distribution}
    model = xgb.train({**params, "max_depth": 3, "nthread": 1}, rows, 6)
    assert lt.Tracer(model, X, np.column_stack([lower, upper])).fidelity.max_error <= 1e-6


@pytest.mark.parametrize("distribution", ["Normal", "Logistic", "Extreme"])
def test_catboost(distribution):
    X, lower, upper = rows_of(1.5)
    y = np.column_stack([np.where(lower > 0, lower, -1), np.where(np.isinf(upper), -1, upper)])
    params = {"iterations": 6, "depth": 3, "verbose": 0, "allow_writing_files": False}
    loss = f"SurvivalAft:dist={distribution};scale=1"
    model = CatBoost({**params, "loss_function": loss}).fit(X, y)
    assert lt.Tracer(model, X, y).fidelity.max_error <= 1e-9
