"""Retraining on other training sets, and tracers of it, against models fitted directly."""

import warnings
from copy import deepcopy

import cases_catboost
import cases_lightgbm
import cases_xgboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from boosters import binary, frame, numbers, three_classes, weights
from catboost import CatBoostClassifier, CatBoostRegressor, Pool
from raw_scores import raw_scores
from sklearn.base import clone
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn_forest import forest_raw
from sklearn_gradient import gradient_raw
from sklearn_hist import hist_raw
from threadpoolctl import threadpool_limits
from training_sets import other_labels, other_weights, random_rows, take

import leaftrace as lt

CAT = {
    "verbose": 0,
    "allow_writing_files": False,
    "thread_count": 1,
    "iterations": 12,
    "learning_rate": 0.3,
}
LIGHT = {"verbosity": -1, "num_threads": 1, "force_row_wise": True, "n_estimators": 12}
XG = {"n_jobs": 1, "n_estimators": 8}
MODELS = {  # model, data, weighted
    "CatBoost, categories, strings, class weights": (
        CatBoostClassifier(**CAT, cat_features=["kind"], class_weights={"no": 1.0, "yes": 2.0}), frame(), True,
    ),
    "CatBoost, target statistics": (
        CatBoostRegressor(**CAT, cat_features=["kind", "town"]), frame("number", many=True), False,
    ),
    "CatBoost, three classes, balanced": (
        CatBoostClassifier(**CAT, auto_class_weights="Balanced"), three_classes(text=True), True,
    ),
    "CatBoost, rows drawn": (CatBoostRegressor(**CAT, bootstrap_type="Bernoulli", subsample=0.6), numbers(), False),
    "LightGBM, three classes, balanced": (
        lgb.LGBMClassifier(**LIGHT, class_weight="balanced"), three_classes(text=True), True,
    ),
    "LightGBM, categories, strings": (lgb.LGBMClassifier(**LIGHT, scale_pos_weight=1.5), frame(many=True), False),
    "LightGBM, bagging": (lgb.LGBMRegressor(**LIGHT, subsample=0.6, subsample_freq=1), numbers(), True),
    "LightGBM, GOSS": (lgb.LGBMRegressor(**LIGHT, data_sample_strategy="goss", learning_rate=0.25), numbers(), True),
    "LightGBM, median": (lgb.LGBMRegressor(**LIGHT, objective="l1"), numbers(), False),
    "XGBoost, three classes": (xgb.XGBClassifier(**XG), cases_xgboost.three_classes(), True),
    "XGBoost, categories, class weights": (
        xgb.XGBClassifier(**XG, enable_categorical=True, scale_pos_weight=2.0), cases_xgboost.coded(frame()), False,
    ),
    "XGBoost, rows drawn": (xgb.XGBRegressor(**XG, subsample=0.7, random_state=4), numbers(), True),
    "XGBoost, median": (xgb.XGBRegressor(**XG, objective="reg:absoluteerror"), numbers(), False),
    "HistGradientBoosting, categories, balanced": (
        HistGradientBoostingClassifier(
            max_iter=8, categorical_features="from_dtype", class_weight="balanced", random_state=0
        ), frame(), True,
    ),
    "HistGradientBoosting, early stopping": (
        HistGradientBoostingRegressor(max_iter=8, early_stopping=True, random_state=0), numbers(), False,
    ),
    "HistGradientBoosting, median": (
        HistGradientBoostingRegressor(max_iter=8, loss="absolute_error", random_state=0), numbers(), False,
    ),
    "GradientBoosting, rows drawn": (
        GradientBoostingRegressor(n_estimators=8, subsample=0.6, n_iter_no_change=5, random_state=0), numbers(), True,
    ),
    "forest, strings": (
        RandomForestClassifier(8, max_depth=4, class_weight="balanced", random_state=0),
        three_classes(text=True), False,
    ),
}  # fmt: skip


def raw(model, X):
    library = type(model).__module__.partition(".")[0]
    if library == "sklearn":
        hist = hasattr(model, "_predictors")
        forest = "forest" in type(model).__module__
        by = hist_raw if hist else forest_raw if forest else gradient_raw
    else:
        by = {"catboost": cases_catboost, "lightgbm": cases_lightgbm, "xgboost": cases_xgboost}[
            library
        ].raw
    return np.asarray(by(model, X)).reshape(X.shape[0], -1)


