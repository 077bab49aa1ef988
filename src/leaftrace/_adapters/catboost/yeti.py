"""The pairs that YetiRank draws, from its random numbers.

In every step each query is ranked several times by A plus noise, as exp(A) u / (1.000001 - u) with
random u. Neighbours at place k, from 0, of different labels are a pair, of weight
0.15 decay^k |difference of labels|; the weights of a pair are added up over the rankings and divided
by their number. Then the step is one of PairLogit with these pairs.

One number of the generator of training seeds the draws of a step: it gives a seed to each block of
queries, and that one to each query of the block. Which number it is depends on the search for
splits. It is predicted, and otherwise found: with the right one, the leaves have the model's values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import catboost
import numpy as np

from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import UnsupportedModel
from ..._model.coupled.lambdas import smooth_rho
from ..._model.coupled.pair_rules import DrawnPairs, EqualWeights
from ..._model.leaf_rule import LeafRule
from .generators import U64, Generators, draws, fractions

YETI = ("YetiRank", "YetiRankPairwise")
BLOCKS = 128  # of queries
FURTHEST = 600  # numbers that are tried for a step
NEIGHBOUR = 0.15  # weight of a pair at the top
DRAWN_BY_LABELS = "pairs of rows were drawn by their labels"
_FOUND = "the pairs of every step drawn again from random_seed, and held as they are"
_NOT_FOUND = "the pairs of a step not found in the random numbers of random_seed"
ACCURACY = 1e-6  # of leaf values; those of a wrong seed are off by 1e-2 and more


class DrawnStep(NamedTuple):
    """Pairs of a step: rows (P,) of higher and of lower label, and weights (P,)."""

    a: Ints
    b: Ints
    weight: F64


@dataclass(frozen=True)
class YetiSettings:
    """Settings of YetiRank.

    ``features``  columns among which splits are searched; each draws a number at every depth
    ``sampling``  numbers that the draw of rows for a tree takes
    ``depth``     that trees may have
    """

    rankings: int
    decay: float
    seed: int
    features: int
    share: float
    sampling: int
    depth: int


def yeti_settings(params: dict[str, Any], pool: catboost.Pool, n: int) -> YetiSettings:
    """Return the settings of a loss such as "YetiRank:permutations=5"; raise for other modes."""
    description = params["loss_function"]
    name, _, text = description.partition(":")
    settings = dict(part.split("=") for part in text.split(";") if part)
    mode = settings.get("mode", "Classic")
    known = {"mode", "permutations", "decay", "hints"}
    if mode != "Classic" or set(settings) - known:
        raise UnsupportedModel(
            f"the loss '{description}' is not supported; of YetiRank the mode Classic is, with permutations and decay."
        )
    sampling = int(params.get("bootstrap_type", "No") != "No")
    if name == "YetiRank" and params["bootstrap_type"] == "Bernoulli":
        sampling = n
    return YetiSettings(
        int(settings.get("permutations", 10)),
        float(settings.get("decay", 0.85)),
        int(params["random_seed"]),
        _searched_columns(pool),
        float(params.get("rsm", 1.0)),
        sampling,
        int(params["depth"]),
    )


def _searched_columns(pool: catboost.Pool) -> int:
    """Return the number of columns of a Pool that are not constant."""
    if pool.get_cat_feature_indices():
        return pool.num_col()
    features = pool.get_features()
    return int(np.count_nonzero(np.nanmax(features, axis=0) > np.nanmin(features, axis=0)))


class YetiPairs:
    """Draws the pairs of steps.

    ``y``       (n,) labels
    ``number``  (n,) the query of each row, from 0
    """

    def __init__(self, settings: YetiSettings, y: F64, number: Ints) -> None:
        self.settings = settings
        self.y = y
        self.number = number
        self.sizes = np.bincount(number)
        starts = np.cumsum(self.sizes) - self.sizes
        rankings = settings.rankings
        # One entry for each row of each ranking of each query, query by query.
        entries = np.arange(rankings * len(y))
        self.query = np.repeat(np.arange(len(self.sizes)), rankings * self.sizes)
        self.draw = entries - rankings * starts[self.query]
        self.row = starts[self.query] + self.draw % self.sizes[self.query]
        self.ranking = self.draw // self.sizes[self.query] + rankings * self.query
        place = self.draw % self.sizes[self.query]
        self.follows = place[1:] > 0  # whether the entry after each is of the same ranking
        self.weight = NEIGHBOUR * settings.decay ** place[:-1]

    def step(self, seed: U64, A: F64) -> DrawnStep:
        """Return the pairs of a step with this seed (1,), at scores A (n,)."""
        u = self._uniforms(seed)
        key = np.exp(A)[self.row] * (u / (np.float32(1.000001) - u)).astype(np.float64)
        ranked = self.row[np.lexsort((-key, self.ranking))]
        first = ranked[:-1]
        second = ranked[1:]
        gap = self.y[first] - self.y[second]
        kept = self.follows & (gap != 0)
        higher = np.where(gap > 0, first, second)[kept]
        lower = np.where(gap > 0, second, first)[kept]
        weight = (self.weight * np.abs(gap))[kept].astype(np.float32)
        pair, place = np.unique(higher * len(self.y) + lower, return_inverse=True)
        total = np.zeros(len(pair), np.float32)
        np.add.at(total, place, weight)
        mean = (total.astype(np.float64) / self.settings.rankings).astype(np.float32)
        return DrawnStep(pair // len(self.y), pair % len(self.y), mean.astype(np.float64))

    def _uniforms(self, seed: U64) -> Any:
        """Return the random number (entries,) of each entry, in float32."""
        Q = len(self.sizes)
        size = -(-Q // BLOCKS)
        blocks = Generators(seed).numbers(
            np.zeros(-(-Q // size), np.intp), np.arange(-(-Q // size))
        )
        queries = np.arange(Q)
        seeds = Generators(blocks).numbers(queries // size, queries % size)
        return fractions(Generators(seeds).numbers(self.query, self.draw)).astype(np.float32)


class YetiSeeds:
    """Finds the seed of each step among the numbers of the generator of training."""

    def __init__(self, pairs: YetiPairs) -> None:
        self.pairs = pairs
        self.settings = pairs.settings
        self.next = 0  # the first number that may be the next seed
        self.units = (
            self.settings.features
        )  # columns, or bundles of them, that splits are searched in
        self.numbers = draws(self.settings.seed, 1 << 14)

    def find(self, A: F64, depth: int, error: Callable[[DrawnStep], float]) -> DrawnStep:
        """Return the pairs of a step at scores A (n,), of a tree of this depth.

        ``error``: the relative error of the leaf values that pairs give. If no number leads to the
        model's, the pairs of the predicted one are returned."""
        self._extend(self.settings.sampling + 8 * (depth + 2) * (self.settings.features + 8))
        first = None
        for place, units in self._places(depth):
            drawn = self.pairs.step(self.numbers[place : place + 1], A)
            first = drawn if first is None else first
            if error(drawn) <= ACCURACY:
                self.next = place + 1
                self.units = units
                return drawn
        assert first is not None
        return first

    def _extend(self, count: int) -> None:
        """Draw at least this many numbers after the last seed."""
        while len(self.numbers) < self.next + count + FURTHEST:
            self.numbers = draws(self.settings.seed, 2 * len(self.numbers))

    def _places(self, depth: int) -> Iterator[tuple[int, int]]:
        """Yield places of numbers that may be the seed, and the units they stand for.

        The likeliest come first: the units of the step before, then fewer."""
        tried = set()
        for units in (self.units, *range(self.settings.features, 0, -1)):
            place = self._predicted(depth, units)
            if place not in tried:
                yield place, units
            tried.add(place)
        for place in range(self.next, self.next + FURTHEST):
            if place not in tried:
                yield place, self.units

    def _predicted(self, depth: int, units: int) -> int:
        """Return the place after the draws of a search for splits that ended at this depth.

        At each depth every column draws a number that decides whether it is tried. Then those that
        are draw a normal number each, from points of a square until one lies in the circle; columns
        that are zero for most rows, or have two values, are searched together as one of ``units``."""
        place = self.next + 2 + self.settings.sampling
        features = self.settings.features
        for _ in range(min(depth + 1, self.settings.depth)):  # the last search may find none
            columns = fractions(self.numbers[place : place + features])
            left_out = int(np.count_nonzero(columns > self.settings.share))
            place += features + 1
            for _ in range(max(units - left_out, 0)):
                while not self._in_circle(place):
                    place += 2
                place += 2
        return place + 1

    def _in_circle(self, place: int) -> bool:
        """Check whether the two numbers from this place on are used for a normal number."""
        x, y = (2 * fractions(self.numbers[place : place + 2]) - 1).tolist()
        return 0 < x * x + y * y <= 1


