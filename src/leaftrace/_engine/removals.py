"""Refits without several rows each, many at once: a column for each set of rows, as `_forward.refit` has one for each
row. One pass for a block of sets instead of a replay for every one.

The equations are those of `_forward`, where each column now takes out all rows of its set, at their moved scores:

    dG = sum_{j in l} w_j dg_j - sum_{i in set, l} w_i g_i,   dD likewise, + dlam,   ds = -(D + dD)^-1 (dG + dD s)

For one output and one tree a step; `refit_on` of each set is the slow way, for all models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._data.arrays import F64, Ints
from .._model.ensemble import Ensemble
from .forward import LeafChanges, _Block, _changed_sums
from .methods import AllPoints
from .replay import StepTrace
from .workspace import Workspace


def has_block_removal(e: Ensemble) -> bool:
    plain = (
        e.n_outputs == 1
        and int(np.diff(e.step_trees).max()) == 1
        and e.moves is None
        and e.sample is None
    )
    return plain and e.smoothing is None and e.rule.statistic is None


def refit_without(work: Workspace, sets: Sequence[Ints]) -> LeafChanges:
    """Change of all leaf values without the rows of a set, a column for each set; none is empty."""
    e = work.trace.ensemble
    loss = e.loss
    removed = _Pairs(e, sets)
    base = np.stack([_base_change(e, rows) for rows in sets], axis=1)  # (K, columns)
    block = _Block(work, np.array([rows[0] for rows in sets]), AllPoints(), base, loss.exponential)
    D_own = base[0, removed.column]  # (P,) change of the removed rows' own scores
    dlam = np.zeros(block.B)
    if e.rule.l2_scales:
        dlam[: len(sets)] = [e.rule.l2 * _mean_weight_change(e, rows) for rows in sets]
    changes = np.zeros((len(e.values), 1, block.B))
    for t, state in work.states_forwards():
        block.move(t)
        step = work.trace.steps[t]
        own = removed.leaves[t]
        own_state = state[removed.row].astype(np.float64)  # (P, C)
        dS = np.zeros((*step.s.shape[1:], block.B))
        for q in range(len(step.scale)):
            dG, dH, _ = _changed_sums(work, block, t, q, state, dS, None)
            move = D_own if q == 0 else D_own + step.S[q][own, 0] + dS[own, 0, removed.column]
            at = loss.moved(own_state, loss.shift(move[:, None]))
            g = loss.gradient(at, removed.y)[:, 0]
            h = loss.hessian(at, removed.y)[:, 0, 0]
            # (M, B)
            G = dG[:, 0].astype(np.float64)
            D = dH[:, 0, 0].astype(np.float64) * e.rule.newton
            np.subtract.at(G, (own, removed.column), removed.w * g)
            np.subtract.at(D, (own, removed.column), removed.w * (h if e.rule.newton else 1.0))
            left = np.repeat(step.rows[:, None], block.B, axis=1)
            np.subtract.at(left, (own, removed.column), removed.w > 0)
            ds = (_limited if e.rule.limited else _solve)(e, t, step, q, G, D, dlam)
            ds = np.where(left > 0, ds, -step.s[q])  # a leaf left without rows falls to zero
            dS[:, 0] += step.scale[q] * (
                ds if e.fixed is None else np.where(e.fixed[e.leaf_range(t), None], 0.0, ds)
            )
        d = changes[e.leaf_range(t)] = e.rate(t) * dS
        D_own = D_own + d[own, 0, removed.column]
        block.finish(t, d, None)
    return LeafChanges(changes, block.base, len(sets))


class _Pairs:
    """The P rows of all sets, each with the column of its set."""

    def __init__(self, e: Ensemble, sets: Sequence[Ints]) -> None:
        self.row = np.concatenate(sets)
        self.column = np.repeat(np.arange(len(sets)), [len(rows) for rows in sets])
        self.leaves = np.ascontiguousarray(e.leaves[:, self.row])  # (T, P)
        self.y = e.y[self.row]
        self.w = e.w[self.row]


def _solve(e: Ensemble, t: int, step: StepTrace, q: int, dG: F64, dD: F64, dlam: F64) -> F64:
    """(M, B) ds; to zero where there is nothing to divide by."""
    s = step.s[q]
    dD = dD + dlam
    D = step.D[q][:, 0] + dD
    return np.where(D > 0, -(dG + dD * s) / np.where(D > 0, D, 1.0), -s)


def _limited(e: Ensemble, t: int, step: StepTrace, q: int, dG: F64, dD: F64, dlam: F64) -> F64:
    """The same where l1 or a bound may decide a leaf."""
    D = step.D[q][:, 0] + dD
    lam = e.lam if e.leaf_l2 is None else e.lam + e.leaf_l2[e.leaf_range(t), None]
    return e.rule.step(step.G[q] + dG, D - lam, D + dlam)[0] - step.s[q]


def _base_change(e: Ensemble, rows: Ints) -> F64:
    """(K,) of the starting score."""
    if e.base_rule is None:
        return np.zeros(e.n_outputs)
    rest = np.delete(e.y, rows), np.delete(e.base_weight, rows)
    return e.base_rule.fit(e.loss, *rest) - e.base_rule.fit(e.loss, e.y, e.base_weight)


def _mean_weight_change(e: Ensemble, rows: Ints) -> float:
    return (e.total_weight - e.w[rows].sum()) / (
        e.counted_rows - len(rows)
    ) - e.total_weight / e.counted_rows
