"""CatBoost's losses and schedules beyond the contract: derivatives, every setting of a loss, refusals."""

import re
from dataclasses import replace

import numpy as np
import pytest
from boosters import numbers, three_classes, weights
from cases_catboost import SMALL
from catboost import CatBoost, Pool
from catboost_structure import raw
from raw_scores import raw_scores

import leaftrace as lt
from leaftrace._adapters.catboost import losses
from leaftrace._adapters.catboost.leaf_statistics import LogCoshMinimum
from leaftrace._engine.replay import replay

POINTS = (
    np.array([-2.3, -0.4, 0.3, 0.9, 3.1]),
    np.array([-1.0, 0.5, 0.1, 2.0, 2.5]),
)  # scores, labels


def says(error, *parts):
    return pytest.raises(error, match=".*".join(re.escape(p) for p in parts))


def slope(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / (2 * h)


@pytest.mark.parametrize(
    "loss", [losses.LogCosh(), losses.Lq(2.0), losses.Lq(3.5), losses.Expectile(0.3)]
)
def test_derivatives(loss):
    A, y = POINTS
    g, j, h, k = loss.terms(A, y)
    np.testing.assert_allclose(g, slope(lambda a: loss.value(a[:, None], y), A), atol=1e-6)
    np.testing.assert_allclose(j, slope(lambda a: loss.terms(a, y)[0], A), atol=1e-6)
    np.testing.assert_allclose(h, j)
    np.testing.assert_allclose(k, slope(lambda a: loss.terms(a, y)[2], A), atol=1e-5)
    by_label = [slope(lambda b, i=i: loss.terms(A, b)[i], y) for i in (0, 2)]
    np.testing.assert_allclose(loss.label_terms(A, y), by_label, atol=1e-5)


def test_second_derivatives_far_from_the_label():
    """Leaves without l2 divide by them; 1 - tanh^2 has no digits there."""
    r = np.array([-40.0, -12.0, 7.0, 12.0, 18.0])
    h = losses.LogCosh().terms(r, np.zeros(5))[2]
    np.testing.assert_allclose(h, np.cosh(r) ** -2.0, rtol=1e-12)


@pytest.mark.parametrize("loss", [losses.Quantile(0.3, 1e-3), losses.RelativeError()])
def test_gradients_of_broken_lines(loss):
    A, y = POINTS
    np.testing.assert_allclose(
        loss.terms(A, y)[0], slope(lambda a: loss.value(a[:, None], y), A), atol=1e-6
    )


def traced(loss, data, w=None, **kw):
    model = CatBoost({**SMALL, "iterations": 12, "loss_function": loss, **kw}).fit(
        Pool(data.X, data.y, weight=w)
    )
    return model, lt.Tracer(model, data.X, data.y, w, fidelity="ignore")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("loss", "kw"),
    [
        ("MAE", {}),
        ("MAE", {"leaf_estimation_method": "Gradient"}),
        ("MAE", {"leaf_estimation_method": "Simple"}),
        ("MAE", {"boost_from_average": False}),
        ("Quantile:alpha=0.05;delta=0.001", {}),
        ("Quantile:alpha=0.3;delta=0", {"grow_policy": "Lossguide"}),
        (
            "Quantile:alpha=0.7",
            {"leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 3},
        ),
        ("MAPE", {}),
        ("MAPE", {"leaf_estimation_method": "Gradient"}),
        ("LogCosh", {}),
        ("LogCosh", {"leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 3}),
        ("Lq:q=3", {"leaf_estimation_iterations": 3}),
        ("Expectile:alpha=0.25", {"leaf_estimation_iterations": 3}),
        ("Tweedie:variance_power=1.5", {"leaf_estimation_iterations": 4}),
        ("RMSE", {"leaf_estimation_method": "Simple"}),
        ("RMSE", {"model_shrink_rate": 0.2}),
        ("Huber:delta=1", {"model_shrink_rate": 0.2, "model_shrink_mode": "Decreasing"}),
        ("Tweedie:variance_power=1.4", {"model_shrink_rate": 0.2}),
    ],
)
def test_settings_of_numbers(loss, kw, weighted):
    data = numbers("positive" if loss.startswith("Tweedie") else "any")
    model, tracer = traced(loss, data, weights(len(data.y)) if weighted else None, **kw)
    assert tracer.fidelity.max_error <= 1e-9, tracer.fidelity.verdict
    assert tracer.fidelity.exact
    expected = raw(model, data.X_test)[:, 0]
    np.testing.assert_allclose(
        raw_scores(tracer.refit(without=[]), data.X_test), expected, atol=1e-12
    )
    labels = tracer.engine.labels(data.y_test, len(data.y_test), "y")
    assert np.isfinite(tracer.engine.ensemble.loss.value(expected[:, None], labels)).all()


def test_a_flat_minimum_that_rounding_decides():
    """Between two residuals far apart the log-cosh loss is flat to rounding."""
    rng = np.random.default_rng(18)
    X = rng.normal(size=(2000, 4))
    y = 3 * X[:, 0] + rng.normal(size=2000)
    baseline = 10 * rng.normal(size=2000)
    settings = {"loss_function": "LogCosh", "iterations": 20, "depth": 6, "learning_rate": 0.1}
    settings |= {"thread_count": 1, "allow_writing_files": False, "verbose": 0}
    model = CatBoost(settings).fit(Pool(X, y, baseline=baseline))
    assert lt.Tracer(model, X, y, baseline=baseline).fidelity.exact
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, X, y + 0.01 * X[:, 1], baseline=baseline)


def test_minima_to_rounding():
    """The middle of a gap fits as well as its neighbourhood, but not a value where the loss rises."""
    leaf = np.array([0, 0, 1, 1])
    residual = np.array([0.0, 100.0, 0.0, 2.0])
    statistic = LogCoshMinimum()
    found = statistic(leaf, 2, residual, residual, np.ones(4))
    assert statistic.fits(leaf, 2, residual, found).all()
    assert statistic.fits(leaf, 2, residual, np.array([55.0, 1.001])).tolist() == [True, False]
    assert not statistic.fits(leaf, 2, residual, np.array([95.0, 0.9])).any()


@pytest.mark.parametrize(
    ("loss", "kw"),
    [
        (
            "MultiClassOneVsAll",
            {"leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 2},
        ),
        ("MultiClassOneVsAll", {"leaf_estimation_iterations": 3}),
        ("MultiClass", {"model_shrink_rate": 0.2}),
        ("MultiClass", {"grow_policy": "Lossguide", "max_leaves": 5}),
    ],
)
def test_settings_of_classes(loss, kw):
    data = three_classes(text=True)
    _, tracer = traced(loss, data, weights(len(data.y)), **kw)
    assert tracer.fidelity.max_error <= 1e-9, tracer.fidelity.verdict
    assert (
        tracer.engine.ensemble.recorded is not None
    )  # weights of vector leaves, of trees of any shape


@pytest.mark.parametrize(("loss", "kind"), [("Poisson", "counts"), ("CrossEntropy", "fractions")])
def test_a_loss_that_keeps_exponentials_shrinks_roughly(loss, kind):
    """CatBoost takes logarithms that are right to five digits, which the replay repeats."""
    data = numbers(kind)
    _, tracer = traced(loss, data, model_shrink_rate=0.1)
    assert tracer.fidelity.max_error <= 1e-9
    assert "rounds the scores of this loss to about five digits" in tracer.fidelity.verdict
    exact = replace(tracer.engine.ensemble, rough_scores=None)
    assert 1e-7 < replay(exact, 1e-7).fidelity.max_error < 1e-2
    # Derivatives are those without this rounding, so they differ as much from a refit.
    values = tracer.influence(data.X_test, data.y_test, reduce="mean").values[:, 0]
    row = int(np.abs(values).argmax())

    def mean_loss(change):
        w = np.ones(len(data.y))
        w[row] += change
        return tracer.refit(sample_weight=w).loss(data.X_test, data.y_test).mean()

    slope = (mean_loss(0.2) - mean_loss(-0.2)) / 0.4
    assert slope == pytest.approx(values[row], rel=0.03)


@pytest.mark.parametrize("setting", ["langevin", "posterior_sampling"])
def test_newton_leaves_have_no_noise(setting):
    _, tracer = traced("RMSE", numbers(), **{setting: True})
    assert tracer.fidelity.max_error < 1e-12


def test_long_shrinking_models():
    """Each step shrinks all before it, at the price of one move."""
    data = numbers()
    params = {**SMALL, "iterations": 300, "depth": 1, "monotone_constraints": [1] * 10}
    model = CatBoost(params).fit(data.X, data.y)
    assert model.get_all_params()["model_shrink_rate"] > 0
    tracer = lt.Tracer(model, data.X, data.y)
    assert tracer.fidelity.exact
    assert sum(map(len, tracer.engine.ensemble.moves)) < 700


def test_labels_outside_the_range_of_the_loss():
    data = numbers("positive")
    _, tracer = traced("Tweedie:variance_power=1.5", data)
    with says(lt.InvalidInput, "y_test goes from -1", "zero or more"):
        tracer.influence(data.X_test[:2], [0.5, -1.0])


def test_stages_of_training():
    data = numbers()
    first = CatBoost({**SMALL, "iterations": 4, "learning_rate": 0.1}).fit(data.X, data.y)
    second = CatBoost({**SMALL, "iterations": 3, "learning_rate": 0.4})
    model = second.fit(data.X, data.y, init_model=first)
    stages = [{"iterations": 4, "learning_rate": 0.1}, {"iterations": 3, "learning_rate": 0.4}]
    tracer = lt.Tracer(model, data.X, data.y, params={"stages": stages})
    assert tracer.fidelity.max_error < 1e-12
    with pytest.raises(lt.UnsupportedModel, match="in stages"):
        tracer.retrain(without=[1])
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, data.X, data.y)
    with pytest.raises(lt.InvalidInput, match=r"4 iterations, and this model has 7 trees"):
        lt.Tracer(model, data.X, data.y, params={"stages": stages[:1]})
    with pytest.raises(lt.InvalidInput, match="the same in all stages"):
        lt.Tracer(model, data.X, data.y, params={"stages": [{"depth": 3}]})
