"""XGBoost beyond the contract: files, parameters, draws, retraining, refusals."""

import json
from dataclasses import replace

import boosters
import cases_xgboost as cases
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost as xgb
from raw_scores import raw_scores
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost_draws import rows_by_congruence, uniform, words
from xgboost_formulas import quantile_leaf
from xgboost_reading import VERSION, matrix

import leaftrace as lt
from leaftrace._adapters.xgboost import draws, start
from leaftrace._adapters.xgboost.objectives import Quantile
from leaftrace._adapters.xgboost.tables import MatrixBuilder
from leaftrace._model.general_losses import Hinge
from leaftrace._model.losses import Logistic, Poisson, Softmax

NUMBERS = boosters.numbers()
BINARY = cases.binary()
THREE = cases.three_classes()
WEIGHT = boosters.weights(len(NUMBERS.y))


def trained(data=NUMBERS, rounds=8, weight=None, **params):
    params = {"max_depth": 3, "nthread": 1, **params}
    return xgb.train(params, matrix(data.X, label=data.y, weight=weight), rounds)


def margins(booster, X, **how):
    return booster.predict(matrix(X), output_margin=True, **how).astype(float)


@pytest.mark.parametrize("objective", ["reg:logistic", "count:poisson"])
def test_a_base_score_becomes_the_margin_of_xgboost(objective):
    """To the last bit, which a leaf of few rows shows. A library of C may round one of them otherwise."""
    rows = xgb.DMatrix(BINARY.X[:4], [0.0, 1.0, 0.0, 1.0])
    fixed = {"objective": objective, "eta": 0.0, "nthread": 1}
    same = 0
    for number in np.random.default_rng(0).uniform(0.02, 0.98, 30):
        booster = xgb.train({**fixed, "base_score": number}, rows, 1)
        own = booster.predict(rows, output_margin=True)[0]
        same += own == start.margin(objective, np.array([number]))[0]
    assert same >= 29


def exact(model, data=NUMBERS, weight=None, **arguments):
    tracer = lt.Tracer(model, data.X, data.y, weight, n_jobs=1, **arguments)
    assert tracer.fidelity.exact
    assert tracer.fidelity.max_error <= 5e-7
    return tracer


# ---- two lines ----


@pytest.mark.parametrize("estimator", [xgb.XGBClassifier, xgb.XGBRegressor])
def test_defaults_on_a_frame(estimator):
    data = (
        cases.coded(boosters.frame(many=True))
        if estimator is xgb.XGBClassifier
        else boosters.frame("number")
    )
    model = estimator(enable_categorical=True, n_jobs=1).fit(data.X, data.y)
    tracer = exact(model, data)
    influence = tracer.influence(data.X_test, data.y_test)
    assert influence.values.shape == (len(data.y), len(data.y_test))
    assert influence.top(1).iloc[0]["train_row"].startswith("row-")
    backwards = data.X_test[data.X_test.columns[::-1]]
    np.testing.assert_array_equal(tracer.influence(backwards, data.y_test).values, influence.values)


def test_in_a_pipeline():
    model = make_pipeline(StandardScaler(), xgb.XGBRegressor(n_estimators=5, n_jobs=1)).fit(
        NUMBERS.X, NUMBERS.y
    )
    exact(model)


def test_class_labels():
    model = xgb.XGBClassifier(n_estimators=4, n_jobs=1).fit(BINARY.X, BINARY.y)
    exact(model, replace(BINARY, y=BINARY.y.astype(str)))
    exact(model, replace(BINARY, y=BINARY.y.astype(bool)))
    with pytest.raises(lt.InvalidInput, match=r"benign.* does not know; its classes are 0, 1"):
        lt.Tracer(model, BINARY.X, np.where(BINARY.y == 1, "benign", "malignant"))
    with pytest.raises(
        lt.InvalidInput, match="from 0 to 2; the labels of this Booster are numbers from 0 to 1"
    ):
        lt.Tracer(trained(BINARY, objective="binary:logistic"), BINARY.X, 2 * BINARY.y)


# ---- what is refused ----


def two_targets():
    y = np.abs(np.c_[NUMBERS.y, NUMBERS.y])
    return xgb.train(
        {"nthread": 1, "objective": "reg:squaredlogerror"}, xgb.DMatrix(NUMBERS.X, y), 2
    )


REFUSED = {
    "gblinear": (lambda: xgb.XGBRegressor(booster="gblinear", n_jobs=1).fit(NUMBERS.X, NUMBERS.y), "gbtree"),
    "targets": (two_targets, "2 targets.*each target"),
    "not fitted": (lambda: xgb.XGBRegressor(), "XGBRegressor is not fitted"),
    "no trees": (lambda: xgb.train({"nthread": 1}, xgb.DMatrix(NUMBERS.X, NUMBERS.y), 0), "no trees"),
    "a matrix": (lambda: xgb.DMatrix(NUMBERS.X), "DMatrix is not an XGBoost model"),
}  # fmt: skip


@pytest.mark.skipif(VERSION < (3, 2), reason="older versions sample by gradients on GPUs only")
def test_rows_drawn_by_gradients():
    sampled = {"sampling_method": "gradient_based", "tree_method": "hist"}
    exact(trained(subsample=0.5, nthread=2, **sampled))
    exact(trained(**sampled))  # without subsample nothing is drawn
    model = trained(subsample=0.5, booster="dart", **sampled)
    with pytest.raises(lt.UnsupportedModel, match="booster='dart' is not supported"):
        lt.Tracer(model, NUMBERS.X, NUMBERS.y)


