"""scikit-learn beyond the contract: defaults, rows drawn and held out, retraining, inputs, refusals."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from boosters import binary, frame, numbers, three_classes, weights
from cases_sklearn import VERSION
from raw_scores import raw_scores
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import leaftrace as lt


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with threadpool_limits(
        1, "openmp"
    ):  # with so few rows, threads would mostly wait for each other
        yield


def says(error, *parts):
    return pytest.raises(error, match=".*".join(re.escape(p) for p in parts))


def exact(model, X, y, *more, **kw):
    tracer = lt.Tracer(model, X, y, *more, **{"dtype": "float64", **kw})
    assert tracer.fidelity.exact
    assert tracer.fidelity.max_error < 1e-12
    return tracer


def gradient_raw(model, X):
    return model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)


# ---- two lines ----

DEFAULTS = [
    HistGradientBoostingClassifier(),
    HistGradientBoostingRegressor(),
    GradientBoostingClassifier(),
    GradientBoostingRegressor(),
    RandomForestClassifier(),
    RandomForestRegressor(),
    ExtraTreesClassifier(),
    ExtraTreesRegressor(),
]


@pytest.mark.parametrize("model", DEFAULTS, ids=lambda model: type(model).__name__)
def test_the_defaults_in_two_lines(model):
    """The DataFrame has categories and missing values, as far as the estimator accepts them."""
    data = frame(
        "class" if hasattr(model, "classes_") or "Classifier" in type(model).__name__ else "number",
        n=150,
    )
    X = data.X
    X_test = data.X_test
    if isinstance(model, (HistGradientBoostingClassifier, HistGradientBoostingRegressor)):
        model.set_params(categorical_features="from_dtype")
    else:
        X, X_test = (part.drop(columns="kind") for part in (X, X_test))
    if "Hist" not in type(model).__name__ and (
        "Gradient" in type(model).__name__ or VERSION < (1, 8)
    ):
        X = X.fillna(0.0)
        X_test = X_test.fillna(0.0)
    model.fit(X, data.y)
    tracer = exact(model, X, data.y)
    influence = tracer.influence(X_test, data.y_test)
    assert influence.values.shape == (130, 20)
    assert influence.top(3).shape[0] == 60
    assert str(tracer.train_index[0]) == "row-0"


def test_leaves_of_one_label_do_not_move_with_weights():
    """In a fully grown forest, predictions depend on labels but not on weights; the verdict says so."""
    data = numbers()
    model = ExtraTreesRegressor(n_estimators=5, random_state=0).fit(data.X, data.y)
    tracer = exact(model, data.X, data.y)
    assert "leaves of one label only" in tracer.fidelity.verdict
    assert np.abs(tracer.influence(data.X_test, data.y_test).values).max() < 1e-12
    kernel = tracer.label_influence(data.X_test, of="prediction").values
    same = (model.apply(data.X)[:, None] == model.apply(data.X_test)[None]).astype(
        float
    )  # (n, m, trees)
    np.testing.assert_allclose(kernel, (same / same.sum(axis=0)).mean(axis=2), atol=1e-12)
    np.testing.assert_allclose(kernel.T @ data.y, model.predict(data.X_test), atol=1e-9)


def test_a_leaf_without_rows_falls_back_to_the_mean():
    data = numbers()
    model = ExtraTreesRegressor(n_estimators=6, random_state=0).fit(data.X, data.y)
    tracer = exact(model, data.X, data.y)
    leaf = model.apply(data.X)
    at = model.apply(data.X_test)
    row = int(np.argmax((leaf[:, None] == at[None]).sum(axis=(1, 2))))
    values = np.stack([tree.predict(data.X_test) for tree in model.estimators_], axis=1)
    alone = (at == leaf[row]) & ((leaf == leaf[row]).sum(axis=0) == 1)
    assert alone.any()
    expected = np.where(alone, data.y.mean(), values).mean(axis=1)
    np.testing.assert_allclose(
        raw_scores(tracer.refit(without=[row]), data.X_test), expected, atol=1e-12
    )
    change = tracer.influence(
        data.X_test, of="prediction", method=lt.LeafRefit(), rows=[row]
    ).values[0]
    np.testing.assert_allclose(change, values.mean(axis=1) - expected, atol=1e-9)


def test_a_subclass_is_read_as_its_parent():
    class Mine(RandomForestRegressor):
        pass

    data = numbers()
    tracer = exact(Mine(n_estimators=3, max_depth=3).fit(data.X, data.y), data.X, data.y)
    assert "Mine" in repr(tracer)


# ---- rows held out, rows drawn ----


def test_early_stopping_beyond_ten_thousand_rows():
    """A tenth of the rows is held out by default; these have no influence."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_050, 3))
    y = X[:, 0] + rng.normal(size=len(X))
    model = HistGradientBoostingRegressor(max_iter=4).fit(X, y)
    tracer = exact(model, X, y)
    assert "held out for early stopping" in tracer.fidelity.verdict
    values = tracer.influence(X[:5], y[:5], reduce="mean").values[:, 0]
    assert np.sum(values == 0) == 1005


