"""Statistics over the members: running moments, and ranks with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints, Real

_LEVEL = 0.9  # of rank intervals
_DRAWS = 200  # ensembles that are drawn for rank intervals


@dataclass(frozen=True)
class Moments:
    """Moments of the members' values so far, for each row over the members that have it.

    ``count`` (n,)            members that have the row
    ``mean`` (n, queries)
    ``squares`` (n, queries)  sum of squared distances from the mean

    They are never changed in place, so that Ctrl-C always leaves complete ones.
    """

    count: Ints
    mean: Real
    squares: Real

    @classmethod
    def none(cls, n: int, queries: int, dtype: Any) -> Moments:
        """The moments before the first member."""
        zeros = np.zeros((n, queries), dtype)
        return cls(np.zeros(n, np.intp), zeros, zeros)

    def add(self, rows: Ints, values: Real) -> Moments:
        """The moments with the values (rows, queries) of one more member, by Welford's update."""
        count = self.count.copy()
        mean = self.mean.copy()
        squares = self.squares.copy()
        count[rows] += 1
        step = values - mean[rows]
        mean[rows] += step / count[rows, None].astype(values.dtype)
        squares[rows] += step * (values - mean[rows])
        return Moments(count, mean, squares)

    @property
    def error(self) -> Real:
        """(n, queries) standard errors of the means; NaN for rows of a single member."""
        count = self.count[:, None].astype(self.mean.dtype)
        squares = np.where(count > 1, self.squares, np.nan)
        return np.sqrt(squares / np.maximum(count * (count - 1), 1))


def summary(changes: F64) -> tuple[F64, F64, F64]:
    """(n,) mean over each row's members, its standard error, share of members with its sign.

    ``changes`` (members, n): NaN if a member does not have the row.
    """
    known = ~np.isnan(changes)  # (members, n)
    count = known.sum(axis=0)
    filled = np.where(known, changes, 0.0)
    mean = filled.sum(axis=0) / count
    spread = np.where(known, changes - mean, 0.0)
    squares = np.where(count > 1, (spread**2).sum(axis=0), np.nan)
    agree = (known & (np.sign(filled) == np.sign(mean))).sum(axis=0)
    return mean, np.sqrt(squares / np.maximum(count * (count - 1), 1)), agree / count


def size_ranks(size: F64, rows: Ints) -> Ints:
    """Ranks of these rows among all sizes (n,); 1 is the largest, ties share the best rank."""
    return len(size) - np.searchsorted(np.sort(size), size[rows], side="right") + 1


def rank_intervals(changes: F64, rows: Ints) -> tuple[Ints, Ints]:
    """Lowest and highest rank of these rows in 90 % of the ensembles drawn from the members.

    Ensembles are drawn with replacement and have as many members. A row that is in the bag of none
    of the drawn members counts with its mean over all.
    """
    rng = np.random.default_rng(0)
    members = len(changes)
    known = ~np.isnan(changes)
    filled = np.where(known, changes, 0.0)
    mean = summary(changes)[0]
    ranks = np.empty((_DRAWS, len(rows)))
    for d in range(_DRAWS):
        times = rng.multinomial(members, np.full(members, 1 / members)).astype(float)  # (members,)
        count = times @ known
        drawn = np.where(count > 0, times @ filled / np.maximum(count, 1), mean)
        ranks[d] = size_ranks(np.abs(drawn), rows)
    low, high = np.quantile(ranks, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0)
    return np.floor(low).astype(int), np.ceil(high).astype(int)