@pytest.mark.skipif(VERSION < (3, 2), reason="older versions sample by gradients on GPUs only")
def test_a_row_of_weight_zero_has_no_chance_to_be_drawn():
    """Its influence is that of a row with hardly any weight, which is not drawn.

    It is the last row, so that the draws of others stay as they are."""
    sampled = {"sampling_method": "gradient_based", "tree_method": "hist", "subsample": 0.4}

    def influence(weight):
        w = np.r_[np.ones(len(NUMBERS.y) - 1), weight]
        tracer = lt.Tracer(trained(**sampled, weight=w), NUMBERS.X, NUMBERS.y, w)
        return tracer.influence(NUMBERS.X_test, NUMBERS.y_test, reduce="mean").values[:, 0]

    # A weight of 1e-6 changes all by about as much.
    np.testing.assert_allclose(
        influence(0.0), influence(1e-6), atol=1e-5 * np.abs(influence(0.0)).max()
    )


@pytest.mark.parametrize("setting", REFUSED)
def test_refusals(setting):
    make, message = REFUSED[setting]
    with pytest.raises(lt.UnsupportedModel, match=message):
        lt.Tracer(make(), NUMBERS.X, NUMBERS.y)


def test_a_custom_objective_that_the_booster_does_not_store():
    """A Booster does not store that its objective was a function; its leaf values show it."""
    booster = xgb.train(
        {"nthread": 1, "max_depth": 3},
        xgb.DMatrix(NUMBERS.X, NUMBERS.y),
        3,
        obj=lambda f, m: (np.tanh(f - m.get_label()), np.ones_like(f)),
    )
    with pytest.raises(lt.FidelityError):
        lt.Tracer(booster, NUMBERS.X, NUMBERS.y)


# ---- files and parameters ----


@pytest.mark.parametrize("ending", ["ubj", "json"])
def test_a_file_and_what_it_does_not_keep(tmp_path, ending):
    path = tmp_path / f"model.{ending}"
    booster = trained(weight=WEIGHT, eta=0.17, reg_lambda=2.5)
    booster.save_model(path)
    tracer = exact(path, weight=WEIGHT)
    assert (
        "learning_rate=0.17, reg_lambda=2.5 recovered from the leaf values, as a file"
        in tracer.fidelity.verdict
    )
    np.testing.assert_allclose(
        raw_scores(tracer.refit([]), NUMBERS.X_test), margins(booster, NUMBERS.X_test), atol=1e-6
    )
    assert "recovered" not in exact(booster, weight=WEIGHT).fidelity.verdict
    given = exact(path, weight=WEIGHT, params={"eta": 0.17, "lambda": 2.5})
    assert "recovered" not in given.fidelity.verdict
    np.testing.assert_allclose(
        given.influence(NUMBERS.X_test, of="prediction").values,
        tracer.influence(NUMBERS.X_test, of="prediction").values,
    )


@pytest.mark.parametrize(
    ("data", "params", "recovered"),
    [
        (NUMBERS, {"eta": 0.2, "reg_lambda": 0.4, "reg_alpha": 1.5}, "0.2, reg_lambda=0.4, reg_alpha=1.5"),
        (THREE, {"eta": 0.35, "objective": "multi:softprob", "num_class": 3, "min_child_weight": 0}, "0.35 "),
        (boosters.numbers("counts"), {"objective": "count:poisson", "reg_lambda": 2}, "rate=0.3, reg_lambda=2"),
        (NUMBERS, {"eta": 0.4, "objective": "reg:absoluteerror"}, "learning_rate=0.4 "),
        (NUMBERS, {"eta": 0.8, "num_parallel_tree": 4, "colsample_bynode": 0.5}, "learning_rate=0.8 "),
    ],
)  # fmt: skip
def test_parameters_recovered(data, params, recovered):
    loaded = xgb.Booster(model_file=trained(data, **params).save_raw("ubj"))
    assert recovered in exact(loaded, data).fidelity.verdict


def test_what_cannot_be_recovered_can_be_given():
    loaded = xgb.Booster(
        model_file=trained(weight=WEIGHT, subsample=0.7, eta=0.2, seed=5).save_raw("ubj")
    )
    with pytest.raises(lt.FidelityError, match=r"loaded from a file.*params=\{'subsample'"):
        lt.Tracer(loaded, NUMBERS.X, NUMBERS.y, WEIGHT)
    tracer = exact(loaded, weight=WEIGHT, params={"subsample": 0.7, "random_state": 5})
    assert "learning_rate=0.2 recovered" in tracer.fidelity.verdict
    bounded = xgb.Booster(model_file=trained(max_delta_step=0.4).save_raw("ubj"))
    exact(bounded, params={"max_delta_step": 0.4})


def test_wrong_labels_are_not_explained_by_other_parameters():
    loaded = xgb.Booster(model_file=trained(base_score=0.0).save_raw("ubj"))
    with pytest.raises(lt.FidelityError):
        lt.Tracer(loaded, NUMBERS.X, NUMBERS.y[::-1])


