"""Early stopping repeated in retrainings: the user's own fit() with the same eval_set is the oracle."""

import functools
import inspect
import warnings

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from raw_scores import raw_scores
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import leaftrace as lt

RNG = np.random.default_rng(3)
X = RNG.normal(size=(360, 5))
LABELS = np.where(X[:, 0] + X[:, 1] * X[:, 2] + RNG.normal(size=360) > 0, "yes", "no")
TRAIN = slice(0, 200)
EVAL = slice(200, 300)
TEST = slice(300, 360)
W = RNG.uniform(0.5, 2.0, 360)
GONE = np.arange(0, 200, 9)  # rows whose removal changes where training stops
KEPT = np.setdiff1d(np.arange(200), GONE)
MOST = 400  # rounds that no model below reaches


def pool(rows):
    return catboost.Pool(X[rows], LABELS[rows], weight=W[rows])


def lightgbm_callback(rows):
    model = lgb.LGBMClassifier(n_estimators=MOST, num_leaves=6, verbose=-1, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later versions have another name for eval_set
        return model.fit(
            X[rows], LABELS[rows], sample_weight=W[rows], eval_set=[(X[EVAL], LABELS[EVAL])],
            eval_metric="auc", callbacks=[lgb.early_stopping(6, verbose=False)],
        )  # fmt: skip


def lightgbm_parameter(rows):
    params = {
        "objective": "binary", "num_leaves": 6, "verbose": -1, "num_threads": 1, "metric": ["auc", "binary_logloss"],
        "early_stopping_round": 4, "early_stopping_min_delta": 1e-3,
    }  # fmt: skip
    data = lgb.Dataset(X[rows], LABELS[rows] == "yes", weight=W[rows])
    held = lgb.Dataset(X[EVAL], LABELS[EVAL] == "yes", weight=W[EVAL], reference=data)
    return lgb.train(params, data, MOST, valid_sets=[held])


def xgboost_estimator(rows):
    y = LABELS == "yes"
    model = xgb.XGBClassifier(
        n_estimators=MOST, max_depth=3, learning_rate=0.1, n_jobs=1, early_stopping_rounds=6,
        eval_metric=["auc", "logloss"],
    )  # fmt: skip
    sets = [(X[TEST], y[TEST]), (X[EVAL], y[EVAL])]  # the last one decides
    return model.fit(X[rows], y[rows], sample_weight=W[rows], eval_set=sets, verbose=False)


def brier(y, p, sample_weight=None):
    return float(np.average((y - p) ** 2, weights=sample_weight))


def xgboost_metric(rows):
    y = LABELS == "yes"
    stop = xgb.callback.EarlyStopping(rounds=4, save_best=True, min_delta=1e-4)
    model = xgb.XGBClassifier(
        n_estimators=MOST,
        max_depth=3,
        learning_rate=0.1,
        n_jobs=1,
        eval_metric=brier,
        callbacks=[stop],
    )
    return model.fit(
        X[rows], y[rows], sample_weight=W[rows], eval_set=[(X[EVAL], y[EVAL])],
        sample_weight_eval_set=[W[EVAL]], verbose=False,
    )  # fmt: skip


def xgboost_booster(rows):
    y = LABELS == "yes"
    data = xgb.DMatrix(X[rows], y[rows], weight=W[rows])
    held = xgb.DMatrix(X[EVAL], y[EVAL])
    params = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.1, "nthread": 1}
    return xgb.train(
        params, data, MOST, evals=[(held, "held")], early_stopping_rounds=6, verbose_eval=False
    )


def catboost_detector(rows):
    model = catboost.CatBoostClassifier(
        iterations=MOST, depth=3, learning_rate=0.2, early_stopping_rounds=6, eval_metric="AUC",
        verbose=0, thread_count=1, allow_writing_files=False,
    )  # fmt: skip
    return model.fit(pool(rows), eval_set=pool(EVAL))


def catboost_best_model(rows):
    model = catboost.CatBoostClassifier(
        iterations=60, depth=3, learning_rate=0.3, verbose=0, thread_count=1, allow_writing_files=False
    )  # fmt: skip
    return model.fit(pool(rows), eval_set=(X[EVAL], LABELS[EVAL]))


