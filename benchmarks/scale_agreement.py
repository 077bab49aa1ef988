"""Agreement of Dask and Spark with memory, for scale.py: models that draw rows, one output and three classes.

python benchmarks/scale_agreement.py FOLDER ROWS     prints a line for each model and kind of cluster
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scale_data import NAMES, files_of, in_memory, test_rows

TREES = 10
TWO_PROCESSES = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "processes": True,
    "dashboard_address": ":0",
    "silence_logs": 50,
}
Values = np.ndarray


def two_threads() -> Any:
    """Return a session of Spark in two threads of this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "3g")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    return builder.config("spark.log.level", "OFF").getOrCreate()


def models() -> Iterator[tuple[str, Any]]:
    """Yield untrained models with their names."""
    import lightgbm as lgb
    import xgboost as xgb
    from catboost import CatBoostClassifier

    quiet = {"verbose": 0, "allow_writing_files": False}
    light = {"n_estimators": TREES, "verbosity": -1}
    yield "CatBoost", CatBoostClassifier(iterations=TREES, depth=5, **quiet)
    bernoulli = {"bootstrap_type": "Bernoulli", "subsample": 0.7}
    yield "CatBoost, Bernoulli", CatBoostClassifier(iterations=TREES, depth=5, **bernoulli, **quiet)
    yield "XGBoost, subsample", xgb.XGBClassifier(n_estimators=TREES, max_depth=5, subsample=0.7)
    yield "LightGBM, bagging", lgb.LGBMClassifier(subsample=0.7, subsample_freq=1, **light)
    goss = {"data_sample_strategy": "goss", "learning_rate": 0.5}
    yield "LightGBM, GOSS", lgb.LGBMClassifier(**goss, **light)


def three_classes(x: list) -> np.ndarray:
    """Return classes made from the first three columns."""
    return np.digitize(x[0] + x[1] * x[2], [-0.7, 0.7])


def on_dask(model: Any, folder: Path, n: int, several: bool, test: tuple, client: Any) -> Values:
    """Return mean-loss influences from Dask."""
    import dask.dataframe as dd

    from leaftrace.dask import Tracer

    frame = dd.read_parquet(files_of(folder, n), split_row_groups=False)[[*NAMES, "y"]]
    y = frame["y"]
    if several:
        y = frame.map_partitions(
            lambda f: f["y"] * 0 + three_classes([f[c] for c in NAMES[:3]]), meta=("y", "int64")
        )
    found = Tracer(model, frame[NAMES], y, client=client).influence(*test, reduce="mean")
    return found.values if isinstance(found.values, np.ndarray) else found.values.compute()


def on_spark(model: Any, folder: Path, n: int, several: bool, test: tuple, session: Any) -> Values:
    """Return mean-loss influences from Spark."""
    from leaftrace.spark import Tracer

    paths = spark_files(folder, n, several)
    frame = session.read.parquet(*paths)
    tracer = Tracer(model, frame, features=NAMES, label="y", order="id")
    values = tracer.influence(*test, reduce="mean").toPandas().sort_values("id")["value"]
    tracer.close()
    return values.to_numpy()[:, None]


def spark_files(folder: Path, n: int, several: bool) -> list[str]:
    """Return files with the rows and a column of their numbers, and write those that do not exist."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    start = 0
    for path in map(Path, files_of(folder, n)):
        numbered = path.with_suffix(".three" if several else ".two")
        table = pq.read_table(path)
        if not numbered.exists():
            if several:
                y = three_classes([table.column(c).to_numpy() for c in NAMES[:3]])
                table = table.set_column(table.column_names.index("y"), "y", pa.array(y))
            ids = pa.array(np.arange(start, start + len(table)))
            pq.write_table(table.append_column("id", ids), numbered)
        start += len(table)
        paths.append(str(numbered))
    return paths


def agree(folder: Path, n: int) -> dict[str, float]:
    """Return the largest differences between clusters and memory, relative to the largest value."""
    from distributed import Client, LocalCluster

    import leaftrace as lt

    X, y = in_memory(folder, n)
    X_test, y_test = test_rows()
    session = two_threads()
    found = {}
    with LocalCluster(**TWO_PROCESSES) as local, Client(local) as client:
        places: dict[str, tuple[Callable[..., Values], Any]] = {
            "Dask": (on_dask, client),
            "Spark": (on_spark, session),
        }
        for several, classes in ((False, "two classes"), (True, "three classes")):
            labels = three_classes(list(X.T[:3])) if several else y
            test = (X_test, three_classes(list(X_test.T[:3])) if several else y_test)
            for name, model in models():
                model.fit(X, labels)
                expected = lt.Tracer(model, X, labels).influence(*test, reduce="mean").values
                for place, (compute, where) in places.items():
                    values = compute(model, folder, n, several, test, where)
                    difference = np.abs(values - expected).max() / np.abs(expected).max()
                    found[f"{name}, {classes}; {place}"] = float(difference)
                    print(f"{name}, {classes}, {place}: {difference:.1e}", file=sys.stderr)
    session.stop()
    return found


if __name__ == "__main__":
    agree(Path(sys.argv[1]), int(sys.argv[2]))