def test_given_parameters_are_checked():
    with pytest.raises(
        lt.InvalidInput, match=r"params has bagging_freq.*it has .*learning_rate.*subsample"
    ):
        lt.Tracer(trained(), NUMBERS.X, NUMBERS.y, params={"bagging_freq": 1})
    with pytest.raises(lt.InvalidInput, match="reg_lambda='much'; expected a number"):
        lt.Tracer(trained(), NUMBERS.X, NUMBERS.y, params={"reg_lambda": "much"})
    with pytest.raises(lt.FidelityError):
        lt.Tracer(trained(subsample=0.7), NUMBERS.X, NUMBERS.y, params={"seed": 3})


def test_a_broken_file(tmp_path):
    path = tmp_path / "model.json"
    path.write_text('{"learner": {"gradient_booster"')
    with pytest.raises(lt.UnsupportedModel, match="is the file whole"):
        lt.Tracer(path, NUMBERS.X, NUMBERS.y)


def test_learning_rates_of_rounds():
    booster = xgb.train(
        {"max_depth": 3, "nthread": 1},
        xgb.DMatrix(NUMBERS.X, NUMBERS.y),
        10,
        callbacks=[xgb.callback.LearningRateScheduler(lambda i: 0.5 * 0.8**i)],
    )
    tracer = exact(booster)
    assert "a learning_rate for each round recovered" in tracer.fidelity.verdict
    assert np.ptp(tracer.engine.ensemble.learning_rate) > 0.1
    with pytest.raises(lt.UnsupportedModel, match="does not come out the same"):
        tracer.retrain(without=[0])


def test_training_continued():
    first = trained(rounds=4)
    rows = xgb.DMatrix(NUMBERS.X, NUMBERS.y)
    exact(xgb.train({"max_depth": 3, "nthread": 1}, rows, 4, xgb_model=first))
    exact(xgb.train({"max_depth": 2, "nthread": 1, "eta": 0.1}, rows, 4, xgb_model=first))


@pytest.mark.parametrize("method", ["hist", "approx", "exact"])
@pytest.mark.parametrize("anew", [False, True])
def test_training_continued_with_subsample(method, anew):
    """Random numbers go on, or begin anew as in another process: a new booster resets them."""
    params = {"max_depth": 3, "nthread": 1, "subsample": 0.6, "tree_method": method}
    rows = xgb.DMatrix(NUMBERS.X, NUMBERS.y)
    model = None
    for rounds, rate in ((4, 0.3), (3, 0.1), (5, 0.2)):
        if anew:
            xgb.Booster({"nthread": 1}, [rows]).predict(rows)
        model = xgb.train({**params, "eta": rate}, rows, rounds, xgb_model=model)
    assert model is not None
    tracer = exact(model)
    told = "training was continued after 4 rounds" in tracer.fidelity.verdict
    assert told == (anew or method != "exact")  # otherwise all runs draw as one
    again = tracer.refit(without=[]).predict(NUMBERS.X_test)
    np.testing.assert_allclose(again, model.predict(xgb.DMatrix(NUMBERS.X_test)), atol=1e-5)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, NUMBERS.X, NUMBERS.y[::-1])


# ---- rounds and draws ----


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_early_stopping(tmp_path, booster):
    """The scikit-learn classes predict with the best rounds, a Booster with all."""
    model = xgb.XGBRegressor(
        n_estimators=40,
        max_depth=3,
        early_stopping_rounds=3,
        n_jobs=1,
        booster=booster,
        rate_drop=0.2,
    )
    if booster == "gbtree":
        model.set_params(rate_drop=None)
    model.fit(NUMBERS.X, NUMBERS.y, eval_set=[(NUMBERS.X_test, NUMBERS.y_test)], verbose=False)
    best = model.best_iteration + 1
    all_rounds = model.get_booster().num_boosted_rounds()
    assert best < all_rounds < 40
    tracer = exact(model)
    whole = exact(model.get_booster())
    assert f"the best {best} of {all_rounds} rounds" in tracer.fidelity.verdict
    assert f"all {all_rounds} rounds" in whole.fidelity.verdict
    F = margins(model.get_booster(), NUMBERS.X_test, iteration_range=(0, best))
    np.testing.assert_allclose(raw_scores(tracer.refit([]), NUMBERS.X_test), F, atol=1e-6)
    np.testing.assert_allclose(raw_scores(tracer.retrain([]), NUMBERS.X_test), F, atol=1e-6)
    np.testing.assert_allclose(
        raw_scores(whole.refit([]), NUMBERS.X_test),
        margins(model.get_booster(), NUMBERS.X_test),
        atol=1e-6,
    )
    if booster == "gbtree":
        model.save_model(tmp_path / "model.ubj")
        loaded = exact(tmp_path / "model.ubj")
        np.testing.assert_allclose(raw_scores(loaded.refit([]), NUMBERS.X_test), F, atol=1e-6)
        assert loaded.engine.source.name == "XGBRegressor"


