"""Rows drawn by their gradients: sampling_method="gradient_based".

A row of g and h is drawn with the chance p = sqrt(g^2 + 0.1 h^2) / u, and counts 1 / p times then; rows
with p of one or more always count once. The threshold u makes the chances add up to the share
``subsample`` of the rows. Each thread of XGBoost's goes through rows of its own and draws a number for
those with p < 1: the k-th number of a thread is that of its k-th row in the stream of all rows. All
numbers are float32. How often rows count is a constant for derivatives, like the draw itself. A row of
g = h = 0 has no chance and takes no number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble
from .draws import Twister, congruential, tree_method

F32 = NDArray[np.float32]
_f32 = np.float32
MOST_THREADS = 64
ACCURACY = 1e-4  # of the cover of leaves, by which the number of threads is recognised


def draws_by_gradient(params: Mapping[str, str]) -> bool:
    """Whether rows are drawn by their gradients; raises where such draws are not repeated."""
    share = _f32(params["subsample"])
    if share >= 1 or params.get("sampling_method") != "gradient_based":
        return False
    if tree_method(params) != "hist":
        raise UnsupportedModel(
            "sampling_method='gradient_based' is supported with tree_method='hist' alone; train with "
            "sampling_method='uniform'."
        )
    return True


def with_drawn_rows(
    e: Ensemble,
    params: Mapping[str, str],
    rounds: Sequence[int],
    cover: F64 | None,
    hessian_factor: float,
) -> Ensemble:
    """The ensemble with how often each tree counted each row.

    ``rounds``          number of trees of each round
    ``cover``           (leaves,) sums of h that the model recorded, or None
    ``hessian_factor``  by which XGBoost multiplies h
    """
    share = _f32(params["subsample"])
    terms = _tree_terms(e, hessian_factor)
    likely = int(params.get("nthread", "0")) or os.cpu_count() or 1
    threads = list(dict.fromkeys([likely, *range(1, min(MOST_THREADS, e.n_rows) + 1)]))
    sample: list[F64] = []
    for r, (seed, (g, h)) in enumerate(zip(_seeds(params, rounds), terms, strict=False)):
        if cover is not None and len(threads) > 1:
            leaves = slice(int(e.tree_leaves[r]), int(e.tree_leaves[r + 1]))
            ids = e.leaves[r] - (leaves.start - e.tree_offset[r])
            drawn = [row_factors(g, h, share, seed, count) for count in threads]
            right = [_has_cover(h * factors, ids, cover[leaves]) for factors in drawn]
            # If none is right, neither are the rows, and the replay will say so.
            threads = [k for k, fits in zip(threads, right, strict=True) if fits] or threads[:1]
        sample.append(row_factors(g, h, share, seed, threads[0]))
    return replace(e, sample=sample, rounding=replace(e.rounding, draws=True))


def _has_cover(terms: F64, ids: NDArray[np.integer], cover: F64) -> bool:
    """Whether terms h (n,) of the rows in leaves ids (n,) add up to the recorded cover (L,)."""
    found = np.bincount(ids, terms, len(cover))
    return bool(np.abs(found - cover).max() <= ACCURACY * cover.max())


def row_factors(g: F32, h: F32, share: np.float32, seed: int, threads: int) -> F64:
    """(n,) how often rows count in a tree."""
    n = len(g)
    size = np.sqrt(g * g + _f32(0.1) * (h * h))
    p = size / _threshold(size, int(n * share))
    nothing = (g == 0) & (h == 0)
    chancy = ~nothing & (p < 1)
    numbers = (congruential(n) * np.uint64(seed or 1)) & np.uint64(2**63 - 1)
    u = (numbers - np.uint64(1)).astype(np.float32) / _f32(2.0**63 - 1)
    u = np.minimum(u, np.nextafter(_f32(1), _f32(0)))
    place = np.zeros(n, np.intp)
    edges = [*(k * (n // threads) for k in range(threads)), n]
    for begin, end in pairwise(edges):
        place[begin:end] = begin + np.cumsum(chancy[begin:end]) - 1
    drawn = u[np.maximum(place, 0)] <= p
    inverse = np.divide(_f32(1), p, out=np.ones_like(p), where=chancy)
    counted = np.where(chancy & drawn, inverse, _f32(1))
    return np.where(nothing | (chancy & ~drawn), _f32(0), counted).astype(np.float64)


def _threshold(size: F32, rows: int) -> np.float32:
    """The number u by which sizes (n,) become chances that add up to a number of rows."""
    n = len(size)
    ordered = np.sort(size)
    below = np.cumsum(ordered, dtype=np.float32)
    above = np.append(ordered, np.finfo(np.float32).max)
    low = 0
    high = n - 1
    while low <= high:
        i = low + (high - low) // 2
        left = _f32(rows) - _f32(n - i - 1)
        if left <= 0:
            low = i + 1
            continue
        found = below[i] / left
        if above[i] < found <= above[i + 1]:
            return found
        if found <= above[i]:
            high = i - 1
        else:
            low = i + 1
    return below[-1] / _f32(rows)


def _seeds(params: Mapping[str, str], rounds: Sequence[int]) -> Iterator[int]:
    """The seed of each tree; the first number of all is for columns."""
    seed = int(params["seed"])
    twister = Twister(seed)
    for number, trees in enumerate(rounds):
        if params["seed_per_iteration"] in ("1", "True"):
            twister = Twister(seed * 127 + number)
        if number == 0:
            twister.word()
        for _ in range(trees):
            yield twister.word()


def _tree_terms(e: Ensemble, hessian_factor: float) -> Iterator[tuple[F32, F32]]:
    """g and h (n,) of each tree, weights included, in float32."""
    A = e.start()
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
        A[:] = A.astype(np.float32)
        g = e.gradients(A, t) * e.w[:, None]
        h = e.second_derivatives(A, t) * (hessian_factor * e.w[:, None])
        for o in e.first_output[e.trees(t)]:
            yield g[:, o].astype(np.float32), h[:, o].astype(np.float32)
