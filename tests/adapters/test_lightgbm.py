"""LightGBM: refusals, files, parameters, rows drawn at random, retraining, tables by name.

test_contract.py tests the numbers of every setting."""

import warnings

import lightgbm as lgb
import numpy as np
import pytest
from boosters import binary, frame, numbers, three_classes, weights
from cases_lightgbm import CASES, SMALL, raw
from lightgbm_formulas import VERSION
from raw_scores import raw_scores
from scipy import sparse

import leaftrace as lt
from leaftrace._adapters.lightgbm import calls, prediction

NUMBERS = numbers()
BINARY = binary()
CLASSES = three_classes()
MULTICLASS = {"objective": "multiclass", "num_class": 3}


def train(data=NUMBERS, rounds=10, weight=None, init_score=None, **settings):
    return lgb.train(
        {**SMALL, **settings},
        lgb.Dataset(data.X, data.codes, weight=weight, init_score=init_score),
        rounds,
    )


def traced(data=NUMBERS, rounds=10, weight=None, **settings):
    model = train(data, rounds, weight, **settings)
    return lt.Tracer(model, data.X, data.codes, weight, dtype="float64")


def saved(model, folder):
    path = folder / "model.txt"
    model.save_model(path)
    return path


def test_two_lines():
    """Default estimators, on a table with missing values, categories and class names."""
    for kind, target in ((lgb.LGBMClassifier, "class"), (lgb.LGBMRegressor, "number")):
        data = frame(target, many=True)
        model = kind(verbose=-1, n_jobs=1).fit(data.X, data.y)
        tracer = lt.Tracer(model, data.X, data.y)
        table = tracer.influence(data.X_test, data.y_test).top(3)
        assert tracer.fidelity.max_error < 1e-12
        assert set(table["train_row"]) <= set(data.X.index)


# ---- refusals ----


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (NUMBERS, {"linear_tree": True, "path_smooth": 2.0}, "linear_tree=False"),
        (NUMBERS, {"min_gain_to_split": 1e9}, "no splits"),
    ],
)
def test_refused_settings(data, settings, message):
    model = train(data, 3, **settings)
    with pytest.raises(lt.UnsupportedModel, match=message):
        lt.Tracer(model, data.X, data.codes)


