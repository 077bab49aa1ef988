"""The random order in which CatBoost goes through its training rows for target statistics.

It follows from the seed. Training shuffles all rows, then blocks of rows once more for each fold;
leaf values come from the last fold. All draws are 64-bit numbers of one generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import Ints
from .generators import U64, draws

# Larger tables are sampled, with one draw a sampled row: for borders of numbers, and in each fold.
_BORDER_SAMPLE = 200_000
_FOLD_SAMPLE = 100_000


@dataclass(frozen=True)
class Order:
    """An order of the training rows.

    ``rows`` (n,)         the rows as training went through them
    ``weighted_as`` (n,)  CatBoost records the weights of leaves as if these rows had come instead:
                          the i-th row counts with the weight of row weighted_as[i]
    """

    rows: Ints
    weighted_as: Ints


def training_orders(params: dict[str, Any], n: int) -> Iterator[Order]:
    """Yield the orders the rows may have had, the likeliest first.

    Up to 200,000 rows there is only one. Beyond, sampling for the borders of numbers used draws,
    unless there were no borders to find."""
    if params.get("has_time"):
        yield Order(np.arange(n), np.arange(n))
        return
    folds = max(1, int(params.get("permutation_count", 4)) - 1)
    size = int(params.get("fold_permutation_block") or 0) or min(256, n // 1000 + 1)
    blocks = -(-n // size)
    samples = _sampling_draws(n, folds)
    numbers = draws(int(params["random_seed"]), n - 1 + samples[0] + folds * (blocks - 1))
    shuffled_rows = _shuffled(numbers[: n - 1])
    for sampled in samples:
        start = n - 1 + sampled + (folds - 1) * (blocks - 1)  # the first fold is not shuffled
        shuffled_blocks = _shuffled(numbers[start : start + blocks - 1])
        fold = (shuffled_blocks[:, None] * size + np.arange(size)).ravel()
        fold = fold[fold < n]
        yield Order(shuffled_rows[fold], shuffled_rows[np.argsort(fold)])


def _sampling_draws(n: int, folds: int) -> list[int]:
    """Return how many draws sampling may have used before the last fold, the likeliest first."""
    in_folds = folds * _FOLD_SAMPLE if n > _FOLD_SAMPLE else 0
    if n > _BORDER_SAMPLE:
        return [in_folds + _BORDER_SAMPLE, in_folds]
    return [in_folds]


def _shuffled(numbers: U64) -> Ints:
    """Return 0 .. len(numbers) in random order: each place swaps with one of those up to itself."""
    order = list(range(len(numbers) + 1))
    # CatBoost draws again beyond the largest multiple of i + 1 below 2^64: less than once in 10^12
    # draws, which is left out here.
    swaps = numbers % np.arange(2, len(numbers) + 2, dtype=np.uint64)
    for i, j in enumerate(swaps.tolist(), 1):
        order[i], order[j] = order[j], order[i]
    return np.array(order, dtype=np.intp)
