"""Averages over bags of one or several sizes, and how far they can be trusted.

    value_i = mean over the sizes of the mean over the bags of that size without row i

Every size counts alike, also for rows that are left out of fewer of the larger bags.
"""

from __future__ import annotations

import numpy as np

from ..._data.arrays import F64, Ints
from ..stability.moments import Strata, summary


def strata_of(sizes: Ints) -> Strata:
    """Numbers of the members of each size, from the sizes (members,) of their bags."""
    return [np.flatnonzero(sizes == size) for size in np.unique(sizes)]


def reliability(values: F64, sizes: Ints) -> float:
    """How well the ranking would agree with that of as many other members; 1 is best.

    The members are halved, every second one of each size in each half. From the rank correlation
    r of the values by the two halves, that of twice as many members is 2 r / (1 + r) (Spearman and
    Brown). NaN if a half has too few members to value two rows, or values all rows alike.

    ``values``  (members, n), NaN for rows in the bag
    """
    halves = []
    for first in (0, 1):
        members = np.concatenate([numbers[first::2] for numbers in strata_of(sizes)])
        if len(np.unique(sizes[members])) < len(np.unique(sizes)):
            return np.nan
        halves.append(summary(values[members], strata_of(sizes[members]))[0])
    known = np.isfinite(halves[0] + halves[1])
    if known.sum() < 2:
        return np.nan
    r = rank_correlation(halves[0][known], halves[1][known])
    return max(0.0, 2 * r / (1 + r)) if r > -1 else 0.0


def rank_correlation(a: F64, b: F64) -> float:
    """Spearman's rank correlation of (n,) numbers; ties have the mean of their ranks."""
    ranks = []
    for x in (a, b):
        _, place, count = np.unique(x, return_inverse=True, return_counts=True)
        centre = (np.cumsum(count) - (count - 1) / 2)[place]
        ranks.append(centre - centre.mean())
    spread = np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    return float(ranks[0] @ ranks[1] / spread) if spread > 0 else np.nan
