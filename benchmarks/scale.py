"""Rows that do not fit, measured: from files on one machine, and on a cluster of two processes. Fills docs/scale.md.

    python benchmarks/scale.py --folder FOLDER                       10,000,000 rows from files, 1,000,000 in memory
    python benchmarks/scale.py --folder FOLDER --rows 200000 --small 100000 --print      a try of some minutes

Rows are generated into FOLDER (about 90 bytes a row, and 100 for their leaves) and the model is trained once; both are
used again. Every measurement has a process of its own, whose largest resident size is told, mapped files included.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scale.md"
FEATURES = 20
TREES = 100
LEAVES = 31
FILE_ROWS = 250_000
TEST = 1000
GB = 1e9
TWO = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "processes": True,
    "dashboard_address": ":0",
    "silence_logs": 50,
}


# ---- rows and model ----


def block(number: int, rows: int = FILE_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Generated rows (rows, FEATURES) and labels: the same for the same number."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    score = X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3]) + 0.5 * (X[:, 4] > 0.3) * X[:, 5]
    return X, (score + rng.logistic(size=rows) > 0).astype(np.int8)


def test_rows() -> tuple[np.ndarray, np.ndarray]:
    return block(10**6, TEST)


def files_of(folder: Path, n: int) -> list[str]:
    """Parquet files with n rows; made if they are not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "rows").mkdir(parents=True, exist_ok=True)
    out = []
    size = min(FILE_ROWS, n // 4)
    for number in range(-(-n // size)):
        path = folder / "rows" / f"{number:04d}-{size}.parquet"
        if not path.exists():
            X, y = block(number, size)
            columns = {f"x{i}": x for i, x in enumerate(X.T)} | {"y": y}
            pq.write_table(pa.table(columns), path.with_suffix(".part"), row_group_size=1 << 16)
            os.replace(path.with_suffix(".part"), path)
        out.append(str(path))
    return out


def in_memory(folder: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow.parquet as pq

    X = np.empty((n, FEATURES), np.float32)
    y = np.empty(n, np.int8)
    start = 0
    for path in files_of(folder, n):
        table = pq.read_table(path)
        part = slice(start, start + len(table))
        for i in range(FEATURES):
            X[part, i] = table.column(i).to_numpy()
        y[part] = table.column("y").to_numpy()
        start = part.stop
    return X, y


def model_of(folder: Path, n: int) -> str:
    """A LightGBM model of n rows, trained if it is not there."""
    path = folder / f"model-{n}.txt"
    if not path.exists():
        ask("train", folder, n)
    return str(path)


def train(folder: Path, n: int) -> dict[str, float]:
    import lightgbm as lgb

    X, y = in_memory(folder, n)
    params = {"objective": "binary", "num_leaves": LEAVES, "learning_rate": 0.1, "verbosity": -1}
    lgb.train(params, lgb.Dataset(X, y, params={"verbosity": -1}), TREES).save_model(
        folder / f"model-{n}.txt"
    )
    return {}


# ---- measurements, each in its own process ----


def questions(tracer, seconds: dict[str, float]) -> None:
    X, y = test_rows()
    start = time.perf_counter()
    tracer.influence(X, y, reduce="mean")
    seconds["mean loss, all rows"] = time.perf_counter() - start
    start = time.perf_counter()
    tracer.top(X[:10], y[:10], 100)
    seconds["top 100 of 10 test rows"] = time.perf_counter() - start


def memory(folder: Path, n: int) -> dict[str, float]:
    import leaftrace as lt

    model = model_of(folder, n)
    (X, y) = in_memory(folder, n)
    seconds = {}
    start = time.perf_counter()
    tracer = lt.Tracer(model, X, y)
    seconds["open"] = time.perf_counter() - start
    questions(tracer, seconds)
    return seconds


def files(folder: Path, n: int, limit: int) -> dict[str, float]:
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
    questions(tracer, seconds)
    start = time.perf_counter()
    tracer.refit(without=np.arange(0, n, 1000))
    seconds["refit without 0.1 % of the rows"] = time.perf_counter() - start
    return seconds


def cluster(folder: Path, n: int, plan: str) -> dict[str, float]:
    """Two processes of one thread each."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from leaftrace.dask import Tracer

    model = model_of(folder, n)
    paths = files_of(folder, n)
    (X, y) = test_rows()
    seconds = {}
    with LocalCluster(**TWO) as local, Client(local) as client:

        def sent() -> float:
            return sum(
                client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values()
            )

        frame = dd.read_parquet(paths, split_row_groups=False)
        start = time.perf_counter()
        tracer = Tracer(
            model, frame[[f"x{i}" for i in range(FEATURES)]], frame["y"], client=client, plan=plan
        )
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
    """20 trees."""
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
    """Of the first three columns."""
    return np.digitize(x[0] + x[1] * x[2], [-0.7, 0.7])


def agree(folder: Path, n: int) -> dict[str, float]:
    """The largest difference between the cluster's answer and that in memory, relative to the largest value."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    import leaftrace as lt
    from leaftrace.dask import Tracer

    names = [f"x{i}" for i in range(FEATURES)]
    (X, y) = in_memory(folder, n)
    (X_test, y_test) = test_rows()
    found = {}
    with LocalCluster(**TWO) as local, Client(local) as client:
        frame = dd.read_parquet(files_of(folder, n), split_row_groups=False)[[*names, "y"]]
        classes = frame.map_partitions(
            lambda f: f["y"] * 0 + three_classes([f[c] for c in names[:3]]), meta=("y", "int64")
        )
        for library in ("CatBoost", "XGBoost", "LightGBM"):
            for what, here, there, test in (
                ("two classes", y, frame["y"], y_test),
                (
                    "three classes",
                    three_classes(list(X.T[:3])),
                    classes,
                    three_classes(list(X_test.T[:3])),
                ),
            ):
                model = fitted(library, X, here)
                near = (
                    lt.Tracer(model, X, here, dtype="float64")
                    .influence(X_test, test, reduce="mean")
                    .values
                )
                far = Tracer(
                    model, frame[names], there, client=client, dtype="float64", plan="leaves"
                )
                values = far.influence(X_test, test, reduce="mean").compute()
                found[f"{library}, {what}"] = float(
                    np.abs(values - near).max() / np.abs(near).max()
                )
    return found


def ask(what: str, folder: Path, n: int, *more: object) -> dict[str, float]:
    """One of these, in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--folder",
        str(folder),
        "--one",
        json.dumps([what, n, *more]),
    ]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def one(folder: Path, what: str, n: int, *more: object) -> None:
    known = {"train": train, "memory": memory, "files": files, "cluster": cluster, "agree": agree}
    found = known[what](folder, n, *more)
    print(json.dumps({**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


# ---- the page ----


def size(x: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if x >= unit:
            return f"{x / unit:.3g} {name}"
    return f"{x:.0f} B"


def clock(seconds: float) -> str:
    return (
        f"{seconds:.3g} s"
        if seconds < 120
        else f"{seconds / 60:.3g} min"
        if seconds < 7200
        else f"{seconds / 3600:.3g} h"
    )


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def expected(
    n: float, trees: float, leaves: float, queries: float, workers: float, partitions: float
) -> dict[str, float]:
    """The cost model of the page, one output, float32; ``workers`` of one thread each. See docs/scale.md."""
    from leaftrace._engine.costs import PRICES, machine
    from leaftrace.dask._tracer import ROUND, WIRE

    ns = 1e-9 * machine()
    blocks = -(-queries // 32)
    width = 1 if queries == 1 else 8 if queries <= 8 else 32
    step = 2 * PRICES["effects"] + width * (PRICES["backward"][width] + PRICES["expand"][width])
    W = (trees * leaves) ** 2 / 2 * 4
    columns = blocks * width
    build = (
        PRICES["pairs"] * trees / 2 + PRICES["effects"]
    ) * ns * n * trees / workers + partitions / workers * W / WIRE
    solve = PRICES["solve"] * ns * queries * (trees * leaves) ** 2 / 2
    solve += (
        blocks * (PRICES["effects"] + width * PRICES["expand"][width]) * ns * n * trees / workers
    )
    return {
        "row form": blocks * (step * ns * n * trees / workers + trees * ROUND),
        "row form bytes": partitions * columns * trees * leaves * 4,
        "leaf form": build + solve,
        "leaf form, W known": solve,
        "leaf form bytes": partitions * W,
        "memory a worker": n / workers * (trees * (1 if leaves <= 256 else 2) + 40 + 8 + 4 * width),
    }


def report(folder: Path, n: int, small: int, limit: int) -> str:
    here = ask("memory", folder, small)
    there = ask("files", folder, n, limit)
    names = ["open", "mean loss, all rows", "top 100 of 10 test rows"]
    lines = []
    for name in [*names, "open again, leaves kept", "refit without 0.1 % of the rows"]:
        known = name in here
        each = [
            1e9 * x[name] / (rows * TREES) for x, rows in ((here, small), (there, n)) if name in x
        ]
        ratio = f"{each[1] / each[0]:.2f}" if known else ""
        first = [clock(here[name]), f"{each[0]:.2f}"] if known else ["", ""]
        lines.append([name, *first, clock(there[name]), f"{each[-1]:.2f}", ratio])
    total = [sum(x[name] for name in names) / rows for x, rows in ((here, small), (there, n))]
    lines.append(
        [
            "open and both queries",
            *["", f"{1e9 * total[0] / TREES:.2f}"],
            "",
            f"{1e9 * total[1] / TREES:.2f}",
            f"{total[1] / total[0]:.2f}",
        ]
    )
    lines.append(["largest resident size", size(here["peak"]), "", size(there["peak"]), "", ""])
    head = [
        "",
        f"{small:,} rows in memory",
        "ns per row and tree",
        f"{n:,} rows from files",
        "ns per row and tree",
        "ratio",
    ]
    out = [
        f"LightGBM, {TREES} trees of {LEAVES} leaves, {FEATURES} numbers per row, {os.cpu_count()} cores, "
        f"`memory_limit` of {size(limit)}:",
        table(head, lines),
        "On a cluster of two processes (one thread each) on the same machine:",
    ]
    lines = []
    for plan in ("rows", "leaves"):
        for rows in (small // 10, small):
            found = ask("cluster", folder, rows, plan)
            first, ten = (
                expected(rows, TREES, LEAVES, q, 2, len(files_of(folder, rows))) for q in (1, 10)
            )
            form = "row form" if plan == "rows" else "leaf form"
            lines.append(
                [
                    f"{rows:,}",
                    form,
                    clock(found["open"]),
                    clock(found["first query"]),
                    clock(first[form]),
                    clock(found["top 100 of 10 test rows"]),
                    clock(ten["row form" if plan == "rows" else "leaf form, W known"]),
                    size(found["bytes sent for them"]),
                    size(found["bytes of a worker"]),
                ]
            )
    head = [
        "rows",
        "plan",
        "open",
        "first query",
        "expected",
        "10 more",
        "expected",
        "sent by workers for the 10",
    ]
    head.append("memory of a worker")
    out.append(table(head, lines))
    differences = {name: x for name, x in ask("agree", folder, small).items() if name != "peak"}
    out.append(
        f"Influence of {small:,} rows on the mean loss: largest difference between the cluster and "
        "memory (float64, 20 trees), relative to the largest value:"
    )
    out.append(table(list(differences), [[f"{x:.0e}" for x in differences.values()]]))
    out.append("Costs by the formulas above, not measured, for one query of the mean loss:")
    lines = []
    for rows, trees, workers in ((1e7, 100, 2), (1e8, 500, 64), (1e9, 1000, 800)):
        cost = expected(rows, trees, LEAVES, 1, workers, 4 * workers)
        keys = ("row form", "row form bytes", "leaf form", "leaf form bytes", "memory a worker")
        shown = [clock(cost[k]) if k in ("row form", "leaf form") else size(cost[k]) for k in keys]
        lines.append([f"{rows:,.0f}", f"{trees}", f"{workers}", *shown])
    head = [
        "rows",
        "trees",
        "threads",
        "row form",
        "bytes moved",
        "leaf form, first time",
        "bytes moved",
        "memory per thread",
    ]
    out.append(table(head, lines))
    return "\n\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where rows, models and leaves are kept"
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows from files")
    parser.add_argument(
        "--small", type=int, default=1_000_000, help="rows in memory and on the cluster"
    )
    parser.add_argument("--limit", type=float, default=2.5, help="memory_limit in GB")
    parser.add_argument(
        "--print", action="store_true", dest="show", help="print instead of writing the page"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        what, n, *more = json.loads(given.one)
        return one(given.folder, what, n, *more)
    found = report(given.folder, given.rows, given.small, int(given.limit * GB))
    if given.show:
        return print(found)
    text = PAGE.read_text(encoding="utf-8")
    marks = "<!-- measured by benchmarks/scale.py -->", "<!-- end -->"
    text = re.sub(
        f"{marks[0]}.*{marks[1]}",
        f"{marks[0]}\n\n{found}\n\n{marks[1]}".replace("\\", r"\\"),
        text,
        flags=re.S,
    )
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
