"""SHAP: derivatives of its TreeExplainer's values, by differences of models that were refitted."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import shap
import xgboost as xgb
from catboost import CatBoostClassifier
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)

import leaftrace as lt

STEP = 0.05  # of weights; the error of central differences is of the order of its square


def table(n=150):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    z = X["a"] * (1 + X["b"]) + (X["c"] > 1) + 0.3 * rng.normal(size=n)
    return X, z.to_numpy()


X, Z = table()
CLASS = (Z > 0.3).astype(int)
CLASSES = np.digitize(Z, [-0.3, 0.8])
QUIET = {"verbose": 0, "allow_writing_files": False}
MODELS = {
    "xgboost": (xgb.XGBClassifier(n_estimators=6, max_depth=3), CLASS),
    "xgboost classes": (xgb.XGBClassifier(n_estimators=4, max_depth=3), CLASSES),
    "lightgbm": (lgb.LGBMRegressor(n_estimators=6, num_leaves=8, verbose=-1), Z),
    "lightgbm classes": (lgb.LGBMClassifier(n_estimators=4, num_leaves=8, verbose=-1), CLASSES),
    "catboost": (CatBoostClassifier(iterations=6, depth=3, **QUIET), CLASS),
    "catboost classes": (CatBoostClassifier(iterations=4, depth=3, **QUIET), CLASSES),
    "sklearn": (GradientBoostingRegressor(n_estimators=6, random_state=0), Z),
    "sklearn hist": (HistGradientBoostingClassifier(max_iter=6), CLASS),
    "sklearn forest": (
        RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0),
        CLASSES,
    ),
}


def explained(model, rows, output):
    """(m, d) the values of TreeExplainer, for one output."""
    explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
    found = np.asarray(explainer.shap_values(rows))
    return found if found.ndim == 2 else found[:, :, output]


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_of_its_values(name):
    """To 1e-5, ten times closer than differences of float32 leaves and of this step need be."""
    model, y = MODELS[name]
    model.fit(X, y)
    tracer = lt.Tracer(model, X, y, dtype="float64")
    output = 2 if tracer.engine.ensemble.n_outputs > 1 else None
    rows = X[:4]
    found = [
        tracer.influence(rows, of=lt.goals.shap(f), output=output, rows=[5, 60]).values
        for f in X.columns
    ]
    largest = 0.0
    for line, i in enumerate((5, 60)):
        sides = []
        for sign in (1, -1):
            w = np.ones(len(X))
            w[i] += sign * STEP
            sides.append(explained(tracer.refit(sample_weight=w).model, rows, output))
        expected = (sides[0] - sides[1]) / (2 * STEP)
        largest = max(largest, np.abs(expected).max())
        np.testing.assert_allclose([f[line] for f in found], expected.T, atol=1e-5)
    assert largest > 1e-3  # there is something to agree on


def test_features_beside_training_rows():
    """One picture: the largest SHAP values of a row, and the training rows behind its prediction."""
    from matplotlib import pyplot

    model, y = MODELS["xgboost"]
    model.fit(X, y)
    tracer = lt.Tracer(model, X, y)
    rows = X[:4]
    explanation = shap.TreeExplainer(model)(rows)
    influence = tracer.influence(rows, of="prediction")
    left, right = lt.plot.beside_shap(influence, explanation, test_row=2, k=2)
    own = explanation.values[2]
    order = np.argsort(-np.abs(own))
    first = left.get_yticklabels()[0].get_text()
    assert first.startswith(f"{X.columns[order[0]]} = ")
    widths = [bar.get_width() for bar in left.patches]
    np.testing.assert_allclose(widths, [*own[order[:2]], own[order[2:]].sum()], rtol=1e-6)
    assert left.get_yticklabels()[2].get_text() == "1 other features"
    assert "test row 2" in right.get_title()
    pyplot.close("all")
    with pytest.raises(lt.InvalidInput, match="4 rows and influence 2"):
        lt.plot.beside_shap(tracer.influence(rows[:2], of="prediction"), explanation)
    with pytest.raises(lt.InvalidInput, match=r"no shap\.Explanation"):
        lt.plot.beside_shap(influence, None)
