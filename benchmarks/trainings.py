"""The time of StructureInfluence as a multiple of the time to train the model.

`OMP_NUM_THREADS=1 python benchmarks/trainings.py` prints the tables of docs/structure.md, in time of one thread: two
classes (Adult), three (2,000 rows of Wine), and a member of `ensemble_influence` (Adult).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier

import leaftrace as lt
from measuring import markdown, median, ratio, seconds, show

BLOCK = 32
CALLS = 3
MEMBERS = 5
MODELS: list[Any] = [
    CatBoostClassifier(iterations=100, depth=6, verbose=0),
    XGBClassifier(n_estimators=100),
    LGBMClassifier(n_estimators=100, verbose=-1),
    HistGradientBoostingClassifier(max_iter=100, early_stopping=False),
]


HEAD = ["model", "training", f"{BLOCK} test rows", "in trainings", "mean of all", "in trainings"]


def section(data: Any) -> str:
    """Return the table of all libraries, each with its default settings and a hundred trees."""
    return markdown([HEAD, *(line(model, data) for model in MODELS)])


def line(model: Any, data: Any) -> list[str]:
    """Return the times of a model, trained and asked in one run, on the same threads."""
    X, y, X_test, y_test = data
    training = median(lambda: model.fit(X, y))
    tracer = lt.Tracer(model, X, y)
    method = lt.StructureInfluence()
    tracer.influence(X_test[:1], y_test[:1], method=method)
    some = median(lambda: tracer.influence(X_test[:BLOCK], y_test[:BLOCK], method=method))
    mean = median(lambda: tracer.influence(X_test, y_test, method=method, reduce="mean"))
    times = [show(some), ratio(some / training), show(mean), ratio(mean / training)]
    return [type(model).__name__, show(training), *times]


# Names and models of one thread; scikit-learn goes by OMP_NUM_THREADS.
ALONE: list[tuple[str, Any]] = [
    ("XGBoost", XGBClassifier(n_estimators=100, n_jobs=1)),
    ("LightGBM", LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1)),
    ("CatBoost", CatBoostClassifier(iterations=100, depth=6, thread_count=1, verbose=0)),
    ("HistGradientBoosting", HistGradientBoostingClassifier(max_iter=100, early_stopping=False)),
]


def best(work: Callable[[], object]) -> float:
    """Return the shortest time on the processor of a few calls."""
    return min(seconds(work) for _ in range(CALLS))


def line_of_one_thread(name: str, model: Any, data: Any) -> list[str]:
    """Return the time of a training, and answers in trainings: a further block, a further mean, the first mean."""
    X, y, X_test, y_test = data
    training = best(lambda: model.fit(X, y))
    method = lt.StructureInfluence()
    tracers = [lt.Tracer(model, X, y, n_jobs=1) for _ in range(CALLS)]

    def mean(tracer: lt.Tracer) -> None:
        tracer.influence(X_test, y_test, method=method, reduce="mean")

    first = min(seconds(lambda t=tracer: mean(t)) for tracer in tracers)
    further = best(lambda: mean(tracers[0]))
    block = best(lambda: tracers[0].influence(X_test[:BLOCK], y_test[:BLOCK], method=method))
    training = min(training, best(lambda: model.fit(X, y)))
    answers = (f"{answer / training:.2f}" for answer in (block, further, first))
    return [name, f"{training:.2f} s", *answers]


def line_of_members(name: str, model: Any, data: Any) -> list[str]:
    """Return what a member of an average costs in trainings on all rows: as it was trained, and refitted."""
    training = best(lambda: model.fit(*data[:2]))

    def make(seed: int) -> Any:
        return clone(model).set_params(random_state=seed)

    asked = {"members": MEMBERS, "reduce": "mean", "n_jobs": 1}
    costs = [
        seconds(lambda refits=refits: lt.ensemble_influence(make, *data, **asked, refits=refits))
        for refits in (False, True)
    ]
    return [name, *(f"{cost / MEMBERS / training:.1f}" for cost in costs)]


def main() -> None:
    root = Path(__file__).parents[1]
    sys.path[:0] = [str(root / "tests" / "support"), str(root / "experiments")]
    import adult
    from data import wine

    three = wine(2_000, 1_000)
    head = ["", "training", f"{BLOCK} test rows", "mean loss", "the same, first call of a tracer"]
    # XGBoost's classifier keeps the objective of three classes once it has seen them, so these come last.
    members = [line_of_members(name, model, adult.load()) for name, model in ALONE]
    for data in (adult.load(), (three.X, three.y, three.X_test, three.y_test)):
        print(markdown([head, *(line_of_one_thread(name, model, data) for name, model in ALONE)]))
        print()
    print(markdown([["", "a member, in trainings", "refitted"], *members]))


if __name__ == "__main__":
    main()
