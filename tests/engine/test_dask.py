"""Training rows on a cluster of two processes give the answers of one process, even if a worker dies."""

import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

import leaftrace as lt
from leaftrace._model.general_losses import PseudoHuber
from leaftrace._model.losses import Logistic, Softmax, SquaredError
from leaftrace._model.start import Mean, NewtonStep, condense_labels

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

from leaftrace._tracer.cluster import scratch  # noqa: E402
from leaftrace._tracer.cluster.dask import steps  # noqa: E402
from leaftrace._tracer.cluster.dask.aligned import aligned  # noqa: E402
from leaftrace._tracer.cluster.dask.cluster import DaskCluster  # noqa: E402
from leaftrace._tracer.cluster.labels import stand_in_rows, summarise_labels  # noqa: E402
from leaftrace.dask import Tracer  # noqa: E402

N = 1200
M = 5
PARTS = 4
TREES = 5
QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}


ONE_THREAD_EACH = {
    "threads_per_worker": 1,
    "dashboard_address": ":0",
    "silence_logs": 50,
    "memory_limit": 0,  # a worker near a limit is paused, and its tasks wait for ever
}


@pytest.fixture(scope="module")
def client():
    """Two workers. One that was killed is given time to come back: after 15 seconds, it would be given up."""
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "180s"}),
        distributed.LocalCluster(n_workers=2, processes=True, **ONE_THREAD_EACH) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def until(holds, seconds=180):
    """Wait until something holds; an error if it does not within these seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.05)


@dataclass
class Case:
    fit: Any  # of X, y, w
    target: str = "two"
    plan: str = "leaves"
    weighted: bool = True


def lightgbm(kind=lgb.LGBMClassifier, **kw):
    more = {"n_estimators": TREES, "num_leaves": 7, "verbosity": -1, "n_jobs": 1, **kw}
    return lambda X, y, w: kind(**more).fit(X, y, sample_weight=w)


def xgboost(kind=xgb.XGBClassifier, **kw):
    more = {"n_estimators": TREES, "max_depth": 3, "n_jobs": 1, "enable_categorical": True, **kw}
    return lambda X, y, w: kind(**more).fit(X, y, sample_weight=w)


def catboost(kind=CatBoostClassifier, **kw):
    more = {
        "iterations": TREES,
        "depth": 3,
        "one_hot_max_size": 10,
        "cat_features": ["kind"],
        **QUIET,
        **kw,
    }
    return lambda X, y, w: kind(**more).fit(X, y, sample_weight=w)


CASES = {
    "LightGBM": Case(lightgbm(scale_pos_weight=1.7), plan="rows"),
    "LightGBM, class weights": Case(lightgbm(class_weight={0: 1.1, 1: 0.7, 2: 3.3}), "three"),
    "LightGBM, number": Case(
        lightgbm(lgb.LGBMRegressor, reg_alpha=0.5, max_delta_step=0.6), "number", "rows"
    ),
    "LightGBM, count": Case(
        lightgbm(lgb.LGBMRegressor, objective="poisson"), "count", "leaves", False
    ),
    "XGBoost": Case(xgboost(), plan="rows"),
    "XGBoost, three classes": Case(xgboost(), "three"),
    "XGBoost, number": Case(xgboost(xgb.XGBRegressor), "number", "leaves", False),
    "CatBoost": Case(catboost(leaf_estimation_iterations=4), plan="rows"),
    "CatBoost, three classes": Case(catboost(class_weights=[1, 2, 1.5]), "three", "rows"),
    "CatBoost, number": Case(catboost(CatBoostRegressor), "number"),
}


@cache
def world():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(N + M, 4)), columns=list("abcd"))
    X["kind"] = pd.Categorical(rng.choice(["red", "green", "blue"], N + M))
    score = (X["a"] - X["b"] * (X["kind"] == "red") + 0.5 * rng.normal(size=N + M)).to_numpy()
    X[list("abcd")] = X[list("abcd")].mask(rng.random((N + M, 4)) < 0.1)
    # Sorted, so that the first partition has one class only.
    order = np.concatenate([np.argsort(score[:N]), np.arange(N, N + M)])
    X = X.iloc[order].set_axis([f"r{i}" for i in range(N + M)], axis=0)
    score = score[order]
    labels = {
        "two": (score > 0.1).astype(int),
        "three": np.digitize(score, [-0.6, 0.7]),
        "number": score,
    }
    return X, labels | {"count": np.floor(np.exp(score / 2)).astype(float)}, rng.random(N + M) + 0.2


@cache
def made(name):
    """Return (model, X, y, w) of training and (X, y) of test rows."""
    case = CASES[name]
    (X, labels, w) = world()
    y = pd.Series(labels[case.target], X.index)
    w = pd.Series(w, X.index) if case.weighted else None
    model = case.fit(X[:N], y[:N], None if w is None else w[:N])
    return model, X[:N], y[:N], None if w is None else w[:N], X[N:], y[N:]


def spread(x):
    return None if x is None else dd.from_pandas(x, npartitions=PARTS, sort=False)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_one_process(name, client):
    model, X, y, w, X_test, y_test = made(name)
    far = Tracer(
        model, *map(spread, (X, y, w)), client=client, plan=CASES[name].plan, dtype="float64"
    )
    near = lt.Tracer(model, X, y, w, dtype="float64")
    assert far.fidelity.exact
    assert far.n_rows == N
    # Sums over leaves are taken in another order.
    same = {"rtol": 1e-7, "atol": 1e-11}
    for ask in (
        ({}, {"reduce": "mean"}) if CASES[name].plan == "leaves" else ({"of": "prediction"},)
    ):
        values = far.influence(X_test, y_test, **ask).values.compute()
        np.testing.assert_allclose(values, near.influence(X_test, y_test, **ask).values, **same)
    top = far.top(X_test[:2], y_test[:2], 3)
    pd.testing.assert_frame_equal(top, near.top(X_test[:2], y_test[:2], 3), rtol=1e-6)


@pytest.mark.parametrize("name", ["LightGBM", "CatBoost, three classes"])
def test_results_over_partitions(name, client):
    """Results have the methods of those in memory, with the same tables."""
    model, X, y, w, X_test, y_test = made(name)
    far = Tracer(model, *map(spread, (X, y, w)), client=client, dtype="float64")
    near = lt.Tracer(model, X, y, w, dtype="float64")
    to = {} if name == "LightGBM" else {"to": 2}
    goal = {"of": lt.goals.MeanLoss()} if name == "LightGBM" else {"reduce": "sum"}
    pairs = [
        (far.influence(X_test, y_test), near.influence(X_test, y_test)),
        (far.influence(X_test, y_test, **goal), near.influence(X_test, y_test, **goal)),
        (far.label_influence(X_test, y_test, **to), near.label_influence(X_test, y_test, **to)),
    ]
    for there, here in pairs:
        brought = there.compute()
        assert there.shape == here.shape
        np.testing.assert_allclose(brought.values, here.values, rtol=1e-7, atol=1e-11)
        assert brought.train_index.tolist() == here.train_index.tolist()
        same = {"rtol": 1e-6, "check_exact": False}
        pd.testing.assert_frame_equal(there.top(2), here.top(2), **same)
        pd.testing.assert_frame_equal(there.mean().top(2), here.mean().top(2), **same)
        tables = [there.by(spread(X["kind"].astype(str))), here.by(X["kind"].astype(str))]
        pd.testing.assert_frame_equal(*tables, **same)
    new = [t.score_candidates(X_test, X_test, y_test, reduce="mean") for t in (far, near)]
    np.testing.assert_allclose(new[0].values, new[1].values, rtol=1e-7, atol=1e-11)
    mask = X["kind"] == "red"
    refitted = [far.refit(without=spread(mask)), near.refit(without=mask)]
    np.testing.assert_allclose(*(r.scores(X_test) for r in refitted), rtol=1e-7, atol=1e-11)
    worst = [
        far.refit(without=far.top(X_test, y_test)),
        near.refit(without=near.top(X_test, y_test)),
    ]
    np.testing.assert_allclose(*(r.scores(X_test) for r in worst), rtol=1e-7, atol=1e-11)


@pytest.mark.parametrize("at_client", [False, True])
def test_group_effects(at_client, client, monkeypatch):
    """Refits without each group give the losses of refits in memory, in blocks of any size."""
    monkeypatch.setattr("leaftrace._tracer.cluster.group_effects.GROUPS_AT_ONCE", 2)
    model, X, y, w, X_test, y_test = made("CatBoost")
    if at_client:
        w = None
        model = lightgbm(data_sample_strategy="goss", learning_rate=0.5)(X, y, None)
    far = Tracer(model, *map(spread, (X, y, w)), client=client, dtype="float64")
    near = lt.Tracer(model, X, y, w, dtype="float64")
    assert (far.local is not None) == at_client
    kind = X["kind"].astype(str)
    found = far.group_effects(spread(kind), X_test, y_test)
    expected = near.influence(X_test, y_test, reduce="mean").by(kind)
    assert found["group"].tolist() == ["blue", "green", "red"]
    assert found["rows"].tolist() == kind.value_counts().sort_index().tolist()
    same = {"rtol": 1e-7, "atol": 1e-11}
    np.testing.assert_allclose(found["predicted"], expected["loss_change_if_removed"], **same)
    before = near.refit(without=[]).loss(X_test, y_test).mean()
    losses = [near.refit(without=kind == g).loss(X_test, y_test).mean() for g in found["group"]]
    np.testing.assert_allclose(found["refitted"], np.array(losses) - before, rtol=1e-6, atol=1e-8)
    assert "refitted" not in far.group_effects(spread(kind), X_test, y_test, refit=False)
    with pytest.raises(lt.InvalidInput, match="all training rows are in one group"):
        far.group_effects(spread(kind).map_partitions(lambda part: part * 0), X_test, y_test)


@pytest.mark.parametrize("at_client", [False, True])
def test_groups_and_masks_go_by_the_index(at_client, client):
    """Rows of a column in another order are put in order, empty partitions left out; holes are a group."""
    model, X, y, w, X_test, y_test = made("LightGBM")
    if at_client:
        w = None
        model = lightgbm(data_sample_strategy="goss", learning_rate=0.5)(X, y, None)
    empty = [spread(x) if x is None else dd.concat([spread(x), spread(x[:0])]) for x in (X, y, w)]
    far = Tracer(model, *empty, client=client, dtype="float64")
    near = lt.Tracer(model, X, y, w, dtype="float64")
    red = pd.Series(np.where(X["kind"] == "red", "red", None), X.index, dtype=object)
    turned = dd.concat([spread(red).map_partitions(lambda part: part[::-1]), spread(red[:0])])
    there, here = (t.influence(X_test, y_test, reduce="mean") for t in (far, near))
    if not at_client:
        same = {"rtol": 1e-6, "check_exact": False}
        pd.testing.assert_frame_equal(there.by(turned), here.by(red), **same)
    effects = far.group_effects(turned, X_test, y_test, refit=False)
    assert effects["group"].tolist() == ["red", "missing"]
    change = here.by(red)["loss_change_if_removed"]
    np.testing.assert_allclose(effects["predicted"], change, rtol=1e-7, atol=1e-11)
    mask = spread(red.notna()).map_partitions(lambda part: part[::-1])
    scores = far.refit(without=mask).scores(X_test)
    expected = near.refit(without=red.notna()).scores(X_test)
    np.testing.assert_allclose(scores, expected, rtol=1e-7, atol=1e-11)
    shorter = spread(red).map_partitions(lambda part: part[1:])
    with pytest.raises(lt.InvalidInput, match=r"299.*300|1196 rows for 1200"):
        far.group_effects(shorter, X_test, y_test)
    broken = spread(y).map_partitions(lambda part: part / "0", meta=y)
    with pytest.raises(lt.LeaftraceError, match="a partition of without cannot be computed"):
        far.refit(without=broken)


def test_partitions_that_do_not_fit(client):
    """Rows in another order are put in order; other rows, or none, are refused with a sentence."""
    model, X, y, w, X_test, y_test = made("LightGBM")
    shuffled = spread(y).map_partitions(lambda part: part[::-1])
    far = Tracer(model, spread(X), shuffled, spread(w), client=client, dtype="float64")
    near = lt.Tracer(model, X, y, w, dtype="float64")
    values = far.influence(X_test, y_test).values.compute()
    np.testing.assert_allclose(values, near.influence(X_test, y_test).values, rtol=1e-7, atol=1e-11)
    shorter = spread(y).map_partitions(lambda part: part[1:])
    with pytest.raises(lt.InvalidInput, match="299 rows and that of sample_weight 300"):
        Tracer(model, spread(X), shorter, spread(w), client=client)
    renamed = spread(y).map_partitions(lambda part: part.set_axis(range(len(part)), axis=0))
    with pytest.raises(lt.InvalidInput, match="index"):
        Tracer(model, spread(X), renamed, spread(w), client=client)
    unreadable = spread(X).map_partitions(
        lambda part: part / "0" if part.index[0] == "r300" else part
    )
    with pytest.raises(
        lt.LeaftraceError, match="partition of the training rows cannot be computed"
    ):
        Tracer(model, unreadable, spread(y), spread(w), client=client)


def test_chunks_of_unknown_size(client):
    X, labels, _ = world()
    X = X[list("abcd")].to_numpy()
    y = labels["two"]
    model = lightgbm()(X[:N], y[:N], None)
    rows = da.from_array(X[:N], chunks=(500, -1))
    rows = rows[(rows[:, 0] < np.inf) | True]
    assert np.isnan(rows.chunks[0]).all()
    far = Tracer(model, rows, da.from_array(y[:N], chunks=500), client=client)
    near = lt.Tracer(model, X[:N], y[:N])
    pd.testing.assert_frame_equal(far.top(X[N:], y[N:], 2), near.top(X[N:], y[N:], 2), rtol=1e-4)


def test_arrays(client):
    X, labels, _ = world()
    X = X[list("abcd")].to_numpy()
    y = labels["two"]
    model = lightgbm()(X[:N], y[:N], None)
    far = Tracer(
        model,
        da.from_array(X[:N], chunks=(500, 2)),
        da.from_array(y[:N], chunks=500),
        client=client,
    )
    near = lt.Tracer(model, X[:N], y[:N])
    pd.testing.assert_frame_equal(far.top(X[N:], y[N:], 2), near.top(X[N:], y[N:], 2), rtol=1e-4)
    helpful = [t.top(X[N:], y[N:], 2, effect="helpful")["train_row"].tolist() for t in (far, near)]
    assert helpful[0] == helpful[1]


@pytest.mark.parametrize("plan", ["rows", "leaves"])
@pytest.mark.parametrize("name", ["LightGBM", "XGBoost, three classes", "CatBoost"])
def test_an_empty_partition(name, plan, client):
    """A filter can leave a partition without rows."""
    model, X, y, w, X_test, y_test = made(name)
    empty = [
        dd.concat([spread(x), spread(x[:1]).map_partitions(lambda part: part[:0])])
        for x in (X, y, w)
    ]
    assert empty[0].map_partitions(len).compute().tolist()[-1] == 0
    far = Tracer(model, *empty, client=client, plan=plan, dtype="float64")
    near = lt.Tracer(model, X, y, w, dtype="float64")
    values = far.influence(X_test, y_test).values.compute()
    np.testing.assert_allclose(values, near.influence(X_test, y_test).values, rtol=1e-7, atol=1e-11)
    pd.testing.assert_frame_equal(
        far.top(X_test, y_test, 2), near.top(X_test, y_test, 2), rtol=1e-6
    )
    with pytest.raises(lt.InvalidInput, match="a partition of y is empty, that of X is not"):
        Tracer(model, dd.concat([spread(X), spread(X[:1])]), *empty[1:], client=client)


def test_frames_of_files(tmp_path, client):
    """Dask may read a single column in fewer partitions than the others."""
    model, X, y, w, X_test, y_test = made("LightGBM")
    table = X.assign(label=y, mass=w)
    for f in range(4):
        table[f * N // 4 : (f + 1) * N // 4].to_parquet(tmp_path / f"{f}.parquet")
    frame = dd.read_parquet(str(tmp_path / "*.parquet"))
    far = Tracer(
        model, frame[list(X.columns)], frame["label"], frame["mass"], client=client, dtype="float64"
    )
    near = lt.Tracer(model, X, y, w, dtype="float64")
    pd.testing.assert_frame_equal(
        far.top(X_test, y_test, 2), near.top(X_test, y_test, 2), rtol=1e-6
    )


@pytest.mark.filterwarnings("ignore:Parameter n_jobs will be ignored:UserWarning")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_models_trained_on_the_cluster(library, client):
    X, labels, w = world()
    X, y, w = X[list("abcd")], pd.Series(labels["two"], X.index), pd.Series(w, X.index)
    # Not sorted, because a LightGBM worker with rows of a single class numbers the classes wrongly.
    order = np.random.default_rng(2).permutation(N)
    near = [x.iloc[order] for x in (X, y, w)]
    far = [spread(x) for x in near]
    if library == "lightgbm":
        # minutes that a worker waits for the others
        settings = {"n_estimators": TREES, "num_leaves": 7, "verbosity": -1, "time_out": 1}
        model = lgb.DaskLGBMClassifier(client=client, **settings).fit(
            far[0], far[1], sample_weight=far[2]
        )
        local = model.to_local()
    else:
        from xgboost import collective
        from xgboost import dask as dxgb

        limits = collective.Config(timeout=60, tracker_timeout=60)  # seconds
        settings = {"objective": "binary:logistic", "max_depth": 3}
        rows = dxgb.DaskDMatrix(client, far[0], far[1], weight=far[2])
        model = dxgb.train(client, settings, rows, num_boost_round=TREES, coll_cfg=limits)
        local = model["booster"]
    traced = Tracer(model, *far, client=client, dtype="float64")
    assert traced.fidelity.exact
    values = lt.Tracer(local, *near, dtype="float64").influence(X[N:], y[N:]).values
    np.testing.assert_allclose(
        traced.influence(X[N:], y[N:]).values.compute(), values, rtol=1e-7, atol=1e-11
    )


# What is asked: the plan, and the method of the cluster in whose k-th call a worker dies.
DYING = {
    "opening": ("rows", "keep", 1),  # while leaves are found
    "replay": ("rows", "add_up", 2),
    "row form": ("rows", "go_on", 3),  # with states of its partitions
    "leaf form": ("leaves", "add_up", 1),
    "refit": ("rows", "go_on", 3),
    "groups": ("rows", "go_on", 3),
}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("what", DYING)
def test_a_worker_dies_in_the_middle(what, client, monkeypatch):
    model, X, y, w, X_test, y_test = made("LightGBM")
    plan, name, call = DYING[what]
    lost, pid = next(iter(client.run(os.getpid).items()))
    asked = []
    step = getattr(DaskCluster, name)

    def killing(self, *given, **common):
        asked.append(1)
        if len(asked) == call:
            os.kill(pid, signal.SIGKILL)
        return step(self, *given, **common)

    def opened():
        return Tracer(model, *map(spread, (X, y, w)), client=client, plan=plan, dtype="float64")

    if what in ("opening", "replay"):
        monkeypatch.setattr(DaskCluster, name, killing)
        far = opened()
        assert far.fidelity.exact
    else:
        far = opened()
        monkeypatch.setattr(DaskCluster, name, killing)
    near = lt.Tracer(model, X, y, w, dtype="float64")
    red = X["kind"] == "red"
    if what == "refit":
        scores = [t.refit(without=red.to_numpy()).scores(X_test) for t in (far, near)]
        np.testing.assert_allclose(*scores, rtol=1e-8, atol=1e-12)
    elif what == "groups":
        found = far.group_effects(spread(red), X_test, y_test)["refitted"]
        losses = [near.refit(without=rows).loss(X_test, y_test).mean() for rows in (~red, red)]
        before = near.refit(without=[]).loss(X_test, y_test).mean()
        np.testing.assert_allclose(found, np.array(losses) - before, rtol=1e-6, atol=1e-8)
    else:
        top = far.top(X_test, y_test, 4)
        pd.testing.assert_frame_equal(top, near.top(X_test, y_test, 4), rtol=1e-6)
        values = far.influence(X_test, y_test).values.compute()
        expected = near.influence(X_test, y_test).values
        np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-12)
    assert len(asked) >= call
    until(lambda: len({*client.nthreads()} - {lost}) == 2)  # the worker is replaced


def test_steps_that_workers_go_on_with(client, monkeypatch):
    """A pass in the row form sends tasks once; the other steps are messages to states that were kept."""
    model, X, y, w, X_test, y_test = made("LightGBM")
    far = Tracer(model, *map(spread, (X, y, w)), client=client, plan="rows", dtype="float64")
    totals = []
    total = DaskCluster.total

    def counting(self, fn, **common):
        totals.append(fn.__name__)
        return total(self, fn, **common)

    monkeypatch.setattr(DaskCluster, "total", counting)
    far.top(X_test, y_test, 4)
    assert totals == ["step_back", "part_top"]
    far.refit(without=[0, 5])
    assert totals[2:] == ["totals_by_set", "refitted_sums"]
    assert set(client.run(lambda: len(scratch._passes)).values()) == {0}


class Counted:
    """Bytes that workers have sent: results of tasks, and messages of steps with their answers."""

    def __init__(self, client, monkeypatch):
        self.client = client
        self.messages = 0
        ask = steps.answers_of_workers

        def counting(client, request):
            answers = ask(client, request)
            self.messages += len(request) * len(client.nthreads()) + sum(map(len, answers))
            return answers

        monkeypatch.setattr(steps, "answers_of_workers", counting)

    def bytes(self):
        sent = self.client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
        return self.messages + sum(sent.values())


@pytest.mark.parametrize("plan", ["rows", "leaves"])
def test_bytes_of_a_query_do_not_grow_with_the_rows(plan, client, monkeypatch):
    model, X, y, _, X_test, y_test = made("XGBoost, number")
    counted = Counted(client, monkeypatch)
    moved = []
    for times in (1, 10):
        frame, labels = (pd.concat([x] * times) for x in (X, y))
        # Repeated rows make another training set with other leaf values; the bytes sent are the same.
        far = Tracer(
            model, spread(frame), spread(labels), client=client, plan=plan, fidelity="ignore"
        )
        far.top(X_test[:1], y_test[:1], 3)
        time.sleep(0.3)  # tasks of the opening may still be moved between workers
        before = counted.bytes()
        far.top(X_test, y_test, 3)
        moved.append(counted.bytes() - before)
    # Where sums are added is random. If a number per row were sent, the second run would send 10 times as much.
    assert max(moved) < 20_000 < 10 * N * 4
    assert (counted.messages > 0) == (plan == "rows")


def test_adult(adult, paper_model, client):
    """The paper's model: 100 trees on 32,561 rows, in float32."""
    X, y, X_test, y_test = adult
    rows = da.from_array(X, chunks=(9000, -1)), da.from_array(y, chunks=9000)
    far = Tracer(paper_model, *rows, client=client)
    near = lt.Tracer(paper_model, X, y)
    ask = X_test[:300], y_test[:300]
    values = far.influence(*ask, reduce="mean").values.compute()
    expected = near.influence(*ask, reduce="mean").values
    assert np.abs(values - expected).max() <= 1e-6 * np.abs(expected).max()


