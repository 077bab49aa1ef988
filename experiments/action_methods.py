"""Which method should rank the rows that `fix` removes, and those that `acquire` chooses?

On data that chose no constant of either method: with the trees fixed, and with splits that give way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from attribution import FIRST_SEED, World
from models import losses
from paper_attribution import FULL
from store import cached, code, parallel
from tqdm import tqdm

import leaftrace as lt

DATA = ("wine", "amazon", "hospital")
LIBRARIES = ("CatBoost", "XGBoost", "LightGBM, l2 = 10")
METHODS = {"LeafInfluence": lt.LeafInfluence(), "StructureInfluence": lt.StructureInfluence()}
SIZE = replace(FULL, seeds=1)
MISTAKES = 20  # test rows to fix, of each model
SPLITS = 5  # into training rows and a pool
TRAIN = 500
BATCH = 100
SEEDS = FIRST_SEED + np.arange(3)  # of retraining, to judge by


def run() -> str:
    worlds = [World(name, library, SIZE) for name in DATA for library in LIBRARIES]
    fixes = {world.name: fixed(world) for world in tqdm(worlds, desc="fix")}
    batches = {world.name: acquired(world) for world in tqdm(worlds, desc="acquire")}
    return f"""## Which method ranks the rows

`fix` and `acquire` rank rows by `LeafInfluence`, and by `StructureInfluence` if `method=` says so.
Here both are compared on data that chose no constant of either: {SIZE.rows:,} rows of
{", ".join(DATA[:-1])} and {DATA[-1]}, with the models of `experiments/models.py`.

**Fixing.** {MISTAKES} test rows that each model predicts wrong. "Rows" is the size of the set that
`fix` finds, and its limit, a tenth of the training rows, where it finds none; "fewer" counts the test
rows for which the other method needs more. "Other seeds" is the share of {len(SEEDS)} trainings with
other seeds, without the rows of the set, that are right.

{fix_table(fixes)}

{fix_text(fixes)}

**Choosing rows to label.** Models of {TRAIN} rows, a pool of the other {SIZE.rows - TRAIN:,},
{SPLITS} random splits. {BATCH} rows of the pool are added with their labels. The table has the change
of the mean loss of {5 * SIZE.tests} other test rows in per cent, the mean over the splits and over
trainings with {len(SEEDS)} seeds; less is better.

{acquire_table(batches)}

