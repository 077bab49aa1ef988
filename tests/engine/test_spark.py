"""Training rows in a Spark DataFrame give the answers of memory."""

from functools import cache

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier
from spark_sessions import NEEDS, spark_session

import leaftrace as lt

pytest.importorskip("pyspark")
pytestmark = NEEDS

N = 1200
M = 5
NAMES = ["a", "b", "c", "kind"]
SAME = {"rtol": 1e-7, "atol": 1e-11}


@pytest.fixture(scope="module")
def spark():
    """One thread, as each further one imports all libraries again; test_spark_lost.py has two executors."""
    with spark_session("local[1]") as session:
        yield session


@cache
def world():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(N + M, 3)), columns=list("abc"))
    X["kind"] = pd.Categorical(rng.choice(["red", "green", "blue"], N + M))
    score = (X["a"] - X["b"] * (X["kind"] == "red") + rng.normal(size=N + M)).to_numpy()
    X.loc[rng.random(N + M) < 0.1, "b"] = np.nan
    y = {"two": (score > 0.1).astype(int), "three": np.digitize(score, [-0.6, 0.7])}
    return X, y, rng.random(N + M) + 0.2


def table_of(y):
    X, _, w = world()
    return X[:N].assign(kind=X["kind"][:N].astype(str), y=y[:N], w=w[:N], id=np.arange(N) + 100)


@cache
def frame_of(spark, target):
    """Return a DataFrame whose rows are not in the order of training, kept by the executors."""
    table = table_of(world()[1][target])
    return spark.createDataFrame(table.sample(frac=1, random_state=0)).repartition(2).persist()


def lightgbm(**kw):
    return lgb.LGBMClassifier(n_estimators=3, num_leaves=7, verbosity=-1, n_jobs=1, **kw)


MODELS = {
    "LightGBM": (lightgbm(), "two"),
    "LightGBM, GOSS": (lightgbm(data_sample_strategy="goss", learning_rate=0.5), "two"),
    "XGBoost, subsample": (
        xgb.XGBClassifier(
            n_estimators=3, max_depth=3, n_jobs=1, enable_categorical=True, subsample=0.6
        ),
        "three",
    ),
    "CatBoost": (
        CatBoostClassifier(
            iterations=3,
            depth=3,
            leaf_estimation_iterations=2,
            one_hot_max_size=10,
            cat_features=["kind"],
            verbose=0,
            allow_writing_files=False,
            thread_count=1,
        ),
        "two",
    ),
}


@cache
def fitted(name):
    """Return the model, its tracer in memory, and the labels of all rows."""
    model, target = MODELS[name]
    X, labels, w = world()
    y = labels[target]
    model.fit(X[:N], y[:N], sample_weight=w[:N])
    return model, lt.Tracer(model, X[:N], y[:N], w[:N], dtype="float64"), y


def traced(spark, name, model=None, **how):
    from leaftrace.spark import Tracer

    own, near, y = fitted(name)
    columns = {"features": NAMES, "label": "y", "weight": "w", "order": "id"}
    far = Tracer(model or own, frame_of(spark, MODELS[name][1]), **columns, dtype="float64", **how)
    return far, near, y


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_memory(name, spark):
    far, near, y = traced(spark, name)
    X = world()[0]
    assert far.fidelity.exact
    assert far.n_rows == N
    assert (far.local is not None) == (name == "LightGBM, GOSS")
    found = far.influence(X[N:], y[N:], reduce="mean")
    assert found.columns == ["id", "value"]
    values = found.toPandas().sort_values("id")
    assert values["id"].tolist() == list(range(100, N + 100))
    expected = near.influence(X[N:], y[N:], reduce="mean").values[:, 0]
    np.testing.assert_allclose(values["value"], expected, **SAME)
    top = far.top(X[N:], y[N:], 2)
    expected = near.top(X[N:], y[N:], 2)
    if far.local is None:
        assert (top["id"] - 100).tolist() == expected["train_row"].tolist()
    change = "loss_change_if_removed"
    np.testing.assert_allclose(top[change], expected[change], rtol=1e-6)
    far.close()