def below(X, more):
    return pd.concat([X, more]) if hasattr(X, "iloc") else np.concatenate([X, more])


def fitted(model, X, y, w):
    return deepcopy(model).fit(X, y, **({} if w is None else {"sample_weight": w}))


def altered(data, w):
    """Return (arguments of retrain, the table, labels and weights they stand for).

    Some rows are changed and some are added."""
    n = len(data.y)
    y, _ = other_labels(data)
    gone = random_rows(n)
    keep = np.setdiff1d(np.arange(n), gone)
    new = other_weights(np.ones(n) if w is None else w) if w is not None else None
    yield (
        {"without": gone, "y": y, "sample_weight": new},
        (take(data.X, keep), y[keep], None if new is None else new[keep]),
    )
    rows = take(data.X_test, range(7)), data.y_test[:7]
    yield (
        {"added": rows},
        (
            below(data.X, rows[0]),
            np.append(data.y, rows[1]),
            None if w is None else np.append(w, np.ones(7)),
        ),
    )


@pytest.mark.parametrize("name", MODELS)
@threadpool_limits.wrap(limits=1)
def test_retraining_is_fitting(name):
    model, data, weighted = MODELS[name]
    w = weights(len(data.y)) if weighted else None
    tracer = lt.Tracer(
        fitted(model, data.X, data.y, w), data.X, data.y, w, n_jobs=1, dtype="float64"
    )
    assert not tracer.retrain().structure_changed
    for arguments, rows in altered(data, w):
        retrained = tracer.retrain(**arguments)
        direct = fitted(model, *rows)
        check_followed(tracer, retrained, direct, raw(direct, data.X_test), rows, data)
        if "added" in arguments:
            index = (
                tracer.train_index.tolist()
                + np.asarray(getattr(data.X_test, "index", range(7)))[:7].tolist()
            )
            assert tracer.follow(retrained).train_index.tolist() == index


def check_followed(tracer, retrained, direct, expected, rows, data, **more):
    """Check that the retrained model and its tracer equal those of the model fitted directly."""
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(retrained.scores(data.X_test), expected, atol=2e-6 * scale)
    followed = tracer.follow(retrained)
    assert followed.fidelity.exact, followed.fidelity.verdict
    np.testing.assert_allclose(followed.refit().scores(data.X_test), expected, atol=2e-6 * scale)
    assert followed.y_train.tolist() == rows[1].tolist()
    own = lt.Tracer(direct, *rows, n_jobs=1, dtype="float64", **more)
    np.testing.assert_allclose(followed.sample_weight, own.sample_weight, rtol=1e-6)
    smooth = not own.engine.ensemble.not_smooth
    ask = (
        {"reduce": "mean"}
        if smooth
        else {"reduce": "mean", "method": lt.LeafRefit(), "rows": [1, 20, 50]}
    )
    expected = own.influence(data.X_test, data.y_test, **ask).values
    found = followed.influence(data.X_test, data.y_test, **ask).values
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    again = followed.retrain(without=[0])  # a retrained model can be altered again
    assert len(again.rows.keep) == len(rows[1]) - 1


