"""Lambda losses: pairs of rows of a query, weighted by what their exchange would do to a metric.

For each query, rows sorted by score; pairs (a, b) with y_a > y_b of which at least one is among the
first K, with d = A_a - A_b:

    rho = 1 / (1 + e^(sigma d))      lam = -sigma D rho phi      eta = m sigma^2 D rho (1 - rho) phi
    g_a += lam,  g_b -= lam,  h_a += eta,  h_b += eta;   S = -2 sum lam;   all of the query times c

D is the change of the metric by the exchange. The normalisers are phi = 1 / (0.01 + |d|) and
c = log2(1 + S) / S, or 1. The gradient is that of c sum D phi log(1 + e^(-sigma d)) with order, D,
phi and c held. Derivatives hold the order and D; `frozen` ones also phi and c:

    cbar = sum gbar g + hbar h (before c);   Sbar = cbar c',   c' = (1 / ((1 + S) ln 2) - c) / S
    lbar = c (gbar_a - gbar_b) - 2 Sbar,   ebar = c (hbar_a + hbar_b),   dbar = lbar lam' + ebar eta'
    lam' = lam f - sigma D phi rho',   eta' = eta f + m sigma^2 D phi rho' (1 - 2 rho)
    rho' = -sigma rho (1 - rho),   f = phi' / phi = -sign(d) phi
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from .columns import QueryColumns
from .loss import CoupledLoss, CoupledRows, Slopes
from .pair_rules import PairRule
from .pairs import Pairs, label_pairs

LEAST_DISTANCE = 0.01  # in phi


@dataclass(frozen=True)
class LambdaLoss(CoupledLoss):
    """A lambda loss.

    ``pair_rule``        chooses pairs by ranks, and gives their weights D
    ``sigma``            steepness of the logistic function of score differences
    ``hessian_factor``   m above
    ``score_normaliser``  whether phi is used; it is 1 in queries of equal scores
    ``normaliser``       "log2": c above; "none": 1; "drawn": one by the number of pairs drawn for a row
    ``drawn``            that number
    ``mean_weight``      whether weights are divided by their mean over the queries
    ``newton``           whether eta is as above; otherwise it is D, the weight of the pair
    ``table_cells``      training looked rho up in a table with this many cells over +-25 / sigma; 0:
                         it computed rho. Derivatives are those of rho itself
    """

    pair_rule: PairRule
    sigma: float = 1.0
    hessian_factor: float = 1.0
    score_normaliser: bool = True
    normaliser: str = "log2"
    drawn: int = 1
    mean_weight: bool = False
    newton: bool = True
    table_cells: int = 0
    name: str = "lambda"

    def on(self, rows: CoupledRows) -> LambdaTerms:
        return LambdaTerms(self, rows)

    def for_test_rows(self) -> LambdaLoss:
        return replace(self, table_cells=0)

    @cached_property
    def table(self) -> F64:
        """(cells,) rho at the lower edge of each cell."""
        edges = (np.arange(self.table_cells) / self.table_cells - 0.5) * (50.0 / self.sigma)
        return 1 / (1 + np.exp(self.sigma * edges))

    def rho(self, d: F64) -> F64:
        """rho of differences d (P,), as training had it."""
        if not self.table_cells:
            return smooth_rho(self.sigma * d)
        place = (d + 25.0 / self.sigma) * (self.table_cells * self.sigma / 50.0)
        return self.table[np.clip(place, 0, self.table_cells - 1).astype(np.int64)]


def smooth_rho(x: F64) -> F64:
    """1 / (1 + e^x), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x > 0, e, 1.0) / (1 + e)


class LambdaTerms:
    """A lambda loss with its rows."""

    def __init__(self, loss: LambdaLoss, rows: CoupledRows) -> None:
        self.loss = loss
        self.rows = rows

    @cached_property
    def all_pairs(self) -> Pairs:
        """Pairs of rows with different labels."""
        return label_pairs(self.rows)

    def at(self, A: F64, t: int) -> LambdaPoint:
        rows = self.rows
        ranks = rows.ranks(A)
        pairs, D = self.loss.pair_rule(rows, self.all_pairs, ranks, t)
        varies = rows.largest(A) > -rows.largest(-A)  # (Q,)
        return LambdaPoint(self.loss, rows, pairs, D, A, varies)


