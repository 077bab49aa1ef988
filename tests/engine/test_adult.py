"""Adult with the paper's parameters and with CatBoost's defaults."""

import numpy as np
import oracle
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor
from catboost_models import QUIET
from paper_algorithms import transcription

import leaftrace as lt


def check(model, X, y, X_test, y_test, rows_of, removed=3):
    """Check fidelity, influence against finite differences, and refit against the oracle."""
    tracer = lt.Tracer(model, X, y, dtype="float64")
    single = lt.Tracer(model, X, y)
    assert tracer.fidelity.max_error <= 1e-8
    structure, steps = oracle.from_catboost(
        model, X, [list(step.scale) for step in tracer.engine.work.trace.steps]
    )
    test_steps = steps(X_test)
    n = len(y)

    def losses(keep, w):
        fitted = oracle.refit(structure.rows(keep), y[keep], w[keep])
        return oracle.loss_value(
            structure.loss, oracle.predict(structure, fitted, test_steps), y_test
        )

    exact, float32 = (t.influence(X_test, y_test).values for t in (tracer, single))
    rows = rows_of(exact)
    everyone = np.arange(n)
    w = np.ones(n)
    for i in rows:
        slopes = oracle.slope(lambda e, i=i: losses(everyone, w + e * (everyone == i)), 2e-3)
        assert np.all(np.abs(exact[i] - slopes) <= 1e-8 * np.abs(exact).max(axis=0))
        assert np.all(np.abs(float32[i] - slopes) <= 1e-5 * np.abs(exact).max(axis=0))
    for update_set in (lt.SinglePoint(), lt.TopKLeaves(8)):
        values = tracer.influence(
            X_test, y_test, method=lt.LeafRefit(update_set), rows=rows[:1]
        ).values[0]
        change = transcription(structure, y, w, rows[0], None, True, update_set)
        F = oracle.predict(structure, oracle.refit(structure, y, w), test_steps)
        F_hat = F + oracle.predict(structure, change, test_steps)
        expected = oracle.loss_value(structure.loss, F, y_test) - oracle.loss_value(
            structure.loss, F_hat, y_test
        )
        # The model's base score is rounded to float32, the oracle's is not.
        np.testing.assert_allclose(values, expected, atol=1e-6 * np.abs(expected).max())
    refitted = single.influence(X_test, y_test, method=lt.LeafRefit(), rows=rows[:removed]).values
    whole = losses(everyone, w)
    expected = np.array([whole - losses(everyone[everyone != i], w) for i in rows[:removed]])
    np.testing.assert_allclose(refitted, expected, atol=1e-4 * np.abs(expected).max())


def test_paper_parameters(adult, paper_model):
    X, y, X_test, y_test = adult

    def rows_of(values):
        mean = values.mean(axis=1)
        return np.r_[mean.argmax(), mean.argmin(), 12345, 777]

    check(paper_model, X, y, X_test[:5], y_test[:5], rows_of)


@pytest.mark.parametrize("update_set", [lt.SinglePoint(), lt.TopKLeaves(8)], ids=repr)
def test_update_sets_are_the_transcription(adult, paper_model, update_set):
    X, y, X_test, _ = adult
    structure, steps = oracle.from_catboost(paper_model, X)
    test_steps = steps(X_test[:5])
    w = np.ones(len(y))
    row = 777

    def prediction(dw):
        return oracle.predict(
            structure, transcription(structure, y, w, row, dw, False, update_set), test_steps
        )[:, 0]

    tracer = lt.Tracer(paper_model, X, y, dtype="float64")
    ask = {"of": "prediction", "method": lt.LeafInfluence(update_set), "rows": [row]}
    expected = oracle.slope(prediction, 1e-3)
    np.testing.assert_allclose(
        tracer.influence(X_test[:5], **ask).values[0], expected, atol=1e-6 * np.abs(expected).max()
    )


def test_default_classifier(adult):
    """1,000 trees with ten backtracked Newton steps each, on a part of Adult small enough for the oracle."""
    X, y, X_test, y_test = adult
    X = X[:1500]
    y = y[:1500]
    model = CatBoostClassifier(**QUIET).fit(X, y)
    assert model.get_all_params()["leaf_estimation_iterations"] == 10
    check(
        model,
        X,
        y,
        X_test[:3],
        y_test[:3],
        lambda v: np.r_[v.mean(axis=1).argmax(), 999],
        removed=2,
    )


def test_default_regressor(adult):
    """1,000 trees with the base score from the data."""
    X, y, X_test, y_test = adult
    y = X[:1500, 0].astype(float) / 10  # age
    X = X[:1500]
    keep = np.arange(1, X.shape[1])
    y_test = X_test[:3, 0].astype(float) / 10
    X = np.ascontiguousarray(X[:, keep])
    X_test = np.ascontiguousarray(X_test[:3, keep])
    y = np.float32(y).astype(float)
    y_test = np.float32(y_test).astype(float)
    model = CatBoostRegressor(**QUIET).fit(X, y)
    assert model.get_all_params()["boost_from_average"]
    check(model, X, y, X_test, y_test, lambda v: np.r_[v.mean(axis=1).argmax(), 999], removed=2)


def test_full_size_defaults_are_replayed_exactly(adult):
    X, y, *_ = adult
    tracer = lt.Tracer(CatBoostClassifier(**QUIET).fit(X, y), X, y)
    assert tracer.fidelity.max_error <= 1e-8


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_test_row_alone_or_among_others(adult, paper_model, dtype):
    """Kernels for 1, 8 and 32 columns give the same numbers, except for the order of sums."""
    X, y, X_test, y_test = adult
    tracer = lt.Tracer(paper_model, X, y, dtype=dtype)
    alone, few, many = (tracer.influence(X_test[:m], y_test[:m]).values for m in (1, 5, 40))
    assert alone.shape == (32561, 1)
    tolerance = (
        32561 * np.finfo(dtype).eps / 100
    )  # rounding of sums over rows, which partly cancels
    for values in (few, many):
        np.testing.assert_allclose(values[:, :1], alone, atol=tolerance * np.abs(alone).max())
