"""Leaves that are pooled until their values are in order: isotonic regression of a tree's leaves.

A *chain* is a list of leaves whose values must not fall (`Ensemble.chains`). In inner iteration q, with
S the leaf's steps so far and D = sum w h + lam, the values S - G / D of each chain are pooled,

    v_B = sum_B (D S - G) / sum_B D        s = v - S,        S <- S + c s

where the blocks B of consecutive leaves are those of isotonic regression with weights D. With the
blocks held fixed, a block is one leaf: the direct term g + h s of a row (see replay.py) moves all
leaves of its block, and

    dv_B = (sum_B (D - J) dS - direct) / sum_B D

While the blocks of successive iterations are the same, the rows of a block act on its value through
one number, so a *run* of such iterations is one effect of a row, with factors N for its iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._model.kernels import kernels

LEAST_WEIGHT = 1e-300  # of a leaf without rows and without l2, which follows its neighbours


def pool(u: F64, D: F64, chains: Ints) -> F64:
    """(M, B) isotonic regression of u (M, B) with weights D (M, B) along chains (C, n)."""
    if chains.shape[1] == 1:
        return u
    out = np.empty_like(u)
    kernels.pool_chains(
        np.ascontiguousarray(chains, np.int64),
        LEAST_WEIGHT,
        np.ascontiguousarray(u),
        np.ascontiguousarray(np.broadcast_to(D, u.shape)),
        out,
    )
    return out


def blocks_of_chains(v: F64, chains: Ints) -> Ints:
    """(M,) the block of each leaf: neighbours in a chain of the same value v (M,)."""
    values = v[chains]
    begins = np.ones(chains.shape, bool)
    begins[:, 1:] = values[:, 1:] != values[:, :-1]
    out = np.empty(len(v), np.int64)
    out[chains] = (np.cumsum(begins) - 1).reshape(chains.shape)
    return out


class PoolSlopes:
    """Derivatives of the values of pooled leaves in the effects of rows on their own leaf.

    Lists are of the Q iterations. ``D``, ``J`` (M,) and ``blocks`` (M,) as above; J is None for a
    single iteration.
    """

    def __init__(
        self,
        rate: float,
        scales: Sequence[float],
        D: list[F64],
        J: list[F64 | None],
        v: list[F64],
        chains: Ints,
    ) -> None:
        self.rate = rate
        self.scales = scales
        self.keep = [D_q if J_q is None else D_q - J_q for D_q, J_q in zip(D, J, strict=True)]
        self.blocks = [blocks_of_chains(v_q, chains) for v_q in v]
        pairs = zip(D, self.blocks, strict=True)
        self.total = [np.maximum(_block_sums(D_q, b), LEAST_WEIGHT) for D_q, b in pairs]
        same = [np.array_equal(a, b) for a, b in pairwise(self.blocks)]
        self.run = np.cumsum([0, *np.logical_not(same)])  # (Q,) the run of each iteration
        self.N = self._factors()

    @property
    def effects(self) -> int:
        """Numbers in the effect of a row."""
        return int(self.run[-1]) + 1

    def _factors(self) -> F64:
        """(Q, M) factors of the direct terms, whose sums over a run are the effects of rows."""
        M = len(self.blocks[0])
        N = np.zeros((len(self.scales), M))
        left = np.ones(M)  # derivative of a block's value at the end of the run in that after q
        for q in reversed(range(len(N))):
            if q + 1 < len(N) and self.run[q] != self.run[q + 1]:
                left = np.ones(M)
            pooled = self.scales[q] * left / self.total[q]
            N[q] = -pooled
            left = (1 - self.scales[q]) * left + _block_sums(self.keep[q], self.blocks[q]) * pooled
        return N

    def adjoint(self, fbar: Real) -> Real:
        """(M, E, B) derivatives of queries in the sums of effects, from those in values fbar (M, B)."""
        out = np.zeros((len(fbar), self.effects, fbar.shape[1]))
        bar = self.rate * fbar.astype(np.float64)
        for q in reversed(range(len(self.scales))):
            of_block = _block_sums(bar, self.blocks[q])
            if q + 1 == len(self.scales) or self.run[q] != self.run[q + 1]:
                out[:, self.run[q]] = of_block
            c = self.scales[q]
            pooled = c * of_block / self.total[q][:, None]
            bar = (1 - c) * bar + self.keep[q][:, None] * pooled
        return out.astype(fbar.dtype)

    def tangent(self, sums: F64) -> F64:
        """(M, B) changes of the values, from sums (M, E, B) of effects over the rows of each leaf."""
        change = np.zeros((len(sums), sums.shape[2]))
        for q, c in enumerate(self.scales):
            moved = _block_sums(self.keep[q][:, None] * change, self.blocks[q])
            change = (1 - c) * change + c * moved / self.total[q][:, None]
            if q + 1 == len(self.scales) or self.run[q] != self.run[q + 1]:
                change = change + _block_sums(sums[:, self.run[q]], self.blocks[q])
        return self.rate * change

    def lam_effect(self, s: F64) -> F64:
        """(M,) derivative of the values in lam, from the steps s (Q, M)."""
        sums = np.zeros((s.shape[1], self.effects, 1))
        for q in range(len(s)):
            sums[:, self.run[q], 0] += self.N[q] * s[q]
        return self.tangent(sums)[:, 0]

    def gradient_slopes(self, fbar: Real) -> Real:
        """(M, B) derivatives of queries in the sum of g over each leaf."""
        gain = np.zeros((len(fbar), self.effects))
        for q, r in enumerate(self.run):
            gain[:, r] += self.N[q]
        return np.einsum("me,meb->mb", gain, self.adjoint(fbar))

    def own_slopes(self) -> F64:
        """(M, E) derivatives of each leaf's value in its own effects."""
        M = len(self.blocks[0])
        columns = self.adjoint(np.eye(M))
        return columns[np.arange(M), :, np.arange(M)]


def _block_sums(x: F64, block: Ints) -> F64:
    """(M, ...) the sum of x (M, ...) over the block of each leaf."""
    sums = np.zeros((int(block.max()) + 1, *x.shape[1:]))
    np.add.at(sums, block, x)
    return sums[block]
