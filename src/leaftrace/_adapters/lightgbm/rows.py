"""Which rows LightGBM drew for each tree, and which trees DART dropped: its random numbers again, from the seeds.

Rows are drawn in blocks of 1024, each with a generator of its own: x <- 214013 x + 2531011 mod 2^32, of which bits 16
to 30 are a number from 0 to 1. Whether a draw is right shows in the number of rows the model recorded of each leaf.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count, islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import BASE, Ensemble

BLOCK = 1024
Moves = list[list[tuple[int, float]]]
Sizes = Callable[[int, F64], NDArray[np.float32]]
Fits = Callable[[int, F64, NDArray[Any]], bool]

# x after k steps is POWERS[k] x + SHIFTS[k], k = 0 .. BLOCK
_POWERS = np.concatenate(
    [[1], np.cumprod(np.full(BLOCK, 214013, np.uint32), dtype=np.uint32)]
).astype(np.uint32)
_SHIFTS = np.concatenate([[0], np.cumsum(_POWERS[:-1], dtype=np.uint32)]).astype(
    np.uint32
) * np.uint32(2531011)


class Generators:
    """One generator for each block of rows."""

    def __init__(self, seed: int, n: int) -> None:
        self.x = ((seed + np.arange(-(-n // BLOCK))) & 0xFFFFFFFF).astype(np.uint32)

    def draw(self, rows: NDArray[np.bool_]) -> F64:
        """(n,) a number from 0 to 1 for each of these rows, in their order; 1 for others."""
        padded = np.zeros(len(self.x) * BLOCK, dtype=bool)
        padded[: len(rows)] = rows
        nth = np.cumsum(padded.reshape(-1, BLOCK), axis=1)  # (blocks, BLOCK)
        x = _POWERS[nth] * self.x[:, None] + _SHIFTS[nth]
        self.x = _POWERS[nth[:, -1]] * self.x + _SHIFTS[nth[:, -1]]
        u = ((x >> np.uint32(16)) & np.uint32(0x7FFF)) / 32768.0
        return np.where(rows, u.ravel()[: len(rows)], 1.0)


class Witness:
    """Tells whether the rows drawn for a step are those LightGBM drew: by the number of rows that the model recorded
    of each leaf and, where that is few numbers, by leaf values, of which ``fits`` knows."""

    def __init__(self, e: Ensemble, counts: F64 | None, spare: int, fits: Fits) -> None:
        self.e = e
        self.counts = counts
        self.fits = fits
        self.spare = (
            spare  # iterations that may have drawn rows but found no split, and so left no tree
        )
        self.sure = counts is not None

    def agrees(self, t: int, drawn: NDArray[Any]) -> bool:
        """By the number of rows; NaN: the model did not record it."""
        if self.counts is None:
            return True
        recorded = self.counts[self.e.leaf_range(t)]
        found = np.zeros(len(recorded))
        for ids in self.e.leaves[self.e.trees(t)]:
            found += np.bincount(ids, drawn > 0, len(recorded))
        return bool(np.all((found == recorded) | np.isnan(recorded)))

    def choose(self, t: int, A: F64, draws: Iterator[NDArray[Any]]) -> NDArray[Any]:
        """The first draw that agrees with step t, which reads the scores A; if none does, the first."""
        leaves = self.e.leaf_range(t)
        doubtful = self.spare > 0 and leaves.stop - leaves.start < 8
        first = None
        for used, drawn in enumerate(islice(draws, self.spare + 1 if self.sure else 1)):
            first = drawn if first is None else first
            if self.agrees(t, drawn) and (not doubtful or self.fits(t, A, drawn)):
                self.spare -= used
                return drawn
        self.sure = False
        assert first is not None
        return first


def draw_rows(
    p: dict[str, Any], e: Ensemble, balanced: bool, sizes: Sizes, witness: Witness
) -> list[NDArray[Any]] | None:
    """For each step (n,) how often it drew each row; None if it takes all rows. ``balanced``: labels are positive and
    negative, for which the fractions may differ; ``sizes(t, A)``: what GOSS ranks rows by."""
    goss = _Goss(p, e, sizes, witness) if p["data_sample_strategy"] == "goss" else None
    bagging = _bags(p, e.y, balanced) if goss is None else None
    if goss is None and bagging is None:
        return None
    A = e.start()
    drawn = []
    for t in range(e.n_steps):
        if goss is not None or witness.spare > 0:  # otherwise nobody asks for scores
            e.move(t, e.leaves, A)
        if goss is not None:
            drawn.append(witness.choose(t, A, goss.draws(t, A)))
        elif bagging is not None:  # a bag of all rows is never drawn again
            again = t == 0 or (t % int(p["bagging_freq"]) == 0 and not drawn[-1].all())
            drawn.append(witness.choose(t, A, bagging) if again else drawn[-1])
    return drawn


def _bags(p: dict[str, Any], y: F64, balanced: bool) -> Iterator[NDArray[Any]] | None:
    """Bag after bag, (n,) 1 for rows in it; None where LightGBM takes all rows."""
    balanced = balanced and min(p["pos_bagging_fraction"], p["neg_bagging_fraction"]) < 1
    if p["bagging_freq"] <= 0 or not (balanced or p["bagging_fraction"] < 1):
        return None
    positive = np.where(y > 0, p["pos_bagging_fraction"], p["neg_bagging_fraction"])
    fraction = positive if balanced else p["bagging_fraction"]
    generators = Generators(int(p["bagging_seed"]), len(y))
    everyone = np.ones(len(y), dtype=bool)
    return ((generators.draw(everyone) < fraction).astype(np.uint8) for _ in count())


class _Goss:
    """Rows of large gradients once, a multiple of those drawn of the others."""

    def __init__(self, p: dict[str, Any], e: Ensemble, sizes: Sizes, witness: Witness) -> None:
        self.p = p
        self.n = e.n_rows
        self.sizes = sizes
        self.witness = witness
        self.generators = Generators(int(p["bagging_seed"]), e.n_rows)
        self.length = 0

    def draws(self, t: int, A: F64) -> Iterator[F64]:
        if t < int(1 / self.p["learning_rate"]):
            return repeat(np.ones(self.n))
        size = self.sizes(t, A)
        if not self.length:
            lengths = _part_lengths(self.p, self.n)
            seed = int(self.p["bagging_seed"])
            trials = (_goss(self.p, size, Generators(seed, self.n), length) for length in lengths)
            agree = (
                a for a, drawn in zip(lengths, trials, strict=True) if self.witness.agrees(t, drawn)
            )
            self.length = next(agree, lengths[0])
        return (_goss(self.p, size, self.generators, self.length) for _ in count())


def _part_lengths(p: dict[str, Any], n: int) -> list[int]:
    """How many rows a thread of LightGBM's may have looked at: it ranks gradients among them. The number of threads is
    a parameter, but 0 stands for all cores of that machine."""
    blocks = -(-n // BLOCK)
    threads = [int(p["num_threads"]) or os.cpu_count() or 1, *range(1, min(blocks, 256) + 1)]
    parts = [max(1, min(k, blocks)) for k in threads]
    return list(dict.fromkeys(n if k == 1 else -(-n // (k * BLOCK)) * BLOCK for k in parts))


def _goss(p: dict[str, Any], size: NDArray[np.float32], generators: Generators, length: int) -> F64:
    n = len(size)
    parts = [slice(a, min(a + length, n)) for a in range(0, n, length)]
    large = np.empty(n, dtype=bool)
    for part in parts:
        rows = part.stop - part.start
        top = max(1, int(rows * p["top_rate"]))
        large[part] = size[part] >= np.partition(size[part], rows - top)[rows - top]
    u = generators.draw(~large)
    out = large.astype(float)
    for part in parts:
        rows = part.stop - part.start
        top = max(1, int(rows * p["top_rate"]))
        need = int(rows * p["other_rate"])
        if not need:
            continue
        multiple = float(np.float32(rows - top) / np.float32(need))
        small = np.flatnonzero(~large[part])
        rest = (
            rows - small - top + np.cumsum(large[part])[small]
        )  # small rows to come, this one included
        for begin in range(0, len(small), BLOCK):
            some = slice(begin, begin + BLOCK)
            chance = u[part][small[some]]
            left = rest[some]
            likely = np.flatnonzero(
                chance < need / left
            )  # need falls as rows are taken, so no others
            for i in likely.tolist():
                if chance[i] < need / left[i]:
                    out[part.start + small[begin + i]] = multiple
                    need -= 1
    return out


def dart(p: dict[str, Any], steps: int, folded: bool) -> tuple[F64, Moves]:
    """Learning rate of each step, and the moves: trees go out before a step and come back smaller after it.
    ``folded``: the first trees hold the starting score, so it goes with them."""
    rate = float(p["learning_rate"])
    most = int(p["max_drop"])
    uniform = bool(p["uniform_drop"])
    like_xgboost = bool(p["xgboost_dart_mode"])
    x = int(p["drop_seed"]) & 0xFFFFFFFF

    def u() -> float:
        nonlocal x
        x = (214013 * x + 2531011) & 0xFFFFFFFF
        return (x >> 16 & 0x7FFF) / 32768

    factors = np.ones(steps)
    weights = np.zeros(steps)
    total = 0.0
    rates = np.empty(steps)
    moves = []
    back = {}
    for t in range(steps):
        dropped: list[int] = []
        if u() >= p["skip_drop"] and t:
            mean = t / total if not uniform else 0.0
            chance = p["drop_rate"]
            if most > 0:
                chance = min(chance, most / t if uniform else most * mean / total)
            for i in range(t):
                if u() < (chance if uniform else chance * weights[i] * mean):
                    dropped.append(i)
                    if (
                        len(dropped) >= most >= 0
                    ):  # a limit of 0 stops after the first, a negative one never
                        break
        k = len(dropped)
        shrink = k / (k + rate) if like_xgboost else k / (k + 1)
        rates[t] = rate / (1 + k) if not like_xgboost else rate / (rate + k) if k else rate
        out = {i: -factors[i] for i in dropped}
        moves.append(_net(t, back, out, folded))
        for i in dropped:
            factors[i] *= shrink
            total -= weights[i] * (1 / (k + (rate if like_xgboost else 1)))
            weights[i] *= shrink
        back = {i: factors[i] for i in dropped}
        weights[t] = rates[t]
        total += rates[t]
    return rates, [*moves, _net(steps, back, {}, folded)]


def _net(
    t: int, back: dict[int, float], out: dict[int, float], folded: bool
) -> list[tuple[int, float]]:
    """The moves before step t: the step before, and trees that come back or go out, or stay out."""
    changes = {i: back.get(i, 0.0) + out.get(i, 0.0) for i in {**back, **out}}
    net = {**changes, BASE: changes.get(0, 0.0)} if folded else dict(changes)
    if t:
        net[t - 1] = net.get(t - 1, 0.0) + 1.0
    return [(i, float(change)) for i, change in sorted(net.items()) if change]