{acquire_text(batches)}"""


def fixed(world: World) -> dict[str, np.ndarray]:
    """Return for each method (mistakes, 4): fixed, rows, their limit, share of other seeds that are right."""
    X, y = world.rows(world.judge)
    model = world.fit(0)
    wrong = np.flatnonzero(np.ravel(model.predict(X)) != y)
    wrong = np.random.default_rng(0).permutation(wrong)[:MISTAKES]
    tracer = lt.Tracer(model, world.data.X, world.data.y)

    def line(i: int, method: lt.LeafInfluence | lt.StructureInfluence) -> tuple[float, ...]:
        found = lt.fix(tracer, X.iloc[[i]], y[i], method=method)
        keep = np.delete(np.arange(tracer.n_rows), found.rows)
        right = [np.ravel(world.fit(s, keep).predict(X.iloc[[i]]))[0] == y[i] for s in SEEDS]
        return found.fixed, len(found.rows), tracer.n_rows // 10, float(np.mean(right))

    def compute() -> dict[str, np.ndarray]:
        return {
            name: np.array([line(int(i), method) for i in wrong], float)
            for name, method in METHODS.items()
        }

    return cached("fix_methods", settings(world) | {"mistakes": MISTAKES}, compute)


def acquired(world: World) -> dict[str, np.ndarray]:
    """Return for each way of choosing (splits,) changes of the mean loss in per cent."""
    ways: dict[str, Callable[[np.random.Generator, lt.Tracer, np.ndarray], np.ndarray]] = {
        "random rows": lambda rng, _tracer, pool: rng.permutation(pool)[:BATCH]
    }
    for name, method in METHODS.items():

        def choose(
            _rng: np.random.Generator,
            tracer: lt.Tracer,
            pool: np.ndarray,
            method: lt.LeafInfluence | lt.StructureInfluence = method,
        ) -> np.ndarray:
            X, y = world.rows(world.choose)
            return pool[
                lt.acquire(tracer, world.data.X.iloc[pool], X, y, BATCH, method=method).rows
            ]

        ways[name] = choose

    def mean_loss(rows: np.ndarray) -> float:
        found = parallel(
            lambda s: losses(world.fit(int(s), rows), world.kind, *world.rows(world.judge)), SEEDS
        )
        return float(np.mean(found))

    def compute() -> dict[str, np.ndarray]:
        changes: dict[str, list[float]] = {name: [] for name in ways}
        for split in range(SPLITS):
            rng = np.random.default_rng(split)
            order = rng.permutation(SIZE.rows)
            train, pool = np.sort(order[:TRAIN]), np.sort(order[TRAIN:])
            tracer = lt.Tracer(world.fit(0, train), world.data.X.iloc[train], world.data.y[train])
            before = mean_loss(train)
            for name, choose in ways.items():
                rows = np.concatenate([train, choose(rng, tracer, pool)])
                changes[name].append(100 * (mean_loss(rows) / before - 1))
        return {name: np.array(found) for name, found in changes.items()}

    sizes = {"splits": SPLITS, "train": TRAIN, "batch": BATCH}
    return cached("acquire_methods", settings(world) | sizes, compute)


def settings(world: World) -> dict[str, object]:
    return world.key | {"code": code(), "seeds": SEEDS.tolist()}


def needed(found: np.ndarray) -> np.ndarray:
    """Return the rows that fixes took; the limit where there was none."""
    return np.where(found[:, 0] > 0, found[:, 1], found[:, 2])


def fix_table(fixes: dict[str, dict[str, np.ndarray]]) -> str:
    lines = [
        "| data and model | method | fixed | rows: median | fewer | other seeds |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for world, found in fixes.items():
        rows = {name: needed(found[name]) for name in METHODS}
        for name in METHODS:
            (other,) = (rows[o] for o in METHODS if o != name)
            fewer = np.count_nonzero(rows[name] < other)
            count = f"{int(found[name][:, 0].sum())} of {len(other)}"
            cells = [
                count,
                f"{np.median(rows[name]):.0f}",
                str(fewer),
                f"{found[name][:, 3].mean():.0%}",
            ]
            lines.append(f"| {world} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fix_text(fixes: dict[str, dict[str, np.ndarray]]) -> str:
    """Say which method needs fewer rows, and whether its sets hold as often."""
    every = {name: np.concatenate([found[name] for found in fixes.values()]) for name in METHODS}
    fixed_trees, soft = (needed(every[name]) for name in METHODS)
    fewer = np.count_nonzero(fixed_trees < soft), np.count_nonzero(soft < fixed_trees)
    more = [lead(fixes, lambda found, part=part: found[:, part].mean()) for part in (0, 3)]
    rows = lead(fixes, lambda found: needed(found).mean())
    return (
        f"Of {len(soft)} test rows, LeafInfluence needs fewer for {fewer[0]} and StructureInfluence for "
        f"{fewer[1]}; means are {fixed_trees.mean():.0f} and {soft.mean():.0f} rows. How many rows are "
        "enough is found by refits with the trees fixed, whose question LeafInfluence answers, so it stays the "
        "default of a search for few rows. StructureInfluence minus LeafInfluence, in the mean over the "
        f"{len(fixes)} models, with standard errors: {rows[0]:+.1f} ({rows[1]:.1f}) rows; "
        f"{100 * more[0][0]:+.1f} ({100 * more[0][1]:.1f}) percentage points of the predictions fixed; "
        f"{100 * more[1][0]:+.1f} ({100 * more[1][1]:.1f}) points of the trainings with other seeds right. "
        "How much of that the further rows do was not measured."
    )


def lead(
    found: dict[str, dict[str, np.ndarray]], of: Callable[[np.ndarray], float]
) -> tuple[float, float]:
    """Return by how much StructureInfluence is above LeafInfluence, in the mean over models, and its standard error."""
    leads = [of(one["StructureInfluence"]) - of(one["LeafInfluence"]) for one in found.values()]
    return float(np.mean(leads)), float(np.std(leads, ddof=1) / np.sqrt(len(leads)))


def acquire_table(batches: dict[str, dict[str, np.ndarray]]) -> str:
    ways = list(next(iter(batches.values())))
    lines = [f"| data and model | {' | '.join(ways)} |", "| --- " + "| ---: " * len(ways) + "|"]
    for world, found in batches.items():
        lines.append(f"| {world} | {' | '.join(f'{found[way].mean():+.1f}' for way in ways)} |")
    means = [np.mean([found[way].mean() for found in batches.values()]) for way in ways]
    return "\n".join([*lines, f"| mean | {' | '.join(f'{mean:+.1f}' for mean in means)} |"])


def acquire_text(batches: dict[str, dict[str, np.ndarray]]) -> str:
    """Say how far apart the methods are, and whether that can be told."""
    mean, error = lead(batches, np.mean)
    known = "which can be told" if abs(mean) > 2 * error else "which cannot be told from none"
    return (
        f"With StructureInfluence in place of LeafInfluence the loss changes by {mean:+.2f} "
        f"(standard error over the {len(batches)} models: {error:.2f}), {known}."
    )


if __name__ == "__main__":
    print(run())
