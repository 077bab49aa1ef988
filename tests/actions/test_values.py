"""Values of rows over small bags, against a loop that trains and traces every bag by hand."""

from typing import NamedTuple

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from boosters import frame, numbers, three_classes, weights
from catboost import CatBoostClassifier
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler
from threadpoolctl import threadpool_limits
from training_sets import take

import leaftrace as lt
from leaftrace import Tracer
from leaftrace._actions.values import action
from leaftrace._actions.values.averages import reliability
from leaftrace._actions.values.members import BagModels, bags_in_turn

QUIET = {"verbosity": -1, "num_threads": 1, "force_row_wise": True}


def light(fewest=5):
    return lgb.LGBMRegressor(**QUIET, n_estimators=8, num_leaves=6, min_child_samples=fewest)


def light_classes(**more):
    return lgb.LGBMClassifier(
        **{**QUIET, "n_estimators": 8, "num_leaves": 6, "min_child_samples": 5, **more}
    )


def cat():
    """Return a model without the defaults that CatBoost chooses by the number of rows."""
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    settings = {"iterations": 6, "depth": 3, "learning_rate": 0.2, "bootstrap_type": "No"}
    return CatBoostClassifier(**quiet, **settings, cat_features=["kind"])


def xgb_three():
    return xgb.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1)


def scaled_hist():
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=5)
    return make_pipeline(RobustScaler(), model)


def some_zero(n):
    """Return weights of which every seventh is zero."""
    w = weights(n)
    w[::7] = 0
    return w


SETTINGS = {
    "LightGBM, weights, some of them zero": (numbers, light, some_zero, None),
    "CatBoost, categories, missing values, strings": (frame, cat, None, None),
    "XGBoost, three classes, soft splits": (
        three_classes,
        xgb_three,
        None,
        lt.StructureInfluence(),
    ),
    "scikit-learn Pipeline": (numbers, scaled_hist, None, None),
}


def given(w, rows=slice(None)):
    return {} if w is None else {"sample_weight": w[rows]}


def member_tracer(make, model, data, w, rows):
    """Train a model on some rows without leaftrace. The steps before the model stay as they are."""
    if not hasattr(model, "steps"):
        fitted = make().fit(take(data.X, rows), data.y[rows], **given(w, rows))
        return Tracer(
            fitted, take(data.X, rows), data.y[rows], *given(w, rows).values(), n_jobs=1
        ), data
    scaled = data.__class__(
        model[:-1].transform(data.X), data.y, data.codes,
        model[:-1].transform(data.X_test), data.y_test, data.test_codes,
    )  # fmt: skip
    fitted = make()[-1].fit(scaled.X[rows], data.y[rows])
    return Tracer(fitted, scaled.X[rows], data.y[rows], n_jobs=1), scaled


