"""An executor of Spark that is killed in the middle of a pass changes nothing; a stopped session is said."""

import os
import signal
from contextlib import contextmanager
from threading import Timer

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from spark_sessions import NEEDS, spark_session

import leaftrace as lt

pytest.importorskip("pyspark")
pytestmark = NEEDS

from leaftrace._tracer.cluster.spark.cluster import SparkCluster  # noqa: E402
from leaftrace.spark import Tracer  # noqa: E402

N = 400
M = 3
SAME = {"rtol": 1e-7, "atol": 1e-11}
PATIENCE = 180  # seconds that an answer may take
TOTAL = SparkCluster.total


@pytest.fixture(scope="module")
def spark():
    """A cluster of two executors, each a process of its own."""
    with spark_session("local-cluster[2,1,512]") as session:
        yield session


@pytest.fixture(scope="module")
def traced(spark):
    """Return a tracer on the cluster, one in memory, and all rows."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(N + M, 2)), columns=list("ab"))
    y = (X["a"] + rng.normal(size=N + M) > 0).astype(int)
    model = lgb.LGBMClassifier(n_estimators=3, num_leaves=4, verbosity=-1, n_jobs=1)
    model.fit(X[:N], y[:N])
    near = lt.Tracer(model, X[:N], y[:N], dtype="float64")
    table = X[:N].assign(y=y[:N], id=np.arange(N)).sample(frac=1, random_state=0)
    frame = spark.createDataFrame(table).repartition(2).persist()
    columns = {"features": ["a", "b"], "label": "y", "order": "id"}
    return Tracer(model, frame, **columns, plan="rows", dtype="float64"), near, X, y


def executors(cluster):
    """Return the executors that compute with the partitions, as processes."""

    def executor_above(part):  # sent by value, as executors do not have this file
        import os

        # The Python process of a task was started by a daemon, and that by the executor.
        with open(f"/proc/{os.getppid()}/stat") as file:
            return [int(file.read().rpartition(")")[2].split()[1])]

    return TOTAL(cluster, executor_above)


@contextmanager
def a_limit_on_waiting(spark):
    """Make an answer that does not come an error."""
    timer = Timer(PATIENCE, spark.sparkContext.cancelAllJobs)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.mark.parametrize("ask", ["influence", "refit"])
def test_an_executor_is_lost(ask, spark, traced, monkeypatch):
    """The leaves that it kept are lost with it, and what it knew of the steps of the pass."""
    far, near, X, y = traced
    step = {"influence": "step_back", "refit": "refitted_sums"}[ask]
    killed = []

    def killing(self, fn, **common):
        if fn.__name__ == step and common["t"] == 1:
            executor = executors(self)[0]
            with open(f"/proc/{executor}/cmdline") as file:
                assert "CoarseGrainedExecutorBackend" in file.read()
            os.kill(executor, signal.SIGKILL)
            killed.append(executor)
        return TOTAL(self, fn, **common)

    monkeypatch.setattr(SparkCluster, "total", killing)
    with a_limit_on_waiting(spark):
        if ask == "influence":
            values = far.influence(X[N:], y[N:]).toPandas().sort_values("id")
            found = np.stack(values["values"])
            expected = near.influence(X[N:], y[N:]).values
        else:
            found = far.refit(without="id % 5 = 0").scores(X[N:])
            expected = near.refit(without=np.arange(0, N, 5)).scores(X[N:])
        np.testing.assert_allclose(found, expected, **SAME)
        assert len(killed) == 1
        assert not {*executors(far.engine.cluster)} & {*killed}


def test_a_stopped_session(spark, traced):
    far, _, X, y = traced
    model = far.refit(without="id = 3")
    spark.stop()
    for ask in (
        lambda: far.influence(X[N:], y[N:]),
        lambda: far.top(X[N:], y[N:]),
        lambda: far.by("a > 0", X[N:], y[N:]),
        lambda: far.group_effects("a > 0", X[N:], y[N:]),
        lambda: far.refit(without="id = 3"),
        lambda: model.transform(far.frame),
        lambda: Tracer(None, far.frame, features=["a", "b"], label="y", order="id"),
    ):
        with pytest.raises(lt.LeaftraceError, match="the Spark session is stopped; start a new"):
            ask()
    far.close()
