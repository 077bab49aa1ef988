"""Trees refitted on other rows than those that grew them, against the same trees in a model of their own."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from sklearn.ensemble import HistGradientBoostingRegressor
from xgboost import XGBClassifier, XGBRegressor

import leaftrace as lt
from leaftrace._engine import refits_elsewhere
from leaftrace._engine.backward import expand_candidates
from leaftrace._engine.placed_rows import candidate_rows
from leaftrace._engine.refits_elsewhere import RefitsElsewhere
from leaftrace._engine.row_effects import direct_effects, joining_effects
from leaftrace._model.training_set import TrainingSet

N = 90
BAG = np.arange(N) % 3 != 1  # the rows that trees are grown on
INSIDE = np.arange(N) % 2 == 0  # those that they are refitted on
ONE = {"n_jobs": 1}
CASES = {
    "missing values": (XGBRegressor(n_estimators=3, max_depth=2, base_score=0.2, **ONE), 0),
    "three classes": (XGBClassifier(n_estimators=2, max_depth=2, base_score=0.5, **ONE), 3),
    "categories, class weights": (
        lgb.LGBMClassifier(
            n_estimators=3,
            num_leaves=4,
            min_child_samples=3,
            min_data_per_group=2,
            class_weight={0: 1.0, 1: 2.5},
            verbose=-1,
            **ONE,
        ),
        2,
    ),
    "one choice a level": (
        CatBoostClassifier(
            iterations=3, depth=2, leaf_estimation_iterations=2, verbose=0, thread_count=1
        ),
        2,
    ),
    "vectors in leaves": (
        CatBoostClassifier(iterations=2, depth=2, verbose=0, thread_count=1),
        3,
    ),
    "no l2": (HistGradientBoostingRegressor(max_iter=3, max_leaf_nodes=4, min_samples_leaf=4), 0),
}
METHOD = lt.StructureInfluence(0.7)


def table(classes, categories):
    """Return rows and labels, numbers or numbers of classes."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame(np.round(rng.normal(size=(N, 3)) * 3) / 3, columns=["a", "b", "c"])
    signal = (X["a"] + X["b"] ** 2 + rng.normal(size=N) * 0.3).to_numpy()
    X = X.mask(rng.random(X.shape) < 0.1)
    if categories:
        X["many"] = pd.Categorical(rng.choice(list("abcde"), N))
    if not classes:
        return X, signal
    return X, np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))


@pytest.fixture(scope="module")
def opened():
    """Return a function that trains a case on its bag: tracer, table and labels."""
    known = {}

    def open_case(name):
        if name not in known:
            model, classes = CASES[name]
            X, y = table(classes, "categories" in name)
            model.fit(X[BAG], y[BAG])
            known[name] = lt.Tracer(model, X[BAG], y[BAG], dtype="float64", n_jobs=1), X, y
        return known[name]

    return open_case


def elsewhere(tracer, X, y, inside=INSIDE):
    """Return values (N, tests) of all rows, in trees refitted on those inside."""
    order = np.concatenate([np.flatnonzero(BAG), np.flatnonzero(~BAG)])
    refits = RefitsElsewhere(tracer.engine, X[~BAG], y[~BAG], np.ones((~BAG).sum()))
    asked = tracer.engine.queries(X[:5], y[:5], "loss", None, None, None)[0]
    out = np.empty((N, 5))
    out[order] = refits.values(inside[order], asked, X[:5], METHOD.temperature)
    return out


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_refitted_model(opened, name, monkeypatch):
    """The refitted model as one of its library, traced with the rows that it was refitted on."""
    tracer, X, y = opened(name)
    gone = np.flatnonzero(~INSIDE[BAG])
    new = INSIDE & ~BAG
    refitted = tracer.refit(without=gone, added=(X[new], y[new])).model
    # A library counts the rows of leaves in training, and these are others.
    alone = lt.Tracer(refitted, X[INSIDE], y[INSIDE], fidelity="ignore", dtype="float64", n_jobs=1)
    found = elsewhere(tracer, X, y)
    own = alone.influence(X[:5], y[:5], method=METHOD).values
    close = {"rtol": 1e-4, "atol": 1e-6 * np.abs(own).max()}  # leaf values in float32
    np.testing.assert_allclose(found[INSIDE], own, **close)
    rest = ~INSIDE
    plain = alone.score_candidates(X[rest], X[:5], y[:5], y[rest], method=METHOD).values
    assert np.abs(found[rest] - plain).max() > 0.01 * np.abs(plain).max()
    monkeypatch.setattr(
        refits_elsewhere,
        "expand_joining",
        lambda work, adjoint, rows, weight: expand_candidates(work, adjoint, rows),
    )
    np.testing.assert_allclose(elsewhere(tracer, X, y)[rest], plain, **close)


@pytest.mark.parametrize("name", ["missing values", "three classes", "vectors in leaves"])
def test_a_row_moves_its_leaf_of_the_first_tree_as_if_it_were_added(opened, name):
    """The first-order effect on a leaf is the whole effect, as the denominators have the weight."""
    tracer, X, y = opened(name)
    engine = tracer.engine
    e = engine.ensemble
    leaves_of_first = e.leaf_range(0)
    before = engine.unchanged.ensemble.values[leaves_of_first]
    # The l2 of CatBoost goes with the mean weight.
    for place, w in [(1, 1.0), (4, 1.0), *([] if e.lam_slope else [(7, 3.5), (10, 0.2)])]:
        row = X.iloc[[place]]
        added = row, y[[place]], np.array([w])
        rows = TrainingSet(e.n_rows, np.arange(e.n_rows), added=added)
        moved = engine.refit(rows).ensemble.values[leaves_of_first] - before
        leaves, _ = engine.source.rows(row)
        placed = leaves, e.base[None], engine.labels(y[[place]], 1, "y"), np.ones(1), np.ones(1)
        new = candidate_rows(engine.work.trace, *placed)
        V = joining_effects(engine.work.trace, new, np.array([w]), np.dtype(float))
        plain = direct_effects(engine.work.trace, new, np.dtype(float))
        expected = np.zeros_like(moved)
        of_derivative = np.zeros_like(moved)
        for tree in range(e.trees(0).start, e.trees(0).stop):
            expected[leaves[tree, 0]] += w * V[tree, 0]
            of_derivative[leaves[tree, 0]] += w * plain[tree, 0]
        close = {"rtol": 1e-6, "atol": 1e-9 * np.abs(moved).max()}  # rates rounded to float32
        np.testing.assert_allclose(moved, expected, **close)
        assert np.abs(of_derivative - moved).max() > 1e-3 * np.abs(moved).max()


def test_rows_of_models_that_draw_rows_are_not_known(opened):
    X, y = table(0, False)
    model = XGBRegressor(n_estimators=2, max_depth=2, subsample=0.7, **ONE).fit(X[BAG], y[BAG])
    tracer = lt.Tracer(model, X[BAG], y[BAG], n_jobs=1)
    with pytest.raises(lt.UnsupportedModel, match="drew or weighed rows anew for each tree"):
        elsewhere(tracer, X, y)