@dataclass(frozen=True)
class YetiTrees:
    """The trees of a model of YetiRank, in which the pairs of all steps are found.

    ``leaves``  (T, n)
    ``values``  for each step (M,) leaf values as training computed them
    ``rule``    the leaf rule; ``lam`` its l2
    ``rate``    learning rate of each step, or of all
    ``newton``  whether leaves divide by second derivatives; otherwise by weights of pairs
    """

    leaves: Ids
    values: Sequence[F64]
    rule: LeafRule
    lam: float
    rate: F64 | float
    newton: bool

    def pairs(self, seeds: YetiSeeds, A: F64) -> tuple[DrawnPairs, str]:
        """Return the pairs of all steps, from scores A (n,) before the first, and a note."""
        steps = []
        wrong = 0
        for t, (ids, values) in enumerate(zip(self.leaves, self.values, strict=True)):
            error = partial(self._error, t, A)
            drawn = seeds.find(A, len(values).bit_length() - 1, error)
            steps.append(drawn)
            wrong += error(drawn) > ACCURACY
            if wrong:  # all later numbers would be searched in vain
                break
            A = A + values[ids]
        if wrong:
            steps += [steps[-1]] * (len(self.values) - len(steps))
        rule = DrawnPairs(
            [(step.a, step.b) for step in steps], EqualWeights(), [step.weight for step in steps]
        )
        return rule, _NOT_FOUND if wrong else _FOUND

    def _error(self, t: int, A: F64, drawn: DrawnStep) -> float:
        """Return the error of the leaf values that pairs give in step t, relative to the largest."""
        model = self.values[t]
        M = len(model)
        a = self.leaves[t][drawn.a]
        b = self.leaves[t][drawn.b]
        rho = smooth_rho(A[drawn.a] - A[drawn.b])
        G = np.bincount(b, drawn.weight * rho, M) - np.bincount(a, drawn.weight * rho, M)
        if self.rule.pairwise is not None:
            between = np.zeros((M, M))
            np.add.at(between, (a, b), np.where(a != b, drawn.weight, 0.0))
            s = self.rule.pairwise.matrix(between) @ G
        else:
            h = drawn.weight * (rho * (1 - rho) if self.newton else 1.0)
            D = np.bincount(a, h, M) + np.bincount(b, h, M) + self.lam
            s = -G / np.where(D > 0, D, 1.0)
        W = np.bincount(self.leaves[t], minlength=M)
        s = np.where(W > 0, s - W @ s / W.sum(), 0.0)
        rate = float(np.broadcast_to(self.rate, (t + 1,))[t])
        return float(np.abs(rate * s - model).max() / (np.abs(model).max() or 1.0))
