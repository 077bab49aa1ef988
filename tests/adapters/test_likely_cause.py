"""A replay that differs names the likely cause: rows, weights, labels, a baseline or parameters."""

from functools import cache

import catboost as cb
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

import leaftrace as lt

rng = np.random.default_rng(0)
N = 400
X = rng.normal(size=(N, 4))
SCORE = 2 * X[:, 0] + X[:, 1] + rng.normal(size=N)
LABELS = {"number": SCORE, "class": (SCORE > 0).astype(int)}
WEIGHT = rng.random(N) + 0.2
BASELINE = rng.normal(size=N)
ORDER = rng.permutation(N)
KINDS = list(LABELS)


def catboost(model, y, weight, baseline):
    settings = {"iterations": 5, "depth": 4, "verbose": 0, "allow_writing_files": False}
    return model(thread_count=1, **settings).fit(cb.Pool(X, y, weight=weight, baseline=baseline))


MODELS = {
    "xgboost": lambda kind, y, w, b: {"number": xgb.XGBRegressor, "class": xgb.XGBClassifier}[kind](
        n_estimators=5, max_depth=4, n_jobs=1
    ).fit(X, y, sample_weight=w, base_margin=b),
    "lightgbm": lambda kind, y, w, b: {"number": lgb.LGBMRegressor, "class": lgb.LGBMClassifier}[
        kind
    ](n_estimators=5, n_jobs=1, verbose=-1).fit(X, y, sample_weight=w, init_score=b),
    "catboost": lambda kind, y, w, b: catboost(
        {"number": cb.CatBoostRegressor, "class": cb.CatBoostClassifier}[kind], y, w, b
    ),
    "hist": lambda kind, y, w, b: {
        "number": HistGradientBoostingRegressor,
        "class": HistGradientBoostingClassifier,
    }[kind](max_iter=5).fit(X, y, sample_weight=w),
    "gradient": lambda kind, y, w, b: {
        "number": GradientBoostingRegressor,
        "class": GradientBoostingClassifier,
    }[kind](n_estimators=5).fit(X, y, sample_weight=w),
    "forest": lambda kind, y, w, b: {
        "number": RandomForestRegressor,
        "class": RandomForestClassifier,
    }[
        kind
    ](
        n_estimators=3, min_samples_leaf=5, bootstrap=False, random_state=0
    ).fit(X, y, sample_weight=w),
}
BOOSTERS = ["xgboost", "lightgbm", "catboost"]
RECORD_WEIGHTS = [name for name in MODELS if name != "hist"]


@cache
def model(name, kind, weighted=False, with_baseline=False):
    """A model of a library, which is trained once."""
    return MODELS[name](
        kind, LABELS[kind], WEIGHT if weighted else None, BASELINE if with_baseline else None
    )


def cause(fitted, *rows, **settings):
    """The message of the error, up to where it gives numbers."""
    with pytest.raises(lt.FidelityError) as caught:
        lt.Tracer(fitted, *rows, **settings)
    return str(caught.value).partition("; the replay differs")[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECORD_WEIGHTS)
def test_weights(name, kind):
    y = LABELS[kind]
    weighted = model(name, kind, weighted=True)
    assert cause(weighted, X, y).startswith("likely forgotten sample weights: pass")
    assert "was trained without sample weights" in cause(model(name, kind), X, y, WEIGHT)
    assert "sample weights than in training" in cause(weighted, X, y, WEIGHT[ORDER])


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_recorded(kind):
    weighted = model("hist", kind, weighted=True)
    assert "or other sample weights, which this model" in cause(weighted, X, LABELS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_labels(name, kind):
    y = LABELS[kind]
    fitted = model(name, kind)
    shuffled = cause(fitted, X, y[ORDER])
    assert "labels in another order than the rows" in shuffled
    assert "baseline" not in shuffled
    others = y + X[:, 2] if kind == "number" else np.where(np.arange(N) < 60, 1 - y, y)
    found = cause(fitted, X, others)
    assert "likely other labels" in found
    if name != "hist":
        assert "weight" not in found


@pytest.mark.parametrize("name", MODELS)
def test_rows_and_features(name):
    y = LABELS["number"]
    fitted = model(name, "number")
    assert "likely other feature values (preprocessing" in cause(fitted, 1.5 * X + 0.3, y)
    assert "was trained on 400 rows, here are 350" in cause(fitted, X[:350], y[:350])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BOOSTERS)
