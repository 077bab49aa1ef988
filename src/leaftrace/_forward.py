"""Forward passes, for blocks of training rows: the tangent (one derivative a column) and the refit (one removal a
column). They give the change of every leaf value; update sets decide whose changes are used.

Tangent (the paper's Algorithm 4):   d_l = V_i [i in l] + sum_{j in l, U} U_j D_j          D_j += d_{l(j)}
Refit (Algorithms 2 and 3), one inner iteration, in differences so that nothing cancels:

    dG = sum_{j in l, U, j != i} w_j dg_j - w_i g_i [i in l],   dD likewise, + dlam
    ds = -(D + dD)^-1 (dG + dD s)                                dS += c ds,   d_l = eta dS

(the kernel's sums run over all rows; the removed one is taken out again, at its moved score, before the leaf is solved)

U holds for changes from earlier steps; within a step, a leaf's own inner iterations are always followed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from . import _twins
from ._arrays import F64, Ids, Ints, Real
from ._effects import base_effect
from ._ensemble import Ensemble
from ._errors import InvalidInput
from ._kernels import block_width, kernels
from ._methods import AllPoints, SinglePoint, TopKLeaves, UpdateSet
from ._replay import mean_target
from ._workspace import Workspace


@dataclass(frozen=True)
class LeafChanges:
    """Changes of all leaf values (leaves, O, B) and of the base score (K, B); the first `columns` are meant."""

    leaves: F64
    base: F64
    columns: int

    def score_changes(self, ensemble: Ensemble, leaves: Ids) -> F64:
        """(m, K, columns) changes of the scores of rows with these leaves."""
        dF = np.empty((leaves.shape[1], *self.base.shape))
        dF[:] = self.base
        for t in range(ensemble.n_steps):
            trees = ensemble.trees(t)
            kernels.advance(leaves[trees], ensemble.first_output[trees], self.leaves[ensemble.leaf_range(t)], dF)
        return dF[..., : self.columns]


def tangent(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """d(leaf values)/dw_i, a column for each row i in `index`."""
    e = work.trace.ensemble
    base = np.ascontiguousarray(base_effect(work.trace, work.rows.take(index)).T)  # (K, columns)
    block = _Block(work, index, update_set, base)
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, V, U in work.effects_forwards():
        d = changes[e.leaf_range(t)]
        d += (e.lam_slope * work.trace.steps[t].lam_effect)[:, :, None]
        mask = None
        if not isinstance(update_set, SinglePoint):
            knock_on = np.zeros(d.shape, work.dtype)
            ranking = block.ranking(t)
            kernels.tangent_sums(*block.sweep(t), U, block.D, ranking, knock_on)
            mask = block.mask(t, ranking)
            d += knock_on if mask is None else knock_on * mask[:, None]
        for r, own in enumerate(block.own_leaves(t)):
            d[own, :, block.lanes] += V[r, block.index]
            if mask is not None and block.only_updated:  # the row itself is in U even if its leaf is not
                u = np.einsum("bok,kb->bo", U[r, block.index], block.own_D)
                d[own, :, block.lanes] += (1 - mask[own, block.lanes])[:, None] * u
        block.accumulate(t, d, mask)
    return LeafChanges(changes, block.base, len(index))


def refit(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """Change of all leaf values when a row is removed, a column for each row in `index`."""
    e = work.trace.ensemble
    ranked = isinstance(update_set, TopKLeaves)  # by |D|, which exp(D) - 1 does not tell
    block = _Block(work, index, update_set, _base_changes(e, index), e.loss.exponential and not ranked)
    w, y, first = e.w[block.index], e.y[block.index], e.first_output
    dlam = np.zeros(block.B)
    if e.rule.l2_scales:
        dlam = e.rule.l2 * ((e.total_weight - w) / (e.n_rows - 1) - e.total_weight / e.n_rows)
    solver = kernels if e.n_outputs == 1 and np.diff(e.step_trees).max() == 1 else _twins
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, state in work.states_forwards():
        step, own = work.trace.steps[t], block.own_leaves(t)
        own_state = state[block.index].astype(np.float64)  # (B, C)
        mask = None
        dS = np.zeros((*step.s.shape[1:], block.B))
        for q in range(len(step.scale)):
            dG, dH, mask = _changed_sums(work, block, t, q, state, dS, mask)
            move = block.used(own, mask) * block.own_D  # (R, K, B)
            if q > 0:  # one tree with leaves for all outputs
                move[0] += (step.S[q][:, :, None] + dS)[own[0], :, block.lanes].T
            equations = step.s[q], step.D[q], step.rows, dlam, step.scale[q]
            row = own, first[e.trees(t)], own_state, move, y, w
            solver.removal_step(e.loss.kernel, e.rule.newton, *row, *equations, dG, dH, dS)
        d = changes[e.leaf_range(t)] = e.learning_rate * dS
        block.accumulate(t, d, mask)
    return LeafChanges(changes, block.base, len(index))


def _changed_sums(
    work: Workspace, block: _Block, t: int, q: int, state: Real, dS: F64, mask: Real | None
) -> tuple[Real, Real, Real | None]:
    """dG (M, O, B) and dH (M, O, O, B) of inner iteration q over all rows in U; and the update set."""
    loss, (M, O, B) = work.trace.ensemble.loss, dS.shape
    dG, dH = np.zeros((M, O, B), work.dtype), np.zeros((M, O, O, B), work.dtype)
    if q > 0:
        shift = loss.shift(work.trace.steps[t].S[q]).astype(work.dtype)
        inner = shift, block.form(dS), block.usage(M, mask)
        kernels.change_sums(
            loss.kernel, *block.sweep(t), block.exponential, state, work.w, *inner, block.D, None, dG, dH
        )
    elif not isinstance(block.update_set, SinglePoint):
        ranking, inner = block.ranking(t), (None, None, None)
        kernels.change_sums(
            loss.kernel, *block.sweep(t), block.exponential, state, work.w, *inner, block.D, ranking, dG, dH
        )
        mask = block.mask(t, ranking)
        if mask is not None:
            dG *= mask[:, None]
            dH *= mask[:, None, None]
    return dG, dH, mask


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
    """A block of training rows going forwards: accumulated changes of all scores, and the update set at each step.

    Changes of all rows' scores are kept as D or, where ``exponential``, as exp(D) - 1: then an exponential is needed
    for each leaf but not for each row."""

    def __init__(
        self, work: Workspace, index: Ints, update_set: UpdateSet, base: F64, exponential: bool = False
    ) -> None:
        self.work, self.update_set, self.exponential = work, update_set, exponential
        self.e = work.trace.ensemble
        self.B = block_width(len(index))
        padding = self.B - len(index)  # up to a width the kernels know: the last row again
        self.index = np.concatenate([index, np.repeat(index[-1:], padding)])
        self.base = np.concatenate([base, np.repeat(base[:, -1:], padding, axis=1)], axis=1)  # (K, B)
        self.lanes = np.arange(self.B)
        self._own_leaves = np.ascontiguousarray(self.e.leaves[:, self.index])
        self.only_updated = isinstance(update_set, TopKLeaves) and update_set.accumulate == "updated"
        self.own_D = self.base.copy()  # (K, B) change of the row in question itself
        self.D = np.empty((self.e.n_rows, self.e.n_outputs, self.B), work.dtype)
        self.D[:] = self.form(self.base)
        self._pending: tuple[Ids, Ints, Real] | None = None  # changes of the last step, not yet in D

    def form(self, d: F64) -> Real:
        """Changes as D keeps them."""
        return (np.expm1(d) if self.exponential else d).astype(self.work.dtype)

    def first(self, t: int) -> Ints:
        return self.e.first_output[self.e.trees(t)]

    def own_leaves(self, t: int) -> Ids:
        """(R, B) the leaves that hold the rows in question."""
        return self._own_leaves[self.e.trees(t)]

    def sweep(self, t: int) -> tuple[Any, ...]:
        """The first arguments of the kernels that go over the rows of step t; D takes in what is pending."""
        before, self._pending = self._pending or (None, None, None), None
        return (self.e.leaves[self.e.trees(t)], self.first(t), *before, self._pick(t))

    def _pick(self, t: int) -> Real | None:
        """(n,) 1 for rows whose changes rank the leaves."""
        if not isinstance(self.update_set, TopKLeaves):
            return None
        pick = np.ones(self.e.n_rows, self.work.dtype)
        if self.update_set.sample is not None and self.update_set.sample < len(pick):
            pick[:] = 0
            rng = np.random.default_rng([self.update_set.seed, t])
            pick[rng.choice(len(pick), self.update_set.sample, replace=False)] = 1
        return pick

    def ranking(self, t: int) -> Real | None:
        """(M, B) zeros for the sums that rank the leaves of step t, if the update set ranks leaves."""
        if not isinstance(self.update_set, TopKLeaves):
            return None
        leaves = self.e.leaf_range(t)
        return np.zeros((leaves.stop - leaves.start, self.B), self.work.dtype)

    def mask(self, t: int, sums: Real | None) -> Real | None:
        """(M, B) 1 for leaves whose rows are in U^t; None when the update set does not rank leaves."""
        if sums is None or not isinstance(self.update_set, TopKLeaves):
            return None
        mask, trees = np.zeros_like(sums), self.e.trees(t)
        for begin, end in pairwise(self.e.tree_leaves[trees.start : trees.stop + 1] - self.e.leaf_range(t).start):
            top = np.argsort(-sums[begin:end], axis=0, kind="stable")[: self.update_set.k]
            np.put_along_axis(mask[begin:end], top, 1, axis=0)
        return mask

    def used(self, own: Ids, mask: Real | None) -> F64:
        """(R, 1, B) 1 where the leaves of the rows in question are in U."""
        if mask is None:
            return np.full((len(own), 1, self.B), float(isinstance(self.update_set, AllPoints)))
        return mask[own, self.lanes][:, None].astype(np.float64)

    def usage(self, M: int, mask: Real | None) -> Real:
        """(M, B) 1 for leaves in U."""
        return np.full((M, self.B), isinstance(self.update_set, AllPoints), self.work.dtype) if mask is None else mask

    def accumulate(self, t: int, d: F64, mask: Real | None) -> None:
        """Take the leaves' changes d (M, O, B) into the scores' changes."""
        if isinstance(self.update_set, SinglePoint):
            return  # nobody will ask for them
        shared = d * mask[:, None] if self.only_updated and mask is not None else d
        for own, o in zip(self.own_leaves(t), self.first(t), strict=True):
            out = slice(o, o + d.shape[1])
            self.own_D[out] += d[own, :, self.lanes].T
            if self.only_updated:  # the row in question always accumulates
                self.D[self.index, out, self.lanes] += (d - shared)[own, :, self.lanes]
        self._pending = self.e.leaves[self.e.trees(t)], self.first(t), self.form(shared)
