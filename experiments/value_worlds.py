"""Data, rankings and measures of values.py: what acting on a ranking of rows does, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from data import Data, amazon, drawn, hospital, numbers, read, upselling, wine
from models import LIBRARIES, losses, other_labels
from noisy import auc
from store import cached, code, hashed, parallel
from threadpoolctl import threadpool_limits

import leaftrace as lt

KINDS = {
    "wine": "classes",
    "amazon": "classes",
    "upselling": "classes",
    "hospital": "classes",
    "concrete": "numbers",
}
RARER = 0.3  # share of the rarer class of Amazon, Upselling and Hospital, which is drawn more often
SHARES = (0.05, 0.1)
ACTS = ("remove", "clean", "relabel")
NOISE = 0.1  # share of the labels that are made wrong
SEEDS = 2  # of models that judge
FIRST_SEED = 1_000
LARGE = 20_000  # rows for costs in a larger table
INFLUENCE = "LeafInfluence"
BOOSTIN = "BoostIn"
VALUES = "data values, 60 bags of 10 %"
FEWEST = "data values, 5 bags of 10 %"
FEW = "data values, 10 bags of 10 %"
SOME = "data values, 20 bags of 10 %"
MIXED = "data values, 42 bags of 10 to 50 %"
NOISE_SCORE = "label_noise"
WITH_NOISE = (INFLUENCE, BOOSTIN, VALUES, NOISE_SCORE)
MANY = (0.1, 0.2, 0.5)


def value(members: int, bag: Any) -> Callable[[lt.Tracer, Any, Any], np.ndarray]:
    return lambda tracer, X, y: lt.data_values(tracer, X, y, members=members, bag=bag).values


def influence(method: Any) -> Callable[[lt.Tracer, Any, Any], np.ndarray]:
    def values(tracer: lt.Tracer, X: Any, y: Any) -> np.ndarray:
        return tracer.influence(X, y, method=method, reduce="mean").data_values()

    return values


METHODS: dict[str, Callable[[lt.Tracer, Any, Any], np.ndarray]] = {
    INFLUENCE: influence(None),
    BOOSTIN: influence(lt.baselines.BoostIn()),
    FEWEST: value(5, 0.1),
    FEW: value(10, 0.1),
    SOME: value(20, 0.1),
    VALUES: value(60, 0.1),
    MIXED: value(42, MANY),
}


@dataclass(frozen=True)
class Size:
    """Rows to train on, to choose by and to judge by, and what is compared."""

    rows: int
    choose: int
    judge: int
    data: tuple[str, ...]
    libraries: tuple[str, ...]
    costs: tuple[str, ...]


FULL = Size(
    1_000, 400, 2_000, tuple(KINDS), ("XGBoost", "LightGBM", "CatBoost"), ("amazon", "hospital")
)
QUICK = replace(
    FULL, data=("wine", "upselling", "concrete"), libraries=("XGBoost",), costs=("hospital",)
)


def load(name: str, size: Size) -> Data:
    """Draw rows of a data set at random."""
    tests = size.choose + size.judge
    if name == "wine":
        return wine(size.rows, tests)
    if name == "concrete":  # it has 1,030 rows
        every = read("concrete/concrete")
        y = every.pop("strength").to_numpy(float) / 10
        return drawn(numbers(every), y, size.rows * 6 // 10)
    whole = {"amazon": amazon, "upselling": upselling, "hospital": lambda: hospital(False)}[name]()
    X = pd.concat([whole.X, whole.X_test], ignore_index=True)
    # XGBoost accepts neither [ nor < in the name of a column.
    X = X.rename(columns=lambda text: text.replace("[", "").replace("<", "below "))
    y = np.append(whole.y, whole.y_test)
    rng = np.random.default_rng(0)
    rarer = int(np.bincount(y).argmin())
    count = min(round(RARER * (size.rows + tests)), int((y == rarer).sum()))
    of_rarer = rng.choice(np.flatnonzero(y == rarer), count, replace=False)
    others = rng.choice(np.flatnonzero(y != rarer), size.rows + tests - count, replace=False)
    rows = np.append(of_rarer, others)
    return drawn(X.iloc[rows], y[rows], size.rows, tests)


class World:
    """A data set, a library, and the effects of acting on rankings of its rows."""

    def __init__(self, name: str, library: str, size: Size) -> None:
        self.data = load(name, size)
        self.kind = KINDS[name]
        self.name = f"{name}, {library}"
        self.make = LIBRARIES[library]
        self.choose = min(size.choose, len(self.data.y_test) // 2)
        self.n = len(self.data.y)
        data = self.data
        self.key = {
            "data": hashed(data.X, data.y, data.X_test, data.y_test),
            "model": repr(self.make(self.kind, 0)),
            "choose": self.choose,
            "seeds": SEEDS,
        }
        self.wrong = other_labels(data.y, self.kind)
        self.noisy = np.zeros(self.n, bool)
        rng = np.random.default_rng(1)
        self.noisy[rng.choice(self.n, round(NOISE * self.n), replace=False)] = True

    def mean_loss(self, keep: np.ndarray, y: np.ndarray) -> float:
        """Return the mean loss of the rows that judge, over some seeds."""
        X = self.data.X_test.iloc[self.choose :]
        truth = self.data.y_test[self.choose :]
        found = []
        for seed in range(SEEDS):
            model = self.make(self.kind, FIRST_SEED + seed).fit(self.data.X.iloc[keep], y[keep])
            found.append(losses(model, self.kind, X, truth).mean())
        return float(np.mean(found))

    def ranking(self, method: str, y: np.ndarray) -> np.ndarray:
        """Return the values (n,) of the rows with these labels."""
        tracer = lt.Tracer(self.make(self.kind, 0).fit(self.data.X, y), self.data.X, y)
        chooses = self.data.X_test.iloc[: self.choose], self.data.y_test[: self.choose]
        if method == NOISE_SCORE:
            return lt.label_noise(tracer, *chooses).label_score
        return METHODS[method](tracer, *chooses)

    def change(self, keep: np.ndarray, y: np.ndarray, before: float) -> float:
        """Return the change of the mean loss in per cent."""
        return 100 * (self.mean_loss(keep, y) / before - 1)

    @cached_property
    def before(self) -> float:
        """Mean loss with all rows."""
        return self.mean_loss(np.arange(self.n), self.data.y)

    @cached_property
    def before_noisy(self) -> float:
        """Mean loss with all rows, some of them with wrong labels."""
        return self.mean_loss(np.arange(self.n), self.noisy_labels)

    @cached_property
    def noisy_labels(self) -> np.ndarray:
        return np.where(self.noisy, self.wrong, self.data.y)

    def acts(self, method: str) -> dict[str, float]:
        """Return the effect of each act and share."""
        y = self.data.y
        order = np.argsort(-self.ranking(method, y), kind="stable")  # most valuable first

        def effect(item: tuple[str, float]) -> float:
            act, share = item
            k = round(share * self.n)
            if act == "relabel":
                labels = y.copy()
                labels[order[:k]] = self.wrong[order[:k]]
                return self.change(np.arange(self.n), labels, self.before)
            kept = order[k:] if act == "remove" else order[: self.n - k]
            return self.change(np.sort(kept), y, self.before)

        todo = [(act, share) for act in ACTS for share in SHARES]
        _ = self.before  # before threads need it
        return dict(zip((column(*item) for item in todo), parallel(effect, todo), strict=True))

    def with_noise(self, method: str) -> dict[str, float]:
        """Return how well wrong labels are found, and what leaving out the worst rows does."""
        y = self.noisy_labels
        ranked = self.ranking(method, y)
        order = np.argsort(-ranked, kind="stable")
        _ = self.before_noisy

        def effect(share: float) -> float:
            kept = np.sort(order[: self.n - round(share * self.n)])
            return self.change(kept, y, self.before_noisy)

        after = parallel(effect, SHARES)
        columns = {column("noisy", s): change for s, change in zip(SHARES, after, strict=True)}
        return {"found": float(auc(self.noisy, -ranked)), **columns}

    def line(self, method: str) -> dict[str, float]:
        """Return all columns of a line of the table."""

        def compute() -> dict[str, Any]:
            found = self.acts(method) if method in METHODS else {}
            return found | (self.with_noise(method) if method in WITH_NOISE else {})

        found = cached("values", self.key | {"method": method}, compute)
        return {name: float(number) for name, number in found.items()}


def column(act: str, share: float) -> str:
    return f"{act}_{share:.0%}"


def costs(name: str, library: str, rows: int, size: Size) -> dict[str, Any]:
    """Return the costs of five and ten bags in trainings of the model, on one thread.

    Each is the least of three runs, which take turns."""

    def compute() -> dict[str, Any]:
        data = load(name, replace(size, rows=rows))
        chooses = data.X_test.iloc[: size.choose], data.y_test[: size.choose]
        model = LIBRARIES[library](KINDS[name], 0)

        def seconds(work: Callable[[], Any]) -> float:
            start = time.process_time()
            work()
            return time.process_time() - start

        with threadpool_limits(1):
            tracer = lt.Tracer(model.fit(data.X, data.y), data.X, data.y, n_jobs=1)
            works = {
                "training": lambda: LIBRARIES[library](KINDS[name], 0).fit(data.X, data.y),
                "five": lambda: METHODS[FEWEST](tracer, *chooses),
                "ten": lambda: METHODS[FEW](tracer, *chooses),
            }
            spent = [{way: seconds(work) for way, work in works.items()} for _ in range(3)]
        least = {way: min(run[way] for run in spent) for way in works}
        return {**least, "columns": data.X.shape[1]}

    settings = {"data": name, "library": library, "rows": rows, "code": code()}
    found = cached("value_costs", settings, compute)
    return {
        "data": name,
        "library": library,
        "rows": rows,
        "columns": int(found["columns"]),
        "training": float(found["training"]),
        "five bags": float(found["five"] / found["training"]),
        "ten bags": float(found["ten"] / found["training"]),
    }
