"""A time limit ends work after the last part that was begun, and the result says how many were done."""

import numpy as np
import pytest
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
    kw = {"members": 8, "n_jobs": 1, "reduce": "mean"}
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
