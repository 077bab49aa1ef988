"""Cox's partial likelihood: rows are coupled by risk sets.

A label's size is a time, and its sign says whether an event was seen then (y > 0) or the row left unseen.
With e = exp(A), rows in the order of their times, and E_k the sum of e over the rows at risk at the time
of event k:

    R_i, S_i = sums over events k up to i of 1 / E_k and 1 / E_k^2
    g = e R - event,   h = e R - e^2 S

A presence is a factor of e in all risk sets, of the row's event, and of its own terms. Libraries differ in
ties: either all rows of the same time are at risk, or those that come later in the order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..._data.arrays import F64, Ints
from .loss import CoupledLoss, CoupledRows, Slopes


@dataclass(frozen=True, eq=False)
class Cox(CoupledLoss):
    """The loss -sum over events of (A - log E).

    ``ties_at_risk``  whether all rows of the same time are at risk; otherwise those later in the order
    ``taken_from``    (n,) the row whose derivatives each row is given, for n rows: a booster may mix
                      them up. None: its own
    ``float32``       whether training summed exp(A) of all rows in float32 numbers, and subtracted those
                      of rows that left in float64, so that what remains at the end has the difference
    """

    ties_at_risk: bool = True
    taken_from: Callable[[int], Ints] | None = None
    float32: bool = False
    name: str = "Cox"
    unit = "risk set"
    whole = True

    def on(self, rows: CoupledRows) -> CoxTerms:
        return CoxTerms(self, rows)

    def for_test_rows(self) -> Cox:
        return Cox(self.ties_at_risk, name=self.name)

    def response(self, state: F64) -> F64:
        return np.exp(state[:, 0])


class CoxTerms:
    """The loss with its rows, in the order of their times."""

    def __init__(self, loss: Cox, rows: CoupledRows) -> None:
        n = len(rows)
        time = np.abs(rows.y)
        self.rows = rows
        self.order = np.argsort(time, kind="stable")
        self.event = (rows.y[self.order] > 0).astype(np.float64)
        sorted_time = time[self.order]
        self.first = np.arange(n)  # (n,) first row at risk with each row
        self.last = np.arange(n)  # (n,) last row of the same time, where those are at risk together
        if loss.ties_at_risk:
            self.first = np.searchsorted(sorted_time, sorted_time, side="left")
            self.last = np.searchsorted(sorted_time, sorted_time, side="right") - 1
        self.float32 = loss.float32
        self.taken = np.arange(n) if loss.taken_from is None else loss.taken_from(n)

    def at(self, A: F64, t: int) -> CoxPoint:
        return CoxPoint(self, A)


class CoxPoint:
    """The terms at scores A (n,). Arrays are in the order of times, but for those of `Point`."""

    def __init__(self, terms: CoxTerms, A: F64) -> None:
        self.terms = terms
        self.w = terms.rows.w
        event = terms.event
        e = np.exp(A[terms.order] - A.max())
        E = _from_here_on(e)[terms.first]
        if terms.float32:
            e = np.exp(A[terms.order])
            total = e.astype(np.float32).sum(dtype=np.float64)
            E = (total - (np.cumsum(e) - e))[terms.first]
        R = np.cumsum(event / E)
        S = np.cumsum(event / E**2)
        self.e = e
        self.E = E
        self.R = R
        self.S = S
        self.row_g = self._unsorted(e * R - event)[terms.taken]
        self.row_h = self._unsorted(e * R - e**2 * S)[terms.taken]
        self.g = self.w * self.row_g
        self.h = self.w * self.row_h
        self.loss_gradient = self._unsorted(e * R[terms.last] - event)

    def _unsorted(self, x: F64) -> F64:
        """x (n, ...) in the order of the rows."""
        out = np.empty_like(x)
        out[self.terms.order] = x
        return out

    def _given(self, bar: F64) -> F64:
        """(n, B) sums over the rows that each row's derivatives were given to, in order of times."""
        out = np.zeros_like(bar)
        np.add.at(out, self.terms.taken, self.w[:, None] * bar)
        return out[self.terms.order]

    def vjp(self, gbar: F64, hbar: F64, frozen: bool) -> Slopes:
        e, E, R, S, event = (x[:, None] for x in (self.e, self.E, self.R, self.S, self.terms.event))
        weights = gbar * self.row_g[:, None] + hbar * self.row_h[:, None]
        G = self._given(gbar)
        H = self._given(hbar)
        Rbar = _from_here_on(e * (G + H))
        Sbar = _from_here_on(-(e**2) * H)
        Ebar = -event * (Rbar / E**2 + 2 * Sbar / E**3)
        at_risk = np.zeros_like(Ebar)
        np.add.at(at_risk, self.terms.first, Ebar)
        risk = np.cumsum(at_risk, axis=0)
        scores = e * (G * R + H * (R - 2 * e * S) + risk)
        presences = e * risk + event * (Rbar / E + Sbar / E**2)
        own = self.w[:, None] * weights
        return Slopes(self._unsorted(scores), weights, own + self._unsorted(presences))

    def jvp(self, dA: F64, dw: F64, dpi: F64, frozen: bool) -> tuple[F64, F64]:
        terms = self.terms
        e = self.e
        E = self.E
        R = self.R
        S = self.S
        dpi_sorted = dpi[terms.order]
        de = e * dA[terms.order]
        dE = _from_here_on(de + e * dpi_sorted)[terms.first]
        dR = np.cumsum(terms.event * (dpi_sorted / E - dE / E**2))
        dS = np.cumsum(terms.event * (dpi_sorted / E**2 - 2 * dE / E**3))
        dg = self._unsorted(de * R + e * dR)[terms.taken]
        dh = self._unsorted(de * R + e * dR - 2 * e * de * S - e**2 * dS)[terms.taken]
        dw = dw + self.w * dpi
        return dw * self.row_g + self.w * dg, dw * self.row_h + self.w * dh

    def losses(self, A: F64) -> F64:
        terms = self.terms
        sorted_A = A[terms.order]
        E = _from_here_on(np.exp(sorted_A - A.max()))[terms.first]
        return np.array([-np.sum(terms.event * (sorted_A - A.max() - np.log(E)))])


def _from_here_on(x: F64) -> F64:
    """Sums of x (n, ...) from each row to the last."""
    return np.cumsum(x[::-1], axis=0)[::-1]
