"""XGBoost's random numbers, drawn again: the rows each tree sees, the trees that DART leaves out.

One Mersenne twister, seeded with ``seed``, serves a training run on the CPU. In this order it gives

    each round   DART: a number to decide whether to drop trees at all (if ``skip_drop``), then one
                 for each tree so far
    once         hist, approx: the seed of the sampler of columns
    each tree    hist: the seed of a generator x <- 16807 x mod 2^63, with a number for each row
                 approx: the same, but one for all parallel trees of an output
                 exact: a number for each row, then the seed of the sampler of columns

A row counts if its number is below ``subsample``; where that is 1, rows draw nothing. In XGBoost
2.0 the seeds for columns come first (``columns_first``): before the first round, or before the rows
of each tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Moves = list[list[tuple[int, float]]]
TreeMethod = Literal["hist", "approx", "exact"]
_f32 = np.float32


class Twister:
    """The 32-bit words of C++'s mt19937, and its numbers from 0 to 1, which take two words each."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed % 2**32)

    def word(self) -> int:
        return int.from_bytes(self._state.bytes(4), "little")

    def below(self, count: int) -> int:
        """The next whole number from 0 to count - 1, as libstdc++'s uniform_int_distribution has it."""
        while True:
            product = self.word() * count
            if product % 2**32 >= 2**32 % count:
                return product >> 32

    def numbers(self, count: int) -> NDArray[np.float64]:
        """(count,) the next numbers from 0 to 1."""
        if not count:  # NumPy would draw a word even for nothing
            return np.zeros(0)
        words = np.frombuffer(self._state.bytes(8 * count), "<u4")
        words = words.astype(np.float64).reshape(count, 2)
        return (words[:, 0] + words[:, 1] * 2.0**32) / 2.0**64


def congruential(n: int) -> NDArray[np.uint64]:
    """(n,) powers 16807^1 .. 16807^n mod 2^64. A seed times these gives the numbers of n rows."""
    powers = np.full(max(n, 1), 16807, np.uint64)
    done = 1
    while done < n:  # the next `done` powers are those so far, times the last one
        added = min(done, n - done)
        powers[done : done + added] = powers[:added] * powers[done - 1 : done]
        done += added
    return powers[:n]


@dataclass(frozen=True)
class Dart:
    """DART's settings."""

    rate_drop: float
    skip_drop: float
    weighted: bool  # sample_type: trees are dropped in proportion to their weight
    forest: bool  # normalize_type: all dropped trees have the weight of the new one, not each
    one_drop: bool = False


def dart_settings(params: Mapping[str, str]) -> Dart:
    """DART's settings, from parameters in float32."""
    return Dart(
        rate_drop=float(_f32(params["rate_drop"])),
        skip_drop=float(_f32(params["skip_drop"])),
        weighted=params["sample_type"] in ("1", "weighted"),
        forest=params["normalize_type"] in ("1", "forest"),
        one_drop=params["one_drop"] not in ("0", "False"),
    )


@dataclass(frozen=True)
class Drawn:
    """The draws of a training run.

    ``sample``       for each tree (n,) whether it saw the row; None: all trees saw all rows
    ``moves``        for each tree, how DART changed the scores before it, and last the changes
                     after all trees; None without DART
    ``tree_weight``  (trees,) factors of the trees in the finished model of DART, or None
    """

    sample: list[NDArray[np.bool_]] | None
    moves: Moves | None
    tree_weight: NDArray[np.float32] | None


def draw_again(
    rounds: Sequence[int],
    n: int,
    *,
    seed: int,
    subsample: float,
    method: TreeMethod,
    parallel: int,
    seed_per_iteration: bool,
    columns_first: bool,
    learning_rate: float,
    dart: Dart | None,
    begins: Mapping[int, bool] | None = None,
) -> Drawn:
    """Repeat the draws of a run.

    ``rounds``: number of trees of each round; ``parallel``: of each output in a round; ``begins``:
    rounds in which a further run begins, and whether its random numbers begin anew.
    """
    begins = begins or {}
    twister = Twister(seed)
    seeds_columns_once = method != "exact"
    if seeds_columns_once and columns_first:
        twister.word()
    row_draws = _RowDraws(n, subsample, method, parallel, columns_first)
    dart_run = None if dart is None else _DartRun(dart, learning_rate)
    for number, trees in enumerate(rounds):
        if seed_per_iteration:
            twister = Twister(seed * 127 + number)
        if dart_run is not None:
            dart_run.next_round(twister, trees)
        if begins.get(number):
            twister = Twister(seed)
        if (number == 0 or number in begins) and seeds_columns_once and not columns_first:
            twister.word()
        row_draws.next_round(twister, trees)
    return Drawn(
        row_draws.sample if row_draws.sampling else None,
        None if dart_run is None else [*dart_run.moves, dart_run.pending],
        None if dart_run is None else np.array(dart_run.weight, _f32),
    )


