"""`lt.estimate` against the time that actions take. `python benchmarks/action_estimates.py` prints the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from lightgbm import LGBMClassifier

import leaftrace as lt
from estimates import LIGHT, rows
from measuring import QUIET, markdown, ratio, seconds, show

ROWS = 5000
TEST_ROWS = 500
GROUPS = 15
RUNS = 3


def section() -> str:
    """Return the table, measured on one thread."""
    head = ["model", "action", "estimated", "measured", "beyond the estimate by"]
    models = {
        "LightGBM, 2 classes": (
            2,
            lambda seed: LGBMClassifier(n_estimators=50, random_state=seed, **LIGHT),
        ),
        "CatBoost, numbers": (
            0,
            lambda seed: CatBoostRegressor(50, random_seed=seed, thread_count=1, **QUIET),
        ),
    }
    return markdown(
        [head, *(line for name, model in models.items() for line in lines(name, *model))]
    )


def lines(name: str, classes: int, make: Callable[[int], Any]) -> list[list[str]]:
    """Return a line for each action on one model."""
    X, y = rows(ROWS, classes, 1)
    X_test, y_test = rows(TEST_ROWS, classes, 2)
    X_hold, y_hold = rows(TEST_ROWS, classes, 3)
    model = make(0).fit(X, y)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    wrong = int(np.argmax(tracer.refit().loss(X_test, y_test)))
    groups = np.arange(ROWS) * GROUPS // ROWS
    test = (X_test, y_test)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        (f"{GROUPS} groups, refitted", (lt.group_effects, tracer, groups, *test), {}),
        (
            f"{GROUPS} groups, retrained",
            (lt.group_effects, tracer, groups, *test),
            {"retrain": True},
        ),
        (
            "impact of 50 rows, 3 controls",
            (lt.removal_impact, tracer, np.arange(50), *test),
            {"controls": 3},
        ),
        ("values of 6 sources", (lt.source_values, tracer, groups % 6, *test), {}),
        ("fix", (lt.fix, tracer, X_test[[wrong]], y_test[wrong]), {}),
        ("clean", (lt.clean, tracer, *test, X_hold, y_hold), {"max_rounds": 8}),
        ("mismatch", (lt.mismatch, tracer, *test, []), {}),
        ("values, 20 members", (lt.data_values, tracer, *test), {"members": 20}),
        (
            "ensemble of 6",
            (lt.ensemble_influence, make, X, y, *test),
            {"members": 6, "reduce": "mean", "n_jobs": 1},
        ),
    ]
    return [[name, *line(*call)] for call in calls]


def line(name: str, call: tuple[Any, ...], options: dict[str, Any]) -> list[str]:
    """Return an action's name, its estimated and measured time, and how far one is beyond the other."""
    action, *arguments = call
    times = []
    for _ in range(RUNS):
        estimate = lt.estimate(*call, **options)
        longest = estimate.seconds if estimate.most is None else estimate.most
        times.append((estimate.seconds, longest, seconds(partial(action, *arguments, **options))))
    shortest, longest, measured = np.median(times, axis=0)
    estimated = show(shortest)
    if longest > shortest:
        estimated += f" to {show(longest)}"
    beyond = 1.0
    if measured > longest:
        beyond = measured / longest
    elif measured < shortest:
        beyond = shortest / measured
    return [name, estimated, show(measured), ratio(beyond)]


if __name__ == "__main__":
    print(section())