RULES = {
    "mean": (Mean(), SquaredError(), "number"),
    "logit": (Mean("logit", scale=2.0), Logistic(), "two"),
    "logit of shares": (Mean("logit"), Logistic(), "share"),
    "classes": (Mean("centred log"), Softmax(3), "three"),
    "step": (NewtonStep(), Logistic(), "share"),
    "step, not linear in the labels": (NewtonStep(), PseudoHuber(1.0), "number"),
}


@pytest.mark.parametrize("name", RULES)
def test_condensed_labels_give_the_same_start(name):
    """Labels are condensed in parts, joined and condensed again."""
    rule, loss, target = RULES[name]
    _, labels, w = world()
    y = {**labels, "share": 1 / (1 + np.exp(-labels["number"]))}[target].astype(float)
    parts = [condense_labels(rule, loss, y[i::4], w[i::4]) for i in range(4)]
    few = condense_labels(rule, loss, *map(np.concatenate, zip(*parts, strict=True)))
    if "not linear" not in name:
        assert len(few[0]) < 30
    np.testing.assert_allclose(rule.fit(loss, *few), rule.fit(loss, y, w), rtol=1e-12, atol=1e-14)
    for here, there in zip(rule.effects(loss, *few, y), rule.effects(loss, y, w, y), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-15)


