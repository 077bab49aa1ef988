"""Forward passes, for blocks of training rows: the tangent (one derivative a column) and the refit (one removal a
column). They give the change of every leaf value; update sets decide whose changes are used.

Tangent (the paper's Algorithm 4):   d_l = V_i [i in l] + sum_{j in l, U} U_j D_j          D_j += d_{l(j)}
Refit (Algorithms 2 and 3), one inner iteration, in differences so that nothing cancels:

    dG = sum_{j in l, U, j != i} w_j dg_j - w_i g_i [i in l],   dD likewise, + dlam
    ds = -(D + dD)^-1 (dG + dD s)                                dS += c ds,   d_l = eta dS

U holds for changes from earlier steps; within a step, a leaf's own inner iterations are always followed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._arrays import F64, Ids, Ints, Real
from ._effects import base_effect
from ._ensemble import Ensemble
from ._errors import InvalidInput
from ._kernels import block_width, kernels
from ._methods import AllPoints, SinglePoint, TopKLeaves, UpdateSet
from ._replay import StepTrace, mean_target
from ._workspace import Workspace


@dataclass(frozen=True)
class LeafChanges:
    """Changes of all leaf values (leaves, O, B) and of the base score (K, B); the first `columns` are meant."""

    leaves: F64
    base: F64
    columns: int

    def score_changes(self, ensemble: Ensemble, leaves: Ids) -> F64:
        """(m, K, columns) changes of the scores of rows with these leaves."""
        B = self.leaves.shape[2]
        dF = np.tile(self.base, (leaves.shape[1], 1, 1))
        for t in range(ensemble.n_steps):
            trees = ensemble.trees(t)
            step = np.ascontiguousarray(self.leaves[ensemble.leaf_range(t)])
            kernels.advance(leaves[trees], ensemble.first_output[trees], step, False, dF)
        return dF[..., : min(B, self.columns)]


def tangent(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """d(leaf values)/dw_i, a column for each row i in `index`."""
    e = work.trace.ensemble
    block = _Block(work, index, update_set)
    base = np.ascontiguousarray(base_effect(work.trace, work.rows.take(block.index)).T)  # (K, B)
    block.start(base)
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, V, U in work.effects_forwards():
        leaf, first = block.at(t)
        d = np.tile((e.lam_slope * work.trace.steps[t].lam_effect)[:, :, None], block.B)
        for r, own in enumerate(block.own_leaves(t)):
            d[own, :, block.lanes] += V[r, block.index]
        if not isinstance(update_set, SinglePoint):
            knock_on = np.zeros(d.shape, work.dtype)
            kernels.tangent_sums(leaf, first, U, block.D, knock_on)
            mask = block.mask(t)
            d += knock_on if mask is None else knock_on * mask[:, None]
            if mask is not None and block.only_updated:  # the row itself is in U even if its leaf is not
                for r, own in enumerate(block.own_leaves(t)):
                    u = np.einsum("bok,kb->bo", U[r, block.index], block.own_D)
                    d[own, :, block.lanes] += (1 - mask[own, block.lanes])[:, None] * u
        changes[e.leaf_range(t)] = d
        block.accumulate(t, d)
    return LeafChanges(changes, base, len(index))


def refit(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """Change of all leaf values when a row is removed, a column for each row in `index`."""
    e = work.trace.ensemble
    block = _Block(work, index, update_set, refit=True)
    i, w = block.index, e.w[block.index]
    base = _base_changes(e, i)
    block.start(base)
    dlam = np.zeros(block.B)
    if e.rule.l2_scales:
        dlam = e.rule.l2 * ((e.total_weight - w) / (e.n_rows - 1) - e.total_weight / e.n_rows)
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, state in work.states_forwards():
        step = work.trace.steps[t]
        own_state = state[i]  # (B, C)
        alive = np.tile(step.rows[:, None], block.B)
        for own in block.own_leaves(t):
            alive[own, block.lanes] -= w > 0
        mask = block.mask(t)
        dS = np.zeros((*step.s.shape[1:], block.B))
        for q in range(len(step.scale)):
            dG, dD = _changed_sums(work, block, t, q, state, own_state, dS, mask)
            dD += np.eye(e.leaf_outputs)[:, :, None] * dlam
            dS += step.scale[q] * _solve(step, q, dG, dD, alive > 0)
        d = e.learning_rate * dS
        changes[e.leaf_range(t)] = d
        block.accumulate(t, d)
    return LeafChanges(changes, base, len(index))


def _changed_sums(
    work: Workspace, block: _Block, t: int, q: int, state: Real, own_state: Real, dS: F64, mask: Real | None
) -> tuple[F64, F64]:
    """dG (M, O, B) and dD (M, O, O, B) of inner iteration q, the removed row taken out, without dlam."""
    e, step, loss = work.trace.ensemble, work.trace.steps[t], work.trace.ensemble.loss
    (leaf, first), (M, O, B) = block.at(t), dS.shape
    dG, dH = np.zeros((M, O, B), work.dtype), np.zeros((M, O, O, B), work.dtype)
    used = block.usage(M, mask)  # (M, B): 1 where a leaf's rows are in U
    inner = None
    if q > 0:
        inner = loss.shift(step.S[q]).astype(work.dtype), loss.change(dS).astype(work.dtype)
        kernels.change_sums(loss.kernel, leaf, first, state, work.w, *inner, used, block.E, dG, dH)
    elif not isinstance(block.update_set, SinglePoint):
        kernels.change_sums(loss.kernel, leaf, first, state, work.w, None, None, None, block.E, dG, dH)
        if mask is not None:
            dG *= mask[:, None]
            dH *= mask[:, None, None]
    dG, dH = dG.astype(np.float64), dH.astype(np.float64)
    if not e.rule.newton:
        dH[:] = 0
    own_state, y, w = own_state.astype(np.float64), e.y[block.index], e.w[block.index]
    for r, own in enumerate(block.own_leaves(t)):
        E, at = used[own, block.lanes] * block.own_change, own_state  # E (K, B)
        if inner is not None:
            at = loss.moved(own_state, inner[0][own].astype(np.float64))
            E = loss.compose(E, inner[1][own, :, block.lanes].T.astype(np.float64))
        dg, dh = loss.difference(at, np.asarray(E, np.float64).T[:, :, None])  # (B, K, 1), (B, K, K, 1)
        out = slice(first[r], first[r] + O)
        g = (loss.gradient(at, y) + dg[..., 0])[:, out]
        h = (loss.hessian(at, y) + dh[..., 0])[:, out, out] if e.rule.newton else np.eye(O)
        dG[own, :, block.lanes] -= w[:, None] * g
        dH[own, :, :, block.lanes] -= w[:, None, None] * h
    return dG, dH


def _solve(step: StepTrace, q: int, dG: F64, dD: F64, alive: np.ndarray) -> F64:
    """ds (M, O, B); a leaf left without rows falls to zero."""
    s, D = step.s[q][:, :, None], step.D[q][..., None] + dD
    right = -(dG + np.einsum("mabc,mb->mac", dD, step.s[q]))
    if D.shape[1] == 1:
        ok = alive & (D[:, 0, 0] > 0)
        ds = right / np.where(ok, D[:, 0, 0], 1)[:, None]
        return np.where(ok[:, None], ds, -s)
    eye = np.eye(D.shape[1])[:, :, None]
    D = np.where(alive[:, None, None], D, eye)
    solved = np.linalg.solve(np.moveaxis(D, 3, 1), np.moveaxis(right, 2, 1)[..., None])[..., 0]  # (M, B, O)
    return np.where(alive[:, None], np.moveaxis(solved, 1, 2), -s)


def _base_changes(ensemble: Ensemble, index: Ints) -> F64:
    """(K, B) change of the starting score when one row is removed."""
    e = ensemble
    if not e.base_from_data:
        return np.zeros((e.n_outputs, len(index)))
    mean, rest = mean_target(e, e.w), e.total_weight - e.w[index]
    target = e.y[index] if e.n_outputs == 1 else np.eye(e.n_outputs)[e.y[index].astype(int)].T
    total = mean[:, None] * e.total_weight
    left = total - e.w[index] * target
    without = np.where(np.abs(left) < 1e-12 * np.abs(total), 0.0, left) / rest  # nothing left, but for rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        base = np.stack([e.loss.from_mean(m) for m in without.T], axis=1)
    if not np.isfinite(base).all():
        row = index[np.flatnonzero(~np.isfinite(base).all(axis=0))[0]]
        raise InvalidInput(
            f"without training row {row} the labels have no finite starting score (it is the last of its class); "
            "leave it out of rows=."
        )
    return base - e.loss.from_mean(mean)[:, None]


class _Block:
    """A block of training rows going forwards: accumulated changes of all scores, and the update set at each step."""

    def __init__(self, work: Workspace, index: Ints, update_set: UpdateSet, refit: bool = False) -> None:
        self.work, self.update_set, self.refit = work, update_set, refit
        self.e = work.trace.ensemble
        self.B = block_width(len(index))
        self.index = np.concatenate([index, np.repeat(index[-1:], self.B - len(index))])  # padded to the width
        self.lanes = np.arange(self.B)
        self.only_updated = isinstance(update_set, TopKLeaves) and update_set.accumulate == "updated"
        self.exponential = refit and float(self.e.loss.change(np.ones(1))[0]) != 1.0

    def start(self, base: F64) -> None:
        """All scores begin with the change of the base score (K, B)."""
        shape = (self.e.n_rows, self.e.n_outputs, self.B)
        ranked = isinstance(self.update_set, TopKLeaves)
        self.own_D = base.copy()  # (K, B) change of the row in question itself
        self.D = self.E = np.zeros((0, *shape[1:]), self.work.dtype)
        if not self.refit or ranked:
            self.D = np.tile(base.astype(self.work.dtype), (shape[0], 1, 1))
        if self.refit:
            self.E = np.tile(self.e.loss.change(base).astype(self.work.dtype), (shape[0], 1, 1))

    @property
    def own_change(self) -> F64:
        return self.e.loss.change(self.own_D)

    def at(self, t: int) -> tuple[Ids, np.ndarray]:
        return self.e.leaves[self.e.trees(t)], self.e.first_output[self.e.trees(t)]

    def own_leaves(self, t: int) -> Ids:
        """(R, B) the leaves that hold the rows in question."""
        return self.e.leaves[self.e.trees(t)][:, self.index]

    def usage(self, M: int, mask: Real | None) -> Real:
        if mask is not None:
            return mask
        return np.full((M, self.B), isinstance(self.update_set, AllPoints), self.work.dtype)

    def mask(self, t: int) -> Real | None:
        """(M, B) 1 for leaves whose rows are in U^t; None when the update set does not rank leaves."""
        if not isinstance(self.update_set, TopKLeaves):
            return None
        e, dtype = self.e, self.work.dtype
        (leaf, first), pick = self.at(t), np.ones(e.n_rows, dtype)
        if self.update_set.sample is not None and self.update_set.sample < e.n_rows:
            chosen = np.random.default_rng([self.update_set.seed, t])
            pick[:] = 0
            pick[chosen.choice(e.n_rows, self.update_set.sample, replace=False)] = 1
        start = e.tree_offset[e.trees(t)][0]
        sums = np.zeros((e.leaf_range(t).stop - start, self.B), dtype)
        kernels.abs_sums(leaf, first, e.leaf_outputs, pick, self.D, sums)
        mask = np.zeros_like(sums)
        for tree in range(e.trees(t).start, e.trees(t).stop):
            begin, end = e.tree_leaves[tree] - start, e.tree_leaves[tree + 1] - start
            top = np.argsort(-sums[begin:end], axis=0, kind="stable")[: self.update_set.k]
            np.put_along_axis(mask[begin:end], top, 1, axis=0)
        self._last_mask = mask
        return mask

    def accumulate(self, t: int, d: F64) -> None:
        """Take the leaves' changes d (M, O, B) into the scores' changes."""
        leaf, first = self.at(t)
        for r, own in enumerate(self.own_leaves(t)):
            self.own_D[first[r] : first[r] + d.shape[1]] += d[own, :, self.lanes].T
        shared = d * self._last_mask[:, None] if self.only_updated else d
        if len(self.D):
            kernels.advance(leaf, first, shared.astype(self.work.dtype), False, self.D)
        if len(self.E):
            change = self.e.loss.change(shared) if self.exponential else shared
            kernels.advance(leaf, first, change.astype(self.work.dtype), self.exponential, self.E)
        if self.only_updated:  # the row in question always accumulates
            if len(self.D):
                self.D[self.index, :, self.lanes] = self.own_D.T
            if len(self.E):
                self.E[self.index, :, self.lanes] = self.own_change.T
