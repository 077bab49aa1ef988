"""Residuals of given ranks in each leaf, from which libraries compute medians and quantiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._data.arrays import F64, Ids, Ints
from .kernels import kernels


def values_of_rank(
    leaf: Ids, M: int, x: F64, rank: Callable[[Ints], Ints]
) -> tuple[F64, F64, Ints]:
    """(M,) the value of a rank among the x (n,) of each leaf, the next larger one, and (M,) numbers of rows.

    ``rank``: gives ranks (M,), from 0, for numbers of rows (M,); they are clipped to the rows there are.
    """
    count = np.bincount(leaf, minlength=M)
    low = np.clip(rank(count), 0, np.maximum(count - 1, 0)).astype(np.int64)
    pairs = np.empty((M, 2))
    kernels.rank_pairs(np.ascontiguousarray(leaf), np.ascontiguousarray(x), low, pairs)
    return pairs[:, 0], pairs[:, 1], count
