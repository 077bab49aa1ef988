"""Our own traversal finds the leaves that the libraries find, for every kind of split and of value."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier, Pool
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)

import leaftrace as lt
from leaftrace._adapters import own_leaves
from leaftrace._adapters.catboost import row_leaves
from leaftrace._model.kernels import is_native, kernels
from leaftrace._model.kernels import numpy as twins
from leaftrace._model.routes import NodeRoutes

pytestmark = pytest.mark.skipif(not is_native(), reason="the twin is slower than the libraries")
N = 1_200


@pytest.fixture(scope="module")
def data():
    """Return a table with zeros, missing values, whole numbers, and categories, and labels."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame({f"x{i}": rng.normal(size=N).round(i + 1) for i in range(5)})
    X.loc[rng.random(N) < 0.3, "x1"] = 0.0
    X.loc[rng.random(N) < 0.2, "x2"] = np.nan
    X["count"] = rng.poisson(2, N)
    X["few"] = pd.Categorical(rng.choice(["a", "b", "c"], N))
    X["many"] = pd.Categorical.from_codes(rng.integers(-1, 70, N), [f"v{i}" for i in range(70)])
    codes = X["many"].cat.codes
    signal = X["x0"] + X["x1"] + X["x2"].fillna(1) + (codes % 3) + (X["few"] == "b")
    return X, (signal + rng.normal(size=N) > 1.5).to_numpy().astype(int)


def of_numbers(X):
    return X[["x0", "x1", "x2", "x3", "x4", "count"]]


LIGHTGBM = {
    "n_estimators": 25,
    "num_leaves": 12,
    "min_child_samples": 5,
    "verbose": -1,
    "min_data_per_group": 5,
}
CATBOOST = {"iterations": 20, "depth": 4, "verbose": 0, "allow_writing_files": False}
MODELS = {
    "LightGBM, categories": lambda X, y: (lgb.LGBMClassifier(**LIGHTGBM).fit(X, y), X),
    "LightGBM, zero is missing": lambda X, y: (
        lgb.LGBMClassifier(**LIGHTGBM, zero_as_missing=True).fit(X, y), X,
    ),
    "LightGBM, nothing is missing": lambda X, y: (
        lgb.LGBMClassifier(**LIGHTGBM, use_missing=False).fit(X, y), X,
    ),
    "LightGBM, array of float32, classes": lambda X, y: (
        lgb.LGBMClassifier(**LIGHTGBM).fit(of_numbers(X).to_numpy(np.float32), y + X["count"] % 2),
        of_numbers(X).to_numpy(np.float32),
    ),
    "LightGBM, whole numbers": lambda X, y: (
        lgb.LGBMRegressor(**LIGHTGBM).fit(whole(X), y), whole(X),
    ),
    "XGBoost, categories": lambda X, y: (
        xgb.XGBClassifier(n_estimators=20, max_depth=4, enable_categorical=True, max_cat_to_onehot=5).fit(X, y), X,
    ),
    "XGBoost, a number for missing": lambda X, y: (
        xgb.XGBClassifier(n_estimators=20, max_depth=4, missing=0.0).fit(of_numbers(X), y), of_numbers(X),
    ),
    "XGBoost, pruned": lambda X, y: (
        xgb.XGBRegressor(n_estimators=20, max_depth=5, gamma=3.0, tree_method="exact").fit(of_numbers(X), y),
        of_numbers(X),
    ),
    "XGBoost, vectors": lambda X, y: (
        xgb.XGBClassifier(
            n_estimators=8, max_depth=3, multi_strategy="multi_output_tree", tree_method="hist"
        ).fit(of_numbers(X), y + X["count"] % 2),
        of_numbers(X),
    ),
    "HistGradientBoosting, categories": lambda X, y: (
        HistGradientBoostingClassifier(max_iter=15, categorical_features="from_dtype", early_stopping=False).fit(X, y),
        X,
    ),
    "GradientBoosting": lambda X, y: (
        GradientBoostingRegressor(n_estimators=15, random_state=0).fit(of_numbers(X).fillna(0), y),
        of_numbers(X).fillna(0),
    ),
    "CatBoost, missing values below": lambda X, y: (
        CatBoostClassifier(**CATBOOST).fit(of_numbers(X), y), of_numbers(X),
    ),
    "CatBoost, missing values above": lambda X, y: (
        CatBoostClassifier(**CATBOOST, nan_mode="Max").fit(of_numbers(X), y), of_numbers(X),
    ),
    "CatBoost, array of float64": lambda X, y: (
        CatBoostClassifier(**{**CATBOOST, "depth": 9}).fit(of_numbers(X).to_numpy(), y), of_numbers(X).to_numpy(),
    ),
    "CatBoost, whole numbers": lambda X, y: (CatBoostClassifier(**CATBOOST).fit(whole(X), y), whole(X)),
    "RandomForest": lambda X, y: (
        RandomForestClassifier(n_estimators=10, random_state=0).fit(of_numbers(X), y), of_numbers(X),
    ),
}  # fmt: skip