def hist_with_rows(rows):
    model = HistGradientBoostingClassifier(
        max_iter=MOST, early_stopping=True, n_iter_no_change=3, max_leaf_nodes=6, random_state=0
    )
    return model.fit(
        X[rows], LABELS[rows], sample_weight=W[rows], X_val=X[EVAL], y_val=LABELS[EVAL]
    )


NUMBERS = (LABELS == "yes").astype(int)
HELD = (X[EVAL], LABELS[EVAL])
HELD_NUMBERS = (X[EVAL], NUMBERS[EVAL])
# fit, labels, eval_set, params
CASES = {
    "LightGBM, callback": (lightgbm_callback, LABELS, [HELD], {"early_stopping_rounds": 6}),
    "LightGBM, parameter": (lightgbm_parameter, NUMBERS, (*HELD_NUMBERS, W[EVAL]), {}),
    "XGBoost, estimator": (xgboost_estimator, NUMBERS, [(X[TEST], NUMBERS[TEST]), HELD_NUMBERS], {}),
    "XGBoost, own metric": (xgboost_metric, NUMBERS, [(*HELD_NUMBERS, W[EVAL])], {}),
    "XGBoost, Booster": (
        xgboost_booster, NUMBERS, [(xgb.DMatrix(*HELD_NUMBERS), "held")],
        {"early_stopping_rounds": 6, "num_boost_round": MOST},
    ),
    "CatBoost, detector": (catboost_detector, LABELS, pool(EVAL), {}),
    "CatBoost, best model": (catboost_best_model, LABELS, HELD, {}),
    "HistGradientBoosting, X_val": (hist_with_rows, LABELS, HELD, {}),
}  # fmt: skip


def raw(model, rows):
    """Raw scores by the library itself."""
    if isinstance(model, (catboost.CatBoost,)):
        return model.predict(rows, prediction_type="RawFormulaVal")
    if isinstance(model, lgb.Booster):
        return model.predict(rows, raw_score=True)
    if isinstance(model, lgb.LGBMModel):
        return model.booster_.predict(rows, raw_score=True)
    if isinstance(model, xgb.Booster):
        return model.predict(xgb.DMatrix(rows), output_margin=True)
    if isinstance(model, xgb.XGBModel):
        return model.predict(rows, output_margin=True)
    return model.decision_function(rows)


@functools.cache
def model_of_all(fit):
    """Return the model of all training rows; tests do not change it."""
    return fit(np.arange(200))


@pytest.fixture(scope="module", params=CASES)
def case(request):
    fit_takes = inspect.signature(HistGradientBoostingClassifier.fit).parameters
    if request.param.startswith("Hist") and "X_val" not in fit_takes:
        pytest.skip("fit() of this version takes no X_val")
    fit, labels, eval_set, params = CASES[request.param]
    tracer = lt.Tracer(
        model_of_all(fit), X[TRAIN], labels[TRAIN], W[TRAIN], params=params, eval_set=eval_set,
        n_jobs=1,
    )  # fmt: skip
    return fit, tracer, eval_set


def test_repeated_as_the_user_repeats_it(case):
    """A retraining without some rows is the user's own fit without them, by the same eval_set."""
    fit, tracer, _ = case
    without = fit(KEPT)
    model = tracer.retrain(GONE)
    # The library's own arithmetic, float32 in XGBoost: the same trees give the same scores.
    np.testing.assert_allclose(raw_scores(model, X[TEST]), raw(without, X[TEST]), atol=2e-6)
    assert model.rounds.stopping == "repeated"
    assert model.rounds.count != model.rounds.before
    assert str(model.rounds) == (
        f"early stopping repeated: {model.rounds.count} rounds, {model.rounds.before} before"
    )
    assert model.structure_changed
    # Trained again on all rows it is the model itself.
    again = tracer.retrain()
    assert not again.structure_changed
    assert again.rounds.count == again.rounds.before == tracer.engine.ensemble.n_steps


def test_every_way_of_retraining_repeats_it(case):
    """`Retrain` and the tracer of a retrained model stop early, too."""
    fit, tracer, _ = case
    y = tracer.y_train
    row = 17
    kept = np.delete(np.arange(200), row)
    influence = tracer.influence(
        X[TEST], method=lt.Retrain(), of="prediction", rows=[row], reduce="mean"
    )
    moved = raw(fit(kept), X[TEST]).mean() - raw(model_of_all(fit), X[TEST]).mean()
    assert influence.change[0, 0] == pytest.approx(moved, abs=2e-6)
    followed = tracer.follow(tracer.retrain(GONE))
    second = followed.retrain(np.arange(5))
    np.testing.assert_allclose(raw_scores(second, X[TEST]), raw(fit(KEPT[5:]), X[TEST]), atol=2e-6)
    assert second.rounds.stopping == "repeated"
    assert len(y) == 200


