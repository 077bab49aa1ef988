"""The leaf equations without a removed row, in NumPy: the twin of ``src/native/removal.hpp``.

`numpy` presents `removal_step` with the other twins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints, Real
from ..losses import Loss
from .arguments import RemovedRows
from .checks import (
    check_first,
    check_ids,
    check_loss,
    check_state,
    check_together,
    checked,
)


def bounded_step(
    G: F64, H: F64, D: F64, l1: float, max_step: float, min_hessian: float
) -> tuple[F64, NDArray[np.bool_]]:
    """A leaf's step s within these limits, and whether it changes with G and D = H + lam.

    All arrays are of one shape.
    """
    excess = np.abs(G) - l1
    free = (D > 0) & (min_hessian <= H) & ((excess > 0) | (l1 == 0))
    s = np.where(free, -np.sign(G) * excess / np.where(D > 0, D, 1.0), 0.0)
    moves = free & (np.abs(s) < max_step)
    return np.clip(s, -max_step, max_step), moves


@checked(
    newton="bool",
    own="ids R columns",
    first="int32 R",
    own_state="float64 columns C",
    move="float64 R K columns",
    y="labels columns",
    w="float64 columns | R columns",
    s="float64 M O",
    D="float64 M O O",
    rows="float64 M",
    dlam="float64 columns",
    dG="real M O columns",
    dH="real M O O columns",
    dS="out float64 M O columns",
    bounds="float64 3 ?",
    G="float64 M O ?",
    lam="float64 M ?",
    fixed="mask M ?",
    diagonal="bool",
)
def removal_step(
    loss: Loss,
    newton: bool,
    own: Ids,
    first: Ints,
    own_state: F64,
    move: F64,
    y: F64,
    w: F64,
    s: F64,
    D: F64,
    rows: F64,
    dlam: F64,
    c: float,
    dG: Real,
    dH: Real,
    dS: F64,
    bounds: F64 | None = None,
    G: F64 | None = None,
    lam: F64 | None = None,
    fixed: NDArray[np.bool_] | None = None,
    diagonal: bool = False,
) -> None:
    """dS (M, O, B) += c ds: the leaf equations of one inner iteration without row b in column b.

    ``own`` (R, B) leaves of the removed rows, ``own_state`` (B, C) and ``move`` (R, K, B) their
    scores now; ``s`` (M, O), ``D`` (M, O, O), ``rows`` (M,) of the model; ``dG``, ``dH`` changes
    that still include the removed rows. w (B,), or (R, B) if trees drew rows differently. A leaf
    left without rows falls to zero.

    ``bounds`` (3,): l1, the longest step and the least sum of h, with G (M, O) and lam (M,) of the
    model; leaves that are ``fixed`` (M,) do not change. If the outputs of a leaf are solved
    together (not ``diagonal``), the bounds are ignored.
    """
    K = move.shape[1]
    check_state(own_state, check_loss(loss, K), K, own_state.dtype)
    check_first(first, dS.shape[1], K)
    check_ids(own, len(dS))
    check_together(bounds=bounds, G=G, lam=lam, fixed=fixed)
    removed = own, first, own_state, move, y, w
    dG, dD, alive = without_rows(loss, newton, *removed, rows, dG, dH)
    is_joint = dS.shape[1] > 1 and not diagonal
    if is_joint or bounds is None or G is None or lam is None or fixed is None:
        dS += c * _solved_changes(dG, dD, alive, s, D, dlam)
        return
    ds = _bounded_changes(dG, dD, alive, s, D, dlam, bounds, G, lam)
    dS += c * np.where(fixed[:, None, None], 0.0, ds)


def without_rows(
    loss: Loss,
    newton: bool,
    own: Ids,
    first: Ints,
    own_state: F64,
    move: F64,
    y: F64,
    w: F64,
    rows: F64,
    dG: Real,
    dH: Real,
) -> tuple[F64, F64, F64]:
    """dG (M, O, B), dD (M, O, O, B) and rows in each leaf (M, B), without the removed rows."""
    M, O, B = dG.shape
    lanes = np.arange(B)
    eye = np.eye(O)
    dG = dG.astype(np.float64)
    dD = dH.astype(np.float64) if newton else np.zeros((M, O, O, B))
    alive = np.repeat(rows[:, None], B, axis=1)
    for ids, o, moved, tree_w in zip(own, first, move, np.broadcast_to(w, own.shape), strict=True):
        at = loss.moved(own_state, loss.shift(moved.T))
        out = slice(o, o + O)
        h = loss.hessian(at, y)[:, out, out] if newton else eye
        dG[ids, :, lanes] -= tree_w[:, None] * loss.gradient(at, y)[:, out]
        dD[ids, :, :, lanes] -= tree_w[:, None, None] * h
        alive[ids, lanes] -= tree_w > 0
    return dG, dD, alive


def totals_without_rows(
    loss: Loss,
    newton: bool,
    removed: RemovedRows,
    rows: F64,
    G: F64,
    H: F64,
    dG: Real,
    dH: Real,
) -> tuple[F64, F64]:
    """Sums (M, B) of g and h without the removed rows, from G and H (M, 1) of all; zero for leaves without rows.

    They are those of `without_rows` for one output, added to G and H. Only the leaves of the
    removed rows are computed one by one.
    """
    lanes = np.arange(dG.shape[2])
    if not newton:
        dH = np.zeros_like(dH)
    totals = G + dG[:, 0], H + dH[:, 0, 0]
    own = own_totals(loss, newton, removed, rows, G, H, dG, dH)
    for total, own_total in zip(totals, own, strict=True):
        total[rows <= 0] = 0
        for ids, numbers in zip(removed.ids, own_total, strict=True):
            total[ids, lanes] = numbers
    return totals


def own_totals(
    loss: Loss,
    newton: bool,
    removed: RemovedRows,
    rows: F64,
    G: F64,
    H: F64,
    dG: Real | None = None,
    dH: Real | None = None,
) -> tuple[F64, F64]:
    """(R, B) the same sums for the leaves of the removed rows alone; without dG and dH if nothing else changes."""
    own, first, own_state, move, y, w = removed
    lanes = np.arange(own.shape[1])
    totals = np.empty(own.shape), np.empty(own.shape)
    trees = zip(own, first, move, np.broadcast_to(w, own.shape), strict=True)
    for r, (ids, o, moved, tree_w) in enumerate(trees):
        at = loss.moved(own_state, loss.shift(moved.T))
        h = loss.hessian(at, y)[:, o, o] if newton else 1.0
        is_left = rows[ids] - (tree_w > 0) > 0
        changes = (
            0.0 if dG is None else dG[ids, 0, lanes],
            0.0 if dH is None else dH[ids, 0, 0, lanes],
        )
        terms = zip((G, H), changes, (loss.gradient(at, y)[:, o], h), strict=True)
        for total, (x, dx, own_term) in zip(totals, terms, strict=True):
            total[r] = np.where(is_left, x[ids, 0] + (dx - tree_w * own_term), 0.0)
    return totals


def _bounded_changes(
    dG: F64, dD: F64, alive: F64, s: F64, D: F64, dlam: F64, bounds: F64, G: F64, lam: F64
) -> F64:
    """(M, O, B) changes of steps that are solved one output at a time, within bounds."""
    total = np.einsum("maa->ma", D)[:, :, None] + np.einsum("maab->mab", dD)
    after, _ = bounded_step(G[:, :, None] + dG, total - lam[:, None, None], total + dlam, *bounds)
    return np.where(alive[:, None] > 0, after - s[:, :, None], -s[:, :, None])


def _solved_changes(dG: F64, dD: F64, alive: F64, s: F64, D: F64, dlam: F64) -> F64:
    """(M, O, B) changes of steps whose outputs are solved together, without bounds."""
    eye = np.eye(s.shape[1])
    dD = dD + eye[:, :, None] * dlam
    total = np.moveaxis(D[..., None] + dD, 3, 1)  # (M, B, O, O)
    ok = (alive > 0) & (np.einsum("mbaa->mba", total).min(axis=2) > 0)
    right = -np.moveaxis(dG + np.einsum("mabc,mb->mac", dD, s), 2, 1)[..., None]
    ds = np.linalg.solve(np.where(ok[..., None, None], total, eye), right)[..., 0]  # (M, B, O)
    return np.where(ok[:, None], np.moveaxis(ds, 1, 2), -s[:, :, None])
