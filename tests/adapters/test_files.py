"""Training rows in Parquet files give the same answers as in memory, and clear errors."""

import gc
import json
import os
import pickle
from dataclasses import dataclass
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier, CatBoostRegressor
from raw_scores import raw_scores
from sklearn import __version__ as sklearn_version
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import leaftrace as lt
from leaftrace._data import leaf_cache, parquet
from leaftrace._engine import chain_sums, steps, workspace
from leaftrace._model.hashes import hash_table

N = 900
M = 12
QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}


def world(seed=0):
    """Return a table with gaps and a category, labels of three kinds, and weights."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(N + M, 4)).astype(np.float32), columns=list("abcd"))
    X["kind"] = pd.Categorical(
        rng.choice(["red", "green", "blue", "grey"], N + M), ["red", "green", "blue", "grey"]
    )
    score = X["a"] - X["b"] * (X["kind"] == "red") + 0.4 * rng.normal(size=N + M)
    X[list("abcd")] = X[list("abcd")].mask(rng.random((N + M, 4)) < 0.1)
    y = {
        "two": (score > 0).astype(int),
        "three": pd.cut(score, [-9, -0.7, 0.6, 9], labels=["lo", "mid", "up"]),
    }
    y = {"number": score.to_numpy(), **{name: np.asarray(codes) for name, codes in y.items()}}
    return X, y, rng.integers(0, 4, N + M) / 2 + 0.25


@dataclass
class Case:
    fit: Any  # of X, y, w
    target: str = "two"
    weighted: bool = True
    columns: tuple = ("a", "b", "c", "d", "kind")
    has_zeros: bool = False  # a quarter of the weights is zero


def lightgbm(**kw):
    kind = (
        lgb.LGBMRegressor
        if kw.get("objective") in ("regression", "quantile")
        else lgb.LGBMClassifier
    )
    more = {
        "n_estimators": 12,
        "num_leaves": 7,
        "verbosity": -1,
        "n_jobs": 1,
        "min_child_samples": 5,
        **kw,
    }
    return lambda X, y, w: kind(**more).fit(X, y, sample_weight=w)


def xgboost(**kw):
    more = {"n_estimators": 12, "max_depth": 3, "n_jobs": 1, "enable_categorical": True, **kw}

    def fit(X, y, w):
        codes = y if y.dtype.kind in "if" else np.unique(y, return_inverse=True)[1]
        return (xgb.XGBRegressor if y.dtype.kind == "f" else xgb.XGBClassifier)(**more).fit(
            X, codes, sample_weight=w
        )

    return fit


def catboost(kind=CatBoostClassifier, **kw):
    more = {"iterations": 12, "depth": 3, "one_hot_max_size": 10, **QUIET, **kw}

    def fit(X, y, w):
        categories = [c for c in X.columns if c == "kind"]
        return kind(**more, cat_features=categories).fit(X, y, sample_weight=w)

    return fit


def sklearn(kind, **kw):
    return lambda X, y, w: kind(random_state=0, **kw).fit(X, y, sample_weight=w)


def pipeline(X, y, w):
    scaled = make_column_transformer((StandardScaler(), ["a", "b"]), remainder="drop")
    return make_pipeline(scaled, lgb.LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1)).fit(
        X, y
    )


NUMBERS = ("a", "b", "c", "d")
CASES = {
    "LightGBM": Case(lightgbm()),
    "LightGBM, three classes, balanced": Case(lightgbm(class_weight="balanced"), "three"),
    "LightGBM, bagging": Case(
        lightgbm(subsample=0.6, subsample_freq=1, random_state=3), "two", False
    ),
    "LightGBM, quantile": Case(lightgbm(objective="quantile", alpha=0.3), "number", False),
    "LightGBM, quantile, weights of zero": Case(
        lightgbm(objective="quantile", alpha=0.3), "number", has_zeros=True
    ),
    "XGBoost": Case(xgboost(scale_pos_weight=2.0)),
    "XGBoost, subsample": Case(xgboost(subsample=0.7, seed=5), "number"),
    "CatBoost": Case(catboost()),
    "CatBoost, three classes": Case(catboost(class_weights=[1, 2, 1.5]), "three"),
    "CatBoost, number": Case(catboost(CatBoostRegressor), "number"),
    "CatBoost, median": Case(catboost(CatBoostRegressor, loss_function="MAE"), "number"),
    "HistGradientBoosting, rows held out": Case(
        sklearn(
            HistGradientBoostingClassifier,
            max_iter=4,
            early_stopping=True,
            categorical_features="from_dtype",
        )
    ),
    "HistGradientBoosting": Case(
        sklearn(HistGradientBoostingRegressor, max_iter=8), "number", columns=NUMBERS
    ),
    "GradientBoosting, own start": Case(
        sklearn(
            GradientBoostingRegressor,
            n_estimators=8,
            init=HistGradientBoostingRegressor(max_iter=2),
        ),
        "number",
        columns=("c", "d"),
    ),
    "RandomForest": Case(
        sklearn(RandomForestRegressor, n_estimators=6, min_samples_leaf=5), "number", False, NUMBERS
    ),
    "Pipeline": Case(pipeline, "two", False),
}


@cache
def made(name):
    """Return (model, X, y, w) of training and (X, y) of test rows."""
    case = CASES[name]
    (X, labels, w) = world()
    X = X[list(case.columns)]
    y = labels[case.target]
    X = X.fillna(0) if "start" in name else X
    w = np.where(w == w.min(), 0.0, w) if case.has_zeros else w
    w = w if case.weighted else None
    model = case.fit(X[:N], y[:N], None if w is None else w[:N])
    if "XGBoost" in name and y.dtype.kind == "O":
        y = np.unique(y, return_inverse=True)[1]
    return model, X[:N], y[:N], None if w is None else w[:N], X[N:].reset_index(drop=True), y[N:]


def written(folder, X, y, w=None, files=3, group=130):
    """Write the rows to files of uneven length with several row groups."""
    table = X.assign(label=y, **({} if w is None else {"mass": w}))
    edges = np.linspace(0, 1, files + 1) ** 1.3 * len(table)
    folder.mkdir(parents=True, exist_ok=True)
    for f, (begin, end) in enumerate(
        zip(edges[:-1].astype(int), edges[1:].astype(int), strict=True)
    ):
        table[begin:end].to_parquet(folder / f"part-{f}.parquet", row_group_size=group, index=False)
    return str(folder / "*.parquet")


def both(name, tmp_path, **settings):
    model, X, y, w, *test = made(name)
    pattern = written(tmp_path / "rows", X, y, w)
    files = lt.Tracer.from_files(
        model,
        pattern,
        target="label",
        weight=None if w is None else "mass",
        dtype="float64",
        **settings,
    )
    return files, lt.Tracer(model, X, y, w, dtype="float64"), *test


@pytest.fixture
def in_pieces(monkeypatch):
    """Use parts and chunks of a few rows, so that every loop over them runs more than once."""
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 100)
    for module in (chain_sums, steps, workspace):
        monkeypatch.setattr(module, "ROW_CHUNK", 200)


@pytest.mark.parametrize("memory", [None, 300_000], ids=["room", "tight"])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_rows_in_memory(name, memory, tmp_path, in_pieces):
    if name == "RandomForest" and tuple(int(v) for v in sklearn_version.split(".")[:2]) < (1, 8):
        pytest.skip("forests of scikit-learn before 1.8 misplace missing values")
    files, memory_, X, y = both(name, tmp_path, memory_limit=memory)
    assert isinstance(files.engine.ensemble.leaves, np.memmap)
    # Sums over leaves are taken in another order.
    same = {"rtol": 1e-8, "atol": 1e-11}
    np.testing.assert_allclose(files.fidelity.per_step, memory_.fidelity.per_step, atol=1e-7)
    gone = np.arange(0, N, 7)
    for without in (None, gone):
        here = files.refit(without)
        there = memory_.refit(without)
        np.testing.assert_allclose(here.scores(X), there.scores(X), **same)
    if files.engine.ensemble.not_smooth:
        return
    for ask in ({}, {"reduce": "mean"}, {"of": "prediction", "rows": [5, 880, 17]}):
        here = files.influence(X, y, **ask)
        there = memory_.influence(X, y, **ask)
        np.testing.assert_allclose(here.values, there.values, **same)
    by = [t.influence(X, y, reduce="mean").by(X.columns[0]) for t in (files, memory_)]
    assert by[0]["group"].tolist() == by[1]["group"].tolist()
    np.testing.assert_allclose(by[0]["total"], by[1]["total"], **same)
    pd.testing.assert_frame_equal(files.top(X, y, 5), memory_.top(X, y, 5), rtol=1e-7)


@pytest.mark.parametrize("name", ["LightGBM", "CatBoost, three classes"])
def test_leaf_form_adds_up_over_chunks(name, tmp_path, in_pieces, monkeypatch):
    """The leaf form, built from chunks of rows, equals the row form."""
    files, memory, X, y = both(name, tmp_path, memory_limit=300_000)
    monkeypatch.setattr("leaftrace._engine.costs.leaf_form_pays", lambda *_: True)
    assert not files.engine.work.keeps_effects
    values = files.influence(X, y).values
    monkeypatch.setattr("leaftrace._engine.costs.leaf_form_pays", lambda *_: False)
    assert files.engine.space is not None
    np.testing.assert_allclose(values, memory.influence(X, y).values, rtol=1e-8, atol=1e-11)


def test_other_questions(tmp_path):
    files, memory, X, y = both("LightGBM", tmp_path)
    pd.testing.assert_frame_equal(
        files.neighbours(X, 3, y_test=y), memory.neighbours(X, 3, y_test=y), rtol=1e-7
    )
    ask = {"rows": [3, 4], "method": lt.LeafRefit()}
    np.testing.assert_allclose(
        files.influence(X, y, **ask).values, memory.influence(X, y, **ask).values, rtol=1e-8
    )
    here = files.label_influence(X, y, reduce="mean")
    there = memory.label_influence(X, y, reduce="mean")
    np.testing.assert_allclose(here.values, there.values, rtol=1e-8, atol=1e-12)
    added = X, y
    np.testing.assert_allclose(
        raw_scores(files.refit([1], added=added), X), raw_scores(memory.refit([1], added=added), X)
    )


def test_rows_are_read_when_asked_for(tmp_path):
    files, memory, X, _ = both("LightGBM", tmp_path)
    rows = np.array([700, 3, 3, 899, 120])
    pd.testing.assert_frame_equal(files.X_train.take(rows), memory.X_train.iloc[rows])
    assert files.X_train.shape == memory.X_train.shape
    np.testing.assert_array_equal(
        raw_scores(files.retrain([1, 2]), X), raw_scores(memory.retrain([1, 2]), X)
    )
    names = files.top(X, None, 2, of="prediction")["train_row"]
    assert names.isin(range(N)).all()


def test_actions_read_what_they_need(tmp_path):
    files, memory, X, y = both("LightGBM", tmp_path)
    here, there = (
        lt.removal_impact(tracer, [1, 2, 3], X, y, retrain=False) for tracer in (files, memory)
    )
    assert hash_table(files.X_train) == hash_table(memory.X_train)
    pd.testing.assert_frame_equal(here.table, there.table, rtol=1e-7)
    by = [lt.group_effects(tracer, "kind", X, y, retrain=False).table for tracer in (files, memory)]
    pd.testing.assert_frame_equal(*by, rtol=1e-6)
    assert "red" in lt.report(files, X[:2], y[:2]).html


def test_names_of_rows(tmp_path):
    model, X, y, w, X_test, y_test = made("LightGBM")
    pattern = written(tmp_path, X.assign(who=[f"r{i}" for i in range(N)]), y, w)
    tracer = lt.Tracer.from_files(model, pattern, target="label", weight="mass", index="who")
    assert tracer.top(X_test, y_test, 1)["train_row"].str.startswith("r").all()


def test_scores_given_to_rows(tmp_path):
    X, labels, _ = world()
    X = X[:N][list(NUMBERS)]
    y = labels["two"][:N]
    given = np.linspace(-1, 1, N)
    model = lgb.train(
        {"objective": "binary", "verbosity": -1, "num_threads": 1},
        lgb.Dataset(X, y, init_score=given),
        5,
    )
    pattern = written(tmp_path, X.assign(start=given), y)
    for place in (None, tmp_path / "cache", tmp_path / "cache"):  # computed, written, read
        files = lt.Tracer.from_files(
            model, pattern, target="label", baseline="start", cache=place, dtype="float64"
        )
        memory = lt.Tracer(model, X, y, baseline=given, dtype="float64")
        ask = {"of": "prediction", "reduce": "mean"}
        np.testing.assert_allclose(
            files.influence(X, **ask).values, memory.influence(X, **ask).values, rtol=1e-8
        )


def test_categories_in_another_order_in_every_file(tmp_path):
    """Each file lists only its own categories; the trees find them by name."""
    if int(xgb.__version__.split(".")[0]) < 3:
        pytest.skip("XGBoost before 3.1 knows categories by their number only")
    model, X, y, w, *_ = made("XGBoost")
    memory = lt.Tracer(model, X, y, w)
    order = [["blue", "grey", "green", "red"], ["red", "green", "blue", "grey"]]
    for f, categories in enumerate(order):
        part = slice(f * N // 2, (f + 1) * N // 2)
        table = X[part].assign(
            kind=X["kind"][part].cat.reorder_categories(categories), label=y[part], mass=w[part]
        )
        table.to_parquet(tmp_path / f"{f}.parquet", index=False)
    files = lt.Tracer.from_files(model, tmp_path, target="label", weight="mass")
    np.testing.assert_array_equal(files.engine.ensemble.leaves, memory.engine.ensemble.leaves)


# ---- the cache ----


def opened(tmp_path, name="LightGBM", pattern=None, **more):
    model, X, y, w, *_ = made(name)
    pattern = pattern or written(tmp_path / "rows", X, y, w)
    settings = {"target": "label", "weight": "mass", "cache": tmp_path / "cache", **more}
    return pattern, lambda model=model: lt.Tracer.from_files(model, pattern, **settings)


@pytest.fixture
def count(monkeypatch):
    """Count how often the rows are read to find their leaves."""
    reads = []
    read = parquet.PartedTable.parts

    def parts(self):
        if len(self.column_names) > 1:
            reads.append(1)
        return read(self)

    monkeypatch.setattr(parquet.PartedTable, "parts", parts)
    return reads


@pytest.mark.parametrize(
    "name", ["LightGBM", "XGBoost", "CatBoost", "HistGradientBoosting, rows held out"]
)
def test_cache_is_used_again(name, tmp_path, count):
    pattern, tracer = opened(tmp_path, name)
    first = tracer()
    again = tracer(pickle.loads(pickle.dumps(made(name)[0])))  # loaded as in the next run
    assert len(count) == 1
    np.testing.assert_array_equal(first.engine.ensemble.leaves, again.engine.ensemble.leaves)
    os.utime(pattern.replace("*", "part-0"), (0, 0))
    tracer()
    assert len(count) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_another_model_has_its_own_cache(tmp_path, count):
    _, tracer = opened(tmp_path)
    tracer()
    _, X, y, w, *_ = made("LightGBM")
    tracer(lightgbm(n_estimators=3)(X, y, w))
    assert len(count) == 2


def test_cache_of_another_model_under_this_name(tmp_path):
    _, tracer = opened(tmp_path)
    tracer()
    (entry,) = (tmp_path / "cache").iterdir()
    manifest = json.loads((entry / "manifest.json").read_text())
    (entry / "manifest.json").write_text(json.dumps({**manifest, "key": "0" * 64}))
    with pytest.raises(lt.LeaftraceError, match=r"of another model or other data .* delete it"):
        tracer()


def test_damaged_cache(tmp_path):
    _, tracer = opened(tmp_path)
    tracer()
    (entry,) = (tmp_path / "cache").iterdir()
    os.truncate(entry / "leaves.npy", 500)
    with pytest.raises(lt.LeaftraceError, match=r"is damaged .* delete it"):
        tracer()


def other_leaves(change):
    """Return a damage that writes other leaves in a whole and well-formed file."""

    def damage(entry):
        np.save(entry / "leaves.npy", change(np.load(entry / "leaves.npy")))

    return damage


def written_text(name, text):
    return lambda entry: (entry / name).write_text(text)


def flipped_byte(name, place):
    """Return a damage that turns over one bit of a file."""

    def damage(entry):
        content = bytearray((entry / name).read_bytes())
        content[place] ^= 1
        (entry / name).write_bytes(content)

    return damage


DAMAGES = {
    "numbers instead of ids": other_leaves(lambda ids: ids.astype(float)),
    "wider ids": other_leaves(lambda ids: ids.astype(np.int64)),
    "negative ids": other_leaves(lambda ids: ids.astype(np.int8) - 100),
    "ids out of range": other_leaves(lambda ids: ids + np.uint8(90)),
    "columns first": other_leaves(np.asfortranarray),
    "a tree fewer": other_leaves(lambda ids: ids[:-1]),
    "a tree more": other_leaves(lambda ids: np.concatenate([ids, ids[:1]])),
    "trees exchanged": other_leaves(lambda ids: ids[::-1]),
    "rows exchanged": other_leaves(lambda ids: ids[:, ::-1]),
    "one row": other_leaves(lambda ids: ids[0]),
    "a number": other_leaves(lambda ids: ids[0, 0]),
    "objects": other_leaves(lambda ids: ids.astype(object)),
    "a bit of the ids": flipped_byte("leaves.npy", -7),
    "a bit of the header": flipped_byte("leaves.npy", 30),
    "no leaves": lambda entry: (entry / "leaves.npy").unlink(),
    "empty leaves": written_text("leaves.npy", ""),
    "scores that nobody gave": lambda entry: np.save(entry / "scores.npy", np.zeros((N, 1))),
    "no manifest": lambda entry: (entry / "manifest.json").unlink(),
    "empty manifest": written_text("manifest.json", ""),
    "a list as manifest": written_text("manifest.json", "[1]"),
    "a deep manifest": written_text("manifest.json", "[" * 100_000),
    "a manifest of nothing": written_text("manifest.json", "{}"),
    "an old manifest": written_text("manifest.json", '{"format": "leaftrace-leaves-1"}'),
}


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """A folder of rows with the cache of a model, and the function that opens it."""
    folder = tmp_path_factory.mktemp("cached")
    _, tracer = opened(folder)
    tracer()
    return folder, tracer


@pytest.mark.parametrize("name", DAMAGES)
def test_every_damage_to_a_cache_is_found(name, cached):
    folder, tracer = cached
    (entry,) = (folder / "cache").iterdir()
    kept = {path.name: path.read_bytes() for path in entry.iterdir()}
    try:
        DAMAGES[name](entry)
        with pytest.raises(lt.LeaftraceError, match=r"is damaged .* delete it"):
            tracer()
    finally:
        for path in entry.iterdir():
            path.unlink()
        for file, content in kept.items():
            (entry / file).write_bytes(content)


def test_damage_to_given_scores_is_found(tmp_path):
    cache = leaf_cache.LeafCache(str(tmp_path), "k" * 64)
    ids = np.zeros((2, 3), np.uint8)
    parts = lambda: iter([(slice(0, 3), ids, np.zeros((3, 1)))])  # noqa: E731
    cache.get(3, parts)
    (entry,) = tmp_path.iterdir()
    np.save(entry / "scores.npy", np.ones((3, 1)))
    with pytest.raises(lt.LeaftraceError, match=r"is damaged .* delete it"):
        cache.get(3, parts)


def test_full_disk_leaves_no_cache(tmp_path):
    """A limit on file sizes stands for a full disk."""
    resource = pytest.importorskip("resource", reason="Windows has no limits on file sizes")
    _, tracer = opened(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(lt.LeaftraceError, match=r"cannot be written to .* room"):
            tracer()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "cache").iterdir()) == []
    tracer()


def test_interrupted_leaves_no_cache(tmp_path, monkeypatch):
    _, tracer = opened(tmp_path)
    read = parquet.PartedTable.parts

    def parts(self):
        for i, part in enumerate(read(self)):
            if i and len(self.column_names) > 1:
                raise KeyboardInterrupt
            yield part

    with monkeypatch.context() as patched:
        patched.setattr(parquet.PartedTable, "parts", parts)
        with pytest.raises(KeyboardInterrupt):
            tracer()
    assert list((tmp_path / "cache").iterdir()) == []


def test_temporary_folder_goes_with_the_tracer(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    _, tracer = opened(tmp_path, cache=None)
    found = tracer()
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    del found
    gc.collect()
    assert list((tmp_path / "tmp").iterdir()) == []


# ---- what is wrong with the files ----


def test_missing_file(tmp_path):
    pattern, _ = opened(tmp_path)
    files = [pattern.replace("*", f"part-{f}") for f in (0, 1, 7)]
    with pytest.raises(lt.InvalidInput, match=r"there is no file '.*part-7.parquet'"):
        opened(tmp_path, pattern=files)[1]()
    with pytest.raises(lt.InvalidInput, match="no file matches"):
        opened(tmp_path, pattern=str(tmp_path / "*.pq"))[1]()
    with pytest.raises(lt.InvalidInput, match="is empty"):
        lt.Tracer.from_files(made("LightGBM")[0], [], target="label")


def test_a_file_too_few(tmp_path):
    """A missing file is noticed, because the model stores how many rows each leaf had."""
    pattern, tracer = opened(tmp_path)
    os.unlink(pattern.replace("*", "part-1"))
    with pytest.raises(lt.FidelityError):
        tracer()


def test_different_columns(tmp_path):
    pattern, tracer = opened(tmp_path)
    path = pattern.replace("*", "part-1")
    table = pd.read_parquet(path)
    table.assign(b=table["b"].astype(str)).to_parquet(path, index=False)
    with pytest.raises(
        lt.InvalidInput,
        match=r"differ in the column 'b': .*has it as float, .*part-1.*has it as .*str",
    ):
        tracer()
    table.drop(columns="c").to_parquet(path, index=False)
    with pytest.raises(lt.InvalidInput, match=r"column 'c': .*lacks it"):
        tracer()


def test_truncated_file(tmp_path):
    pattern, tracer = opened(tmp_path)
    path = pattern.replace("*", "part-2")
    os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(lt.InvalidInput, match=r"part-2.parquet' is not a whole Parquet file"):
        tracer()


def test_damaged_rows(tmp_path):
    """If the footer is complete but pages are damaged, the cache stays empty."""
    pattern, tracer = opened(tmp_path)
    path = pattern.replace("*", "part-2")
    with open(path, "r+b") as file:
        file.seek(4)
        file.write(b"\0" * 3000)
    with pytest.raises(lt.LeaftraceError, match=r"part-2.parquet' cannot be read to its end"):
        tracer()
    assert not (tmp_path / "cache").exists() or list((tmp_path / "cache").iterdir()) == []


def test_wrong_names(tmp_path):
    for wrong in ({"target": "labels"}, {"weight": "masses"}, {"columns": ["a", "z"]}):
        with pytest.raises(lt.InvalidInput, match="the files have no column"):
            opened(tmp_path, **wrong)[1]()


def test_what_needs_the_whole_table_says_so(tmp_path):
    _, tracer = opened(tmp_path, memory_limit=20_000)
    with pytest.raises(lt.InvalidInput, match="training again takes the whole table"):
        tracer().retrain([1])
    with pytest.raises(lt.InvalidInput, match="ask for fewer rows"):
        tracer().X_train.take(np.arange(N))
    found = tracer()
    with pytest.raises(lt.InvalidInput, match="X_test is a table of files"):
        found.influence(found.X_train, found.y_train, reduce="mean")


def test_target_statistics_need_all_rows(tmp_path):
    _, X, y, w, *_ = made("CatBoost")
    model = catboost(one_hot_max_size=2)(X, y, w)
    pattern = written(tmp_path, X, y, w)
    with pytest.raises(lt.UnsupportedModel, match="part by part"):
        lt.Tracer.from_files(model, pattern, target="label", weight="mass")
