"""Members that also score the rows they left out, and bags that take turns, against a plain loop."""

import lightgbm as lgb
import numpy as np
import pytest
from boosters import numbers, weights
from xgboost import XGBRegressor

import leaftrace as lt
from leaftrace import ensemble_influence


def light(seed):
    return lgb.LGBMRegressor(
        n_estimators=4,
        num_leaves=6,
        colsample_bytree=0.5,
        random_state=seed,
        verbosity=-1,
        num_threads=1,
        force_row_wise=True,
    )


def extreme(seed):
    return XGBRegressor(
        n_estimators=4, max_depth=3, colsample_bynode=0.5, random_state=seed, n_jobs=1
    )


@pytest.mark.parametrize(
    ("make", "method", "weighted"),
    [(light, None, True), (extreme, lt.StructureInfluence(0.5), False)],
)
def test_all_rows_and_halves_together(make, method, weighted):
    """Own rows at weight one, left-out rows at weight zero; the halves count half as much."""
    data = numbers()
    X = data.X
    y = data.y
    n = len(y)
    w = weights(n) if weighted else np.ones(n)
    found = ensemble_influence(
        make,
        X,
        y,
        data.X_test[:3],
        data.y_test[:3],
        sample_weight=w if weighted else None,
        members=4,
        bag=(1.0, 0.5),
        score_left_out=True,
        method=method,
        seed=3,
        n_jobs=1,
    )
    assert [int(member.bag.sum()) for member in found.members] == [n, n // 2, n, n // 2]
    values = np.empty((4, n, 3))
    for k, member in enumerate(found.members):
        own = np.flatnonzero(member.bag)
        rest = np.flatnonzero(~member.bag)
        model = make(member.seed).fit(X[own], y[own], sample_weight=w[own])
        tracer = lt.Tracer(model, X[own], y[own], w[own], n_jobs=1)
        test = data.X_test[:3], data.y_test[:3]
        values[k, own] = tracer.influence(*test, method=method).values
        if len(rest):
            values[k, rest] = tracer.score_candidates(X[rest], *test, y[rest], method=method).values
    assert np.array_equal(found.members[1].bag, ~found.members[3].bag)  # a half each
    values *= np.array([1.0, 0.5, 1.0, 0.5])[:, None, None]
    scale = np.abs(values).max()
    np.testing.assert_allclose(found.influence.values, values.mean(axis=0), atol=1e-5 * scale)
    error = values.std(axis=0, ddof=1) / 2
    np.testing.assert_allclose(found.error, error, atol=1e-5 * scale)
    changes = -w * values.mean(axis=2)
    np.testing.assert_allclose(found.changes, changes, atol=1e-5 * np.abs(changes).max())
    assert found.influence.method.endswith("mean of 4 models, rows left out at weight zero")
    kind = "trees fixed" if method is None else "soft splits"
    assert set(found.top(3)["change_is"]) == {f"first order, {kind}"}


def test_bags_in_turn_without_left_out_rows():
    """A row has the mean over the members that have it."""
    data = numbers()
    test = data.X_test[:2], data.y_test[:2]
    found = ensemble_influence(light, data.X, data.y, *test, members=4, bag=[1.0, 0.5], n_jobs=1)
    assert [bool(np.isnan(change).any()) for change in found.changes] == [False, True] * 2
    changes = np.nanmean(found.changes, axis=0)
    # Passes in float32: changes that nearly cancel have fewer digits than the largest.
    np.testing.assert_allclose(
        found.influence.change.mean(axis=1), changes, rtol=1e-4, atol=1e-7 * np.abs(changes).max()
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"X_test": None, "y_test": None}, "score_left_out=True needs X_test"),
        ({"method": lt.LeafRefit()}, "with score_left_out=True it can be"),
        ({"bag": ()}, "every row must be in two bags"),
        ({"bag": (1.0, 0.0)}, "every row must be in two bags"),
        ({"bag": (0.5, 0.4), "score_left_out": False}, "every row must be in two bags"),
    ],
)
def test_what_cannot_be_asked(more, words):
    data = numbers()
    asked = {"X_test": data.X_test, "y_test": data.y_test, "score_left_out": True, **more}
    with pytest.raises(lt.InvalidInput, match=words):
        ensemble_influence(light, data.X, data.y, members=3, **asked)


def test_members_of_all_rows_must_differ():
    data = numbers()
    with pytest.raises(lt.InvalidInput, match="models of seeds 0 and 2 are the same"):
        ensemble_influence(
            lambda seed: light(seed).set_params(colsample_bytree=1.0),
            data.X,
            data.y,
            data.X_test[:2],
            data.y_test[:2],
            members=4,
            bag=(1.0, 0.5),
            n_jobs=1,
        )