@pytest.mark.parametrize("name", SETTINGS)
@threadpool_limits.wrap(limits=1, user_api="openmp")
def test_it_is_the_mean_of_a_plain_loop(name):
    load, make, weigh, method = SETTINGS[name]
    data = load()
    n = len(data.y)
    w = None if weigh is None else weigh(n)
    weight = np.ones(n) if w is None else w
    model = make().fit(data.X, data.y, **given(w))
    tracer = Tracer(model, data.X, data.y, *given(w).values(), n_jobs=1)
    val = data.X_test, data.y_test
    found = lt.data_values(tracer, *val, members=8, bag=(0.2, 0.4), seed=5, method=method)
    live = (weight > 0).sum()
    assert found.bag_sizes.tolist() == 4 * [round(0.2 * live), round(0.4 * live)]
    expected = np.full((8, n), np.nan)
    losses = np.zeros(8)
    for k, size in enumerate(found.bag_sizes):
        bag = np.isnan(found.by_member[k])
        assert bag.sum() == size
        assert (weight[bag] > 0).all()
        rest = np.flatnonzero(~bag)
        traced, rows = member_tracer(make, model, data, w, np.flatnonzero(bag))
        slopes = traced.score_candidates(
            take(rows.X, rest), rows.X_test, rows.y_test, data.y[rest], reduce="mean", method=method
        ).values[:, 0]
        expected[k, rest] = -weight[rest] * slopes
        losses[k] = traced.refit().loss(rows.X_test, rows.y_test).mean()
    # Passes are in float32.
    close = {"rtol": 1e-4, "atol": 1e-5 * np.nanmax(np.abs(expected))}
    np.testing.assert_allclose(found.by_member, expected, **close)
    small = expected[0::2]
    large = expected[1::2]
    mean = (np.nanmean(small, axis=0) + np.nanmean(large, axis=0)) / 2
    np.testing.assert_allclose(found.values, mean, **close)
    squared = [
        np.nanvar(part, axis=0, ddof=1) / (~np.isnan(part)).sum(axis=0) for part in (small, large)
    ]
    np.testing.assert_allclose(found.error, np.sqrt(squared[0] + squared[1]) / 2, **close)
    np.testing.assert_allclose(found.influence.data_values(), found.values, **close)
    # Of squared errors, tables show falls of sqrt(2 L), of which dL / sqrt(2 L) is the first order.
    root = np.sqrt(losses[0::2].mean() + losses[1::2].mean()) if tracer.classes is None else 1.0
    check_tables(found, data, root)


def check_tables(found, data, root):
    assert ("lowers the RMSE of" in found.title) == (root != 1.0)
    shown = found.to_frame()["value"].to_numpy()
    np.testing.assert_allclose(shown * root, found.values, rtol=1e-5)
    np.testing.assert_allclose(found.to_frame()["standard_error"] * root, found.error, rtol=1e-5)
    whole = found.to_frame()
    assert list(whole.columns) == [
        "train_row", "position", "value", "standard_error", "rank", "rank_low", "rank_high",
    ]  # fmt: skip
    assert whole["train_row"].tolist() == list(getattr(data.X, "index", range(len(data.y))))
    higher = [1 + (found.values > value).sum() for value in found.values]
    assert whole["rank"].tolist() == higher
    assert (whole["rank_low"] <= whole["rank_high"]).all()
    best = found.top(3)
    worst = found.top(3, worst=True)
    ordered = np.sort(shown)
    np.testing.assert_array_equal(best["value"], ordered[::-1][:3])
    np.testing.assert_array_equal(worst["value"], ordered[:3])
    assert (shown[best["position"]] == best["value"]).all()
    assert found.table["value"].tolist() == [*ordered[::-1][:10], *ordered[:10][::-1]]
    assert found.title in repr(found)
    assert f"about {found.reliability:.2f}" in found._repr_html_()


def boosted(y, w, leaves, leaves_val, rate, l2):
    """Return the validation scores of trees with these leaves, refitted by squared error."""
    scores = np.zeros(len(y))
    scores_val = np.zeros(len(leaves_val))
    for ids, ids_val in zip(leaves.T, leaves_val.T, strict=True):
        size = max(ids.max(), ids_val.max()) + 1
        G = np.bincount(ids, w * (scores - y), size)
        H = np.bincount(ids, w, size)
        value = -rate * G / (H + l2)
        scores = scores + value[ids]
        scores_val = scores_val + value[ids_val]
    return scores_val


