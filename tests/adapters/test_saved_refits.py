"""Refitted models that are saved, and loaded by their libraries alone in another process, predict as `refit` does."""

import subprocess
import sys

import catboost
import joblib
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import leaftrace as lt

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4))
NUMBERS = X[:, 0] ** 2 + X[:, 1] + 5
CLASSES = np.digitize(X[:, 0] + 0.3 * rng.normal(size=200), [-0.5, 0.5])
TWO = (CLASSES > 1).astype(int)
SEVERAL = np.column_stack([NUMBERS, X[:, 2] - X[:, 0]])
NEW = X[:20] + 0.1

CATBOOST = {"iterations": 8, "depth": 3, "verbose": False, "allow_writing_files": False}
LIGHTGBM = {"n_estimators": 8, "min_child_samples": 5, "verbose": -1}
DART = {"booster": "dart", "rate_drop": 0.4, "one_drop": 1, "objective": "binary:logistic"}
SCALED = make_pipeline(StandardScaler(), lgb.LGBMRegressor(**LIGHTGBM))

# Model, labels, and whether rows can be added: not where rows are drawn for each tree.
MODELS = {
    "xgboost.json": (xgb.XGBClassifier(n_estimators=8, max_depth=3), CLASSES, True),
    "xgboost.ubj": (xgb.XGBRegressor(n_estimators=8, multi_strategy="multi_output_tree"), SEVERAL, True),
    "xgboost-dart.json": (lambda: xgb.train(DART, xgb.DMatrix(X, TWO), 8), TWO, False),
    "lightgbm.txt": (
        lambda: lgb.train(
            {"objective": "multiclass", "num_class": 3, "verbose": -1}, lgb.Dataset(X, CLASSES), 8
        ),
        CLASSES,
        True,
    ),
    "lightgbm.joblib": (lgb.LGBMClassifier(boosting_type="dart", **LIGHTGBM), TWO, False),
    "pipeline.joblib": (SCALED, NUMBERS, True),
    "catboost.cbm": (catboost.CatBoostClassifier(**CATBOOST), CLASSES, True),
    "catboost.json": (catboost.CatBoostRegressor(**CATBOOST), NUMBERS, True),
    "hist.joblib": (HistGradientBoostingClassifier(max_iter=8), CLASSES, True),
    "gradient.joblib": (GradientBoostingRegressor(n_estimators=8, random_state=0), NUMBERS, True),
    "forest.joblib": (RandomForestClassifier(8, max_depth=4, random_state=0), CLASSES, False),
    "trees.joblib": (ExtraTreesRegressor(8, max_depth=4, random_state=0), SEVERAL, True),
}  # fmt: skip

# What a server does: it knows the libraries, and not leaftrace.
SERVE = """
import sys, joblib, numpy as np, catboost, lightgbm as lgb, xgboost as xgb
folder = sys.argv[1]
X = np.load(folder + "/X.npy")
kinds = {
    "xgboost.json": xgb.XGBClassifier, "xgboost.ubj": xgb.XGBRegressor,
    "catboost.cbm": catboost.CatBoostClassifier, "catboost.json": catboost.CatBoostRegressor,
}
found = {}
for name in sys.argv[2:]:
    path, file = f"{folder}/{name}", name.partition(" ")[2]
    if file.endswith(".joblib"):
        model = joblib.load(path)
    elif file == "lightgbm.txt":
        model = lgb.Booster(model_file=path)
    elif file == "xgboost-dart.json":
        model = xgb.Booster(model_file=path)
    else:
        model = kinds[file]()
        model.load_model(path, **({"format": "json"} if file == "catboost.json" else {}))
    rows = xgb.DMatrix(X) if isinstance(model, xgb.Booster) else X
    predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    found[name] = predict(rows)
assert "leaftrace" not in sys.modules
np.savez(folder + "/found.npz", **found)
"""


def save(model, path, name):
    if name.endswith(".joblib"):
        joblib.dump(model, path)
    elif name == "catboost.json":
        model.save_model(path, format="json")
    else:
        model.save_model(path)


def probabilities(altered, classifier):
    return altered.predict_proba(X) if classifier else altered.predict(X)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Predictions by name: those of the refits, and those of the other process."""
    folder = tmp_path_factory.mktemp("served")
    np.save(folder / "X.npy", X)
    expected = {}
    for name, (model, y, adds) in MODELS.items():
        given = model() if callable(model) else model.fit(X, y)
        tracer = lt.Tracer(given, X, y, n_jobs=1)
        changes = {"without": tracer.refit(without=np.arange(0, 200, 5))}
        if adds:
            changes["added"] = tracer.refit(added=(NEW, y[:20]))
        for change, altered in changes.items():
            assert type(altered.model) is type(given)
            key = f"{change} {name}"
            save(altered.model, str(folder / key), name)
            expected[key] = probabilities(altered, hasattr(given, "predict_proba"))
            before = probabilities(tracer.engine.as_trained, hasattr(given, "predict_proba"))
            assert np.abs(expected[key] - before).max() > 1e-3  # there is a change to be lost
    subprocess.run([sys.executable, "-c", SERVE, str(folder), *expected], check=True)
    return expected, np.load(folder / "found.npz")


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded_in_another_process(served, name):
    expected, found = served
    keys = [key for key in expected if key.endswith(f" {name}")]
    assert keys
    for key in keys:
        scale = max(1.0, np.abs(expected[key]).max())  # boosters predict in float32
        np.testing.assert_allclose(found[key], expected[key], atol=1e-6 * scale, rtol=0)
