"""Forward passes, for blocks of training rows.

The tangent has one derivative a column, the refit one removal a column. They give the change of
every leaf value; update sets decide whose changes are used.

Tangent (the paper's Algorithm 4):   d_l = V_i [i in l] + sum_{j in l, U} U_j D_j          D_j += d_{l(j)}
Refit (Algorithms 2 and 3), one inner iteration, in differences so that nothing cancels:

    dG = sum_{j in l, U, j != i} w_j dg_j - w_i g_i [i in l],   dD likewise, + dlam
    ds = -(D + dD)^-1 (dG + dD s)                                dS += c ds,   d_l = eta dS

(The kernel's sums run over all rows. The removed row is taken out of them again, at its moved
score, before the leaf is solved.)

U holds for changes from earlier steps; within a step, a leaf's own inner iterations are always
followed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import InvalidInput
from .._model.ensemble import Ensemble
from .._model.kernels import kernels, kernels_of, zeros
from .._model.kernels.arguments import (
    InnerIteration,
    LossTerms,
    RemovedRows,
    SolvedLeaves,
    StepLimits,
    Sweep,
)
from .._model.kernels.numpy import sum_by_leaf
from .._model.kernels.numpy_removal import own_totals, totals_without_rows, without_rows
from .._model.leaf_rule import LeafRule
from .._model.node_trees import OtherSums, StepNodes
from .forward_block import ForwardBlock
from .large_changes import left_after_removal, replay_large_changes
from .methods import TopKLeaves, UpdateSet
from .pooled_leaves import pool
from .row_effects import base_effect
from .unknown_limits import check_same
from .workspace import Workspace


@dataclass(frozen=True)
class LeafChanges:
    """Changes of all leaf values and of the base score, a column for each training row or set.

    ``columns``: number of columns that count; the others pad the block.
    """

    leaves: F64  # (leaves, O, B)
    base: F64  # (K, B)
    columns: int

    def score_changes(self, ensemble: Ensemble, leaves: Ids) -> F64:
        """(m, K, columns) changes of the scores of rows with these leaves."""
        dF = np.empty((leaves.shape[1], *self.base.shape))
        dF[:] = ensemble.base_scale * self.base
        for t, factor in enumerate(ensemble.factors):
            trees = ensemble.trees(t)
            d = self.leaves[ensemble.leaf_range(t)]
            if factor != 1:
                d = factor * d
            kernels.advance(leaves[trees], ensemble.first_output[trees], d, dF)
        return dF[..., : self.columns]


# ---- derivatives ----


def tangent(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """d(leaf values)/d(sample weight of row i), a column for each row i in `index`."""
    e = work.trace.ensemble
    base = np.ascontiguousarray(base_effect(work.trace, work.rows.take(index)).T)  # (K, columns)
    block = ForwardBlock(work, index, update_set, base)
    factor = e.w_factor[block.index]
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, V, U in work.effects_forwards():
        block.move(t)
        d = changes[e.leaf_range(t)]
        d += (e.lam_slope * work.trace.lam_effect[e.leaf_range(t)])[:, :, None] * factor
        sums, mask = _knock_on_sums(block, t, U)
        _add_own_effects(block, t, V, U, factor, mask, sums)
        slopes = work.trace.steps[t].slopes
        d += sums if slopes is None else slopes.tangent(sums)[:, None]
        block.finish(t, d, mask)
    return LeafChanges(changes, block.base, len(index))


def _knock_on_sums(block: ForwardBlock, t: int, U: Real) -> tuple[F64, Real | None]:
    """(M, O, B) sums of U D over the rows of each leaf that are in U^t, and the mask of U^t."""
    e = block.e
    leaves = e.leaf_range(t)
    effects = block.work.trace.effect_outputs
    sums = np.zeros((leaves.stop - leaves.start, effects, block.B))
    if not block.selection.uses_changes:
        return sums, None
    ranking = block.selection.empty_ranking(t)
    sweep = block.sweep(t, ranking)
    # The kernel sums over leaves of as many outputs as effects. Rows that move other leaves, too, may
    # have more effects, which come one after the other.
    together = e.leaf_outputs
    for o in range(0, effects, together):
        part = slice(o, o + together)
        knock_on = zeros((len(sums), together, block.B), block.work.dtype)
        U_part = np.ascontiguousarray(U[:, :, part])
        kernels.tangent_sums(*sweep.leading, U_part, sweep.D, sweep.ranking, knock_on)
        sums[:, part] = knock_on
        sweep = Sweep(sweep.at, None, None, None, sweep.D, None)  # D and ranking are complete
    mask = block.selection.mask(t, ranking)
    if mask is not None:
        sums *= mask[:, None]
    return sums, mask


def _add_own_effects(
    block: ForwardBlock, t: int, V: Real, U: Real, factor: F64, mask: Real | None, sums: F64
) -> None:
    """Add the direct effect of each row of the block to the sums (M, O, B) of its leaves.

    ``factor``: (B,) derivative of the rows' weights in their sample weights.
    """
    for r, own in enumerate(block.own_leaves(t)):
        sums[own, :, block.lanes] += V[r, block.index] * factor[:, None]
        if mask is not None and block.selection.drops_changes:
            # the row itself is in U even if its leaf is not
            knock_on = np.einsum("bok,kb->bo", U[r, block.index], block.own_D)
            is_left_out = (1 - mask[own, block.lanes])[:, None]
            sums[own, :, block.lanes] += is_left_out * knock_on


def along(work: Workspace, direction: F64) -> LeafChanges:
    """Change of all leaf values along a direction (n,) of sample weights, to first order.

    It is `tangent` of all rows times the direction, for AllPoints, in one column and one pass.
    """
    e = work.trace.ensemble
    dw = e.w_factor * direction
    base = direction @ base_effect(work.trace, work.rows)  # (K,)
    changes = np.zeros_like(e.values)
    moving = replace(e, base=base, values=changes)  # changes are moved as values are
    D = np.tile(base, (e.n_rows, 1))
    for t, V, U in work.effects_forwards():
        moving.move(t, e.leaves, D)
        step = work.trace.steps[t]
        d = changes[e.leaf_range(t)]
        sums = np.zeros((len(d), work.trace.effect_outputs))
        for ids, v, u in zip(e.leaves[e.trees(t)], V, U, strict=True):
            sum_by_leaf(ids, v * dw[:, None] + np.einsum("nok,nk->no", u, D), sums)
        d += sums if step.slopes is None else step.slopes.tangent(sums[:, :, None])
        d += e.lam_slope * step.lam_effect * dw.sum()
    return LeafChanges(changes[..., None], base[:, None], 1)


# ---- removals ----


def refit(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """Change of all leaf values when a row is removed, a column for each row in `index`."""
    e = work.trace.ensemble
    is_ranked = isinstance(update_set, TopKLeaves)  # by |D|, which exp(D) - 1 does not give
    exponential = e.loss.exponential and not is_ranked
    base = _base_changes(e, index)
    block = ForwardBlock(work, index, update_set, base, exponential, is_removal=True)
    dlam = _lam_changes(e, block.index)
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, state in work.states_forwards():
        if block.large is not None and block.large.found.all():
            break
        block.move(t)
        dS, mask = _refit_step(block, t, state, dlam)
        d = e.rate(t) * dS
        changes[e.leaf_range(t)] = d
        block.finish(t, d, mask)
    if block.large is not None:
        replay_large_changes(work, block.large, list(index[:, None]), changes, block.base)
    return LeafChanges(changes, block.base, len(index))


def _refit_step(block: ForwardBlock, t: int, state: Real, dlam: F64) -> tuple[F64, Real | None]:
    """Changes dS (M, O, B) of the leaves of step t without the rows of the block; mask of U^t.

    ``state``: (n, C) of the loss before the step; ``dlam``: (B,) changes of lam.
    """
    e = block.e
    if e.step_nodes is not None:
        return _refit_nodes(block, t, state, dlam, e.step_nodes[t])
    if e.chains is not None:
        return _refit_pooled(block, t, state, dlam, e.chains[t])
    step = block.work.trace.steps[t]
    own = block.own_leaves(t)
    own_state = state[block.index].astype(np.float64)  # (B, C)
    strictest = block.work.trace.strictest_rule
    is_limited = e.rule.limited or e.fixed is not None or strictest is not None
    mask = None
    dS = np.zeros((*step.s.shape[1:], block.B))
    for q in range(len(step.scale)):
        dG, dH, mask = changed_sums(block, t, q, state, dS, mask)
        if e.loss.changes[0] == "softmax" and e.leaf_outputs > 1 and not e.rule.diagonal:
            dG, dH = _adding_up_to_zero(dG, dH)
        move = block.own_moves(t, mask)
        if q > 0:  # one tree with leaves for all outputs
            move[0] += (step.S[q][:, :, None] + dS)[own[0], :, block.lanes].T
        removed = RemovedRows(
            own,
            e.first_output[e.trees(t)],
            own_state,
            move,
            e.y[block.index],
            block.own_weight(t),
        )
        _watch_leaves(block, removed, step.D[q], dH, step.rows)
        solved = SolvedLeaves(step.s[q], step.D[q], step.rows, dlam, step.scale[q])
        leading = (e.loss, e.rule.newton, *removed, *solved, dG, dH)
        strict = None if strictest is None else dS.copy()
        limits = _limits(e, t, step.G[q], e.rule) if is_limited else ()
        kernels_of(e.loss).removal_step(*leading, dS, *limits)
        if strictest is not None and strict is not None:
            limits = _limits(e, t, step.G[q], strictest)
            kernels_of(e.loss).removal_step(*leading, strict, *limits)
            check_same(e, t, dS, strict)
    return dS, mask


def _refit_nodes(
    block: ForwardBlock, t: int, state: Real, dlam: F64, nodes: StepNodes
) -> tuple[F64, Real | None]:
    """The same for leaves that depend on other nodes, from totals instead of differences."""
    e = block.e
    step = block.work.trace.steps[t]
    strictest = block.work.trace.strictest_rule
    nothing = np.zeros((*step.s.shape[1:], block.B))
    dG, dH, mask = changed_sums(block, t, 0, state, nothing, None)
    removed = RemovedRows(
        block.own_leaves(t),
        e.first_output[e.trees(t)],
        state[block.index].astype(np.float64),
        block.own_moves(t, mask),
        e.y[block.index],
        block.own_weight(t),
    )
    _watch_leaves(block, removed, step.D[0], dH, step.rows)
    H = step.D[0][:, 0] - (e.lam + nodes.l2[nodes.leaf, None])
    sums = step.rows, step.G[0], H
    before = np.ascontiguousarray(step.s[0][:, 0])
    lam = e.lam + dlam
    if e.independent and strictest is None:  # only the leaves of the removed rows change
        own = own_totals(e.loss, e.rule.newton, removed, *sums)
        other = OtherSums(removed.ids.astype(np.int32), *own)
        G_all, H_all = (np.where(step.rows > 0, x[:, 0], 0.0) for x in sums[1:])
        dS = nodes.values(e.rule, G_all, H_all, lam, before, other)
    else:
        G, H = totals_without_rows(e.loss, e.rule.newton, removed, *sums, dG, dH)
        if strictest is not None:
            loosest = nodes.steps(e.rule, G, H, lam).s
            check_same(e, t, loosest, nodes.steps(strictest, G, H, lam).s)
        dS = nodes.values(e.rule, G, H, lam, before)
    if e.fixed is not None:
        dS[e.fixed[e.leaf_range(t)]] = 0
    return dS[:, None], mask


def _refit_pooled(
    block: ForwardBlock, t: int, state: Real, dlam: F64, chains: Ints
) -> tuple[F64, Real | None]:
    """The same for leaves that are pooled along chains, also from totals."""
    e = block.e
    step = block.work.trace.steps[t]
    own = block.own_leaves(t)
    own_state = state[block.index].astype(np.float64)
    mask = None
    S = np.zeros((len(step.rows), block.B))
    for q, c in enumerate(step.scale):
        dS = (S - step.S[q])[:, None]
        dG, dH, mask = changed_sums(block, t, q, state, dS, mask)
        move = block.own_moves(t, mask)
        if q > 0:
            move[0] += S[own[0], block.lanes]
        removed = RemovedRows(
            own, e.first_output[e.trees(t)], own_state, move, e.y[block.index], block.own_weight(t)
        )
        _watch_leaves(block, removed, step.D[q], dH, step.rows)
        dG, dD, rows = without_rows(e.loss, e.rule.newton, *removed, step.rows, dG, dH)
        G = np.where(rows > 0, step.G[q] + dG[:, 0], 0.0)
        D = np.where(rows > 0, step.D[q][:, 0] + dD[:, 0, 0], e.lam) + dlam
        u = S - np.where(D > 0, G / np.where(D > 0, D, 1.0), 0.0)
        S = S + c * (pool(u, D, chains) - S)
    return (S - (step.S[-1] + step.scale[-1] * step.s[-1]))[:, None], mask


def _adding_up_to_zero(dG: Real, dH: Real) -> tuple[F64, F64]:
    """dG (M, O, B) and dH (M, O, O, B) of a softmax, which add up to zero over its outputs.

    Sums in float32 do not, and what is left would be divided by l2 alone.
    """
    dG = dG.astype(np.float64)
    dH = dH.astype(np.float64)
    dG -= dG.mean(axis=1, keepdims=True)
    dH -= dH.mean(axis=1, keepdims=True)
    dH -= dH.mean(axis=2, keepdims=True)
    return dG, dH


def _watch_leaves(block: ForwardBlock, removed: RemovedRows, D: F64, dH: Real, rows: F64) -> None:
    """Look for leaves of which too little is left for differences."""
    e = block.e
    large = block.large
    if large is None or large.smallest_part * np.einsum("maa->ma", D).max() <= e.lam:
        return
    left = left_after_removal(e.loss, e.rule.newton, removed, D, dH, rows)
    large.add_leaves(np.einsum("maa->ma", D), left)


def changed_sums(
    block: ForwardBlock, t: int, q: int, state: Real, dS: F64, mask: Real | None
) -> tuple[Real, Real, Real | None]:
    """Changes of the sums of g and h over the rows in U^t, in inner iteration q of step t.

    ``state``  (n, C) of the loss before the step
    ``dS``     (M, O, B) changes of the leaves in earlier iterations
    ``mask``   of U^t, for q > 0

    Returns dG (M, O, B), dH (M, O, O, B) and the mask of U^t.
    """
    e = block.e
    M, O, B = dS.shape
    dG = zeros((M, O, B), block.work.dtype)
    dH = zeros((M, O, O, B), block.work.dtype)
    w = block.work.step_weights(t)
    if q > 0:
        form = int(block.changes.exponential)  # the leaf's own change need not be small
        iteration = block.inner_iteration(t, q, dS, mask)
        terms = LossTerms(e.loss, form, state, e.y, w, iteration)
        _add_change_sums(block.sweep(t, None), terms, dG, dH)
    elif block.selection.uses_changes:
        terms = LossTerms(e.loss, block.changes.form, state, e.y, w, InnerIteration())
        ranking = block.selection.empty_ranking(t)
        _add_change_sums(block.sweep(t, ranking), terms, dG, dH)
        if block.large is not None:
            block.large.add_jumps(e.loss, state, e.y, block.changes.D)
        mask = block.selection.mask(t, ranking)
        if mask is not None:
            dG *= mask[:, None]
            dH *= mask[:, None, None]
    return dG, dH, mask


def _add_change_sums(sweep: Sweep, terms: LossTerms, dG: Real, dH: Real) -> None:
    """dG (M, O, B), dH (M, O, O, B) += sums of the changes of w g and w h over each leaf."""
    loss, form, state, y, w, iteration = terms
    rows = (form, state, y, w, *iteration, sweep.D, sweep.ranking)
    kernels_of(loss).change_sums(loss, *sweep.leading, *rows, dG, dH)


def _lam_changes(e: Ensemble, index: Ints) -> F64:
    """(B,) changes of lam without each of these rows."""
    if not e.rule.l2_scales:
        return np.zeros(len(index))
    mean_without = (e.total_weight - e.w[index]) / (e.n_rows - 1)
    return e.rule.l2 * (mean_without - e.total_weight / e.n_rows)


def _limits(e: Ensemble, t: int, G: F64, rule: LeafRule) -> StepLimits:
    """Limits of this rule for the leaves of step t, whose sums of g are G (M, O)."""
    here = e.leaf_range(t)
    lam = np.full(len(G), e.lam) + (0.0 if e.leaf_l2 is None else e.leaf_l2[here])
    fixed = np.zeros(len(G), bool) if e.fixed is None else e.fixed[here]
    return StepLimits(rule.bounds, G, lam, fixed, rule.diagonal)


def _base_changes(e: Ensemble, index: Ints) -> F64:
    """(K, B) changes of the starting score without each of these rows."""
    if e.base_rule is None:
        return np.zeros((e.n_outputs, len(index)))
    base = e.base_rule.without(e.loss, e.y, e.base_weight, index)
    if not np.isfinite(base).all():
        row = index[np.flatnonzero(~np.isfinite(base).all(axis=0))[0]]
        raise InvalidInput(
            f"without training row {row} the labels have no finite starting score (it is the last of its class); "
            "leave it out of rows=."
        )
    # the score without an added row of weight zero is that of all rows, with the same rounding
    labels = np.concatenate([e.y, np.zeros_like(e.y[:1])])
    weights = np.append(e.base_weight, 0.0)
    return base - e.base_rule.without(e.loss, labels, weights, np.array([e.n_rows]))
