"""`tracer.estimate` against the time that the answer takes, for several libraries, losses and methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier

import leaftrace as lt
from measuring import QUIET, markdown, ratio, seconds, show

COLUMNS = 12
TEST_ROWS = 10_000
RUNS = 7
LIGHT = {"verbose": -1, "n_jobs": 1}
# name, training rows, classes (0: numbers above zero), model
MODELS: list[tuple[str, int, int, Callable[[], Any]]] = [
    ("LightGBM, 2 classes", 8000, 2, lambda: LGBMClassifier(n_estimators=50, **LIGHT)),
    ("LightGBM, 2 classes", 100_000, 2, lambda: LGBMClassifier(n_estimators=50, **LIGHT)),
    ("LightGBM, 7 classes", 8000, 7, lambda: LGBMClassifier(n_estimators=20, **LIGHT)),
    (
        "LightGBM, Tweedie",
        8000,
        0,
        lambda: LGBMRegressor(objective="tweedie", n_estimators=50, **LIGHT),
    ),
    ("XGBoost, 3 classes", 8000, 3, lambda: XGBClassifier(n_estimators=20, n_jobs=1)),
    ("CatBoost, 2 classes", 8000, 2, lambda: CatBoostClassifier(50, thread_count=1, **QUIET)),
    ("HistGradientBoosting", 8000, 2, lambda: HistGradientBoostingClassifier(max_iter=50)),
]


def rows(n: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return generated rows and their labels."""
    scores = np.random.default_rng(0).normal(size=(3, max(classes, 1)))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, COLUMNS))
    F = X[:, :3] @ scores + 0.5 * rng.normal(size=(n, max(classes, 1)))
    return X, F.argmax(axis=1) if classes else np.exp(0.3 * F[:, 0])


def section() -> str:
    """Return the table. One thread, whose time on the processor is measured, or on the clock if that is less."""
    head = ["model", "rows", "answer", "estimated", "measured", "measured / estimated"]
    return markdown([head, *(line for model in MODELS for line in lines(*model))])


def lines(name: str, n: int, classes: int, make: Callable[[], Any]) -> list[list[str]]:
    """Return a line for each answer of one model."""
    X, y = rows(n, classes, 1)
    model = make().fit(X, y)
    runs = [times(lt.Tracer(model, X, y, n_jobs=1), classes) for _ in range(RUNS)]
    found = []
    for answer in runs[0]:
        estimated, measured = np.median([run[answer] for run in runs], axis=0)
        cells = [show(estimated), show(measured), ratio(measured / estimated)]
        found.append([name, f"{n:,}", answer, *cells])
    return found


def times(tracer: lt.Tracer, classes: int) -> dict[str, tuple[float, float]]:
    """Return the estimated and the measured seconds of each answer."""
    X_test, y_test = rows(TEST_ROWS, classes, 2)
    soft = {"method": lt.StructureInfluence()}
    answers = {
        "first mean over 100 test rows": (100, {"reduce": "mean"}),
        f"mean over {TEST_ROWS:,} test rows": (TEST_ROWS, {"reduce": "mean"}),
        "64 test rows": (64, {}),
        "LeafRefit of 32 rows": (5, {"rows": list(range(32)), "method": lt.LeafRefit()}),
        "StructureInfluence, 32 test rows": (32, soft),
        "StructureInfluence, mean over 100": (100, {"reduce": "mean", **soft}),
    }
    found = {}
    for answer, (m, options) in answers.items():
        estimated = tracer.estimate(X_test[:m], **options).seconds
        test = X_test[:m], y_test[:m]
        found[answer] = estimated, seconds(partial(tracer.influence, *test, **options))
    return found


if __name__ == "__main__":
    print(section())