class _RowDraws:
    """The rows that each tree sees, drawn round by round into ``sample``."""

    def __init__(
        self, n: int, subsample: float, method: TreeMethod, parallel: int, columns_first: bool
    ) -> None:
        self.n = n
        self.subsample = _f32(subsample)
        self.method = method
        self.parallel = parallel
        self.columns_first = columns_first
        self.sampling = int(_f32(n) * self.subsample) < n
        self.sample: list[NDArray[np.bool_]] = []
        congruent = self.sampling and method != "exact"
        self._powers = congruential(n) if congruent else None

    def next_round(self, twister: Twister, trees: int) -> None:
        """Draw the rows of this many trees, and skip the seeds for columns."""
        seeds_columns = self.method == "exact"
        for tree in range(trees):
            if seeds_columns and self.columns_first:
                twister.word()
            if self.sampling:
                self._draw_tree(twister, tree)
            if seeds_columns and not self.columns_first:
                twister.word()

    def _draw_tree(self, twister: Twister, tree: int) -> None:
        if self.method == "approx" and tree % self.parallel:
            self.sample.append(self.sample[-1])
        else:
            self.sample.append(self._draw_rows(twister))

    def _draw_rows(self, twister: Twister) -> NDArray[np.bool_]:
        """(n,) whether each row is drawn."""
        if self._powers is None:
            return twister.numbers(self.n) < float(self.subsample)
        seed = np.full(1, twister.word() or 1, np.uint64)
        numbers = (self._powers * seed) & np.uint64(2**63 - 1)
        return (numbers - np.uint64(1)).astype(np.float64) / 2.0**63 < float(self.subsample)


class _DartRun:
    """The trees that DART drops, drawn round by round.

    ``weight``   factor of each tree so far
    ``moves``    changes of the scores before each tree so far
    ``pending``  changes of the scores after the last round, which also come before the next one
    """

    def __init__(self, settings: Dart, learning_rate: float) -> None:
        self.settings = settings
        self.learning_rate = learning_rate
        self.weight: list[np.float32] = []
        self.moves: Moves = []
        self.pending: list[tuple[int, float]] = []

    def next_round(self, twister: Twister, trees: int) -> None:
        """Drop trees, and add this many new ones."""
        dropped = self._draw_dropped(twister)
        self.moves.append(self.pending + [(i, -float(self.weight[i])) for i in dropped])
        self.moves += [[] for _ in range(trees - 1)]
        first = len(self.weight)
        self._normalise(dropped, trees)
        changed = [*dropped, *range(first, len(self.weight))]
        self.pending = [(i, float(self.weight[i])) for i in changed]

    def _draw_dropped(self, twister: Twister) -> list[int]:
        """Numbers of the trees so far that the next round leaves out."""
        skip_drop = self.settings.skip_drop
        if skip_drop > 0 and twister.numbers(1)[0] < float(_f32(skip_drop)):
            return []
        numbers = twister.numbers(len(self.weight))
        dropped = np.flatnonzero(numbers < self._chances().astype(np.float64)).tolist()
        if dropped or not self.weight or not self.settings.one_drop:
            return dropped
        return [self._draw_one(twister)]

    def _draw_one(self, twister: Twister) -> int:
        """The number of the one tree that a round drops if it would drop none."""
        count = len(self.weight)
        if not self.settings.weighted:
            return twister.below(count)
        if count == 1:  # of one possibility nothing is drawn
            return 0
        shares = np.cumsum(np.array(self.weight, np.float64) / np.sum(self.weight, dtype=float))
        return min(int(np.searchsorted(shares, twister.numbers(1)[0])), count - 1)

    def _chances(self) -> NDArray[np.float32]:
        """(trees so far,) chance of each tree to be dropped."""
        rate = _f32(self.settings.rate_drop)
        count = len(self.weight)
        if not self.settings.weighted or not count:
            return np.full(count, rate)
        weight = np.array(self.weight, _f32)
        total = np.cumsum(weight)[-1]  # one by one, as a sum in pairs would be rounded otherwise
        return rate * _f32(count) * weight / total

    def _normalise(self, dropped: list[int], trees: int) -> None:
        """Append the weights of the new trees, and reduce those of the dropped ones."""
        if not dropped:
            self.weight += [_f32(1.0)] * trees
            return
        rate = float(_f32(float(_f32(self.learning_rate)) / trees))
        count = len(dropped)
        # C++ adds a count and a float32 in float32, 1.0 and a float32 in double.
        if self.settings.forest:
            total = 1.0 + rate
            factor = 1 / total
        else:
            total = float(_f32(_f32(count) + _f32(rate)))
            factor = count / total
        for i in dropped:
            self.weight[i] = _f32(self.weight[i] * _f32(factor))
        self.weight += [_f32(1 / total)] * trees


def tree_method(params: Mapping[str, str]) -> TreeMethod:
    """The method that grew the trees; with "auto" the updaters show it."""
    method = params["tree_method"]
    if method != "auto":
        return method if method in ("exact", "approx") else "hist"
    updaters = params.get("updater_seq", "")
    if "grow_colmaker" in updaters:
        return "exact"
    return "approx" if "grow_histmaker" in updaters else "hist"