def test_without_eval_set_the_rounds_stay(case):
    """Without eval_set a retraining has the rounds of the model, and says so."""
    fit, tracer, _ = case
    params = {"early_stopping_rounds": 6} if fit is lightgbm_callback else {}
    plain = lt.Tracer(model_of_all(fit), X[TRAIN], tracer.y_train, W[TRAIN], params=params)
    model = plain.retrain(GONE)
    assert model.rounds.stopping == "kept"
    assert model.rounds.count == model.rounds.before == plain.engine.ensemble.n_steps
    assert "early stopping was not repeated" in str(model.rounds)


def test_eval_set_of_a_single_retraining(case):
    """`retrain(eval_set=)` does the same as `Tracer(eval_set=)`."""
    fit, tracer, eval_set = case
    params = next(c for c in CASES.values() if c[0] is fit)[3]
    plain = lt.Tracer(model_of_all(fit), X[TRAIN], tracer.y_train, W[TRAIN], params=params)
    one = plain.retrain(GONE, eval_set=eval_set)
    np.testing.assert_array_equal(one.scores(X[TEST]), tracer.retrain(GONE).scores(X[TEST]))
    assert plain.retrain(GONE).rounds.stopping == "kept"


def test_other_rows_than_those_of_training_are_refused(case):
    """Rows that do not stop the training where it stopped are not those of training."""
    fit, tracer, _ = case
    _, labels, _, params = next(c for c in CASES.values() if c[0] is fit)
    model = model_of_all(fit)
    wrong = [(X[EVAL], labels[EVAL][::-1])]  # stops at once
    if fit in (lightgbm_callback, catboost_detector):  # the others take seconds for it
        wrong.append((X[TRAIN], tracer.y_train))  # on its own rows, a model improves for long
    for eval_set in wrong:
        plain = lt.Tracer(
            model, X[TRAIN], tracer.y_train, W[TRAIN], params=params, eval_set=eval_set
        )
        with pytest.raises(lt.InvalidInput, match="trained again on all rows with this eval_set"):
            plain.retrain(GONE)


def test_stopping_inside_of_fit():
    """Early stopping on rows that fit() itself holds out is repeated without an eval_set."""
    y = X[:, 0] + X[:, 1] ** 2
    model = GradientBoostingRegressor(
        n_estimators=200, n_iter_no_change=2, validation_fraction=0.4, random_state=1, max_depth=2
    ).fit(X[TRAIN], y[TRAIN])
    tracer = lt.Tracer(model, X[TRAIN], y[TRAIN])
    rounds = tracer.retrain(GONE).rounds
    assert rounds.stopping == "repeated"
    assert rounds.before == model.n_estimators_
    with pytest.raises(lt.InvalidInput, match="leave eval_set out"):
        tracer.retrain(GONE, eval_set=(X[EVAL], y[EVAL]))


def test_models_without_early_stopping():
    """A model that never stopped early needs nothing, and takes no eval_set."""
    y = X[:, 0]
    held = (X[EVAL], y[EVAL])
    forest = RandomForestRegressor(5, random_state=0)
    cat = catboost.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False)
    light = lgb.LGBMRegressor(n_estimators=5, verbose=-1)
    xg = xgb.XGBRegressor(n_estimators=5)
    for model in (forest, cat, light, xg):
        tracer = lt.Tracer(model.fit(X[TRAIN], y[TRAIN]), X[TRAIN], y[TRAIN])
        rounds = tracer.retrain(GONE).rounds
        assert (rounds.stopping, rounds.count, rounds.before) == ("none", 5, 5)
        assert str(rounds) == "5 rounds, as many as before"
        with pytest.raises(lt.InvalidInput, match=r"leave eval_set out|early_stopping_rounds"):
            tracer.retrain(GONE, eval_set=held)


