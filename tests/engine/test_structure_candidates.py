"""New rows by StructureInfluence: the slope of the soft program in the weight of a row that has none yet."""

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestRegressor
from soft_program import SoftProgram
from xgboost import XGBClassifier, XGBRegressor

import leaftrace as lt
from leaftrace._engine import candidates

N = 60
NEW = np.arange(0, N, 5)  # rows of weight zero
STEP = 1e-5  # of weights: differences of the program are exact to about 1e-9
CAT = {"iterations": 3, "depth": 2, "verbose": 0, "thread_count": 1}


def table(missing=False, categories=False):
    """Return rows whose numbers have fewer different values than bins."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame(np.round(rng.normal(size=(N, 3)) * 3) / 3, columns=["a", "b", "c"])
    signal = X["a"] + X["b"] ** 2 + rng.normal(size=N) * 0.3
    if missing:
        X = X.mask(rng.random(X.shape) < 0.15)
    if categories:
        X["many"] = pd.Categorical(rng.choice(list("abcdefg"), N))
        signal = signal - X["many"].isin(["a", "b", "c"])
    return X, signal.to_numpy()


CASES = {
    "missing values": (XGBRegressor(n_estimators=3, max_depth=2, n_jobs=1), 0, {"missing": True}),
    "three classes": (XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1), 3, {}),
    "categories, class weights": (
        LGBMClassifier(
            n_estimators=3,
            num_leaves=4,
            min_child_samples=3,
            min_data_per_group=2,
            cat_smooth=1,
            class_weight={0: 1.0, 1: 2.5},
            verbose=-1,
            n_jobs=1,
        ),
        2,
        {"categories": True},
    ),
    "one choice a level": (CatBoostClassifier(**CAT, leaf_estimation_iterations=1), 2, {}),
    "forest": (
        RandomForestRegressor(n_estimators=3, max_depth=2, bootstrap=False, max_features=2),
        0,
        {},
    ),
}


@pytest.fixture(scope="module")
def opened():
    """Return a function that gives tracer, table and labels of a case, trained once."""
    known = {}

    def open_case(name):
        if name not in known:
            model, K, kind = CASES[name]
            X, signal = table(**kind)
            y = np.digitize(signal, np.quantile(signal, np.arange(1, K) / K)) if K else signal
            w = np.where(np.isin(np.arange(N), NEW), 0.0, 1.0)
            model.fit(X, y, sample_weight=w)
            known[name] = lt.Tracer(model, X, y, w, dtype="float64", n_jobs=1), X, y
        return known[name]

    return open_case


@pytest.mark.parametrize("name", CASES)
def test_candidates_have_the_slope_of_the_soft_program_at_weight_zero(opened, name):
    tracer, X, y = opened(name)
    e = tracer.engine.ensemble
    program = SoftProgram(tracer, X[:6], 1.0)
    u = np.random.default_rng(0).normal(size=(6, e.n_outputs))
    asked = {"of": u[:, 0] if e.n_outputs == 1 else u, "reduce": "sum"}
    method = lt.StructureInfluence()
    new = X.iloc[NEW]
    found = tracer.score_candidates(new, X[:6], None, y[NEW], method=method, **asked)
    fixed = tracer.score_candidates(new, X[:6], None, y[NEW], **asked)
    assert np.abs(found.values - fixed.values).max() > 0.02 * np.abs(fixed.values).max()
    for place in (0, 4, 7):
        move = STEP * np.eye(N)[NEW[place]] * e.w_factor
        slope = ((program.scores(e.w + move) - program.scores(e.w - move)) * u).sum() / (2 * STEP)
        # Rounded starting scores, rates and labels of boosters leave 1e-7.
        np.testing.assert_allclose(found.values[place, 0], slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["three classes", "categories, class weights"])
def test_training_rows_as_candidates_have_their_own_influence(opened, name, monkeypatch):
    """Also if new rows are too many for one pass, and under each label."""
    tracer, X, y = opened(name)
    method = lt.StructureInfluence(0.7)
    own = tracer.influence(X[:5], y[:5], method=method)
    found = tracer.score_candidates(X, X[:5], y[:5], y, method=method)
    close = {"rtol": 1e-9, "atol": 1e-12}  # the same formula on the same numbers
    np.testing.assert_allclose(found.values, own.values, **close)
    monkeypatch.setattr(candidates, "LEAST_CHUNK", 7)
    by_label = tracer.score_candidates(X, X[:5], y[:5], method=method)
    codes = np.searchsorted(tracer.classes, y)
    under_own = np.stack(list(by_label.per_label.values()))[codes, np.arange(N)]
    np.testing.assert_allclose(under_own, own.values, **close)
    F = tracer.engine.as_trained.predict_proba(X)
    expected = sum(F[:, [k]] * v for k, v in enumerate(by_label.per_label.values()))
    np.testing.assert_allclose(by_label.values, expected, **close)


def test_tables_name_the_method(opened):
    tracer, X, y = opened("missing values")
    found = tracer.score_candidates(X[:4], X[:2], y[:2], y[:4], method=lt.StructureInfluence())
    assert set(found.top(2)["change_is"]) == {"first order, soft splits"}
    assert found.method == "candidates at weight zero, StructureInfluence(temperature=1.0)"


@pytest.mark.parametrize("method", [lt.LeafRefit(), lt.LeafInfluence(lt.SinglePoint()), "leaf"])
def test_other_methods_have_no_candidates(opened, method):
    tracer, X, y = opened("missing values")
    with pytest.raises(lt.InvalidInput, match=r"score_candidates\(\) takes LeafInfluence"):
        tracer.score_candidates(X[:2], X[:2], y[:2], y[:2], method=method)
