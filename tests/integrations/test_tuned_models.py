"""Tools that choose a model by themselves: FLAML, Optuna, AutoGluon."""

import lightgbm as lgb
import numpy as np
import optuna
import pandas as pd
import pytest
from autogluon.tabular import TabularPredictor
from flaml import AutoML
from optuna_integration.lightgbm import LightGBMTuner
from optuna_integration.sklearn import OptunaSearchCV

import leaftrace as lt

pytestmark = pytest.mark.filterwarnings("ignore")  # packages among themselves
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"], index=np.arange(300) + 7)
X["town"] = pd.Categorical(rng.choice(["Rome", "Oslo"], 300))
Y = np.where(X["a"] + (X["town"] == "Rome") > 0.5, "yes", "no")
TEST = X.iloc[:5]


@pytest.mark.parametrize("estimator", ["lgbm", "xgboost", "extra_tree"])
def test_flaml(estimator):
    automl = AutoML()
    automl.fit(X, Y, task="classification", estimator_list=[estimator], max_iter=2, verbose=0)
    tracer = lt.Tracer(automl, X, Y)
    assert tracer.fidelity.exact
    assert tracer.classes.tolist() == ["no", "yes"]
    own = tracer.engine.as_trained
    np.testing.assert_allclose(own.predict_proba(X), automl.predict_proba(X), atol=1e-6)
    assert own.predict(X).tolist() == automl.predict(X).tolist()
    refitted = tracer.refit([3, 4])
    assert type(refitted.model) is AutoML
    expected = refitted.model.predict_proba(TEST)
    np.testing.assert_allclose(refitted.predict_proba(TEST), expected, atol=1e-6)
    assert tracer.influence(TEST, Y[:5]).shape == (300, 5)
    assert tracer.retrain([3], y=Y[::-1]).predict(TEST).dtype.kind in "OU"


def test_optuna_search():
    depths = {"max_depth": optuna.distributions.IntDistribution(2, 3)}
    model = lgb.LGBMClassifier(n_estimators=5, verbose=-1)
    search = OptunaSearchCV(model, depths, n_trials=2, cv=2).fit(X, Y)
    tracer = lt.Tracer(search, X, Y)
    assert tracer.fidelity.exact
    refitted = tracer.refit([3, 4])
    assert type(refitted.model) is OptunaSearchCV
    expected = refitted.model.predict_proba(TEST)
    np.testing.assert_allclose(refitted.predict_proba(TEST), expected, atol=1e-12)


def test_optuna_tuner():
    y = (Y == "yes").astype(int)
    data = lgb.Dataset(X[:200], y[:200], free_raw_data=False)
    settings = {"objective": "binary", "metric": "binary_logloss", "verbosity": -1}
    tuner = LightGBMTuner(
        settings,
        data,
        5,
        valid_sets=[lgb.Dataset(X[200:], y[200:], reference=data)],
        time_budget=2,
        show_progress_bar=False,
    )
    tuner.run()
    tracer = lt.Tracer(tuner, X[:200], y[:200])
    assert tracer.fidelity.exact
    own = tracer.engine.as_trained
    np.testing.assert_allclose(own.predict(TEST), tuner.get_best_booster().predict(TEST))
    assert type(tracer.refit([3]).model) is lgb.Booster


@pytest.fixture(scope="module")
def table():
    return X.astype({"town": object}).assign(label=Y)


def fit(table, path, hyperparameters, **settings):
    predictor = TabularPredictor("label", path=str(path), verbosity=0)
    return predictor.fit(table, hyperparameters=hyperparameters, **settings)


def test_autogluon_best_model(table, tmp_path):
    predictor = fit(table, tmp_path, {"GBM": {"num_boost_round": 5}}, fit_weighted_ensemble=False)
    rows = table.drop(columns="label")
    tracer = lt.Tracer(predictor, rows, Y)
    assert tracer.fidelity.exact
    assert 0 < len(tracer.member_rows["LightGBM"]) < 300  # the others judge
    found = tracer.refit().predict_proba(rows)
    np.testing.assert_allclose(found, predictor.predict_proba(rows).to_numpy(), atol=1e-6)
    assert tracer.refit().predict(rows).tolist() == predictor.predict(rows).tolist()
    held = np.setdiff1d(np.arange(300), tracer.member_rows["LightGBM"])
    effects = tracer.influence(rows[:5], Y[:5]).values
    assert not effects[held].any()
    assert effects.any()


def test_autogluon_ensemble(table, tmp_path):
    hyperparameters = {
        "GBM": {"num_boost_round": 5},
        "XT": {"n_estimators": 5, "max_leaf_nodes": 8},
    }
    predictor = fit(table, tmp_path, hyperparameters)
    rows = table.drop(columns="label")
    tracer = lt.Tracer(predictor, rows, Y)
    assert set(tracer.members) <= {"LightGBM", "ExtraTrees"}
    found = tracer.refit().predict_proba(rows)
    np.testing.assert_allclose(found, predictor.predict_proba(rows).to_numpy(), atol=1e-6)
