"""Averaging influence over models: agreement with retraining on halves of the rows.

The data are California housing, the model is LightGBM."""

from __future__ import annotations

import numpy as np
from data import Data, houses
from lightgbm import LGBMRegressor

import leaftrace as lt

ROWS = 5_000
TESTS = 200
HALVES = 100
ALONE = 5  # models of all rows whose scores are averaged
# For the calibration: groups of rows, their size, and the models that are trained without them.
GROUPS = 20
GROUP = 50
AGAIN = 5
CHOSEN = 100  # rows to remove
SEEDS = "10 seeds, all rows, trees fixed"
BAGS = "20 bags of 75 % of the rows, trees fixed"
DEFAULT = "`ensemble_influence` as it stands: 20 halves of the rows, splits give way, refitted"


def make(seed: int) -> LGBMRegressor:
    """Return a model of 100 trees of 31 leaves that draws half of the columns for every split."""
    return LGBMRegressor(
        n_estimators=100, colsample_bynode=0.5, random_state=seed, n_jobs=1, verbosity=-1
    )


def run() -> str:
    data = houses(ROWS, TESTS)
    rng = np.random.default_rng(1)
    halves = rng.random((HALVES, ROWS)) < 0.5
    retrained = [predictions(data, halves, 1000 + again) for again in range(2)]
    rows = data.X, data.y, data.X_test
    seeds, bags = (
        lt.ensemble_influence(
            make,
            *rows,
            of="prediction",
            members=members,
            bag=bag,
            method=lt.LeafInfluence(),
            n_jobs=1,
        )
        for members, bag in ((10, 1.0), (20, 0.75))
    )
    default = lt.ensemble_influence(make, *rows, data.y_test, of="prediction", n_jobs=1)
    tracers = [lt.Tracer(member.model, data.X, data.y, n_jobs=1) for member in seeds.members]
    alone = {
        f"one model, {name}": np.mean(
            [lds(halves, influences(t, data, method), retrained[0]) for t in tracers[:ALONE]],
            axis=0,
        )
        for name, method in (
            ("SinglePoint", lt.LeafInfluence(lt.SinglePoint())),
            ("exact", lt.LeafInfluence()),
        )
    }
    averaged = {
        SEEDS: lds(halves, seeds.influence.values, retrained[0]),
        BAGS: lds(halves, bags.influence.values, retrained[0]),
        DEFAULT: lds(halves, default.influence.values, retrained[0]),
        "retraining itself with another seed": correlations(retrained[1], retrained[0]),
    }
    lines = [
        f"| {name} | {c.mean():.2f} | {standard_error(c):.3f} |"
        for name, c in (alone | averaged).items()
    ]
    return f"""## Influence that does not depend on one model

The data are {ROWS:,} training rows and {TESTS} test rows of California housing. The model is LightGBM with 100
trees of 31 leaves, learning rate 0.1 and `colsample_bynode=0.5`; the seed changes only the columns
drawn for each split.

The LDS (linear datamodelling score) says how well influences predict retraining. The model is trained
on {HALVES} random halves of the rows. For each test row, the LDS is the rank correlation of its {HALVES}
predictions with the sums of the influences on it over the rows of each half. The table has the mean
over the test rows. "One model" is the mean over {ALONE} seeds. The seeds of the influences are not used to
retrain.

| predicted by | LDS | standard error |
| --- | ---: | ---: |
{chr(10).join(lines)}

{calibration(data, tracers[:AGAIN], {SEEDS: seeds, BAGS: bags, DEFAULT: default})}

{removal(data)}"""


def predictions(data: Data, halves: np.ndarray, seed: int) -> np.ndarray:
    """Return predictions (halves, tests) of models trained on each half."""
    return np.array(
        [make(seed).fit(data.X[half], data.y[half]).predict(data.X_test) for half in halves]
    )