def test_patience_that_a_model_does_not_keep():
    """A LightGBM callback and a Booster of XGBoost keep no settings: the message names them."""
    for fit, labels in ((lightgbm_callback, LABELS), (xgboost_booster, NUMBERS)):
        tracer = lt.Tracer(fit(np.arange(200)), X[TRAIN], labels[TRAIN], W[TRAIN])
        with pytest.raises(lt.InvalidInput, match="early_stopping_rounds"):
            tracer.retrain(GONE, eval_set=(X[EVAL], labels[EVAL]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "empty"),
        (X, "has a ndarray"),
        ((X,), "tuple of 1"),
        ([(X[:5], LABELS[:4])], "4 values but X has 5 rows"),
    ],
)
def test_eval_sets_of_wrong_form(given, message):
    model = lgb.LGBMClassifier(n_estimators=3, verbose=-1).fit(X[TRAIN], LABELS[TRAIN])
    with pytest.raises(lt.InvalidInput, match=message):
        lt.Tracer(model, X[TRAIN], LABELS[TRAIN], eval_set=given)


def test_pipelines_and_named_classes():
    """The rows of eval_set go through a Pipeline, and its labels may be names."""
    table = pd.DataFrame(X, columns=list("abcde"))
    scaler = StandardScaler().fit(table[TRAIN])
    held = [(scaler.transform(table[EVAL]), NUMBERS[EVAL])]

    def fit(rows):
        model = xgb.XGBClassifier(
            n_estimators=MOST, max_depth=3, learning_rate=0.1, n_jobs=1, early_stopping_rounds=6
        )
        return model.fit(
            scaler.transform(table.iloc[rows]), NUMBERS[rows], eval_set=held, verbose=False
        )

    pipeline = make_pipeline(scaler, fit(np.arange(200)))
    booster = pipeline[-1].get_booster()
    tracer = lt.Tracer(
        pipeline, table[TRAIN], LABELS[TRAIN], eval_set=(table[EVAL], LABELS[EVAL]), n_jobs=1,
        class_names=["no", "yes"],
    )  # fmt: skip
    without = fit(KEPT)
    model = tracer.retrain(GONE)
    expected = without.predict(scaler.transform(table[TEST]), output_margin=True)
    np.testing.assert_allclose(raw_scores(model, table[TEST]), expected, atol=2e-6)
    assert model.rounds.count == without.best_iteration + 1 != booster.best_iteration + 1


def test_actions_say_what_was_done():
    """Advice and tables of actions that retrain name the rounds; members of an ensemble obey, too."""
    model = catboost_detector(np.arange(200))
    settings = {"n_jobs": 1}
    kept = lt.Tracer(model, X[TRAIN], LABELS[TRAIN], W[TRAIN], **settings)
    repeated = lt.Tracer(model, X[TRAIN], LABELS[TRAIN], W[TRAIN], eval_set=pool(EVAL), **settings)
    before = model.tree_count_
    after = catboost_detector(KEPT).tree_count_
    told = {
        kept: f"Retraining kept the {before} rounds at which training had stopped early; "
        "Tracer(..., eval_set=) repeats early stopping.",
        repeated: f"Early stopping was repeated: {after} rounds, {before} before.",
    }
    kinds = {
        kept: "retrained, same number of rounds", repeated: "retrained, early stopping repeated"
    }  # fmt: skip
    for tracer, sentence in told.items():
        impact = lt.removal_impact(tracer, GONE, X[TEST], LABELS[TEST])
        assert impact.advice.endswith(sentence)
        refit_only = lt.removal_impact(tracer, GONE, X[TEST], LABELS[TEST], retrain=False)
        assert sentence not in refit_only.advice  # nothing was retrained for it
        single = tracer.influence(X[TEST], LABELS[TEST], method=lt.Retrain(), rows=[3])
        assert set(single.top(1).change_is) == {kinds[tracer]}

    def fit(model, rows, y, weight):
        return model.fit(rows, y, sample_weight=weight, eval_set=HELD)

    def make(seed):
        return catboost.CatBoostClassifier(
            iterations=60, depth=2, early_stopping_rounds=3, verbose=0, thread_count=1,
            random_seed=seed, allow_writing_files=False,
        )  # fmt: skip

    arguments = (make, X[TRAIN], LABELS[TRAIN], X[TEST], LABELS[TEST])
    found = lt.ensemble_influence(*arguments, members=2, bag=1.0, fit=fit, eval_set=HELD)
    assert "Early stopping was repeated: " in found.confirm(GONE).advice
    plain = lt.ensemble_influence(*arguments, members=2, bag=1.0, fit=fit)
    assert "Retraining kept the " in plain.confirm(GONE).advice