def test_refits_and_groups(spark):
    far, near, y = traced(spark, "LightGBM")
    X = world()[0]
    refitted = far.refit(without="id % 7 = 0 and kind = 'red'")
    red = (X["kind"][:N] == "red").to_numpy()
    there = near.refit(without=(np.arange(100, N + 100) % 7 == 0) & red)
    np.testing.assert_allclose(refitted.scores(X[N:]), there.scores(X[N:]), **SAME)
    predicted = refitted.transform(far.frame).toPandas().sort_values("id")
    np.testing.assert_array_equal(predicted["prediction"], there.predict(X[:N]))
    groups = far.by("kind", X[N:], y[N:])
    expected = near.influence(X[N:], y[N:], reduce="mean").by(X["kind"][:N])
    assert groups["group"].tolist() == expected["group"].tolist()
    for column in ("rows", "total", "loss_change_if_removed"):
        np.testing.assert_allclose(groups[column], expected[column], **SAME)
    effects = far.group_effects("kind = 'red'", X[N:], y[N:])
    assert effects["group"].tolist() == [False, True]
    losses = [near.refit(without=gone).loss(X[N:], y[N:]).mean() for gone in (~red, red)]
    before = near.refit(without=[]).loss(X[N:], y[N:]).mean()
    np.testing.assert_allclose(effects["refitted"], np.array(losses) - before, rtol=1e-6, atol=1e-9)


def test_native_text(spark):
    """SynapseML keeps a LightGBM model as text."""
    far, near, y = traced(spark, "LightGBM", fitted("LightGBM")[0].booster_.model_to_string())
    X = world()[0]
    expected = near.influence(X[N:], y[N:], reduce="sum").values[:, 0]
    values = far.influence(X[N:], y[N:], reduce="sum").toPandas().sort_values("id")["value"]
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-7)  # six digits of parameters


@cache
def plain(spark):
    """Return a model without categories, its tracer in memory, X, y, and its rows in one partition."""
    X, labels, _ = world()
    X = X[["a", "b", "c"]].assign(flag=(X["c"] > 0).where(X["b"] > -1), price=X["a"].round(2))
    y = labels["two"]
    model = xgb.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1)
    numbers = X.astype(float)
    model.fit(numbers[:N], y[:N])
    near = lt.Tracer(model, numbers[:N], y[:N], dtype="float64")
    table = numbers[:N].assign(y=y[:N], id=np.arange(N))
    flag = "case when not isnan(flag) then flag > 0.5 end as flag"
    frame = spark.createDataFrame(table).coalesce(1)
    columns = ["a", "b", "c", flag, "cast(price as decimal(9, 2)) as price", "y", "id"]
    return model, near, numbers, y, frame.selectExpr(*columns).persist()


PLAIN = {"features": ["a", "b", "c", "flag", "price"], "label": "y", "order": "id"}


def test_types_of_columns_and_names_with_dots(spark):
    """Truth values with holes, decimals and labels as decimals are numbers; rows may be anywhere."""
    from leaftrace.spark import Tracer

    model, near, X, y, frame = plain(spark)
    assert dict(frame.dtypes) | {"flag": "boolean", "price": "decimal(9,2)"} == dict(frame.dtypes)
    parts = [frame.where("id < 0"), frame.where("id = 7"), frame.where("id <> 7")]
    frame = parts[2].union(parts[0]).union(parts[1]).withColumnRenamed("id", "the.id")
    frame = frame.withColumn("y", frame["y"].cast("decimal(3, 1)"))
    far = Tracer(model, frame, **PLAIN | {"order": "the.id"}, dtype="float64")
    values = far.influence(X[N:], y[N:], reduce="mean").toPandas().sort_values("the.id")["value"]
    expected = near.influence(X[N:], y[N:], reduce="mean")
    np.testing.assert_allclose(values, expected.values[:, 0], **SAME)
    groups = far.by("case when a > 0 then 'high' end", X[N:], y[N:])
    assert groups["group"].tolist() == ["high", "missing"]
    table = expected.by(np.where(X["a"][:N] > 0, "high", "low"))
    for column in ("rows", "total"):
        np.testing.assert_allclose(groups[column], table[column], **SAME)
    effects = far.group_effects("case when a > 0 then 'high' end", X[N:], y[N:])
    assert effects["rows"].tolist() == groups["rows"].tolist()


