"""The measurements of scale.py, each in a process of its own.

`measure` starts this file with the name and the arguments of a function below and reads the JSON that
it prints. To that, the largest resident size of the process is added, mapped files included. Results are
kept in FOLDER/measured.json.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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
Measured = dict[str, dict[str, float]]  # by "what rows more"


def two_threads() -> Any:
    """Return a session of Spark in two threads of this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "3g")
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.config("spark.log.level", "OFF").getOrCreate()


def measured(folder: Path) -> Measured:
    """Return all that was measured."""
    file = folder / "measured.json"
    return json.loads(file.read_text()) if file.exists() else {}


def measure(what: str, folder: Path, n: int, *more: object) -> dict[str, float]:
    """Run one of the functions below in a process of its own, and keep what it has measured."""
    load = os.getloadavg()[0]
    command = [sys.executable, __file__, json.dumps([what, str(folder), n, *more])]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {**json.loads(out.strip().splitlines()[-1]), "load before": load}
    name = " ".join(map(str, [what, n, *more]))
    (folder / "measured.json").write_text(json.dumps(measured(folder) | {name: found}, indent=1))
    return found


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


def dask(folder: Path, n: int, plan: str) -> dict[str, float]:
    """Measure on a cluster of two processes of one thread each."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from leaftrace.dask import Tracer

    model = model_of(folder, n)
    paths = files_of(folder, n)
    X, y = test_rows()
    seconds = {}
    with LocalCluster(**TWO_PROCESSES) as local, Client(local) as client:
        messages = count_messages()

        def sent() -> float:
            tasks = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
            return sum(messages) + sum(tasks.values())

        frame = dd.read_parquet(paths, split_row_groups=False)
        start = time.perf_counter()
        tracer = Tracer(model, frame[NAMES], frame["y"], client=client, plan=plan)
        seconds["open"] = time.perf_counter() - start
        for name in ("first query", "one more query"):
            start = time.perf_counter()
            tracer.top(X[:1], y[:1], 100)
            seconds[name] = time.perf_counter() - start
        before = sent()
        start = time.perf_counter()
        tracer.top(X[:10], y[:10], 100)
        seconds["top 100 of 10 test rows"] = time.perf_counter() - start
        seconds["bytes sent for them"] = sent() - before
        rss = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        seconds["bytes of a worker"] = max(rss.values())
    return seconds


def count_messages() -> list[int]:
    """Return a list to which the bytes of every message to two workers, and of its answers, are added."""
    from leaftrace._tracer.cluster.dask import steps

    ask = steps.answers_of_workers
    counts: list[int] = []

    def counting(client: Any, request: bytes) -> list[bytes]:
        answers = ask(client, request)
        counts.append(TWO_PROCESSES["n_workers"] * len(request) + sum(map(len, answers)))
        return answers

    steps.answers_of_workers = counting
    return counts


def spark(folder: Path, n: int, plan: str | None = None) -> dict[str, float]:
    """Measure on Spark in two threads of this machine."""
    from pyspark.sql import functions

    from leaftrace.spark import Tracer

    X, y = test_rows()
    seconds = {}
    session = two_threads()
    session.range(10).mapInArrow(lambda batches: batches, "id bigint").collect()  # starts Python

    def moved() -> np.ndarray:
        """Bytes that tasks have shuffled, and that they have sent to the driver."""
        return np.array([shuffled_bytes(session), result_bytes(session)])

    frame = session.read.parquet(*files_of(folder, n))
    frame = frame.withColumn("id", functions.monotonically_increasing_id())
    model = model_of(folder, n)
    start = time.perf_counter()
    tracer = Tracer(model, frame, features=NAMES, label="y", order="id", plan=plan)
    seconds["open"] = time.perf_counter() - start
    print("open", seconds["open"], file=sys.stderr, flush=True)
    for name, query in {
        "mean loss, all rows": lambda: (
            tracer.influence(X, y, reduce="mean").agg(functions.sum("value")).collect()
        ),
        "top 100 of 10 test rows": lambda: tracer.top(X[:10], y[:10], 100),
    }.items():
        before = moved()
        start = time.perf_counter()
        query()
        seconds[name] = time.perf_counter() - start
        shuffled, sent = moved() - before
        seconds[f"{name}: bytes shuffled"] = float(shuffled)
        seconds[f"{name}: bytes to the driver"] = float(sent)
        print(name, seconds[name], file=sys.stderr, flush=True)
    cluster = tracer.engine.cluster
    start = time.perf_counter()
    for _ in range(3):
        cluster.total(rows_of_part)
    seconds["a job that reads the state"] = (time.perf_counter() - start) / 3
    processes = [*all_processes()]
    seconds["bytes of all processes"] = sum(processes)
    session.stop()
    return seconds


def rows_of_part(part: Any) -> int:
    """Return the number of rows of a partition."""
    return len(part)


def shuffled_bytes(session: Any) -> int:
    """Return the bytes that all tasks have written for others, by Spark's own counters."""
    executors = session.sparkContext._jsc.sc().statusStore().executorList(True)
    return sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size()))


def result_bytes(session: Any) -> int:
    """Return the bytes of the results of all tasks, by Spark's own counters."""
    context = session.sparkContext
    none = context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, none, None)
    return sum(stages.apply(i).resultSize() for i in range(stages.size()))


def all_processes():
    """Yield the largest resident size of this process and of all below it."""
    import psutil

    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with open(f"/proc/{process.pid}/status") as file:
            peak = [line for line in file if line.startswith("VmHWM")]
        yield from (1024 * float(line.split()[1]) for line in peak)


MEASUREMENTS = {
    "train": train,
    "memory": memory,
    "files": files,
    "dask": dask,
    "spark": spark,
}


def main() -> None:
    what, folder, n, *more = json.loads(sys.argv[1])
    found = MEASUREMENTS[what](Path(folder), n, *more)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "peak": peak}))


if __name__ == "__main__":
    main()
