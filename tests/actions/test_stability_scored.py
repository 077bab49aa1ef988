"""Members that also score the rows they left out, and bags that take turns, against a plain loop."""

import lightgbm as lgb
import numpy as np
import pytest
from boosters import numbers, three_classes, weights
from catboost import CatBoostRegressor
from xgboost import XGBRegressor

import leaftrace as lt
from leaftrace import ensemble_influence
from leaftrace._actions.stability import member_influence
from leaftrace._engine.refits_elsewhere import RefitsElsewhere


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


def values_by_hand(found, make, data, w, method, slopes, tests, refits):
    """Values (members, n, tests) of a plain loop, and whether a row is in the bag (members, n).

    With refits, they are means over three refits: of rows inside and of rows outside, brought to one size."""
    values = np.empty((len(found.members), len(data.y), tests))
    for k, member in enumerate(found.members):
        own = np.flatnonzero(member.bag)
        rest = np.flatnonzero(~member.bag)
        model = make(member.seed).fit(data.X[own], data.y[own], sample_weight=w[own])
        tracer = lt.Tracer(model, data.X[own], data.y[own], w[own], n_jobs=1)
        asked = {"method": method, "of": "prediction"}
        test = data.X_test[:tests], None
        values[k, own] = tracer.influence(*test, **asked).values
        if len(rest):
            new = data.X[rest], *test, data.y[rest]
            values[k, rest] = tracer.score_candidates(*new, **asked).values
        slopes[k] = np.ravel(model.predict(data.X_test[:tests])) - data.y_test[:tests]
        values[k] *= len(own) / len(data.y)
        if refits and len(rest):
            values[k] = refitted_by_hand(tracer, data, w, own, rest, slopes[k], tests, method)
    return values, np.array([member.bag for member in found.members])


def refitted_by_hand(tracer, data, w, own, rest, slopes, tests, method):
    """Return values (n, tests) of one member that is refitted on its rows, on the rest and on all."""
    n = len(data.y)
    elsewhere = RefitsElsewhere(tracer.engine, data.X[rest], data.y[rest], w[rest])
    order = np.concatenate([own, rest])
    test = data.X_test[:tests]
    asked = tracer.engine.queries(test, None, "prediction", None, None, None)[0]
    inside, outside = np.full((2, 3, n, tests), np.nan)
    for k, rows in enumerate([own, rest, np.arange(n)]):
        there = np.isin(order, rows)
        values = len(rows) / n * elsewhere.values(there, asked, test, method.temperature)
        inside[k, order[there]] = values[there]
        outside[k, order[~there]] = values[~there]
    inside, outside = np.nanmean(inside, axis=0), np.nanmean(outside, axis=0)
    size = np.abs(slopes) * np.sqrt((inside**2).mean(axis=0))
    scale = np.median(size / (np.abs(slopes) * np.sqrt((outside**2).mean(axis=0))))
    return (inside + scale * outside) / 2


@pytest.mark.parametrize(
    ("make", "given", "method", "weighted"),
    [
        (light, {"members": 8}, lt.StructureInfluence(0.25), True),
        (light, {"members": 8, "refits": False}, lt.StructureInfluence(0.25), True),
        (light, {"members": 8, "method": lt.LeafInfluence()}, lt.LeafInfluence(), True),
        (
            extreme,
            {"members": 8, "bag": (1.0, 0.5), "method": lt.StructureInfluence(0.5)},
            lt.StructureInfluence(0.5),
            False,
        ),
    ],
)
def test_rows_inside_and_outside_of_bags_count_alike(make, given, method, weighted):
    """The slopes of the loss, residuals here, are means over the members; a NumPy twin of the average."""
    data = numbers()
    n = len(data.y)
    w = weights(n) if weighted else np.ones(n)
    scored = {"score_left_out": True} if "method" in given else {}  # otherwise the default
    found = ensemble_influence(
        make,
        data.X,
        data.y,
        data.X_test[:3],
        data.y_test[:3],
        sample_weight=w if weighted else None,
        seed=3,
        n_jobs=1,
        **given,
        **scored,
    )
    slopes = np.empty((len(found.members), 3))
    refits = method != lt.LeafInfluence() and given.get("refits", True)
    values, inside = values_by_hand(found, make, data, w, method, slopes, 3, refits)
    values *= slopes.mean(axis=0)
    kinds = [np.where(mask[:, :, None], values, np.nan) for mask in (inside, ~inside)]
    own, left_out = (np.nanmean(kind, axis=0) for kind in kinds)
    scale = np.median(np.sqrt((own**2).mean(axis=0) / (left_out**2).mean(axis=0)))
    size = np.abs(own).max()
    assert found.left_out_scale == pytest.approx(scale, rel=1e-4)
    np.testing.assert_allclose(
        found.influence.values, (own + scale * left_out) / 2, atol=1e-5 * size
    )
    own_error, left_out_error = (
        np.nanstd(kind, axis=0, ddof=1) / np.sqrt((~np.isnan(kind)).sum(axis=0)) for kind in kinds
    )
    error = np.hypot(own_error, scale * left_out_error) / 2
    np.testing.assert_allclose(found.error, error, atol=1e-5 * size)
    changes = -w * (np.where(inside, 1, scale)[:, :, None] * values).mean(axis=2)
    np.testing.assert_allclose(found.changes, changes, atol=1e-5 * np.abs(changes).max())
    top = found.top(3)
    mean = -w * ((own + scale * left_out) / 2).mean(axis=1)
    np.testing.assert_allclose(
        top["loss_change_if_removed"], mean[np.asarray(top["position"])], rtol=1e-3
    )
    count = len(found.members)
    done = ", rows left out at weight zero"
    if refits:
        done = " refitted on three sets of rows each, values of rows inside and outside of them"
    assert found.influence.method.endswith(f"mean of {count} models{done}")
    kind = "trees fixed" if method == lt.LeafInfluence() else "soft splits"
    assert set(top["change_is"]) == {f"first order, {kind}"}


