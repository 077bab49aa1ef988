"""Pairs of lambda losses: which rows are compared in a step, and how much each pair counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from .loss import NO_STEP, CoupledRows
from .pairs import Pairs


class WeightedPairs(NamedTuple):
    """The pairs of a step, with their weights D (P,)."""

    pairs: Pairs
    D: F64


class PairRule(Protocol):
    """Pairs of a step and their weights."""

    def __call__(self, rows: CoupledRows, pairs: Pairs, ranks: Ints, t: int) -> WeightedPairs:
        """Choose among all pairs of different labels, by ranks (n,), before step t."""
        ...


class PairWeight(Protocol):
    """Weights D (P,) of pairs, by ranks (n,)."""

    def __call__(self, rows: CoupledRows, pairs: Pairs, ranks: Ints) -> F64: ...


@dataclass(frozen=True)
class FirstPlaces:
    """Pairs of which at least one row is among the first ``k`` by score."""

    k: float
    weight: PairWeight

    def __call__(self, rows: CoupledRows, pairs: Pairs, ranks: Ints, t: int) -> WeightedPairs:
        if np.all(ranks < self.k):
            return WeightedPairs(pairs, self.weight(rows, pairs, ranks))
        chosen = pairs.take(np.minimum(ranks[pairs.a], ranks[pairs.b]) < self.k)
        return WeightedPairs(chosen, self.weight(rows, chosen, ranks))


@dataclass(frozen=True, eq=False)
class DrawnPairs:
    """Pairs that training drew at random, which stay as they are.

    Rows that are left out take their pairs with them. Test rows have all pairs.

    ``steps``    for each step the rows (P,) of higher and of lower label, by position in training
    ``weight``   of pairs
    ``weights``  for each step weights (P,) that were drawn with the pairs; None: ``weight`` has all
    """

    steps: Sequence[tuple[Ints, Ints]]
    weight: PairWeight
    weights: Sequence[F64] | None = None

    def __call__(self, rows: CoupledRows, pairs: Pairs, ranks: Ints, t: int) -> WeightedPairs:
        if t == NO_STEP:
            return WeightedPairs(pairs, self.weight(rows, pairs, ranks))
        pairs, kept = self._drawn(rows, t)
        if self.weights is not None:
            return WeightedPairs(pairs, self.weights[t][kept])
        return WeightedPairs(pairs, self.weight(rows, pairs, ranks))

    def _drawn(self, rows: CoupledRows, t: int) -> tuple[Pairs, NDArray[np.bool_]]:
        """The pairs of step t whose rows are both there, and which of all drawn these are."""
        a, b = self.steps[t]
        place = np.full(1 + max(int(np.max(x, initial=0)) for x in (a, b, rows.origin)), -1)
        place[rows.origin] = np.arange(len(rows))
        a = place[a]
        b = place[b]
        kept = (a >= 0) & (b >= 0)
        return Pairs(a[kept], b[kept], rows.number[a[kept]], len(rows)), kept


@dataclass(frozen=True)
class EqualWeights:
    """A weight of one for every pair."""

    def __call__(self, rows: CoupledRows, pairs: Pairs, ranks: Ints) -> F64:
        return np.ones(len(pairs.a))


@dataclass(frozen=True)
class NDCGGap:
    """The change of NDCG by exchanging the rows of a pair.

    ``gains``       gain of each label 0, 1, ...; None: the label itself
    ``ideal_over``  places that the ideal DCG counts
    """

    gains: tuple[float, ...] | None
    ideal_over: float

    def __call__(self, rows: CoupledRows, pairs: Pairs, ranks: Ints) -> F64:
        gain, inverse = rows.kept(self, lambda: self._of_labels(rows))
        gap = np.abs(pairs.difference(gain)) * np.abs(pairs.difference(discounts(ranks)))
        return gap * inverse[pairs.query]

    def _of_labels(self, rows: CoupledRows) -> tuple[F64, F64]:
        """Gains (n,), and the inverse of the ideal DCG (Q,) or 0: what does not change with scores."""
        gain = rows.y if self.gains is None else np.array(self.gains)[rows.y.astype(int)]
        ideal = ideal_dcg(rows, gain, self.ideal_over)
        return gain, np.divide(1.0, ideal, out=np.zeros_like(ideal), where=ideal > 0)


@dataclass(frozen=True)
class PrecisionGap:
    """The change of the average precision by exchanging the rows of a pair; labels are 0 or 1.

    With n_r the relevant rows down to place r and A_r the sum of y / (r + 1) down to it, for places
    i < j: |n_i / (i + 1) - n_j / (j + 1) + A_{j-1} - A_i| / n if the row at i is relevant, otherwise
    |n_j / (j + 1) - (n_i + 1) / (i + 1) - A_{j-1} + A_i| / n.
    """

    def __call__(self, rows: CoupledRows, pairs: Pairs, ranks: Ints) -> F64:
        start = rows.spread(rows.starts)
        place = start + ranks  # (n,) of each row in the list of all rows, ranked query by query
        y = np.empty(len(rows))
        y[place] = rows.y
        r = np.arange(len(rows)) - start + 1.0
        relevant = _running_sums(rows, y)
        parts = _running_sums(rows, y / r)
        i = np.minimum(place[pairs.a], place[pairs.b])
        j = np.maximum(place[pairs.a], place[pairs.b])
        between = parts[j] - y[j] / r[j] - parts[i]
        down = relevant[i] / r[i] - relevant[j] / r[j] + between
        up = relevant[j] / r[j] - (relevant[i] + 1) / r[i] - between
        total = rows.sums(rows.y)
        return np.abs(np.where(y[i] < y[j], up, down)) / np.maximum(total, 1)[pairs.query]


def _running_sums(rows: CoupledRows, x: F64) -> F64:
    """(n,) sums of x (n,) from the first row of each query on."""
    total = np.cumsum(x)
    before = total[rows.starts] - x[rows.starts]
    return total - rows.spread(before)


def discounts(ranks: Ints) -> F64:
    """1 / log2(rank + 2), ranks from 0."""
    return 1 / np.log2(ranks + 2.0)


def ideal_dcg(rows: CoupledRows, gain: F64, k: float) -> F64:
    """(Q,) the largest possible DCG of each query, over its first k places; gain (n,)."""
    best = rows.ranks(gain)
    return rows.sums(gain * discounts(best) * (best < k))