def test_a_value_is_the_slope_at_weight_zero():
    """Compare with differences of a refit in NumPy, as a row left out gets a small weight."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    X_val = rng.normal(size=(15, 3))
    y_val = X_val[:, 0]
    settings = {
        "n_estimators": 5,
        "max_depth": 2,
        "learning_rate": 0.4,
        "base_score": 0.0,
        "n_jobs": 1,
    }

    def make():
        return xgb.XGBRegressor(**settings, min_child_weight=0)

    tracer = Tracer(make().fit(X, y), X, y, dtype="float64", n_jobs=1)
    found = lt.data_values(tracer, X_val, y_val, members=4, bag=0.4)
    for k, row in ((0, 3), (1, 7), (2, 20)):
        bag = np.isnan(found.by_member[k])
        if bag[row]:
            row = np.flatnonzero(~bag)[0]
        model = make().fit(X[bag], y[bag])
        rows = np.append(np.flatnonzero(bag), row)
        leaves = model.apply(X[rows]).astype(int)
        leaves_val = model.apply(X_val).astype(int)

        def scores(extra, rows=rows, leaves=leaves, leaves_val=leaves_val):
            w = np.append(np.ones(len(rows) - 1), extra)
            return boosted(y[rows], w, leaves, leaves_val, 0.4, 1.0)

        np.testing.assert_allclose(scores(0.0), model.predict(X_val), atol=1e-5)
        losses = [np.mean((scores(extra) - y_val) ** 2) / 2 for extra in (1e-5, -1e-5)]
        slope = (losses[0] - losses[1]) / 2e-5
        # XGBoost's leaves and scores are float32.
        np.testing.assert_allclose(found.by_member[k, row], -slope, rtol=1e-4)


@pytest.fixture(scope="module")
def noisy():
    """Breast cancer with flipped training labels, a tracer, and values."""
    X, y = load_breast_cancer(return_X_y=True)
    flipped = np.random.default_rng(0).random(400) < 0.15
    data = Noisy(X[:400], np.where(flipped, 1 - y[:400], y[:400]), X[400:], y[400:], flipped)
    tracer = Tracer(light_classes().fit(data.X, data.y), data.X, data.y, n_jobs=2)
    return data, tracer, lt.data_values(tracer, data.X_test, data.y_test, members=10, bag=0.2)


class Noisy(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    flipped: np.ndarray


def test_wrong_labels_are_worth_less(noisy):
    data, _, found = noisy
    assert found.values[data.flipped].mean() < 0 < found.values[~data.flipped].mean()
    assert np.median(found.to_frame()["rank"][data.flipped]) > 0.85 * len(data.y)


def test_threads_do_not_matter(noisy):
    data, _, found = noisy
    alone = Tracer(light_classes().fit(data.X, data.y), data.X, data.y, n_jobs=1)
    again = lt.data_values(alone, data.X_test, data.y_test, members=10, bag=0.2)
    np.testing.assert_array_equal(again.by_member, found.by_member)
    other = lt.data_values(alone, data.X_test, data.y_test, members=3, bag=0.2, seed=1)
    assert not np.array_equal(np.isnan(other.by_member), np.isnan(found.by_member[:3]))


def test_groups(noisy):
    data, _, found = noisy
    labels = np.where(data.y == 1, "healthy", "cancer")
    got = found.by(labels).set_index("group")
    expected = pd.Series(found.values).groupby(labels).agg(["sum", "mean"])
    np.testing.assert_allclose(got.loc[expected.index, "total"], expected["sum"])
    np.testing.assert_allclose(got.loc[expected.index, "mean"], expected["mean"])
    assert got["mean"].is_monotonic_decreasing
    for name in ("healthy", "cancer"):
        means = np.nanmean(found.by_member[:, labels == name], axis=1)
        error = means.std(ddof=1) / np.sqrt(len(means))
        assert got.loc[name, "standard_error"] == pytest.approx(error)


def test_the_curve_removes_the_least_valuable_first(noisy):
    data, tracer, found = noisy
    hold = data.X_test[:10], data.y_test[:10]
    settings = {"counts": [40], "draws": 1, "retrain": False}
    for best, order in ((False, np.argsort(found.values)), (True, np.argsort(-found.values))):
        curve = found.curve(*hold, best=best, **settings)
        direct = lt.removal_curve(tracer, order, *hold, **settings)
        np.testing.assert_array_equal(curve.refitted, direct.refitted)
    with pytest.raises(lt.InvalidInput, match="those for these very rows"):
        found.curve(data.X_test, data.y_test)
    with pytest.raises(lt.InvalidInput, match="those for these very rows"):
        found.curve(data.X_test, data.y_test, best=True)


def test_reliability_is_that_of_halves():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(8, 40)) + np.linspace(0, 2, 40)
    values[np.arange(40) % 8, np.arange(40)] = np.nan
    halves = [np.nanmean(values[first::2], axis=0) for first in (0, 1)]
    r = spearmanr(*halves)[0]
    assert reliability(values, np.full(8, 5)) == pytest.approx(2 * r / (1 + r))
    sizes = np.array([5, 5, 9, 9, 5, 5, 9, 9])
    halves = [
        (np.nanmean(values[[a, a + 4]], axis=0) + np.nanmean(values[[a + 2, a + 6]], axis=0)) / 2
        for a in (0, 1)
    ]
    known = np.isfinite(halves[0] + halves[1])
    r = spearmanr(halves[0][known], halves[1][known])[0]
    assert reliability(values, sizes) == pytest.approx(2 * r / (1 + r))
    assert np.isnan(reliability(values[:1], np.array([5])))


def test_members_none_goes_on_until_ranks_are_stable(noisy, monkeypatch):
    data, tracer, _ = noisy
    rows = data.X_test, data.y_test
    monkeypatch.setattr(action, "FEWEST", 4)
    monkeypatch.setattr(action, "_ROUND", 2)
    monkeypatch.setattr(action, "MOST", 10)
    whole = lt.data_values(tracer, *rows, members=10, bag=0.2)
    by_count = {m: reliability(whole.by_member[:m], whole.bag_sizes[:m]) for m in (4, 6, 8, 10)}
    monkeypatch.setattr(action, "STABLE", by_count[6] - 1e-9)
    found = lt.data_values(tracer, *rows, members=None, bag=0.2)
    first = next(m for m, r in by_count.items() if r >= by_count[6] - 1e-9)
    assert len(found.by_member) == first
    assert found.asked is None
    monkeypatch.setattr(action, "STABLE", 1.1)
    assert len(lt.data_values(tracer, *rows, members=None, bag=0.2).by_member) == 10


def test_ctrl_c_keeps_the_finished_members(noisy, monkeypatch):
    data, tracer, whole = noisy
    tracer = Tracer(light_classes().fit(data.X, data.y), data.X, data.y, n_jobs=1)
    member = BagModels.member

    def interrupt_after(count):
        done = []

        def stopped(self, bag):
            if len(done) == count:
                raise KeyboardInterrupt
            done.append(bag)
            return member(self, bag)

        monkeypatch.setattr(BagModels, "member", stopped)

    interrupt_after(4)
    found = lt.data_values(tracer, data.X_test, data.y_test, members=10, bag=0.2)
    assert found.interrupted
    assert found.advice.startswith("Interrupted after 4 members.")
    np.testing.assert_array_equal(found.by_member, whole.by_member[:4])
    interrupt_after(1)
    with pytest.raises(KeyboardInterrupt):
        lt.data_values(tracer, data.X_test, data.y_test, members=10, bag=0.2)


def test_bags_have_every_class():
    """A class of two rows is in every bag of ten, and the others keep their shares."""
    codes = np.repeat([0, 1, 2], [60, 38, 2])
    weight = np.ones(100)
    weight[:10] = 0
    bags = bags_in_turn(codes, weight, [10, 30], np.random.default_rng(0))
    for k in range(40):
        bag = next(bags)
        assert bag.sum() == (10, 30)[k % 2]
        assert not bag[:10].any()
        assert np.all(np.bincount(codes[bag], minlength=3) >= 1)
    y = np.array(["a"] * 60 + ["b"] * 38 + ["c"] * 2)
    X = np.random.default_rng(1).normal(size=(100, 2))
    tracer = Tracer(light_classes(min_child_samples=2).fit(X, y), X, y, n_jobs=1)
    found = lt.data_values(tracer, X[50:], y[50:], members=20, bag=0.1)
    assert np.isfinite(found.values).all()
    alone = np.where(np.arange(100) == 99, "d", y)
    tracer = Tracer(light_classes().fit(X, alone), X, alone, n_jobs=1)
    with pytest.raises(lt.InvalidInput, match=r"the class '[cd]' has 1 training row"):
        lt.data_values(tracer, X[50:], y[50:])


def test_models_without_splits(monkeypatch):
    """LightGBM's default is 20 rows in a leaf at least."""
    data = numbers()
    X = data.X
    y = data.y
    tracer = Tracer(light(fewest=20).fit(X, y), X, y, n_jobs=1)
    words = r"none of 5 models of bags of 30 rows can be traced: .*no splits.* larger bag"
    for bag in (30 / len(y), (30 / len(y), 0.5)):
        with pytest.raises(lt.LeaftraceError, match=words):
            lt.data_values(tracer, X, y, bag=bag)
    member = BagModels._trained
    calls = []

    def refuses_one(self, bag):
        calls.append(bag)
        if len(calls) == 2:
            raise lt.FidelityError("not exact.")
        return member(self, bag)

    monkeypatch.setattr(BagModels, "_trained", refuses_one)
    found = lt.data_values(tracer, X, y, bag=50 / len(y), members=6)
    assert len(found.by_member) == 5
    assert "Trees of so few rows have 2.0 leaves in the mean" in found.advice
    assert "1 models of bags were left out, which cannot be traced: not exact." in found.advice


