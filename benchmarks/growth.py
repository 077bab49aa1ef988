"""How times grow with rows n, trees T, classes K and columns d, for one model of LightGBM.

`python benchmarks/growth.py` prints the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier

import leaftrace as lt
from measuring import exponent, markdown, show
from outputs import seconds

BASE = {"n": 20_000, "T": 100, "K": 3, "d": 12}
GROWING = {
    "n": [10_000, 20_000, 40_000, 80_000],
    "T": [50, 100, 200, 400],
    "K": [3, 6, 12],
    "d": [12, 48, 192],
}
TEST_ROWS = 500
RUNS = 3
TIMES = ["training", "opening", "first mean loss", "a further one", "a refit"]


def rows(n: int, K: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return generated rows with their classes."""
    scores = np.random.default_rng(0).normal(size=(d, K)) / np.sqrt(d)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ scores + 0.3 * rng.normal(size=(n, K))).argmax(axis=1)


def times(n: int, T: int, K: int, d: int) -> list[float]:
    """Return the `TIMES` of one model: medians over several tracers of the time of one thread."""
    X, y = rows(n, K, d, 1)
    test = rows(TEST_ROWS, K, d, 2)
    model = LGBMClassifier(n_estimators=T, num_leaves=31, n_jobs=1, verbose=-1)
    training = seconds(lambda: model.fit(X, y))
    found = [[training, *times_of_tracer(model, X, y, test)] for _ in range(RUNS)]
    return np.median(found, axis=0).tolist()


def times_of_tracer(model: Any, X: np.ndarray, y: np.ndarray, test: Any) -> list[float]:
    """Return the times of opening, two answers and a refit."""
    opened: list[lt.Tracer] = []
    work: list[Callable[[], Any]] = [
        lambda: opened.append(lt.Tracer(model, X, y, n_jobs=1)),
        lambda: opened[0].influence(*test, reduce="mean"),
        lambda: opened[0].influence(*test, reduce="mean"),
        lambda: opened[0].refit(without=[1, 2]),
    ]
    return [seconds(part) for part in work]


def section() -> str:
    """Return the table. One thread, whose time on the processor is measured."""
    table = [["what grows", *TIMES]]
    for name, sizes in GROWING.items():
        found = [times(**{**BASE, name: size}) for size in sizes]
        cells = []
        for column in zip(*found, strict=True):
            power = exponent(sizes, list(column))
            cells.append(f"{show(column[0])} to {show(column[-1])}: {name}^{power:.2f}")
        table.append([f"{name} = {sizes[0]:,} to {sizes[-1]:,}", *cells])
    return markdown(table)


if __name__ == "__main__":
    print(section())
