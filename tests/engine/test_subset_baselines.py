"""Baselines that train many models, against loops and against the definitions of semivalues."""

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy.special import beta as beta_function
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier, XGBRegressor

import leaftrace as lt
from leaftrace.baselines import BetaShapley, DataBanzhaf, DataOOB, SubSample
from leaftrace.baselines._subsets import with_minus_without

N = 40
ALL = [
    SubSample(models=20),
    DataBanzhaf(models=20),
    BetaShapley(models=60, least=0.2),
    DataOOB(models=20),
]


def regressor():
    return XGBRegressor(n_estimators=5, max_depth=2, n_jobs=1)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + 6, 3))
    return X, X[:, 0] + 0.5 * rng.normal(size=N + 6)


@pytest.fixture(scope="module")
def tracer(data):
    X, y = data
    return lt.Tracer(regressor().fit(X[:N], y[:N]), X[:N], y[:N], dtype="float64")


def losses(members, data):
    """Return (models, tests) losses of models trained on these rows (models, n)."""
    X, y = data
    trained = [regressor().fit(X[:N][m], y[:N][m]) for m in members]
    return np.array([(model.predict(X[N:]) - y[N:]) ** 2 / 2 for model in trained])


def difference(members, values):
    return [values[m].mean(axis=0) - values[~m].mean(axis=0) for m in members.T]


def test_subsample(tracer, data):
    X, y = data
    rng = np.random.default_rng(3)
    members = np.zeros((15, N), bool)
    for line in members:
        line[rng.permutation(N)[:24]] = True
    expected = difference(members, losses(members, data))
    method = SubSample(models=15, share=0.6, seed=3)
    found = tracer.influence(X[N:], y[N:], method=method)
    np.testing.assert_allclose(found.values, expected, atol=1e-5)
    assert found.scored
    some = tracer.influence(X[N:], y[N:], method=method, rows=[9, 4], reduce="mean").values
    np.testing.assert_allclose(some[:, 0], np.mean(expected, axis=1)[[9, 4]], atol=1e-5)


def test_data_banzhaf(tracer, data):
    X, y = data
    rng = np.random.default_rng(0)
    members = np.array([rng.random(N) < 0.5 for _ in range(20)])
    found = tracer.influence(X[N:], y[N:], method=DataBanzhaf(models=20)).values
    np.testing.assert_allclose(found, difference(members, losses(members, data)), atol=1e-5)


def semivalue(utility, n, weight):
    """Return values of n players by the definition: weight(size) of each set without the player."""
    value = np.zeros(n)
    for subset in product([False, True], repeat=n):
        for i in np.flatnonzero(~np.array(subset)):
            joined = (*subset[:i], True, *subset[i + 1 :])
            value[i] += weight(sum(subset)) * (utility[joined] - utility[subset])
    return value


def test_reuse_of_all_subsets_gives_banzhaf_values():
    n = 5
    rng = np.random.default_rng(0)
    utility = {s: rng.normal() for s in product([False, True], repeat=n)}
    members = np.array(list(utility))
    ones = np.ones(len(members))
    found = with_minus_without(members, np.array(list(utility.values()))[:, None], ones, ones)
    expected = semivalue(utility, n, lambda size: 2.0 ** (1 - n))
    np.testing.assert_allclose(found[:, 0], expected)


@pytest.mark.parametrize(("alpha", "beta"), [(4.0, 2.0), (2.0, 3.0)])
def test_beta_shapley_values(alpha, beta):
    """Many subsets drawn as BetaShapley does give the values of Kwon and Zou's definition."""
    n = 4
    draws = 60_000
    rng = np.random.default_rng(0)
    utility = {s: rng.normal() for s in product([False, True], repeat=n)}
    method = BetaShapley(alpha, beta, least=1e-6)
    shares = np.array([method.share_of_a_model(rng) for _ in range(draws)])
    members = np.array([method.draw(rng, n, share) for share in shares])
    values = np.array([utility[tuple(m)] for m in members.tolist()])[:, None]
    found = with_minus_without(members, values, *method.weights(shares))[:, 0]

    def weight(size):
        """Kwon and Zou's w / n, which weighs a mean over sets of this size, as a weight of one set."""
        j = size + 1
        w = n * comb(n - 1, size) * beta_function(j + beta - 1, n - j + alpha)
        return w / beta_function(alpha, beta) / n / comb(n - 1, size)

    np.testing.assert_allclose(found, semivalue(utility, n, weight), atol=0.03)  # 4 standard errors
    shapley = semivalue(utility, n, lambda size: 1 / n / comb(n - 1, size))
    assert np.abs(found - shapley).max() > 0.06


