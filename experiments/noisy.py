"""The paper's label noise (RQ3, RQ4): models of three data sets, trained on labels of which thousands are flipped."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from data import adult, amazon, catboost, flipped, upselling
from store import cached, hashed
from tqdm import tqdm

import leaftrace as lt

SETS = {"adult": (adult, 4_000), "amazon": (amazon, 4_000), "upselling": (upselling, 3_500)}
CHUNK = 2_000  # training rows a file of the cache


class Noisy:
    """A data set with flipped labels, the model of them and, to compare, that of the true ones."""

    def __init__(self, name: str) -> None:
        make, count = SETS[name]
        self.name, self.data = name, make()
        self.y, self.flipped = flipped(self.data.y, count)
        self.clean, self.model = (self.fit(self.data.X, labels) for labels in (self.data.y, self.y))
        self.tracer = lt.Tracer(self.model, self.data.X, self.y)
        self.key = {"data": hashed(self.data.X, self.y, self.data.X_test, self.data.y_test), "name": name,
                    "model": self.model.get_params()}  # fmt: skip

    def fit(self, X: Any, y: np.ndarray, **more: object) -> Any:
        return catboost(self.name, **more).fit(X, y)

    def losses(self, model: Any) -> np.ndarray:
        """(tests,)"""
        score = model.predict(self.data.X_test, prediction_type="RawFormulaVal", thread_count=1)
        return np.logaddexp(0, np.where(self.data.y_test == 1, -score, score))

    def influence(self, label: str, method: Any, tests: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
        """(rows, tests) influences on these test rows, or (rows,) on the mean over all."""
        data, chosen = self.data, slice(None) if tests is None else tests
        X, y, reduce = data.X_test.iloc[chosen], data.y_test[chosen], "mean" if tests is None else None
        parts = []
        for start in tqdm(
            range(0, len(rows), CHUNK), desc=f"{self.name}, {label}", unit_scale=CHUNK, unit="row", leave=False
        ):
            part = rows[start : start + CHUNK]
            settings = self.key | {"method": repr(method), "rows": hashed(part), "tests": hashed(X)}
            ask = lambda p=part: {"v": self.tracer.influence(X, y, method=method, rows=p, reduce=reduce).values}  # noqa: E731
            parts.append(cached("noisy-influence", settings, ask)["v"])
        values = np.concatenate(parts)
        return values[:, 0] if tests is None else values


@cache
def noisy(name: str) -> Noisy:
    return Noisy(name)


def auc(positive: np.ndarray, score: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs in the right order, ties half."""
    values, place = np.unique(score, return_inverse=True)
    hits, others = (np.bincount(place[positive == side], minlength=len(values)).astype(float) for side in (True, False))
    below = np.cumsum(others) - others
    return float((hits * (below + others / 2)).sum() / (hits.sum() * others.sum()))
