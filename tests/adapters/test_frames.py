"""polars and Arrow tables: the same numbers for every kind of table, results in the same kind."""

import os
import pickle
import subprocess
import sys
from functools import cache

import boosters
import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
import xgboost as xgb
from catboost import CatBoostClassifier, CatBoostRegressor
from raw_scores import raw_scores
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from threadpoolctl import threadpool_limits

import leaftrace as lt
from leaftrace._data import frames, inputs
from leaftrace._model.training_set import TrainingSet

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "random_seed": 1}
LIBRARIES = ["catboost", "xgboost", "lightgbm", "sklearn"]
KINDS = ["pandas", "polars", "arrow"]
CATEGORIES = ["kind", "town"]
VERSIONS = {
    m.__name__: tuple(int(v) for v in m.__version__.split("."))
    for m in (catboost, lgb, sklearn, xgb)
}
OLD = (
    VERSIONS["catboost"] < (1, 2, 10)
    or VERSIONS["lightgbm"] < (4, 7)
    or VERSIONS["xgboost"] < (3, 1)
)
needs_new = pytest.mark.skipif(OLD, reason="older libraries do not train on such tables")


def skip_old(library, of="categories"):
    if library == "xgboost" and of == "categories" and VERSIONS["xgboost"] < (3, 1):
        pytest.skip(
            "XGBoost before 3.1 knows categories by their number only, and pandas alone says which"
        )
    if library == "sklearn" and of == "numbers" and VERSIONS["sklearn"] < (1, 8):
        pytest.skip("forests of scikit-learn before 1.8 misplace missing values")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threadpool_limits(1):
        yield


def traced(*given):
    return lt.Tracer(*given, n_jobs=1)


def table(X, kind):
    """Convert a DataFrame to another kind of table. polars orders categories in its own way."""
    if kind == "pandas":
        return X
    X = X.reset_index(drop=True)
    return pl.from_pandas(X) if kind == "polars" else pa.Table.from_pandas(X)


def column(values, kind):
    """Return labels or weights as a column; Arrow columns have two chunks."""
    if kind == "pandas":
        return pd.Series(values)
    return pl.Series(values) if kind == "polars" else pa.chunked_array([values[:7], values[7:]])


def data(of):
    """Return (training table, test table, labels, test labels).

    Columns are numbers for regression, and categories for two classes."""
    d = boosters.frame("number" if of == "numbers" else "class", many=True, n=300)
    X = pd.concat([d.X, d.X_test])
    y = np.append(d.y, d.y_test)
    if of == "numbers":
        X = X.drop(columns=CATEGORIES)
        X = X.assign(flag=X["d"] > 0.3, count=(10 * X["c"]).fillna(0).astype("int16"))
    return X[:-80], X[-80:], y[:-80], y[-80:]


def model(library, of):
    """Return an unfitted model, and labels in the form it accepts."""
    if of == "numbers":
        return {
            "catboost": lambda: CatBoostRegressor(iterations=6, depth=3, **QUIET),
            "xgboost": lambda: xgb.XGBRegressor(n_estimators=6, max_depth=3, n_jobs=1),
            "lightgbm": lambda: lgb.LGBMRegressor(
                n_estimators=6, min_child_samples=5, n_jobs=1, verbose=-1
            ),
            "sklearn": lambda: RandomForestRegressor(6, max_depth=4, random_state=0),
        }[library]()
    return {
        "catboost": lambda: CatBoostClassifier(iterations=6, cat_features=CATEGORIES, **QUIET),
        "xgboost": lambda: xgb.XGBClassifier(
            n_estimators=6, max_depth=3, enable_categorical=True, n_jobs=1
        ),
        "lightgbm": lambda: lgb.LGBMClassifier(
            n_estimators=6, min_child_samples=5, n_jobs=1, verbose=-1
        ),
        "sklearn": lambda: HistGradientBoostingClassifier(
            max_iter=6, categorical_features="from_dtype"
        ),
    }[library]()


