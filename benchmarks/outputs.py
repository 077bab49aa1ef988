"""Models of several outputs: first answer, a further one and a refit against training.

`python benchmarks/outputs.py` prints the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from xgboost import XGBRegressor

import leaftrace as lt
from measuring import QUIET, markdown, ratio, seconds, show

ROWS = 12_000
ROUNDS = 60
TEST_ROWS = 500
LIGHT = {"verbose": -1, "n_jobs": 1, "n_estimators": ROUNDS}
CAT = {"iterations": ROUNDS, "thread_count": 1, **QUIET}
# name, classes or targets, whether labels are targets, rows, model
MODELS: list[tuple[str, int, bool, int, Callable[[], Any]]] = [
    *((f"LightGBM, {K} classes", K, False, ROWS, lambda: LGBMClassifier(**LIGHT)) for K in (3, 7)),
    ("LightGBM, 7 classes", 7, False, 2 * ROWS, lambda: LGBMClassifier(**LIGHT)),
    (
        "LightGBM, 7 one against all",
        7,
        False,
        ROWS,
        lambda: LGBMClassifier(objective="multiclassova", **LIGHT),
    ),
    ("CatBoost, 7 classes", 7, False, ROWS, lambda: CatBoostClassifier(**CAT)),
    ("XGBoost, 7 targets", 7, True, ROWS, lambda: XGBRegressor(n_estimators=ROUNDS, n_jobs=1)),
    (
        "CatBoost, 7 targets",
        7,
        True,
        ROWS,
        lambda: CatBoostRegressor(loss_function="MultiRMSE", **CAT),
    ),
    ("LightGBM, a median", 1, True, ROWS, lambda: LGBMRegressor(objective="mae", **LIGHT)),
]


def rows(n: int, outputs: int, targets: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return generated rows with their classes or targets."""
    scores = np.random.default_rng(0).normal(size=(3, outputs))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    F = X[:, :3] @ scores + 0.5 * rng.normal(size=(n, outputs))
    if not targets:
        return X, F.argmax(axis=1)
    return X, F[:, 0] if outputs == 1 else F


def section() -> str:
    """Return the table, measured on one thread."""
    head = ["model", "rows", "training", "first mean loss", "a further one", "a refit"]
    return markdown([head, *(line(*model) for model in MODELS)])


def line(name: str, outputs: int, targets: bool, n: int, make: Callable[[], Any]) -> list[str]:
    """Return the times of one model, those of answers also in trainings."""
    X, y = rows(n, outputs, targets, 1)
    test = rows(TEST_ROWS, outputs, targets, 2)
    model = make()
    training = seconds(lambda: model.fit(X, y))
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    cells = ["no derivatives"] * 2
    if not tracer.engine.ensemble.not_smooth:
        answers = [seconds(lambda: tracer.influence(*test, reduce="mean")) for _ in range(2)]
        cells = [f"{show(answer)} ({ratio(answer / training)})" for answer in answers]
    refit = seconds(lambda: tracer.refit(without=[1, 2]))
    return [name, f"{n:,}", show(training), *cells, f"{show(refit)} ({ratio(refit / training)})"]


if __name__ == "__main__":
    print(section())
