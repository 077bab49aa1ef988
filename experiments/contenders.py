"""The lines of the comparison by retraining: ways to estimate influences, each a value.

>>> world = World("adult", "XGBoost", FULL)
>>> lds_line(world, {"mine": lt.LeafInfluence(), "ridge": Ridge(500)})

The retrainings come from the store and are made once for a data set and a library; influences are
computed anew in each call of `lds_line`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from attribution import World
from sklearn.linear_model import RidgeCV
from store import cached, parallel
from tqdm import tqdm

import leaftrace as lt

PENALTIES = np.logspace(0, 7, 29)

EXACT = "LeafInfluence, exact"
SEEDS = "LeafInfluence, 10 seeds"
SOFT = "StructureInfluence"
SOFT_SEEDS = "StructureInfluence, 10 seeds"
SOFT_BAGS = "StructureInfluence, 40 bags"
SOFT_TEN_BAGS = "StructureInfluence, 10 bags"
SOFT_TEN_REFITTED = "StructureInfluence, 10 refitted bags"
SOFT_DEFAULT = "StructureInfluence, 20 refitted bags"
AVERAGES = (SOFT_SEEDS, SOFT_TEN_BAGS, SOFT_BAGS, SOFT_TEN_REFITTED, SOFT_DEFAULT)
TOP8 = "LeafInfluence, Top8Leaves"
REFIT = "LeafRefit, exact"
SINGLE_POINT = "LeafInfluence, SinglePoint"
BOOSTIN = "BoostIn"
LEAVE_ONE_OUT = "leave-one-out"


class Contender(Protocol):
    """A way to estimate influences.

    ``acts``: whether it can rank rows by a mean loss, for the curves."""

    acts: bool

    def values(self, world: World, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Return influences (rows, tests), or (rows, 1) if reduced, of one model or several."""
        ...


@dataclass(frozen=True)
class OneModel:
    """A method of `Tracer.influence`, for each of some models."""

    method: Any
    acts: bool = True

    def values(self, world: World, tests: slice, reduce: str | None) -> list[np.ndarray]:
        X, y = world.rows(tests)
        return [
            tracer.influence(X, y, method=self.method, reduce=reduce).values
            for tracer in world.tracers
        ]


@dataclass(frozen=True)
class Average:
    """A method averaged over models that are trained on all rows, or on bags that take turns.

    ``bag``, ``score_left_out``, ``refits``: as `ensemble_influence` takes them."""

    method: Any
    members: int = 10
    bag: float | tuple[float, ...] = 1.0
    score_left_out: bool = False
    refits: bool = False
    acts: bool = True

    def values(self, world: World, tests: slice, reduce: str | None) -> list[np.ndarray]:
        found = lt.ensemble_influence(
            lambda seed: world.make(world.kind, seed),
            world.data.X,
            world.data.y,
            *world.rows(tests),
            members=self.members,
            bag=self.bag,
            score_left_out=self.score_left_out,
            refits=self.refits,
            reduce=reduce,
            method=self.method,
        )
        return [found.influence.values]


@dataclass(frozen=True)
class LeaveOneOut:
    """Losses with the row minus without it, by training the model of seed 0 again."""

    acts: bool = True

    def values(self, world: World, tests: slice, reduce: str | None) -> list[np.ndarray]:
        every = np.arange(world.size.rows)
        wanted = slice(0, world.choose.stop)

        def without(i: int) -> np.ndarray:
            return world.losses(world.fit(0, np.delete(every, i)), wanted)

        def compute() -> dict[str, np.ndarray]:
            rows = tqdm(every, desc=f"{world.name}, alone", leave=False)
            return {"v": np.array(parallel(without, rows))}

        after = cached("alone", world.key, compute)["v"]
        found = (world.losses(world.fit(0), wanted) - after)[:, tests]
        return [found.mean(axis=1, keepdims=True) if reduce else found]


@dataclass(frozen=True)
class Ridge:
    """A datamodel: ridge regression of losses on which rows were in the training set.

    It learns from ``trainings`` on random halves, which are not those of the LDS. Its penalty is chosen
    for each test row by leave-one-out cross-validation."""

    trainings: int
    acts: bool = False  # its trainings have no losses of the rows to choose by

    def values(self, world: World, tests: slice, reduce: str | None) -> list[np.ndarray]:
        halves, losses = world.on_fresh_halves(self.trainings)
        return [ridge(halves, losses[:, tests])]