@pytest.mark.parametrize(
    "params",
    [
        {"tree_method": "hist", "num_parallel_tree": 3},
        {"tree_method": "approx", "num_parallel_tree": 3},
        {"tree_method": "exact", "num_parallel_tree": 2, "colsample_bytree": 0.5},
        {"tree_method": "hist", "seed_per_iteration": True, "seed": 11},
        {"tree_method": "exact", "seed_per_iteration": True, "seed": 11},
        {
            "objective": "multi:softprob",
            "num_class": 3,
            "multi_strategy": "multi_output_tree",
            "tree_method": "hist",
        },
        {
            "booster": "dart",
            "rate_drop": 0.4,
            "skip_drop": 0.3,
            "sample_type": "weighted",
            "normalize_type": "forest",
        },
        {"booster": "dart", "rate_drop": 0.4, "num_parallel_tree": 2, "tree_method": "exact"},
        {"objective": "reg:absoluteerror"},
    ],
)
def test_rows_drawn_again(params):
    data = THREE if "num_class" in params else NUMBERS
    booster = trained(data, subsample=0.6, **params)
    tracer = exact(booster, data)
    assert "rows drawn again (subsample=0.6" in tracer.fidelity.verdict
    drawn = np.array(tracer.engine.ensemble.sample)
    assert 0.4 < drawn.mean() < 0.8
    F = raw_scores(tracer.refit([]), data.X_test)
    np.testing.assert_allclose(F, margins(booster, data.X_test), atol=2e-6)


