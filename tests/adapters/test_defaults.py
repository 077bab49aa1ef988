"""Every estimator with its default settings, traced in two lines.

The table has missing values and categories, as far as the library accepts them."""

import pickle

import numpy as np
import pytest
from boosters import frame
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from xgboost import XGBClassifier, XGBRegressor

import leaftrace as lt

CATEGORIES = ["kind", "town"]
QUIET = {
    "verbose": 0,
    "allow_writing_files": False,
    "cat_features": CATEGORIES,
}  # settings that do not change the model
ESTIMATORS = {
    "CatBoostClassifier": lambda: CatBoostClassifier(**QUIET),
    "CatBoostRegressor": lambda: CatBoostRegressor(**QUIET),
    "XGBClassifier": lambda: XGBClassifier(enable_categorical=True),  # XGBoost 2 needs it
    "XGBRegressor": lambda: XGBRegressor(enable_categorical=True),
    "LGBMClassifier": lambda: LGBMClassifier(verbose=-1),
    "LGBMRegressor": lambda: LGBMRegressor(verbose=-1),
    "HistGradientBoostingClassifier": lambda: HistGradientBoostingClassifier(
        categorical_features="from_dtype"
    ),
    "HistGradientBoostingRegressor": lambda: HistGradientBoostingRegressor(
        categorical_features="from_dtype"
    ),
    "GradientBoostingClassifier": GradientBoostingClassifier,
    "GradientBoostingRegressor": GradientBoostingRegressor,
    "RandomForestClassifier": RandomForestClassifier,
    "RandomForestRegressor": RandomForestRegressor,
    "ExtraTreesClassifier": ExtraTreesClassifier,
    "ExtraTreesRegressor": ExtraTreesRegressor,
}


def table_for(name, X):
    """Return X in a form that the estimator accepts."""
    if name.startswith(("CatBoost",)):
        return X.astype(dict.fromkeys(CATEGORIES, str))
    if name.startswith(("XGB", "LGBM", "Hist")):
        return X
    X = X.drop(columns=CATEGORIES)
    return X.fillna(0.0) if name.startswith(("Gradient", "Extra")) else X


@pytest.mark.parametrize("name", ESTIMATORS)
def test_two_lines(name):
    data = frame("class" if "Classifier" in name else "number", many=True)
    y = data.y
    y_test = data.y_test
    if name == "XGBClassifier":  # accepts only numbers
        y = data.codes.astype(int)
        y_test = data.test_codes.astype(int)
    X = table_for(name, data.X)
    X_test = table_for(name, data.X_test)
    if name.startswith("RandomForest") and X.isna().any().any() and old_forests():
        X = X.fillna(0.0)
        X_test = X_test.fillna(0.0)
    model = ESTIMATORS[name]().fit(X, y)

    tracer = lt.Tracer(model, X, y)
    influence = tracer.influence(X_test, y_test)

    assert tracer.fidelity.exact
    assert influence.values.shape == (len(y), len(y_test))
    assert np.isfinite(influence.values).all()
    assert influence.top(2)["train_row"].isin(X.index).all()
    if "Forest" in name or "Extra" in name:
        assert (
            "label_influence" in tracer.fidelity.verdict
        )  # fully grown, so every leaf holds one label
    else:
        assert np.abs(influence.values).max() > 0


@pytest.mark.parametrize(
    "name", ["CatBoostClassifier", "XGBClassifier", "LGBMClassifier", "GradientBoostingClassifier"]
)
def test_a_pickled_model(name):
    """Models loaded by joblib or pickle have all their parameters."""
    data = frame(many=True)
    X = table_for(name, data.X)
    y = data.codes.astype(int)
    model = ESTIMATORS[name]().set_params(n_estimators=10, learning_rate=0.17).fit(X, y)
    tracers = [lt.Tracer(m, X, y) for m in (model, pickle.loads(pickle.dumps(model)))]
    one, two = (t.influence(X[:3], y[:3]).values for t in tracers)
    np.testing.assert_array_equal(one, two)
    assert tracers[0].fidelity.verdict == tracers[1].fidelity.verdict


def old_forests():
    """Before 1.8 forests sent missing values to other leaves in training than afterwards."""
    import sklearn

    return tuple(int(v) for v in sklearn.__version__.split(".")[:2]) < (1, 8)