def whole(X):
    """Return whole numbers that float32 does not hold."""
    return (X[["count", "x0"]].to_numpy() * 1e8).astype(np.int64)


def traversal_of(tracer):
    source = tracer.engine.source
    if hasattr(source, "_row_leaves"):
        return source._row_leaves.own
    return source._own_leaves if hasattr(source, "booster") else source.trees.own_leaves


@pytest.fixture(params=MODELS)
def opened(request, data, monkeypatch):
    """Return a tracer with leaves by our own traversal, and its rows."""
    monkeypatch.setattr(own_leaves, "LEAST_ROWS", 0)
    monkeypatch.setattr(row_leaves, "LEAST_ROWS", 0)
    model, X = MODELS[request.param](*data)
    y = model.predict(X)
    return lt.Tracer(model, X, y, fidelity="ignore"), X


def test_leaves_are_those_of_the_library(opened, monkeypatch):
    tracer, X = opened
    own = traversal_of(tracer)
    assert own.is_trusted
    shuffled = X.sample(frac=1, random_state=0) if hasattr(X, "iloc") else X[::-1].copy()
    found, _ = tracer.engine.source.rows(shuffled)
    assert own.is_trusted
    monkeypatch.setattr(own, "is_trusted", False)
    expected, _ = tracer.engine.source.rows(shuffled)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) > 3


def test_values_at_thresholds_and_beyond_training(opened, monkeypatch):
    """Values exactly at the thresholds, beside zero, and their neighbours in float32."""
    tracer, X = opened
    if hasattr(X, "iloc") and any(X.dtypes == "category"):
        pytest.skip("made of numbers alone")
    own = traversal_of(tracer)
    at = own.routes.threshold.astype(np.float32)
    at = at[np.isfinite(at)]
    near = np.concatenate([at, np.nextafter(at, np.float32(9e9)), [0, 1e-36, -1e-36]])
    rng = np.random.default_rng(0)
    rows = rng.choice(near, (600, np.shape(X)[1])).astype(np.asarray(X).dtype)
    table = pd.DataFrame(rows, columns=X.columns) if hasattr(X, "iloc") else rows
    found, _ = tracer.engine.source.rows(table)
    assert own.is_trusted
    monkeypatch.setattr(own, "is_trusted", False)
    np.testing.assert_array_equal(found, tracer.engine.source.rows(table)[0])


def test_a_traversal_that_differs_is_not_used(data, monkeypatch):
    monkeypatch.setattr(own_leaves, "LEAST_ROWS", 0)
    X, y = data
    model = lgb.LGBMClassifier(**LIGHTGBM).fit(of_numbers(X), y)
    right = lt.Tracer(model, of_numbers(X), y).engine.source
    expected, _ = right.rows(of_numbers(X))
    traverse = own_leaves.OwnLeaves.traverse
    monkeypatch.setattr(own_leaves.OwnLeaves, "traverse", lambda self, v: traverse(self, -v))
    wrong = lt.Tracer(model, of_numbers(X), y).engine.source
    assert not wrong._own_leaves.is_trusted
    np.testing.assert_array_equal(wrong.rows(of_numbers(X))[0], expected)


def test_catboost_reads_what_the_traversal_is_not_made_for(data, monkeypatch):
    """Missing values in a column that had none in training, a Pool, categories and trees that are not symmetric."""
    monkeypatch.setattr(row_leaves, "LEAST_ROWS", 0)
    monkeypatch.setattr(own_leaves.OwnLeaves, "find", None)  # not to be called
    X, y = data
    model = CatBoostClassifier(**CATBOOST).fit(of_numbers(X).fillna(0), y)
    tracer = lt.Tracer(model, Pool(of_numbers(X).fillna(0), y))
    np.testing.assert_array_equal(
        tracer.engine.source.rows(of_numbers(X))[0], model.calc_leaf_indexes(of_numbers(X)).T
    )
    deep = CatBoostClassifier(**CATBOOST, grow_policy="Depthwise").fit(of_numbers(X), y)
    assert lt.Tracer(deep, of_numbers(X), y).fidelity.exact
    some = X[["x0", "few"]].astype({"few": str})
    one_hot = CatBoostClassifier(**CATBOOST, one_hot_max_size=10, cat_features=["few"]).fit(some, y)
    assert lt.Tracer(one_hot, some, y).fidelity.exact