def test_stand_ins_have_the_sums_of_the_labels():
    """Stand-in rows have the sums of the labels in float64, even if float32 could not hold them."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=5000) + 1e3
    w = rng.random(5000) / 3
    parts = [summarise_labels(y[i::3], w[i::3]) for i in range(3)]
    for_all = parts[0] + parts[1] + parts[2]
    few, weight = stand_in_rows(for_all)
    assert len(few) < 10
    np.testing.assert_array_equal(few, np.float32(few))
    np.testing.assert_array_equal(weight, np.float32(weight))
    np.testing.assert_allclose([weight.sum(), weight @ few], [w.sum(), w @ y], rtol=1e-14)


# ---- models for which all rows together decide numbers of each ----


@dataclass
class Hard:
    fit: Any
    at_client: bool = False
    plan: str | None = None
    target: str = "two"


HARD = {
    "bagging": Hard(lightgbm(subsample=0.5, subsample_freq=2)),
    "bags by label": Hard(lightgbm(pos_bagging_fraction=0.6, subsample_freq=1), plan="rows"),
    "GOSS": Hard(lightgbm(data_sample_strategy="goss", learning_rate=0.5), at_client=True),
    "LightGBM, DART": Hard(lightgbm(boosting_type="dart", drop_rate=0.6)),
    "smoothing": Hard(lightgbm(path_smooth=3.0)),
    "LightGBM, balanced": Hard(lightgbm(class_weight="balanced")),
    "quantile": Hard(lightgbm(lgb.LGBMRegressor, objective="quantile"), True, None, "number"),
    "subsample": Hard(xgboost(subsample=0.5), target="three"),
    "XGBoost, DART": Hard(xgboost(booster="dart", rate_drop=0.5, subsample=0.7)),
    "monotone": Hard(xgboost(monotone_constraints="(1)")),
    "CatBoost, balanced": Hard(catboost(auto_class_weights="Balanced")),
    "target statistics": Hard(catboost(one_hot_max_size=2), at_client=True),
    "forest": Hard(
        lambda X, y, w: RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, y), True
    ),
    "held out": Hard(
        lambda X, y, w: HistGradientBoostingClassifier(
            max_iter=TREES, max_leaf_nodes=7, early_stopping=True, random_state=0
        ).fit(X, y),
        at_client=True,
    ),
}


@pytest.mark.parametrize("name", HARD)
def test_models_for_which_all_rows_decide(name, client):
    hard = HARD[name]
    X, labels, _ = world()
    y = pd.Series(labels[hard.target], X.index)
    if name == "target statistics":
        y = (X["kind"] == "red").astype(int) ^ (np.arange(N + M) % 9 == 0)
    if name in ("forest", "held out"):
        X = X[list("abcd")].fillna(0.0)
    model = hard.fit(X[:N], y[:N], None)
    far = Tracer(
        model, spread(X[:N]), spread(y[:N]), client=client, plan=hard.plan, dtype="float64"
    )
    near = lt.Tracer(model, X[:N], y[:N], dtype="float64")
    assert (far.local is not None) == hard.at_client
    assert far.fidelity.exact
    ask = {"of": "prediction", "output": 0, "reduce": "mean"}
    if name != "quantile":
        values = far.influence(X[N:], **ask).values
        np.testing.assert_allclose(
            np.asarray(values), near.influence(X[N:], **ask).values, rtol=1e-7, atol=1e-11
        )
    gone = np.arange(0, N, 7)
    np.testing.assert_allclose(
        far.refit(without=gone).scores(X[N:]),
        near.refit(without=gone).scores(X[N:]),
        rtol=1e-7,
        atol=1e-11,
    )


def test_other_rows_than_those_of_training(client):
    model, X, y, w, *_ = made("LightGBM")
    with pytest.raises(lt.FidelityError, match="the replay differs from the model from step 1"):
        Tracer(model, spread(X), spread(1 - y), spread(w), client=client)


def test_bad_input(client):
    model, X, y, w, *_ = made("LightGBM")
    with pytest.raises(lt.InvalidInput, match="y is a Series; pass a Dask"):
        Tracer(model, spread(X), y, client=client)
    with pytest.raises(lt.InvalidInput, match="the same partitions"):
        Tracer(model, spread(X), dd.from_pandas(y, npartitions=2, sort=False), client=client)
    with pytest.raises(
        lt.InvalidInput, match="X is a Series of 1 dimensions; pass a Dask DataFrame"
    ):
        Tracer(model, spread(X["a"]), spread(y), client=client)
    with pytest.raises(lt.InvalidInput, match=r"client is a str; pass a distributed\.Client"):
        Tracer(model, spread(X), spread(y), client="scheduler:8786")
    hole = y.astype(str).where(y.index != "r7", None)
    with pytest.raises(lt.InvalidInput, match="y has 1 missing value"):
        Tracer(model, spread(X), spread(hole), spread(w), client=client)
    with pytest.raises(lt.InvalidInput, match="plan is 'fast'"):
        Tracer(model, spread(X), spread(y), client=client, plan="fast")
    with pytest.raises(lt.InvalidInput, match="negative values"):
        Tracer(model, spread(X), spread(y), spread(-w), client=client)
    with pytest.raises(lt.InvalidInput, match="lacks the column"):
        Tracer(model, spread(X[["a", "b"]]), spread(y), spread(w), client=client)


def test_methods_that_need_all_rows(client):
    model, X, y, w, X_test, y_test, *_ = made("LightGBM")
    tracer = Tracer(model, spread(X), spread(y), spread(w), client=client)
    for ask in (tracer.influence, tracer.top):
        with pytest.raises(lt.InvalidInput, match=r"LeafInfluence\(\) alone.*from_files"):
            ask(X_test, y_test, method=lt.StructureInfluence())


def test_a_closed_client_and_a_cluster_without_workers():
    """Both get a sentence; work sent to them would wait for ever."""
    X = np.arange(40.0).reshape(20, 2)
    y = X[:, 0]
    model = lgb.LGBMRegressor(n_estimators=2, min_child_samples=2, verbosity=-1).fit(X, y)
    rows = da.from_array(X, chunks=(10, 2)), da.from_array(y, chunks=10)
    with (
        distributed.LocalCluster(n_workers=1, processes=False, **ONE_THREAD_EACH) as cluster,
        distributed.Client(cluster) as client,
    ):
        tracer = Tracer(model, *rows, client=client)
        cluster.scale(0)
        until(lambda: not client.nthreads())
        with pytest.raises(lt.LeaftraceError, match=r"no workers; .*cluster\.scale"):
            tracer.influence(X[:2], y[:2])
        with pytest.raises(lt.LeaftraceError, match=r"no workers"):
            Tracer(model, *rows, client=client)
        client.close()
        with pytest.raises(lt.LeaftraceError, match=r"client is closed; start a new one"):
            Tracer(model, *rows, client=client)
        for ask in (
            lambda: tracer.influence(X[:2], y[:2]),
            lambda: tracer.refit(without=rows[1] > 3),
            lambda: tracer.group_effects(rows[1] > 3, X[:2], y[:2]),
        ):
            with pytest.raises(lt.LeaftraceError, match=r"client is closed"):
                ask()


def test_all_workers_are_lost(monkeypatch):
    """A result that nobody is left to compute is an error after some time, not a wait for ever."""
    monkeypatch.setattr("leaftrace._tracer.cluster.dask.waiting.LOOK_EVERY", 0.1)
    monkeypatch.setattr("leaftrace._tracer.cluster.dask.waiting.PATIENCE", 0.3)
    with (
        distributed.LocalCluster(n_workers=1, processes=False, **ONE_THREAD_EACH) as cluster,
        distributed.Client(cluster) as client,
    ):
        far = DaskCluster(client)
        cluster.scale(0)
        until(lambda: not client.nthreads())
        with pytest.raises(lt.LeaftraceError, match=r"has had no workers for .*start some"):
            far.gather([client.submit(abs, -1)])


def test_arrays_that_lie_anywhere_in_a_message():
    """Arrays of arguments are where kernels can read them, also inside of other values."""
    anywhere = np.frombuffer(bytes(1) + np.arange(3.0).tobytes(), offset=1)
    assert not anywhere.flags.aligned

    @dataclass(frozen=True)
    class Holder:
        x: np.ndarray
        more: list

    def arrays(holder, pair, named):
        return [holder.x, *holder.more, *pair, named]

    found = arrays(
        aligned(Holder(anywhere, [anywhere])),
        aligned((anywhere, anywhere)),
        aligned({"x": anywhere})["x"],
    )
    assert all(x.flags.aligned for x in found)
    np.testing.assert_array_equal(found, [np.arange(3.0)] * 5)
