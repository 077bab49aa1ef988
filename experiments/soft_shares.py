"""Whose value moves in StructureInfluence: shares of leaves and of the sides of nodes, and others.

python experiments/soft_shares.py        # -> docs/paper/soft_shares.md, which docs/structure.md includes

A tree's leaves go a share of their way, and the sides of its nodes move by the shares that the choices
put apart. Here the shares are changed, and the influences compared with retraining."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
from attribution import World
from attribution_text import precise
from paper_attribution import QUICK
from results import folder_of, markdown
from store import cached, code

import leaftrace as lt

NO_L2 = ("LightGBM", "HistGradientBoosting")
LINES = (
    ("adult", NO_L2[0]),
    ("amazon", NO_L2[0]),
    ("hospital", NO_L2[0]),
    ("adult", NO_L2[1]),
    ("houses", NO_L2[0]),
    ("wine", NO_L2[0]),
    ("adult", "XGBoost"),
    ("amazon", "XGBoost"),
    ("houses", "XGBoost"),
    ("hospital", "XGBoost"),
    ("adult", "CatBoost"),
    ("hospital", "LightGBM, l2 = 10"),
)
SIZE = replace(QUICK, repeats=1, seeds=2)
Change = Callable[[np.ndarray], np.ndarray]


def changed(nodes: float, leaves: float | None = None) -> Change:
    """Return a change of shares (nodes + 1,): those of nodes are multiplied, that of leaves is replaced."""

    def change(shares: np.ndarray) -> np.ndarray:
        return np.append(nodes * shares[:-1], shares[-1] if leaves is None else leaves)

    return change


METHOD = "leaves and sides by their shares (the method)"
VARIANTS: dict[str, Change] = {
    "the choices alone: leaves go all their way, values of sides do not move": changed(0, 1),
    "leaves by their share, values of sides do not move": changed(0),
    "leaves all their way, values of sides by their shares": changed(1, 1),
    METHOD: changed(1),
    "leaves do not move, values of sides by their shares": changed(1, 0),
    "leaves 0.35 of their way, values of sides by their shares": changed(1, 0.35),
    "leaves by their share, sides of one leaf": changed(1 / 4),
    "leaves by their share, sides of two leaves": changed(1 / 2),
    "leaves by their share, sides of eight leaves": changed(2),
}


def influences(world: World, label: str) -> list[np.ndarray]:
    """Return influences (rows, tests) of each model, with the shares of a variant."""

    def of_model(tracer: lt.Tracer) -> np.ndarray:
        work = tracer.engine.work
        tests = world.rows(world.tests)
        work.soft_shares.clear()
        values = tracer.influence(
            *tests, method=lt.StructureInfluence()
        ).values  # measures the shares
        if label == METHOD:
            return values
        (measured,) = work.soft_shares.values()
        measured.update({tree: VARIANTS[label](shares) for tree, shares in measured.items()})
        return tracer.influence(*tests, method=lt.StructureInfluence()).values

    def compute() -> dict[str, np.ndarray]:
        return {"v": np.array([of_model(tracer) for tracer in world.tracers], np.float32)}

    settings = world.key | {"seeds": world.size.seeds, "shares": label, "code": code()}
    return list(cached("soft_shares", settings, compute)["v"].astype(float))


def line(world: World) -> dict[str, float]:
    """Return the LDS of every variant, and the mean share of leaves."""
    found = {
        label: float(world.lds(world.summed(influences(world, label))).mean()) for label in VARIANTS
    }
    tracer = world.tracers[0]
    tracer.engine.work.soft_shares.clear()
    tracer.influence(*world.rows(slice(0, 1)), method=lt.StructureInfluence())
    (measured,) = tracer.engine.work.soft_shares.values()
    found["the share of leaves, mean"] = float(
        np.mean([shares[-1] for shares in measured.values()])
    )
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
    return f"""{SIZE.rows:,} training rows, {SIZE.tests} test rows, {SIZE.halves} halves trained
{1 + SIZE.repeats} times, the LDS of {SIZE.seeds} models, each alone, in the mean. The method was chosen with
lines of this table, so they do not judge it.

{markdown(table.map(precise).rename_axis("what moves").reset_index())}
"""


if __name__ == "__main__":
    path = folder_of(True) / "soft_shares.md"
    path.write_text(run())
    print(path.read_text())
