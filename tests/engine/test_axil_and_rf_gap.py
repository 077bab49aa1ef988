"""AXIL and RF-GAP against matrices that are written out, and against the libraries' predictions."""

import numpy as np
import pytest
from contract import prepared
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor
from xgboost import XGBRegressor

import leaftrace as lt
from leaftrace.baselines import AXIL, RFGAP, rf_gap

REGRESSOR = "CatBoost: default regressor"


def same_leaf(structure, case, t, ids):
    """Return (rows with these leaves, n): what a label of a training row adds to leaf values of step t."""
    own, *_ = structure.steps[t][0]
    w = case.w
    lam = structure.l2 * w.sum() / len(w) if structure.l2_scales else structure.l2
    together = (ids[:, None] == own) * w
    return structure.rate(t) * together / (together.sum(axis=1, keepdims=True) + lam)


def loadings(name):
    """Return (tests, n) of the test rows, by the recursion over matrices of the AXIL paper."""
    case, _, structure, test_steps = prepared(name)
    n = len(case.w)
    mean = np.tile(case.w / case.w.sum(), (n, 1))
    train = mean  # (n, n), from the mean of the labels
    test = mean[: len(test_steps[0][0][0])]
    for t in range(len(structure.steps)):
        residual = np.eye(n) - train
        test = test + same_leaf(structure, case, t, test_steps[t][0][0]) @ residual
        train = train + same_leaf(structure, case, t, structure.steps[t][0][0]) @ residual
    return test


def test_axil():
    case, tracer, *_ = prepared(REGRESSOR)
    K = loadings(REGRESSOR)
    X = case.data.X_test
    y = case.data.y_test
    predicted = case.model.predict(X)
    np.testing.assert_allclose(K @ case.data.y, predicted, rtol=1e-5)  # of the paper's matrices
    found = tracer.influence(X, y, method=AXIL(), of="prediction").values
    np.testing.assert_allclose(found, K.T, atol=1e-6 * np.abs(K).max())
    part = K.T * (case.data.y - case.data.y.mean())[:, None]
    expected = part * (predicted - y)
    losses = tracer.influence(X, y, method=AXIL())
    np.testing.assert_allclose(losses.values, expected, atol=1e-5 * np.abs(expected).max())
    assert losses.scored
    some = tracer.influence(X, y, method=AXIL(), rows=[7, 2], reduce="mean").values
    np.testing.assert_allclose(
        some[:, 0], expected[[7, 2]].mean(axis=1), atol=1e-5 * np.abs(expected).max()
    )


def test_axil_with_a_given_starting_score():
    """Loadings times labels give the prediction but for what is left of the starting score."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60)
    model = XGBRegressor(n_estimators=10, max_depth=3, base_score=2.0, n_jobs=1).fit(X, y)
    K = lt.Tracer(model, X, y).influence(X, y, method=AXIL(), of="prediction").values
    rest = model.predict(X) - K.T @ y
    np.testing.assert_allclose(rest, 2 * (1 - K.sum(axis=0)), atol=1e-5)
    assert np.abs(rest).max() > 0.1


def test_axil_is_for_squared_errors():
    case, tracer, *_ = prepared("XGBoost: poisson")
    with pytest.raises(lt.UnsupportedModel, match="AXIL needs predictions that are linear"):
        tracer.influence(case.data.X_test, case.data.y_test, method=AXIL())


@pytest.fixture(scope="module")
def forest():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=90)
    model = RandomForestRegressor(40, max_depth=5, oob_score=True, random_state=0).fit(
        X[:60], y[:60]
    )
    return model, X, y, lt.Tracer(model, X[:60], y[:60], dtype="float64")


def test_rf_gap_gives_the_predictions(forest):
    """Proximities are weights of votes, for new rows and, out of bag, for training rows."""
    model, X, y, tracer = forest
    new = rf_gap(tracer, X[60:])
    np.testing.assert_allclose(new.sum(axis=0), 1)
    np.testing.assert_allclose(new.T @ y[:60], model.predict(X[60:]))
    own = rf_gap(tracer)
    np.testing.assert_allclose(np.diag(own), 0)
    np.testing.assert_allclose(own.sum(axis=0), 1)
    np.testing.assert_allclose(own.T @ y[:60], model.oob_prediction_)


def test_rf_gap_of_weighted_classes():
    """Votes count as the forest counts them, with weights of rows and of classes."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 3))
    y = (X[:, 0] + rng.normal(size=80) > 0).astype(int)
    w = rng.uniform(0.5, 2, 80)
    model = RandomForestClassifier(30, max_depth=4, class_weight="balanced", random_state=0)
    model.fit(X, y, sample_weight=w)
    tracer = lt.Tracer(model, X, y, w, dtype="float64")
    tests = rng.normal(size=(9, 3))
    np.testing.assert_allclose(rf_gap(tracer, tests).T @ y, model.predict_proba(tests)[:, 1])


def test_rf_gap_as_a_method(forest):
    """The value is the proximity, negative if labels are on the same side of the prediction."""
    model, X, y, tracer = forest
    near = rf_gap(tracer, X[60:])
    above = y[:60, None] >= model.predict(X[60:])
    expected = np.where(above == (y[60:] >= model.predict(X[60:])), -near, near)
    found = tracer.influence(X[60:], y[60:], method=RFGAP())
    np.testing.assert_allclose(found.values, expected)
    assert found.scored
    mean = tracer.influence(X[60:], y[60:], method=RFGAP(), rows=[5, 1], reduce="mean").values
    np.testing.assert_allclose(mean[:, 0], expected[[5, 1]].mean(axis=1))


def test_rf_gap_errors(forest):
    _, X, y, tracer = forest
    with pytest.raises(lt.InvalidInput, match=r"RFGAP tells .* of='loss' alone"):
        tracer.influence(X[60:], method=RFGAP(), of="prediction")
    case, boosted, *_ = prepared(REGRESSOR)
    with pytest.raises(lt.UnsupportedModel, match="RF-GAP is for forests"):
        rf_gap(boosted, case.data.X_test)
    without = ExtraTreesRegressor(5, max_depth=3, random_state=0).fit(X, y)
    with pytest.raises(lt.InvalidInput, match="no tree leaves a training row out"):
        rf_gap(lt.Tracer(without, X, y))
    few = RandomForestRegressor(2, random_state=0).fit(X, y)
    with pytest.raises(lt.InvalidInput, match="were drawn by every tree"):
        rf_gap(lt.Tracer(few, X, y))
