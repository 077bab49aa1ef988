"""Pairs of rows of one query, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from .loss import CoupledRows

PAIRS_AT_ONCE = 1 << 22  # pairs of rows that are looked at in one piece


@dataclass(frozen=True)
class Pairs:
    """P pairs (a, b) of n rows; both rows of a pair are of the query ``query``."""

    a: Ints  # (P,)
    b: Ints  # (P,)
    query: Ints  # (P,)
    n: int

    def take(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.a[chosen], self.b[chosen], self.query[chosen], self.n)

    def difference(self, x: F64) -> F64:
        """x_a - x_b: (..., P) from (..., n)."""
        return x[..., self.a] - x[..., self.b]

    def total(self, x: F64) -> F64:
        """x_a + x_b: (..., P) from (..., n)."""
        return x[..., self.a] + x[..., self.b]

    def scattered(self, x: F64, sign: float) -> F64:
        """(..., n) sums over the pairs of each row: x where it is a, and sign x where it is b."""
        if x.ndim == 1:
            first = np.bincount(self.a, x, self.n)
            second = np.bincount(self.b, x, self.n)
            return (first + sign * second).astype(np.float64)
        return np.stack([self.scattered(lane, sign) for lane in x])

    def by_query(self, x: F64, queries: int) -> F64:
        """(..., Q) sums over the pairs of each query."""
        if x.ndim == 1:
            return np.bincount(self.query, x, queries).astype(np.float64)
        return np.stack([self.by_query(lane, queries) for lane in x])


def label_pairs(rows: CoupledRows) -> Pairs:
    """All pairs of rows of one query in which a has the higher label."""
    size = rows.spread(rows.sizes)  # (n,)
    start = rows.spread(rows.starts)
    edges = np.r_[0, np.cumsum(size)]
    parts = []
    first = 0
    while first < len(rows):
        last = int(np.searchsorted(edges, edges[first] + PAIRS_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), len(rows))
        own = np.arange(first, last)
        a = np.repeat(own, size[own])
        within = np.arange(len(a)) - np.repeat(edges[own] - edges[first], size[own])
        b = start[a] + within
        higher = rows.y[a] > rows.y[b]
        parts.append((a[higher], b[higher]))
        first = last
    a = np.concatenate([part[0] for part in parts])
    b = np.concatenate([part[1] for part in parts])
    return Pairs(a, b, rows.number[a], len(rows))
