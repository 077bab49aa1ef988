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

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import InvalidInput
from .._kernels import block_width, kernels, zeros
from .._kernels import numpy as twins
from .._kernels.numpy import sum_by_leaf
from .._model.ensemble import BASE, Ensemble
from .methods import AllPoints, SinglePoint, TopKLeaves, UpdateSet
from .row_effects import base_effect
from .workspace import Workspace

SMALL = {
    4: 0.5,
    8: 0.012,
}  # bytes of a number: changes for which coth_of in the kernels is exact to rounding


@dataclass(frozen=True)
class LeafChanges:
    """Changes of all leaf values (leaves, O, B) and of the base score (K, B); the first `columns` are meant."""

    leaves: F64
    base: F64
    columns: int

    def score_changes(self, ensemble: Ensemble, leaves: Ids) -> F64:
        """(m, K, columns) changes of the scores of rows with these leaves."""
        dF = np.empty((leaves.shape[1], *self.base.shape))
        dF[:] = ensemble.base_scale * self.base
        for t, factor in enumerate(ensemble.factors):
            trees = ensemble.trees(t)
            d = self.leaves[ensemble.leaf_range(t)]
            kernels.advance(
                leaves[trees], ensemble.first_output[trees], d if factor == 1 else factor * d, dF
            )
        return dF[..., : self.columns]


