"""Columns that splits compare are the same for every kind of table, for pipelines, files and parts."""

import catboost
import lightgbm as lgb
import numpy as np
import polars as pl
import pytest
import xgboost as xgb
from scipy.sparse import csr_matrix
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from split_checks import check_search
from split_tables import N, for_catboost, mixed_table, opened
from threadpoolctl import threadpool_limits

import leaftrace as lt

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "random_seed": 1}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def table():
    return mixed_table()


@pytest.fixture(scope="module")
def numbers(table):
    """Columns of numbers as float32, which all libraries read alike."""
    return table[0][["a", "gaps", "zeros"]].astype(np.float32), table[1]


FITS = {
    "lightgbm": lambda X, y: lgb.LGBMRegressor(n_estimators=4, verbosity=-1, n_jobs=1).fit(X, y),
    "xgboost": lambda X, y: xgb.XGBRegressor(n_estimators=4, max_depth=4, n_jobs=1).fit(X, y),
    "catboost": lambda X, y: catboost.CatBoostRegressor(iterations=4, **QUIET).fit(X, y),
    "hist": lambda X, y: HistGradientBoostingRegressor(max_iter=4).fit(X, y),
    "forest": lambda X, y: RandomForestRegressor(3, random_state=1, min_samples_leaf=9).fit(X, y),
}


def forms(library, X, y):
    """The same rows in every form that the library reads."""
    yield X[["zeros", "a", "gaps"]]  # by name
    yield X.to_numpy()
    yield pl.DataFrame(X)
    if library == "lightgbm":
        yield csr_matrix(X)
        yield lgb.Dataset(X, y, free_raw_data=False)
    elif library == "catboost":
        yield catboost.Pool(X, y)
    elif library == "xgboost":
        yield xgb.DMatrix(X, y)
        yield X.to_numpy().tolist()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("library", FITS)
def test_every_kind_of_table(library, numbers):
    X, y = numbers
    model = FITS[library](X[:N], y[:N])
    expected = X.to_numpy(np.float64)
    if library == "catboost":
        expected = np.where(np.isnan(expected), -np.inf, expected)
    source = opened(model, X[:N], y[:N])
    np.testing.assert_array_equal(check_search(source, X[N:]).values, expected[:N])
    for form in forms(library, X[N:], y[N:]):
        np.testing.assert_array_equal(source.split_columns(form), expected[N:])
    for form in forms(library, X[:N], y[:N]):
        np.testing.assert_array_equal(
            opened(model, form, y[:N]).split_search().values, expected[:N]
        )


CATEGORIES = {
    "lightgbm": FITS["lightgbm"],
    "xgboost": lambda X, y: xgb.XGBRegressor(
        n_estimators=4, max_depth=4, n_jobs=1, enable_categorical=True
    ).fit(X, y),
    "hist": lambda X, y: HistGradientBoostingRegressor(
        max_iter=4, categorical_features="from_dtype"
    ).fit(X, y),
    "catboost": lambda X, y: catboost.CatBoostRegressor(
        iterations=4, one_hot_max_size=20, cat_features=["few", "many"], **QUIET
    ).fit(X, y),
}


@pytest.mark.parametrize("library", CATEGORIES)
def test_categories_by_their_names(library, table):
    """The numbers of categories do not depend on how a table lists them; new ones are missing."""
    X, y = table
    X = for_catboost(X, True).assign(gaps=X.gaps) if library == "catboost" else X
    if library == "xgboost" and tuple(map(int, xgb.__version__.split(".")[:2])) < (3, 1):
        pytest.skip("XGBoost before 3.1 knows categories by their number only")
    model = CATEGORIES[library](X[:N], y[:N])
    source = opened(model, X[:N], y[:N])
    search = check_search(source, X[N:])
    expected = source.split_columns(X[N:])
    np.testing.assert_array_equal(source.split_columns(X[:N]), search.values)
    np.testing.assert_array_equal(source.split_columns(pl.DataFrame(X[N:])), expected)
    if library != "catboost":
        backwards = X.many.cat.set_categories(X.many.cat.categories[::-1])
        np.testing.assert_array_equal(source.split_columns(X.assign(many=backwards)[N:]), expected)
    few = search.values[:, [k != "missing" and k != "ordered" for k in search.columns]][:, 0]
    assert set(few) == {0.0, 1.0, 2.0}
    if library in ("lightgbm", "catboost"):  # the others refuse new categories, or have no names
        new = X[N : N + 3].assign(few=np.array(["new"] * 3))
        new = new if library == "catboost" else new.astype({"few": "category"})
        column = list(search.columns).index("one-hot")
        assert np.isnan(source.split_columns(new)[:, column]).all()