@cache
def world(library, of, holes=False):
    """A model trained on pandas tables, its rows, and its answers to all questions."""
    X, X_test, y, y_test = data(of)
    if of != "numbers" and library == "xgboost":  # which needs class numbers
        y, y_test = (np.where(v == "yes", 1, 0) for v in (y, y_test))
    if holes:
        X, X_test = (x.assign(kind=x["kind"].where(np.arange(len(x)) % 5 > 0)) for x in (X, X_test))
    w = boosters.weights(len(y))
    fitted = model(library, of).fit(X, y, sample_weight=w)
    return fitted, X, X_test, y, y_test, w, asked(traced(fitted, X, y, w), X_test, y_test)


def asked(tracer, X_test, y_test):
    """Return the numbers of every kind of question, also of retrained models."""
    some = inputs.take_rows(X_test, np.arange(3)), y_test[:3]
    models = {
        "refitted": tracer.refit([3, 5]),
        "retrained": tracer.retrain([3, 5]),
        "added": tracer.retrain([3], added=some),
    }
    if tracer.engine.ensemble.sample is None:  # new rows cannot be added to a forest
        models["added, refitted"] = tracer.refit(added=some)
    return {
        "influence": tracer.influence(X_test, y_test).values,
        "candidates": tracer.score_candidates(X_test, X_test, y_test).values,
        "top": tracer.top(X_test, y_test, 3),
        **{name: raw_scores(altered, X_test) for name, altered in models.items()},
    }


def same(found, expected):
    for name, values in expected.items():
        if name == "top":
            continue
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    top = _tables_of(found["top"])
    for name, values in _tables_of(expected["top"]).items():
        if name not in ("train_row", "test_row"):  # names of an index that only pandas has
            assert list(top[name]) == list(values)


def _tables_of(x):
    return {
        name: frames.to_numpy(x[name])
        for name in (x.column_names if hasattr(x, "column_names") else x.columns)
    }


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("of", ["numbers", "categories"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_same_rows_give_the_same_numbers(library, of, kind):
    """A model trained on pandas and traced with another kind gives the same bits, also retrained."""
    skip_old(library, of)
    fitted, X, X_test, y, y_test, w, expected = world(library, of)
    tracer = traced(fitted, table(X, kind), column(y, kind), column(w, kind))
    found = asked(tracer, table(X_test, kind), np.asarray(column(y_test, kind)))
    same(found, expected)
    assert type(found["top"]) is type(table(X, kind))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "sklearn"])
def test_missing_categories(library, kind):
    skip_old(library)
    fitted, X, X_test, y, y_test, w, expected = world(library, "categories", holes=True)
    tracer = traced(fitted, table(X, kind), y, w)
    same(asked(tracer, table(X_test, kind), y_test), expected)


# Tables that can be trained on: LightGBM crashes on categories other than pandas', CatBoost has no Arrow.
TRAINS = [
    *((library, "numbers", "polars") for library in LIBRARIES),
    *((library, "numbers", "arrow") for library in LIBRARIES if library != "catboost"),
    ("xgboost", "categories", "polars"),
    ("sklearn", "categories", "polars"),
    ("sklearn", "categories", "arrow"),
    ("catboost", "enum", "polars"),
]  # fmt: skip


@needs_new
@pytest.mark.parametrize(("library", "of", "kind"), TRAINS)
def test_trained_on_other_tables(library, of, kind):
    """Tracing with the tables of training and with pandas gives the same numbers."""
    _, X, X_test, y, y_test, w, _ = world(library, "numbers" if of == "numbers" else "categories")
    own = table(X, kind)
    own_test = table(X_test, kind)
    if of == "enum":
        to = {name: pl.Enum(X[name].cat.categories.to_list()) for name in CATEGORIES}
        own = own.cast(to)
        own_test = own_test.cast(to)
    fitted = model(library, of).fit(own, y, sample_weight=w)
    mine = asked(traced(fitted, own, y, w), own_test, y_test)
    same(asked(traced(fitted, X, y, w), X_test, y_test), mine)
    same(asked(traced(fitted, X, y, w), own_test, y_test), mine)