def test_data_oob_of_a_boosted_model(tracer, data):
    X, y = data
    rng = np.random.default_rng(0)
    total = np.zeros(N)
    count = np.zeros(N)
    for _ in range(20):
        left = np.ones(N, bool)
        left[rng.permutation(N)[:25]] = False
        predicted = regressor().fit(X[:N][~left], y[:N][~left]).predict(X[:N])
        total += left * (predicted - y[:N]) ** 2 / 2
        count += left
    found = tracer.influence(X[N:], y[N:], method=DataOOB(models=20), rows=np.arange(N)).values
    np.testing.assert_allclose(found, np.repeat((total / count)[:, None], 6, axis=1), atol=1e-5)


def test_data_oob_of_a_forest():
    """The trees and the rows that they drew are the models; nothing is trained."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(70, 3))
    y = np.array(["no", "yes", "maybe"])[rng.integers(0, 3, 70)]
    model = RandomForestClassifier(30, max_depth=3, random_state=4).fit(X, y)
    total = np.zeros(70)
    count = np.zeros(70)
    for tree, drawn in zip(model.estimators_, model.estimators_samples_, strict=True):
        left = ~np.isin(np.arange(70), drawn)
        total += left * (model.classes_[tree.predict(X).astype(int)] != y)
        count += left
    found = lt.Tracer(model, X, y).influence(X, y, method=DataOOB(), reduce="mean").values[:, 0]
    np.testing.assert_allclose(found, total / count, rtol=1e-6)


@pytest.mark.parametrize("method", ALL, ids=repr)
def test_wrong_labels_come_first(method):
    """Wrong labels, a tenth of all, rank before right ones in most pairs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    made = (X[:, 0] > 0).astype(int)
    wrong = rng.random(300) < 0.1
    y = np.where(wrong, 1 - made[:300], made[:300])
    model = XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1).fit(X[:300], y)
    tracer = lt.Tracer(model, X[:300], y)
    found = tracer.influence(X[300:], made[300:], method=method, reduce="mean").values[:, 0]
    least = 0.95 if isinstance(method, DataOOB) else 0.55  # so few models tell little of a row
    assert (found[wrong][:, None] > found[~wrong]).mean() > least


def test_errors(tracer, data):
    X, y = data

    def ask(method, **how):
        return tracer.influence(X[N:], y[N:], method=method, **how)

    for wrong in (SubSample, DataBanzhaf, BetaShapley, DataOOB):
        with pytest.raises(lt.InvalidInput, match=f"{wrong.__name__} has models=1; it is a number"):
            wrong(models=1)
        with pytest.raises(lt.InvalidInput, match="a whole number, 0 or more"):
            wrong(seed=-1)
    for share in (0, 1.0, "0.5"):
        with pytest.raises(lt.InvalidInput, match="above 0 and below 1"):
            SubSample(share=share)
    with pytest.raises(lt.InvalidInput, match="alpha=0; it is a number above zero"):
        BetaShapley(alpha=0)
    with pytest.raises(lt.InvalidInput, match="hardly ever give shares"):
        ask(BetaShapley(alpha=1e6, beta=1, models=2))
    with pytest.raises(lt.InvalidInput, match="are in all of the 2 subsets or in none"):
        ask(SubSample(models=2))
    with pytest.raises(lt.InvalidInput, match="were drawn by every model"):
        ask(DataOOB(models=2))
    with pytest.raises(lt.InvalidInput, match=r"DataOOB tells .* of='loss' alone"):
        ask(DataOOB(models=20), of="prediction")
    with pytest.raises(lt.InvalidInput, match="averages changes"):
        lt.ensemble_influence(
            lambda seed: regressor(), X[:N], y[:N], X[N:], y[N:], method=SubSample(models=20)
        )


def test_a_class_that_no_subset_has():
    X = np.arange(60.0)[:, None]
    y = (np.arange(60) == 0).astype(int)
    model = XGBClassifier(n_estimators=2, n_jobs=1, base_score=0.5).fit(X, y)
    with pytest.raises(
        lt.InvalidInput, match=r"no subset of 1\.7% of the rows that has all 2 classes"
    ):
        lt.Tracer(model, X, y).influence(X, y, method=SubSample(2, 1 / 60), reduce="mean")
