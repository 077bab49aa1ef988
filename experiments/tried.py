"""What was tried with StructureInfluence: averages of models, and sizes of effects.

python experiments/tried.py        # -> docs/paper/tried.md, which docs/structure.md refers to

The data chose among the averages, so they do not judge them: `paper.py attribution` does, on others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from attribution import World
from attribution_text import error_of_mean, precise
from paper_attribution import QUICK, mean_and_errors
from results import folder_of, markdown
from store import cached, code

import leaftrace as lt

L2 = "LightGBM, l2 = 10"
LINES = (
    ("adult", "CatBoost"),
    ("adult", "XGBoost"),
    ("adult", "LightGBM"),
    ("adult", L2),
    ("houses", "XGBoost"),
    ("houses", L2),
)
SIZED = (("adult", "XGBoost"), ("adult", L2), ("houses", "XGBoost"), ("houses", L2))
ALL = 1.0
HALF = 0.5
FIXED = 0.0  # in place of a temperature
FIRST_BAG_SEED = 5_000
FEW = 10  # retrainings that tell a slope
REMOVED = (0.05, 0.2)
GROUPS = 24


@dataclass(frozen=True)
class Members:
    """Some models on bags of one size, by StructureInfluence, or by LeafInfluence if `FIXED`."""

    count: int
    share: float
    temperature: float


AVERAGES = {
    "10 seeds, LeafInfluence": [Members(10, ALL, FIXED)],
    "10 seeds, temperature 1": [Members(10, ALL, 1.0)],
    "10 seeds, temperature 0.5": [Members(10, ALL, 0.5)],
    "10 bags, temperature 1": [Members(10, HALF, 1.0)],
    "10 bags, temperature 0.5": [Members(10, HALF, 0.5)],
    "24 bags, LeafInfluence": [Members(24, HALF, FIXED)],
    "24 bags, temperature 1": [Members(24, HALF, 1.0)],
    "24 bags, temperature 0.5": [Members(24, HALF, 0.5)],
    "5 seeds and 5 bags, temperature 1": [Members(5, ALL, 1.0), Members(5, HALF, 1.0)],
    "5 seeds and 5 bags, temperature 0.5": [Members(5, ALL, 0.5), Members(5, HALF, 0.5)],
    "8 seeds and 8 bags, LeafInfluence": [Members(8, ALL, FIXED), Members(8, HALF, FIXED)],
    "8 seeds and 8 bags, temperature 1": [Members(8, ALL, 1.0), Members(8, HALF, 1.0)],
    "8 seeds and 8 bags, temperature 0.5": [Members(8, ALL, 0.5), Members(8, HALF, 0.5)],
    "8 seeds at 1 and 8 bags at 0.5": [Members(8, ALL, 1.0), Members(8, HALF, 0.5)],
    "8 seeds at 0.5 and 8 bags at 1": [Members(8, ALL, 0.5), Members(8, HALF, 1.0)],
    "10 seeds and 24 bags, temperature 0.5": [Members(10, ALL, 0.5), Members(24, HALF, 0.5)],
}
SIZES = {
    "LeafInfluence, one model": [Members(1, ALL, FIXED)],
    "LeafInfluence, 10 seeds": [Members(10, ALL, FIXED)],
    "StructureInfluence, one model": [Members(1, ALL, 1.0)],
    "StructureInfluence, 10 seeds": [Members(10, ALL, 1.0)],
    "8 seeds and 8 bags, temperature 0.5": AVERAGES["8 seeds and 8 bags, temperature 0.5"],
}


def member(world: World, number: int, share: float, temperature: float) -> np.ndarray:
    """Return influences (rows, tests) of one model, on the scale of all rows.

    Rows that are not in its bag are candidates at weight zero."""
    n = world.size.rows
    keep = np.zeros(n, bool)
    rng = np.random.default_rng((77, number, int(100 * share)))
    keep[rng.permutation(n)[: round(share * n)]] = True
    method = lt.StructureInfluence(temperature) if temperature else lt.LeafInfluence()
    X = world.data.X
    y = world.data.y

    def compute() -> dict[str, np.ndarray]:
        seed = number if share == ALL else FIRST_BAG_SEED + number
        tests = world.rows(world.tests)
        tracer = lt.Tracer(world.fit(seed, keep), X.iloc[keep], y[keep])
        values = np.zeros((n, world.size.tests), np.float32)
        values[keep] = tracer.influence(*tests, method=method).values
        if not keep.all():
            left_out = tracer.score_candidates(X.iloc[~keep], *tests, y[~keep], method=method)
            values[~keep] = left_out.values
        return {"v": share * values}

    settings = {"number": number, "share": share, "method": repr(method), "code": code()}
    return cached("members", world.key | settings, compute)["v"].astype(float)


def average(world: World, groups: list[Members]) -> np.ndarray:
    """Return the mean over groups of the means over their members."""
    means = []
    for group in groups:
        numbers = range(group.count)
        found = [member(world, k, group.share, group.temperature) for k in numbers]
        means.append(np.mean(found, axis=0))
    return np.mean(means, axis=0)


def averages_table(worlds: dict[tuple[str, str], World]) -> str:
    """Return the LDS of averages, over all lines."""
    found = {}
    for line, world in worlds.items():
        for label, groups in AVERAGES.items():
            lds = world.lds(world.summed([average(world, groups)]))
            found[label, *line] = mean_and_errors(lds)
        ceiling = world.retrained_lds(world.size.repeats)
        found[f"ceiling: mean of {world.size.repeats} retrainings", *line] = mean_and_errors(
            ceiling
        )
    numbers = pd.DataFrame(found).T.rename_axis(["method", "data", "library"])
    lds = numbers["lds"].unstack("method", sort=False)
    table = pd.DataFrame(
        {
            "models": [sum(m.count for m in groups) for groups in AVERAGES.values()] + [""],
            "LDS, mean": lds.mean().map(precise),
            "error, test rows": error_of_mean(
                numbers["lds_error"].unstack("method", sort=False)
            ).map(precise),
            "share of the ceiling, mean": lds.div(lds.iloc[:, -1], axis=0).mean().map(precise),
        }
    )
    return markdown(table.reset_index())


def slope(predicted: np.ndarray, actual: np.ndarray) -> float:
    return float((predicted * actual).sum() / (predicted**2).sum())


def removed(world: World, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return random groups of rows (groups, rows), and changes of losses (groups, tests) without."""
    n = world.size.rows
    rng = np.random.default_rng((5, int(100 * share)))
    groups = np.array([rng.permutation(n) < round(share * n) for _ in range(GROUPS)])

    def losses(first_seed: int, keep: np.ndarray, count: int) -> np.ndarray:
        models = (world.fit(first_seed + k, keep) for k in range(count))
        return np.mean([world.losses(model, world.tests) for model in models], axis=0)

    def compute() -> dict[str, np.ndarray]:
        before = losses(3_000, np.ones(n, bool), 12)
        after = [losses(4_000 + 3 * g, ~group, 3) for g, group in enumerate(groups)]
        return {"v": np.array(after) - before}

    return groups, cached("removed", world.key | {"share": share, "groups": GROUPS}, compute)["v"]