def test_text_of_catboost():
    """CatBoost with columns of text, and with categories that are numbers."""
    X, X_test, y, y_test = data("categories")
    X, X_test = (
        x.astype({"kind": str}).assign(town=x["town"].cat.codes.astype(int)) for x in (X, X_test)
    )
    fitted = CatBoostClassifier(iterations=6, cat_features=CATEGORIES, **QUIET).fit(X, y)
    expected = asked(traced(fitted, X, y), X_test, y_test)
    for kind in KINDS[1:]:
        same(asked(traced(fitted, table(X, kind), y), table(X_test, kind), y_test), expected)
    recorded = lt.record_catboost(
        CatBoostClassifier(iterations=3, **QUIET), pl.DataFrame({"a": X["a"]}), pl.Series(y)
    )
    assert traced(recorded, pl.DataFrame({"a": X["a"]}), y).fidelity.exact


def test_a_pipeline():
    X, X_test, y, y_test = data("categories")
    X, X_test = (x.assign(a=x["a"].fillna(0.5), b=x["b"].fillna(0.5)) for x in (X, X_test))
    steps = make_column_transformer(
        (OneHotEncoder(), ["kind"]), ("passthrough", ["a", "b"]), sparse_threshold=0
    )
    pipeline = make_pipeline(steps, HistGradientBoostingClassifier(max_iter=4)).fit(X, y)
    expected = asked(traced(pipeline, X, y), X_test, y_test)
    for kind in KINDS[1:]:
        same(asked(traced(pipeline, table(X, kind), y), table(X_test, kind), y_test), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_by_name(library, kind):
    skip_old(library)
    fitted, X, X_test, y, y_test, w, expected = world(library, "categories")
    tracer = traced(fitted, table(X[X.columns[::-1]], kind), y, w)
    turned = table(X_test.assign(more=1.0)[[*X.columns[2:], "more", *X.columns[:2]]], kind)
    np.testing.assert_array_equal(tracer.influence(turned, y_test).values, expected["influence"])
    np.testing.assert_array_equal(raw_scores(tracer.retrain([3, 5]), turned), expected["retrained"])
    with pytest.raises(lt.InvalidInput, match=r"lacks the column.* 'kind'.*has 'colour' instead"):
        tracer.influence(table(X_test.rename(columns={"kind": "colour"}), kind), y_test)
    with pytest.raises(lt.InvalidInput, match=r"lacks the column.* 'town'"):
        traced(fitted, table(X.drop(columns="town"), kind), y, w)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_text_is_refused_where_the_library_cannot_take_it(library, kind):
    """We refuse it, because LightGBM itself would crash."""
    skip_old(library)
    fitted, X, X_test, y, y_test, w, _ = world(library, "categories")
    tracer = traced(fitted, table(X, kind), y, w)
    with pytest.raises(
        lt.InvalidInput, match="the column 'kind' is String; pass it as in training, as a category"
    ):
        tracer.influence(table(X_test.astype({"kind": str}), kind), y_test)


def test_names_with_spaces_and_arrays_without_names():
    X, _, y, _ = data("numbers")
    spaced = X.rename(columns={"a": "age of the house"})
    fitted = lgb.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1).fit(spaced, y)
    assert traced(fitted, table(spaced, "polars"), y).fidelity.exact
    bare = X.drop(columns="flag").to_numpy(float)
    for fitted in (
        lgb.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1).fit(bare, y),
        xgb.XGBRegressor(n_estimators=3, n_jobs=1).fit(bare, y),
        CatBoostRegressor(iterations=3, **QUIET).fit(bare, y),
    ):
        expected = traced(fitted, bare, y).influence(bare[:5], y[:5]).values
        for kind in KINDS[1:]:
            rows = table(X.drop(columns="flag"), kind)
            found = (
                traced(fitted, rows, y)
                .influence(inputs.take_rows(rows, np.arange(5)), y[:5])
                .values
            )
            np.testing.assert_array_equal(found, expected)