def test_early_stopping_of_classes_is_stratified():
    data = three_classes(text=True)
    model = HistGradientBoostingClassifier(
        max_iter=5, early_stopping=True, validation_fraction=0.25
    )
    exact(model.fit(data.X, data.y), data.X, data.y)
    exact(clone(model).set_params(validation_fraction=30).fit(data.X, data.y), data.X, data.y)
    exact(clone(model).set_params(validation_fraction=None).fit(data.X, data.y), data.X, data.y)


def test_a_held_out_row_missing_is_noticed():
    data = numbers()
    model = HistGradientBoostingRegressor(max_iter=3, early_stopping=True).fit(data.X, data.y)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, data.X[:-1], data.y[:-1])


def test_validation_rows_given_by_the_user():
    data = numbers()
    model = HistGradientBoostingRegressor(
        max_iter=30, early_stopping=True, n_iter_no_change=2, learning_rate=0.5
    )
    try:
        model.fit(data.X, data.y, X_val=data.X_test, y_val=data.y_test)
    except TypeError:
        pytest.skip("this scikit-learn takes no X_val")
    assert model.n_iter_ < 30
    tracer = exact(model, data.X, data.y)
    assert "held out" not in tracer.fidelity.verdict
    again = tracer.retrain(without=[])
    assert not again.structure_changed
    np.testing.assert_array_equal(again.predict(data.X_test), model.predict(data.X_test))


def test_recorded_draws_of_any_random_state():
    data = numbers()
    model = GradientBoostingRegressor(
        n_estimators=5, subsample=0.5, random_state=np.random.RandomState(3)
    )
    masks = []
    model.fit(data.X, data.y, monitor=lambda i, model, local: masks.append(local["sample_mask"]))
    with says(
        lt.UnsupportedModel,
        "subsample=0.5",
        "integer random_state",
        "params={'sample_mask': masks}",
    ):
        lt.Tracer(model, data.X, data.y)
    tracer = exact(model, data.X, data.y, params={"sample_mask": masks})
    assert "subsample replayed" in tracer.fidelity.verdict
    with says(lt.FidelityError, "rows fall into other leaves"):
        lt.Tracer(model, data.X, data.y, params={"sample_mask": masks[::-1]})
    with says(lt.InvalidInput, "sample_mask", "shape (4, 422)", "shape (5, 422)"):
        lt.Tracer(model, data.X, data.y, params={"sample_mask": masks[1:]})


def test_another_seed_is_noticed():
    data = numbers()
    model = GradientBoostingRegressor(n_estimators=5, subsample=0.5, random_state=3).fit(
        data.X, data.y
    )
    exact(model, data.X, data.y)
    with says(lt.FidelityError, "rows fall into other leaves"):
        lt.Tracer(model, data.X, data.y, params={"random_state": 4})


def test_a_split_that_cannot_be_found_again():
    data = numbers()
    model = GradientBoostingRegressor(n_estimators=5, n_iter_no_change=2).fit(data.X, data.y)
    with says(lt.UnsupportedModel, "n_iter_no_change", "random_state=None", "integer random_state"):
        lt.Tracer(model, data.X, data.y)


