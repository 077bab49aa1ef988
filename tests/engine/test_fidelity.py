"""The verdict on a replay: numbers that are not numbers, and rounding that is not an error."""

import json

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from boosters import numbers
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
)

import leaftrace as lt
from leaftrace._engine.fidelity import judge

DATA = numbers()


@pytest.mark.parametrize("where", ["value", "weight", "start"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_error_that_is_not_a_number_is_not_exact(where, number):
    e = lt.Tracer(
        xgb.XGBRegressor(n_estimators=3).fit(DATA.X, DATA.y), DATA.X, DATA.y
    ).engine.ensemble
    errors = np.zeros(3)
    weight_errors = np.zeros(3)
    base_error = 0.0
    if where == "value":
        errors[1] = number
    elif where == "weight":
        weight_errors[1] = number
    else:
        base_error = number
    fidelity = judge(e, errors, np.zeros(3), weight_errors, base_error, 1e-6)
    assert not fidelity.exact
    assert "exact:" not in fidelity.verdict
    assert fidelity.max_error >= 0  # a number
    assert judge(e, np.zeros(3), np.zeros(3), np.zeros(3), 0.0, 1e-6).exact


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fidelity", ["raise", "warn", "ignore"])
def test_a_leaf_that_is_not_a_number_is_refused(number, fidelity):
    """Whatever the labels: predictions of such a model cannot be explained."""
    model = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(DATA.X, DATA.y), 5)
    model.set_leaf_output(2, 1, number)
    for y in (DATA.y, DATA.y[::-1]):
        with pytest.raises(
            lt.UnsupportedModel, match=r"1 of the .* (nan|-?inf) in step 3: its training diverged"
        ):
            lt.Tracer(model, DATA.X, y, fidelity=fidelity)


def test_a_file_with_a_leaf_that_is_not_a_number_is_refused():
    """Before parameters are recovered from its leaves."""
    booster = xgb.train({"nthread": 1}, xgb.DMatrix(DATA.X, DATA.y), 3)
    content = json.loads(bytes(booster.save_raw("json")))
    tree = content["learner"]["gradient_booster"]["model"]["trees"][1]
    tree["split_conditions"][tree["left_children"].index(-1)] = np.nan
    loaded = xgb.Booster(model_file=bytearray(json.dumps(content).encode()))
    with pytest.raises(lt.UnsupportedModel, match=r"1 of the .* nan in step 2"):
        lt.Tracer(loaded, DATA.X, DATA.y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-learn's, while it trains
def test_a_training_that_diverged_is_refused():
    y = (DATA.y > np.median(DATA.y)).astype(int)
    settings = {"loss": "exponential", "learning_rate": 1e3, "n_estimators": 20}
    model = GradientBoostingClassifier(**settings).fit(DATA.X, y)
    for labels in (y, y[::-1]):
        with pytest.raises(lt.UnsupportedModel, match="its training diverged"):
            lt.Tracer(model, DATA.X, labels)


def test_labels_of_one_class():
    """The log-odds of one class are infinite, which is no warning of NumPy but a reason."""
    y = np.zeros(len(DATA.y), int)
    model = HistGradientBoostingClassifier(max_iter=2).fit(DATA.X, y)
    with pytest.raises(lt.FidelityError, match="a class has all rows or none"):
        lt.Tracer(model, DATA.X, y)


def test_exploding_leaves_do_not_hide_errors_of_the_steps_before():
    """A leaf value of 3e9 in a late step made the errors of exchanged labels seem small."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 2))
    y = np.digitize(X[:, 0] + rng.normal(size=120), [-0.5, 0.5])
    settings = {"learning_rate": 1.0, "n_estimators": 15, "max_leaf_nodes": 4, "init": "zero"}
    model = GradientBoostingClassifier(**settings, subsample=0.5, random_state=3).fit(X, y)
    assert np.abs(lt.Tracer(model, X, y).engine.ensemble.values).max() > 1e9
    exchanged = y.copy()
    exchanged[[np.argmax(y == 0), np.argmax(y == 1)]] = [1, 0]
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, X, exchanged)


@pytest.mark.parametrize("seed", [0, 52, 86, 99, 129, 192, 225, 228, 284, 290])
def test_leaves_that_are_rounding_alone(seed):
    """Few rows of one class: the gradients of a tree that cannot split add up to rounding errors."""
    rng = np.random.default_rng(seed)
    n = rng.integers(8, 41)
    X = rng.normal(size=(n, 3))
    y = np.zeros(n, int)
    y[: rng.integers(1, 4)] = 1
    model = xgb.XGBClassifier(
        n_estimators=int(rng.integers(5, 60)),
        max_depth=int(rng.integers(1, 5)),
        learning_rate=float(rng.choice([0.05, 0.1, 0.3, 1.0])),
        min_child_weight=float(rng.choice([0, 1])),
        reg_lambda=float(rng.choice([0, 1, 5])),
        n_jobs=1,
    ).fit(X, y)
    assert lt.Tracer(model, X, y).fidelity.exact


def test_a_starting_score_that_is_rounding_alone():
    """Balanced classes start at zero, but for the last bit of their logarithms."""
    X = np.random.default_rng(0).normal(size=(12, 2))
    y = np.repeat([0, 1, 2], [2, 5, 5])
    model = HistGradientBoostingClassifier(max_iter=2, class_weight="balanced").fit(X, y)
    assert 0 < np.abs(model._baseline_prediction).max() < 1e-15
    assert lt.Tracer(model, X, y).fidelity.exact


def test_leaves_that_are_the_rounding_of_a_mean():
    """A forest without splits: the mean of labels around -100, whose last bit is large beside their spread."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = -100 + 1e-3 * rng.normal(size=30)
    w = 10 ** rng.uniform(-2, 2, 30)
    model = ExtraTreesRegressor(3, ccp_alpha=1e-3, random_state=0).fit(X, y, w)
    assert lt.Tracer(model, X, y, w).fidelity.exact
    other = y + np.r_[1e-6, np.zeros(29)]
    with pytest.raises(lt.FidelityError, match="other labels"):
        lt.Tracer(model, X, other, w)


def test_second_derivatives_far_below_lambda():
    """Pseudo-Huber far from the labels: H is 1e-17, of which H + lambda keeps nothing."""
    X = np.arange(12.0)[:, None]
    y = -100 + 1e-3 * np.arange(12.0)
    booster = xgb.train({"objective": "reg:pseudohubererror"}, xgb.DMatrix(X, y), 1)
    assert lt.Tracer(booster, X, y).fidelity.exact


def test_rounding_of_medians_is_no_effect_of_a_row():
    """Without one of many equal labels, medians stay as they are; the model has them in float32."""
    X = np.arange(20.0)[:, None]
    y = np.where(X[:, 0] < 15, -100.1, -99.7)
    settings = {"objective": "reg:absoluteerror", "base_score": 0.3, "nthread": 1}
    booster = xgb.train(settings, xgb.DMatrix(X, y), 15)
    tracer = lt.Tracer(booster, X, y, dtype="float64")
    found = tracer.influence(X[[0, 19]], y[[0, 19]], method=lt.LeafRefit(), rows=[0, 3, 12])
    assert not found.values.any()


def test_rates_of_rounds_need_leaves_that_confirm_them():
    """One leaf a step has any value with a learning rate of its own, whatever the labels."""
    X = np.array([[0, 0], [1, 0], [1, 1], [1, 0], [0, 0], [0, 1], [1, 0], [1, 0]])
    y = np.array([1, 1, 1, 1, 1, 0, 0, 1])
    settings = {
        "objective": "binary:hinge",
        "eta": 0.1,
        "reg_lambda": 0,
        "reg_alpha": 2,
        "nthread": 1,
    }
    settings |= {"colsample_bytree": 0.5, "base_score": 0.3, "min_child_weight": 0}
    booster = xgb.train(settings, xgb.DMatrix(X, y), 6)
    assert lt.Tracer(booster, X, y).fidelity.exact
    exchanged = y[[0, 1, 6, 3, 4, 5, 2, 7]]
    with pytest.raises(lt.FidelityError):
        lt.Tracer(booster, X, exchanged)
