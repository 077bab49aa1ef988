"""The time of StructureInfluence as a multiple of the time to train the model."""

from __future__ import annotations

from typing import Any

from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier

import leaftrace as lt
from measuring import markdown, median, ratio, show

BLOCK = 32
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
