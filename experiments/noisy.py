"""The paper's label noise (RQ3, RQ4): three data sets with thousands of flipped labels."""

from __future__ import annotations

from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from data import adult, amazon, catboost, flipped, upselling
from store import cached, hashed
from tqdm import tqdm

import leaftrace as lt

SETS = {"adult": (adult, 4_000), "amazon": (amazon, 4_000), "upselling": (upselling, 3_500)}
TITLES = {"adult": "Adult", "amazon": "Amazon", "upselling": "Upselling (45 of 230 columns)"}
CHUNK = 2_000  # training rows in a file of the cache
WORST = 50  # test rows to be fixed


class Noisy:
    """A data set with flipped labels, its model and, to compare, the model of the true labels."""

    def __init__(self, name: str) -> None:
        make, count = SETS[name]
        self.name = name
        self.data = make()
        self.y, self.flipped = flipped(self.data.y, count)
        self.clean, self.model = (self.fit(self.data.X, labels) for labels in (self.data.y, self.y))
        self.tracer = lt.Tracer(self.model, self.data.X, self.y)
        self.key = {
            "data": hashed(self.data.X, self.y, self.data.X_test, self.data.y_test),
            "name": name,
            "model": self.model.get_params(),
        }

    def fit(self, X: Any, y: np.ndarray, **more: object) -> Any:
        return catboost(self.name, **more).fit(X, y)

    def losses(self, model: Any) -> np.ndarray:
        """Return the losses (tests,) of a model."""
        score = model.predict(self.data.X_test, prediction_type="RawFormulaVal", thread_count=1)
        return np.logaddexp(0, np.where(self.data.y_test == 1, -score, score))

    @cached_property
    def worst(self) -> np.ndarray:
        """Positions (WORST,) of the test rows whose loss rose most by the flips."""
        rise = self.losses(self.model) - self.losses(self.clean)
        return np.argsort(-rise, kind="stable")[:WORST]

    def influence(
        self, label: str, method: lt.Method, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return influences of these rows.

        (rows,) on the mean over all test rows, and (rows, WORST) on the test rows in `worst`."""
        parts = []
        starts = range(0, len(rows), CHUNK)
        name = f"{self.name}, {label}"
        for start in tqdm(starts, desc=name, unit_scale=CHUNK, unit="row", leave=False):
            part = rows[start : start + CHUNK]
            settings = self.key | {"method": repr(method), "rows": hashed(part), "worst": WORST}
            parts.append(
                cached("noisy-influence", settings, lambda p=part: self._influence(method, p))
            )
        mean, worst = (
            np.concatenate([part[which] for part in parts]) for which in ("mean", "worst")
        )
        return mean, worst

    def _influence(self, method: lt.Method, rows: np.ndarray) -> dict[str, np.ndarray]:
        X = self.data.X_test
        y = self.data.y_test
        worst = self.worst
        ask = partial(self.tracer.influence, method=method, rows=rows)
        if isinstance(method, lt.LeafRefit):
            # One pass for both, since it needs the loss of every test row in any case.
            every = ask(X, y).values
            return {"mean": every.mean(axis=1, dtype=float), "worst": every[:, worst]}
        return {
            "mean": ask(X, y, reduce="mean").values[:, 0],
            "worst": ask(X.iloc[worst], y[worst]).values,
        }


@cache
def noisy(name: str) -> Noisy:
    """Return a data set with flipped labels, made once a run."""
    return Noisy(name)


def auc(positive: np.ndarray, score: np.ndarray) -> float:
    """Return the area under the ROC curve: the share of pairs in the right order, ties counted half."""
    values, place = np.unique(score, return_inverse=True)
    hits, others = (
        np.bincount(place[positive == side], minlength=len(values)).astype(float)
        for side in (True, False)
    )
    below = np.cumsum(others) - others
    return float((hits * (below + others / 2)).sum() / (hits.sum() * others.sum()))