def test_forest_weights():
    """From 1.9 on, weights set the chance of a row to be drawn; before, they multiply its count."""
    data = numbers()
    w = weights(422)
    model = RandomForestRegressor(n_estimators=5, max_depth=4, max_samples=0.7, random_state=0)
    model.fit(data.X, data.y, sample_weight=w)
    tracer = exact(model, data.X, data.y, w)
    chances = hasattr(model, "_sample_weight")
    assert ("chances of being drawn" in tracer.fidelity.verdict) == chances
    with says(
        lt.InvalidInput if chances else lt.FidelityError,
        "sample_weight" if chances else "other leaves",
    ):
        lt.Tracer(model, data.X, data.y)
    # The value of a leaf, from its rows.
    count = np.bincount(model.estimators_samples_[0], minlength=422) * (1.0 if chances else w)
    leaf = model.estimators_[0].apply(np.float32(data.X))
    here = leaf == leaf[0]
    value = model.estimators_[0].tree_.value[leaf[0], 0, 0]
    assert np.average(data.y[here], weights=count[here]) == pytest.approx(value, rel=1e-12)


def test_probabilities_of_forests_are_within_bounds():
    """Starting score and trees add up to zero or one only up to rounding; scikit-learn's metrics
    refuse what is beyond them."""
    data = three_classes()
    model = RandomForestClassifier(n_estimators=8, random_state=0).fit(data.X, data.y)
    tracer = exact(model, data.X, data.y)
    p = tracer.refit(without=[]).predict_proba(data.X)
    assert p.min() == 0
    assert p.max() == 1
    np.testing.assert_allclose(p, model.predict_proba(data.X), atol=1e-12)
    found = lt.acquire(tracer, data.X, data.X, data.y, k=3)
    assert np.isfinite(found.scores).all()


@pytest.mark.skipif(VERSION >= (1, 8), reason="mended in 1.8")
def test_missing_values_that_were_trained_elsewhere():
    data = numbers()
    X = np.where(np.random.default_rng(0).random(data.X.shape) < 0.1, np.nan, data.X)
    model = RandomForestRegressor(n_estimators=30, random_state=0).fit(X, data.y)
    with says(lt.FidelityError, "before scikit-learn 1.8, rows with missing values"):
        lt.Tracer(model, X, data.y)


@pytest.mark.parametrize("chosen", ["balanced", {"barolo": 3.0}, "balanced_subsample"])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_class_weights_of_forests(chosen, bootstrap):
    data = three_classes(text=True)
    w = weights(158)
    model = ExtraTreesClassifier(
        n_estimators=4,
        max_depth=3,
        class_weight=chosen,
        bootstrap=bootstrap,
        max_samples=60 if bootstrap else None,
    )
    tracer = exact(model.fit(data.X, data.y, sample_weight=w), data.X, data.y, w)
    found = raw_scores(tracer.refit(without=[]), data.X_test)
    np.testing.assert_allclose(found, model.predict_proba(data.X_test), atol=1e-12)


def test_fewer_rows_than_a_forest_drew_from():
    data = numbers()
    model = RandomForestRegressor(n_estimators=2).fit(data.X, data.y)
    with says(lt.InvalidInput, "X has 421 rows", "drew from 422"):
        lt.Tracer(model, data.X[:-1], data.y[:-1])


# ---- continued training ----


