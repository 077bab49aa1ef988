"""Influence averaged over models, against a loop that trains and traces every model again.

Splits are held fixed here; test_stability_scored.py has the default, in which they give way."""

from functools import partial

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from boosters import binary, frame, numbers, three_classes, weights
from catboost import CatBoostClassifier
from raw_scores import raw_scores
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler
from threadpoolctl import threadpool_limits

import leaftrace as lt
from leaftrace import Tracer
from leaftrace._actions.bags import draw_bags
from leaftrace._actions.stability import action
from leaftrace._actions.stability.moments import Moments, rank_intervals, size_ranks, summary

# With so few rows, threads would mostly wait for each other.
ensemble_influence = partial(
    action.ensemble_influence, n_jobs=1, method=lt.LeafInfluence(), bag=0.75
)
QUIET = {"verbosity": -1, "num_threads": 1, "force_row_wise": True}


def light(seed, **more):
    return lgb.LGBMRegressor(
        **{**QUIET, "n_estimators": 10, "colsample_bytree": 0.5, "random_state": seed, **more}
    )


def cat(seed):
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return CatBoostClassifier(
        **quiet, iterations=8, depth=4, cat_features=["kind"], random_seed=seed
    )


def xgbooster(params, X, y, w):
    return xgb.train(params, xgb.DMatrix(X, y, weight=w), 6)


def scaled(seed):
    model = HistGradientBoostingRegressor(max_iter=6, max_features=0.5, random_state=seed)
    return make_pipeline(RobustScaler(), model)


SETTINGS = {
    "LightGBM, weights": (numbers(), light, {"weighted": True}),
    "CatBoost, categories, missing values, strings": (frame(), cat, {}),
    "XGBoost, three classes": (
        three_classes(),
        lambda seed: xgb.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1, random_state=seed),
        {"bag": 0.6},
    ),
    "xgboost.train, weights, rows drawn": (
        binary(),
        lambda seed: {"objective": "binary:logistic", "subsample": 0.7, "nthread": 1, "seed": seed},
        {"weighted": True, "fit": xgbooster},
    ),
    "scikit-learn Pipeline, weights": (
        numbers(),
        scaled,
        {"weighted": True, "fit_arguments": "histgradientboostingregressor__sample_weight"},
    ),
    "forest, seeds only": (
        numbers(),
        lambda seed: ExtraTreesRegressor(8, min_samples_leaf=4, random_state=seed),
        {"bag": 1.0},
    ),
}


def rows_of(X, index):
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def trained(make, member, data, w, fit=None, fit_arguments="sample_weight"):
    """Train the model of a member again, without leaftrace."""
    rows = np.flatnonzero(member.bag)
    X = rows_of(data.X, rows)
    y = data.y[rows]
    w = None if w is None else w[rows]
    if fit:
        return fit(make(member.seed), X, y, w), (X, y, w)
    return make(member.seed).fit(X, y, **({} if w is None else {fit_arguments: w})), (X, y, w)


@pytest.mark.parametrize("name", SETTINGS)
@threadpool_limits.wrap(limits=1, user_api="openmp")
def test_it_is_the_mean_of_a_plain_loop(name):
    data, make, more = SETTINGS[name]
    w = weights(len(data.y)) if more.get("weighted") else None
    bag = more.get("bag", 0.75)
    fit = more.get("fit")
    found = ensemble_influence(
        make,
        data.X,
        data.y,
        data.X_test,
        data.y_test,
        sample_weight=w,
        members=4,
        bag=bag,
        seed=3,
        fit=fit,
    )
    assert [member.seed for member in found.members] == [3, 4, 5, 6]
    n = len(data.y)
    m = len(data.y_test)
    values = np.full((4, n, m), np.nan)
    for k, member in enumerate(found.members):
        assert abs(member.bag.sum() - bag * n) < 1
        model, rows = trained(
            make, member, data, w, fit, more.get("fit_arguments", "sample_weight")
        )
        values[k, member.bag] = (
            bag_share(member) * Tracer(model, *rows).influence(data.X_test, data.y_test).values
        )
    scale = np.nanmax(np.abs(values))
    np.testing.assert_allclose(
        found.influence.values, np.nanmean(values, axis=0), atol=1e-5 * scale
    )
    count = (~np.isnan(values)).sum(axis=0)
    error = np.nanstd(values, axis=0, ddof=1) / np.sqrt(count)
    np.testing.assert_allclose(found.error, error, atol=1e-5 * scale)
    weight = np.ones(n) if w is None else w
    changes = -weight * values.mean(axis=2)  # (members, n) of the mean over the test rows
    np.testing.assert_allclose(found.changes, changes, atol=1e-5 * np.nanmax(np.abs(changes)))
    check_table(found, changes, data)