def test_labels_and_weights_of_any_kind():
    """Nullable types work too; errors say where a value is missing."""
    text = ["b", "a", "a"]
    for values in (
        pl.Series(text), pl.Series(text, dtype=pl.Categorical), pl.Series(text, dtype=pl.Enum(["a", "b"])),
        pa.array(text), pa.chunked_array([text[:1], text[1:]]).dictionary_encode(), pl.DataFrame({"y": text}),
        pd.Series(text, dtype="string"), pd.Series(text, dtype="category"), pd.DataFrame({"y": text}),
    ):  # fmt: skip
        assert inputs.vector(values, "y", 3).tolist() == text
    for make in (
        pl.Series,
        pa.array,
        lambda v: pd.Series(v, dtype="Int64"),
        lambda v: pa.chunked_array([v]),
    ):
        assert inputs.numbers(make([3, 1, 2]), "y", 3).tolist() == [3, 1, 2]
        with pytest.raises(lt.InvalidInput, match=r"y has 1 missing value.*at row 1"):
            inputs.numbers(make([3, None, 2]), "y", 3)
    with pytest.raises(lt.InvalidInput, match="missing value"):
        inputs.vector(pd.Series(["a", None], dtype="string"), "y", 2)


def test_a_lazy_frame_and_a_batch():
    fitted, X, X_test, y, y_test, w, expected = world("lightgbm", "numbers")
    with pytest.raises(lt.InvalidInput, match=r"LazyFrame.*collect"):
        traced(fitted, table(X, "polars").lazy(), y, w)
    (batch,) = table(X, "arrow").to_batches()
    found = traced(fitted, batch, y, w).influence(table(X_test, "arrow").to_batches()[0], y_test)
    np.testing.assert_array_equal(found.values, expected["influence"])


@pytest.mark.parametrize("kind", KINDS[1:])
def test_rows_below_rows(kind):
    """Adding rows keeps the types, also if the new rows are in another kind of table."""
    X = pd.DataFrame(
        {
            "x": np.float32([1, 2, 3]),
            "k": pd.Categorical(["u", "v", None]),
            "b": [True, False, True],
        }
    )
    more = pd.DataFrame({"b": [False], "k": pd.Categorical(["v"]), "x": [9.0]}, index=["name"])
    for added in (more, table(more, "polars"), table(more, "arrow")):
        made = TrainingSet(3, np.array([0, 2]), added=(added, np.zeros(1), np.ones(1))).table(
            table(X, kind)
        )
        assert made.schema == table(X, kind).schema
        assert _tables_of(made)["x"].tolist() == [1, 3, 9]
        assert list(_tables_of(made)["k"]) == ["u", None, "v"]
    numbers = table(pd.DataFrame({"x": [1.5, 2.5]}), kind)
    assert _tables_of(frames.append_rows(numbers, np.array([[4.5]])))["x"].tolist() == [
        1.5,
        2.5,
        4.5,
    ]
    with pytest.raises(lt.InvalidInput, match=r"lack the column.* 'k'"):
        frames.append_rows(table(X, kind), more.drop(columns="k"))


def test_truth_values_with_gaps():
    X = pl.DataFrame({"b": [True, None, False]})
    for kind in (X, X.to_arrow()):
        assert frames.to_pandas(kind)["b"].tolist() == pytest.approx([1, np.nan, 0], nan_ok=True)


# ---- what comes back ----


@pytest.fixture(scope="module", params=KINDS)
def tracer_of_kind(request):
    kind = request.param
    fitted, X, X_test, y, y_test, w, _ = world("lightgbm", "categories")
    return kind, traced(fitted, table(X, kind), y, w), table(X_test, kind), y_test


