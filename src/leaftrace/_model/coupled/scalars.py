"""Numbers of whole queries of test rows, such as their loss or NDCG, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..._data.arrays import F64, Ints
from .loss import NO_STEP, CoupledLoss, CoupledRows, test_rows
from .pair_rules import discounts, ideal_dcg


@dataclass(frozen=True)
class Expansion:
    """Numbers of queries around some scores.

    ``gradient``  (m,) of the sum of all numbers, at these scores
    ``values``    gives the numbers (Q,) at other scores (m,)
    """

    gradient: F64
    values: Callable[[F64], F64]


class QueryScalar(Protocol):
    """A number of each query of some test rows."""

    @property
    def number(self) -> Ints:
        """(m,) the query of each test row, from 0."""
        ...

    def at(self, F: F64) -> Expansion:
        """The numbers around scores F (m,)."""
        ...


@dataclass(frozen=True)
class OwnLoss:
    """The loss that the model was trained with, with pair weights held where the scores are."""

    loss: CoupledLoss
    y: F64  # (m,)
    number: Ints  # (m,)

    def at(self, F: F64) -> Expansion:
        rows = test_rows(self.y, self.number)
        point = self.loss.for_test_rows().on(rows).at(F, NO_STEP)
        return Expansion(point.loss_gradient, point.losses)


@dataclass(frozen=True)
class SmoothNDCG:
    """NDCG with soft ranks (ApproxNDCG: Qin, Liu and Li, 2010).

    The rank of row i is 1 + sum_j sigmoid((F_j - F_i) / bandwidth) over the other rows of its query,
    and the discount 1 / log2(1 + rank) fades out around rank k + 1/2:

        NDCG = sum_i gain_i q(rank_i) / ideal DCG,      q(r) = sigmoid(2 (k + 1/2 - r)) / log2(1 + r)

    A query whose gains are all zero has none; it counts as 0.
    """

    gain: F64  # (m,)
    number: Ints  # (m,)
    k: float  # inf: all places
    bandwidth: float

    def at(self, F: F64) -> Expansion:
        _, gradient = self._evaluate(F)
        return Expansion(gradient, lambda scores: self._evaluate(scores)[0])

    def _evaluate(self, F: F64) -> tuple[F64, F64]:
        """Values (Q,) and the gradient (m,) of their sum."""
        rows = test_rows(self.gain, self.number)
        i, j = _other_rows(rows)
        m = len(F)
        above = 0.5 * (1 + np.tanh(0.5 * (F[j] - F[i]) / self.bandwidth))
        rank = 1 + np.bincount(i, above, m).astype(np.float64)
        discount, slope = self._discount(rank)
        ideal = ideal_dcg(rows, self.gain, self.k)
        share = rows.spread(np.divide(1.0, ideal, out=np.zeros_like(ideal), where=ideal > 0))
        values = rows.sums(self.gain * discount * share)
        pull = (self.gain * slope * share)[i] * above * (1 - above) / self.bandwidth
        gradient = np.bincount(j, pull, m) - np.bincount(i, pull, m)
        return values, gradient.astype(np.float64)

    def _discount(self, rank: F64) -> tuple[F64, F64]:
        """q and dq/dr for soft ranks from 1."""
        logs = np.log2(1 + rank)
        q = 1 / logs
        slope = -1 / (logs**2 * (1 + rank) * np.log(2))
        if np.isinf(self.k):
            return q, slope
        keep = 0.5 * (1 + np.tanh(self.k + 0.5 - rank))
        return q * keep, slope * keep - 2 * q * keep * (1 - keep)


def _other_rows(rows: CoupledRows) -> tuple[Ints, Ints]:
    """All ordered pairs of different rows of one query."""
    size = rows.spread(rows.sizes)
    i = np.repeat(np.arange(len(rows)), size)
    first = np.repeat(np.cumsum(size) - size, size)
    j = np.repeat(rows.spread(rows.starts), size) + np.arange(len(i)) - first
    return i[i != j], j[i != j]


def ndcg(F: F64, gain: F64, number: Ints, k: float) -> F64:
    """(Q,) NDCG itself, by ranks of scores F (m,)."""
    rows = test_rows(gain, number)
    rank = rows.ranks(F)
    ideal = ideal_dcg(rows, gain, k)
    found = rows.sums(gain * discounts(rank) * (rank < k))
    return np.divide(found, ideal, out=np.zeros_like(ideal), where=ideal > 0)