def test_a_pool_does_not_give_categories(table):
    X, y = table
    X = for_catboost(X, True)
    model = CATEGORIES["catboost"](X[:N], y[:N])
    pool = catboost.Pool(X[:N], y[:N], cat_features=["few", "many"])
    source = opened(model, pool, None)
    with pytest.raises(lt.InvalidInput, match="Pool does not give the categories"):
        source.split_search()


def test_ignored_columns_are_not_compared(numbers):
    X, y = numbers
    model = catboost.CatBoostRegressor(iterations=4, ignored_features=["a"], **QUIET)
    source = opened(model.fit(X[:N], y[:N]), X[:N], y[:N])
    assert np.ptp(check_search(source, X[N:]).values, axis=0).tolist()[0] == 0


def test_pipelines(numbers):
    X, y = numbers
    pipeline = make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=4))
    source = opened(pipeline.fit(X[:N], y[:N]), X[:N], y[:N])
    search = check_search(source, X[N:])
    np.testing.assert_array_equal(search.values, pipeline[:-1].transform(X[:N]))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_models_from_files(library, numbers, tmp_path):
    """A file of XGBoost does not say whether columns were drawn."""
    X, y = numbers
    model = FITS[library](X[:N], y[:N])
    path = str(tmp_path / {"lightgbm": "m.txt", "xgboost": "m.ubj", "catboost": "m.cbm"}[library])
    (model.booster_ if library == "lightgbm" else model).save_model(path)
    own = opened(model, X[:N], y[:N]).split_search()
    loaded = check_search(opened(path, X[:N], y[:N]), X[N:])
    assert loaded.columns_sampled == (library == "xgboost")
    for name in ("columns", "by_weight", "min_rows", "min_hessian", "category_l2", "joint"):
        assert getattr(loaded, name) == getattr(own, name)
    for a, b in zip(loaded.trees, own.trees, strict=True):
        assert [x.tolist() for x in vars(a).values()] == [x.tolist() for x in vars(b).values()]


def test_the_user_says_which_columns_a_file_s_model_compared(numbers, tmp_path):
    X, y = numbers
    path = str(tmp_path / "m.ubj")
    FITS["xgboost"](X[:N], y[:N]).save_model(path)

    def is_drawn(**params):
        source = opened(path, X[:N], y[:N], params=params)
        return source.split_search().columns_sampled

    assert is_drawn(min_child_weight=1.0)
    assert not is_drawn(colsample_bytree=1.0)
    assert is_drawn(colsample_bytree=0.5)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost", "hist", "pipeline"])
def test_parts_of_files(library, table, numbers, tmp_path):
    X, y = numbers if library == "pipeline" else table
    X = for_catboost(X, True) if library == "catboost" else X
    if library == "pipeline":
        last = HistGradientBoostingRegressor(max_iter=4)
        model = make_pipeline(StandardScaler(), last).fit(X[:N], y[:N])
    else:
        model = CATEGORIES[library](X[:N], y[:N])
    for i, part in enumerate((slice(0, 100), slice(100, N))):
        X[part].assign(label=y[part]).to_parquet(tmp_path / f"{i}.parquet")
    tracer = lt.Tracer.from_files(model, str(tmp_path), target="label", memory_limit=2**20)
    search = check_search(tracer.engine.source, X[N:])
    expected = opened(model, X[:N], y[:N]).split_search()
    np.testing.assert_array_equal(search.values, expected.values)
    small = lt.Tracer.from_files(model, str(tmp_path), target="label", memory_limit=2**12)
    with pytest.raises(lt.InvalidInput, match="compares all columns of all training rows"):
        small.engine.source.split_search()
