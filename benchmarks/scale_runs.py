"""The measurements of scale.py, each in a process of its own.

`measure` starts this file with the name and the arguments of a function below and reads the JSON that
it prints. To that, the largest resident size of the process is added, mapped files included."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from scale_data import NAMES, files_of, in_memory, test_rows

TREES = 100
LEAVES = 31
TWO_PROCESSES = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "processes": True,
    "dashboard_address": ":0",
    "silence_logs": 50,
}


def measure(what: str, folder: Path, n: int, *more: object) -> dict[str, float]:
    """Run one of the functions below in a process of its own."""
    command = [sys.executable, __file__, json.dumps([what, str(folder), n, *more])]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def model_of(folder: Path, n: int) -> str:
    """Return the file of a LightGBM model of n rows, which is trained if it does not exist."""
    path = folder / f"model-{n}.txt"
    if not path.exists():
        measure("train", folder, n)
    return str(path)


def train(folder: Path, n: int) -> dict[str, float]:
    """Train the model of n rows and write it to its file."""
    import lightgbm as lgb

    X, y = in_memory(folder, n)
    params = {"objective": "binary", "num_leaves": LEAVES, "learning_rate": 0.1, "verbosity": -1}
    rows = lgb.Dataset(X, y, params={"verbosity": -1})
    lgb.train(params, rows, TREES).save_model(folder / f"model-{n}.txt")
    return {}


def time_queries(tracer, seconds: dict[str, float]) -> None:
    """Add the seconds of two queries."""
    X, y = test_rows()
    start = time.perf_counter()
    tracer.influence(X, y, reduce="mean")
    seconds["mean loss, all rows"] = time.perf_counter() - start
    start = time.perf_counter()
    tracer.top(X[:10], y[:10], 100)
    seconds["top 100 of 10 test rows"] = time.perf_counter() - start


def memory(folder: Path, n: int) -> dict[str, float]:
    """Measure with n rows in memory."""
    import leaftrace as lt

    model = model_of(folder, n)
    X, y = in_memory(folder, n)
    seconds = {}
    start = time.perf_counter()
    tracer = lt.Tracer(model, X, y)
    seconds["open"] = time.perf_counter() - start
    time_queries(tracer, seconds)
    return seconds


def files(folder: Path, n: int, limit: int) -> dict[str, float]:
    """Measure with n rows in files."""
    import leaftrace as lt

    model = model_of(folder, n)
    paths = files_of(folder, n)
    seconds = {}
    shutil.rmtree(folder / "leaves", ignore_errors=True)
    for name in ("open", "open again, leaves kept"):
        start = time.perf_counter()
        tracer = lt.Tracer.from_files(
            model, paths, target="y", cache=folder / "leaves", memory_limit=limit
        )
        seconds[name] = time.perf_counter() - start
        if name == "open":
            del tracer
    time_queries(tracer, seconds)
    start = time.perf_counter()
    tracer.refit(without=np.arange(0, n, 1000))
    seconds["refit without 0.1 % of the rows"] = time.perf_counter() - start
    return seconds


def cluster(folder: Path, n: int, plan: str) -> dict[str, float]:
    """Measure on a cluster of two processes of one thread each."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from leaftrace.dask import Tracer

    model = model_of(folder, n)
    paths = files_of(folder, n)
    X, y = test_rows()
    seconds = {}
    with LocalCluster(**TWO_PROCESSES) as local, Client(local) as client:

        def sent() -> float:
            return sum(
                client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values()
            )

        frame = dd.read_parquet(paths, split_row_groups=False)
        start = time.perf_counter()
        tracer = Tracer(model, frame[NAMES], frame["y"], client=client, plan=plan)
        seconds["open"] = time.perf_counter() - start
        start = time.perf_counter()
        tracer.top(X[:1], y[:1], 100)
        seconds["first query"] = time.perf_counter() - start
        before = sent()
        start = time.perf_counter()
        tracer.top(X[:10], y[:10], 100)
        seconds["top 100 of 10 test rows"] = time.perf_counter() - start
        seconds["bytes sent for them"] = sent() - before
        rss = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        seconds["bytes of a worker"] = max(rss.values())
    return seconds


def fitted(library: str, X: np.ndarray, y: np.ndarray):
    """Train a model of 20 trees."""
    if library == "LightGBM":
        import lightgbm as lgb

        return lgb.LGBMClassifier(n_estimators=20, verbosity=-1).fit(X, y)
    if library == "XGBoost":
        import xgboost as xgb

        return xgb.XGBClassifier(n_estimators=20, max_depth=5).fit(X, y)
    from catboost import CatBoostClassifier

    return CatBoostClassifier(iterations=20, depth=5, verbose=0, allow_writing_files=False).fit(
        X, y
    )


def three_classes(x: list) -> np.ndarray:
    """Return classes made from the first three columns."""
    return np.digitize(x[0] + x[1] * x[2], [-0.7, 0.7])


def agree(folder: Path, n: int) -> dict[str, float]:
    """Return the largest difference between the answers of the cluster and of memory.

    It is relative to the largest value, for each library and number of classes."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    X, y = in_memory(folder, n)
    X_test, y_test = test_rows()
    found = {}
    with LocalCluster(**TWO_PROCESSES) as local, Client(local) as client:
        frame = dd.read_parquet(files_of(folder, n), split_row_groups=False)[[*NAMES, "y"]]
        classes = frame.map_partitions(
            lambda f: f["y"] * 0 + three_classes([f[c] for c in NAMES[:3]]), meta=("y", "int64")
        )
        labels = {
            "two classes": (y, frame["y"], y_test),
            "three classes": (
                three_classes(list(X.T[:3])),
                classes,
                three_classes(list(X_test.T[:3])),
            ),
        }
        for library in ("CatBoost", "XGBoost", "LightGBM"):
            for name, (in_memory_y, cluster_y, test_y) in labels.items():
                near = (X, in_memory_y)
                far = (frame[NAMES], cluster_y)
                test = (X_test, test_y)
                found[f"{library}, {name}"] = difference(library, near, far, test, client)
    return found


def difference(library: str, near: tuple, far: tuple, test: tuple, client) -> float:
    """Return the largest relative difference of mean-loss influences, in memory and on the cluster."""
    import leaftrace as lt
    from leaftrace.dask import Tracer

    model = fitted(library, *near)
    tracer = lt.Tracer(model, *near, dtype="float64")
    expected = tracer.influence(*test, reduce="mean").values
    tracer = Tracer(model, *far, client=client, dtype="float64", plan="leaves")
    values = tracer.influence(*test, reduce="mean").compute()
    return float(np.abs(values - expected).max() / np.abs(expected).max())


MEASUREMENTS = {
    "train": train,
    "memory": memory,
    "files": files,
    "cluster": cluster,
    "agree": agree,
}


def main() -> None:
    what, folder, n, *more = json.loads(sys.argv[1])
    found = MEASUREMENTS[what](Path(folder), n, *more)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "peak": peak}))


if __name__ == "__main__":
    main()