def test_names_that_several_rows_have(spark):
    """Rows with one name cannot be told apart: values are right, what is asked by name is refused."""
    from leaftrace.spark import Tracer

    model, near, X, y, frame = plain(spark)
    twice = frame.withColumn("id", frame["id"] % 1000)
    far = Tracer(model, twice, **PLAIN, dtype="float64")
    values = far.influence(X[N:], y[N:], reduce="mean").toPandas()["value"]
    expected = near.influence(X[N:], y[N:], reduce="mean").values[:, 0]
    np.testing.assert_allclose(np.sort(values), np.sort(expected), **SAME)
    for ask in (far.by, far.group_effects):
        with pytest.raises(lt.InvalidInput, match=r"1,200 rows were asked for .*1,600 found"):
            ask("a > 0", X[N:], y[N:])
    with pytest.raises(lt.InvalidInput, match=r"order= must name each row by a value of its own"):
        far.refit(without="a > 0")
    for wrong, words in {"nope > 0": "UNRESOLVED_COLUMN", "a + 1": "FILTER_NOT_BOOLEAN"}.items():
        with pytest.raises(lt.InvalidInput, match=words):
            far.refit(without=wrong)
    with pytest.raises(lt.InvalidInput, match=r"Spark does not take this: .*`nope`"):
        far.by("nope", X[N:], y[N:])
    far.close()


WRONG = {  # columns of the frame that are replaced, arguments, words of the error
    "no features": ({}, {"features": []}, "features is empty"),
    "a feature twice": ({}, {"features": ["a", "a", "b"]}, "features has 'a' more than once"),
    "not all features": ({}, {"features": ["a", "b"]}, "lacks the column"),
    "a number as vector": ({}, {"features": "a"}, r"type double, .*pass \['a'\]"),
    "vectors of any length": (
        {"a": "if(id < 9, array(a, b, c), array(a, b, c, 1, 2))"},
        {"features": "a"},
        "rows of the column 'a' have 3 to 5 features",
    ),
    "several labels": ({"y": "array(y, y)"}, {}, "type array<bigint>; a label is a number"),
    "no label": ({"y": "if(id = 7, null, y)"}, {}, "y has 1 missing value"),
    "no name": ({"id": "if(id = 7, null, id)"}, {}, r"'id' has no value in 1 row\(s\)"),
    "weights of text": ({"a": "'x'"}, {"weight": "a"}, "CAST_INVALID_INPUT|missing value"),
}


@pytest.mark.parametrize("name", WRONG)
def test_columns_that_cannot_be_read(name, spark):
    from leaftrace.spark import Tracer

    replaced, arguments, words = WRONG[name]
    model, _, _, _, frame = plain(spark)
    chosen = [f"{replaced[c]} as {c}" if c in replaced else c for c in frame.columns]
    with pytest.raises(lt.LeaftraceError, match=words):
        Tracer(model, frame.selectExpr(*chosen), **PLAIN | arguments)


def test_a_table_without_rows(spark):
    from leaftrace._tracer.cluster.spark.rows import arrow_table

    table = arrow_table(spark.range(3).where("id > 5"))
    assert (table.column_names, table.num_rows) == (["id"], 0)


def test_bad_input(spark, tmp_path):
    from leaftrace.spark import Tracer

    model, _, y = fitted("LightGBM")
    frame = spark.createDataFrame(table_of(y)).coalesce(1)
    columns = {"features": NAMES, "label": "y", "weight": "w", "order": "id"}
    with pytest.raises(lt.InvalidInput, match="frame is a DataFrame; pass a pyspark DataFrame"):
        Tracer(model, world()[0], **columns)
    with pytest.raises(lt.InvalidInput, match="no column 'age'"):
        Tracer(model, frame, **columns | {"features": ["age"]})
    with pytest.raises(lt.InvalidInput, match="negative values"):
        Tracer(model, frame.selectExpr(*NAMES, "y", "id", "-w as w"), **columns)
    with pytest.raises(lt.FidelityError, match="the replay differs"):
        Tracer(model, frame.selectExpr(*NAMES, "1 - y as y", "id", "w"), **columns)
    drawn, _, y = fitted("XGBoost, subsample")
    twice = (
        spark.createDataFrame(table_of(y))
        .coalesce(1)
        .selectExpr(*NAMES, "y", "w", "id % 600 as id")
    )
    with pytest.raises(lt.InvalidInput, match=r"'id' has .* for several rows"):
        Tracer(drawn, twice, **columns)
    frame.write.parquet(str(tmp_path / "rows"))
    damaged = spark.read.parquet(str(tmp_path / "rows"))
    next((tmp_path / "rows").glob("part*.parquet")).write_bytes(b"no parquet")
    with pytest.raises(lt.LeaftraceError, match="Spark could not compute with a partition"):
        Tracer(model, damaged, **columns)
