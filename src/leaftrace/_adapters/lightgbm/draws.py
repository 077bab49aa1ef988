"""The rows that LightGBM drew for each tree: its random numbers again, from the seeds.

Rows are drawn in blocks of 1024, each with a generator of its own:
x <- 214013 x + 2531011 mod 2^32, of which bits 16 to 30 are a number from 0 to 1. Whether a draw is
right shows in the number of rows that the model recorded for each leaf.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import Ensemble
from .recover import scores_by_step

BLOCK = 1024
Sizes = Callable[[int, F64], NDArray[np.float32]]
ValuesAgree = Callable[[int, F64, NDArray[Any]], bool]

# x after k steps is POWERS[k] x + SHIFTS[k], k = 0 .. BLOCK
_POWERS = np.concatenate(
    [[1], np.cumprod(np.full(BLOCK, 214013, np.uint32), dtype=np.uint32)]
).astype(np.uint32)
_SHIFTS = np.concatenate([[0], np.cumsum(_POWERS[:-1], dtype=np.uint32)]).astype(
    np.uint32
) * np.uint32(2531011)


class BlockGenerators:
    """Random numbers for rows, from one generator for each block of them."""

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


class DrawCheck:
    """Checks whether the rows drawn for a step are those LightGBM drew.

    It compares them with the number of rows that the model recorded for each leaf (``counts``) and,
    where these are few numbers, with the leaf values (``values_agree``).

    ``spare``      iterations that may have drawn rows but found no split, and so left no tree
    ``confirmed``  whether all draws so far have agreed with the counts
    """

    def __init__(
        self, e: Ensemble, counts: F64 | None, spare: int, values_agree: ValuesAgree
    ) -> None:
        self.e = e
        self.counts = counts
        self.values_agree = values_agree
        self.spare = spare
        self.confirmed = counts is not None

    def counts_agree(self, t: int, drawn: NDArray[Any]) -> bool:
        """Whether a draw gives each leaf of step t its number of rows; NaN: it is not recorded."""
        if self.counts is None:
            return True
        recorded = self.counts[self.e.leaf_range(t)]
        found = np.zeros(len(recorded))
        for ids in self.e.leaves[self.e.trees(t)]:
            found += np.bincount(ids, drawn > 0, len(recorded))
        return bool(np.all((found == recorded) | np.isnan(recorded)))

    def choose(self, t: int, A: F64, draws: Iterator[NDArray[Any]]) -> NDArray[Any]:
        """The first draw that agrees with step t at the scores A; the first of all if none does."""
        leaves = self.e.leaf_range(t)
        few_counts = self.spare > 0 and leaves.stop - leaves.start < 8
        first = None
        for used, drawn in enumerate(islice(draws, self.spare + 1 if self.confirmed else 1)):
            first = drawn if first is None else first
            if not self.counts_agree(t, drawn):
                continue
            if not few_counts or self.values_agree(t, A, drawn):
                self.spare -= used
                return drawn
        self.confirmed = False
        assert first is not None
        return first


def draw_rows(
    params: dict[str, Any], e: Ensemble, balanced: bool, sizes: Sizes, check: DrawCheck
) -> list[NDArray[Any]] | None:
    """For each step (n,) how often it drew each row; None if it takes all rows.

    ``balanced``: labels are positive and negative, for which the fractions may differ.
    ``sizes(t, A)``: the numbers by which GOSS ranks rows.
    """
    if params["data_sample_strategy"] == "goss":
        goss = _Goss(params, e, sizes, check)
        return [goss.chosen(t, A) for t, A in scores_by_step(e, e.n_steps)]
    bags = (
        _query_bags(params, e) if params.get("bagging_by_query") else _bags(params, e.y, balanced)
    )
    return None if bags is None else _draw_bags(params, e, bags, check)


def _uncounted_steps(params: dict[str, Any], e: Ensemble) -> int:
    """1 if LightGBM did not count the first step as an iteration, otherwise 0.

    A step without any split is an attempt that failed. The first one still leaves its trees, which
    hold the starting score. A forest counts every step.
    """
    failed = e.fixed is not None and bool(e.fixed[e.leaf_range(0)].all())
    return int(failed and params["boosting"] != "rf")


def _draw_bags(
    params: dict[str, Any], e: Ensemble, bags: Iterator[NDArray[Any]], check: DrawCheck
) -> list[NDArray[Any]]:
    """The bag of each step, which is kept for ``bagging_freq`` iterations."""
    uncounted = _uncounted_steps(params, e)
    frequency = int(params["bagging_freq"])
    A = e.start()
    drawn: list[NDArray[Any]] = []
    for t in range(e.n_steps):
        if check.spare > 0:  # otherwise the scores are not used
            e.move(t, e.leaves, A)
        iteration = max(t - uncounted, 0)
        # A bag of all rows is never drawn again.
        redraw = t == 0 or (iteration % frequency == 0 and not drawn[-1].all())
        drawn.append(check.choose(t, A, bags) if redraw else drawn[-1])
    return drawn


def _bags(params: dict[str, Any], y: F64, balanced: bool) -> Iterator[NDArray[Any]] | None:
    """Bag after bag, (n,) 1 for rows in it; None where LightGBM takes all rows."""
    by_label = balanced and min(params["pos_bagging_fraction"], params["neg_bagging_fraction"]) < 1
    if params["bagging_freq"] <= 0 or not (by_label or params["bagging_fraction"] < 1):
        return None
    fraction = params["bagging_fraction"]
    if by_label:
        fraction = np.where(y > 0, params["pos_bagging_fraction"], params["neg_bagging_fraction"])
    generators = BlockGenerators(int(params["bagging_seed"]), len(y))
    all_rows = np.ones(len(y), dtype=bool)
    return ((generators.draw(all_rows) < fraction).astype(np.uint8) for _ in count())


def _query_bags(params: dict[str, Any], e: Ensemble) -> Iterator[NDArray[Any]] | None:
    """Bag after bag of whole queries, (n,) 1 for their rows; None where LightGBM takes all rows."""
    if params["bagging_freq"] <= 0 or params["bagging_fraction"] >= 1 or e.places is None:
        return None
    number = e.places.number
    queries = int(number[-1]) + 1
    generators = BlockGenerators(int(params["bagging_seed"]), queries)
    every = np.ones(queries, dtype=bool)
    fraction = params["bagging_fraction"]
    return ((generators.draw(every) < fraction)[number].astype(np.uint8) for _ in count())


ADDED_NOTE = (
    "with bagging_by_query and a fraction above 0.5, LightGBM adds trees to the scores of wrong rows while it trains, "
    "which is replayed as it is"
)


def times_added(
    params: dict[str, Any], drawn: Sequence[NDArray[Any]] | None
) -> list[NDArray[Any]] | None:
    """For each step (n,) how often LightGBM adds its tree to the scores of each row; None: once.

    With bags of queries and a fraction above 0.5, it leaves the second half of its list of rows as it was, which
    should name those out of the bag. So these get nothing, and the rows that stand there instead get the tree
    once more: those of former bags, and the first row as often as there are places that were never written.
    """
    by_query = params.get("bagging_by_query") and drawn is not None
    if not by_query or params["bagging_fraction"] / params["bagging_freq"] <= 0.5:
        return None
    assert drawn is not None
    rows = np.zeros(len(drawn[0]), np.intp)
    found = []
    for bag in drawn:
        inside = np.flatnonzero(bag)
        rows[: len(inside)] = inside
        more = np.bincount(rows[len(inside) :], minlength=len(rows))
        found.append((bag > 0) + more.astype(np.float64))
    return found


class _Goss:
    """GOSS: rows of large gradients count once, those drawn among the others several times.

    A forest has one table of gradients, in which LightGBM multiplies those of the rows that it draws. So
    rows that were drawn before count more in all later trees, and are ranked by these gradients.

    ``factor``  (n,) by which gradients have been multiplied in earlier trees
    """

    def __init__(self, params: dict[str, Any], e: Ensemble, sizes: Sizes, check: DrawCheck) -> None:
        self.params = params
        self.n = e.n_rows
        self.first_drawn = int(1 / params["learning_rate"]) + _uncounted_steps(params, e)
        self.sizes = sizes
        self.check = check
        self.generators = self._new_generators()
        self.part_length = 0  # rows among which a thread ranks gradients; 0: not found yet
        self.multiplies = params["boosting"] == "rf"
        self.factor = np.ones(self.n)

    def chosen(self, t: int, A: F64) -> F64:
        """(n,) how often each row counts in step t."""
        drawn = self.check.choose(t, A, self.draws(t, A))
        if self.multiplies:
            drawn = self.factor * drawn
            self.factor = np.where(drawn > 0, drawn, self.factor)
        return drawn

    def _new_generators(self) -> BlockGenerators:
        return BlockGenerators(int(self.params["bagging_seed"]), self.n)

    def draws(self, t: int, A: F64) -> Iterator[F64]:
        """Draw after draw, (n,) how often each row counts in step t. First steps take all rows."""
        if t < self.first_drawn:
            return repeat(np.ones(self.n))
        size = self.sizes(t, A) * np.square(self.factor, dtype=np.float32)
        if not self.part_length:
            self.part_length = self._find_part_length(t, size)
        return (_goss(self.params, size, self.generators, self.part_length) for _ in count())

    def _find_part_length(self, t: int, size: NDArray[np.float32]) -> int:
        """The first length whose draw agrees with the model; if none does, the likeliest."""
        lengths = _part_lengths(self.params, self.n)
        for length in lengths:
            drawn = _goss(self.params, size, self._new_generators(), length)
            if self.check.counts_agree(t, drawn):
                return length
        return lengths[0]


def _part_lengths(params: dict[str, Any], n: int) -> list[int]:
    """Numbers of rows that a thread of LightGBM's may have had, the likeliest first.

    It ranks gradients among them. The number of threads is a parameter, but 0 stands for all cores
    of the machine that trained.
    """
    blocks = -(-n // BLOCK)
    threads = [int(params["num_threads"]) or os.cpu_count() or 1, *range(1, min(blocks, 256) + 1)]
    parts = [max(1, min(k, blocks)) for k in threads]
    return list(dict.fromkeys(n if k == 1 else -(-n // (k * BLOCK)) * BLOCK for k in parts))


def _goss(
    params: dict[str, Any],
    size: NDArray[np.float32],
    generators: BlockGenerators,
    length: int,
) -> F64:
    """(n,) how often each row counts in one draw, made in parts of this many rows."""
    n = len(size)
    parts = [slice(a, min(a + length, n)) for a in range(0, n, length)]
    large = np.empty(n, dtype=bool)
    for part in parts:
        rows = part.stop - part.start
        top = _top_count(params, rows)
        large[part] = size[part] >= np.partition(size[part], rows - top)[rows - top]
    chance = generators.draw(~large)
    out = large.astype(float)
    for part in parts:
        out[part] += _draw_small(params, large[part], chance[part])
    return out


def _top_count(params: dict[str, Any], rows: int) -> int:
    """Number of rows of large gradients, among this many."""
    return max(1, int(rows * params["top_rate"]))


def _draw_small(params: dict[str, Any], large: NDArray[np.bool_], chance: F64) -> F64:
    """(rows,) how often rows of small gradients count; 0 for those not drawn and for the large."""
    rows = len(large)
    top = _top_count(params, rows)
    need = int(rows * params["other_rate"])
    out = np.zeros(rows)
    if not need:
        return out
    multiple = float(np.float32(rows - top) / np.float32(need))
    small = np.flatnonzero(~large)
    rest = rows - small - top + np.cumsum(large)[small]  # small rows to come, this one included
    for begin in range(0, len(small), BLOCK):
        block = slice(begin, begin + BLOCK)
        u = chance[small[block]]
        left = rest[block]
        likely = np.flatnonzero(u < need / left)  # need falls as rows are taken, so no others
        for i in likely.tolist():
            if u[i] < need / left[i]:
                out[small[begin + i]] = multiple
                need -= 1
    return out