@pytest.mark.parametrize(
    ("objective", "shift"), [("reg:squaredlogerror", 0.0), ("reg:squarederror", 200.0)]
)
def test_scores_are_rounded_after_each_parallel_tree(objective, shift):
    """Leaf values are off by more than 1e-6 of the largest if the trees of a step share one rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = np.exp(X[:, 0] + 0.3 * rng.normal(size=120)) + shift
    start = (
        rng.uniform(-0.99, -0.97, 120) + shift
    )  # the last bits of 1 + score, or of y - score, matter
    booster = xgb.train(
        {"objective": objective, "max_depth": 2, "num_parallel_tree": 2, "nthread": 1},
        xgb.DMatrix(X, y, base_margin=start),
        4,
    )
    assert lt.Tracer(booster, X, y, baseline=start).fidelity.max_error < 2e-7


def test_rows_in_another_order_are_noticed():
    """Which rows were drawn depends on their positions."""
    order = np.random.default_rng(0).permutation(len(NUMBERS.y))
    booster = trained(subsample=0.6)
    with pytest.raises(lt.FidelityError, match="rows in another order"):
        lt.Tracer(booster, NUMBERS.X[order], NUMBERS.y[order])
    exact(trained(), replace(NUMBERS, X=NUMBERS.X[order], y=NUMBERS.y[order]))


def test_dropped_trees_that_cannot_be_found_again():
    booster = xgb.Booster(model_file=trained(booster="dart", rate_drop=0.4, seed=4).save_raw("ubj"))
    with pytest.raises(lt.UnsupportedModel, match=r"params=\{'rate_drop'"):
        lt.Tracer(booster, NUMBERS.X, NUMBERS.y)
    exact(booster, params={"rate_drop": 0.4, "seed": 4})


def test_random_numbers():
    """Compare with Python integers; drawing no rows uses no random numbers."""
    word = words(123)
    twister = draws.Twister(123)
    assert [twister.word() for _ in range(700)] == [word() for _ in range(700)]
    assert twister.numbers(0).size == 0
    np.testing.assert_array_equal(twister.numbers(50), [uniform(word) for _ in range(50)])
    powers = draws.congruential(37)
    assert [int(p) for p in powers] == [pow(16807, i + 1, 2**64) for i in range(37)]
    for subsample in (0.3, 0.9):
        again = draws.draw_again(
            [1], 200, seed=9, subsample=subsample, method="hist", parallel=1, seed_per_iteration=False,
            columns_first=False, learning_rate=0.3, dart=None,
        )  # fmt: skip
        word = words(9)
        word()
        expected = rows_by_congruence(word, 200, float(np.float32(subsample)))
        np.testing.assert_array_equal(again.sample[0], expected == 1)


# ---- training again ----


RETRAINED = {
    "regressor": (lambda: xgb.XGBRegressor(n_estimators=8, subsample=0.8, colsample_bynode=0.6, seed=3), NUMBERS),
    "exact": (lambda: xgb.XGBRegressor(n_estimators=8, tree_method="exact", reg_alpha=0.3, max_bin=64), NUMBERS),
    "classifier": (lambda: xgb.XGBClassifier(n_estimators=8, scale_pos_weight=2, max_bin=32), BINARY),
    "multiclass": (lambda: xgb.XGBClassifier(n_estimators=5, gamma=0.1, grow_policy="lossguide", max_leaves=5), THREE),
    "forest": (lambda: xgb.XGBRFClassifier(n_estimators=8), BINARY),
    "dart": (lambda: xgb.XGBRegressor(n_estimators=8, booster="dart", rate_drop=0.3, base_score=0.1), NUMBERS),
    "frame": (
        lambda: xgb.XGBClassifier(n_estimators=8, enable_categorical=True),
        cases.coded(boosters.frame(many=True)),
    ),
    "median": (lambda: xgb.XGBRegressor(n_estimators=5, objective="reg:absoluteerror"), NUMBERS),
    "tweedie": (
        lambda: xgb.XGBRegressor(n_estimators=5, objective="reg:tweedie", tweedie_variance_power=1.2),
        boosters.numbers("positive"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("setting", RETRAINED)
def test_nothing_removed_gives_the_model_back(setting):
    make, data = RETRAINED[setting]
    model = make().set_params(n_jobs=1).fit(data.X, data.y)
    again = exact(model, data).retrain(without=[])
    assert not again.structure_changed
    # DART adds trees in another order when it predicts without a DMatrix.
    tolerance = 1e-6 if setting == "dart" else 0
    np.testing.assert_allclose(
        raw_scores(again, data.X_test),
        model.predict(data.X_test, output_margin=True),
        atol=tolerance,
    )


def test_rows_removed():
    model = xgb.XGBRegressor(n_estimators=8, n_jobs=1).fit(
        NUMBERS.X, NUMBERS.y, sample_weight=WEIGHT
    )
    keep = np.setdiff1d(np.arange(len(NUMBERS.y)), [3, 50])
    other = xgb.XGBRegressor(n_estimators=8, n_jobs=1).fit(
        NUMBERS.X[keep], NUMBERS.y[keep], sample_weight=WEIGHT[keep]
    )
    again = exact(model, weight=WEIGHT).retrain(without=[3, 50])
    np.testing.assert_array_equal(again.predict(NUMBERS.X_test), other.predict(NUMBERS.X_test))
    assert again.structure_changed


def test_a_loaded_model_is_retrained_only_with_its_parameters():
    booster = trained(max_depth=4, eta=0.2)
    loaded = xgb.Booster(model_file=booster.save_raw("ubj"))
    with pytest.raises(
        lt.UnsupportedModel, match=r"does not come out the same.*params=\{'max_depth'"
    ):
        exact(loaded).retrain(without=[3])
    again = exact(loaded, params={"max_depth": 4}).retrain(without=[])
    np.testing.assert_array_equal(
        raw_scores(again, NUMBERS.X_test), margins(booster, NUMBERS.X_test)
    )


# ---- rows ----


def test_a_matrix_stands_for_everything():
    margin = cases.some_scores(NUMBERS)
    rows = xgb.DMatrix(NUMBERS.X, NUMBERS.y, weight=WEIGHT, base_margin=margin)
    booster = xgb.train({"max_depth": 3, "nthread": 1}, rows, 6)
    tracer = lt.Tracer(booster, rows, n_jobs=1)
    assert tracer.fidelity.exact
    given = np.float32(np.linspace(-1, 1, len(NUMBERS.y_test)))
    test = xgb.DMatrix(NUMBERS.X_test, NUMBERS.y_test, base_margin=given)
    F = booster.predict(test, output_margin=True)
    for altered in (tracer.refit([]), tracer.retrain([])):
        np.testing.assert_allclose(raw_scores(altered, test), F, atol=1e-6)
        np.testing.assert_allclose(
            raw_scores(altered, NUMBERS.X_test, baseline=given), F, atol=1e-6
        )
        np.testing.assert_allclose(
            raw_scores(altered, NUMBERS.X_test), margins(booster, NUMBERS.X_test), atol=1e-6
        )
        np.testing.assert_allclose(
            altered.loss(test), (F - NUMBERS.y_test) ** 2 / 2, rtol=1e-4, atol=1e-6
        )
    one = tracer.influence(test).values
    two = (
        exact(booster, weight=WEIGHT, baseline=margin)
        .influence(NUMBERS.X_test, NUMBERS.y_test, baseline=given)
        .values
    )
    np.testing.assert_allclose(one, two)
    with pytest.raises(lt.InvalidInput, match="3 columns, but the model was trained on 10"):
        tracer.influence(xgb.DMatrix(NUMBERS.X_test[:, :3]), of="prediction")


def test_a_quantile_matrix_is_traced_but_not_retrained():
    rows = xgb.QuantileDMatrix(NUMBERS.X, NUMBERS.y)
    booster = xgb.train({"max_depth": 3, "nthread": 1}, rows, 4)
    exact(booster)
    if VERSION < (3, 1):  # XGBoost cannot predict the leaves of its rows there
        with pytest.raises(lt.InvalidInput, match="pass the table itself"):
            lt.Tracer(booster, rows)
        return
    tracer = lt.Tracer(booster, rows)
    assert tracer.fidelity.exact
    with pytest.raises(lt.InvalidInput, match="pass the table itself"):
        tracer.retrain(without=[1])


def test_a_baseline_takes_the_place_of_the_base_score():
    given = cases.some_scores(NUMBERS)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(trained(), NUMBERS.X, NUMBERS.y, baseline=given)
    with pytest.raises(lt.InvalidInput, match="takes the place of XGBoost's base_score"):
        exact(trained()).influence(NUMBERS.X_test, of="prediction", baseline=given[:20])
    booster = trained(base_score=0.7)
    F = booster.predict(xgb.DMatrix(NUMBERS.X_test, base_margin=given[:20]), output_margin=True)
    np.testing.assert_allclose(
        raw_scores(exact(booster).refit([]), NUMBERS.X_test, baseline=given[:20]), F, atol=1e-6
    )


def test_sparse_rows_and_missing_values():
    holes = np.random.default_rng(1).random(NUMBERS.X.shape) < 0.3
    dense = np.where(holes, np.nan, NUMBERS.X)
    rows, columns = np.nonzero(~holes)
    sparse = scipy.sparse.csr_matrix((NUMBERS.X[rows, columns], (rows, columns)), NUMBERS.X.shape)
    model = xgb.XGBRegressor(n_estimators=6, n_jobs=1).fit(dense, NUMBERS.y)
    one = exact(model, replace(NUMBERS, X=dense))
    two = exact(model, replace(NUMBERS, X=sparse.tocsc()))
    np.testing.assert_array_equal(
        one.influence(dense[:5], of="prediction").values,
        two.influence(sparse[:5], of="prediction").values,
    )
    trained_sparse = xgb.XGBRegressor(n_estimators=6, n_jobs=1).fit(sparse, NUMBERS.y)
    assert not exact(trained_sparse, replace(NUMBERS, X=sparse)).retrain([]).structure_changed
    zeros = np.where(holes, 0.0, NUMBERS.X)
    exact(
        xgb.XGBRegressor(n_estimators=6, n_jobs=1, missing=0.0).fit(zeros, NUMBERS.y),
        replace(NUMBERS, X=zeros),
    )


def test_categories_by_feature_types():
    rng = np.random.default_rng(2)
    X = np.c_[rng.integers(0, 6, 300), rng.normal(size=300)].astype(float)
    y = np.float32(rng.normal(size=6)[X[:, 0].astype(int)] + X[:, 1]).astype(float)
    rows = xgb.DMatrix(X, y, feature_types=["c", "q"], enable_categorical=True)
    booster = xgb.train({"max_depth": 3, "nthread": 1, "tree_method": "hist"}, rows, 6)
    exact(booster, boosters.Data(X, y, y, X, y, y))


def test_rows_are_checked():
    data = boosters.frame("number")
    model = xgb.XGBRegressor(n_estimators=3, enable_categorical=True, n_jobs=1).fit(data.X, data.y)
    tracer = exact(model, data)
    with pytest.raises(lt.InvalidInput, match=r"lacks the column.*'b'"):
        tracer.influence(data.X_test.drop(columns="b"), of="prediction")
    with pytest.raises(lt.InvalidInput, match="XGBoost cannot"):
        tracer.influence(data.X_test.assign(a="text"), of="prediction")
    with pytest.raises(lt.InvalidInput, match="no rows"):
        tracer.influence(data.X_test[:0], of="prediction")
    with pytest.raises(lt.InvalidInput, match="y_train is missing"):
        lt.Tracer(model, data.X)
    with pytest.raises(lt.InvalidInput, match="shape"):
        lt.Tracer(model, data.X, data.y, baseline=[1.0, 2.0])


# ---- float32 ----


def test_large_labels_over_many_rounds():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = np.round(2e5 + 8e4 * X[:, 0] + 5e4 * np.sin(3 * X[:, 1]) + 2e4 * rng.normal(size=400))
    booster = xgb.train({"nthread": 1, "max_depth": 4}, xgb.DMatrix(X, y), 300)
    tracer = lt.Tracer(booster, X, y)
    assert tracer.fidelity.max_error <= 1e-7


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob"])
def test_rows_predicted_with_certainty(objective):
    """Near certainty 1 - p is a few float32 units; ignoring them would make leaf values wrong by half."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = np.digitize(X[:, 0], [0.0] if objective == "binary:logistic" else [-0.5, 0.5])
    params = {
        "objective": objective,
        "reg_lambda": 0,
        "min_child_weight": 0,
        "nthread": 1,
        "max_depth": 3,
    }
    if objective == "multi:softprob":
        params["num_class"] = 3
    booster = xgb.train(params, xgb.DMatrix(X, y), 60)
    tracer = lt.Tracer(booster, X, y, fidelity="ignore")
    assert tracer.fidelity.max_error <= 1e-6
    assert np.isfinite(tracer.influence(X[:3], y[:3]).values).all()