def test_text_among_numbers_is_the_librarys_error(data, monkeypatch):
    monkeypatch.setattr(own_leaves, "LEAST_ROWS", 0)
    X, y = data
    table = of_numbers(X).to_numpy()
    model = RandomForestClassifier(n_estimators=3).fit(table, y)
    tracer = lt.Tracer(model, table, y, fidelity="ignore")
    spoiled = table.astype(object)
    spoiled[1, 0] = "a"
    with pytest.raises(lt.InvalidInput, match="cannot read these rows"):
        tracer.engine.source.rows(spoiled)


def test_native_against_twin():
    """Random trees with all kinds of comparisons, of both types of numbers."""
    rng = np.random.default_rng(3)
    trees = [random_tree(rng, leaves) for leaves in (1, 2, 9, 40)]
    edges = np.cumsum([0, *(len(tree.column) + 1 for tree in trees)])
    own = own_leaves.LeavesByNodes(trees, edges, np.array([0, 1, 4]))
    values = rng.integers(-3, 70, (301, 4)) + rng.choice([0, 0.5, 1e-36], (301, 4))
    values[rng.random(values.shape) < 0.2] = np.nan
    values[rng.random(values.shape) < 0.2] = -1e-36
    at = own.routes
    nodes = (at.edges, at.column, at.threshold, at.children, at.flags, at.words, at.bits)
    for kind in (np.float32, np.float64):
        expected = np.zeros((4, 301), np.uint8)
        numbers = values.astype(kind)
        twins.find_leaves(numbers, *nodes, np.array([0, 0, 2, 11]), 0, 301, expected)
        np.testing.assert_array_equal(own.traverse(numbers), expected)


@pytest.mark.parametrize("id_type", [np.uint8, np.uint16, np.uint32])
def test_symmetric_trees_against_twin(isa, id_type):
    """Several tiles of rows, missing values on both sides, columns of which some are not compared."""
    rng = np.random.default_rng(4)
    n = 1_100
    edges = np.array([0, 0, 3, 11])
    values = rng.integers(-3, 4, (n, 5)).astype(float)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[rng.random(values.shape) < 0.1] = 1e300
    column = rng.choice([0, 3, 4], 11).astype(np.int32)
    threshold = rng.integers(-3, 4, 11).astype(float)
    above = np.array([1, 0, 0, 0, 1], np.uint8)
    for kind in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            numbers = values.astype(kind)
        found, expected = np.zeros((2, 3, n), id_type)
        for kernel, out in ((kernels, found), (twins, expected)):
            kernel.level_leaves(numbers, edges, column, threshold, above, 5, n - 3, out)
        np.testing.assert_array_equal(found, expected)
        assert len(np.unique(found[2])) > 20


def random_tree(rng, leaves):
    """Return a tree that grew by splitting one leaf after another."""
    N = leaves - 1
    children = np.zeros((N, 2), np.int32)
    places = [None]  # the node and side of each leaf
    for node in range(N):
        parent = places.pop(rng.integers(len(places)))
        if parent is not None:
            children[parent] = node
        places += [(node, 0), (node, 1)]
    for leaf, place in enumerate(places[: leaves if N else 0]):
        children[place] = N + leaf
    return NodeRoutes(
        children,
        rng.integers(0, 4, N).astype(np.int32),
        rng.choice([0, 0.5, 7, 1e-36, 12.3], N),
        rng.integers(0, 8, N).astype(np.uint8),
        [rng.integers(0, 2**32, rng.integers(0, 4), dtype=np.uint32) for _ in range(N)],
    )


def test_a_tree_without_splits():
    nothing = np.zeros(0)
    stump = NodeRoutes(
        np.zeros((0, 2), np.int32), nothing.astype(np.int32), nothing, nothing.astype(np.uint8)
    )
    own = own_leaves.LeavesByNodes([stump, stump], np.array([0, 1, 2]), np.array([0, 2]))
    np.testing.assert_array_equal(own.traverse(np.zeros((3, 0))), [[0] * 3, [1] * 3])