@dataclass(frozen=True)
class Banzhaf:
    """Data Banzhaf values from the trainings of `Ridge`: mean loss with a row minus that without it."""

    trainings: int
    acts: bool = False

    def values(self, world: World, tests: slice, reduce: str | None) -> list[np.ndarray]:
        halves, losses = world.on_fresh_halves(self.trainings)
        count = halves.sum(axis=0)[:, None]
        mean_with = halves.T @ losses[:, tests] / np.maximum(count, 1)
        mean_without = (~halves).T @ losses[:, tests] / np.maximum(len(halves) - count, 1)
        return [mean_with - mean_without]


def ridge(halves: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return coefficients (rows, tests) of losses (halves, tests) on membership (halves, rows)."""
    fitted = RidgeCV(PENALTIES, alpha_per_target=True).fit(halves - 0.5, losses)
    return np.reshape(fitted.coef_, (losses.shape[1], -1)).T


def contenders(world: World) -> dict[str, Contender]:
    """Return all lines of the comparison. A new method is a new line here."""
    size = world.size
    soft = lt.StructureInfluence()
    sharper = lt.StructureInfluence(0.25)
    sizes = (0.5, 0.75)
    found: dict[str, Contender] = {
        # What `ensemble_influence` does by default, and with half as many members.
        SOFT_DEFAULT: Average(sharper, 20, 0.5, score_left_out=True, refits=True, acts=False),
        SOFT_TEN_REFITTED: Average(sharper, 10, 0.5, score_left_out=True, refits=True, acts=False),
        SOFT_BAGS: Average(sharper, 40, sizes, score_left_out=True),
        SOFT_TEN_BAGS: Average(sharper, 10, sizes, score_left_out=True, acts=False),
        SOFT_SEEDS: Average(soft),
        SOFT: OneModel(soft),
        SEEDS: Average(lt.LeafInfluence()),
        EXACT: OneModel(lt.LeafInfluence()),
        SINGLE_POINT: OneModel(lt.LeafInfluence(lt.SinglePoint())),
        TOP8: OneModel(lt.LeafInfluence(lt.TopKLeaves(8))),
        REFIT: OneModel(lt.LeafRefit()),
        BOOSTIN: OneModel(lt.baselines.BoostIn()),
        "TreeSim": OneModel(lt.baselines.TreeSim()),
        "TREX": OneModel(lt.baselines.TREX("path")),  # with "count" its surrogate hardly learns
        "Detector": OneModel(lt.baselines.Detector()),
        "Random": OneModel(lt.baselines.Random()),
    }
    vector_leaves = world.library == "CatBoost" and len(np.unique(world.data.y)) > 2
    if world.kind == "numbers" or not vector_leaves:
        found["BoostInLCA"] = OneModel(lt.baselines.BoostInLCA())
    if world.kind == "numbers":
        found["AXIL"] = OneModel(lt.baselines.AXIL())
    if world.library in size.left_out:
        found[LEAVE_ONE_OUT] = LeaveOneOut()
    most = size.fresh[-1]
    found[f"Data Banzhaf, {most} trainings"] = Banzhaf(most)
    return found | {ridge_label(count): Ridge(count) for count in size.fresh}


def ridge_label(trainings: int) -> str:
    return f"ridge, {trainings} trainings"


def lds_line(world: World, contenders: dict[str, Any]) -> dict[str, float]:
    """Return the LDS of each contender, or method of `Tracer.influence`, and of retraining.

    "retrained twice" is one further retraining, "ceiling" the mean of `world.size.repeats` ones."""
    found = {}
    for label, given in contenders.items():
        contender = given if hasattr(given, "acts") else OneModel(given)
        summed = world.summed(contender.values(world, world.tests, None))
        found[label] = float(world.lds(summed).mean())
    found["retrained twice"] = float(world.retrained_lds(1).mean())
    found["ceiling"] = float(world.retrained_lds(world.size.repeats).mean())
    return found
