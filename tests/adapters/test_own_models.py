"""Refitted and retrained models as the user's own: what their `predict` gives, and the models themselves.

Expected values are those of the libraries' own predictions, and of the oracle's refit.
"""

import pickle

import catboost
import lightgbm as lgb
import numpy as np
import oracle
import pytest
import xgboost as xgb
from contract import CASES, prepared
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import leaftrace as lt

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
    own = tracer.engine.as_trained
    assert_same(own.predict(X), own_predict(case.model, X), case)
    if hasattr(case.model, "predict_proba"):
        assert_same(own.predict_proba(X), case.model.predict_proba(X), case)


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


# A file does not keep all parameters of training, and what Booster.refit makes was not trained.
RETRAINED = [name for name in CASES if "from a file" not in name and "refitted" not in name]


@pytest.mark.parametrize("name", RETRAINED[::6])  # training takes long; the code is the same
def test_model_of_a_retraining(name):
    case, tracer, *_ = prepared(name)
    X = case.data.X_test
    retrained = tracer.retrain(without=removed(case))
    model = retrained.model
    assert type(model) is type(case.model)
    expected = case.raw(model, X).reshape(len(case.data.y_test), -1)
    np.testing.assert_allclose(
        retrained.scores(X), expected, atol=1e-6 * max(1.0, np.abs(expected).max())
    )
    assert_same(retrained.predict(X), own_predict(model, X), case)


# ---- classifiers and regressors as users train them ----

CATBOOST = {"iterations": 6, "depth": 3, "verbose": False, "allow_writing_files": False}
LIGHTGBM = {"n_estimators": 6, "min_child_samples": 5, "verbose": -1}
CLASSIFIERS = {
    "CatBoost": lambda: catboost.CatBoostClassifier(**CATBOOST),
    "XGBoost": lambda: xgb.XGBClassifier(n_estimators=6, max_depth=3),
    "LightGBM": lambda: lgb.LGBMClassifier(**LIGHTGBM),
    "hist": lambda: HistGradientBoostingClassifier(max_iter=6),
    "gradient": lambda: GradientBoostingClassifier(n_estimators=6, random_state=0),
    "forest": lambda: RandomForestClassifier(n_estimators=6, max_depth=4, random_state=0),
    "pipeline": lambda: make_pipeline(StandardScaler(), lgb.LGBMClassifier(**LIGHTGBM)),
}


def rows_of(classes):
    """Return rows, and labels with these names."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    score = X[:, 0] + 0.5 * rng.normal(size=150)
    return X, np.array(classes)[np.digitize(score, np.linspace(-0.6, 0.6, len(classes) - 1))]


def pickled(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("library", CLASSIFIERS)
def test_classifiers(library, count):
    """Labels, names of classes, probabilities and accuracy are those of the library's own model."""
    names = list(range(count)) if library == "XGBoost" else ["no", "perhaps", "yes"][-count:]
    X, y = rows_of(names)
    given = CLASSIFIERS[library]().fit(X, y)
    tracer = lt.Tracer(given, X, y, n_jobs=1)
    before = given.predict_proba(X)
    for altered in (tracer.refit(without=[3, 50]), tracer.retrain(without=[3, 50])):
        model = pickled(altered.model)
        assert type(model) is type(given)
        found = altered.predict(X)
        assert found.dtype.kind == model.predict(X).dtype.kind
        np.testing.assert_array_equal(found, model.predict(X))
        # XGBoost predicts in float32
        np.testing.assert_allclose(altered.predict_proba(X), model.predict_proba(X), atol=1e-6)
        assert altered.score(X, y) == pytest.approx(model.score(X, y))
        assert not np.allclose(altered.predict_proba(X), before, atol=1e-6)
        assert (
            repr(altered)
            == f"{type(altered).__name__}({tracer.engine.source.name}, without 2 rows)"
        )
    np.testing.assert_array_equal(given.predict_proba(X), before)


def test_regressors():
    """The score of a model of numbers is R²; it has no probabilities."""
    X, _ = rows_of(["a", "b"])
    y = X[:, 0] ** 2 + X[:, 1]
    w = np.linspace(0.5, 2, len(y))
    given = lgb.LGBMRegressor(**LIGHTGBM).fit(X, y, sample_weight=w)
    refitted = lt.Tracer(given, X, y, w).refit(without=[3])
    model = refitted.model
    np.testing.assert_allclose(refitted.predict(X), model.predict(X), atol=1e-12)
    assert refitted.score(X, y) == pytest.approx(model.score(X, y))
    assert refitted.score(X, y, w) == pytest.approx(model.score(X, y, sample_weight=w))
    with pytest.raises(lt.InvalidInput, match="no class probabilities"):
        refitted.predict_proba(X)


def test_boosters(tmp_path):
    """Boosters give probabilities, CatBoost without a task raw scores; files keep them."""
    X, y = rows_of([0, 1])
    boosters = [
        xgb.train({"objective": "binary:logistic", "max_depth": 3}, xgb.DMatrix(X, y), 6),
        lgb.train({"objective": "binary", "verbose": -1}, lgb.Dataset(X, y), 6),
        catboost.CatBoost({**CATBOOST, "loss_function": "Logloss"}).fit(X, y),
    ]
    for i, booster in enumerate(boosters):
        tracer = lt.Tracer(booster, X, y, n_jobs=1)
        for altered in (tracer.refit(without=[3, 50]), tracer.retrain(without=[3, 50])):
            path = str(tmp_path / f"model-{i}")
            altered.model.save_model(path)
            loaded = type(booster)() if i == 2 else type(booster)(model_file=path)
            if i == 2:
                loaded.load_model(path)
            np.testing.assert_allclose(altered.predict(X), own_predict(loaded, X), atol=1e-6)
            right = (altered.scores(X)[:, 0] > 0) == y
            assert altered.score(X, y) == pytest.approx(right.mean())
    with pytest.raises(lt.InvalidInput, match="shares of classes"):
        lt.Tracer(boosters[0], X, y).refit([]).score(X, y * 0.5)


def test_threshold_of_catboost():
    """A probability threshold that the user has set decides, as in CatBoost itself."""
    X, y = rows_of(["no", "yes"])
    given = catboost.CatBoostClassifier(**CATBOOST).fit(X, y)
    given.set_probability_threshold(0.8)
    own = lt.Tracer(given, X, y).refit([])
    np.testing.assert_array_equal(own.predict(X), given.predict(X))
    assert 0 < (own.predict(X) == "yes").sum() < (own.scores(X) > 0).sum()


def test_words_of_changes():
    X, y = rows_of([0, 1])
    tracer = lt.Tracer(lgb.LGBMClassifier(**LIGHTGBM).fit(X, y), X, y)
    assert repr(tracer.refit()) == "RefittedModel(LGBMClassifier, on all rows)"
    changed = tracer.refit([3], y=1 - y, sample_weight=np.ones(len(y)), added=(X[:2], y[:2]))
    assert repr(changed) == (
        "RefittedModel(LGBMClassifier, without 1 row, other labels, other weights, 2 added)"
    )
