"""Losses of a query as a whole: squared error up to a constant, and softmax over its rows.

Weights are factors of all that a row does here, so presence is weight: d/dpi = w d/dw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._data.arrays import F64
from .loss import CoupledLoss, CoupledRows, Shares, Slopes


@dataclass(frozen=True)
class QuerySquares(CoupledLoss):
    """L = sum w (A - y - mean)^2 / 2 over the rows of a query, mean: the weighted mean of A - y."""

    name: str = "squared error within queries"

    def on(self, rows: CoupledRows) -> _SquaresTerms:
        return _SquaresTerms(rows)


@dataclass(frozen=True)
class _SquaresTerms:
    rows: CoupledRows

    def at(self, A: F64, t: int) -> SquaresPoint:
        return SquaresPoint(self.rows, A)


class SquaresPoint:
    """g = w r, h = w, with r = A - y minus its weighted mean in the query."""

    def __init__(self, rows: CoupledRows, A: F64) -> None:
        self.rows = rows
        total = rows.sums(rows.w)
        self.share = rows.w / rows.spread(np.where(total > 0, total, 1.0))
        self.r = self._centred(A - rows.y)
        self.g = rows.w * self.r
        self.h = rows.w
        self.loss_gradient = self.g

    def _centred(self, x: F64) -> F64:
        """x (n, ...) minus its weighted mean in each query."""
        share = self.share.reshape(-1, *[1] * (x.ndim - 1))
        return x - self.rows.spread(self.rows.sums(share * x))

    def vjp(self, gbar: F64, hbar: F64, frozen: bool) -> Slopes:
        centred = self._centred(gbar)
        weights = self.r[:, None] * centred + hbar
        w = self.rows.w[:, None]
        return Slopes(w * centred, weights, w * weights)

    def shares(self, g_factor: F64, h_factor: F64) -> Shares:
        own = np.stack([self.rows.w * g_factor, self.r * g_factor + h_factor], axis=1)
        left = np.stack([-self.rows.w, -self.r], axis=1)
        return Shares((self.share * g_factor)[:, None], own, left[:, :, None])

    def jvp(self, dA: F64, dw: F64, dpi: F64, frozen: bool) -> tuple[F64, F64]:
        rows = self.rows
        dw = dw + rows.w * dpi
        total = rows.sums(rows.w)
        moved = rows.sums(dw * self.r) / np.where(total > 0, total, 1.0)
        dr = self._centred(dA) - rows.spread(moved)
        return dw * self.r + rows.w * dr, dw

    def losses(self, A: F64) -> F64:
        return self.rows.sums(0.5 * self.rows.w * self._centred(A - self.rows.y) ** 2)


@dataclass(frozen=True)
class QuerySoftmax(CoupledLoss):
    """L = -sum w y log p over the rows of a query, p = w e^(beta A) / its sum in the query.

    ``floor``   is added to the second derivatives: h = beta T (beta p (1 - p) + floor), T = sum w y
    ``newton``  whether leaves divide by h; otherwise by weights
    """

    beta: float = 1.0
    floor: float = 0.01
    newton: bool = False
    name: str = "softmax within queries"

    def on(self, rows: CoupledRows) -> _SoftmaxTerms:
        return _SoftmaxTerms(self, rows)


@dataclass(frozen=True)
class _SoftmaxTerms:
    loss: QuerySoftmax
    rows: CoupledRows

    def at(self, A: F64, t: int) -> SoftmaxPoint:
        return SoftmaxPoint(self.loss, self.rows, A)


class SoftmaxPoint:
    """g = beta (T p - w y), and h as in `QuerySoftmax`; both zero in queries of T = 0."""

    def __init__(self, loss: QuerySoftmax, rows: CoupledRows, A: F64) -> None:
        self.loss = loss
        self.rows = rows
        e = np.exp(loss.beta * (A - rows.spread(rows.largest(A))))
        total = rows.sums(rows.w * e)
        self.u = e / rows.spread(np.where(total > 0, total, 1.0))  # p / w
        self.p = rows.w * self.u
        self.T = rows.spread(rows.sums(rows.w * rows.y))
        self.on = self.T > 0
        self.curve = loss.beta * (loss.beta * self.p * (1 - self.p) + loss.floor)  # h / T
        self.g = np.where(self.on, loss.beta * (self.T * self.p - rows.w * rows.y), 0.0)
        self.h = np.where(self.on, self.T * self.curve, 0.0) if loss.newton else rows.w
        self.loss_gradient = self.g

    def vjp(self, gbar: F64, hbar: F64, frozen: bool) -> Slopes:
        rows = self.rows
        beta = self.loss.beta
        on = self.on[:, None]
        T = self.T[:, None]
        p = self.p[:, None]
        y = rows.y[:, None]
        by_weight = np.zeros_like(gbar) if self.loss.newton else hbar
        gbar = np.where(on, gbar, 0.0)
        hbar = np.where(on, hbar, 0.0) if self.loss.newton else np.zeros_like(gbar)
        pbar = beta * T * gbar + beta**2 * T * (1 - 2 * p) * hbar
        pull = pbar - rows.spread(rows.sums(p * pbar))
        Tbar = rows.spread(rows.sums(beta * p * gbar + self.curve[:, None] * hbar))
        weights = by_weight + self.u[:, None] * pull + y * Tbar - beta * y * gbar
        return Slopes(beta * p * pull, weights, rows.w[:, None] * weights)

    def shares(self, g_factor: F64, h_factor: F64) -> Shares:
        beta = self.loss.beta
        p = self.p
        y = self.rows.y
        g = np.where(self.on, g_factor, 0.0)
        h = np.where(self.on & self.loss.newton, h_factor, 0.0)
        by_weight = np.zeros_like(g) if self.loss.newton else h_factor
        by_p = beta * self.T * (g + beta * (1 - 2 * p) * h)  # of pbar in vjp
        right = np.stack([p * by_p, beta * p * g + self.curve * h], axis=1)
        in_weights = by_weight + self.u * by_p - beta * y * g
        left = np.stack([-beta * p, np.zeros_like(p), -self.u, y], axis=1).reshape(-1, 2, 2)
        return Shares(right, np.stack([beta * p * by_p, in_weights], axis=1), left)

    def jvp(self, dA: F64, dw: F64, dpi: F64, frozen: bool) -> tuple[F64, F64]:
        rows = self.rows
        beta = self.loss.beta
        dw = dw + rows.w * dpi
        raw = beta * self.p * dA + self.u * dw
        dp = raw - self.p * rows.spread(rows.sums(raw))
        dT = rows.spread(rows.sums(rows.y * dw))
        dg = beta * (dT * self.p + self.T * dp - rows.y * dw)
        if not self.loss.newton:
            return np.where(self.on, dg, 0.0), dw
        dh = dT * self.curve + self.T * beta**2 * (1 - 2 * self.p) * dp
        return np.where(self.on, dg, 0.0), np.where(self.on, dh, 0.0)

    def losses(self, A: F64) -> F64:
        rows = self.rows
        x = self.loss.beta * (A - rows.spread(rows.largest(A)))
        logs = x - rows.spread(np.log(rows.sums(rows.w * np.exp(x))))
        return -rows.sums(rows.w * rows.y * logs)
