"""Real retraining without rows."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor, Pool
from catboost_models import QUIET, case, tracer_of
from raw_scores import raw_scores
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from xgboost import XGBRegressor

import leaftrace as lt


def test_leave_one_out_is_catboost_without_the_row():
    c = case("logloss weights")
    tracer = tracer_of(c, n_jobs=2)
    rows = [3, 50]
    result = tracer.influence(c.X_test, c.y_test, method=lt.Retrain(), rows=rows)
    assert not result.derivative
    for i, values in zip(rows, result.values, strict=True):
        keep = np.arange(len(c.y)) != i
        p = c.model.get_all_params()
        model = CatBoostClassifier(
            **QUIET, iterations=30, depth=4, l2_leaf_reg=1.7, learning_rate=p["learning_rate"],
            leaf_estimation_iterations=p["leaf_estimation_iterations"],
        ).fit(Pool(c.X[keep], c.y[keep], weight=c.weight[keep]))  # fmt: skip

        def loss(m):
            F = m.predict(c.X_test, prediction_type="RawFormulaVal")
            return np.logaddexp(0, F) - c.y_test * F

        np.testing.assert_allclose(values, loss(c.model) - loss(model), atol=1e-9)


def test_nothing_removed_gives_the_model_back():
    for name in ("logloss newton 10 backtracking", "categories and missing values", "multiclass", "logloss baseline",
                 "rmse early stopping", "logloss ordered", "logloss lossguide", "logloss class weights"):  # fmt: skip
        c = case(name)
        again = tracer_of(c).retrain(without=[])
        assert not again.structure_changed, name
        raw = np.asarray(c.model.predict(c.X_test, prediction_type="RawFormulaVal"))
        np.testing.assert_allclose(raw_scores(again, c.X_test), raw, atol=1e-12, err_msg=name)


def test_a_baseline_of_test_rows_counts_once():
    """Given in a pool or as an argument, a baseline is added once to the scores of test rows."""
    c = case("logloss baseline")
    tracer = tracer_of(c)
    given = np.float32(np.random.default_rng(8).normal(size=len(c.y_test)))
    pool = Pool(c.X_test, c.y_test, baseline=given)
    F = c.model.predict(c.X_test, prediction_type="RawFormulaVal") + given
    for altered in (tracer.refit(without=[]), tracer.retrain(without=[])):
        np.testing.assert_allclose(raw_scores(altered, pool), F, atol=1e-6)
        np.testing.assert_allclose(raw_scores(altered, c.X_test, baseline=given), F, atol=1e-6)
        np.testing.assert_allclose(altered.loss(pool), np.logaddexp(0, F) - c.y_test * F, atol=1e-6)
    for method in (lt.LeafInfluence(), lt.LeafRefit(), lt.Retrain()):
        one = tracer.influence(pool, method=method, rows=[3]).values
        two = tracer.influence(c.X_test, c.y_test, baseline=given, method=method, rows=[3]).values
        np.testing.assert_allclose(one, two, atol=1e-6 * np.abs(two).max())
        plain = tracer.influence(c.X_test, c.y_test, method=method, rows=[3]).values
        assert np.abs(two - plain).max() > 1e-3 * np.abs(plain).max()


def test_structure_changes_are_reported():
    """One row changes only leaf values when removed, another changes a split."""
    X = np.repeat([[0.0], [1.0], [5.0]], [30, 30, 1], axis=0)
    y = np.r_[np.zeros(30), np.ones(30), 40.0]
    settings = {
        **QUIET,
        "iterations": 3,
        "depth": 2,
        "bootstrap_type": "No",
        "random_strength": 0,
        "learning_rate": 0.5,
    }
    model = CatBoostRegressor(**settings).fit(X, y)
    tracer = lt.Tracer(model, X, y)
    result = tracer.influence(X[:2], y[:2], method=lt.Retrain(), rows=[0, 60])
    np.testing.assert_array_equal(result.structure_changed, [False, True])
    assert tracer.retrain(without=[60]).structure_changed


def test_where_the_structure_stays_retraining_is_leaf_refit():
    """LeafRefit is exact when no tree changes, as the paper claims."""
    X = np.repeat([[0.0], [1.0], [2.0]], 40, axis=0)
    rng = np.random.default_rng(0)
    y = np.repeat([0.0, 3.0, 9.0], 40) + rng.normal(size=120) * 0.1
    y = np.float32(y).astype(float)
    settings = {
        **QUIET,
        "iterations": 5,
        "depth": 2,
        "bootstrap_type": "No",
        "random_strength": 0,
        "learning_rate": 0.5,
    }
    model = CatBoostRegressor(**settings).fit(X, y)
    tracer = lt.Tracer(model, X, y, dtype="float64")
    rows = [0, 41, 100]
    retrained = tracer.influence(X[::40], y[::40], method=lt.Retrain(), rows=rows)
    refitted = tracer.influence(X[::40], y[::40], method=lt.LeafRefit(), rows=rows)
    assert not retrained.structure_changed.any()
    # Bases of both models are rounded to float32.
    np.testing.assert_allclose(
        refitted.values, retrained.values, atol=1e-5 * np.abs(retrained.values).max()
    )
    group = raw_scores(tracer.refit(without=range(0, 120, 9)), X[::40])
    np.testing.assert_allclose(
        group, raw_scores(tracer.retrain(without=range(0, 120, 9)), X[::40]), atol=1e-5
    )


def test_probabilities_and_losses():
    c = case("multiclass")
    again = tracer_of(c).retrain(without=[])
    np.testing.assert_allclose(
        again.predict_proba(c.X_test), c.model.predict_proba(c.X_test), atol=1e-12
    )
    p = c.model.predict_proba(c.X_test)
    np.testing.assert_allclose(
        again.loss(c.X_test, c.y_test),
        -np.log(p[np.arange(20), c.test_codes.astype(int)]),
        atol=1e-12,
    )
    binary = case("logloss newton 1")
    refit = tracer_of(binary).refit(without=[])
    np.testing.assert_allclose(
        refit.predict_proba(binary.X_test), binary.model.predict_proba(binary.X_test), atol=1e-12
    )


@pytest.mark.parametrize("kind", ["cbm", "json"])
def test_models_from_files(tmp_path, kind):
    for name in (
        "logloss newton 10 backtracking",
        "categories and missing values",
        "multiclass weights",
        "rmse weights",
    ):
        c = case(name)
        path = tmp_path / "model.file"
        c.model.save_model(
            str(path),
            format=kind,
            **({"pool": Pool(c.X, cat_features=["kind"])} if "cat" in name else {}),
        )
        tracer = lt.Tracer(path, c.X, c.y, c.weight, dtype="float64")
        expected = tracer_of(c).influence(c.X_test, c.y_test).values
        # JSON keeps 17 digits of a leaf value but may round the last.
        np.testing.assert_allclose(
            tracer.influence(c.X_test, c.y_test).values,
            expected,
            atol=1e-9 * np.abs(expected).max(),
        )
        assert not tracer.retrain(without=[]).structure_changed


def test_errors_of_catboost_in_training():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = rng.normal(size=40)
    model = CatBoostRegressor(iterations=3, **QUIET).fit(X, y)
    with pytest.raises(lt.LeaftraceError, match=r"cannot train .* it says: .*targets are equal"):
        lt.Tracer(model, X, y).retrain(y=np.ones(40))


def few_counts():
    """Forty rows with counts, two of which are not zero, in an array."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.zeros(40)
    y[[3, 7]] = 2, 5
    return X, y


