"""Protocols that act on a ranking of training rows and judge it by retraining.

    acts         remove, relabel or clean a share of the rows, in one shot or in rounds: score, act on
                 some rows, train again
    brittleness  the fewest rows whose removal changes the class of a test row
    backdoor     training rows with a trigger and a false label are injected; the rows most harmful to
                 test rows with the trigger should be these
    poison       near copies of a test row with a false label are injected; likewise

A method is a value that `Tracer.influence` takes as ``method=``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from attribution import FIRST_SEED, World
from models import other_labels
from noisy import auc
from store import cached, code, parallel

import leaftrace as lt

SHARE = 0.05  # of the rows that are changed; Amazon's rarer class is 6 % of them
FEWEST_SHARE = 0.2  # of the rows that are removed at most to change a prediction
INJECTED = 0.02  # rows with a trigger, of the training rows
COPIES = 10  # near copies of one test row
JUDGES = 3  # models of other seeds that judge each change


def act(world: World, method: Any, name: str, rounds: int) -> float:
    """Return the change of the judged loss in per cent by an act on a share of the rows."""
    settings = world.key | {"how": repr(method), "act": name, "rounds": rounds, "code": code()}

    def compute() -> dict[str, np.ndarray]:
        kept, y = acted(world, method, name, rounds)
        after = world.mean_loss(np.flatnonzero(kept), y)
        return {"change": np.array(100 * (after / world.before - 1))}

    return float(cached("acts", settings, compute)["change"])


def acted(world: World, method: Any, name: str, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows (n,) are kept, and labels (n,), after all rounds of an act.

    Each round traces a new model, with a seed of its own, of the rows as they are then."""
    n = world.size.rows
    kept = np.ones(n, bool)
    untouched = np.ones(n, bool)
    y = world.data.y.copy()
    wrong = other_labels(world.data.y, world.kind)
    edges = np.round(np.linspace(0, SHARE * n, rounds + 1)).astype(int)
    for seed, count in enumerate(np.diff(edges)):
        rows = np.flatnonzero(kept)
        values = mean_influence(world, world.fit(seed, rows, y), rows, y, method)
        order = rows[np.argsort(values, kind="stable")]  # most helpful first
        order = order[untouched[order]]
        chosen = order[::-1][:count] if name == "clean" else order[:count]
        untouched[chosen] = False
        if name == "relabel":
            y[chosen] = wrong[chosen]
        else:
            kept[chosen] = False
    return kept, y


def mean_influence(
    world: World, model: Any, rows: np.ndarray, y: np.ndarray, method: Any
) -> np.ndarray:
    """Return influences (rows,) on the mean loss of the rows to choose by."""
    tracer = lt.Tracer(model, world.data.X.iloc[rows], y[rows], n_jobs=1)
    chosen = world.rows(world.choose)
    return tracer.influence(*chosen, method=method, reduce="mean").values[:, 0]


# ---- brittleness ----


def fewest(world: World, method: Any, count: int) -> np.ndarray:
    """Return (count,) how many rows had to go for a test row to change its class; NaN: too many.

    Rows go in the order of their help to the test row. The number is found by doubling and bisection;
    a class has changed if the mean prediction of several retrainings says so."""
    tests = brittle_rows(world, count)
    settings = world.key | {"how": repr(method), "tests": tests.tolist(), "code": code()}

    def compute() -> dict[str, np.ndarray]:
        X = world.data.X_test.iloc[tests]
        values = world.tracers[0].influence(X, world.data.y_test[tests], method=method).values
        items = list(zip(tests, np.argsort(values, axis=0, kind="stable").T, strict=True))
        return {"v": np.array(parallel(lambda item: fewest_of_row(world, *item), items))}

    return cached("fewest", settings, compute)["v"]


def brittle_rows(world: World, count: int) -> np.ndarray:
    """Return the first test rows that models of all judging seeds predict rightly."""
    every = np.arange(world.judge.start, world.judge.stop)
    right = classes(world, slice(None), every)[1] == world.data.y_test[every]
    return every[right.all(axis=0)][:count]