@pytest.mark.parametrize(
    "model",
    [
        HistGradientBoostingRegressor(max_iter=3, warm_start=True, early_stopping=True),
        GradientBoostingRegressor(n_estimators=3, warm_start=True, subsample=0.5, random_state=1),
        RandomForestRegressor(n_estimators=3, warm_start=True, random_state=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_warm_start(model):
    """Continued training is replayed; if it used other rows the second time, that is noticed."""
    data = numbers()
    model = clone(model)
    more = (
        {"max_iter": 6} if isinstance(model, HistGradientBoostingRegressor) else {"n_estimators": 6}
    )
    model.fit(data.X, data.y).set_params(**more).fit(data.X, data.y)
    assert exact(model, data.X, data.y).fidelity.per_step.shape == (6,)
    other = clone(model).set_params(**{name: 3 for name in more}).fit(data.X, data.y)
    other.set_params(**more).fit(data.X, -data.y)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(other, data.X, data.y)


def test_a_training_that_goes_on_when_all_is_learnt():
    """For scores beyond 30, p (1 - p) has few correct digits; the replay loses the same ones."""
    X, y = load_breast_cancer(return_X_y=True)
    model = GradientBoostingClassifier(
        n_estimators=120, learning_rate=1.0, max_features=4, max_depth=4, random_state=0
    )
    model.fit(X, y)
    assert np.abs(model.decision_function(X)).max() > 20
    tracer = exact(model, X, y)
    assert np.isfinite(tracer.influence(X[:5], y[:5]).values).all()


def test_trees_that_are_only_a_root():
    """Trees that are only a root have the value zero; only the starting score changes."""
    data = binary()
    model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=300).fit(data.X, data.y)
    assert all(len(tree.nodes) == 1 for step in model._predictors for tree in step)
    values = exact(model, data.X, data.y).influence(data.X_test, of="prediction").values
    p = data.y.mean()
    expected = (data.y - p) / (p * (1 - p) * len(data.y))
    np.testing.assert_allclose(values, np.repeat(expected[:, None], 20, axis=1), atol=1e-12)


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_an_init_estimator_is_taken_as_given(kind):
    data = numbers() if kind == "regression" else three_classes(text=True)
    if kind == "regression":
        model = GradientBoostingRegressor(n_estimators=6, init=LinearRegression(), random_state=0)
    else:
        first = make_pipeline(
            StandardScaler(), RandomForestClassifier(20, max_depth=2, random_state=0)
        )
        model = GradientBoostingClassifier(n_estimators=4, init=first, random_state=0)
    model.fit(data.X, data.y)
    tracer = exact(model, data.X, data.y)
    assert "init estimator are taken as given" in tracer.fidelity.verdict
    raw = gradient_raw(model, data.X_test)
    np.testing.assert_allclose(raw_scores(tracer.refit(without=[]), data.X_test), raw, atol=1e-12)
    np.testing.assert_allclose(raw_scores(tracer.retrain(without=[]), data.X_test), raw, atol=1e-12)
    # Retrained without a row, the init estimator is fitted again too.
    keep = np.arange(len(data.y)) != 7
    fresh = clone(model).fit(data.X[keep], data.y[keep])
    again = raw_scores(tracer.retrain(without=[7]), data.X_test)
    np.testing.assert_allclose(again, gradient_raw(fresh, data.X_test), atol=1e-12)


# ---- retraining ----

RETRAINED = [
    HistGradientBoostingClassifier(max_iter=5, random_state=0, max_features=0.5, max_bins=32),
    HistGradientBoostingClassifier(max_iter=5, random_state=0, early_stopping=True, max_bins=32),
    GradientBoostingClassifier(n_estimators=5, random_state=0, subsample=0.7),
    GradientBoostingClassifier(n_estimators=9, random_state=0, n_iter_no_change=2, max_features=4),
    RandomForestClassifier(n_estimators=5, random_state=0),
    ExtraTreesClassifier(n_estimators=5, random_state=0, class_weight="balanced"),
]


@pytest.mark.parametrize("model", RETRAINED, ids=lambda model: repr(model)[:60])
def test_retraining_on_all_rows_gives_the_model_back(model):
    data = binary()
    w = weights(549)
    model = clone(model).fit(data.X, data.y, sample_weight=w)
    again = exact(model, data.X, data.y, w).retrain(without=[])
    assert not again.structure_changed
    raw = model.predict_proba(data.X_test) if not hasattr(model, "decision_function") else None
    raw = model.decision_function(data.X_test) if raw is None else raw
    np.testing.assert_array_equal(raw_scores(again, data.X_test), raw)


def test_retraining_without_a_category():
    """If a category disappears, the retrained model has new codes for the others."""
    data = frame(many=True)
    model = HistGradientBoostingClassifier(
        max_iter=5, categorical_features="from_dtype", random_state=0
    )
    model.fit(data.X, data.y)
    tracer = exact(model, data.X, data.y)
    gone = np.flatnonzero(data.X["town"] == "town-03")
    again = tracer.retrain(without=gone)
    keep = np.setdiff1d(np.arange(len(data.y)), gone)
    fresh = clone(model).fit(data.X.iloc[keep], data.y[keep])
    np.testing.assert_array_equal(
        raw_scores(again, data.X_test), fresh.decision_function(data.X_test)
    )
    assert again.structure_changed


def test_retraining_needs_every_class():
    data = three_classes()
    tracer = exact(
        RandomForestClassifier(n_estimators=2, max_depth=2).fit(data.X, data.y), data.X, data.y
    )
    with says(lt.InvalidInput, "a class has none left"):
        tracer.retrain(without=data.y == 1)


def test_leave_one_out_by_retraining():
    data = three_classes()
    model = RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0).fit(data.X, data.y)
    tracer = exact(model, data.X, data.y, n_jobs=2)
    values = tracer.influence(data.X_test, data.y_test, method=lt.Retrain(), rows=[4]).values[0]
    keep = np.arange(len(data.y)) != 4
    fresh = clone(model).fit(data.X[keep], data.y[keep])

    def loss(m):
        return 0.5 * (
            (m.predict_proba(data.X_test) - np.eye(3)[data.test_codes.astype(int)]) ** 2
        ).sum(axis=1)

    np.testing.assert_allclose(values, loss(model) - loss(fresh), atol=1e-12)


# ---- inputs ----


def test_columns_by_name():
    data = frame("number", many=True)
    for model, X, X_test in (
        (
            HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype"),
            data.X,
            data.X_test,
        ),
        (
            GradientBoostingRegressor(n_estimators=5),
            *(x[list("abcd")].fillna(0) for x in (data.X, data.X_test)),
        ),
        (
            RandomForestRegressor(n_estimators=5),
            *(x[list("abcd")].fillna(0) for x in (data.X, data.X_test)),
        ),
    ):
        tracer = exact(model.fit(X, data.y), X, data.y)
        expected = tracer.influence(X_test, data.y_test).values
        mixed = X_test[X_test.columns[::-1]].assign(more=1.0)
        np.testing.assert_array_equal(tracer.influence(mixed, data.y_test).values, expected)
        exact(model, X[X.columns[::-1]], data.y)
        with says(lt.InvalidInput, "lacks the column(s) 'b'"):
            tracer.influence(X_test.drop(columns="b"), data.y_test)


def test_sparse_rows():
    data = numbers()
    X = np.where(np.abs(data.X) < 0.03, 0.0, data.X)
    for model in (
        GradientBoostingRegressor(n_estimators=5, random_state=0),
        RandomForestRegressor(n_estimators=5, random_state=0, max_depth=4),
    ):
        sparse = clone(model).fit(csr_matrix(X), data.y)
        tracer = exact(sparse, csr_matrix(X), data.y)
        test = csr_matrix(np.where(np.abs(data.X_test) < 0.03, 0.0, data.X_test))
        np.testing.assert_allclose(
            raw_scores(tracer.refit(without=[]), test), sparse.predict(test), atol=1e-12
        )
        assert not tracer.retrain(without=[]).structure_changed


def test_categories_by_number_and_missing_values():
    data = frame(many=True)
    X = data.X.assign(
        town=data.X["town"].cat.codes.astype(float), kind=data.X["kind"].cat.codes.astype(float)
    )
    X = X.to_numpy(float)
    X[::9, -1] = np.nan
    model = HistGradientBoostingClassifier(
        max_iter=6, categorical_features=[4, 5], min_samples_leaf=4
    ).fit(X, data.y)
    assert any(tree.nodes["is_categorical"].any() for step in model._predictors for tree in step)
    exact(model, X, data.y)


def test_params_come_before_the_models():
    data = numbers()
    model = HistGradientBoostingRegressor(max_iter=4, learning_rate=0.3).fit(data.X, data.y)
    model.set_params(learning_rate=0.1)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, data.X, data.y)
    exact(model, data.X, data.y, params={"learning_rate": 0.3})
    with says(lt.InvalidInput, "params has eta", "get_params()"):
        lt.Tracer(model, data.X, data.y, params={"eta": 0.3})


