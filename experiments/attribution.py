"""A data set, a model, and measures of how well influences predict retraining.

    LDS       the model is trained on random halves of the rows; rank correlation, over the halves, of
              a test row's loss with the sum of influences on it over the rows of the half; mean over
              test rows, and over repetitions of these trainings with other seeds
    remove    remove the rows most helpful to other test rows (1, 2, 5 % of all), retrain: rise of the
              mean loss
    clean     remove the most harmful ones: change of the mean loss
    relabel   give wrong labels to the most helpful ones: rise of the mean loss

The last three are judged on test rows that were not used to choose. contenders.py has the methods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from data import Data, adult, amazon, drawn, hospital, houses, wine
from models import KINDS, LIBRARIES, losses, other_labels
from store import cached, hashed, parallel

import leaftrace as lt

SHARES = (0.01, 0.02, 0.05)  # of the rows; Amazon's rarer class is 6 % of them
ACTS = {
    "remove": "most helpful removed",
    "clean": "most harmful removed",
    "relabel": "most helpful relabelled",
}
FIRST_SEED = 1_000  # of retraining; the models whose influences are compared have smaller seeds
FIRST_FRESH_SEED = 10_000  # of retraining on halves that methods may learn from
PART = 100  # trainings that are kept together


@dataclass(frozen=True)
class Size:
    """Sizes of the experiment.

    ``tests``      test rows for the LDS; five times as many are to choose by, and as many to judge by
    ``halves``     halves of the rows on which models are trained
    ``repeats``    trainings on each half beyond the first; the mean of so many is the ceiling
    ``seeds``      models over which methods of a single model are averaged
    ``left_out``   libraries whose models are also retrained without each row
    ``fresh``      numbers of trainings on other halves, from which a ridge regression learns"""

    rows: int
    tests: int
    halves: int
    repeats: int
    seeds: int
    data: tuple[str, ...]
    libraries: tuple[str, ...]
    left_out: tuple[str, ...]
    fresh: tuple[int, int]


def load(name: str, size: Size) -> Data:
    """Draw rows of a data set at random."""
    count = 11 * size.tests
    if name == "houses":
        return houses(size.rows, count)
    if name == "wine":
        return wine(size.rows, count)
    whole = {"adult": adult, "amazon": amazon, "hospital": lambda: hospital(biased=False)}[name]()
    # XGBoost accepts neither [ nor < in the name of a column.
    X = whole.X.rename(columns=lambda text: text.replace("[", "").replace("<", "below "))
    return drawn(X, whole.y, size.rows, count)


class World:
    """A data set, a library, and models trained on parts of the rows."""

    def __init__(self, name: str, library: str, size: Size) -> None:
        self.data = load(name, size)
        self.kind = KINDS[name]
        self.size = size
        self.library = library
        self.name = f"{name}, {library}"
        self.make = LIBRARIES[library]
        m = size.tests
        self.tests = slice(0, m)  # for the LDS
        self.choose = slice(m, 6 * m)
        self.judge = slice(6 * m, 11 * m)
        self.key = {
            "data": hashed(self.data.X, self.data.y, self.data.X_test, self.data.y_test),
            "library": library,
            "model": repr(self.make(self.kind, 0)),
            "size": size.tests,
        }
        self.halves = np.random.default_rng(8).random((size.halves, size.rows)) < 0.5

    def fit(self, seed: int, keep: Any = slice(None), y: np.ndarray | None = None) -> Any:
        """Train a model on some rows, with their own labels or others."""
        labels = self.data.y if y is None else y
        return self.make(self.kind, seed).fit(self.data.X.iloc[keep], labels[keep])

    def losses(self, model: Any, tests: slice) -> np.ndarray:
        """Return losses of these test rows."""
        return losses(model, self.kind, *self.rows(tests))

    def rows(self, tests: slice) -> tuple[Any, np.ndarray]:
        """Return these test rows and their labels."""
        return self.data.X_test.iloc[tests], self.data.y_test[tests]

    def retrained(self, halves: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Return losses (halves, tests) of models trained on these halves with these seeds."""

        def train(h: int) -> np.ndarray:
            return self.losses(self.fit(int(seeds[h]), halves[h]), self.tests)

        def compute() -> dict[str, np.ndarray]:
            return {"v": np.array(parallel(train, range(len(halves))))}

        settings = self.key | {"halves": hashed(halves), "seeds": seeds.tolist()}
        return cached("halves", settings, compute)["v"]

    def on_halves(self, repetition: int) -> np.ndarray:
        """Return losses (halves, tests), each half trained with a seed of its own."""
        count = len(self.halves)
        return self.retrained(self.halves, FIRST_SEED + repetition * count + np.arange(count))

    def on_fresh_halves(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return other halves (count, rows), and losses (count, tests) of models trained on them."""
        halves = []
        losses = []
        for part in range(-(-count // PART)):
            drawn = np.random.default_rng((9, part)).random((PART, self.size.rows)) < 0.5
            halves.append(drawn)
            losses.append(self.retrained(drawn, FIRST_FRESH_SEED + part * PART + np.arange(PART)))
        return np.concatenate(halves)[:count], np.concatenate(losses)[:count]

    @cached_property
    def tracers(self) -> list[lt.Tracer]:
        """Tracers of the models whose influences are compared."""
        return [
            lt.Tracer(self.fit(seed), self.data.X, self.data.y) for seed in range(self.size.seeds)
        ]

    def summed(self, values: list[np.ndarray]) -> np.ndarray:
        """Return what influences (rows, tests) of models say of each half: (models, halves, tests)."""
        halves = self.halves.astype(float)
        return np.array([halves @ v for v in values])

    def lds(self, summed: np.ndarray) -> np.ndarray:
        """Return rank correlations (repetitions, tests) of sums of influences with retraining.

        They are means over the models that influences were computed for."""
        found = [[correlations(model, one) for model in summed] for one in self.repetitions]
        return np.mean(found, axis=1)

    def retrained_lds(self, count: int) -> np.ndarray:
        """Return rank correlations (repetitions, tests) of the mean of other retrainings with each.

        For each repetition, the others are the ``count`` ones that follow it in a circle."""
        every = self.repetitions
        found = []
        for place, one in enumerate(every):
            others = [every[(place + step) % len(every)] for step in range(1, count + 1)]
            found.append(correlations(np.mean(others, axis=0), one))
        return np.array(found)

    @cached_property
    def repetitions(self) -> list[np.ndarray]:
        """Losses (halves, tests) of each repetition, which influences are compared with."""
        return [self.on_halves(repetition) for repetition in range(1 + self.size.repeats)]

    def mean_loss(self, keep: np.ndarray | slice, y: np.ndarray | None = None) -> float:
        """Return the mean loss of the rows that judge, over three seeds."""
        models = (self.fit(FIRST_SEED + seed, keep, y) for seed in range(3))
        return float(np.mean([self.losses(model, self.judge).mean() for model in models]))

    @cached_property
    def before(self) -> float:
        """Mean loss with all rows."""
        return self.mean_loss(slice(None))

    def curves(self, values: np.ndarray) -> dict[str, float]:
        """Return changes of the loss in per cent of what it was, for each act and share.

        ``values``: (rows,) influences on the mean loss of the rows to choose by."""
        order = np.argsort(values, kind="stable")  # most helpful first
        n = len(order)
        most = round(SHARES[-1] * n)
        settings = self.key | {
            "shares": SHARES,
            "helpful": order[:most].tolist(),
            "harmful": order[n - most :].tolist(),
        }
        found = cached("curves", settings, lambda: self._curves(order))
        return {name: float(value) for name, value in found.items()}

    def _curves(self, order: np.ndarray) -> dict[str, np.ndarray]:
        n = len(order)
        wrong = other_labels(self.data.y, self.kind)

        def relabelled(rows: np.ndarray) -> np.ndarray:
            y = self.data.y.copy()
            y[rows] = wrong[rows]
            return y

        acts = {
            "remove": lambda k: self.mean_loss(np.sort(order[k:])),
            "clean": lambda k: self.mean_loss(np.sort(order[: n - k])),
            "relabel": lambda k: self.mean_loss(slice(None), relabelled(order[:k])),
        }
        before = self.before  # once, before several threads ask for it
        todo = [(act, share) for act in ACTS for share in SHARES]
        after = parallel(lambda item: acts[item[0]](round(item[1] * n)), todo)
        return {
            column(act, share): np.array(100 * (loss / before - 1))
            for (act, share), loss in zip(todo, after, strict=True)
        }


def column(act: str, share: float) -> str:
    return f"{act}_{share:.0%}"


def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlations (tests,) over the halves.

    Ties are ranked in the order of the halves."""
    return linear_correlations(*(x.argsort(axis=0).argsort(axis=0).astype(float) for x in (a, b)))


def linear_correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Pearson's correlations (tests,) over the first axis."""
    a = a - a.mean(axis=0)
    b = b - b.mean(axis=0)
    return (a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