COUNTS = {
    "LightGBM": lgb.LGBMRegressor(
        objective="poisson", n_estimators=3, min_child_samples=1, n_jobs=1, verbose=-1
    ),
    "XGBoost": XGBRegressor(objective="count:poisson", n_estimators=3, n_jobs=1),
    "CatBoost": CatBoostRegressor(loss_function="Poisson", iterations=3, **QUIET),
    "scikit-learn": HistGradientBoostingRegressor(loss="poisson", max_iter=3, min_samples_leaf=1),
}


@pytest.mark.parametrize("library", COUNTS)
def test_training_that_a_library_refuses(library):
    """Counts that are all zero: libraries raise errors of their own, and XGBoost starts at the
    logarithm of zero. One such bag does not end the values of all."""
    X, y = few_counts()
    tracer = lt.Tracer(COUNTS[library].fit(X, y), X, y, n_jobs=1)
    with pytest.raises(lt.LeaftraceError, match=r"cannot train the model again; it says|of zero"):
        tracer.retrain(without=[3, 7])
    found = lt.data_values(tracer, X, y, bag=0.4, members=20)
    assert np.isfinite(found.values).all()
    assert len(found.by_member) < 20


@pytest.mark.parametrize("library", COUNTS)
def test_rows_and_labels_that_a_model_cannot_have(library):
    """Retraining refuses what refitting refuses, in the same words."""
    X, y = few_counts()
    model = COUNTS[library].fit(X, y)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    for way in (tracer.refit, tracer.retrain):
        with pytest.raises(lt.InvalidInput, match="y_new goes from -1 to 2"):
            way(added=(X[:2], [-1, 2]))
        with pytest.raises(lt.InvalidInput, match="y goes from -1 to"):
            way(y=np.where(y == 2, -1, y))
        with pytest.raises(lt.InvalidInput, match=r"2 columns, but the .* 3"):
            way(added=(X[:2, :2], [1, 2]))
        unchanged = way(added=(X[:0], [])).predict(X)
        np.testing.assert_allclose(unchanged, model.predict(X), rtol=1e-5)  # float32