def test_a_learning_rate_that_changed_at_a_warm_start():
    data = numbers()
    model = HistGradientBoostingRegressor(max_iter=2, learning_rate=0.3, warm_start=True).fit(
        data.X, data.y
    )
    model.set_params(learning_rate=0.1, max_iter=4).fit(data.X, data.y)
    exact(model, data.X, data.y, params={"learning_rate": [0.3, 0.3, 0.1, 0.1]})


def test_a_class_of_weight_zero():
    data = binary()
    model = HistGradientBoostingClassifier(max_iter=2, class_weight={0: 0.0, 1: 1.0}, max_bins=8)
    with says(lt.UnsupportedModel, "class_weight gives a class no weight"):
        lt.Tracer(model.fit(data.X[:, :3], data.y), data.X[:, :3], data.y)


def test_bad_input():
    data = numbers()
    counts = numbers("counts")
    model = RandomForestRegressor(n_estimators=2, max_depth=3).fit(data.X, data.y)
    poisson = HistGradientBoostingRegressor(loss="poisson", max_iter=2).fit(counts.X, counts.y)
    classes = GradientBoostingClassifier(n_estimators=2).fit(binary().X, binary().y)
    tracer = lt.Tracer(model, data.X, data.y)
    with says(lt.InvalidInput, "y_train is missing"):
        lt.Tracer(model, data.X)
    with says(lt.InvalidInput, "y_train has 421 values but X has 422 rows"):
        lt.Tracer(model, data.X, data.y[1:])
    with says(lt.InvalidInput, "not trained with a baseline"):
        lt.Tracer(model, data.X, data.y, baseline=np.zeros(422))
    with says(lt.InvalidInput, "X has 9 columns", "trained on 10"):
        tracer.influence(data.X_test[:, 1:], data.y_test)
    with says(lt.InvalidInput, "cannot read these rows", "could not convert string to float"):
        tracer.influence(np.full((2, 10), "a"), [1.0, 2.0])
    with says(lt.InvalidInput, "GradientBoostingClassifier cannot read these rows", "NaN"):
        lt.Tracer(classes, np.where(binary().X > 15, np.nan, binary().X), binary().y)
    with says(lt.InvalidInput, "y_train goes from -1", "numbers from 0"):
        lt.Tracer(poisson, counts.X, counts.y - 1 - counts.y.min())
    with says(lt.InvalidInput, "y_test has label(s) 2", "its classes are 0, 1"):
        lt.Tracer(classes, binary().X, binary().y).influence(binary().X_test[:1], [2])


