"""One query on a million generated rows, with 100 and with 1,000 trees.

Each measurement has a process of its own, which is this file with arguments, so that its largest
resident size can be read. Its results are lines `name=value`."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
from catboost import CatBoost

import leaftrace as lt
from measuring import PAPER, QUIET, markdown, ratio, show

ROWS = 1_000_000
TREES = (100, 1000)
LIMITS = {100: None, 1000: 3 << 30}  # bytes of memory by trees
# Bytes touched for a row and tree. Backward: U, two leaf ids, abar read and written; expansion: V, a
# leaf id.
TOUCHED = 4 + 1 + 1 + 8 + 4 + 1
BOUND = """The streaming bound is the time that a copy takes to move as many bytes as a query touches. Times are the
shortest of several, except that of the first query; those on the processor are of both threads together."""


def section(models: str | None) -> str:
    """Measure and return the section of the page. ``models``: folder that keeps trained models, or None."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [in_own_process(trees, LIMITS[trees], models or folder) for trees in TREES]
    bounds = [
        ROWS * trees * TOUCHED / run["bandwidth"] for trees, run in zip(TREES, runs, strict=True)
    ]
    lines = {
        "CatBoost's predict on the rows": [show(run["predict"]) for run in runs],
        "building the tracer": [
            f"{show(run['build'])} ({ratio(run['build'] / run['predict'])} predict)" for run in runs
        ],
        "first query": [show(run["first"]) for run in runs],
        "a further query, effects of rows computed anew": [show(run["again"]) for run in runs],
        "the same on the processor": [show(run["again_cpu"]) for run in runs],
        "a query once effects are kept": [
            show(run["kept"]) if run["kept"] else "beyond the memory limit" for run in runs
        ],
        "streaming bound (bytes touched / copy bandwidth)": [show(bound) for bound in bounds],
        "further query against the bound": [
            ratio(run["again"] / bound) for run, bound in zip(runs, bounds, strict=True)
        ],
        "a query with kept effects against the bound": [
            ratio(run["kept"] / bound) if run["kept"] else ""
            for run, bound in zip(runs, bounds, strict=True)
        ],
        "peak memory beyond the input": [f"{run['memory']:.2f} GB" for run in runs],
    }
    head = [f"{ROWS:,} rows, one query", *(f"{trees:,} trees" for trees in TREES)]
    table = markdown([head, *([name, *cells] for name, cells in lines.items())])
    return f"{BOUND}\n\n{table}"


def in_own_process(trees: int, memory_limit: int | None, folder: str) -> dict[str, float]:
    """Train the model in one process, unless the folder has it, and measure in another."""
    model = os.path.join(folder, f"{trees}.cbm")
    command = [sys.executable, __file__, model, "--trees", str(trees)]
    if not os.path.exists(model):
        subprocess.run([*command, "--train"], check=True)
    if memory_limit:
        command += ["--memory-limit", str(memory_limit)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.split("=") for line in out.split())}


def generated() -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels, always the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 10)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=ROWS) > 0).astype(np.float32)


def train(trees: int, path: str) -> None:
    settings = {"iterations": trees, "max_bin": 64, "loss_function": "Logloss"}
    CatBoost({**PAPER, **QUIET, **settings}).fit(*generated()).save_model(path)


def measure(path: str, memory_limit: int | None) -> dict[str, float]:
    """Return seconds, the bandwidth of copies in bytes a second, and the memory used in GB."""
    X, y = generated()
    model = CatBoost().load_model(path)
    predict = shortest(lambda: model.predict(X, prediction_type="RawFormulaVal"), 5)[0]
    with open("/proc/self/statm", encoding="ascii") as file:
        before = int(file.read().split()[1]) * resource.getpagesize() / 1e9
    build, _ = shortest(lambda: lt.Tracer(model, X, y, memory_limit=memory_limit), 3)
    tracer = lt.Tracer(model, X, y, memory_limit=memory_limit)
    work = tracer.engine.work

    def ask() -> None:
        tracer.influence(X[:1], y[:1])

    first, _ = shortest(ask, 1)
    again, again_cpu = shortest(ask, 2)
    kept = 0.0
    if work.keeps_effects:
        while not work.has_effects:
            ask()
        kept, _ = shortest(ask, 5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "predict": predict,
        "build": build,
        "first": first,
        "again": again,
        "again_cpu": again_cpu,
        "kept": kept,
        "memory": peak - before,
        "bandwidth": copy_bandwidth(),
    }


def shortest(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the least seconds of several calls, and the least on the processor."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, processor = np.min(found, axis=0)
    return float(wall), float(processor)


def copy_bandwidth() -> float:
    """Return the bytes read and written in a second by a copy."""
    target = np.zeros(200_000_000, np.float32)
    source = np.ones(200_000_000, np.float32)
    return 2 * target.nbytes / shortest(lambda: np.copyto(target, source), 5)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="file of the model")
    parser.add_argument("--trees", type=int)
    parser.add_argument("--train", action="store_true", help="write the file and measure nothing")
    parser.add_argument("--memory-limit", type=int)
    given = parser.parse_args()
    if given.train:
        return train(given.trees, given.model)
    results = measure(given.model, given.memory_limit)
    print("\n".join(f"{name}={value}" for name, value in results.items()))


if __name__ == "__main__":
    main()