def influences(tracer: lt.Tracer, data: Data, method: lt.LeafInfluence) -> np.ndarray:
    """Return influences (rows, tests) on the predictions."""
    return tracer.influence(data.X_test, of="prediction", method=method).values


def lds(halves: np.ndarray, values: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the LDS (tests,) of influences (rows, tests) and predictions (halves, tests)."""
    return correlations(halves.astype(float) @ values, predicted)


def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlations (tests,) over the halves."""
    a, b = (x.argsort(axis=0).argsort(axis=0).astype(float) for x in (a, b))
    a = a - a.mean(axis=0)
    b = b - b.mean(axis=0)
    return (a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))


def standard_error(values: np.ndarray) -> float:
    return values.std(ddof=1) / np.sqrt(len(values))


def calibration(
    data: Data, tracers: list[lt.Tracer], found: dict[str, lt.EnsembleInfluence]
) -> str:
    """Return slopes of actual on predicted changes of predictions, without random groups of rows."""
    rng = np.random.default_rng(2)
    groups = [rng.choice(ROWS, GROUP, replace=False) for _ in range(GROUPS)]
    actual = np.zeros((2, GROUPS, TESTS))  # refitted, retrained: means over the models
    for tracer in tracers:
        before = tracer.refit().scores(data.X_test)[:, 0]
        for g, rows in enumerate(groups):
            for way, altered in enumerate((tracer.refit(rows), tracer.retrain(rows))):
                actual[way, g] += (altered.scores(data.X_test)[:, 0] - before) / len(tracers)
    lines = []
    for name, ensemble in found.items():
        change = ensemble.influence.change
        predicted = np.array([change[rows].sum(axis=0) for rows in groups], dtype=float)
        slopes = [float((predicted * a).sum() / (predicted * predicted).sum()) for a in actual]
        lines.append(f"| {name} | {slopes[0]:.2f} | {slopes[1]:.2f} |")
    return f"""Are the predicted changes of the right size? {GROUPS} random groups of {GROUP} rows are
removed from {AGAIN} models of all rows. We regress the mean change of predictions on the predicted change;
a slope of 1 means the right size. Influences with the trees fixed are compared with refits, for which
the slope is near 1, also for bags, whose influences are scaled to all rows. Retraining moves predictions
further, because trees change too, which they leave out.

| predicted by | slope of refitted | slope of retrained |
| --- | ---: | ---: |
{chr(10).join(lines)}"""


def removal(data: Data) -> str:
    """Return what removing the most harmful rows does, chosen by the average and by one model."""
    (X, y), (X_held, y_held) = data.halves()
    found = lt.ensemble_influence(make, data.X, data.y, X, y, reduce="mean", n_jobs=1)
    single = lt.Tracer(make(0).fit(data.X, data.y), data.X, data.y).influence(X, y, reduce="mean")
    lines = []
    advice = []
    for name, influence in (
        (f"the average of {len(found.members)} bags", found.influence),
        ("one model of all rows", single),
    ):
        rows = np.argsort(influence.change[:, 0])[:CHOSEN]
        confirmed = found.confirm(rows, X_held, y_held)
        line = confirmed.effects.iloc[0]
        advice.append(f"Chosen by {name}: {confirmed.advice}")
        numbers = [f"{line[column]:+.4f}" for column in ("predicted", "refitted", "retrained")]
        lines.append(f"| {name} | {line['before']:.4f} | {' | '.join(numbers)} |")
    return f"""The {CHOSEN} rows that are most harmful to the mean loss (half the squared error) of one half of the test
rows are removed from all members of the ensemble, which are then judged on the other half.
`confirm` and the average report:

- {f"{chr(10)}- ".join(advice)}
- The average itself: {found.advice.partition(" Act on")[0]}

| chosen by | loss before | predicted | refitted | retrained |
| --- | ---: | ---: | ---: | ---: |
{chr(10).join(lines)}
"""


if __name__ == "__main__":
    print(run())