def bag_share(member):
    return member.bag.sum() / len(member.bag)


def check_table(found, changes, data):
    mean = np.nanmean(changes, axis=0)
    top = found.table
    index = list(getattr(data.X, "index", range(len(data.y))))
    rows = [index.index(name) for name in top["train_row"]]
    np.testing.assert_allclose(top["loss_change_if_removed"], mean[rows], rtol=1e-4)
    np.testing.assert_allclose(np.abs(mean[rows]), np.sort(np.abs(mean))[::-1][:20], rtol=1e-4)
    larger = [
        1 + np.sum(np.abs(mean) > 1.0001 * size) for size in np.abs(mean[rows])
    ]  # rows of one leaf are equal
    assert top["rank"].tolist() == larger
    assert top["effect"].tolist() == [
        "harmful" if change < 0 else "helpful" for change in mean[rows]
    ]
    same = [
        np.mean(np.sign(c[~np.isnan(c)]) == np.sign(c[~np.isnan(c)].mean()))
        for c in changes.T[rows]
    ]
    np.testing.assert_allclose(top["agreement"], same)
    assert np.all(top["rank_low"] <= top["rank_high"])
    assert found.title in repr(found)
    assert f"{int(top['stable'].sum())} of the first 20 rows are stable" in found.advice


def test_confirm_is_a_plain_loop_of_removals():
    """Compare retrained effects with LightGBM itself, and the others with new tracers."""
    data = numbers()
    w = weights(len(numbers().y))
    found = ensemble_influence(
        light,
        data.X,
        data.y,
        data.X_test,
        sample_weight=w,
        members=4,
        of="prediction",
        reduce="mean",
    )
    assert found.effects is None
    gone = np.r_[3, 50:80]
    sizes = []
    for member in found.members:
        model, rows = trained(light, member, data, w)
        tracer = Tracer(model, *rows)
        inside = np.flatnonzero(np.isin(np.flatnonzero(member.bag), gone))
        before = model.predict(data.X_test).mean()
        slopes = tracer.influence(data.X_test, of="prediction", reduce="mean").values[:, 0]
        keep = member.bag.copy()
        keep[gone] = False
        again = light(member.seed).fit(data.X[keep], data.y[keep], sample_weight=w[keep])
        refitted = raw_scores(tracer.refit(without=inside), data.X_test).mean()
        retrained = again.predict(data.X_test).mean()
        sizes.append(
            [before, -(rows[2] * slopes)[inside].sum(), refitted - before, retrained - before]
        )
    confirmed = found.confirm(gone)
    line = confirmed.effects.iloc[0]
    assert line["of"] == "mean prediction of all test rows"
    columns = ["before", "predicted", "refitted", "retrained"]
    np.testing.assert_allclose(
        line[columns].astype(float), np.mean(sizes, axis=0), rtol=1e-4, atol=1e-7
    )
    spread = np.array(sizes)[:, 3]
    assert f"{spread.mean():+.3g} (standard error {spread.std(ddof=1) / 2:.2g})" in confirmed.advice
    assert "must be judged by others" in confirmed.advice
    only = found.confirm(gone, retrain=False)
    assert np.isnan(only.effects["retrained"]).all()
    assert "Retraining may also choose other splits" in only.advice
    np.testing.assert_array_equal(only.effects["refitted"], confirmed.effects["refitted"])


def test_confirm_on_other_rows():
    """The predicted effect is the sum of the averaged influences if every bag has all rows."""
    data = binary(text=True)

    def make(seed):
        return lgb.LGBMClassifier(**QUIET, n_estimators=6, colsample_bytree=0.3, random_state=seed)

    found = ensemble_influence(
        make, data.X, data.y, data.X_test[:5], data.y_test[:5], members=3, bag=1.0
    )
    effects = found.confirm([7, 8, 7]).effects
    assert effects["of"].tolist()[:2] == ["mean log loss of 5 test rows", "log loss of test row 0"]
    predicted = found.influence.change[[7, 8]].sum(axis=0)
    np.testing.assert_allclose(effects["predicted"], [predicted.mean(), *predicted], rtol=1e-5)
    np.testing.assert_allclose(effects["retrained"][0], effects["retrained"][1:].mean())
    other = found.confirm([7, 8], data.X_test[5:], data.y_test[5:])
    direct = ensemble_influence(
        make, data.X, data.y, data.X_test[5:], data.y_test[5:], members=3, bag=1.0
    )
    np.testing.assert_array_equal(other.effects, direct.confirm([7, 8]).effects)
    assert "must be judged" not in other.advice


