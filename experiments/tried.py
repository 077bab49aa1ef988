"""What was tried with StructureInfluence: averages of models, and sizes of effects.

python experiments/tried.py        # -> docs/paper/tried.md, which docs/structure.md refers to

The data chose among the averages, so they do not judge them: `paper.py attribution` does, on others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

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
MOST = 0.75
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


@dataclass(frozen=True)
class Way:
    """How members are averaged.

    ``mean_slopes``  the slopes of a loss are means over the members; otherwise each has its own
    ``alike``        rows inside and outside of bags count alike, and values outside are brought to the
                     size of those inside; otherwise every member counts alike"""

    groups: tuple[Members, ...]
    mean_slopes: bool = False
    alike: bool = False

    @property
    def count(self) -> int:
        """Number of models."""
        return sum(members.count for members in self.groups)


@dataclass(frozen=True)
class Halves:
    """`ensemble_influence` over this many halves of the rows, refitted on other rows or not."""

    count: int
    refits: bool


def bags(count: int, share: float, temperature: float) -> Way:
    """Return the average that `ensemble_influence` makes of bags of one size."""
    return Way((Members(count, share, temperature),), mean_slopes=True, alike=True)


def bags_in_turn(count: int, temperature: float) -> Way:
    """Return the same of bags of half and of three quarters of the rows."""
    halves = Members(count // 2, HALF, temperature)
    return Way((halves, Members(count // 2, MOST, temperature)), mean_slopes=True, alike=True)


AVERAGES: dict[str, Way | Halves] = {
    "10 seeds, LeafInfluence": Way((Members(10, ALL, FIXED),)),
    "10 seeds, temperature 1": Way((Members(10, ALL, 1.0),)),
    "10 seeds, temperature 0.5": Way((Members(10, ALL, 0.5),)),
    "10 seeds, temperature 0.25": Way((Members(10, ALL, 0.25),)),
    "30 bags of a half at 0.25, each with its own slopes": Way((Members(30, HALF, 0.25),)),
    "the same with mean slopes": Way((Members(30, HALF, 0.25),), mean_slopes=True),
    "the same, rows inside and outside alike": bags(30, HALF, 0.25),
    "the same, LeafInfluence": bags(30, HALF, FIXED),
    "the same, temperature 0.15": bags(30, HALF, 0.15),
    "the same, temperature 0.5": bags(30, HALF, 0.5),
    "the same, temperature 1": bags(30, HALF, 1.0),
    "30 bags of a third at 0.25": bags(30, 0.34, 0.25),
    "30 bags of two thirds": bags(30, 0.67, 0.25),
    "30 bags of three quarters": bags(30, MOST, 0.25),
    "10 bags of halves and three quarters in turn": bags_in_turn(10, 0.25),
    "20 of them": bags_in_turn(20, 0.25),
    "30 of them": bags_in_turn(30, 0.25),
    "40 of them": bags_in_turn(40, 0.25),
    "60 of them": bags_in_turn(60, 0.25),
    "10 halves that spread labels evenly": Halves(10, refits=False),
    "the same, refitted on the rest and on all rows": Halves(10, refits=True),
    "20 halves that spread labels evenly": Halves(20, refits=False),
    "the same, refitted: ensemble_influence as it stands": Halves(20, refits=True),
}
SIZES: dict[str, Way | Halves] = {
    "LeafInfluence, one model": Way((Members(1, ALL, FIXED),)),
    "LeafInfluence, 10 seeds": Way((Members(10, ALL, FIXED),)),
    "StructureInfluence, one model": Way((Members(1, ALL, 1.0),)),
    "StructureInfluence, 10 seeds": Way((Members(10, ALL, 1.0),)),
    "StructureInfluence, 40 bags": bags_in_turn(40, 0.25),
    "StructureInfluence, 20 halves, refitted": Halves(20, refits=True),
}


def bag_of(world: World, number: int, share: float) -> np.ndarray:
    """Return which rows are in a bag (rows,). Bags of a round leave out rows of one permutation in turn."""
    n = world.size.rows
    keep = np.ones(n, bool)
    if share < ALL:
        count = n - round(share * n)
        turn, place = divmod(number, n // count)
        order = np.random.default_rng((77, int(100 * share), turn)).permutation(n)
        keep[order[place * count : (place + 1) * count]] = False
    return keep


def member(world: World, number: int, share: float, temperature: float) -> dict[str, np.ndarray]:
    """Return influences (rows, tests) on scores in one model, on the scale of all rows, and its slopes.

    Rows that are not in its bag are candidates at weight zero. Slopes (tests,) are those of the losses
    in the scores."""
    keep = bag_of(world, number, share)
    method = lt.StructureInfluence(temperature) if temperature else lt.LeafInfluence()
    X = world.data.X
    y = world.data.y

    def compute() -> dict[str, np.ndarray]:
        seed = number if share == ALL else FIRST_BAG_SEED + number
        model = world.fit(seed, keep)
        tests = world.rows(world.tests)
        asked = {"method": method, "of": "prediction"}
        tracer = lt.Tracer(model, X.iloc[keep], y[keep])
        values = np.zeros((len(y), world.size.tests), np.float32)
        values[keep] = tracer.influence(*tests, **asked).values
        if not keep.all():
            left_out = tracer.score_candidates(X.iloc[~keep], *tests, y[~keep], **asked)
            values[~keep] = left_out.values
        return {"values": share * values, "slopes": predicted(model, world) - tests[1]}

    settings = {"number": number, "share": share, "method": repr(method), "code": code()}
    return cached("members", world.key | settings, compute)


def predicted(model: Any, world: World) -> np.ndarray:
    """Return predicted numbers, or probabilities of the second class (tests,)."""
    X = world.rows(world.tests)[0]
    if world.kind == "numbers":
        return np.ravel(model.predict(X))
    return model.predict_proba(X)[:, 1]


def average(world: World, way: Way | Halves) -> np.ndarray:
    """Return influences on losses (rows, tests), averaged."""
    if isinstance(way, Halves):
        return of_halves(world, way)
    found = []
    inside = []
    for group in way.groups:
        for k in range(group.count):
            found.append(member(world, k, group.share, group.temperature))
            inside.append(bag_of(world, k, group.share))
    slopes = np.array([one["slopes"] for one in found])
    if way.mean_slopes:
        slopes = np.tile(slopes.mean(axis=0), (len(found), 1))
    values = [one["values"] * slope for one, slope in zip(found, slopes, strict=True)]
    if not way.alike:
        return np.mean(values, axis=0)
    own, left_out = (mean_where(values, np.array(mask)) for mask in (inside, ~np.array(inside)))
    ratio = np.sqrt((own**2).mean(axis=0) / (left_out**2).mean(axis=0))
    return (own + np.median(ratio) * left_out) / 2


def of_halves(world: World, way: Halves) -> np.ndarray:
    """Return what `ensemble_influence` gives, (rows, tests)."""

    def compute() -> dict[str, np.ndarray]:
        found = lt.ensemble_influence(
            lambda seed: world.make(world.kind, seed),
            world.data.X,
            world.data.y,
            *world.rows(world.tests),
            members=way.count,
            refits=way.refits,
        )
        return {"v": found.influence.values}

    return cached("of_halves", world.key | {"how": repr(way), "code": code()}, compute)["v"]


def mean_where(values: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
    """Return means (rows, tests) over the members that a mask (members, rows) names."""
    total = sum(value * rows[:, None] for value, rows in zip(values, mask, strict=True))
    return total / mask.sum(axis=0)[:, None]


def averages_table(worlds: dict[tuple[str, str], World]) -> str:
    """Return the LDS of averages, over all lines."""
    found = {}
    for line, world in worlds.items():
        for label, way in AVERAGES.items():
            lds = world.lds(world.summed([average(world, way)]))
            found[label, *line] = mean_and_errors(lds)
        ceiling = world.retrained_lds(world.size.repeats)
        found[f"ceiling: mean of {world.size.repeats} retrainings", *line] = mean_and_errors(
            ceiling
        )
    numbers = pd.DataFrame(found).T.rename_axis(["method", "data", "library"])
    lds = numbers["lds"].unstack("method", sort=False)
    table = pd.DataFrame(
        {
            "models": [*(way.count for way in AVERAGES.values()), ""],
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
        for label, way in SIZES.items():
            sizes[label, *line] = sizes_of(worlds[line], average(worlds[line], way))
    mean = pd.DataFrame(sizes).T.groupby(level=0, sort=False).mean().rename_axis("method")
    lines = "; ".join(f"{name} with {library}" for name, library in LINES)
    return f"""### Averages

{size.rows:,} training rows, {size.tests} test rows, {size.halves} halves, {1 + size.repeats} repetitions: {lines}.
"Seeds" are models of all rows. "Bags" are models of a part of them, which value the rows left out, too.
"Mean slopes": those of the losses in the scores are means over the models. "Alike": values of rows inside and
outside of bags have the same size and count alike.

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