# ---- starting scores ----

Y = np.array([0.0, 2, 1, 2, 0, 2, 1, 0, 2])
B = np.linspace(0.5, 1.6, 9)


@pytest.mark.parametrize(
    ("rule", "loss", "y"),
    [
        (start.ClassShares(True), Softmax(3), Y),
        (start.RoundedRule(start.ClassShares(False), np.array([0.1, -0.2, 0.0])), Softmax(3), Y),
        (start.ScaledNewtonStep(0.4), Poisson(), Y),
        (start.ScaledNewtonStep(1.0), Logistic(), np.minimum(Y, 1)),
        (start.HeavierSide(), Hinge(), np.minimum(Y, 1)),
    ],
)
def test_rules_of_starting_scores(rule, loss, y):
    """Compare derivatives with finite differences, and removals with the rule itself."""
    by_weight, by_label = rule.effects(loss, y, B, y)
    step = 1e-5
    for i in range(len(y)):
        up, down = (rule.fit(loss, y, B + d * np.eye(len(y))[i]) for d in (step, -step))
        np.testing.assert_allclose(by_weight[i], (up - down) / (2 * step), atol=1e-8)
        keep = np.arange(len(y)) != i
        np.testing.assert_allclose(
            rule.without(loss, y, B, np.array([i]))[:, 0], rule.fit(loss, y[keep], B[keep])
        )
        if loss.n_outputs == 1 and not isinstance(rule, start.HeavierSide):
            up, down = (rule.fit(loss, y + d * np.eye(len(y))[i], B) for d in (step, -step))
            np.testing.assert_allclose(
                by_label[i, :, 0] * B[i], (up - down) / (2 * step), atol=1e-8
            )
    assert by_label.shape == (len(y), loss.n_outputs, loss.n_outputs)


