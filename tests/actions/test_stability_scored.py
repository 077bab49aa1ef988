"""Members that also score the rows they left out, and bags that take turns, against a plain loop."""

import lightgbm as lgb
import numpy as np
import pytest
from boosters import numbers, weights
from sklearn.ensemble import ExtraTreesRegressor
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
    np.testing.assert_allclose(
        found.influence.change.mean(axis=1), np.nanmean(found.changes, axis=0), rtol=1e-4
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


def test_what_is_done_without_a_bag_and_a_method():
    """All rows and halves take turns, with soft splits; rows left out are scored."""
    data = numbers()
    rows = data.X, data.y, data.X_test[:2], data.y_test[:2]
    found = ensemble_influence(extreme, *rows, members=4, n_jobs=1)
    meant = ensemble_influence(
        extreme,
        *rows,
        members=4,
        n_jobs=1,
        bag=(1.0, 0.5),
        score_left_out=True,
        method=lt.StructureInfluence(0.5),
    )
    np.testing.assert_array_equal(found.influence.values, meant.influence.values)
    np.testing.assert_array_equal(found.changes, meant.changes)
    assert found.influence.method == meant.influence.method
    assert found.influence.method.startswith("StructureInfluence(temperature=0.5), mean of 4")
    predicted = [result.confirm([1, 2]).effects["predicted"] for result in (found, meant)]
    np.testing.assert_array_equal(*predicted)


def test_trees_whose_splits_are_not_chosen_are_fixed_by_default():
    data = numbers()
    found = ensemble_influence(
        lambda seed: ExtraTreesRegressor(5, min_samples_leaf=4, random_state=seed),
        data.X,
        data.y,
        data.X_test[:2],
        data.y_test[:2],
        members=2,
        n_jobs=1,
    )
    assert found.influence.method.startswith("LeafInfluence(")
    assert set(found.top(3)["change_is"]) == {"first order, trees fixed"}


def test_models_that_do_not_depend_on_their_seed_get_bags_by_default():
    """The second model of all rows would be the first again, so it and later ones get halves."""
    data = numbers()
    n = len(data.y)
    found = ensemble_influence(
        lambda seed: light(seed).set_params(colsample_bytree=1.0),
        data.X,
        data.y,
        data.X_test[:2],
        data.y_test[:2],
        members=5,
        n_jobs=1,
    )
    assert [int(member.bag.sum()) for member in found.members] == [n] + 4 * [n // 2]
    bags = [member.bag for member in found.members]
    assert len({bag.tobytes() for bag in bags}) == 5
    np.testing.assert_array_equal(bags[2], ~bags[3])  # each row in one of the two


@pytest.mark.parametrize("more", [{"X_test": None, "y_test": None}, {"method": lt.LeafRefit()}])
def test_bags_where_rows_left_out_have_no_values(more):
    data = numbers()
    asked = {"X_test": data.X_test[:1], "y_test": data.y_test[:1], **more}
    found = ensemble_influence(light, data.X[:80], data.y[:80], members=3, n_jobs=1, **asked)
    assert {int(member.bag.sum()) for member in found.members} == {60}
    assert "soft" not in set(found.top(3)["change_is"]).pop()