def classes(world: World, keep: Any, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean probabilities (tests, classes) of retrained models, and the classes of each."""
    X = world.data.X_test.iloc[tests]
    models = [world.fit(FIRST_SEED + seed, keep) for seed in range(JUDGES)]
    p = np.array([model.predict_proba(X) for model in models])
    return p.mean(axis=0), p.argmax(axis=2)


def fewest_of_row(world: World, test: int, order: np.ndarray) -> float:
    """Return how many of these rows have to go for one test row; NaN if that is too many."""
    n = len(order)
    label = world.data.y_test[test]

    def changed(k: int) -> bool:
        mean, _ = classes(world, np.sort(order[k:]), np.array([test]))
        return bool(mean[0].argmax() != label)

    return bisected(changed, round(FEWEST_SHARE * n))


def bisected(changed: Any, most: int) -> float:
    """Return a k up to `most` with changed(k) and not changed(k - 1); NaN if doubling finds none."""
    low = 0  # not changed
    high = 1
    while not changed(high):
        if high == most:
            return float("nan")
        low = high
        high = min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        if changed(middle):
            high = middle
        else:
            low = middle
    return float(high)


# ---- injected rows ----


@dataclass(frozen=True)
class Attack:
    """A training set with injected rows, and the test rows that they are meant to change.

    ``X, y``            training rows, the injected ones last
    ``X_test, y_test``  test rows with their true labels
    ``false``           the label of the injected rows"""

    world: World
    X: pd.DataFrame
    y: np.ndarray
    injected: int
    X_test: pd.DataFrame
    y_test: np.ndarray
    false: int

    @cached_property
    def tracer(self) -> lt.Tracer:
        return lt.Tracer(self.fit(0, np.arange(len(self.y))), self.X, self.y, n_jobs=1)

    def fit(self, seed: int, keep: np.ndarray) -> Any:
        return self.world.make(self.world.kind, seed).fit(self.X.iloc[keep], self.y[keep])

    def success(self, keep: np.ndarray) -> float:
        """Return the share of the test rows that get the false label, over several retrainings."""
        models = [self.fit(FIRST_SEED + seed, keep) for seed in range(JUDGES)]
        hits = [np.ravel(model.predict(self.X_test)) == self.false for model in models]
        return float(np.mean(hits))

    def found(self, method: Any) -> dict[str, float]:
        """Return how well a method finds the injected rows, and the success without its choice.

        Its choice are as many rows as were injected, the most harmful ones."""
        asked = self.tracer.influence(self.X_test, self.y_test, method=method, reduce="mean")
        values = asked.values[:, 0]
        order = np.argsort(-values, kind="stable")
        is_injected = np.arange(len(values)) >= len(values) - self.injected
        return {
            "auc": auc(is_injected, values),
            "found": float(is_injected[order[: self.injected]].mean()),
            "success after": self.success(np.sort(order[self.injected :])),
        }


def backdoor(world: World) -> Attack:
    """Return rows of which some have a trigger and another label than theirs.

    The trigger sets the two columns of most different values to a high and to a low value, both of
    which are in the data."""
    draw = np.random.default_rng(11)
    X = world.data.X
    columns = X.nunique().sort_values(ascending=False, kind="stable").index[:2]
    high = X[columns[0]].quantile(0.95, "nearest")
    low = X[columns[1]].quantile(0.05, "nearest")
    trigger = {columns[0]: high, columns[1]: low}
    common, false = np.argsort(-np.bincount(world.data.y), kind="stable")[:2]
    count = round(INJECTED * len(X))
    rows = draw.choice(np.flatnonzero(world.data.y == common), count, replace=False)
    added = X.iloc[rows].assign(**trigger).astype(X.dtypes)
    tests = np.flatnonzero(world.data.y_test == common)[: world.size.tests]
    return Attack(
        world,
        pd.concat([X, added], ignore_index=True),
        np.r_[world.data.y, np.full(count, false)],
        count,
        world.data.X_test.iloc[tests].assign(**trigger).astype(X.dtypes),
        world.data.y_test[tests],
        int(false),
    )


def poison(world: World, test: int) -> Attack:
    """Return rows of which some are near copies of a test row, with another label.

    A copy has the values of the test row, but for a third of the columns, which it has from other rows."""
    draw = np.random.default_rng((12, test))
    X = world.data.X
    label = int(world.data.y_test[test])
    false = int(other_labels(world.data.y_test, "classes")[test])
    copies = pd.concat([world.data.X_test.iloc[[test]]] * COPIES, ignore_index=True)
    for i in range(COPIES):
        columns = draw.choice(len(X.columns), len(X.columns) // 3, replace=False)
        copies.iloc[i, columns] = X.iloc[int(draw.integers(len(X))), columns].to_numpy()
    return Attack(
        world,
        pd.concat([X, copies.astype(X.dtypes)], ignore_index=True),
        np.r_[world.data.y, np.full(COPIES, false)],
        COPIES,
        world.data.X_test.iloc[[test]],
        np.array([label]),
        false,
    )


def attacked(world: World, method: Any, attacks: str, count: int) -> dict[str, float]:
    """Return the mean over attacks of what `Attack.found` gives, and their success before.

    ``attacks``: "backdoor", of which there is one, or "poison" of this many test rows."""
    settings = world.key | {"how": repr(method), "kind": attacks, "count": count, "code": code()}

    def compute() -> dict[str, np.ndarray]:
        made = [backdoor(world)]
        if attacks == "poison":
            made = [poison(world, int(test)) for test in brittle_rows(world, count)]
        before = [one.success(np.arange(len(one.y))) for one in made]
        lines = pd.DataFrame([one.found(method) for one in made]).assign(before=before)
        return {name: np.array(value) for name, value in lines.mean().items()}

    found = cached("attacks", settings, compute)
    return {name: float(value) for name, value in found.items()}
