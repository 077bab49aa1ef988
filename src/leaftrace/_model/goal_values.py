"""Values and gradients of the goals in `goals`: functions of raw predictions F, (m,) or (m, K)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64, Ints
from .goal import GoalRows


@dataclass(frozen=True)
class SmoothAUC:
    """Value and gradient of `goals.AUC` for some test rows."""

    test: GoalRows
    column: int  # of the class in the response
    h: float  # the bandwidth
    high: F64  # (m,) 1 for rows of the class
    pairs: float

    @property
    def ranks_scores(self) -> bool:
        """Whether rows are ranked by raw scores, not by probabilities."""
        return self.test.loss.n_outputs == 1

    @property
    def sign(self) -> float:
        """-1 if the class is the one with low scores."""
        return 1.0 if self.column else -1.0

    def ranked(self, F: F64) -> tuple[F64, Ints]:
        """(m,) scores in units of h, ascending, and the rows in this order."""
        F = F.reshape(self.test.count, -1)
        u = self.sign * F[:, 0] if self.ranks_scores else self.test.response(F)[:, self.column]
        u = u / self.h
        order = np.argsort(u, kind="stable")
        return u[order], order

    def value(self, F: F64) -> float:
        u, order = self.ranked(F)
        up = self.high[order]
        low = 1 - self.high[order]
        below = _decayed(u, low)
        above = _decayed_from_above(u, low)
        return float(up @ (np.cumsum(low) - (below - above) / 2)) / self.pairs

    def gradient(self, F: F64) -> F64:
        u, order = self.ranked(F)
        up = self.high[order]
        low = 1 - self.high[order]
        near_low = _decayed(u, low) + _decayed_from_above(u, low)
        near_up = _decayed(u, up) + _decayed_from_above(u, up)
        slope = np.empty(self.test.count)
        slope[order] = (up * near_low - low * near_up) / (2 * self.h * self.pairs)
        if self.ranks_scores:
            return self.sign * slope
        F = F.reshape(self.test.count, -1)
        c = np.zeros_like(self.test.response(F))
        c[:, self.column] = slope
        return self.test.pulled_back(F, c)


def _decayed(u: F64, a: F64) -> F64:
    """sum_{j <= k} a_j exp(u_j - u_k) for ascending u.

    It is computed in pieces within which exp does not overflow.
    """
    out = np.empty(len(u))
    carry = 0.0
    start = 0
    while start < len(u):
        stop = int(np.searchsorted(u, u[start] + 50, side="right"))
        part = u[start:stop] - u[start]
        out[start:stop] = (np.cumsum(a[start:stop] * np.exp(part)) + carry) * np.exp(-part)
        carry = out[stop - 1] * np.exp(u[stop - 1] - u[min(stop, len(u) - 1)])
        start = stop
    return out


def _decayed_from_above(u: F64, a: F64) -> F64:
    """sum_{j >= k} a_j exp(u_k - u_j) for ascending u."""
    return _decayed(-u[::-1], a[::-1])[::-1]


@dataclass(frozen=True)
class GroupGap:
    """Value and gradient of `goals.DemographicParityGap` for some test rows."""

    test: GoalRows
    column: int  # of the class in the response
    code: Ints  # (m,) group of each row
    share: F64  # (m,) weight of each row in the mean of its group
    signed: bool

    def gap(self, F: F64) -> tuple[float, F64]:
        """The gap, and its gradient in the means (groups,)."""
        means = np.bincount(self.code, self.share * self.test.response(F)[:, self.column])
        if self.signed:
            return float(means[1] - means[0]), np.array([-1.0, 1.0])
        apart = means - means.mean()
        pairs = len(means) - 1
        rms = float(np.sqrt(2 * (apart @ apart) / pairs))
        return rms, 2 * apart / (pairs * rms) if rms else np.zeros_like(apart)

    def value(self, F: F64) -> float:
        return self.gap(F.reshape(self.test.count, -1))[0]

    def gradient(self, F: F64) -> F64:
        F = F.reshape(self.test.count, -1)
        c = np.zeros_like(self.test.response(F))
        c[:, self.column] = self.gap(F)[1][self.code] * self.share
        return self.test.pulled_back(F, c)


@dataclass(frozen=True)
class SoftProfit:
    """Value and gradient of `goals.ExpectedProfit` for some test rows."""

    test: GoalRows
    M: F64  # (C, D) payoffs
    T: float  # the temperature
    gain: F64  # (m, D) payoffs of each row's class

    def decisions(self, F: F64) -> F64:
        """(m, D) probabilities q of the decisions."""
        a = self.test.response(F) @ self.M / self.T
        q = np.exp(a - a.max(axis=1, keepdims=True))
        return q / q.sum(axis=1, keepdims=True)

    def value(self, F: F64) -> float:
        q = self.decisions(F.reshape(self.test.count, -1))
        return float((q * self.gain).sum() / self.test.count)

    def gradient(self, F: F64) -> F64:
        F = F.reshape(self.test.count, -1)
        q = self.decisions(F)
        mean_gain = (q * self.gain).sum(axis=1, keepdims=True)
        slope = q * (self.gain - mean_gain) / (self.T * self.test.count)  # (m, D) dQ/da
        return self.test.pulled_back(F, slope @ self.M.T)
