"""Statistics over the members: running moments, and ranks with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints, Real

_LEVEL = 0.9  # of rank intervals
_DRAWS = 200  # ensembles that are drawn for rank intervals

Strata = Sequence[Ints]  # numbers of the members of each kind


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


@dataclass(frozen=True)
class KindMoments:
    """Moments of two kinds of values: of rows in bags, and of rows left out of them.

    ``left_out``: None if rows left out are not scored.
    """

    own: Moments
    left_out: Moments | None = None

    def add(self, bag: NDArray[np.bool_], own: Real, left_out: Real | None) -> KindMoments:
        """The moments with one more member: values of the rows in its bag, and of the others."""
        outside = self.left_out
        if left_out is not None:
            n, queries = self.own.mean.shape
            outside = outside or Moments.none(n, queries, left_out.dtype)
            outside = outside.add(np.flatnonzero(~bag), left_out)
        return KindMoments(self.own.add(np.flatnonzero(bag), own), outside)

    def is_enough(self) -> bool:
        """Whether there is a value of each kind for all rows."""
        kinds = [self.own] if self.left_out is None else [self.own, self.left_out]
        return all(bool(np.all(kind.count)) for kind in kinds)

    @property
    def scale(self) -> float:
        """The factor that brings values of rows left out to the size of the others.

        A row that was left out was not learnt, so its slope is larger. The factor is the median over
        the queries of the ratios of root mean squares.
        """
        if self.left_out is None:
            return 1.0
        sizes = [
            np.sqrt(np.mean(np.square(kind.mean, dtype=float), axis=0))
            for kind in (self.own, self.left_out)
        ]
        known = (sizes[0] > 0) & (sizes[1] > 0)
        return float(np.median(sizes[0][known] / sizes[1][known])) if known.any() else 1.0

    @property
    def mean(self) -> Real:
        """(n, queries) means over the kinds, of which each counts alike."""
        if self.left_out is None:
            return self.own.mean
        return (self.own.mean + self.own.mean.dtype.type(self.scale) * self.left_out.mean) / 2

    @property
    def error(self) -> Real:
        """(n, queries) standard errors of the means."""
        if self.left_out is None:
            return self.own.error
        left_out = self.own.mean.dtype.type(self.scale) * self.left_out.error
        return np.sqrt(self.own.error**2 + left_out**2) / 2


def by_kind(changes: F64, inside: NDArray[np.bool_]) -> tuple[F64, Strata]:
    """Changes of rows in the bags and, below them, of rows left out, each a kind for `summary`.

    ``changes`` (members, n), ``inside`` (members, n) whether a row is in a bag. Without changes of
    rows left out, there is one kind.
    """
    members = np.arange(len(changes))
    own = np.where(inside, changes, np.nan)
    left_out = np.where(inside, np.nan, changes)
    if np.isnan(left_out).all():
        return own, [members]
    return np.concatenate([own, left_out]), [members, len(changes) + members]


def summary(changes: F64, strata: Strata | None = None) -> tuple[F64, F64, F64]:
    """(n,) mean over each row's members, its standard error, share of members with its sign.

    ``changes`` (members, n): NaN if a member does not have the row.
    ``strata``: kinds of members that count alike, however many of them have the row. The mean is
    then that of the means over each kind.
    """
    parts = [_moments(changes[members]) for members in strata or [slice(None)]]
    mean = np.mean([part[0] for part in parts], axis=0)
    error = np.sqrt(np.sum([part[1] for part in parts], axis=0)) / len(parts)
    known = ~np.isnan(changes)
    agree = (known & (np.sign(np.where(known, changes, 0.0)) == np.sign(mean))).sum(axis=0)
    return mean, error, agree / np.maximum(known.sum(axis=0), 1)


def _moments(changes: F64) -> tuple[F64, F64]:
    """(n,) mean over the members that have a row, and its squared standard error.

    NaN: no member has the row, or for the error only one.
    """
    known = ~np.isnan(changes)  # (members, n)
    count = known.sum(axis=0)
    total = np.where(known, changes, 0.0).sum(axis=0)
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    spread = np.where(known, changes - mean, 0.0)
    squares = np.where(count > 1, (spread**2).sum(axis=0), np.nan)
    return mean, squares / np.maximum(count * (count - 1), 1)


def size_ranks(size: F64, rows: Ints) -> Ints:
    """Ranks of these rows among all sizes (n,); 1 is the largest, ties share the best rank."""
    return len(size) - np.searchsorted(np.sort(size), size[rows], side="right") + 1


def rank_intervals(
    changes: F64,
    rows: Ints,
    strata: Strata | None = None,
    size: Callable[[F64], F64] = np.abs,
) -> tuple[Ints, Ints]:
    """Lowest and highest rank of these rows in 90 % of the ensembles drawn from the members.

    Ensembles are drawn with replacement, from each of the strata (see `summary`) as many members as
    it has. A row that none of the drawn members has counts with its mean over all. Ranks are by
    ``size`` of the means.
    """
    rng = np.random.default_rng(0)
    parts = [changes[members] for members in strata or [slice(None)]]
    tables = [(~np.isnan(part), np.where(np.isnan(part), 0.0, part)) for part in parts]
    means = [_moments(part)[0] for part in parts]
    ranks = np.empty((_DRAWS, len(rows)))
    for d in range(_DRAWS):
        drawn = np.zeros(changes.shape[1])
        for (known, filled), mean in zip(tables, means, strict=True):
            members = len(known)
            times = rng.multinomial(members, np.full(members, 1 / members)).astype(float)
            count = times @ known
            drawn += np.where(count > 0, times @ filled / np.maximum(count, 1), mean)
        ranks[d] = size_ranks(size(drawn / len(parts)), rows)
    low, high = np.quantile(ranks, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0)
    return np.floor(low).astype(int), np.ceil(high).astype(int)