def test_refusals(noisy):
    data, tracer, _ = noisy
    val = data.X_test, data.y_test
    for more, words in (
        ({"method": lt.LeafRefit()}, "which LeafInfluence"),
        ({"method": lt.LeafInfluence(lt.SinglePoint())}, "without an update set"),
        ({"bag": 1.0}, "share of the training rows between 0 and 1"),
        ({"bag": []}, "share of the training rows"),
        ({"bag": 0.001}, "they must have 2 to 399 rows"),
        ({"members": 1}, "left out of two bags"),
        ({"members": 5, "bag": (0.1, 0.5)}, "left out of two bags"),
    ):
        with pytest.raises(lt.InvalidInput, match=words):
            lt.data_values(tracer, *val, **more)
    two = lgb.LGBMRegressor(n_estimators=2, min_child_samples=1, verbose=-1).fit(
        np.eye(2), [0.0, 1]
    )
    with pytest.raises(
        lt.InvalidInput, match=r"2 training row\(s\) have a weight, too few for bags"
    ):
        lt.data_values(Tracer(two, np.eye(2), [0.0, 1]), np.eye(2), [0.0, 1])
    with pytest.raises(lt.InvalidInput, match="X_val has no rows"):
        lt.data_values(tracer, data.X_test[:0], data.y_test[:0])
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        lt.data_values("model", *val)
    d = numbers()
    given_scores = light().fit(d.X, d.y, init_score=d.y / 2)
    with pytest.raises(lt.InvalidInput, match="trained with a baseline"):
        lt.data_values(Tracer(given_scores, d.X, d.y, baseline=d.y / 2), d.X_test, d.y_test)
    quantile = lgb.LGBMRegressor(**QUIET, n_estimators=3, objective="quantile").fit(d.X, d.y)
    with pytest.raises(lt.UnsupportedModel, match="smooth loss"):
        lt.data_values(Tracer(quantile, d.X, d.y), d.X_test, d.y_test)


def test_values_of_an_influence(noisy):
    data, tracer, _ = noisy
    influence = tracer.influence(data.X_test, data.y_test)
    np.testing.assert_allclose(influence.data_values(), -influence.values.mean(axis=1, dtype=float))
    added = tracer.score_candidates(data.X[:5], data.X_test, data.y_test, data.y[:5])
    np.testing.assert_allclose(added.data_values(), -added.values.mean(axis=1, dtype=float))
    auc = tracer.influence(data.X_test, data.y_test, of=lt.goals.AUC())
    np.testing.assert_allclose(auc.data_values(), auc.values[:, 0])
    for no_better in (
        tracer.influence(data.X_test, of="prediction"),
        tracer.label_influence(data.X_test, data.y_test),
    ):
        with pytest.raises(lt.InvalidInput, match="no better and worse"):
            no_better.data_values()