def test_relative_errors_with_a_first_row_of_weight_zero():
    """Searching by columns, LightGBM then finds no split; in another order or by rows it does.

    Left to itself, it takes whichever of the two searches is faster on the machine of the moment.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.exp(rng.uniform(0, 4, 200))
    w = np.where(np.arange(200) % 2, rng.uniform(0.5, 2, 200), 0.0)
    settings = {"objective": "mape", "min_data_in_leaf": 2, "verbosity": -1, "num_threads": 1}

    def opened(order, search):
        data = lgb.Dataset(X[order], y[order], weight=w[order])
        model = lgb.train({**settings, search: True}, data, 5)
        return lt.Tracer(model, X[order], y[order], w[order])

    first_is_zero = np.arange(200)
    with pytest.raises(lt.UnsupportedModel, match="put a row of another weight first"):
        opened(first_is_zero, "force_col_wise")
    assert opened(first_is_zero[::-1], "force_col_wise").fidelity.exact
    assert opened(first_is_zero, "force_row_wise").fidelity.exact


def test_intensities_are_refused():
    data = numbers("fractions")
    rows = lgb.Dataset(data.X, data.y, weight=np.full(len(data.y), 2.0))
    model = lgb.train({**SMALL, "objective": "cross_entropy_lambda"}, rows, 2)
    with pytest.raises(lt.UnsupportedModel, match=r"intensities .* train without them"):
        lt.Tracer(model, data.X, data.y, np.full(len(data.y), 2.0))


def test_what_is_no_fitted_model():
    with pytest.raises(lt.UnsupportedModel, match="LGBMRegressor is not fitted; call fit"):
        lt.Tracer(lgb.LGBMRegressor(), NUMBERS.X, NUMBERS.y)
    folds = lgb.cv(
        SMALL,
        lgb.Dataset(NUMBERS.X, NUMBERS.y),
        2,
        nfold=2,
        stratified=False,
        return_cvbooster=True,
    )
    with pytest.raises(
        lt.UnsupportedModel, match=r"CVBooster is not a LightGBM model; .*Tracer.of_folds"
    ):
        lt.Tracer(folds["cvbooster"], NUMBERS.X, NUMBERS.y)


def test_a_class_without_rows_is_refused():
    few = CLASSES.codes < 2
    model = lgb.train({**SMALL, **MULTICLASS}, lgb.Dataset(CLASSES.X[few], CLASSES.codes[few]), 3)
    with pytest.raises(lt.UnsupportedModel, match="a class has no training rows"):
        lt.Tracer(model, CLASSES.X[few], CLASSES.codes[few])


def test_labels_are_checked():
    model = train(BINARY, objective="binary")
    with pytest.raises(lt.InvalidInput, match=r"label\(s\) -1.0 .* its classes are 0, 1"):
        lt.Tracer(model, BINARY.X, 2 * BINARY.codes - 1)
    counts = numbers("counts")
    tracer = lt.Tracer(train(counts, objective="poisson"), counts.X, counts.y)
    with pytest.raises(lt.InvalidInput, match="from 0 to inf"):
        tracer.influence(counts.X_test, -counts.y_test - 1)
    with pytest.raises(lt.InvalidInput, match="y_train is missing"):
        lt.Tracer(model, BINARY.X)


# ---- files and parameters ----


def test_a_file_is_the_model(tmp_path):
    """A file gives the same model, also with categories, whose names it stores."""
    data = frame(many=True)
    model = lgb.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1).fit(data.X, data.y)
    path = saved(model.booster_, tmp_path)
    codes = data.codes.astype(int)
    test_codes = data.test_codes.astype(int)
    file = lt.Tracer(path, data.X, codes)
    one = lt.Tracer(model, data.X, data.y).influence(data.X_test, data.y_test)
    assert "Booster" in repr(file)
    np.testing.assert_array_equal(file.influence(data.X_test, test_codes).values, one.values)


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_a_broken_file(tmp_path, damage):
    """LightGBM itself reads a file with zeros for ever."""
    path = saved(train(), tmp_path)
    text = path.read_text()
    zeros = text.replace("[first_metric_only: 0]\n[", "[first_metric_only: \0\0\0\0")
    assert zeros != text
    path.write_text(text[:2000] if damage == "cut" else zeros)
    with pytest.raises(
        lt.UnsupportedModel, match="cannot be read as a LightGBM model; is the file whole"
    ):
        lt.Tracer(path, NUMBERS.X, NUMBERS.codes)


@pytest.mark.parametrize(
    ("data", "settings", "bound"),
    [
        (
            NUMBERS,
            {"learning_rate": 0.0371829456, "lambda_l2": 1.23456789, "lambda_l1": 0.0123456789},
            1e-12,
        ),
        (NUMBERS, {"objective": "quantile", "learning_rate": 0.123456789, "alpha": 0.3}, 1e-12),
        (BINARY, {"objective": "binary", "scale_pos_weight": 2.3456789012}, 1e-7),
        (CLASSES, {**MULTICLASS, "learning_rate": 0.0912345678}, 1e-12),
    ],
)
def test_digits_that_a_file_lacks(tmp_path, data, settings, bound):
    """Files store six digits of parameters; the others are recovered from leaf values."""
    w = weights(len(data.codes))
    model = train(data, weight=w, **settings)
    live, file = (lt.Tracer(m, data.X, data.codes, w) for m in (model, saved(model, tmp_path)))
    assert live.fidelity.max_error <= 1e-12
    assert file.fidelity.max_error <= bound, file.fidelity.verdict
    assert "recovered from the leaf values, as files keep six digits" in file.fidelity.verdict
    assert "recovered" not in live.fidelity.verdict
    for name, value in settings.items():
        if isinstance(value, float):
            assert file.engine.source.params[name] == pytest.approx(value, rel=1e-7)


def test_parameters_can_be_given(tmp_path):
    model = train(learning_rate=0.0371829456)
    path = saved(model, tmp_path)
    given = lt.Tracer(path, NUMBERS.X, NUMBERS.codes, params={"learning_rate": 0.0371829456})
    assert "recovered" not in given.fidelity.verdict
    assert given.fidelity.max_error <= 1e-12
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, NUMBERS.X, NUMBERS.codes, params={"learning_rate": 0.05})
    with pytest.raises(
        lt.InvalidInput, match=r"params has eta, .* its parameters are .*learning_rate"
    ):
        lt.Tracer(model, NUMBERS.X, NUMBERS.codes, params={"eta": 0.05})


def test_wrong_rows_are_noticed():
    model = train()
    with pytest.raises(lt.FidelityError, match="was trained on 422 rows, here are 421"):
        lt.Tracer(model, NUMBERS.X[:-1], NUMBERS.codes[:-1])
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, NUMBERS.X, NUMBERS.codes, weights(len(NUMBERS.codes)))


def test_rows_of_weight_zero_count():
    """Rows of weight zero count in leaf_count but not in leaf values."""
    w = weights(len(NUMBERS.codes))
    w[[3, 50, 51]] = 0
    tracer = traced(weight=w)
    assert tracer.fidelity.max_error <= 1e-12
    assert np.all(
        tracer.influence(NUMBERS.X_test, NUMBERS.y_test, method=lt.LeafRefit(), rows=[3, 50]).values
        == 0
    )


# ---- rows drawn at random ----


def test_sampling_is_confirmed_and_can_be_refuted():
    for settings in (
        {"bagging_fraction": 0.6, "bagging_freq": 1},
        {"data_sample_strategy": "goss"},
    ):
        model = train(learning_rate=0.3, **settings)
        tracer = lt.Tracer(model, NUMBERS.X, NUMBERS.codes)
        assert "confirmed by the number of rows in every leaf" in tracer.fidelity.verdict
        assert tracer.fidelity.max_error <= 1e-12
        with pytest.raises(lt.FidelityError) as error:
            lt.Tracer(model, NUMBERS.X, NUMBERS.codes, params={"bagging_seed": 11})
        assert "confirmed" not in str(error.value)


def test_bags_that_left_no_tree():
    """An iteration without a split draws rows and leaves no tree; the replay must draw them too."""
    model = train(rounds=60, bagging_fraction=0.3, bagging_freq=1, min_gain_to_split=22)
    assert 3 < model.num_trees() < 50
    assert lt.Tracer(model, NUMBERS.X, NUMBERS.codes).fidelity.max_error <= 1e-12


def first_tree_unsplit(make):
    """Return the model of the first seed whose first tree has no split, while later ones have."""
    for seed in range(20):
        model = make(seed)
        leaves = [tree["num_leaves"] for tree in model.dump_model()["tree_info"]]
        if leaves[0] == 1 and leaves[-1] > 1:
            return model
    raise AssertionError("no such model")


# Half of the bags are too small for two leaves.
SMALL_BAGS = {"bagging_fraction": 0.5, "min_data_in_leaf": 104}


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (NUMBERS, {}),
        (NUMBERS, {"objective": "quantile", "boost_from_average": False}),
        (BINARY, {"objective": "binary", "min_data_in_leaf": 136}),
        (CLASSES, {**MULTICLASS, "min_data_in_leaf": 38}),
        (NUMBERS, {"boosting": "rf"}),
    ],
)
@pytest.mark.parametrize("frequency", [1, 2, 3])
def test_bags_after_a_first_tree_without_split(data, settings, frequency):
    """Such a tree is no iteration to LightGBM, except in a forest, so later bags are drawn later."""
    more = {**SMALL_BAGS, **settings, "bagging_freq": frequency}
    model = first_tree_unsplit(lambda seed: train(data, 30, bagging_seed=seed, **more))
    tracer = lt.Tracer(model, data.X, data.codes)
    assert tracer.fidelity.max_error <= 1e-12
    assert "rows of each tree drawn again" in tracer.fidelity.verdict


def test_other_labels_that_show_in_the_starting_score_alone():
    """The first tree is that score, and all later leaves have the largest step, for any labels."""
    more = {**SMALL_BAGS, "bagging_freq": 1, "max_delta_step": 1e-4}
    model = first_tree_unsplit(lambda seed: train(rounds=30, bagging_seed=seed, **more))
    assert lt.Tracer(model, NUMBERS.X, NUMBERS.codes).fidelity.exact
    with pytest.raises(lt.FidelityError, match="starting score"):
        lt.Tracer(model, NUMBERS.X, NUMBERS.codes + 0.1)


def test_goss_after_a_first_tree_without_split():
    """GOSS starts to draw rows an iteration later; random columns decide whether a tree splits."""
    more = {"data_sample_strategy": "goss", "feature_fraction": 0.1, "min_gain_to_split": 20}
    model = first_tree_unsplit(
        lambda seed: train(rounds=40, feature_fraction_seed=seed, learning_rate=0.3, **more)
    )
    assert model.num_trees() > 4  # the first three iterations take all rows
    assert lt.Tracer(model, NUMBERS.X, NUMBERS.codes).fidelity.max_error <= 1e-12


def test_dart_after_a_first_tree_without_split_is_refused():
    more = {**SMALL_BAGS, "boosting": "dart", "bagging_freq": 1}
    model = first_tree_unsplit(lambda seed: train(rounds=20, bagging_seed=seed, **more))
    with pytest.raises(lt.UnsupportedModel, match="first tree of this DART model has no split"):
        lt.Tracer(model, NUMBERS.X, NUMBERS.codes)


def test_dart_that_failed_while_trees_were_dropped_is_refused():
    """LightGBM finds no split and leaves the trees that it had dropped with the opposite sign."""
    settings = {**SMALL, "objective": "regression_l1", "lambda_l1": 0.1, "min_data_in_leaf": 3}
    settings |= {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0, "num_leaves": 3}
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    y = np.exp(X[:, 0])
    model = lgb.train(settings, lgb.Dataset(X, y), 300)
    wrong = sum(tree["shrinkage"] < 0 for tree in model.dump_model()["tree_info"])
    assert wrong > 0
    with pytest.raises(lt.UnsupportedModel, match=f"left {wrong} of its .* with the opposite sign"):
        lt.Tracer(model, X, y)


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
def test_goss_draws_by_thread(threads):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = X[:, 0] + rng.normal(size=3000)
    model = lgb.train(
        {**SMALL, "data_sample_strategy": "goss", "learning_rate": 0.5, "num_threads": threads},
        lgb.Dataset(X, y),
        6,
    )
    tracer = lt.Tracer(model, X, y)
    assert tracer.fidelity.max_error <= 1e-12
    assert "confirmed" in tracer.fidelity.verdict


def test_bags_of_many_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = X[:, 0] + rng.normal(size=3000)
    model = lgb.train({**SMALL, "bagging_fraction": 0.4, "bagging_freq": 2}, lgb.Dataset(X, y), 6)
    assert lt.Tracer(model, X, y).fidelity.max_error <= 1e-12


def test_goss_of_weighted_rows():
    """LightGBM rounds the terms of weighted rows to float32 twice, the replay once."""
    tracer = traced(
        weight=weights(len(NUMBERS.codes)), data_sample_strategy="goss", learning_rate=0.3
    )
    assert tracer.fidelity.max_error <= 1e-6
    assert "confirmed" in tracer.fidelity.verdict


@pytest.mark.parametrize("limit", [2, 0, -1])
def test_dart_drops_at_most(limit):
    tracer = traced(boosting="dart", drop_rate=0.6, skip_drop=0.1, max_drop=limit)
    assert tracer.fidelity.max_error <= 1e-12


def test_a_forest_with_trees_without_splits():
    """The first is zero, later ones have the value of all their rows; none holds the starting score."""
    model = train(
        boosting="rf", bagging_fraction=0.6, bagging_freq=1, min_gain_to_split=80, rounds=12
    )
    leaves = [tree["num_leaves"] for tree in model.dump_model()["tree_info"]]
    assert min(leaves) == 1 < max(leaves)
    tracer = lt.Tracer(model, NUMBERS.X, NUMBERS.codes)
    assert tracer.fidelity.max_error <= 1e-12
    refitted = tracer.refit(without=[])
    np.testing.assert_allclose(
        refitted.predict(NUMBERS.X_test), model.predict(NUMBERS.X_test), atol=1e-12
    )


def test_a_tree_without_splits_follows_its_rows():
    """Such a tree of a forest is the mean residual of the rows it drew; the replay took it for a constant."""
    y = NUMBERS.codes
    settings = {"boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1}
    model = train(min_gain_to_split=80, rounds=6, **settings)
    trees = [tree["tree_structure"] for tree in model.dump_model()["tree_info"]]
    t = next(t for t, tree in enumerate(trees) if t and "leaf_value" in tree)
    tracer = lt.Tracer(model, NUMBERS.X, y, dtype="float64")
    e = tracer.engine.ensemble
    rows = np.asarray(e.sample[t]) > 0
    found = (y - y.mean())[rows].mean()
    assert trees[t]["leaf_value"] == pytest.approx(found, rel=1e-6)  # of float32 labels
    gone = np.flatnonzero(rows)[:3]
    rest = np.delete(np.arange(len(y)), gone)
    moved = (y - y[rest].mean())[np.setdiff1d(np.flatnonzero(rows), gone)].mean()
    assert abs(moved - found) > 1e-3
    refitted = tracer.refit(without=gone)
    np.testing.assert_allclose(refitted.ensemble.values[e.leaf_range(t)], [[moved]], rtol=1e-6)
    np.testing.assert_allclose(
        refitted.model.predict(NUMBERS.X_test), refitted.predict(NUMBERS.X_test), rtol=1e-9
    )


def test_a_forest_of_quantiles_with_trees_without_splits_is_refused():
    more = {**SMALL_BAGS, "boosting": "rf", "bagging_freq": 1, "objective": "quantile"}
    model = first_tree_unsplit(lambda seed: train(rounds=30, bagging_seed=seed, **more))
    with pytest.raises(lt.UnsupportedModel, match="a step along the gradient, while other leaves"):
        lt.Tracer(model, NUMBERS.X, NUMBERS.codes)


def test_a_forest_with_trees_without_splits_in_some_classes():
    """Without starting scores; with them, the trees of a step would differ in what they hold."""
    forest = MULTICLASS | {
        "boosting": "rf",
        "bagging_fraction": 0.6,
        "bagging_freq": 1,
        "min_gain_to_split": 30,
    }
    model = train(CLASSES, 4, boost_from_average=False, **forest)
    is_single = [tree["num_leaves"] == 1 for tree in model.dump_model()["tree_info"]]
    steps = np.reshape(is_single, (4, 3))
    assert np.any(steps.any(axis=1) & ~steps.all(axis=1))
    tracer = lt.Tracer(model, CLASSES.X, CLASSES.codes)
    assert tracer.fidelity.max_error <= 1e-12
    refitted = tracer.refit(without=[])
    np.testing.assert_allclose(
        refitted.predict(CLASSES.X_test), model.predict(CLASSES.X_test), atol=1e-12
    )
    with pytest.raises(lt.UnsupportedModel, match="boost_from_average=False"):
        traced(CLASSES, 4, **forest)


def test_a_forest_predicts_the_mean():
    model = train(BINARY, objective="binary", boosting="rf", feature_fraction=0.5, rounds=7)
    tracer = lt.Tracer(model, BINARY.X, BINARY.codes)
    p = 1 / (1 + np.exp(-raw_scores(tracer.refit(without=[]), BINARY.X_test)))
    np.testing.assert_allclose(p, model.predict(BINARY.X_test), atol=1e-12)


# ---- leaves ----


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (NUMBERS, {}),
        (BINARY, {"objective": "binary", "lambda_l1": 0.2, "max_delta_step": 0.8}),
        (CLASSES, MULTICLASS),
        (numbers("counts"), {"objective": "poisson", "lambda_l2": 0.5}),
        (NUMBERS, {"bagging_fraction": 0.6, "bagging_freq": 1}),
        (NUMBERS, {"boosting": "dart"}),
        (NUMBERS, {"objective": "regression_l1"}),
    ],
)
def test_path_smooth_of_weighted_rows(data, settings):
    """LightGBM smooths by estimates of the number of rows, which are found from its outputs."""
    tracer = traced(data, weight=weights(len(data.codes)), path_smooth=3.0, **settings)
    assert tracer.fidelity.max_error <= 1e-12


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (NUMBERS, {"path_smooth": 0.1}),
        (BINARY, {"path_smooth": 5.0, "objective": "binary", "lambda_l2": 1}),
        (CLASSES, MULTICLASS | {"path_smooth": 1.0, "lambda_l2": 1}),
    ],
)
def test_path_smooth_with_goss(data, settings, weighted):
    """Terms times the factor of GOSS are rounded again; otherwise several numbers of rows seem to fit."""
    weight = weights(len(data.codes)) if weighted else None
    goss = {"data_sample_strategy": "goss", "top_rate": 0.1, "other_rate": 0.2}
    fast = {"learning_rate": 0.3, "min_data_in_leaf": 2}
    assert traced(data, weight=weight, **settings, **goss, **fast).fidelity.max_error <= 1e-9


def test_update_sets_of_smoothed_trees():
    """Next to no smoothing changes nothing, also not which leaves are in an update set."""
    settings = MULTICLASS | {"min_data_in_leaf": 8, "lambda_l2": 1.0}
    values = [
        traced(CLASSES, path_smooth=smooth, **settings)
        .influence(
            CLASSES.X_test, CLASSES.test_codes, method=lt.LeafInfluence(lt.TopKLeaves(2)), rows=range(8)
        )
        .values
        for smooth in (0.0, 1e-9)
    ]  # fmt: skip
    np.testing.assert_allclose(values[1], values[0], atol=1e-6 * np.abs(values[0]).max())


def test_trees_without_splits():
    """The leaf is zero for any rows if there is one class only."""
    model = train(CLASSES, min_gain_to_split=12, **MULTICLASS)
    leaves = [tree["num_leaves"] for tree in model.dump_model()["tree_info"]]
    assert min(leaves) == 1
    tracer = lt.Tracer(model, CLASSES.X, CLASSES.codes, dtype="float64")
    assert tracer.fidelity.max_error <= 1e-12
    found = raw_scores(tracer.refit(without=[]), CLASSES.X_test)
    np.testing.assert_allclose(found, model.predict(CLASSES.X_test, raw_score=True), atol=1e-12)


def test_square_roots():
    """Scores are square roots with reg_sqrt, and losses are in the unit of the labels."""
    data = numbers("positive")
    tracer = traced(data, reg_sqrt=True)
    assert tracer.fidelity.max_error <= 1e-12
    F = raw_scores(tracer.refit(without=[]), data.X_test)
    np.testing.assert_allclose(
        tracer.refit(without=[]).loss(data.X_test, data.y_test),
        (np.sign(F) * F**2 - data.y_test) ** 2 / 2,
        atol=1e-12,
    )


def test_refitted_models():
    """Booster.refit(decay_rate=0) gives a model of the new rows; with decay, of old and new rows."""
    model = train(lambda_l2=0.5)
    rows = slice(0, 200)
    w = weights(200)
    X = NUMBERS.X[rows]
    y = NUMBERS.codes[rows]
    again = model.refit(X, y, decay_rate=0.0, weight=w)
    tracer = lt.Tracer(again, X, y, w)
    assert tracer.fidelity.max_error <= 1e-12
    assert "Booster.refit(decay_rate=0)" in tracer.fidelity.verdict
    found = raw_scores(tracer.refit(without=[]), NUMBERS.X_test)
    np.testing.assert_allclose(found, again.predict(NUMBERS.X_test), atol=1e-12)
    with pytest.raises(lt.UnsupportedModel, match="trace the model it was made of"):
        tracer.retrain(without=[1])
    decayed = model.refit(X, y, decay_rate=0.5, weight=w)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(decayed, X, y, w)
    tracer = lt.Tracer(decayed, X, y, w, params={"refit_from": model})
    assert tracer.fidelity.max_error <= 1e-12
    assert "Booster.refit(decay_rate=0.5)" in tracer.fidelity.verdict
    with pytest.raises(lt.InvalidInput, match="a model with other trees"):
        lt.Tracer(decayed, X, y, w, params={"refit_from": train(num_leaves=5)})


def test_refitted_models_with_a_starting_score():
    """The first tree, which held it, has a rate of its own, also if the user gives that of the others."""
    settings = {"objective": "binary", "learning_rate": 0.2, "num_leaves": 5, "verbosity": -1}
    model = lgb.train(settings, lgb.Dataset(BINARY.X, BINARY.codes), 4)
    keep = np.arange(5, len(BINARY.codes))
    again = model.refit(BINARY.X, BINARY.codes, decay_rate=0.0)
    tracer = lt.Tracer(again, BINARY.X, BINARY.codes, params=settings)
    without = model.refit(BINARY.X[keep], BINARY.codes[keep], decay_rate=0.0)
    np.testing.assert_allclose(
        tracer.refit(without=np.arange(5)).scores(BINARY.X_test).ravel(),
        without.predict(BINARY.X_test, raw_score=True),
        atol=1e-12,
    )


def test_refitted_trees_of_one_leaf():
    """LightGBM leaves them out of the scores of the next trees, so a refit of ours would differ."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.where(X[:, 0] > 0.3, 1, 0)
    y[:4] = 2  # too few rows for a split
    settings = {"objective": "multiclassova", "num_class": 3, "num_leaves": 4, "verbosity": -1}
    settings["min_sum_hessian_in_leaf"] = 6.0
    model = lgb.train(settings, lgb.Dataset(X, y), 3)
    trees = [tree["num_leaves"] for tree in model.dump_model()["tree_info"]]
    assert trees[2] == 1 < max(trees)
    with pytest.raises(lt.UnsupportedModel, match="has no split"):
        lt.Tracer(model.refit(X, y, decay_rate=0.0), X, y)