# ---- pipelines ----


def columns(categories):
    numeric = ("passthrough", ["a", "b", "c", "d"])
    return make_column_transformer((categories, ["kind", "town"]), numeric)


def test_a_pipeline_with_hist_gradient_boosting():
    data = frame(many=True)
    encode = columns(OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1))
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features=[0, 1], random_state=0)
    pipeline = make_pipeline(encode, model).fit(data.X, data.y)
    tracer = exact(pipeline, data.X, data.y)
    assert "Pipeline with HistGradientBoostingClassifier" in repr(tracer)
    raw = pipeline.decision_function(data.X_test)
    np.testing.assert_allclose(raw_scores(tracer.refit(without=[]), data.X_test), raw, atol=1e-12)
    np.testing.assert_array_equal(raw_scores(tracer.retrain(without=[]), data.X_test), raw)
    assert list(tracer.influence(data.X_test, data.y_test).top(1).columns)
    assert str(tracer.train_index[3]) == "row-3"


def test_a_pipeline_with_a_forest():
    data = frame("number", many=True)
    w = weights(400)
    fill = columns(OneHotEncoder(handle_unknown="ignore", sparse_output=True))
    pipeline = make_pipeline(fill, ExtraTreesRegressor(n_estimators=4, min_samples_leaf=4))
    X, X_test = (x.fillna({c: 0.0 for c in "abcd"}) for x in (data.X, data.X_test))
    pipeline.fit(X, data.y, extratreesregressor__sample_weight=w)
    tracer = exact(pipeline, X, data.y, w)
    np.testing.assert_allclose(
        raw_scores(tracer.refit(without=[]), X_test), pipeline.predict(X_test), atol=1e-12
    )
    assert np.isfinite(tracer.influence(X_test, data.y_test, reduce="mean").values).all()


# ---- refusals ----


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (AdaBoostClassifier(n_estimators=2), "GradientBoostingClassifier(loss='exponential')"),
        (AdaBoostRegressor(n_estimators=2), "GradientBoostingRegressor"),
        (BaggingClassifier(n_estimators=2), "RandomForestClassifier"),
        (IsolationForest(n_estimators=2), "its trees know no labels"),
        (Ridge(), "it has no leaves"),
        (OneVsRestClassifier(RandomForestClassifier(2)), "pass one of those"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_estimators(model, words):
    data = binary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X[:80], data.y[:80])
    with says(lt.UnsupportedModel, f"{type(model).__name__} is not supported", words):
        lt.Tracer(model, data.X[:80], data.y[:80])