@pytest.mark.parametrize("scale_pos_weight", [1.0, 1.004])
def test_a_start_that_two_rules_give(scale_pos_weight):
    """Near even classes, logit(mean) and a Newton step are one float32; without a row they are not."""
    y = np.tile([0, 1], 512)
    y[0] = scale_pos_weight == 1
    X = np.zeros((len(y), 1))
    params = {"objective": "binary:logistic", "scale_pos_weight": scale_pos_weight, "nthread": 1}

    def start(rows):
        booster = xgb.train({**params, "eta": 1e-9}, xgb.DMatrix(X[rows], y[rows]), 1)
        return booster, margins(booster, X[:1])

    booster, _ = start(slice(None))
    tracer = lt.Tracer(booster, X, y)
    keep = (y == 1) | (np.arange(len(y)) >= 200)
    _, without = start(keep)
    found = raw_scores(tracer.refit(without=~keep), X[:1])
    np.testing.assert_allclose(
        found, without, atol=1e-6
    )  # logits of float32 shares; the rules differ by 1e-3


@pytest.mark.parametrize("scale_pos_weight", [1, 3])
@pytest.mark.parametrize("share", [0.0006, 0.9994])
def test_few_rows_of_a_class(share, scale_pos_weight):
    """A base_score near 1 is a logit with few digits, and the small trees do not hide that."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3))
    y = (X[:, 0] > np.quantile(X[:, 0], 1 - share)).astype(int)
    params = {
        "objective": "binary:logistic",
        "scale_pos_weight": scale_pos_weight,
        "nthread": 1,
        "max_depth": 2,
    }
    booster = xgb.train(
        {**params, "num_parallel_tree": 30, "subsample": 0.5, "eta": 0.05}, xgb.DMatrix(X, y), 1
    )
    tracer = lt.Tracer(booster, X, y)
    assert tracer.fidelity.exact
    assert tracer.engine.ensemble.base_rule.smooth
    # XGBoost adds up the thirty trees in float32.
    np.testing.assert_allclose(
        raw_scores(tracer.refit([]), X[:9]), margins(booster, X[:9]), atol=1e-5
    )


@pytest.mark.skipif(
    (3, 0) <= VERSION < (3, 2), reason="these versions do not train on a single class"
)
def test_all_labels_the_same():
    y = np.ones(len(NUMBERS.y), int)
    booster = trained(replace(NUMBERS, y=y), objective="binary:logistic")
    assert lt.Tracer(booster, NUMBERS.X, y).fidelity.exact


def test_sums_of_many_weights_in_float32():
    """XGBoost adds a hundred thousand weights in float32; the replay must accept that rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 2))
    w = np.float32(rng.random(100_000)).astype(float)
    y = np.digitize(X[:, 0] + rng.normal(size=100_000), [-1, 1])
    params = {"objective": "multi:softprob", "num_class": 3, "nthread": 1, "max_depth": 2}
    booster = xgb.train(params, xgb.DMatrix(X, y, weight=w), 2)
    assert lt.Tracer(booster, X, y, w).fidelity.exact


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.5, 0.97])
def test_quantiles(alpha, weighted):
    rng = np.random.default_rng(3)
    leaf = rng.integers(0, 6, 90).astype(np.uint8)
    r = rng.normal(size=90)
    w = rng.random(90) * (rng.random(90) > 0.2)
    w = w if weighted else (w > 0).astype(float)
    found = Quantile(float(np.float32(alpha)), weighted)(leaf, 8, r, r, w)
    expected = quantile_leaf(float(np.float32(alpha)), weighted)(leaf, 8, r, r, w)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.all(found[6:] == 0)


@pytest.mark.parametrize(
    "name",
    ["categories and missing values", "multiclass, parallel trees", "dart", "early stopping"],
)
def test_leaves_of_many_rows_are_asked_for_in_parts(name, monkeypatch):
    case = cases.CASES[name]()
    rows = case.data.X, case.data.y, case.weight
    whole = lt.Tracer(case.model, *rows, **case.tracer)
    monkeypatch.setattr("leaftrace._adapters.xgboost.prediction.LEAF_BYTES", 1)  # a round at a time
    parts = lt.Tracer(case.model, *rows, **case.tracer)
    np.testing.assert_array_equal(whole.engine.ensemble.leaves, parts.engine.ensemble.leaves)


@pytest.mark.parametrize("missing", [np.nan, -1.0])
def test_plain_arrays_are_read_without_a_matrix_of_all_rows(missing, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3)).round(1)
    X[rng.random(X.shape) < 0.2] = missing
    X[5, 1] = np.nan
    y = X[:, 0] > 0
    model = xgb.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1, missing=missing).fit(X, y)
    expected = lt.Tracer(model, pd.DataFrame(X), y).engine.ensemble.leaves
    sizes = []
    build = MatrixBuilder.build

    def counted(self, X, *more, **fields):
        sizes.append(len(X))
        return build(self, X, *more, **fields)

    monkeypatch.setattr(MatrixBuilder, "build", counted)
    for rows in (X, np.asfortranarray(X), np.float32(X)):
        found = lt.Tracer(model, rows, y).engine.ensemble.leaves
        np.testing.assert_array_equal(found, expected)
    assert max(sizes) < 100  # those that are compared with the library
    X[700, 2] = np.inf
    with pytest.raises(lt.InvalidInput, match="XGBoost cannot read these rows"):
        lt.Tracer(model, X, y)


# ---- right data that is not to be refused, wrong data that is ----