PIPELINES = {
    "LightGBM": (make_pipeline(StandardScaler(), lgb.LGBMRegressor(**LIGHT)), numbers()),
    "CatBoost": (make_pipeline(StandardScaler(), CatBoostClassifier(**CAT)), binary(text=True)),
    "XGBoost": (make_pipeline(StandardScaler(), xgb.XGBClassifier(**XG)), binary()),
    "scikit-learn": (
        make_pipeline(QuantileTransformer(n_quantiles=30), HistGradientBoostingRegressor(max_iter=8, random_state=0)),
        numbers(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
@threadpool_limits.wrap(limits=1)
def test_pipelines(name):
    """The steps before the model are not fitted again; new rows pass through them."""
    pipeline, data = PIPELINES[name]
    pipeline = clone(pipeline).fit(data.X, data.y)
    first = pipeline[:-1]
    tracer = lt.Tracer(pipeline, data.X, data.y, n_jobs=1, dtype="float64")
    bare = lt.Tracer(pipeline[-1], first.transform(data.X), data.y, n_jobs=1, dtype="float64")
    for arguments, rows in altered(data, None):
        direct = fitted(pipeline[-1], first.transform(rows[0]), rows[1], None)
        retrained = tracer.retrain(**arguments)
        expected = raw(direct, first.transform(data.X_test))
        np.testing.assert_allclose(
            retrained.scores(data.X_test), expected, atol=2e-6 * max(1, np.abs(expected).max())
        )
        followed = tracer.follow(retrained)
        assert followed.fidelity.exact
        np.testing.assert_array_equal(followed.X_train, rows[0])
        np.testing.assert_array_equal(followed.y_train, rows[1])
        np.testing.assert_allclose(
            followed.refit().scores(data.X_test), retrained.scores(data.X_test), atol=2e-6
        )
        transformed = arguments
        if "added" in arguments:
            transformed = {"added": (first.transform(arguments["added"][0]), arguments["added"][1])}
        inner = bare.refit(**transformed).scores(first.transform(data.X_test))
        np.testing.assert_array_equal(tracer.refit(**arguments).scores(data.X_test), inner)


# ---- libraries' own matrices, baselines, early stopping ----


def test_an_xgboost_matrix():
    data = cases_xgboost.binary()
    w = weights(len(binary().y))
    params = {
        "objective": "binary:logistic",
        "nthread": 1,
        "scale_pos_weight": 1.5,
        "subsample": 0.8,
        "seed": 3,
    }
    tracer = lt.Tracer(
        xgb.train(params, xgb.DMatrix(data.X, data.y, weight=w), 6),
        xgb.DMatrix(data.X, data.y, weight=w), n_jobs=1, dtype="float64",
    )  # fmt: skip
    (arguments, rows), (added, _) = altered(data, w)
    table = lt.Tracer(tracer.engine.source.booster, data.X, data.y, w, n_jobs=1)
    np.testing.assert_array_equal(
        raw_scores(tracer.refit(**arguments), data.X_test),
        raw_scores(table.refit(**arguments), data.X_test),
    )
    direct = xgb.train(params, xgb.DMatrix(rows[0], rows[1], weight=rows[2]), 6)
    check_followed(
        tracer, tracer.retrain(**arguments), direct, raw(direct, data.X_test), rows, data
    )
    with pytest.raises(lt.InvalidInput, match="rows cannot be added to a DMatrix"):
        tracer.retrain(**added)


def test_a_lightgbm_dataset():
    data = binary()
    w = weights(len(binary().y))
    params = {k: v for k, v in LIGHT.items() if k != "n_estimators"} | {
        "objective": "binary",
        "is_unbalance": True,
    }
    dataset = lgb.Dataset(data.X, data.y, weight=w, free_raw_data=False)
    tracer = lt.Tracer(lgb.train(params, dataset, 8), dataset, n_jobs=1, dtype="float64")
    for arguments, rows in altered(data, w):
        direct = lgb.train(params, lgb.Dataset(rows[0], rows[1], weight=rows[2]), 8)
        check_followed(
            tracer, tracer.retrain(**arguments), direct, raw(direct, data.X_test), rows, data
        )


def test_a_catboost_pool():
    data = frame()
    w = weights(len(frame().y))
    pool = Pool(data.X, data.y, weight=w, cat_features=["kind"])
    tracer = lt.Tracer(CatBoostClassifier(**CAT).fit(pool), pool, n_jobs=1, dtype="float64")
    (arguments, _), (added, _) = altered(data, w)
    table = lt.Tracer(tracer.engine.source.model, data.X, data.y, w, n_jobs=1)
    np.testing.assert_array_equal(
        raw_scores(tracer.refit(**arguments), data.X_test),
        raw_scores(table.refit(**arguments), data.X_test),
    )
    for refused in ({"y": arguments["y"]}, added):
        with pytest.raises(lt.InvalidInput, match="of a Pool cannot be changed"):
            tracer.retrain(**refused)
    gone = arguments["without"]
    new = arguments["sample_weight"]
    keep = np.setdiff1d(np.arange(len(data.y)), gone)
    rows = data.X.iloc[keep], data.y[keep], new[keep]
    direct = CatBoostClassifier(**CAT).fit(
        Pool(rows[0], rows[1], weight=rows[2], cat_features=["kind"])
    )
    retrained = tracer.retrain(gone, sample_weight=new)
    check_followed(tracer, retrained, direct, raw(direct, data.X_test), rows, data)


def test_baselines():
    """Baselines stay with their rows; new rows have none."""
    data = binary()
    w = weights(len(binary().y))
    given = np.float32(0.5 * np.random.default_rng(4).normal(size=len(data.y))).astype(float)
    at_test = np.float32(0.5 * np.random.default_rng(5).normal(size=len(data.y_test))).astype(float)
    light = {k: v for k, v in LIGHT.items() if k != "n_estimators"} | {"objective": "binary"}

    def catboost(X, y, w, b):
        return CatBoostClassifier(**CAT).fit(Pool(X, y, weight=w, baseline=b))

    def lightgbm(X, y, w, b):
        return lgb.train(light, lgb.Dataset(X, y, weight=w, init_score=b), 8)

    def xgboost(X, y, w, b):
        matrix = xgb.DMatrix(X, y, weight=w, base_margin=b)
        return xgb.train({"objective": "binary:logistic", "nthread": 1}, matrix, 8)

    def xgboost_raw(model, X):
        return (
            model.predict(xgb.DMatrix(X, base_margin=at_test), output_margin=True)[:, None]
            - at_test[:, None]
        )

    (arguments, rows), (added, _) = altered(data, w)
    keep = np.setdiff1d(np.arange(len(data.y)), arguments["without"])
    for fit, by in ((catboost, raw), (lightgbm, raw), (xgboost, xgboost_raw)):
        tracer = lt.Tracer(
            fit(data.X, data.y, w, given), data.X, data.y, w, baseline=given, n_jobs=1
        )
        retrained = tracer.retrain(**arguments)
        direct = fit(*rows, given[keep])
        expected = by(direct, data.X_test) + at_test[:, None]
        np.testing.assert_allclose(retrained.scores(data.X_test, at_test), expected, atol=5e-6)
        followed = tracer.follow(retrained)
        assert followed.fidelity.exact
        np.testing.assert_allclose(
            followed.refit().scores(data.X_test, at_test), expected, atol=5e-6
        )
        # Without a baseline the base score is used. It is unchanged, because no training row used it.
        np.testing.assert_allclose(
            followed.refit().scores(data.X_test), retrained.scores(data.X_test), atol=5e-6
        )
        for way in (tracer.refit, tracer.retrain):
            with pytest.raises(
                lt.InvalidInput, match="trained with a baseline, which new rows lack"
            ):
                way(**added)


def test_early_stopping_keeps_its_rounds():
    """Models that stopped early are trained again for the same number of rounds."""
    data = numbers()
    w = weights(len(numbers().y))
    held = [(data.X_test, data.y_test)]
    light = lgb.LGBMRegressor(**{**LIGHT, "n_estimators": 100})
    stop = lgb.early_stopping(3, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # new versions have another name for eval_set
        light.fit(data.X, data.y, sample_weight=w, eval_set=held, callbacks=[stop])
    cat = CatBoostRegressor(**{**CAT, "iterations": 100, "early_stopping_rounds": 3})
    cat.fit(data.X, data.y, sample_weight=w, eval_set=held)
    xg = xgb.XGBRegressor(n_jobs=1, n_estimators=100, early_stopping_rounds=3)
    xg.fit(data.X, data.y, sample_weight=w, eval_set=held, verbose=False)
    (arguments, rows), _ = altered(data, w)
    for model, rounds, name in (
        (light, light.best_iteration_, "n_estimators"),
        (cat, cat.tree_count_, "iterations"),
        (xg, xg.best_iteration + 1, "n_estimators"),
    ):
        assert 3 < rounds < 90
        tracer = lt.Tracer(model, data.X, data.y, w, n_jobs=1, dtype="float64")
        direct = fitted(
            clone(model).set_params(**{name: rounds, "early_stopping_rounds": None}), *rows
        )
        check_followed(
            tracer, tracer.retrain(**arguments), direct, raw(direct, data.X_test), rows, data
        )