def test_bags_estimate_effects_in_a_model_of_all_rows():
    """A model that predicts the mean of the labels has dF/dw_i = (y_i - mean) / n.

    Members have 3/4 of the rows, so without the factor b / n the slope would be 4/3."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    X = np.repeat([[0.0], [1.0]], 100, axis=0)
    settings = {"n_estimators": 1, "learning_rate": 1.0, "num_leaves": 2, "min_child_samples": 1}

    def make(seed):
        return light(seed, colsample_bytree=1.0, **settings)

    found = ensemble_influence(make, X, y, [[0.0], [1.0]], members=30, of="prediction")
    for side in (0, 1):
        rows = np.flatnonzero(X[:, 0] == side)
        exact = (y[rows] - y[rows].mean()) / 100
        values = found.influence.values[rows, side]
        assert exact @ values / (exact @ exact) == pytest.approx(1.0, abs=0.02)
        assert np.corrcoef(exact, values)[0, 1] > 0.99


def test_bags_leave_out_every_row_equally_often():
    y = np.repeat(["a", "b", "c"], [70, 27, 3])
    for members, size in ((7, 75), (20, 75), (9, 30), (4, 100), (5, 99)):
        bags = np.array(list(draw_bags(y, [size] * members, np.random.default_rng(1))))
        assert np.all(bags.sum(axis=1) == size)
        assert np.ptp(bags.sum(axis=0)) <= 1
        for label, share in zip("abc", (0.70, 0.27, 0.03), strict=True):
            assert np.all(np.abs(bags[:, y == label].sum(axis=1) - share * size) <= 3)
    drawn = [list(draw_bags(y, [75] * 20, np.random.default_rng(seed))) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_permuting_the_rows_permutes_the_result():
    data = numbers()
    w = weights(len(numbers().y))
    order = np.random.default_rng(0).permutation(len(data.y))
    settings = {"members": 3, "bag": 1.0, "reduce": "mean"}
    found = ensemble_influence(
        light, data.X, data.y, data.X_test, data.y_test, sample_weight=w, **settings
    )
    again = ensemble_influence(
        light,
        data.X[order],
        data.y[order],
        data.X_test,
        data.y_test,
        sample_weight=w[order],
        **settings,
    )
    scale = np.abs(found.influence.values).max()
    np.testing.assert_allclose(
        again.influence.values, found.influence.values[order], atol=1e-5 * scale
    )
    np.testing.assert_allclose(again.error, found.error[order], atol=1e-5 * scale)
    assert order[again.table["train_row"]].tolist() == found.table["train_row"].tolist()


def test_moments_and_summary_are_numpys():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 9, 2))
    bags = rng.random((6, 9)) < 0.7
    bags[:, 0] = [True, False, False, False, False, False]
    values[~bags] = np.nan
    moments = Moments.none(9, 2, np.float64)
    for one, bag in zip(values, bags, strict=True):
        moments = moments.add(np.flatnonzero(bag), one[bag])
    np.testing.assert_allclose(moments.mean, np.nanmean(values, axis=0))
    with np.errstate(invalid="ignore"), pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        expected = np.nanstd(values, axis=0, ddof=1) / np.sqrt(bags.sum(axis=0))[:, None]
    np.testing.assert_allclose(moments.error, expected)
    assert np.isnan(moments.error[0]).all()
    mean, error, agreement = summary(values[:, :, 0])
    np.testing.assert_allclose(mean, moments.mean[:, 0])
    np.testing.assert_allclose(error, expected[:, 0])
    for i, share in enumerate(agreement):
        seen = values[bags[:, i], i, 0]
        assert share == np.mean((seen > 0) == (seen.mean() > 0))


def test_rank_intervals():
    """Rows that all members rank alike have one rank, two rows that swap have two."""
    sure = np.tile([5.0, -4.0, 3.0, 0.5], (10, 1))
    low, high = rank_intervals(sure, np.arange(4))
    assert low.tolist() == high.tolist() == [1, 2, 3, 4]
    assert size_ranks(np.array([1.0, 3.0, 3.0, 2.0]), np.array([0, 1, 2, 3])).tolist() == [
        4,
        1,
        1,
        3,
    ]
    swapped = sure.copy()
    swapped[::2, :2] = [4.0, -5.0]
    low, high = rank_intervals(swapped, np.arange(4))
    assert low.tolist() == [1, 1, 3, 4]
    assert high.tolist() == [2, 2, 3, 4]
    rng = np.random.default_rng(3)
    noisy = rng.normal(size=(12, 30)) + np.linspace(3, 0, 30)
    noisy[np.arange(30) % 12, np.arange(30)] = np.nan
    low, high = rank_intervals(noisy, np.arange(30))
    drawn = [np.nanmean(noisy[rng.integers(0, 12, 12)], axis=0) for _ in range(4000)]
    places = np.array([(-np.abs(d)).argsort().argsort() + 1 for d in drawn])
    expected = np.quantile(places, [0.05, 0.95], axis=0)
    assert np.abs(low - expected[0]).max() <= 3  # 200 draws stand for 4,000
    assert np.abs(high - expected[1]).max() <= 3
    assert np.abs(low - expected[0]).mean() < 1


def interrupted(make, after):
    """Return a make_model that is interrupted after it has made `after` models."""
    made = []

    def make_model(seed):
        if len(made) == after:
            raise KeyboardInterrupt
        made.append(seed)
        return make(seed)

    return make_model


def test_ctrl_c_keeps_the_finished_members():
    data = numbers()
    rows = data.X, data.y, data.X_test, data.y_test
    found = ensemble_influence(interrupted(light, 3), *rows, members=6)
    whole = ensemble_influence(light, *rows, members=6)
    assert len(found.members) == 3
    assert found.asked == 6
    assert found.title.endswith("averaged over 3 models of 6")
    assert found.advice.startswith("Interrupted after 3 of 6 members.")
    np.testing.assert_array_equal(found.changes, whole.changes[:3])
    assert np.isfinite(found.influence.values).all()
    assert found.confirm([1]).effects is not None
    for too_early in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            ensemble_influence(interrupted(light, too_early), *rows, members=6)
    with pytest.raises(KeyboardInterrupt):  # two bags of a third do not have all rows
        ensemble_influence(interrupted(light, 2), *rows, members=6, bag=0.34)


def test_ctrl_c_in_confirm(monkeypatch):
    data = numbers()
    found = ensemble_influence(
        light, data.X, data.y, data.X_test, data.y_test, members=4, reduce="mean"
    )
    whole = found.confirm([1, 2, 3])
    retrain = Tracer.retrain
    calls = []

    def stopped(self, *args, **more):
        calls.append(self)
        if len(calls) == limit:
            raise KeyboardInterrupt
        return retrain(self, *args, **more)

    monkeypatch.setattr(Tracer, "retrain", stopped)
    limit = 3
    part = found.confirm([1, 2, 3])
    assert "from 2 members" in part.advice
    assert part.effects["retrained"][0] != whole.effects["retrained"][0]
    calls.clear()
    limit = 1
    with pytest.raises(KeyboardInterrupt):
        found.confirm([1, 2, 3])


def test_views_of_the_average(tmp_path):
    data = frame("number")
    found = ensemble_influence(
        lambda seed: light(seed, min_child_samples=5),
        data.X,
        data.y,
        data.X_test,
        data.y_test,
        members=3,
    )
    assert found.influence.train_index.tolist() == data.X.index.tolist()
    groups = found.influence.by("kind", test_groups="kind")
    assert set(groups["group"]) == {"red", "green", "blue"}
    assert groups["rows"].sum() == 3 * len(data.y)
    assert found.influence.top(2)["train_row"].isin(data.X.index).all()
    found.influence.save(tmp_path / "mean.npz")
    np.testing.assert_array_equal(
        lt.Influence.load(tmp_path / "mean.npz").values, found.influence.values
    )
    harmful = found.top(5, "harmful")
    assert (harmful["loss_change_if_removed"] < 0).all()
    assert harmful["rank"].is_monotonic_increasing
    assert harmful["rank"].max() > 5
    assert found.title in found._repr_html_()


def test_goals_methods_and_outputs():
    data = numbers()
    square = lt.goals.Goal(lambda F: float(np.mean(F**2)), lambda F: 2 * F / len(F), name="square")
    found = ensemble_influence(light, data.X, data.y, data.X_test, members=3, of=square)
    plain = ensemble_influence(
        light, data.X, data.y, data.X_test, members=3, of=lambda F: 2 * F / len(F), reduce="sum"
    )
    np.testing.assert_allclose(found.influence.values, plain.influence.values, atol=1e-7)
    assert "on the square of all test rows" in found.title
    line = found.confirm([4, 5]).effects.iloc[0]
    of_gradient = plain.confirm([4, 5]).effects.iloc[0]
    before = np.mean([np.mean(member.model.predict(data.X_test) ** 2) for member in found.members])
    assert line["before"] == pytest.approx(before, rel=1e-6)
    assert np.isnan(of_gradient["before"])
    medians = {
        "make_model": lambda seed: light(seed, objective="l1"),
        "X": data.X[:90],
        "y": data.y[:90],
        "members": 3,
    }
    with pytest.raises(lt.UnsupportedModel, match="LeafRefit"):
        ensemble_influence(**medians, X_test=data.X_test, y_test=data.y_test)
    refits = ensemble_influence(
        **medians,
        X_test=data.X_test[:1],
        y_test=data.y_test[:1],
        method=lt.LeafRefit(),
        sample_weight=weights(90),
    )
    assert not refits.influence.derivative
    effects = refits.confirm([9], retrain=False).effects.iloc[
        0
    ]  # for a single row, the refit equals the prediction
    assert effects["predicted"] == pytest.approx(effects["refitted"], rel=1e-4, abs=1e-9)
    classes = three_classes(text=True)
    make = SETTINGS["XGBoost, three classes"][1]
    rows = classes.X, np.unique(classes.y, return_inverse=True)[1], classes.X_test
    with pytest.raises(lt.InvalidInput, match="output="):
        ensemble_influence(make, *rows, members=3, of="prediction")
    assert (
        ensemble_influence(make, *rows, members=3, of="prediction", output=1).influence.of
        == "prediction"
    )


def test_a_bag_of_one_class_that_the_library_refuses():
    """XGBoost itself raises an error of its own there, whose words are about codes of classes."""
    X = np.random.default_rng(0).normal(size=(12, 2))
    y = np.arange(12) // 6
    make = lambda seed: xgb.XGBClassifier(n_estimators=2, n_jobs=1, random_state=seed)  # noqa: E731
    with pytest.raises(lt.InvalidInput, match="has rows of 1 of 2 classes"):
        lt.ensemble_influence(make, X, y, X, y, members=30, bag=1 / 12, score_left_out=True)


def test_bad_arguments():
    data = numbers()
    rows = data.X, data.y, data.X_test, data.y_test
    for arguments, message in (
        ({"members": 1}, "2 or more"),
        ({"bag": 0.0}, "share up to 1"),
        ({"bag": 1.5}, "share up to 1"),
        ({"bag": 0.3, "members": 5}, r"members \* bag is 2 or more"),
        ({"sample_weight": np.ones(3)}, "sample_weight has 3 values"),
        ({"of": "gain"}, "of is 'gain'"),
        ({"reduce": "median"}, "reduce is 'median'"),
    ):
        with pytest.raises(lt.InvalidInput, match=message):
            ensemble_influence(light, *rows, **arguments)
    with pytest.raises(lt.InvalidInput, match="a function of a seed"):
        ensemble_influence(light(0), *rows)
    with pytest.raises(lt.InvalidInput, match=r"make_model\(0\) gave a dict, which has no fit"):
        ensemble_influence(lambda seed: {"seed": seed}, *rows)
    with pytest.raises(lt.InvalidInput, match="y has 3 values"):
        ensemble_influence(light, data.X, data.y[:3], data.X_test, data.y_test)
    with pytest.raises(lt.InvalidInput, match="X_test has no rows"):
        ensemble_influence(light, data.X, data.y, data.X_test[:0], data.y_test[:0])
    with pytest.raises(lt.InvalidInput, match="seeds 0 and 1 are the same"):
        ensemble_influence(lambda seed: light(0), *rows, bag=1.0)
    model = light(0)
    with pytest.raises(lt.InvalidInput, match="the same model twice"):
        ensemble_influence(lambda seed: model, *rows)
    found = ensemble_influence(light, *rows, members=3, reduce="mean")
    with pytest.raises(lt.InvalidInput, match="rows is empty"):
        found.confirm([])
    with pytest.raises(lt.InvalidInput, match="positions of training rows go from 0"):
        found.confirm([len(data.y)])
    with pytest.raises(lt.InvalidInput, match="y_test"):
        found.confirm([1], data.X_test)


def test_a_class_that_a_bag_lacks():
    data = three_classes(text=True)
    y = np.where(np.arange(len(data.y)) == 5, "rare", data.y)
    with pytest.raises(lt.InvalidInput, match="3 of 4 classes"):
        ensemble_influence(
            lambda seed: lgb.LGBMClassifier(**QUIET, n_estimators=2, random_state=seed),
            data.X, y, data.X_test, data.y_test, members=8,
        )  # fmt: skip
