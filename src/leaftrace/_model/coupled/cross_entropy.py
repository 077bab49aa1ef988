"""The cross-entropy bound of NDCG (XE_NDCG: Bruch, 2021), with random targets.

For the rows of a query, with r = softmax(A) and targets q = (2^y - u) / sum, u drawn anew for each row
in every step:

    t = r - q,   a = t / (1 - r),   t2 = r (sum a - a),   e = t2 / (1 - r)
    g = t + t2 + r (sum e - e),   h = r (1 - r)

The loss is -sum q log r, whose gradient is t; the other parts of g are the booster's correction of
its diagonal second derivatives. A presence is a factor of e^A and of 2^y - u. Queries of one row have
g = h = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..._data.arrays import F64
from .loss import NO_STEP, CoupledLoss, CoupledRows, Shares, Slopes

MEAN_DRAW = 0.5  # for test rows


@dataclass(frozen=True, eq=False)
class CrossEntropyNDCG(CoupledLoss):
    """The loss; ``draws`` gives u (n,) of all training rows in step t."""

    draws: Callable[[int], F64]
    name: str = "rank_xendcg"

    def on(self, rows: CoupledRows) -> _Terms:
        return _Terms(self, rows)


@dataclass(frozen=True, eq=False)
class _Terms:
    loss: CrossEntropyNDCG
    rows: CoupledRows

    def at(self, A: F64, t: int) -> CrossEntropyPoint:
        rows = self.rows
        u = np.full(len(rows), MEAN_DRAW) if t == NO_STEP else self.loss.draws(t)[rows.origin]
        target = 2.0 ** np.floor(rows.y) - u
        return CrossEntropyPoint(rows, A, target)


class CrossEntropyPoint:
    """The terms at scores A (n,) with unnormalised targets (n,)."""

    def __init__(self, rows: CoupledRows, A: F64, target: F64) -> None:
        self.rows = rows
        self.w = np.where(rows.spread(rows.sizes) > 1, rows.w, 0.0)
        x = np.exp(A - rows.spread(rows.largest(A)))
        self.r = x / self._total(x)
        self.q = target / np.maximum(self._total(target), 1e-15)
        self.v = np.where(self.w > 0, 1 - self.r, 1.0)
        self.t = self.r - self.q
        self.a = self.t / self.v
        self.t2 = self.r * (self._total(self.a) - self.a)
        self.e = self.t2 / self.v
        self.row_g = self.t + self.t2 + self.r * (self._total(self.e) - self.e)
        self.row_h = self.r * (1 - self.r)
        self.g = self.w * self.row_g
        self.h = self.w * self.row_h
        self.loss_gradient = self.w * self.t

    def _total(self, x: F64) -> F64:
        """(n, ...) sums of x over the row's query."""
        return self.rows.spread(self.rows.sums(x))

    def vjp(self, gbar: F64, hbar: F64, frozen: bool) -> Slopes:
        single = self.w[:, None] == 0
        has = np.where(single, 0.0, 1.0)
        weights = has * (gbar * self.row_g[:, None] + hbar * self.row_h[:, None])
        G = self.w[:, None] * gbar
        H = self.w[:, None] * hbar
        r, v, a, e = (x[:, None] for x in (self.r, self.v, self.a, self.e))
        total = self._total
        rbar = G * (total(self.e)[:, None] - e) + H * (1 - 2 * r)
        ebar = total(G * r) - G * r
        t2bar = G + ebar / v
        vbar = -ebar * e / v
        rbar = rbar + t2bar * (total(self.a)[:, None] - a)
        abar = total(t2bar * r) - t2bar * r
        tbar = G + abar / v
        vbar = vbar - abar * a / v
        rbar = rbar + tbar - vbar
        q = self.q[:, None]
        scores = r * (rbar - total(r * rbar))
        return Slopes(scores, weights, scores - q * (tbar - total(q * tbar)))

    def shares(self, g_factor: F64, h_factor: F64) -> Shares:
        """Go through `vjp`, with each number as coefficients of x, total(G r) and total(t2bar r)."""
        G = self.w * g_factor
        H = self.w * h_factor
        r = self.r
        v = self.v
        of_rest = self._total(self.e) - self.e
        one = np.ones_like(r)
        none = np.zeros_like(r)
        t2bar = np.stack([G - G * r / v, 1 / v, none])  # (3, n)
        abar = np.stack([none, none, one]) - t2bar * r
        ebar = np.stack([-G * r, one, none])
        direct = np.stack([G * (1 + of_rest) + H * (1 - 2 * r), none, none])
        of_a = self._total(self.a) - self.a
        rbar = direct + t2bar * of_a + abar * (1 + self.a) / v + ebar * self.e / v
        first = G * r
        second = t2bar[0] * r + self._total(r / v) * first
        in_sums = [self._total(r * c) for c in rbar[1:]]
        third = r * rbar[0] + in_sums[0] * first + in_sums[1] * second
        weights = np.where(self.w == 0, 0.0, g_factor * self.row_g + h_factor * self.row_h)
        left = np.zeros((len(r), 2, 3))
        left[:, 0] = np.stack([r * rbar[1], r * rbar[2], -r], axis=1)
        right = np.stack([first, second, third], axis=1)
        return Shares(right, np.stack([r * rbar[0], weights], axis=1), left)

    def jvp(self, dA: F64, dw: F64, dpi: F64, frozen: bool) -> tuple[F64, F64]:
        total = self._total
        move = dA + dpi
        dr = self.r * (move - total(self.r * move))
        dq = self.q * (dpi - total(self.q * dpi))
        dt = dr - dq
        da = (dt + self.a * dr) / self.v
        dt2 = dr * (total(self.a) - self.a) + self.r * (total(da) - da)
        de = (dt2 + self.e * dr) / self.v
        dg = dt + dt2 + dr * (total(self.e) - self.e) + self.r * (total(de) - de)
        dh = dr * (1 - 2 * self.r)
        dw = np.where(self.w == 0, 0.0, dw)
        return dw * self.row_g + self.w * dg, dw * self.row_h + self.w * dh

    def losses(self, A: F64) -> F64:
        rows = self.rows
        x = A - rows.spread(rows.largest(A))
        logs = x - np.log(self._total(np.exp(x)))
        return -rows.sums(self.w * self.q * logs)