class LambdaPoint:
    """The terms of a lambda loss at scores A (n,).

    ``varies``: (Q,) whether the scores of a query differ.
    """

    def __init__(
        self,
        loss: LambdaLoss,
        rows: CoupledRows,
        pairs: Pairs,
        D: F64,
        A: F64,
        varies: NDArray[np.bool_],
    ) -> None:
        self.loss = loss
        self.rows = rows
        self.pairs = pairs
        self.varies = varies
        self.d = pairs.difference(A)
        rho = loss.rho(self.d)
        phi = np.ones_like(self.d)
        if loss.score_normaliser:
            phi = np.where(varies[pairs.query], 1 / (LEAST_DISTANCE + np.abs(self.d)), 1.0)
        self.D = D * phi
        sigma = loss.sigma
        self.lam = -sigma * self.D * rho
        self.eta = self.D
        if loss.newton:
            self.eta = loss.hessian_factor * sigma**2 * self.D * rho * (1 - rho)
        self._set_normaliser()
        factor = rows.spread(self.c)
        self.row_g = factor * pairs.scattered(self.lam, -1.0)
        self.row_h = factor * pairs.scattered(self.eta, 1.0)
        self.scale = 1 / rows.w[rows.starts].mean() if loss.mean_weight else 1.0
        self.w = self.scale * rows.w
        self.g = self.w * self.row_g
        self.h = self.w * self.row_h

    def _set_normaliser(self) -> None:
        """Set c (Q,) and c' (Q,)."""
        Q = len(self.rows.starts)
        self.c = np.ones(Q)
        self.c_slope = np.zeros(Q)
        if self.loss.normaliser == "drawn":
            self.c /= self.loss.drawn
        elif self.loss.normaliser == "log2":
            S = -2 * self.pairs.by_query(self.lam, Q)
            has = S > 0
            self.c[has] = np.log2(1 + S[has]) / S[has]
            self.c_slope[has] = (1 / ((1 + S[has]) * np.log(2)) - self.c[has]) / S[has]

    @cached_property
    def _frozen_slopes(self) -> tuple[F64, F64]:
        """lam' and eta' (P,) with phi held."""
        sigma = self.loss.sigma
        rho = smooth_rho(sigma * self.d)
        curve = sigma**2 * self.D * (rho * (1 - rho))  # -sigma D rho'
        if not self.loss.newton:
            return curve, np.zeros_like(curve)
        return curve, -self.loss.hessian_factor * sigma * curve * (1 - 2 * rho)

    def _slopes(self, frozen: bool) -> tuple[F64, F64]:
        """lam' and eta' (P,)."""
        lam_slope, eta_slope = self._frozen_slopes
        if frozen or not self.loss.score_normaliser:
            return lam_slope, eta_slope
        distance = LEAST_DISTANCE + np.abs(self.d)
        bend = np.where(self.varies[self.pairs.query], -np.sign(self.d) / distance, 0.0)  # f
        return lam_slope + self.lam * bend, eta_slope + self.eta * bend

    def vjp(self, gbar: F64, hbar: F64, frozen: bool) -> Slopes:
        rows = self.rows
        pairs = self.pairs
        G = np.ascontiguousarray((self.w[:, None] * gbar).T)  # (B, n)
        H = np.ascontiguousarray((self.w[:, None] * hbar).T)
        c = self.c[pairs.query]
        lbar = c * pairs.difference(G)  # (B, P)
        ebar = c * pairs.total(H)
        if not frozen and np.any(self.c_slope):
            cbar = rows.sums((G * self.row_g + H * self.row_h).T).T / self.c  # (B, Q)
            lbar -= (2 * cbar * self.c_slope)[:, pairs.query]
        lam_slope, eta_slope = self._slopes(frozen)
        scores = pairs.scattered(lbar * lam_slope + ebar * eta_slope, -1.0)
        presences = pairs.scattered(lbar * self.lam + ebar * self.eta, 1.0)
        weights = self.scale * (gbar * self.row_g[:, None] + hbar * self.row_h[:, None])
        return Slopes(scores.T, weights, presences.T)

    def score_matrices(
        self, g_factor: F64, h_factor: F64, frozen: bool, columns: QueryColumns
    ) -> F64:
        rows = self.rows
        pairs = self.pairs
        place = columns.offset[columns.of]  # (n,) what j adds to i is at place[j] + i
        cells = columns.cells
        lam_slope, eta_slope = self._slopes(frozen)
        factor = rows.spread(self.c) * self.w
        g_factor = factor * g_factor
        h_factor = factor * h_factor
        by_a = g_factor[pairs.a] * lam_slope + h_factor[pairs.a] * eta_slope
        by_b = h_factor[pairs.b] * eta_slope - g_factor[pairs.b] * lam_slope
        out = np.bincount(place[pairs.b] + pairs.a, by_b, cells)
        out -= np.bincount(place[pairs.a] + pairs.b, by_a, cells)
        own = np.bincount(pairs.a, by_a, pairs.n) - np.bincount(pairs.b, by_b, pairs.n)
        out[place + np.arange(len(rows))] += own
        if not frozen and np.any(self.c_slope):
            of_c = (g_factor * self.row_g + h_factor * self.row_h) / rows.spread(self.c) ** 2
            moved = -2 * rows.spread(self.c_slope) * pairs.scattered(lam_slope, -1.0)
            c = np.repeat(np.arange(len(columns.sizes)), columns.sizes)  # the column of each cell
            i = np.arange(cells) - columns.offset[c]
            out += moved[i] * np.bincount(columns.of, of_c)[c]
        return out.astype(np.float64, copy=False)

    def weight_factors(self, g_factor: F64, h_factor: F64) -> F64:
        return self.scale * (g_factor * self.row_g + h_factor * self.row_h)

    def jvp(self, dA: F64, dw: F64, dpi: F64, frozen: bool) -> tuple[F64, F64]:
        rows = self.rows
        pairs = self.pairs
        dd = pairs.difference(dA)
        present = pairs.total(dpi)
        lam_slope, eta_slope = self._slopes(frozen)
        dlam = lam_slope * dd + self.lam * present
        deta = eta_slope * dd + self.eta * present
        c = rows.spread(self.c)
        dg = c * pairs.scattered(dlam, -1.0)
        dh = c * pairs.scattered(deta, 1.0)
        if not frozen:
            dS = -2 * pairs.by_query(dlam, len(self.c))
            relative = rows.spread(self.c_slope * dS / self.c)
            dg = dg + relative * self.row_g
            dh = dh + relative * self.row_h
        dw = self.scale * dw
        return dw * self.row_g + self.w * dg, dw * self.row_h + self.w * dh

    @property
    def pair_weights(self) -> F64:
        return 0.5 * self.D * self.pairs.total(self.w)

    def pair_vjp(self, bar: F64) -> Slopes:
        lanes = np.ascontiguousarray(bar.T)  # (B, P)
        weights = self.scale * self.pairs.scattered(0.5 * self.D * lanes, 1.0).T
        presences = self.pairs.scattered(self.pair_weights * lanes, 1.0).T
        return Slopes(np.zeros_like(weights), weights, presences)

    def pair_jvp(self, dw: F64, dpi: F64) -> F64:
        by_weight = 0.5 * self.D * self.pairs.total(self.scale * dw)
        return by_weight + self.pair_weights * self.pairs.total(dpi)

    @property
    def loss_gradient(self) -> F64:
        return self.g

    def losses(self, A: F64) -> F64:
        pairs = self.pairs
        logs = np.logaddexp(0.0, -self.loss.sigma * pairs.difference(A))
        return self.c * pairs.by_query(self.D * logs, len(self.c))
