"""Monotone constraints of LightGBM models beyond the contract: missing values, categories, refusals."""

import lightgbm as lgb
import numpy as np
import pytest

import leaftrace as lt


def rows_of(seed, missing, categories=False):
    """Return a table with rounded numbers, and labels with effects in all directions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 4)).round(1)
    y = X @ [1.0, -1.0, 0.5, 0.2] + 2 * np.sin(3 * X[:, 0]) + X[:, 0] * X[:, 1]
    y += 0.5 * rng.normal(size=400)
    X[rng.random(X.shape) < missing] = np.nan
    if categories:
        X[:, 3] = rng.integers(0, 8, 400)
        y += X[:, 3] % 3
    return X, y


def trained(X, y, categories=False, **settings):
    params = {"num_leaves": 31, "min_data_in_leaf": 3, "learning_rate": 0.3, "max_bin": 15}
    params |= {"verbosity": -1, "num_threads": 1, "monotone_constraints": [1, -1, 1, 0]}
    rows = lgb.Dataset(X, y, categorical_feature=[3] if categories else "auto")
    return lgb.train({**params, **settings}, rows, 6)


SMOOTH = {"path_smooth": 3.0}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [{}, SMOOTH], ids=["", "smoothed"])
@pytest.mark.parametrize("method", ["intermediate", "advanced"])
def test_missing_values(seed, settings, method):
    """Missing values go to either side, so bounds begin in the first bin or in all of them."""
    X, y = rows_of(seed, 0.05)
    model = trained(X, y, monotone_constraints_method=method, **settings)
    assert lt.Tracer(model, X, y).fidelity.max_error <= 1e-9


def test_smoothing_of_rows_that_weigh_differently():
    """LightGBM estimates the rows of a side by its second derivatives."""
    X, y = rows_of(0, 0.05)
    model = trained(
        X, (y > 0) * 1.0, objective="binary", monotone_constraints_method="advanced", **SMOOTH
    )
    assert lt.Tracer(model, X, (y > 0) * 1.0).fidelity.max_error <= 1e-9


def test_leaves_of_missing_values_alone():
    """They have no bins, and LightGBM holds their bounds where it found others before.

    Two of them can put the list of its bounds out of order, which is not replayed, and the replay says so.
    """
    X, y = rows_of(5, 0.1)
    model = trained(X, y, monotone_constraints_method="advanced")
    assert lt.Tracer(model, X, y).fidelity.max_error <= 1e-9
    X, y = rows_of(55, 0.1)
    model = trained(X, y, monotone_constraints_method="advanced")
    with pytest.raises(lt.FidelityError, match="a leaf that holds missing values alone"):
        lt.Tracer(model, X, y)


def test_smoothing_below_many_categories():
    """Nodes lean on a step that LightGBM computes without cat_l2, which is not replayed."""
    X, y = rows_of(1, 0.0, categories=True)
    model = trained(X, y, True, monotone_constraints_method="advanced", **SMOOTH)
    with pytest.raises(lt.UnsupportedModel, match="monotone_constraints_method='basic'"):
        lt.Tracer(model, X, y)
    exact = trained(X, y, True, monotone_constraints_method="advanced")
    assert lt.Tracer(exact, X, y).fidelity.max_error <= 1e-9
