"""Measure how often `lt.gate` stops clean batches and batches with wrong labels, and write docs/gate.md.

python experiments/gate.py      # a few minutes on one core
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import data
import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier

import leaftrace as lt

PAGE = Path(__file__).parents[1] / "docs" / "gate.md"
TRAIN = 8000  # rows at most
TESTS = 3000
BATCHES = 20
SHARES = (0.0, 0.02, 0.05, 0.1)  # of wrong labels
SIZES = (300, 1000)

HEAD = """# The gate, measured

How often `lt.gate` stops a batch of new rows, with all limits at their defaults. Batches are drawn
from test rows that are used for nothing else; in some, a share of the labels is replaced: by another
class, or for numbers by that of another row. The statistics and the limits were chosen on the first
two data sets, before the gate had been tried on the others. Each cell counts the batches that were
stopped, of {batches} draws; the last columns have the mean share of labels that looked wrong, by the true share.
`experiments/gate.py` writes this page; the data sets are not part of this repository.

"""
FOOT = """
On the data sets that the gate was not built on, it stopped {clean} of {clean_all} clean batches
and {noisy} of {noisy_all} with a tenth of wrong labels. Two in a hundred is the default limit,
so a batch with 2 % of wrong labels is right at it and passes; one with 5 % is stopped if it has rows enough. The
less a model knows of its labels, the wider are the intervals: the three grades of wine overlap, and there a tenth of
wrong labels needs thousands of rows to be certain of.
"""


@dataclass(frozen=True)
class World:
    """A data set, and how its model is trained."""

    name: str
    rows: Callable[[], data.Data]
    model: Callable[[], Any]
    built_on: bool = False


def cat() -> CatBoostClassifier:
    return CatBoostClassifier(
        iterations=60, verbose=0, allow_writing_files=False, random_seed=0, thread_count=1
    )


WORLDS = (
    World("Adult, LightGBM", data.adult, lambda: LGBMClassifier(n_estimators=60, verbose=-1), True),
    World(
        "California housing, LightGBM",
        lambda: data.houses(8000, 8000),
        lambda: LGBMRegressor(n_estimators=60, verbose=-1),
        True,
    ),
    World("Amazon, XGBoost", data.amazon, lambda: XGBClassifier(n_estimators=60, n_jobs=1)),
    World("Hospital, CatBoost", lambda: data.hospital(biased=False), cat),
    World(
        "Wine in three classes, HistGradientBoosting",
        lambda: data.wine(2500, 3997),
        lambda: HistGradientBoostingClassifier(max_iter=60, early_stopping=False),
    ),
    World(
        "Upselling, LightGBM",
        data.upselling,
        lambda: LGBMClassifier(n_estimators=60, num_leaves=15, verbose=-1),
    ),
)


def with_wrong_labels(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return labels of which this share is replaced."""
    y = y.copy()
    rows = rng.choice(len(y), round(share * len(y)), replace=False)
    if y.dtype.kind == "f":
        y[rows] = rng.permutation(y)[: len(rows)]
        return y
    classes = np.unique(y)
    for i in rows:
        y[i] = rng.choice(classes[classes != y[i]])
    return y


def measure(world: World) -> tuple[dict[tuple[int, float], int], dict[float, float]]:
    """Return how many batches were stopped, by size and share, and the mean estimate of the share."""
    given = world.rows()
    X = given.X[:TRAIN]
    y = given.y[:TRAIN]
    tracer = lt.Tracer(world.model().fit(X, y), X, y, n_jobs=1)
    tests = min(TESTS, len(given.y_test) // 2)
    X_test = given.X_test[:tests]
    y_test = given.y_test[:tests]
    stopped = {(size, share): 0 for size in SIZES for share in SHARES}
    found: dict[float, list[float]] = {share: [] for share in SHARES}
    rng = np.random.default_rng(0)
    rest = np.arange(tests, len(given.y_test))
    for _ in range(BATCHES):
        drawn = rng.choice(rest, max(SIZES), replace=False)
        for size, share in stopped:
            rows = drawn[:size]
            labels = with_wrong_labels(given.y_test[rows], share, rng)
            result = lt.gate(tracer, given.X_test.iloc[rows], labels, X_test, y_test)
            stopped[size, share] += not result.passed
            found[share].append(result.checks[1].value)
    return stopped, {share: float(np.mean(values)) for share, values in found.items()}


def main() -> None:
    lines = []
    counts = {0.0: 0, 0.1: 0}
    for world in WORLDS:
        stopped, found = measure(world)
        for size in SIZES:
            line: dict[str, Any] = {"data and model": world.name, "new rows": size}
            line["used to build"] = "yes" if world.built_on else "no"
            line |= {f"{share:.0%} wrong": stopped[size, share] for share in SHARES}
            line |= {f"found at {share:.0%}": f"{found[share]:.1%}" for share in SHARES}
            lines.append(line)
            print(line, flush=True)
            if not world.built_on:
                for share in counts:
                    counts[share] += stopped[size, share]
    table = pd.DataFrame(lines)
    head = "| " + " | ".join(table.columns) + " |\n" + "| --- " * len(table.columns) + "|\n"
    body = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in table.to_numpy().tolist())
    every = BATCHES * len(SIZES) * sum(not world.built_on for world in WORLDS)
    foot = FOOT.format(clean=counts[0.0], clean_all=every, noisy=counts[0.1], noisy_all=every)
    PAGE.write_text(HEAD.format(batches=BATCHES) + head + body + "\n" + foot)


if __name__ == "__main__":
    main()