def test_added_numbers_are_not_rounded_to_the_type_of_a_column():
    """A fraction in a column of whole numbers stays one, and so does a missing value."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"whole": rng.integers(0, 3, 60), "number": rng.normal(size=60)})
    y = X["whole"] + X["number"]
    new = pd.DataFrame({"whole": [2.5, np.nan, 0.5, 2.5], "number": np.zeros(4)})
    model = XGBRegressor(n_estimators=3, max_depth=3, n_jobs=1, min_child_weight=0)
    tracer = lt.Tracer(model.fit(X, y), X, y, n_jobs=1)
    found = tracer.retrain(added=(new, [9.0, -9, 9, 9])).predict(new)
    both = pd.concat([X, new], ignore_index=True)
    expected = clone(model).fit(both, np.r_[y, 9.0, -9, 9, 9]).predict(new)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for kind in ("polars", "pyarrow"):
        numbers = {name: new[name].tolist() for name in new}
        wholes = {name: X[name].tolist() for name in X}
        module = pytest.importorskip(kind)
        make = module.DataFrame if kind == "polars" else module.table
        other = lt.Tracer(model, make(wholes), y.to_numpy(), n_jobs=1)
        again = other.retrain(added=(make(numbers), [9.0, -9, 9, 9])).predict(new)
        np.testing.assert_allclose(again, expected, rtol=1e-5)
    with pytest.raises(lt.InvalidInput, match="lack the column"):
        tracer.retrain(added=(new[["number"]], np.ones(4)))


def test_linear_trees_are_trained_one_at_a_time():
    """Two threads that train LightGBM's linear trees end the process; they take turns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    params = {"linear_tree": True, "linear_lambda": 0.1, "num_leaves": 6, "verbosity": -1}
    model = lgb.train(params, lgb.Dataset(X, y, free_raw_data=False), 5)
    tracer = lt.Tracer(model, X, y, n_jobs=2)
    rows = np.arange(12)
    found = tracer.influence(X[:3], of="prediction", method=lt.Retrain(), rows=rows).values
    keep = rows[0] != np.arange(200)
    other = lgb.train(params, lgb.Dataset(X[keep], y[keep]), 5)
    expected = model.predict(X[:3]) - other.predict(X[:3])
    np.testing.assert_allclose(found[0], expected, atol=1e-6)  # passes are in float32
