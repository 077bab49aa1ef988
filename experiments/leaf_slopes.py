"""Why StructureInfluence holds leaves back: whose slopes are they that retraining does not show?

python experiments/leaf_slopes.py        # -> docs/paper/leaf_slopes.md, which docs/structure.md refers to

A leaf of rows that the model is sure of has next to no second derivative, so that a small change of
weight moves it far. `StructureInfluence` lets a leaf go a share of its way, which is small there. Here the
shares are changed for some leaves alone, and the influences compared with retraining."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pandas as pd
from attribution import World
from attribution_text import precise
from paper_attribution import QUICK
from results import folder_of, markdown
from store import cached, code

import leaftrace as lt
from leaftrace._engine import soft_splits
from leaftrace._engine.workspace import Workspace

NO_L2 = ("LightGBM", "HistGradientBoosting")
LINES = (
    ("adult", NO_L2[0]),
    ("amazon", NO_L2[0]),
    ("hospital", NO_L2[0]),
    ("adult", NO_L2[1]),
    ("houses", NO_L2[0]),
    ("adult", "XGBoost"),
    ("houses", "XGBoost"),
    ("hospital", "XGBoost"),
    ("adult", "CatBoost"),
    ("hospital", "LightGBM, l2 = 10"),
)
SIZE = replace(QUICK, repeats=1, seeds=2)
Shares = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
# Shares (leaves,) by the second derivative D of a leaf, the number of its rows and the l2 that it lacks
CONSTANT = (0.7, 0.5, 0.35, 0.2)
ALL_THE_WAY = "every leaf goes all its way"
HELD = "leaves with little second derivative do not move"
VARIANTS: dict[str, Shares] = {
    ALL_THE_WAY: lambda D, rows, l2: np.ones_like(D),
    "every leaf by its second derivative (the method)": lambda D, rows, l2: D / (D + l2),
    "those with little second derivative alone": lambda D, rows, l2: np.where(
        l2 > D, D / (D + l2), 1.0
    ),
    "the others alone": lambda D, rows, l2: np.where(l2 > D, 1.0, D / (D + l2)),
    "every leaf by its number of rows": lambda D, rows, l2: rows / (rows + soft_splits.LEAST_ROWS),
    "every leaf the same share, their mean": lambda D, rows, l2: np.full_like(
        D, (D / (D + l2)).mean()
    ),
    **{
        f"every leaf {share} of its way": lambda D, rows, l2, share=share: np.full_like(D, share)
        for share in CONSTANT
    },
    HELD: lambda D, rows, l2: np.where(l2 > D, 0.0, 1.0),
}


def leaf_numbers(work: Workspace) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the second derivative (leaves,) and rows (leaves,) of each leaf, and the l2 that all lack."""
    e = work.trace.ensemble
    D = np.concatenate([np.einsum("moo->m", step.D[0]) for step in work.trace.steps])
    rows = np.concatenate([step.rows for step in work.trace.steps])
    return D, rows, max(0.0, soft_splits.choice_l2(e, by_weight=False) - e.lam)


def influences(world: World, label: str) -> list[np.ndarray]:
    """Return influences (rows, tests) of each model, with the shares of a variant."""

    def shares(work: Workspace, temperature: float) -> np.ndarray:
        D, rows, l2 = leaf_numbers(work)
        return VARIANTS[label](D, rows, temperature * l2)[:, None]

    def compute() -> dict[str, np.ndarray]:
        with patch.object(soft_splits, "leaf_shares", shares):
            found = [
                tracer.influence(*world.rows(world.tests), method=lt.StructureInfluence()).values
                for tracer in world.tracers
            ]
        return {"v": np.array(found, np.float32)}

    settings = world.key | {"seeds": world.size.seeds, "leaf shares": label, "code": code()}
    return list(cached("leaf_slopes", settings, compute)["v"].astype(float))


def line(world: World) -> dict[str, float]:
    """Return the LDS of every variant, and what leaves with little second derivative have to do with it."""
    found = {
        label: float(world.lds(world.summed(influences(world, label))).mean()) for label in VARIANTS
    }
    D, _, l2 = leaf_numbers(world.tracers[0].engine.work)
    whole = influences(world, ALL_THE_WAY)[0]
    held = influences(world, HELD)[0]
    found["leaves with little second derivative, share"] = float((l2 > D).mean())
    found["of the variance of influences, through them"] = float((whole - held).var() / whole.var())
    return found


def run() -> str:
    worlds = {f"{name}, {library}": World(name, library, SIZE) for name, library in LINES}
    table = pd.DataFrame({name: line(world) for name, world in worlds.items()})
    without = [name for name, (_, library) in zip(worlds, LINES, strict=True) if library in NO_L2]
    means = {
        "mean, without l2": table[without].mean(axis=1),
        "mean, with l2": table.drop(columns=without).mean(axis=1),
        "mean": table.mean(axis=1),
    }
    table = table.assign(**means)
    few = f"less than that of {soft_splits.LEAST_ROWS} average rows before the first tree"
    return f"""{SIZE.rows:,} training rows, {SIZE.tests} test rows, {SIZE.halves} halves trained
{1 + SIZE.repeats} times, the mean of {SIZE.seeds} models alone. These data choose among the variants, so they do not
judge them. The LDS with other shares of the way that leaves go.
"Little second derivative" is {few}. The last two lines say how many leaves have so little,
and what part of the variance of influences goes through them.

{markdown(table.map(precise).rename_axis("which leaves are held back").reset_index())}
"""


if __name__ == "__main__":
    path = folder_of(True) / "leaf_slopes.md"
    path.write_text(run())
    print(path.read_text())