def test_a_forgotten_baseline(name, kind):
    fitted = model(name, kind, with_baseline=True)
    assert "or a forgotten baseline (base_margin, init_score)" in cause(fitted, X, LABELS[kind])


def test_class_weights_of_a_booster():
    """LGBMClassifier turns class weights into sample weights, which its Booster does not know."""
    y = LABELS["class"]
    settings = {"n_estimators": 5, "n_jobs": 1, "verbose": -1}
    fitted = lgb.LGBMClassifier(class_weight={0: 1.0, 1: 2.5}, **settings).fit(X, y)
    assert "times the class weights" in cause(fitted.booster_, X, y)
    assert lt.Tracer(fitted.booster_, X, y, np.where(y == 1, 2.5, 1.0)).fidelity.exact


def test_parameters_that_are_not_those_of_training():
    y = LABELS["number"]
    loaded = xgb.Booster(model_file=model("xgboost", "number").get_booster().save_raw("ubj"))
    wrong = {"reg_lambda": 5, "learning_rate": 0.3}
    assert "another learning_rate or regularisation" in cause(loaded, X, y, params=wrong)
    wrong = {"reg_lambda": 1, "learning_rate": 0.1}
    assert "have 3 times the values found" in cause(loaded, X, y, params=wrong)


def test_rows_that_were_drawn():
    y = LABELS["number"]
    fitted = xgb.XGBRegressor(n_estimators=5, subsample=0.5, n_jobs=1).fit(X, y)
    loaded = xgb.Booster(model_file=fitted.get_booster().save_raw("ubj"))
    assert "or the subsample and seed that it drew them with" in cause(loaded, X, y)


def test_what_to_do_comes_first_if_parameters_are_missing():
    left = np.repeat([[0.0], [1.0]], 40, axis=0)
    y = LABELS["number"][:80]
    fitted = xgb.train(
        {"max_depth": 1, "eta": 0.2, "lambda": 3, "nthread": 1}, xgb.DMatrix(left, y), 4
    )
    loaded = xgb.Booster(model_file=fitted.save_raw("ubj"))
    with pytest.raises(lt.FidelityError, match=r"^pass params=\{'learning_rate'") as caught:
        lt.Tracer(loaded, left, y)
    assert "labels" not in str(caught.value)


@pytest.mark.parametrize(("dtype", "advised"), [("float32", True), ("float64", False)])
def test_advice_for_values_that_are_not_finite(dtype, advised):
    from leaftrace._tracer.answers import finite_values

    with pytest.raises(lt.LeaftraceError, match="smaller learning rate") as caught:
        finite_values(np.array([[np.inf]], dtype))
    assert ("float64" in str(caught.value)) is advised


def test_derivatives_beyond_float32_are_refused_without_a_warning():
    """The Poisson loss has exp(200) at a score of 200, which float64 holds and float32 does not."""
    X = np.arange(8.0)[:, None]
    y = np.arange(8.0)
    model = cb.CatBoostRegressor(
        loss_function="Poisson", iterations=2, depth=1, verbose=0, allow_writing_files=False
    ).fit(X, y)
    baseline = np.array([200.0])
    with pytest.raises(lt.LeaftraceError, match="float64"):
        lt.Tracer(model, X, y).influence(X[:1], y[:1], baseline=baseline)
    wide = lt.Tracer(model, X, y, dtype="float64").influence(X[:1], y[:1], baseline=baseline)
    assert np.abs(wide.values).max() > 1e80