def three(seed):
    return lgb.LGBMClassifier(
        n_estimators=3, num_leaves=4, random_state=seed, verbosity=-1, num_threads=1
    )


def test_mean_slopes_of_several_classes_means_and_goals():
    """The mean over test rows is the mean of the columns, and a goal has the slopes of its gradient."""
    data = three_classes()
    rows = data.X, data.y, data.X_test[:5], data.y_test[:5]
    asked = {"members": 8, "n_jobs": 1}
    alone = asked | {"refits": False}  # each member's refits have a scale of their own
    columns = ensemble_influence(three, *rows, **alone)
    mean = ensemble_influence(three, *rows, reduce="mean", **alone)
    assert mean.influence.of == "loss"
    assert mean.influence.test_index.tolist() == ["mean"]
    # The two have other scales of rows left out: the median over columns, and that of the mean.
    ratio = mean.left_out_scale / columns.left_out_scale
    inside = np.array([member.bag for member in mean.members])
    np.testing.assert_allclose(
        mean.changes,
        np.where(inside, 1, ratio) * columns.changes,
        atol=1e-5 * np.abs(mean.changes).max(),
    )
    truth = (data.y_test[:5, None] == np.unique(data.y)).astype(float)
    loss = lt.goals.Goal(
        lambda F: -float((F[truth == 1] - np.log(np.exp(F).sum(axis=1))).mean()),
        lambda F: (np.exp(F) / np.exp(F).sum(axis=1, keepdims=True) - truth) / len(F),
        name="log loss",
    )
    mean = ensemble_influence(three, *rows, reduce="mean", **asked)
    goal = ensemble_influence(three, *rows[:3], of=loss, **asked)
    assert goal.influence.of == "log loss"
    np.testing.assert_allclose(
        goal.influence.values,
        mean.influence.values,
        atol=1e-5 * np.abs(mean.influence.values).max(),
    )


def test_splits_that_cannot_give_way_are_held_fixed():
    """The default is then LeafInfluence of the rows in bags, and the advice says so."""
    data = numbers()
    rows = data.X, data.y, data.X_test[:2], data.y_test[:2]
    make = lambda seed: light(seed).set_params(extra_trees=True)  # noqa: E731
    found = ensemble_influence(make, *rows, members=6, n_jobs=1)
    assert "Splits are held fixed: " in found.advice
    assert set(found.top(3)["change_is"]) == {"first order, trees fixed"}
    plain = ensemble_influence(make, *rows, members=6, n_jobs=1, method=lt.LeafInfluence())
    np.testing.assert_array_equal(found.influence.values, plain.influence.values)
    with pytest.raises(lt.UnsupportedModel, match="extra_trees"):
        ensemble_influence(make, *rows, members=6, n_jobs=1, method=lt.StructureInfluence())


def test_models_that_draw_rows_anew_are_not_refitted():
    """What they would have drawn of other rows is not known; the advice says so."""
    data = numbers()
    rows = data.X, data.y, data.X_test[:2], data.y_test[:2]
    make = lambda seed: light(seed).set_params(subsample=0.7, subsample_freq=1)  # noqa: E731
    found = ensemble_influence(make, *rows, members=6, n_jobs=1)
    assert "Trees are not refitted on other rows: these models drew or weighed rows" in found.advice
    plain = ensemble_influence(make, *rows, members=6, n_jobs=1, refits=False)
    np.testing.assert_array_equal(found.influence.values, plain.influence.values)
    assert "refitted" not in plain.advice
    with pytest.raises(lt.UnsupportedModel, match="refits=True is not possible: these models"):
        ensemble_influence(make, *rows, members=6, n_jobs=1, refits=True)


