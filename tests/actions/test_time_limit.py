"""A time limit ends work after the last part that was begun, and the result says how many were done."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingRegressor

import leaftrace as lt
from leaftrace._data import time_limit

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
y = X[:, 0] + rng.normal(size=120)
X_TEST = X[:10] + 0.1
Y_TEST = y[:10]


def make_model(seed):
    return HistGradientBoostingRegressor(
        max_iter=3, min_samples_leaf=5, early_stopping=False, random_state=seed
    )


@pytest.fixture(scope="module")
def tracer():
    return lt.Tracer(make_model(0).fit(X, y), X, y, n_jobs=1)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Let each look at the clock take a second, so that a limit of 4.5 allows four parts."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(time_limit, "monotonic", lambda: next(seconds))


def test_rows_by_retraining(tracer):
    rows = [7, 3, 50, 20, 90, 11]
    some = tracer.influence(X_TEST, Y_TEST, method=lt.Retrain(time_limit=4.5), rows=rows)
    assert some.method == "Retrain(time_limit=4.5), 4 of 6 rows"
    assert some.positions.tolist() == rows[:4]
    own = tracer.influence(X_TEST, Y_TEST, method=lt.Retrain(), rows=rows)
    assert own.method == "Retrain()"
    np.testing.assert_array_equal(some.values, own.values[:4])
    assert len(some.top(2)) == 20
    first = tracer.influence(X_TEST, Y_TEST, method=lt.Retrain(time_limit=1e-9), rows=rows)
    np.testing.assert_array_equal(first.values, own.values[:1])


def test_noise_floor(tracer):
    floor = tracer.noise_floor(X_TEST, Y_TEST, repeats=6, time_limit=4.5)
    whole = tracer.noise_floor(X_TEST, Y_TEST, repeats=6)
    assert floor.note == "The time limit of 4 s ended it after 4 of 6 retrainings."
    assert floor.repeats == 4
    np.testing.assert_array_equal(floor.moves, whole.moves[:4])
    np.testing.assert_array_equal(floor.rows, whole.rows[:4])
    assert tracer.noise_floor(X_TEST, Y_TEST, repeats=6, time_limit=1e-9).repeats == 3


def test_members():
    kw = {"members": 8, "n_jobs": 1, "reduce": "mean", "method": lt.LeafInfluence()}
    some = lt.ensemble_influence(make_model, X, y, X_TEST, Y_TEST, time_limit=5.5, **kw)
    done = len(some.members)
    assert 5 <= done < 8  # as many as every row needs to be in a bag
    assert some.advice.startswith(f"The time limit of 6 s ended it after {done} of 8 members.")
    whole = lt.ensemble_influence(make_model, X, y, X_TEST, Y_TEST, **kw)
    np.testing.assert_array_equal(some.changes, whole.changes[:done])


def test_values(tracer):
    some = lt.data_values(tracer, X_TEST, Y_TEST, members=9, bag=0.3, time_limit=5.5)
    whole = lt.data_values(tracer, X_TEST, Y_TEST, members=9, bag=0.3)
    done = len(some.by_member)
    assert 5 <= done < 9
    assert some.interrupted
    assert not whole.interrupted
    assert f"The time limit of 6 s ended it after {done} of 9 members." in some.advice
    np.testing.assert_array_equal(some.by_member, whole.by_member[:done])


def test_curve(tracer):
    order = tracer.influence(X_TEST, Y_TEST, reduce="mean")
    kw = {"counts": [2, 5], "draws": 1, "retrain": True}
    some = lt.removal_curve(tracer, order, X[20:40], y[20:40], time_limit=5.5, **kw)
    whole = lt.removal_curve(tracer, order, X[20:40], y[20:40], **kw)
    assert some.interrupted
    assert some.advice.startswith("The time limit of 6 s ended it after 5 of 8 models.")
    np.testing.assert_array_equal(some.refitted, whole.refitted)
    np.testing.assert_array_equal(some.retrained, [*whole.retrained[:2], np.nan])


def test_groups(tracer):
    groups = np.repeat([0, 1, 2], 40)
    some = lt.group_effects(tracer, groups, X_TEST, Y_TEST, retrain=True, time_limit=4.5)
    assert np.isfinite(some.refitted).all()
    assert np.isfinite(some.retrained).sum() == 1
    assert (
        "The time limit of 4 s ended it: 3 of 3 groups were refitted, 1 retrained." in some.advice
    )


@pytest.mark.parametrize("limit", [0, -1, True, "soon", float("nan")])
def test_what_is_no_limit(tracer, limit):
    with pytest.raises(lt.InvalidInput, match=r"time_limit is .*seconds above 0"):
        tracer.noise_floor(X_TEST, Y_TEST, time_limit=limit)


def test_impact(tracer):
    call = (tracer, [1, 2], X_TEST, Y_TEST)
    some = lt.removal_impact(*call, controls=4, time_limit=2.5)
    whole = lt.removal_impact(*call, controls=4)
    assert some.interrupted
    assert some.advice.startswith("The time limit of 2 s ended it early. Trained again")
    np.testing.assert_array_equal(some.controls, whole.controls[:1])
    none = lt.removal_impact(*call, time_limit=1e-9)
    assert "retrained" not in none.answers
    assert not whole.interrupted


@pytest.mark.parametrize("sources", [3, 14])
def test_sources(tracer, sources):
    groups = np.arange(120) % sources
    some = lt.source_values(tracer, groups, X_TEST, Y_TEST, time_limit=3.5)
    assert not some.exact
    assert "The time limit of 4 s ended it early: " in some.advice
    assert some.values.sum() == pytest.approx(some.total)  # as they do for any orders
    whole = lt.source_values(tracer, groups, X_TEST, Y_TEST)
    assert "time limit" not in whole.advice
    assert whole.total == some.total


def test_sets(tracer):
    kw = {"k": 6, "rounds": 6, "direction": "raise", "method": lt.LeafInfluence()}
    some = lt.influential_set(tracer, X_TEST, Y_TEST, time_limit=2.5, **kw)
    whole = lt.influential_set(tracer, X_TEST, Y_TEST, **kw)
    assert some.interrupted
    assert some.advice.startswith("The time limit of 2 s ended it early.")
    assert some.rows.tolist() == whole.rows[:3].tolist()
    confirmed = lt.influential_set(tracer, X_TEST, Y_TEST, confirm=5, time_limit=7.5, **kw)
    assert confirmed.rows.tolist() == whole.rows.tolist()
    assert np.isfinite(confirmed.retrained)
    assert "Retrained 3 times" in confirmed.advice


CLASS = (X[:, 0] + rng.normal(size=120) > 0).astype(int)
NEW = rng.normal(size=(120, 3))
NEW_CLASS = (NEW[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def classifier():
    model = LGBMClassifier(n_estimators=4, min_child_samples=5, n_jobs=1, verbose=-1)
    return lt.Tracer(model.fit(X, CLASS), X, CLASS, n_jobs=1)


def test_fix(classifier):
    decisions = classifier.engine.reading.decision(classifier.engine.unchanged.scores(NEW))
    ended = False
    for i in np.flatnonzero(decisions != NEW_CLASS):
        call = (classifier, NEW[[i]], NEW_CLASS[i])
        some = lt.fix(*call, max_rows=6, time_limit=0.5)
        said = "The time limit of 0 s ended it after 1 retrainings. This is the best set so far."
        assert len(some.attempts) == 1
        ended = some.advice.startswith(said)
        whole = lt.fix(*call, max_rows=6)
        assert some.attempts == whole.attempts[:1]
        assert ended == (len(whole.attempts) > 1)
        if ended:
            break
    assert ended  # or nothing was tested


def test_clean(classifier):
    call = (classifier, NEW[:60], NEW_CLASS[:60], NEW[60:], NEW_CLASS[60:])
    whole = lt.clean(*call)
    assert len(whole.rounds) > 2
    some = lt.clean(*call, time_limit=2.5)
    assert some.interrupted
    assert some.advice.startswith("The time limit of 2 s ended it after 2 of 20 rounds.")
    assert [r.judged for r in some.rounds] == [r.judged for r in whole.rounds[:2]]
    assert len(lt.clean(*call, time_limit=1e-9).rounds) == 1


def test_mismatch(classifier):
    call = (classifier, NEW, 1 - NEW_CLASS, [])
    whole = lt.mismatch(*call)
    assert whole.model is not None
    some = lt.mismatch(*call, steps=1, time_limit=1.5)
    assert some.model is None
    assert some.advice.startswith("The time limit of 2 s ended it early. Not retrained")
    none = lt.mismatch(*call, time_limit=1e-9)
    assert none.advice.startswith("The time limit of 0 s ended it early. Interrupted before")