def test_tables_come_back_in_the_kind_of_the_training_table(tracer_of_kind):
    kind, tracer, X_test, y_test = tracer_of_kind
    influence = tracer.influence(X_test, y_test)
    again = pickle.loads(pickle.dumps(influence))
    other = table(
        world("lightgbm", "categories")[2], "pandas"
    )  # the kind of the test rows does not matter
    tables = [
        influence.top(3), influence.by("kind"), influence.by("a", test_groups="kind"), influence.to_frame(),
        again.top(2), influence.mean().to_frame(), tracer.top(X_test, y_test, 3),
        tracer.neighbours(X_test, 2, y_test=y_test), tracer.score_candidates(other, other, y_test).top(2),
        tracer.label_influence(X_test, y_test).top(2),
    ]  # fmt: skip
    assert all(type(x) is type(X_test) for x in tables)
    fitted, X, Z, y, z, w, _ = world("lightgbm", "categories")
    plain = traced(fitted, X, y, w).influence(Z, z)
    for mine, theirs in zip(
        tables[1:3], (plain.by("kind"), plain.by("a", test_groups="kind")), strict=True
    ):
        mine = _tables_of(mine)
        theirs = _tables_of(theirs)
        assert list(mine) == list(theirs)
        assert all(list(mine[c]) == list(theirs[c]) for c in mine if c != "test_row")
    wide = _tables_of(tables[3])
    if kind != "pandas":
        assert list(wide) == ["train_row", "position", *(str(j) for j in range(len(y_test)))]
        np.testing.assert_array_equal(wide["3"], plain.values[:, 3])
        assert "<table>" in influence._repr_html_()


def test_the_index_is_kept(tracer_of_kind):
    kind, tracer, X_test, y_test = tracer_of_kind
    top = _tables_of(tracer.top(X_test, y_test, 2))
    if kind == "pandas":
        assert set(top["train_row"]) <= set(tracer.X_train.index)
        assert set(top["test_row"]) == set(X_test.index)
    else:
        assert set(top["test_row"]) == set(range(len(y_test)))


def test_actions(tracer_of_kind):
    kind, tracer, X_test, y_test = tracer_of_kind
    wrong = np.flatnonzero(tracer.engine.unchanged.loss(X_test, y_test) > np.log(2))[:1]
    half = [inputs.take_rows(X_test, part) for part in (np.arange(20), np.arange(20, 40))]
    parts = half[0], y_test[:20], half[1], y_test[20:40]
    noise = lt.label_noise(tracer)
    acquired = lt.acquire(tracer, half[0], half[1], y_test[20:40], k=3)
    found = [
        noise, noise.confirm(X_test, y_test), lt.clean(tracer, *parts, max_rounds=1), acquired,
        lt.fix(tracer, inputs.take_rows(X_test, wrong), y_test[wrong[0]], X_test=X_test, y_test=y_test),
        lt.group_effects(tracer, "kind", X_test, y_test, refit=False),
        lt.mismatch(tracer, X_test, y_test, features=["kind"]), lt.removal_impact(tracer, [1, 2], X_test, y_test),
        lt.removal_curve(tracer, np.arange(30), X_test, y_test, counts=[5], draws=1, retrain=False),
    ]  # fmt: skip
    for result in found:
        assert type(result.table) is type(X_test)
        assert result.effects is None or type(result.effects) is type(X_test)
        assert result.advice in repr(result)
        assert "<table>" in result._repr_html_()
    assert type(acquired.X_new) is type(noise.get_issues()) is type(noise.scores) is type(X_test)
    if kind != "pandas":
        fitted, X, Z, y, z, w, _ = world("lightgbm", "categories")
        audits = [
            lt.removal_impact(t, [1, 2], Q, z).audit()
            for t, Q in ((tracer, X_test), (traced(fitted, X, y, w), Z))
        ]
        assert audits[0]["model"] == audits[1]["model"]
        assert audits[0]["retrained"] == audits[1]["retrained"]
        for part in ("training", "test"):  # but for the names of the rows
            hashes = [
                {k: v for k, v in audit[part]["sha256"].items() if k != "row_names"}
                for audit in audits
            ]
            assert hashes[0] == hashes[1]


