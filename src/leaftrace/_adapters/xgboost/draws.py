"""XGBoost's random numbers, drawn again: the rows each tree sees, the trees that DART leaves out.

One Mersenne twister, seeded with ``seed``, serves a training run on the CPU. It gives, in this order,

    each round   DART: a number to decide whether to drop trees at all (if ``skip_drop``), then one for each tree so far
    once         hist, approx: the seed of the sampler of columns
    each tree    hist: the seed of a generator x <- 16807 x mod 2^63, which gives a number for each row
                 approx: the same, but one for all parallel trees of an output
                 exact: a number for each row, then the seed of the sampler of columns

A row counts if its number is below ``subsample``; where that is 1, rows draw nothing. In XGBoost 2.0 the seeds for
columns come first (``columns_first``): before the first round, or before the rows of each tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Moves = list[list[tuple[int, float]]]
_f32 = np.float32


class Twister:
    """The 32-bit words of C++'s mt19937, and its numbers from 0 to 1, which take two words each."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed % 2**32)

    def word(self) -> int:
        return int.from_bytes(self._state.bytes(4), "little")

    def numbers(self, count: int) -> NDArray[np.float64]:
        if not count:  # NumPy would draw a word even for nothing
            return np.zeros(0)
        words = (
            np.frombuffer(self._state.bytes(8 * count), "<u4").astype(np.float64).reshape(count, 2)
        )
        return (words[:, 0] + words[:, 1] * 2.0**32) / 2.0**64


def congruential(n: int) -> NDArray[np.uint64]:
    """(n,) powers 16807^1 .. 16807^n mod 2^64: what a seed is multiplied with to give the numbers of n rows."""
    powers = np.full(max(n, 1), 16807, np.uint64)
    done = 1
    while done < n:  # the next `done` powers are those so far, times the last one
        more = min(done, n - done)
        powers[done : done + more] = powers[:more] * powers[done - 1 : done]
        done += more
    return powers[:n]


@dataclass(frozen=True)
class Dart:
    """DART's settings."""

    rate_drop: float
    skip_drop: float
    weighted: bool  # sample_type: trees are dropped in proportion to their weight
    forest: bool  # normalize_type: dropped trees weigh together as much as the new one, not each


@dataclass(frozen=True)
class Drawn:
    """``sample`` for each tree (n,) whether it saw the row; ``moves`` for each tree what DART did to the scores before
    it, and last what it did after all; ``tree_weight`` (trees,) what DART multiplies the trees with in the end."""

    sample: list[NDArray[np.bool_]] | None
    moves: Moves | None
    tree_weight: NDArray[np.float32] | None


def draw_again(
    rounds: Sequence[int],
    n: int,
    *,
    seed: int,
    subsample: float,
    method: Literal["hist", "approx", "exact"],
    parallel: int,
    seed_per_iteration: bool,
    columns_first: bool,
    learning_rate: float,
    dart: Dart | None,
) -> Drawn:
    """The draws of a run. ``rounds``: number of trees of each round; ``parallel``: of each output in a round."""
    twister = Twister(seed)
    exact = method == "exact"
    if columns_first and not exact:
        twister.word()
    sampling = int(_f32(n) * _f32(subsample)) < n
    powers = congruential(n) if sampling and not exact else None
    sample: list[NDArray[np.bool_]] = []
    weight: list[Any] = []
    moves: Moves = []
    pending: list[tuple[int, float]] = []  # DART: what the last round did to the scores in the end
    for number, trees in enumerate(rounds):
        if seed_per_iteration:
            twister = Twister(seed * 127 + number)
        if dart is not None:
            dropped = _dropped(dart, weight, twister)
            moves.append(pending + [(i, -float(weight[i])) for i in dropped])
            moves += [[] for _ in range(trees - 1)]
            first = len(weight)
            _normalise(dart, weight, dropped, trees, learning_rate)
            pending = [(i, float(weight[i])) for i in [*dropped, *range(first, len(weight))]]
        if number == 0 and not exact and not columns_first:
            twister.word()
        for tree in range(trees):
            if exact and columns_first:
                twister.word()
            if sampling and method == "approx" and tree % parallel:
                sample.append(sample[-1])
            elif sampling:
                sample.append(_rows(twister, n, _f32(subsample), powers))
            if exact and not columns_first:
                twister.word()
    return Drawn(
        sample if sampling else None,
        None if dart is None else [*moves, pending],
        None if dart is None else np.array(weight, _f32),
    )


def _rows(
    twister: Twister, n: int, subsample: np.float32, powers: NDArray[np.uint64] | None
) -> NDArray[np.bool_]:
    if powers is None:
        return twister.numbers(n) < float(subsample)
    seed = np.full(1, twister.word() or 1, np.uint64)
    numbers = (powers * seed) & np.uint64(2**63 - 1)
    return (numbers - np.uint64(1)).astype(np.float64) / 2.0**63 < float(subsample)


def _dropped(dart: Dart, weight: list[Any], twister: Twister) -> list[int]:
    """Which of the trees so far the next round leaves out."""
    if dart.skip_drop > 0 and twister.numbers(1)[0] < float(_f32(dart.skip_drop)):
        return []
    limit = np.full(len(weight), _f32(dart.rate_drop))
    if dart.weighted and weight:
        total = np.cumsum(np.array(weight, _f32))[
            -1
        ]  # one by one, as a sum in pairs would round otherwise
        limit = _f32(dart.rate_drop) * _f32(len(weight)) * np.array(weight, _f32) / total
    return np.flatnonzero(twister.numbers(len(weight)) < limit.astype(np.float64)).tolist()


def _normalise(
    dart: Dart, weight: list[Any], dropped: list[int], trees: int, learning_rate: float
) -> None:
    """Weigh the new trees, and the dropped ones anew."""
    if not dropped:
        weight += [_f32(1.0)] * trees
        return
    rate = float(_f32(float(_f32(learning_rate)) / trees))
    count = len(dropped)
    # C++ adds a count and a float32 in float32, 1.0 and a float32 in double.
    both = 1.0 + rate if dart.forest else float(_f32(_f32(count) + _f32(rate)))
    factor, new = (1 / both, 1 / both) if dart.forest else (count / both, 1 / both)
    for i in dropped:
        weight[i] = _f32(weight[i] * _f32(factor))
    weight += [_f32(new)] * trees
