"""The models, methods and protocols that paper_attribution.py compares.

    LDS       the model is trained on random halves of the rows; rank correlation, over the halves, of
              a test row's loss with the sum of influences on it over the rows of the half; mean over
              test rows
    remove    remove the rows most helpful to other test rows (1, 2, 5 % of all), retrain: rise of the
              mean loss
    clean     remove the most harmful ones: change of the mean loss
    relabel   give wrong labels to the most helpful ones: rise of the mean loss

The last three are judged on test rows that were not used to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from data import Data, adult, amazon, drawn, hospital, houses, wine
from models import KINDS, LIBRARIES, losses, other_labels
from store import cached, hashed, parallel
from tqdm import tqdm

import leaftrace as lt

Influences = Callable[[slice, str | None], list[np.ndarray]]  # of test rows, reduced or not

SHARES = (0.01, 0.02, 0.05)  # of the rows; Amazon's rarer class is 6 % of them
ACTS = {
    "remove": "most helpful removed",
    "clean": "most harmful removed",
    "relabel": "most helpful relabelled",
}
FIRST_SEED = 1_000  # of retraining; the models whose influences are compared have smaller seeds
EXACT = "LeafInfluence, exact"
TOP8 = "LeafInfluence, Top8Leaves"
REFIT = "LeafRefit, exact"
SINGLE_POINT = "LeafInfluence, SinglePoint"
BOOSTIN = "BoostIn"
SINGLE = {
    EXACT: lt.LeafInfluence(),
    SINGLE_POINT: lt.LeafInfluence(lt.SinglePoint()),
    TOP8: lt.LeafInfluence(lt.TopKLeaves(8)),
    REFIT: lt.LeafRefit(),
    BOOSTIN: lt.baselines.BoostIn(),
    "TreeSim": lt.baselines.TreeSim(),
    "TREX": lt.baselines.TREX("path"),  # with "count" its surrogate hardly learns
    "Detector": lt.baselines.Detector(),
    "Random": lt.baselines.Random(),
}


@dataclass(frozen=True)
class Size:
    """Sizes of the experiment.

    ``tests`` test rows are for the LDS; five times as many are to choose by, and as many to judge by.
    Methods of a single model are averaged over ``seeds`` models. Models of the libraries in
    ``left_out`` are also retrained without each row."""

    rows: int
    tests: int
    halves: int
    seeds: int
    data: tuple[str, ...]
    libraries: tuple[str, ...]
    left_out: tuple[str, ...]


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
        return losses(model, self.kind, self.data.X_test.iloc[tests], self.data.y_test[tests])

    def on_halves(self, repetition: int) -> np.ndarray:
        """Return losses (halves, tests), each half trained with a seed of its own."""
        count = len(self.halves)
        seeds = FIRST_SEED + repetition * count + np.arange(count)

        def train(h: int) -> np.ndarray:
            return self.losses(self.fit(int(seeds[h]), self.halves[h]), self.tests)

        def compute() -> dict[str, np.ndarray]:
            return {"v": np.array(parallel(train, range(count)))}

        settings = self.key | {"halves": hashed(self.halves), "seeds": seeds.tolist()}
        return cached("halves", settings, compute)["v"]

    @cached_property
    def tracers(self) -> list[lt.Tracer]:
        """Tracers of the models whose influences are compared."""
        return [
            lt.Tracer(self.fit(seed), self.data.X, self.data.y) for seed in range(self.size.seeds)
        ]

    def values(self, method: Any, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Return influences (rows, tests) of each model."""
        X = self.data.X_test.iloc[tests]
        y = self.data.y_test[tests]
        return [
            tracer.influence(X, y, method=method, reduce=reduce).values for tracer in self.tracers
        ]

    def averaged(self, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Return influences (rows, tests) averaged over ten seeds."""
        found = lt.ensemble_influence(
            lambda seed: self.make(self.kind, seed),
            self.data.X,
            self.data.y,
            self.data.X_test.iloc[tests],
            self.data.y_test[tests],
            members=10,
            bag=1.0,
            reduce=reduce,
        )
        return [found.influence.values]

    def leave_one_out(self, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Return losses (rows, tests) with the row minus without it, of the model of seed 0."""
        every = np.arange(self.size.rows)
        wanted = slice(0, self.choose.stop)

        def without(i: int) -> np.ndarray:
            return self.losses(self.fit(0, np.delete(every, i)), wanted)

        def compute() -> dict[str, np.ndarray]:
            rows = tqdm(every, desc=f"{self.name}, alone", leave=False)
            return {"v": np.array(parallel(without, rows))}

        after = cached("alone", self.key, compute)["v"]
        values = (self.losses(self.fit(0), wanted) - after)[:, tests]
        return [values.mean(axis=1, keepdims=True) if reduce else values]

    def line(self, method: str, influences: Influences) -> dict[str, float]:
        """Return all columns of one line of the table."""
        settings = self.key | {
            "method": method,
            "how": repr(SINGLE.get(method)),
            "seeds": self.size.seeds,
            "halves": hashed(self.halves),
            "shares": SHARES,
        }
        found = cached("lines", settings, lambda: self.lds(influences) | self.curves(influences))
        return {name: float(value) for name, value in found.items()}

    def lds(self, influences: Influences) -> dict[str, float]:
        """Return the LDS and its standard error."""
        halves = self.halves.astype(float)
        values = influences(self.tests, None)
        found = np.concatenate([correlations(halves @ v, self.half_losses) for v in values])
        return {"lds": found.mean(), "lds_error": found.std(ddof=1) / np.sqrt(self.size.tests)}

    @cached_property
    def half_losses(self) -> np.ndarray:
        """Losses (halves, tests) that the LDS compares influences with."""
        return self.on_halves(0)

    def mean_loss(self, keep: np.ndarray | slice, y: np.ndarray | None = None) -> float:
        """Return the mean loss of the rows that judge, over three seeds."""
        models = (self.fit(FIRST_SEED + seed, keep, y) for seed in range(3))
        return float(np.mean([self.losses(model, self.judge).mean() for model in models]))

    @cached_property
    def before(self) -> float:
        """Mean loss with all rows."""
        return self.mean_loss(slice(None))

    def curves(self, influences: Influences) -> dict[str, float]:
        """Return changes of the loss in per cent of what it was, for each act and share."""
        values = influences(self.choose, "mean")[0][:, 0]
        order = np.argsort(values, kind="stable")  # most helpful first
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
        todo = [(act, share) for act in ACTS for share in SHARES]
        after = parallel(lambda item: acts[item[0]](round(item[1] * n)), todo)
        return {
            column(act, share): 100 * (loss / self.before - 1)
            for (act, share), loss in zip(todo, after, strict=True)
        }


def column(act: str, share: float) -> str:
    return f"{act}_{share:.0%}"


def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlations (tests,) over the halves.

    Ties are ranked in the order of the halves."""
    a, b = (x.argsort(axis=0).argsort(axis=0).astype(float) for x in (a, b))
    a = a - a.mean(axis=0)
    b = b - b.mean(axis=0)
    return (a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