def test_a_starting_score_of_even_classes():
    """The scores of nearly even classes are differences of logarithms, which float32 rounds."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(1000) % 10)
    X = rng.normal(size=(1000, 3))
    y[:3] = rng.integers(0, 10, 3)
    model = xgb.XGBClassifier(n_estimators=2, max_depth=2, learning_rate=0.01, n_jobs=1)
    assert lt.Tracer(model.fit(X, y), X, y).fidelity.exact
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, X, np.roll(y, 1))


@pytest.mark.parametrize(
    "params",
    [
        {"gamma": 1e9},  # never splits, and the leaves are the rounding of a sum that is zero
        {
            "objective": "reg:pseudohubererror",
            "huber_slope": 50.0,
        },  # single rows with h just below 1
    ],
    ids=["no split", "large slope"],
)
def test_leaves_at_the_border_of_float32(params):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = X[:, 0] * 3 + rng.normal(size=500)
    model = xgb.XGBRegressor(n_estimators=20, n_jobs=1, **params).fit(X, y)
    assert lt.Tracer(model, X, y).fidelity.exact


def test_labels_times_ten_are_not_another_learning_rate():
    """A model in memory reports its learning rate; trees of one partition would fit any."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + rng.normal(size=300)
    for rounds in (1, 3):
        model = xgb.XGBRegressor(n_estimators=rounds, max_depth=1, base_score=0.0, n_jobs=1)
        model.fit(X[:, :1] > 0, y)
        assert lt.Tracer(model, X[:, :1] > 0, y).fidelity.exact
        with pytest.raises(lt.FidelityError):
            lt.Tracer(model, X[:, :1] > 0, 10 * y)
        # all parameters are XGBoost's defaults, as after loading a file
        model = xgb.XGBRegressor(n_estimators=rounds, base_score=0.0, n_jobs=1)
        with pytest.raises(lt.FidelityError):
            lt.Tracer(model.fit(X[:, :1] > 0, y), X[:, :1] > 0, 10 * y)


def test_rate_and_lambda_that_leaves_of_equal_weight_do_not_show(tmp_path):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [1.0]], 40, axis=0)
    y = rng.normal(size=80) + X[:, 0]
    params = {"reg_lambda": 3.0, "learning_rate": 0.25}
    model = xgb.XGBRegressor(n_estimators=5, max_depth=1, n_jobs=1, **params).fit(X, y)
    model.save_model(tmp_path / "m.ubj")
    with pytest.raises(lt.FidelityError, match=r"do not tell learning_rate and reg_lambda apart"):
        lt.Tracer(tmp_path / "m.ubj", X, y)
    given = lt.Tracer(tmp_path / "m.ubj", X, y, params=params, dtype="float64")
    own = lt.Tracer(model, X, y, dtype="float64")
    np.testing.assert_allclose(
        given.influence(X[:3], y[:3]).values, own.influence(X[:3], y[:3]).values, rtol=1e-12
    )


def test_columns_of_several_levels():
    X = pd.DataFrame(NUMBERS.X).iloc[:, :4]
    X.columns = pd.MultiIndex.from_product([["a", "b"], [1, "x"]])
    model = xgb.XGBRegressor(n_estimators=4, n_jobs=1).fit(X, NUMBERS.y)
    tracer = lt.Tracer(model, X, NUMBERS.y)
    np.testing.assert_allclose(raw_scores(tracer.refit(), X), model.predict(X), rtol=1e-5)


def test_leaves_with_children_that_are_not_there():
    """XGBoost takes -1 alone for no child, and crashes when a row comes to such a leaf."""
    X = np.arange(40.0)[:, None]
    y = (X[:, 0] > 20).astype(float)
    model = xgb.train({"max_depth": 2}, xgb.DMatrix(X, y), 2)
    content = json.loads(bytes(model.save_raw("json")))
    left = content["learner"]["gradient_booster"]["model"]["trees"][1]["left_children"]
    left[left.index(-1)] = -134217729
    damaged = xgb.Booster(model_file=bytearray(json.dumps(content).encode()))
    with pytest.raises(lt.UnsupportedModel, match="tree 1 of this XGBoost model"):
        lt.Tracer(damaged, X, y)


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [("sorted_idx", 4, 34), ("sorted_idx", 1, 0), ("feature_segments", 1, 2), ("offsets", 1, 9)],
)
def test_stored_categories_that_do_not_fit(part, place, value):
    """XGBoost finds the categories of a table among them without a look, and aborts."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "town": pd.Categorical(rng.choice(["bern", "oslo", "rome"], 60)),
            "size": pd.Categorical(rng.choice([3, 5, 9], 60)),
        }
    )
    y = X["town"].cat.codes + rng.normal(size=60)
    model = xgb.train({"max_depth": 2}, xgb.DMatrix(X, y, enable_categorical=True), 2)
    content = json.loads(bytes(model.save_raw("json")))
    stored = content["learner"]["gradient_booster"]["model"]["cats"]
    if not stored["enc"]:
        pytest.skip("this XGBoost stores no categories")
    (stored["enc"][0] if part == "offsets" else stored)[part][place] = value
    damaged = xgb.Booster(model_file=bytearray(json.dumps(content).encode()))
    with pytest.raises(lt.UnsupportedModel, match="categories that this XGBoost model stores"):
        lt.Tracer(damaged, X, y, params={"max_depth": 2})