def test_medians_within_bounds_are_refused():
    data = numbers()
    model = RandomForestRegressor(
        n_estimators=2, monotonic_cst=[0, -1] + [0] * 8, criterion="absolute_error"
    ).fit(data.X, data.y)
    with says(lt.UnsupportedModel, "criterion='squared_error', or without monotonic_cst"):
        lt.Tracer(model, data.X, data.y)


def test_constraints_by_name_beside_categories():
    """Trees have the category columns first."""
    data = frame("number", many=True)
    X = data.X[["c", "kind", "a", "town", "b"]]
    for monotonic in ([0] * 5, {"a": 0}, {"a": 1, "b": -1}):
        model = HistGradientBoostingRegressor(max_iter=5, monotonic_cst=monotonic)
        exact(model.set_params(categorical_features="from_dtype").fit(X, data.y), X, data.y)


def test_quantiles_are_not_bounded():
    data = numbers()
    model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=5, monotonic_cst=[1] * 10)
    exact(model.fit(data.X, data.y), data.X, data.y)


def test_a_loss_of_ones_own():
    from sklearn._loss.loss import HalfTweedieLoss

    data = numbers("positive")
    model = HistGradientBoostingRegressor(loss=HalfTweedieLoss(power=1.5), max_iter=2).fit(
        data.X, data.y
    )
    with says(lt.UnsupportedModel, "is not supported", "squared_error, poisson, gamma"):
        lt.Tracer(model, data.X, data.y)


def test_several_columns_of_classes():
    data = numbers()
    y = np.stack([data.y > 0, data.y > 1], axis=1)
    model = RandomForestClassifier(n_estimators=2).fit(data.X, y)
    with says(lt.UnsupportedModel, "each of 2 columns of y", "one model for each column"):
        lt.Tracer(model, data.X, y)


@pytest.mark.parametrize("model", DEFAULTS, ids=lambda model: type(model).__name__)
def test_not_fitted(model):
    with says(lt.UnsupportedModel, "is not fitted", "call fit()"):
        lt.Tracer(clone(model), pd.DataFrame({"a": [1.0]}), [1])


def test_candidates_of_a_forest_that_balances_each_bootstrap():
    """Each tree weighs a new row like its class: d(mean vote)/dw, written out tree by tree."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 1).astype(int)  # few positives
    settings = {"n_estimators": 7, "max_depth": 3, "class_weight": "balanced_subsample"}
    model = RandomForestClassifier(**settings, random_state=0).fit(X, y)
    tracer = lt.Tracer(model, X, y, dtype="float64")
    X_new = rng.normal(size=(5, 3))
    y_new = np.array([0, 1, 0, 1, 1])
    found = tracer.score_candidates(X_new, X[:4], None, y_new, of="prediction", output=1).values
    expected = np.zeros((5, 4))
    for tree, drawn in zip(model.estimators_, model.estimators_samples_, strict=True):
        count = np.bincount(drawn, minlength=200)
        mass = np.bincount(y, count)
        class_weight = count.sum() / (2 * mass)
        w = count * class_weight[y]
        leaf, leaf_new, leaf_test = (tree.apply(x) for x in (X, X_new, X[:4]))
        total = np.bincount(leaf, w, tree.tree_.node_count)
        positive = np.bincount(leaf, w * y, tree.tree_.node_count)
        for i in range(5):
            share = positive[leaf_new[i]] / total[leaf_new[i]]
            slope = class_weight[y_new[i]] * (y_new[i] - share) / total[leaf_new[i]]
            expected[i] += (leaf_test == leaf_new[i]) * slope * count.mean() / 7
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_votes_that_are_level_go_to_the_first_class_as_in_scikit_learn():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(150, 2)).round(1)
    y = (X[:, 0] + rng.normal(size=150) > 0).astype(int)
    rows = rng.normal(size=(300, 2)).round(1)
    model = RandomForestClassifier(10, random_state=0, n_jobs=1).fit(X, y)
    share = model.predict_proba(rows)[:, 0]
    assert (np.abs(share - 0.5) < 1e-12).sum() > 10
    found = lt.Tracer(model, X, y).refit(without=[]).predict(rows)
    np.testing.assert_array_equal(found, model.predict(rows))
