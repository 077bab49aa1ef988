"""An executor of Spark that is killed in the middle of a pass changes nothing."""

import os
import signal

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from spark_sessions import NEEDS, spark_session

import leaftrace as lt

pytest.importorskip("pyspark")
pytestmark = NEEDS

N = 400
M = 3
SAME = {"rtol": 1e-7, "atol": 1e-11}


@pytest.fixture(scope="module")
def spark():
    """A cluster of two executors, each a process of its own."""
    with spark_session("local-cluster[2,1,512]") as session:
        yield session


def test_an_executor_is_lost(spark, monkeypatch):
    """The leaves that it kept are lost with it, in the middle of a pass."""
    from leaftrace._tracer.cluster.spark.cluster import SparkCluster
    from leaftrace.spark import Tracer

    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(N + M, 2)), columns=list("ab"))
    y = (X["a"] + rng.normal(size=N + M) > 0).astype(int)
    model = lgb.LGBMClassifier(n_estimators=2, num_leaves=4, verbosity=-1, n_jobs=1)
    model.fit(X[:N], y[:N])
    near = lt.Tracer(model, X[:N], y[:N], dtype="float64")
    table = X[:N].assign(y=y[:N], id=np.arange(N)).sample(frac=1, random_state=0)
    frame = spark.createDataFrame(table).repartition(2).persist()
    columns = {"features": ["a", "b"], "label": "y", "order": "id"}
    far = Tracer(model, frame, **columns, plan="rows", dtype="float64")

    def executor_above(part):
        """Return the executor that computes with a partition, as a process."""
        import os

        # The Python process of a task was started by a daemon, and that by the executor.
        with open(f"/proc/{os.getppid()}/stat") as file:
            return [int(file.read().rpartition(")")[2].split()[1])]

    killed = []
    total = SparkCluster.total

    def killing(self, fn, **common):
        if fn.__name__ == "step_back" and common["t"] == 0:
            executor = total(self, executor_above)[0]
            with open(f"/proc/{executor}/cmdline") as file:
                assert "CoarseGrainedExecutorBackend" in file.read()
            os.kill(executor, signal.SIGKILL)
            killed.append(executor)
        return total(self, fn, **common)

    monkeypatch.setattr(SparkCluster, "total", killing)
    values = far.influence(X[N:], y[N:]).toPandas().sort_values("id")
    expected = near.influence(X[N:], y[N:]).values
    np.testing.assert_allclose(np.stack(values["values"]), expected, **SAME)
    assert len(killed) == 1
    assert total(far.engine.cluster, executor_above)[0] not in killed