@pytest.mark.skipif(VERSION < (4, 6), reason="fails checks of its own")
@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (BINARY, {"objective": "binary", "num_grad_quant_bins": 16, "seed": 5}),
        (CLASSES, MULTICLASS),
        (frame("number", many=True), {"stochastic_rounding": False}),
    ],
)
def test_quantised_gradients(data, settings):
    tracer = traced(data, use_quantized_grad=True, **settings)
    assert tracer.fidelity.max_error <= 1e-12
    assert "rounded again as in training" in tracer.fidelity.verdict
    bags = {"bagging_freq": 1, "bagging_fraction": 0.5}
    model = train(data, 2, use_quantized_grad=True, **settings, **bags)
    with pytest.raises(lt.UnsupportedModel, match="quant_train_renew_leaf=True"):
        lt.Tracer(model, data.X, data.codes)


def test_outputs_that_smoothing_swaps():
    """LightGBM looks at the order of two outputs before it smooths them, and then they may swap."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(900, 5))
    y = (X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=900) > 0).astype(float)
    params = {**SMALL, "objective": "binary", "num_leaves": 20, "min_data_in_leaf": 20}
    params |= {"monotone_constraints": [1, -1, 0, 0, 0], "path_smooth": 10.0}
    model = lgb.train(params, lgb.Dataset(X, y), 7)
    tracer = lt.Tracer(model, X, y)
    assert tracer.fidelity.max_error <= 1e-12


# ---- tables ----


def test_columns_go_by_name():
    data = frame(many=True)
    X = data.X.rename(columns={"a": "the first"})  # LightGBM calls it the_first
    model = lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, data.y)
    tracer = lt.Tracer(model, X[X.columns[::-1]], data.y)
    test = data.X_test.rename(columns={"a": "the first"})
    one = tracer.influence(test, data.y_test).values
    np.testing.assert_array_equal(
        tracer.influence(test[test.columns[[3, 1, 2, 0, 5, 4]]], data.y_test).values, one
    )
    with pytest.raises(lt.InvalidInput, match=r"X lacks the column\(s\) 'town'"):
        tracer.influence(test.drop(columns="town"), data.y_test)
    with pytest.raises(lt.InvalidInput, match="X has 5 columns, but the model was trained on 6"):
        tracer.influence(np.zeros((2, 5)), data.y_test[:2])
    with pytest.raises(
        lt.InvalidInput, match=r"LightGBM cannot read these rows: .*categorical_feature"
    ):
        tracer.influence(test.assign(kind="red"), data.y_test)
    with pytest.raises(lt.InvalidInput, match="no rows"):
        tracer.influence(test.iloc[:0], data.y_test[:0])


def test_a_frame_for_a_model_of_arrays():
    import pandas as pd

    model = train()
    X = pd.DataFrame(NUMBERS.X, columns=list("abcdefghij"))
    assert lt.Tracer(model, X, NUMBERS.codes).fidelity.exact
    shuffled = pd.DataFrame(NUMBERS.X, columns=[f"Column_{i}" for i in range(10)]).iloc[:, ::-1]
    assert lt.Tracer(model, shuffled, NUMBERS.codes).fidelity.exact


@pytest.mark.parametrize(
    "form", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array]
)
def test_sparse_tables(form):
    case = CASES["sparse, zero_as_missing, extra_trees"]()
    values = [
        lt.Tracer(case.model, make(case.data.X), case.data.y)
        .influence(make(case.data.X_test), case.data.y_test)
        .values
        for make in (lambda X: X, form)
    ]
    np.testing.assert_array_equal(*values)


def test_a_dataset_stands_for_table_labels_and_weights():
    w = weights(len(NUMBERS.codes))
    start = 0.1 * NUMBERS.X[:, 0]
    rows = lgb.Dataset(NUMBERS.X, NUMBERS.codes, weight=w, init_score=start, free_raw_data=False)
    model = lgb.train(SMALL, rows, 5)
    test = lgb.Dataset(NUMBERS.X_test, NUMBERS.y_test, free_raw_data=False)
    tracer = lt.Tracer(model, rows)
    expected = lt.Tracer(model, NUMBERS.X, NUMBERS.codes, w, baseline=start)
    np.testing.assert_array_equal(
        tracer.influence(test).values, expected.influence(NUMBERS.X_test, NUMBERS.y_test).values
    )
    freed = lgb.Dataset(NUMBERS.X, NUMBERS.codes)
    model = lgb.train(SMALL, freed, 5)
    with pytest.raises(lt.InvalidInput, match=r"freed its raw data.* free_raw_data=False"):
        lt.Tracer(model, freed)


def test_given_scores_in_both_orders():
    """Scores can be (n, K), or one class after the other as in LightGBM."""
    start = np.random.default_rng(0).normal(size=(len(CLASSES.codes), 3))
    model = train(CLASSES, 4, init_score=start, **MULTICLASS)
    values = [
        lt.Tracer(model, CLASSES.X, CLASSES.codes, baseline=given)
        .influence(CLASSES.X_test, CLASSES.y_test)
        .values
        for given in (start, start.ravel(order="F"))
    ]
    np.testing.assert_array_equal(*values)
    with pytest.raises(lt.InvalidInput, match="baseline has shape"):
        lt.Tracer(model, CLASSES.X, CLASSES.codes, baseline=start[:, 0])
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, CLASSES.X, CLASSES.codes)


def test_the_best_iteration_counts(tmp_path):
    """The best iteration is used as in predict(): in the wrapper, a Booster with more trees, and files."""
    model = lgb.LGBMRegressor(n_estimators=100, learning_rate=0.3, verbose=-1, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eval_set has another name in later versions
        model.fit(
            NUMBERS.X, NUMBERS.y, eval_set=[(NUMBERS.X_test, NUMBERS.y_test)],
            callbacks=[lgb.early_stopping(4, verbose=False)],
        )  # fmt: skip
    case = CASES["early stopping"]()
    assert case.model.num_trees() > case.model.best_iteration
    for m, best in ((model, model.best_iteration_), (case.model, case.model.best_iteration)):
        path = saved(getattr(m, "booster_", m), tmp_path)
        for source in (m, path):
            tracer = lt.Tracer(source, NUMBERS.X, NUMBERS.y)
            assert tracer.engine.ensemble.n_steps == best
            found = raw_scores(tracer.refit(without=[]), NUMBERS.X_test)
            np.testing.assert_allclose(found, raw(m, NUMBERS.X_test)[:, 0], atol=1e-12)


# ---- training again ----

AGAIN = [
    "LGBMClassifier, defaults", "LGBMRegressor, defaults", "LGBMClassifier, balanced, scale_pos_weight, weights",
    "multiclass, class_weight, weights, l1, l2, max_delta_step", "multiclass, init_score", "bagging, weights", "GOSS",
    "multiclass, DART", "forest", "early stopping", "sparse, zero_as_missing, extra_trees", "path_smooth, l2",
    "schedule of learning rates, weights", "continued training", "quantile, bagging",
]  # fmt: skip


@pytest.mark.parametrize("name", AGAIN)
def test_nothing_removed_gives_the_model_back(name):
    """Retraining on all rows gives the same bits, with the same parameters and threads."""
    case = CASES[name]()
    tracer = lt.Tracer(
        case.model, case.data.X, case.data.y, case.weight, baseline=case.baseline, n_jobs=1
    )
    again = tracer.retrain(without=[])
    assert not again.structure_changed
    expected = raw(case.model, case.data.X_test)
    accuracy = (
        1e-14 if "schedule" in name or "continued" in name else 0.0
    )  # learning rates that are recovered, not given
    np.testing.assert_allclose(
        raw_scores(again, case.data.X_test).reshape(expected.shape), expected, 0, accuracy
    )


def test_retraining_without_rows(tmp_path):
    """Retraining also works from a file, and with constraints given as parameters."""
    w = weights(len(NUMBERS.codes))
    gone = [3, 70, 71]
    keep = np.setdiff1d(np.arange(len(w)), gone)
    settings = {
        **SMALL,
        "interaction_constraints": [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9]],
        "feature_fraction": 0.7,
        "seed": 5,
    }
    model = lgb.train(settings, lgb.Dataset(NUMBERS.X, NUMBERS.codes, weight=w), 8)
    expected = lgb.train(
        settings, lgb.Dataset(NUMBERS.X[keep], NUMBERS.codes[keep], weight=w[keep]), 8
    )
    for source in (model, saved(model, tmp_path)):
        again = lt.Tracer(source, NUMBERS.X, NUMBERS.codes, w, n_jobs=1).retrain(without=gone)
        np.testing.assert_array_equal(
            again.predict(NUMBERS.X_test), expected.predict(NUMBERS.X_test)
        )


def test_leave_one_out_and_changes_of_structure():
    """One row changes only leaf values when removed, another changes a split."""
    X = np.repeat([[0.0], [1.0], [5.0]], [30, 30, 6], axis=0)
    y = np.repeat([0.0, 1.0, 40.0], [30, 30, 6])
    settings = {**SMALL, "min_data_in_leaf": 6, "min_data_in_bin": 1}
    model = lgb.train(settings, lgb.Dataset(X, y), 3)
    tracer = lt.Tracer(model, X, y)
    result = tracer.influence(X[:2], y[:2], method=lt.Retrain(), rows=[0, 60])
    np.testing.assert_array_equal(result.structure_changed, [False, True])
    keep = np.arange(66) != 60
    without = lgb.train(settings, lgb.Dataset(X[keep], y[keep]), 3)
    loss = [(m.predict(X[:2]) - y[:2]) ** 2 / 2 for m in (model, without)]
    np.testing.assert_allclose(result.values[1], loss[0] - loss[1], rtol=1e-6)


def test_predictions_beside_a_training_take_one_thread():
    """LightGBM has one number of threads for the process; predictions crash if it grows meanwhile."""
    seen = []

    class Booster:
        def predict(self, table, **options):
            seen.append(options)
            return np.zeros(len(table))

    table = np.zeros((3, 2))
    with calls.while_training():
        prediction.predict(Booster(), table, raw_score=True)
    prediction.predict(Booster(), table)
    assert seen == [{"num_threads": 1, "raw_score": True}, {}]