@needs_new
@pytest.mark.parametrize("kind", KINDS)
def test_an_ensemble(kind):
    X, X_test, y, y_test = data("numbers")
    X = table(X, kind)
    X_test = table(X_test, kind)
    found = lt.ensemble_influence(
        lambda seed: model("lightgbm", "numbers"), X, y, X_test, y_test, members=4
    )
    assert type(found.table) is type(found.top(2)) is type(found.influence.top(1)) is type(X)


def test_a_report_and_pictures(tracer_of_kind, tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    _, tracer, X_test, y_test = tracer_of_kind
    lt.report(tracer, X_test, y_test, groups="kind").save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    influence = tracer.influence(X_test, y_test)
    lt.plot.top(influence)
    lt.plot.side_by_side(tracer, inputs.take_rows(X_test, np.array([3])), y_test[[3]])
    lt.plot.effects(lt.removal_impact(tracer, [1, 2], X_test, y_test))
    lt.plot.effects(lt.removal_impact(tracer, [1, 2], X_test, y_test).effects)
    lt.plot.groups(influence.by("kind", test_groups="kind"))
    matplotlib.pyplot.close("all")


def test_columns_of_objects():
    names = np.array([1, "missing", None, ("a", 2)], dtype=object)
    for kind in ("polars", "pyarrow"):
        made = frames.from_columns(
            {"group": names, "n": np.arange(4), "share": np.array([0.5, np.nan, None, 1], object)},
            kind,
        )
        assert list(_tables_of(made)["group"]) == ["1", "missing", None, "('a', 2)"]
        assert np.asarray(made["share"], float)[[0, 3]].tolist() == [0.5, 1]
    influence = lt.Influence(np.zeros((2, 2)), np.arange(2), np.array(["x", "x"]), tables=_polars())
    with pytest.raises(lt.InvalidInput, match="share a name"):
        influence.to_frame()


def _polars():
    from leaftrace._data.grouping import SourceTables

    return SourceTables(kind="polars")


WITHOUT = """
import sys
sys.modules["pandas"] = None
import numpy as np, polars as pl, leaftrace as lt
from {module} import {name} as Model
rng = np.random.default_rng(0)
X = pl.DataFrame({{"a": rng.normal(size=200), "b": [None if i % 7 == 0 else i % 5 for i in range(200)]}})
y = pl.Series((X["a"] + X["b"].fill_null(2) > 2).cast(int))
model = Model({settings}).fit(X, y)
tracer = lt.Tracer(model, X, y)
print(type(tracer.influence(X[:5], y[:5]).top(2)).__module__, tracer.retrain([3]).scores(X[:5]).shape)
print(len(repr(lt.label_noise(tracer))) > 100)
"""


@needs_new
@pytest.mark.parametrize(
    ("module", "name", "settings"),
    [
        ("xgboost", "XGBClassifier", "n_estimators=3"),
        ("lightgbm", "LGBMClassifier", "n_estimators=3, verbose=-1"),
        ("sklearn.ensemble", "HistGradientBoostingClassifier", "max_iter=3"),
    ],
)
def test_polars_without_pandas(module, name, settings):
    code = WITHOUT.format(module=module, name=name, settings=settings)
    env = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() == ["polars.dataframe.frame", "(5,", "1)", "True"]


def test_narwhals_comes_with_such_tables_only():
    code = """
import sys, numpy as np, pandas as pd
from leaftrace._data import frames, inputs, tables
def read(X):
    inputs.take_rows(inputs.columns(X, ["a", "b"]), np.arange(2)), inputs.vector([1, 2], "y", 2)
    tables.table({"a": [1]}, frames.kind(X))
    return "narwhals" in sys.modules
X = pd.DataFrame(np.zeros((3, 2)), columns=["a", "b"])
print(read(X), read(X.to_numpy()))
import polars as pl
print(read(pl.DataFrame({"a": [1, 2], "b": [3, 4]})))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False", "True"]
    without = "import sys; sys.modules['narwhals'] = None\n" + code.replace(
        "print(read(X), read(X.to_numpy()))", ""
    )
    out = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert (
        "InvalidInput: reading a polars table needs narwhals; pip install 'leaftrace[frames]'"
        in out.stderr
    )
