"""Refitted and retrained models as the user's own: what their `predict` gives, and the models themselves.

Expected values are those of the libraries' own predictions, and of the oracle's refit.
"""

import numpy as np
import oracle
import pytest
import xgboost as xgb
from contract import CASES, prepared

# What a Booster of XGBoost needs to read tables.
MATRIX = {"enable_categorical": True}


@pytest.fixture(params=CASES)
def setting(request):
    return prepared(request.param)


def own_predict(model, X):
    """Return the prediction of the model by its own library."""
    if isinstance(model, xgb.Booster):
        return model.predict(xgb.DMatrix(X, **MATRIX))
    return model.predict(X)


def assert_same(found, expected, case):
    """Compare labels, or numbers to the rounding of the library."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    if expected.dtype.kind in "OUSb":
        assert found.dtype.kind == expected.dtype.kind
        assert found.tolist() == expected.tolist()
        return
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, atol=max(1e-9, 3 * case.tolerance) * scale)


def removed(case):
    """Return rows to remove, of every class."""
    return np.arange(0, len(case.w), 7)


def test_predict_is_that_of_the_model(setting):
    case, tracer, *_ = setting
    X = case.data.X_test
    assert_same(tracer.engine.as_trained.predict(X), own_predict(case.model, X), case)


def test_model_of_a_refit(setting):
    """The library's own prediction by the refitted model is that of the oracle's refit."""
    case, tracer, structure, test_steps = setting
    X = case.data.X_test
    before = case.raw(case.model, X)
    refitted = tracer.refit(without=removed(case))
    model = refitted.model
    assert type(model) is type(case.model)
    keep = np.delete(np.arange(len(case.w)), removed(case))
    fitted = oracle.refit(structure.rows(keep), case.data.codes[keep], case.w[keep])
    expected = oracle.predict(structure, fitted, test_steps)
    found = case.raw(model, X).reshape(expected.shape)
    # float32 where the oracle has float64
    np.testing.assert_allclose(found, expected, atol=3e-6 * max(1.0, np.abs(expected).max()))
    np.testing.assert_array_equal(case.raw(case.model, X), before)  # the user's model stays
    assert_same(refitted.predict(X), own_predict(model, X), case)


def test_model_of_a_retraining(setting):
    case, tracer, *_ = setting
    X = case.data.X_test
    retrained = tracer.retrain(without=removed(case))
    model = retrained.model
    assert type(model) is type(case.model)
    expected = case.raw(model, X).reshape(len(case.data.y_test), -1)
    np.testing.assert_allclose(
        retrained.scores(X), expected, atol=1e-6 * max(1.0, np.abs(expected).max())
    )
    assert_same(retrained.predict(X), own_predict(model, X), case)
