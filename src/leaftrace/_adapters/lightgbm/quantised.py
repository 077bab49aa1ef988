"""Leaf values from rounded gradients: use_quantized_grad without quant_train_renew_leaf.

Terms of rows are whole multiples of a unit, which is that of the largest term:

    g: max |g| / (bins / 2),   h: max h / bins, or max h where all are the same
    multiple = (g / unit +- u) cut to a whole number, with random u from 0 to 1, or 1/2

The random numbers are drawn once for all rows, in a block for each thread, and every tree begins to
use them at a place of its own. What rounding does to the sums over leaves is a constant for everything
that is asked afterwards: derivatives are those of the terms before rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..._data.arrays import F64, Ids
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble
from .recover import row_terms, scores_by_step

BLOCK = 512  # fewest rows of a block
ALIGNED = 32
MOST_THREADS = 64
ACCURACY = 1e-4  # of leaf values, by which the number of threads is recognised
NOTE = (
    "gradients rounded again as in training (use_quantized_grad), with the rounding held as it is"
)


def rounds_gradients(params: dict[str, Any]) -> bool:
    """Whether leaf values come from rounded gradients; raises for draws that are not repeated."""
    rounds = bool(params.get("use_quantized_grad") and not params.get("quant_train_renew_leaf"))
    bags = params["bagging_freq"] > 0 and min(
        params["bagging_fraction"], params["pos_bagging_fraction"], params["neg_bagging_fraction"]
    )
    if rounds and ((bags and bags < 1) or params["data_sample_strategy"] == "goss"):
        raise UnsupportedModel(
            "use_quantized_grad=True with bagging or GOSS computes leaf values from gradients rounded at random, which "
            "is not replayed; train with quant_train_renew_leaf=True, which computes them from the gradients "
            "themselves."
        )
    return rounds


def with_rounded_sums(
    e: Ensemble, params: dict[str, Any], steepness: float, constant: bool
) -> Ensemble:
    """The ensemble with what rounding did to the sums of its leaves.

    ``steepness``: the factor by which the objective multiplies h; ``constant``: h is the same for all
    rows.
    """
    rounding = _find_rounding(e, params, steepness, constant)
    in_G = np.zeros_like(e.values)
    in_H = np.zeros(len(e.values))
    for tree in _rounded_trees(e, rounding):
        in_G[tree.leaves, 0] = tree.G - tree.before_g
        in_H[tree.leaves] = tree.H - tree.before_h
    l2 = in_H if e.leaf_l2 is None else e.leaf_l2 + in_H
    return replace(e, leaf_gradient=in_G, leaf_l2=l2)


def _find_rounding(
    e: Ensemble, params: dict[str, Any], steepness: float, constant: bool
) -> _Rounding:
    """The rounding with the number of threads that gives the leaf values of a tree."""
    likely = int(params["num_threads"]) or os.cpu_count() or 1
    threads = [likely, *range(1, MOST_THREADS + 1)] if params["stochastic_rounding"] else [likely]
    blocks = dict.fromkeys(min(k, -(-e.n_rows // BLOCK)) for k in threads)
    tried = [_Rounding(params, e.n_rows, count, steepness, constant) for count in blocks]
    return next((rounding for rounding in tried if _is_right(e, rounding)), tried[0])


def _is_right(e: Ensemble, rounding: _Rounding) -> bool:
    """Whether rounding like this gives the leaf values of the first tree that has splits."""
    for tree in _rounded_trees(e, rounding):
        model = e.values[tree.leaves, 0]
        if len(model) > 1:
            l2 = 0.0 if e.leaf_l2 is None else e.leaf_l2[tree.leaves]
            found = e.rate(tree.t) * e.rule.step(tree.G, tree.H, tree.H + e.lam + l2)[0]
            return bool(np.abs(found - model).max() <= ACCURACY * np.abs(model).max())
    return True


class _RoundedTree(NamedTuple):
    """Sums over the leaves of a tree of step t: of rounded terms, and before rounding; (L,) each."""

    t: int
    leaves: slice
    G: F64
    H: F64
    before_g: F64
    before_h: F64


def _rounded_trees(e: Ensemble, rounding: _Rounding) -> Iterator[_RoundedTree]:
    """The sums of each tree, at the model's own scores."""
    starts = rounding.starts()
    for t, A in scores_by_step(e, e.n_steps):
        for r, _, wg, wh in row_terms(e, t, A):
            leaves = slice(int(e.tree_leaves[r]), int(e.tree_leaves[r + 1]))
            ids = e.leaves[r] - (leaves.start - e.tree_offset[r])
            terms = [*rounding.rounded(wg, wh, next(starts)), wg, wh]
            sums = [_leaf_sums(ids, x, leaves.stop - leaves.start) for x in terms]
            yield _RoundedTree(t, leaves, *sums)


def _leaf_sums(ids: Ids, x: F64, L: int) -> F64:
    """(L,) sums of x (n,) over the rows of each leaf."""
    return np.bincount(ids, x, L).astype(np.float64)


@dataclass(frozen=True)
class _Rounding:
    """Rounding of the terms of n rows, with numbers drawn by some threads."""

    params: dict[str, Any]
    n: int
    threads: int
    steepness: float
    constant: bool

    def rounded(self, wg: F64, wh: F64, start: int) -> tuple[F64, F64]:
        """w g and w h (n,), rounded with the random numbers from a place on."""
        bins = int(self.params["num_grad_quant_bins"])
        unit = np.abs(wg).max() / (bins // 2)
        place = (np.arange(self.n) + start) % self.n
        u = self._numbers(0)[place]
        g = unit * np.trunc(wg / unit + np.where(wg > 0, u, -u))
        if self.constant:
            return g, wh
        h = (self.steepness * wh).astype(np.float32).astype(np.float64)
        unit = h.max() / bins
        h = unit * np.trunc(h / unit + self._numbers(self.threads)[place])
        return g, h / self.steepness

    def _numbers(self, shift: int) -> F64:
        """(n,) random numbers; generators are seeded by ``shift`` and the number of the block."""
        if not self.params["stochastic_rounding"]:
            return np.full(self.n, 0.5)
        length = self.n
        if self.threads > 1:
            share = -(-self.n // self.threads)
            length = -(-share // ALIGNED) * ALIGNED
        out = np.empty(self.n)
        for block, begin in enumerate(range(0, self.n, length)):
            count = min(length, self.n - begin)
            state = np.random.RandomState((int(self.params["seed"]) + block + shift) % 2**32)
            words = np.frombuffer(state.bytes(8 * count), "<u4").astype(np.float64).reshape(-1, 2)
            out[begin : begin + count] = (words[:, 0] + words[:, 1] * 2.0**32) / 2.0**64
        return out

    def starts(self) -> Iterator[int]:
        """Places from 0 to n at which the trees begin to use the random numbers."""
        state = np.random.RandomState(int(self.params["seed"]) % 2**32)
        while True:
            yield _below(state, self.n + 1)


def _below(state: np.random.RandomState, count: int) -> int:
    """The next whole number below a count, as libstdc++'s uniform_int_distribution has it."""
    scale = (2**32 - 1) // count
    while True:
        word = int.from_bytes(state.bytes(4), "little")
        if word < count * scale:
            return word // scale
