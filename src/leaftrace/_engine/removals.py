"""Refits without several rows each, many at once.

A column is a set of rows, as a column of `forward.refit` is one row. There is one pass for a block
of sets, instead of a replay for each of them.

The equations are those of forward.py, where each column now takes out all rows of its set, at their
moved scores:

    dG = sum_{j in l} w_j dg_j - sum_{i in set, l} w_i g_i,   dD likewise, + dlam,   ds = -(D + dD)^-1 (dG + dD s)

This is for one output and one tree a step. `refit_on` of each set is slower and works for all
models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._model.ensemble import Ensemble
from .._model.leaf_rule import LeafRule
from .._model.start import finite_start
from .forward import LeafChanges, changed_sums
from .forward_block import ForwardBlock
from .large_changes import replay_large_changes
from .methods import AllPoints
from .unknown_limits import check_same
from .workspace import Workspace


def has_block_removal(e: Ensemble) -> bool:
    """Whether `refit_without` is for this model."""
    one_tree_a_step = int(np.diff(e.step_trees).max()) == 1
    is_boosting = e.moves is None and e.sample is None
    solves_leaves = not e.joins_leaves and e.rule.statistic is None
    separate = e.n_outputs == 1 and not e.coupled and e.linear is None
    return separate and one_tree_a_step and is_boosting and solves_leaves


def refit_without(work: Workspace, sets: Sequence[Ints]) -> LeafChanges:
    """Change of all leaf values without the rows of a set, a column for each set; none is empty."""
    e = work.trace.ensemble
    removed = _RemovedSets(e, sets)
    base = np.stack([_base_change(e, rows) for rows in sets], axis=1)  # (K, columns)
    first_rows = np.array([rows[0] for rows in sets])  # only for the width of the block
    exponential = e.loss.exponential
    block = ForwardBlock(work, first_rows, AllPoints(), base, exponential, is_removal=True)
    D_own = base[0, removed.column]  # (P,) changes of the removed rows' own scores
    dlam = np.zeros(block.B)
    if e.rule.l2_scales:
        dlam[: len(sets)] = [e.rule.l2 * _mean_weight_change(e, rows) for rows in sets]
    changes = np.zeros((len(e.values), 1, block.B))
    for t, state in work.states_forwards():
        if block.large is not None and block.large.found.all():
            break
        block.move(t)
        d = e.rate(t) * _step_changes(block, removed, t, state, D_own, dlam)
        changes[e.leaf_range(t)] = d
        D_own = D_own + d[removed.leaves[t], 0, removed.column]
        block.finish(t, d, None)
    if block.large is not None:
        replay_large_changes(work, block.large, sets, changes, block.base)
    return LeafChanges(changes, block.base, len(sets))


class _RemovedSets:
    """The P rows of all sets, each with the column of its set."""

    def __init__(self, e: Ensemble, sets: Sequence[Ints]) -> None:
        self.sets = len(sets)
        self.row = np.concatenate(sets)
        self.column = np.repeat(np.arange(len(sets)), [len(rows) for rows in sets])
        self.leaves = np.ascontiguousarray(e.leaves[:, self.row])  # (T, P)
        self.y = e.y[self.row]
        self.w = e.w[self.row]


def _step_changes(
    block: ForwardBlock, removed: _RemovedSets, t: int, state: Real, D_own: F64, dlam: F64
) -> F64:
    """(M, 1, B) changes dS of the leaves of step t without the sets, before the learning rate."""
    e = block.e
    step = block.work.trace.steps[t]
    strictest = block.work.trace.strictest_rule
    own = removed.leaves[t]
    own_state = state[removed.row].astype(np.float64)  # (P, C)
    left = np.repeat(step.rows[:, None], block.B, axis=1)  # (M, B) rows that stay
    np.subtract.at(left, (own, removed.column), removed.w > 0)
    dS = np.zeros((*step.s.shape[1:], block.B))
    for q in range(len(step.scale)):
        dG, dH, _ = changed_sums(block, t, q, state, dS, None)
        move = D_own if q == 0 else D_own + step.S[q][own, 0] + dS[own, 0, removed.column]
        G, D = _take_out(e, removed, own, own_state, move, dG, dH)
        if block.large is not None:
            D_left = np.where(left > 0, step.D[q][:, 0] + D, step.D[q][:, 0])
            block.large.add_leaves(step.D[q][:, 0], D_left[:, None])
        if e.rule.limited or strictest is not None:
            ds = _solve_limited(block, t, q, G, D, dlam, e.rule)
        else:
            ds = _solve(block, t, q, G, D, dlam)
        ds = np.where(left > 0, ds, -step.s[q])  # a leaf left without rows falls to zero
        if e.fixed is not None:
            ds = np.where(e.fixed[e.leaf_range(t), None], 0.0, ds)
        if strictest is not None:
            strict = _solve_limited(block, t, q, G, D, dlam, strictest)
            strict = np.where(left > 0, strict, -step.s[q])
            check_same(e, t, ds[:, : removed.sets], strict[:, : removed.sets])
        dS[:, 0] += step.scale[q] * ds
    return dS


def _take_out(
    e: Ensemble,
    removed: _RemovedSets,
    own: Ids,
    own_state: F64,
    move: F64,
    dG: Real,
    dH: Real,
) -> tuple[F64, F64]:
    """Changes dG and dD (M, B) without the removed rows, which move by ``move`` (P,)."""
    loss = e.loss
    at = loss.moved(own_state, loss.shift(move[:, None]))
    g = loss.gradient(at, removed.y)[:, 0]
    h = loss.hessian(at, removed.y)[:, 0, 0] if e.rule.newton else 1.0
    G = dG[:, 0].astype(np.float64)
    D = dH[:, 0, 0].astype(np.float64) * e.rule.newton
    np.subtract.at(G, (own, removed.column), removed.w * g)
    np.subtract.at(D, (own, removed.column), removed.w * h)
    return G, D


def _solve(block: ForwardBlock, t: int, q: int, dG: F64, dD: F64, dlam: F64) -> F64:
    """(M, B) ds; to a step of zero for leaves whose D is not positive."""
    step = block.work.trace.steps[t]
    s = step.s[q]
    dD = dD + dlam
    D = step.D[q][:, 0] + dD
    return np.where(D > 0, -(dG + dD * s) / np.where(D > 0, D, 1.0), -s)


def _solve_limited(
    block: ForwardBlock, t: int, q: int, dG: F64, dD: F64, dlam: F64, rule: LeafRule
) -> F64:
    """(M, B) ds if l1 or a bound of the rule may decide a leaf."""
    e = block.e
    step = block.work.trace.steps[t]
    D = step.D[q][:, 0] + dD
    lam = e.lam if e.leaf_l2 is None else e.lam + e.leaf_l2[e.leaf_range(t), None]
    return rule.step(step.G[q] + dG, D - lam, D + dlam)[0] - step.s[q]


def _base_change(e: Ensemble, rows: Ints) -> F64:
    """(K,) change of the starting score without these rows; an error if it is not finite."""
    if e.base_rule is None:
        return np.zeros(e.n_outputs)
    labels = np.delete(e.y, rows, axis=0)
    weights = np.delete(e.base_weight, rows)
    without = finite_start(e.base_rule, e.loss, labels, weights)
    return without - e.base_rule.fit(e.loss, e.y, e.base_weight)


def _mean_weight_change(e: Ensemble, rows: Ints) -> float:
    """Change of the mean weight of the training rows without these."""
    weight_left = e.total_weight - e.w[rows].sum()
    return weight_left / (e.counted_rows - len(rows)) - e.total_weight / e.counted_rows