def test_members_whose_values_grow_without_end_are_calmed():
    """Large steps on few rows: with choices as sharp as by default, values are thousands of times too large."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 5))
    y = X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=240)

    def make(seed):
        return CatBoostRegressor(
            iterations=15,
            grow_policy="Lossguide",
            bootstrap_type="No",
            random_seed=seed,
            verbose=0,
            thread_count=1,
        )

    asked = {"members": 6, "reduce": "mean", "n_jobs": 1}
    found = ensemble_influence(make, X, y, X[:6], y[:6], **asked)
    assert "held fixed, for this reason: values were more than 10 times as large" in found.advice
    fixed = ensemble_influence(make, X, y, X[:6], y[:6], **asked, method=lt.LeafInfluence())
    size = np.sqrt((fixed.influence.values**2).mean())
    assert np.sqrt((found.influence.values**2).mean()) < 10 * size
    sharp = {"method": lt.StructureInfluence(0.25), "refits": False, "score_left_out": True}
    wild = ensemble_influence(make, X, y, X[:6], y[:6], **asked, **sharp)
    assert np.sqrt((wild.influence.values**2).mean()) > 100 * size
    asked["of"] = "prediction"
    found = ensemble_influence(make, X, y, X[:6], **asked)
    wild = ensemble_influence(make, X, y, X[:6], **asked, **sharp)
    lines = [some.confirm([0, 1, 2], retrain=False).effects.iloc[0] for some in (found, wild)]
    calm, sharp = (abs(line["predicted"] / line["refitted"]) for line in lines)
    assert calm < 2
    assert sharp > 20


def test_members_that_cannot_be_calmed_have_fixed_trees(monkeypatch):
    monkeypatch.setattr(member_influence, "MOST_GROWTH", 1e-9)
    data = numbers()
    rows = data.X, data.y, data.X_test[:2], data.y_test[:2]
    found = ensemble_influence(light, *rows, members=6, n_jobs=1)
    assert "6 of 6 members are not refitted on other rows, or" in found.advice
    fixed = {"method": lt.LeafInfluence(), "score_left_out": True}
    plain = ensemble_influence(light, *rows, members=6, n_jobs=1, **fixed)
    np.testing.assert_array_equal(found.influence.values, plain.influence.values)


def test_members_that_cannot_be_refitted_say_why(monkeypatch):
    def fail(self, *asked):
        raise lt.LeaftraceError("there is no room for them.")

    monkeypatch.setattr(RefitsElsewhere, "values", fail)
    data = numbers()
    rows = data.X, data.y, data.X_test[:2], data.y_test[:2]
    found = ensemble_influence(light, *rows, members=6, n_jobs=1)
    assert found.advice.endswith("for this reason: there is no room for them.")
    monkeypatch.undo()
    plain = ensemble_influence(light, *rows, members=6, n_jobs=1, refits=False)
    np.testing.assert_array_equal(found.influence.values, plain.influence.values)


def test_wrong_questions_are_refused_before_the_second_training():
    data = numbers()
    seeds = []

    def make(seed):
        seeds.append(seed)
        return light(seed)

    with pytest.raises(lt.InvalidInput, match="of is 'gain'"):
        ensemble_influence(make, data.X, data.y, data.X_test, data.y_test, of="gain")
    assert seeds == [0]


@pytest.mark.parametrize("n", [60, 61])
def test_four_members_suffice(n):
    """Every row is in two of the bags and left out of two, also if halves are not whole."""
    data = numbers()
    rows = data.X[:n], data.y[:n], data.X_test
    make = lambda seed: light(seed).set_params(min_child_samples=5)  # noqa: E731
    found = ensemble_influence(make, *rows, members=4, of="prediction")
    inside = np.array([member.bag for member in found.members])
    assert inside.sum(axis=0).tolist() == [2] * n
    assert np.isfinite(found.error).all()
    assert "refitted on three sets" in found.influence.method


def test_bags_in_turn_without_left_out_rows():
    """A row has the mean over the members that have it."""
    data = numbers()
    test = data.X_test[:2], data.y_test[:2]
    found = ensemble_influence(
        light, data.X, data.y, *test, members=4, bag=[1.0, 0.5], n_jobs=1, score_left_out=False
    )
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
        ({"method": lt.LeafInfluence(), "refits": True}, "refits=True is for rows left out"),
        ({"score_left_out": False, "refits": True}, "refits=True is for rows left out"),
        ({"bag": ()}, "every row must be in two bags"),
        ({"bag": (1.0, 0.0)}, "every row must be in two bags"),
        ({"bag": (0.5, 0.4), "score_left_out": False}, "every row must be in two bags"),
        ({"bag": (1.0, 0.5)}, "every row must be left out of two bags"),
    ],
)
def test_what_cannot_be_asked(more, words):
    data = numbers()
    asked = {"X_test": data.X_test, "y_test": data.y_test, "score_left_out": True, **more}
    with pytest.raises(lt.InvalidInput, match=words):
        ensemble_influence(light, data.X, data.y, members=4, **asked)


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
