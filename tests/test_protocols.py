"""Protocols of the experiments on a small training set: what they change, and what they count."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from xgboost import XGBClassifier

import leaftrace as lt

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))

import attribution
import protocols
import store

N = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def world(folder, monkeypatch):
    """Return a world of 80 rows of two classes, four columns and small models."""
    draw = np.random.default_rng(0)
    monkeypatch.setattr(store, "FOLDER", folder)
    X = pd.DataFrame(draw.normal(size=(N + 110, 4)), columns=list("abcd"))
    y = (X["a"] + 0.3 * draw.normal(size=len(X)) > 0.3).astype(int).to_numpy()
    made = attribution.Data(X[:N], y[:N], X[N:].reset_index(drop=True), y[N:])
    monkeypatch.setattr(attribution, "load", lambda name, size: made)
    monkeypatch.setitem(
        attribution.LIBRARIES,
        "small",
        lambda kind, seed: XGBClassifier(
            n_estimators=8, max_depth=2, colsample_bynode=0.5, random_state=seed, n_jobs=1
        ),
    )
    size = attribution.Size(N, 10, 4, 2, 1, ("adult",), ("small",), (), (10, 20))
    return attribution.World("adult", "small", size)


def order_of(world, seed, keep, y):
    """Return the rows in `keep` from most helpful to most harmful, by a tracer of their own."""
    X = world.data.X.iloc[keep]
    tracer = lt.Tracer(world.make("classes", seed).fit(X, y[keep]), X, y[keep])
    tests = (world.data.X_test[10:60], world.data.y_test[10:60])
    return keep[np.argsort(tracer.influence(*tests, reduce="mean").values[:, 0], kind="stable")]


def test_acts_in_one_shot(world):
    y = world.data.y
    order = order_of(world, 0, np.arange(N), y)
    kept, labels = protocols.acted(world, lt.LeafInfluence(), "remove", 1)
    assert set(np.flatnonzero(~kept)) == set(order[:4])
    assert (labels == y).all()
    kept, _ = protocols.acted(world, lt.LeafInfluence(), "clean", 1)
    assert set(np.flatnonzero(~kept)) == set(order[-4:])
    kept, labels = protocols.acted(world, lt.LeafInfluence(), "relabel", 1)
    assert kept.all()
    assert set(np.flatnonzero(labels != y)) == set(order[:4])


def test_acts_in_rounds(world):
    """Each round traces a model of the rows and labels that the rounds before it have left."""
    keep = np.arange(N)
    y = world.data.y.copy()
    for seed in range(2):
        keep = np.delete(keep, np.flatnonzero(np.isin(keep, order_of(world, seed, keep, y)[:2])))
    kept, _ = protocols.acted(world, lt.LeafInfluence(), "remove", 2)
    np.testing.assert_array_equal(np.flatnonzero(kept), keep)
    first = order_of(world, 0, np.arange(N), y)[:2]
    y[first] = 1 - y[first]
    second = [row for row in order_of(world, 1, np.arange(N), y) if row not in first][:2]
    _, labels = protocols.acted(world, lt.LeafInfluence(), "relabel", 2)
    assert set(np.flatnonzero(labels != world.data.y)) == {*first, *second}
    change = protocols.act(world, lt.LeafInfluence(), "remove", 2)
    np.testing.assert_allclose(change, 100 * (world.mean_loss(keep) / world.before - 1))


@pytest.mark.parametrize("most", [1, 13, 64])
def test_bisection_finds_the_first_change(most):
    for first in range(1, most + 1):
        assert protocols.bisected(lambda k, first=first: k >= first, most) == first
    assert np.isnan(protocols.bisected(lambda k: False, most))


def test_fewest_rows_are_confirmed_by_retraining(world):
    """The class changes with that many rows less, and not with one row more."""
    tests = protocols.brittle_rows(world, 3)
    found = protocols.fewest(world, lt.LeafInfluence(), 3)
    X = world.data.X_test.iloc[tests]
    labels = world.data.y_test[tests]
    order = np.argsort(world.tracers[0].influence(X, labels).values, axis=0, kind="stable")

    def label(keep, column):
        models = [world.fit(1_000 + seed, keep) for seed in range(3)]
        return np.mean([m.predict_proba(X[column : column + 1]) for m in models], axis=0).argmax()

    assert np.isfinite(found).any()
    for column in np.flatnonzero(np.isfinite(found)):
        k = int(found[column])
        assert label(np.sort(order[k:, column]), column) != labels[column]
        assert label(np.sort(order[k - 1 :, column]), column) == labels[column]


def test_a_backdoor_has_the_trigger(world):
    attack = protocols.backdoor(world)
    assert attack.injected == round(0.02 * N)
    added = attack.X[-attack.injected :]
    pd.testing.assert_frame_equal(attack.X[:N], world.data.X)
    assert (attack.y[N:] == attack.false).all()
    changed = [c for c in added if added[c].nunique() == 1]
    assert len(changed) == 2
    for column in changed:
        assert set(attack.X_test[column]) == set(added[column]) <= set(world.data.X[column])
    assert (attack.y_test != attack.false).all()


def test_poison_is_close_to_its_test_row(world):
    attack = protocols.poison(world, 7)
    same = attack.X[N:].to_numpy() == world.data.X_test.iloc[[7]].to_numpy()
    assert (same.sum(axis=1) == 3).all()  # of four columns
    assert (attack.y[N:] == 1 - world.data.y_test[7]).all()


def test_a_method_that_knows_the_injected_rows(world, monkeypatch):
    """It finds all of them, and without them the attack does no more than on the clean rows."""
    attack = protocols.poison(world, int(protocols.brittle_rows(world, 1)[0]))
    known = (np.arange(N + attack.injected) >= N).astype(float)[:, None]

    class Known:
        values = known

    monkeypatch.setattr(type(attack.tracer), "influence", lambda *given, **how: Known)
    found = attack.found("known")
    assert found["auc"] == found["found"] == 1
    assert found["success after"] == attack.success(np.arange(N)) == 0
    assert attack.success(np.arange(N + attack.injected)) > 0
