"""Averaging influence over models: agreement with retraining on halves of the rows. California housing, LightGBM."""

from __future__ import annotations

import numpy as np
from data import Data, houses
from lightgbm import LGBMRegressor

import leaftrace as lt

ROWS = 5_000
TESTS = 200
HALVES = 100
ALONE = 5
# of the calibration: groups of rows, and models that are trained without them
GROUPS = 20
GROUP = 50
AGAIN = 5
CHOSEN = 100  # rows to remove


def make(seed: int) -> LGBMRegressor:
    """100 trees of 31 leaves; half of the columns, drawn at random, for every split."""
    return LGBMRegressor(
        n_estimators=100, colsample_bynode=0.5, random_state=seed, n_jobs=1, verbosity=-1
    )


def run() -> str:
    data = houses(ROWS, TESTS)
    rng = np.random.default_rng(1)
    halves = rng.random((HALVES, ROWS)) < 0.5
    retrained = [predictions(data, halves, 1000 + again) for again in range(2)]
    rows = data.X, data.y, data.X_test
    seeds = lt.ensemble_influence(make, *rows, of="prediction", members=10, bag=1.0, n_jobs=1)
    bags = lt.ensemble_influence(make, *rows, of="prediction", members=20, bag=0.75, n_jobs=1)
    tracers = [lt.Tracer(member.model, data.X, data.y, n_jobs=1) for member in seeds.members]
    alone = {
        f"one model, {name}": np.mean(
            [lds(halves, ask(t, data, method), retrained[0]) for t in tracers[:ALONE]], axis=0
        )
        for name, method in (
            ("SinglePoint", lt.LeafInfluence(lt.SinglePoint())),
            ("exact", lt.LeafInfluence()),
        )
    }
    averaged = {
        "10 seeds, all rows": lds(halves, seeds.influence.values, retrained[0]),
        "20 bags of 75 % of the rows": lds(halves, bags.influence.values, retrained[0]),
        "retraining itself with another seed": correlations(retrained[1], retrained[0]),
    }
    lines = [
        f"| {name} | {c.mean():.2f} | {error(c):.3f} |" for name, c in (alone | averaged).items()
    ]
    return f"""## Influence that does not hang on one model

{ROWS:,} rows of California housing, {TESTS} test rows; LightGBM with 100 trees of 31 leaves, learning rate 0.1 and
`colsample_bynode=0.5`, which is all that seeds change. The model is trained on {HALVES} random halves of the rows. LDS
is the rank correlation of a test row's {HALVES} predictions with the sums of influences on it over the rows of each
half, averaged over the test rows. "One model" is the mean over {ALONE} seeds; no seed is one of those retrained.

| predicted by | LDS | standard error |
| --- | ---: | ---: |
{chr(10).join(lines)}

{calibration(data, tracers[:AGAIN], {"10 seeds, all rows": seeds, "20 bags of 75 % of the rows": bags})}

{removal(data)}"""


def predictions(data: Data, halves: np.ndarray, seed: int) -> np.ndarray:
    """(halves, tests)"""
    return np.array(
        [make(seed).fit(data.X[half], data.y[half]).predict(data.X_test) for half in halves]
    )


def ask(tracer: lt.Tracer, data: Data, method: lt.LeafInfluence) -> np.ndarray:
    return tracer.influence(data.X_test, of="prediction", method=method).values


def lds(halves: np.ndarray, values: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(tests,) from influences (rows, tests) and predictions (halves, tests)."""
    return correlations(halves.astype(float) @ values, truth)


def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(tests,) Spearman's, over the halves."""
    a, b = (x.argsort(axis=0).argsort(axis=0).astype(float) for x in (a, b))
    a = a - a.mean(axis=0)
    b = b - b.mean(axis=0)
    return (a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))


def error(values: np.ndarray) -> float:
    return values.std(ddof=1) / np.sqrt(len(values))


def calibration(
    data: Data, tracers: list[lt.Tracer], found: dict[str, lt.EnsembleInfluence]
) -> str:
    """Changes of predictions without random groups: slopes of what happens on what was predicted."""
    rng = np.random.default_rng(2)
    groups = [rng.choice(ROWS, GROUP, replace=False) for _ in range(GROUPS)]
    truth = np.zeros((2, GROUPS, TESTS))  # refitted, retrained: means over the models
    for tracer in tracers:
        before = tracer.refit().predict(data.X_test)
        for g, rows in enumerate(groups):
            for way, altered in enumerate((tracer.refit(rows), tracer.retrain(rows))):
                truth[way, g] += (altered.predict(data.X_test) - before) / len(tracers)
    lines = []
    for name, one in found.items():
        p = np.array([one.influence.change[rows].sum(axis=0) for rows in groups], dtype=float)
        slopes = [float((p * t).sum() / (p * p).sum()) for t in truth]
        share = float(np.mean([member.bag.mean() for member in one.members]))
        lines.append(f"| {name} | {slopes[0]:.2f} | {slopes[1]:.2f} |")
        if share < 1:
            lines.append(
                f"| the same, not scaled to all rows | {share * slopes[0]:.2f} | {share * slopes[1]:.2f} |"
            )
    return f"""Are the predicted changes of the right size? {GROUPS} random groups of {GROUP} rows are removed from
{AGAIN} models of all rows. The slope of the mean change of predictions on the predicted one (1: the right size) is near
1 with the trees fixed. Retraining moves predictions further: trees change too, which no influence of fixed trees sees.

| predicted by | slope of refitted | slope of retrained |
| --- | ---: | ---: |
{chr(10).join(lines)}"""


def removal(data: Data) -> str:
    (X, y), (X_held, y_held) = data.halves()
    found = lt.ensemble_influence(make, data.X, data.y, X, y, reduce="mean", n_jobs=1)
    single = lt.Tracer(make(0).fit(data.X, data.y), data.X, data.y).influence(X, y, reduce="mean")
    lines = []
    sayings = []
    for name, one in (
        (f"the average of {len(found.members)} bags", found.influence),
        ("one model of all rows", single),
    ):
        rows = np.argsort(one.change[:, 0])[:CHOSEN]
        confirmed = found.confirm(rows, X_held, y_held)
        line = confirmed.effects.iloc[0]
        sayings.append(f"Chosen by {name}: {confirmed.advice}")
        numbers = [f"{line[column]:+.4f}" for column in ("predicted", "refitted", "retrained")]
        lines.append(f"| {name} | {line['before']:.4f} | {' | '.join(numbers)} |")
    return f"""The {CHOSEN} rows most harmful to the mean loss (half the squared error) of one half of the test rows are
removed from all members, which are judged on the other half. What `confirm` says of it:

- {f"{chr(10)}- ".join(sayings)}
- Of the average itself: {found.advice.partition(" Act on")[0]}

| chosen by | loss before | predicted | refitted | retrained |
| --- | ---: | ---: | ---: | ---: |
{chr(10).join(lines)}
"""


if __name__ == "__main__":
    print(run())
