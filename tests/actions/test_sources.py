"""`source_values`: Shapley values against the definition over all orders, and what they add up to."""

from itertools import permutations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

import leaftrace as lt
from leaftrace._actions.values.coalitions import sampled_falls, shapley_of_costs

rng = np.random.default_rng(0)
N = 240
X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"])
SOURCE = np.array(["east", "north", "south", "west"])[rng.integers(0, 4, N)]
Y = X["a"].to_numpy() + 0.2 * rng.normal(size=N)
Y[SOURCE == "west"] *= -1  # a supplier with the sign wrong
X_VAL = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
Y_VAL = X_VAL["a"].to_numpy()


@pytest.fixture(scope="module")
def tracer():
    model = GradientBoostingRegressor(n_estimators=10, max_depth=2, random_state=0)
    return lt.Tracer(model.fit(X, Y), X, Y, n_jobs=1)


def loss(model):
    """Return the RMSE of predictions."""
    return np.sqrt(np.mean((model.predict(X_VAL) - Y_VAL) ** 2))


def test_definition(tracer):
    """The mean over all 24 orders of what each source adds, by refits of our own."""
    found = lt.source_values(tracer, SOURCE, X_VAL, Y_VAL)
    names = found.sources.tolist()
    assert names == ["east", "north", "south", "west"]
    nobody = np.sqrt(np.mean((Y.mean() - Y_VAL) ** 2))  # the starting score is the mean label
    costs = {frozenset(): nobody}

    def cost(coalition):
        if coalition not in costs:
            costs[coalition] = loss(tracer.refit(without=~np.isin(SOURCE, list(coalition))))
        return costs[coalition]

    expected = dict.fromkeys(names, 0.0)
    for order in permutations(names):
        for k, name in enumerate(order):
            fall = cost(frozenset(order[:k])) - cost(frozenset(order[: k + 1]))
            expected[name] += fall / 24
    np.testing.assert_allclose(found.values, list(expected.values()), atol=1e-12)
    np.testing.assert_allclose(found.values.sum(), found.total, atol=1e-9, rtol=0)
    np.testing.assert_allclose(found.total, nobody - loss(tracer.refit()), atol=1e-12)
    left_out = [cost(frozenset(names) - {name}) - cost(frozenset(names)) for name in names]
    np.testing.assert_allclose(found.leave_one_out, left_out, atol=1e-12)
    assert found.exact
    assert not found.error.any()
    assert found.rows.tolist() == [np.sum(name == SOURCE) for name in names]
    assert found.table["source"].iloc[-1] == "west"
    assert "`west` raises the RMSE" in found.advice
    assert "standard_error" not in found.table
    assert "What each of 4 sources lowers the RMSE by (refitted, trees fixed)" in repr(found)


def test_random_orders():
    """Averages over random orders add up, and their errors tell how far they are from the values."""
    costs = {c: float(rng.normal()) for c in range(1 << 6)}
    exact = shapley_of_costs(np.array([costs[c] for c in range(1 << 6)]), 6)
    np.testing.assert_allclose(exact.sum(), costs[0] - costs[63], atol=1e-12)
    random = np.random.default_rng(1)
    drawn = np.stack(list(sampled_falls(costs.__getitem__, 6, 400, random)))
    np.testing.assert_allclose(drawn.sum(axis=1), costs[0] - costs[63], atol=1e-12)
    error = drawn.std(axis=0, ddof=1) / 20
    distance = np.abs(drawn.mean(axis=0) - exact) / error
    assert distance.max() < 4
    assert distance.mean() > 0.05  # errors are not far too large


def test_many_sources(tracer):
    many = rng.permutation(np.arange(N) % 13)
    found = lt.source_values(tracer, many, X_VAL, Y_VAL, pairs=4)
    assert not found.exact
    assert (found.error > 0).all()
    np.testing.assert_allclose(found.values.sum(), found.total, atol=1e-9, rtol=0)
    assert "standard_error" in found.table
    assert "8 random orders" in found.title
    again = lt.source_values(tracer, many, X_VAL, Y_VAL, pairs=4)
    np.testing.assert_array_equal(found.values, again.values)
    other = lt.source_values(tracer, many, X_VAL, Y_VAL, pairs=4, seed=1)
    assert not np.array_equal(found.values, other.values)
    with pytest.raises(lt.InvalidInput, match="pairs is 1; ask for 2 or more"):
        lt.source_values(tracer, many, X_VAL, Y_VAL, pairs=1)


def test_retrained(tracer):
    two = np.where(np.isin(SOURCE, ["east", "west"]), "one", "two")
    found = lt.source_values(tracer, two, X_VAL, Y_VAL, retrain=True)
    assert found.retrained
    alone = [
        GradientBoostingRegressor(n_estimators=10, max_depth=2, random_state=0).fit(
            X[two == name], Y[two == name]
        )
        for name in ("one", "two")
    ]
    nobody = np.sqrt(np.mean((Y.mean() - Y_VAL) ** 2))
    everyone = loss(tracer.retrain())
    first = (nobody - loss(alone[0]) + loss(alone[1]) - everyone) / 2
    np.testing.assert_allclose(found.values[0], first, atol=1e-9)
    np.testing.assert_allclose(found.values.sum(), nobody - everyone, atol=1e-9, rtol=0)


def test_sources_without_a_class():
    """A coalition of one class has no starting score; it counts as nobody's rows."""
    labels = np.where(SOURCE == "west", 1, (Y > 0).astype(int))
    model = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, labels)
    found = lt.source_values(lt.Tracer(model, X, labels), SOURCE, X_VAL, (Y_VAL > 0).astype(int))
    assert "Of 1 coalitions no model can be made" in found.advice
    assert "sources lowers the mean log loss by" in found.title
    np.testing.assert_allclose(found.values.sum(), found.total, atol=1e-9, rtol=0)


def test_refusals(tracer):
    with pytest.raises(lt.InvalidInput, match="all training rows are from the source 'a'"):
        lt.source_values(tracer, ["a"] * N, X_VAL, Y_VAL)
    with pytest.raises(lt.InvalidInput, match="X has no rows"):
        lt.source_values(tracer, SOURCE, X_VAL[:0], Y_VAL[:0])
    ranker = lgb.LGBMRanker(n_estimators=2, verbose=-1).fit(
        X, (Y > 0).astype(int), group=[N // 2] * 2
    )
    ranked = lt.Tracer(ranker, X, (Y > 0).astype(int), qid=[N // 2] * 2)
    with pytest.raises(lt.UnsupportedModel, match="source_values"):
        lt.source_values(ranked, SOURCE, X_VAL, Y_VAL)