def tangent(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """d(leaf values)/d(sample weight of row i), a column for each row i in `index`."""
    e = work.trace.ensemble
    base = np.ascontiguousarray(base_effect(work.trace, work.rows.take(index)).T)  # (K, columns)
    block = _Block(work, index, update_set, base)
    factor = e.w_factor[block.index]
    step_kernels: Any = kernels if e.smoothing is None else twins
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, V, U in work.effects_forwards():
        block.move(t)
        d = changes[e.leaf_range(t)]
        d += (e.lam_slope * work.trace.lam_effect[e.leaf_range(t)])[:, :, None] * factor
        mask = None
        sums = np.zeros((len(d), e.effect_outputs, block.B))
        if not isinstance(update_set, SinglePoint):
            knock_on = zeros(sums.shape, work.dtype)
            ranking = block.ranking(t)
            step_kernels.tangent_sums(*block.sweep(t), U, block.D, ranking, knock_on)
            mask = block.mask(t, ranking)
            sums += knock_on if mask is None else knock_on * mask[:, None]
        for r, own in enumerate(block.own_leaves(t)):
            sums[own, :, block.lanes] += V[r, block.index] * factor[:, None]
            if (
                mask is not None and block.only_updated
            ):  # the row itself is in U even if its leaf is not
                u = np.einsum("bok,kb->bo", U[r, block.index], block.own_D)
                sums[own, :, block.lanes] += (1 - mask[own, block.lanes])[:, None] * u
        spread = work.trace.steps[t].spread
        d += sums if spread is None else np.einsum("kle,leb->kb", spread, sums)[:, None]
        block.finish(t, d, mask)
    return LeafChanges(changes, block.base, len(index))


def along(work: Workspace, direction: F64) -> LeafChanges:
    """Change of all leaf values along a direction (n,) of sample weights, to first order: one column, one pass.

    The same as `tangent` of all rows times the direction, for AllPoints."""
    e = work.trace.ensemble
    dw = work.trace.ensemble.w_factor * direction
    base = direction @ base_effect(work.trace, work.rows)  # (K,)
    changes = np.zeros_like(e.values)
    moving = replace(e, base=base, values=changes)  # changes are moved as values are
    D = np.tile(base, (e.n_rows, 1))
    for t, V, U in work.effects_forwards():
        moving.move(t, e.leaves, D)
        step = work.trace.steps[t]
        d = changes[e.leaf_range(t)]
        sums = np.zeros((len(d), e.effect_outputs))
        for ids, v, u in zip(e.leaves[e.trees(t)], V, U, strict=True):
            sum_by_leaf(ids, v * dw[:, None] + np.einsum("nok,nk->no", u, D), sums)
        d += sums if step.spread is None else np.einsum("kle,le->k", step.spread, sums)[:, None]
        d += e.lam_slope * step.lam_effect * dw.sum()
    return LeafChanges(changes[..., None], base[:, None], 1)


def refit(work: Workspace, index: Ints, update_set: UpdateSet) -> LeafChanges:
    """Change of all leaf values when a row is removed, a column for each row in `index`."""
    e = work.trace.ensemble
    ranked = isinstance(update_set, TopKLeaves)  # by |D|, which exp(D) - 1 does not tell
    block = _Block(
        work, index, update_set, _base_changes(e, index), e.loss.exponential and not ranked
    )
    y = e.y[block.index]
    first = e.first_output
    dlam = np.zeros(block.B)
    if e.rule.l2_scales:
        dlam = e.rule.l2 * (
            (e.total_weight - e.w[block.index]) / (e.n_rows - 1) - e.total_weight / e.n_rows
        )
    limited = e.rule.limited or e.fixed is not None
    changes = np.zeros((len(e.values), e.leaf_outputs, block.B))
    for t, state in work.states_forwards():
        block.move(t)
        step = work.trace.steps[t]
        own = block.own_leaves(t)
        own_state = state[block.index].astype(np.float64)  # (B, C)
        mask = None
        dS = np.zeros((*step.s.shape[1:], block.B))
        for q in range(len(step.scale)):
            dG, dH, mask = _changed_sums(work, block, t, q, state, dS, mask)
            move = block.used(own, mask) * block.own_D  # (R, K, B)
            if q > 0:  # one tree with leaves for all outputs
                move[0] += (step.S[q][:, :, None] + dS)[own[0], :, block.lanes].T
            equations = step.s[q], step.D[q], step.rows, dlam, step.scale[q]
            row = own, first[e.trees(t)], own_state, move, y, block.own_weight(t)
            limits = _limits(e, t, step.G[q]) if limited else ()
            kernels.removal_step(e.loss, e.rule.newton, *row, *equations, dG, dH, dS, *limits)
        d = changes[e.leaf_range(t)] = e.rate(t) * dS
        block.finish(t, d, mask)
    return LeafChanges(changes, block.base, len(index))


def _limits(e: Ensemble, t: int, G: F64) -> tuple[Any, ...]:
    """The last arguments of `removal_step`: bounds of a step, G, lam, fixed leaves, diagonal."""
    lam = np.full(len(G), e.lam) + (0.0 if e.leaf_l2 is None else e.leaf_l2[e.leaf_range(t)])
    fixed = np.zeros(len(G), bool) if e.fixed is None else e.fixed[e.leaf_range(t)]
    return e.rule.bounds, G, lam, fixed, e.rule.diagonal


def _changed_sums(
    work: Workspace, block: _Block, t: int, q: int, state: Real, dS: F64, mask: Real | None
) -> tuple[Real, Real, Real | None]:
    """dG (M, O, B) and dH (M, O, O, B) of inner iteration q over all rows in U; and the update set."""
    e = work.trace.ensemble
    (M, O, B) = dS.shape
    loss = e.loss
    w = work.step_weights(t)
    dG = zeros((M, O, B), work.dtype)
    dH = zeros((M, O, O, B), work.dtype)
    if q > 0:
        shift = loss.shift(work.trace.steps[t].S[q]).astype(work.dtype)
        inner = shift, block.form(dS), block.usage(M, mask)
        how = (
            int(block.exponential),
            state,
            e.y,
            w,
            *inner,
            block.D,
            None,
        )  # the leaf's own change need not be small
        kernels.change_sums(loss, *block.sweep(t), *how, dG, dH)
    elif not isinstance(block.update_set, SinglePoint):
        ranking = block.ranking(t)
        inner = (None, None, None)
        how = block.form_number, state, e.y, w, *inner, block.D, ranking
        kernels.change_sums(loss, *block.sweep(t), *how, dG, dH)
        mask = block.mask(t, ranking)
        if mask is not None:
            dG *= mask[:, None]
            dH *= mask[:, None, None]
    return dG, dH, mask


def _base_changes(ensemble: Ensemble, index: Ints) -> F64:
    """(K, B) change of the starting score when one row is removed."""
    e = ensemble
    if e.base_rule is None:
        return np.zeros((e.n_outputs, len(index)))
    base = e.base_rule.without(e.loss, e.y, e.base_weight, index)
    if not np.isfinite(base).all():
        row = index[np.flatnonzero(~np.isfinite(base).all(axis=0))[0]]
        raise InvalidInput(
            f"without training row {row} the labels have no finite starting score (it is the last of its class); "
            "leave it out of rows=."
        )
    return base - e.base_rule.without(
        e.loss, np.append(e.y, 0.0), np.append(e.base_weight, 0.0), np.array([e.n_rows])
    )


class _Block:
    """A block of training rows going forwards: accumulated changes of all scores, and the update set at each step.

    Changes of all rows' scores are kept as D or, where ``exponential``, as exp(D) - 1: then an exponential is needed
    for each leaf but not for each row."""

    def __init__(
        self,
        work: Workspace,
        index: Ints,
        update_set: UpdateSet,
        base: F64,
        exponential: bool = False,
    ) -> None:
        self.work = work
        self.update_set = update_set
        self.exponential = exponential
        self.e = work.trace.ensemble
        self.B = block_width(len(index))
        padding = self.B - len(index)  # up to a width the kernels know: the last row again
        self.index = np.concatenate([index, np.repeat(index[-1:], padding)])
        self.base = np.concatenate(
            [base, np.repeat(base[:, -1:], padding, axis=1)], axis=1
        )  # (K, B)
        self.lanes = np.arange(self.B)
        self._own_leaves = np.ascontiguousarray(self.e.leaves[:, self.index])
        self._own_w = self.e.w[self.index]
        self.only_updated = (
            isinstance(update_set, TopKLeaves) and update_set.accumulate == "updated"
        )
        self.own_D = self.base.copy()  # (K, B) change of the row in question itself
        self.bound = float(np.abs(self.base).max(initial=0.0))  # |D| is no larger
        self._done: dict[
            int, tuple[F64, F64]
        ] = {}  # changes of leaves, and of them those that all rows take in
        self._pending: tuple[Ids, Ints, Real] | None = (
            None  # changes of the last step, not yet in D
        )

    @cached_property
    def D(self) -> Real:  # noqa: N802
        """(n, K, B) changes of all scores; SinglePoint with one inner iteration never asks."""
        D = zeros((self.e.n_rows, self.e.n_outputs, self.B), self.work.dtype)
        D += self.form(self.base)
        return D

    def form(self, d: F64) -> Real:
        """Changes as D keeps them."""
        out = zeros(d.shape, self.work.dtype)
        out[...] = np.expm1(d) if self.exponential else d
        return out

    @property
    def form_number(self) -> int:
        """How the kernels are told of D: 1 exp(D) - 1, 2 a D so small that exp(D) is a short quotient, 0 any D."""
        return 1 if self.exponential else 2 * (self.bound <= SMALL[self.work.dtype.itemsize])

    def first(self, t: int) -> Ints:
        return self.e.first_output[self.e.trees(t)]

    def own_leaves(self, t: int) -> Ids:
        """(R, B) the leaves that hold the rows in question."""
        return self._own_leaves[self.e.trees(t)]

    def sweep(self, t: int) -> tuple[Any, ...]:
        """The first arguments of the kernels that go over the rows of step t; D takes in what is pending."""
        before = self._pending or (None, None, None)
        self._pending = None
        return (self.e.leaves[self.e.trees(t)], self.first(t), *before, self._pick(t))

    def _pick(self, t: int) -> Real | None:
        """(n,) 1 for rows whose changes rank the leaves; None for all."""
        n = self.e.n_rows
        update_set = self.update_set
        if (
            not isinstance(update_set, TopKLeaves)
            or update_set.sample is None
            or update_set.sample >= n
        ):
            return None
        pick = np.zeros(n, self.work.dtype)
        rng = np.random.default_rng([update_set.seed, t])
        pick[rng.choice(n, update_set.sample, replace=False)] = 1
        return pick

    def ranking(self, t: int) -> Real | None:
        """(M, B) zeros for the sums that rank the leaves of step t, if the update set ranks leaves."""
        if not isinstance(self.update_set, TopKLeaves):
            return None
        leaves = self.e.leaf_range(t)
        return zeros((leaves.stop - leaves.start, self.B), self.work.dtype)

    def mask(self, t: int, sums: Real | None) -> Real | None:
        """(M, B) 1 for leaves whose rows are in U^t; None when the update set does not rank leaves."""
        if sums is None or not isinstance(self.update_set, TopKLeaves):
            return None
        mask = zeros(sums.shape, self.work.dtype)
        trees = self.e.trees(t)
        edges = self.e.tree_leaves[trees.start : trees.stop + 1] - self.e.leaf_range(t).start
        for begin, end in pairwise(edges.tolist()):
            kernels.top_leaves(sums[begin:end], self.update_set.k, mask[begin:end])
        return mask

    def used(self, own: Ids, mask: Real | None) -> F64:
        """(R, 1, B) 1 where the leaves of the rows in question are in U."""
        if mask is None:
            return np.full((len(own), 1, self.B), float(isinstance(self.update_set, AllPoints)))
        return mask[own, self.lanes][:, None].astype(np.float64)

    def usage(self, M: int, mask: Real | None) -> Real:
        """(M, B) 1 for leaves in U."""
        return (
            np.full((M, self.B), isinstance(self.update_set, AllPoints), self.work.dtype)
            if mask is None
            else mask
        )

    def finish(self, t: int, d: F64, mask: Real | None) -> None:
        """Step t is done: these are the changes d (M, O, B) of its leaves."""
        shared = d * mask[:, None] if self.only_updated and mask is not None else d
        self._done[t] = d, shared
        if self.e.moves is None:
            self._done.pop(t - 1, None)

    def move(self, t: int) -> None:
        """Take the changes of the steps that move before step t into the changes of scores."""
        if isinstance(self.update_set, SinglePoint):
            return  # nobody will ask for them
        for r, factor in self.e.moves_before(t):
            if r == BASE:
                self.bound += abs(factor) * np.abs(self.base).max(initial=0.0)
                self.own_D += factor * self.base
                self._compose(slice(None), self.form(factor * self.base))
                continue
            d, shared = (factor * x for x in self._done[r]) if factor != 1 else self._done[r]
            form = self.form(shared)
            if not self.exponential:
                self.bound += max(d.max(initial=0.0), -d.min(initial=0.0))
            for own, o in zip(self.own_leaves(r), self.first(r), strict=True):
                out = slice(o, o + d.shape[1])
                self.own_D[out] += d[own, :, self.lanes].T
                if self.only_updated:  # the row in question always accumulates
                    self.D[self.index, out, self.lanes] += (d - shared)[own, :, self.lanes]
            if self.e.boosts(t):
                self._pending = self.e.leaves[self.e.trees(r)], self.first(r), form
            else:
                for ids, o in zip(self.e.leaves[self.e.trees(r)], self.first(r), strict=True):
                    self._compose(slice(o, o + d.shape[1]), form[ids])

    def _compose(self, out: slice, form: Real) -> None:
        """D then another change, in D's form."""
        part = self.D[:, out]
        part += form * (1 + part) if self.exponential else form

    def own_weight(self, t: int) -> F64:
        """Weights of the rows in question in step t: (B,), or (R, B)."""
        w = self._own_w
        if self.e.sample is None:
            return w
        drawn = np.stack([s[self.index] for s in self.e.sample[self.e.trees(t)]])
        return w * drawn if len(drawn) > 1 else w * drawn[0]
