"""Settings, timing and tables that the benchmarks share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

# The paper's model, and CatBoost without output.
PAPER = {
    "iterations": 100,
    "depth": 6,
    "learning_rate": 0.2,
    "boosting_type": "Plain",
    "leaf_estimation_method": "Newton",
    "leaf_estimation_iterations": 1,
}
QUIET = {"verbose": 0, "allow_writing_files": False}
Table = list[list[str]]
LONG = 20  # seconds; a call that takes longer is not repeated


def median(fn: Callable[[], object], repeats: int = 5) -> float:
    """Return the median seconds of several calls, or the seconds of one long call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
        if times[0] > LONG:
            break
    return float(np.median(times))


def show(seconds: float) -> str:
    """Return a time in seconds or milliseconds."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"


def ratio(x: float) -> str:
    return f"{x:,.0f} x" if x >= 10 else f"{x:.2g} x"


def exponent(n: list[int], seconds: list[float]) -> float:
    """Return the slope of log time against log n."""
    return float(np.polyfit(np.log(n), np.log(seconds), 1)[0])


def markdown(table: Table) -> str:
    """Return a table in Markdown. Its first line is the head."""
    head, *body = table
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def seconds(work: Callable[[], Any]) -> float:
    """Return the time on the processor that the work takes, or on the clock if that is less.

    Threads of the libraries wait busily."""
    start = np.array([time.process_time(), time.perf_counter()])
    work()
    passed = np.array([time.process_time(), time.perf_counter()]) - start
    return float(passed.min())