def sizes_of(world: World, values: np.ndarray) -> dict[str, float]:
    """Return slopes of retrained on predicted changes, and what is explained of the halves."""
    predicted = world.summed([values])[0]
    predicted -= predicted.mean(axis=0)
    actual = np.mean(world.repetitions, axis=0)
    actual -= actual.mean(axis=0)
    found = {}
    for share in REMOVED:
        groups, change = removed(world, share)
        found[f"slope, {share:.0%} removed"] = slope(-(groups.astype(float) @ values), change)
    found["slope, halves"] = slope(predicted, actual)

    def explained(factor: float) -> float:
        return float(1 - ((actual - factor * predicted) ** 2).sum() / (actual**2).sum())

    few = []
    halves, losses = world.on_fresh_halves(world.size.fresh[-1])
    for start in range(0, len(halves), FEW):
        part = slice(start, start + FEW)
        x = halves[part].astype(float) @ values
        few.append(slope(x - x.mean(axis=0), losses[part] - losses[part].mean(axis=0)))
    found["explained as it is"] = explained(1.0)
    found[f"with the slope of {FEW} retrainings"] = float(np.mean([explained(s) for s in few]))
    found["with the best slope"] = explained(found["slope, halves"])
    return found


def run() -> str:
    size = replace(
        QUICK, data=("adult", "houses"), libraries=("CatBoost", "XGBoost", "LightGBM", L2)
    )
    worlds = {line: World(*line, size) for line in LINES}
    sizes = {}
    for line in SIZED:
        for label, groups in SIZES.items():
            sizes[label, *line] = sizes_of(worlds[line], average(worlds[line], groups))
    mean = pd.DataFrame(sizes).T.groupby(level=0, sort=False).mean().rename_axis("method")
    lines = "; ".join(f"{name} with {library}" for name, library in LINES)
    return f"""### Averages

{size.rows:,} training rows, {size.tests} test rows, {size.halves} halves, {1 + size.repeats} repetitions: {lines}.
"Seeds" are models of all rows, "bags" models of half of them, which score the rows left out, too.

{averages_table(worlds)}

### Sizes of effects

Slopes of retrained on predicted changes of losses, without {GROUPS} random groups of rows (three
trainings each) and over the halves; then the share of the variance over the halves that predictions
explain: as they are, times the slope of {FEW} other retrained halves, and times the best slope. Means over
Adult and California housing with XGBoost and LightGBM (l2 = 10).

{markdown(mean.map("{:.2f}".format).reset_index())}
"""


if __name__ == "__main__":
    path = folder_of(True) / "tried.md"
    path.write_text(run())
    print(path.read_text())
