"""A block of training rows in a forward pass: changes of all scores, and the update sets.

Column b of a block is about row b: its derivative, or its removal.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._model.ensemble import BASE, SHRINK, Ensemble
from .._model.kernels import block_width, kernels, zeros
from .._model.kernels.arguments import InnerIteration, StepLeaves, Sweep
from .large_changes import LargeChanges
from .methods import AllPoints, SinglePoint, TopKLeaves, UpdateSet
from .workspace import Workspace

# Largest changes for which coth_of in the kernels is exact to rounding, by bytes of a number.
SMALL_CHANGE = {4: 0.5, 8: 0.012}


class ScoreChanges:
    """Changes of the scores of all rows since training, for B columns.

    They are kept as D or, if ``exponential``, as exp(D) - 1: then an exponential is needed for each
    leaf, but not for each row.
    """

    def __init__(self, work: Workspace, base: F64, exponential: bool) -> None:
        self.work = work
        self.base = base  # (K, B) changes of the starting score
        self.exponential = exponential
        self.bound = float(np.abs(base).max(initial=0.0))  # |D| is no larger
        self._pending: tuple[StepLeaves, Real] | None = None

    @cached_property
    def D(self) -> Real:  # noqa: N802
        """(n, K, B) the changes as they are kept, without those that are pending.

        SinglePoint with one inner iteration does not need them.
        """
        n = self.work.trace.ensemble.n_rows
        D = zeros((n, *self.base.shape), self.work.dtype)
        D += self.as_kept(self.base)
        return D

    def as_kept(self, d: F64) -> Real:
        """Changes in the form in which D keeps them."""
        out = zeros(d.shape, self.work.dtype)
        out[...] = np.expm1(d) if self.exponential else d
        return out

    @property
    def form(self) -> int:
        """Kernel code for how D is stored.

        1: as exp(D) - 1. 2: as D, so small that exp(D) is a short quotient. 0: as any D.
        """
        if self.exponential:
            return 1
        return 2 if self.bound <= SMALL_CHANGE[self.work.dtype.itemsize] else 0

    def add_base(self, d: F64) -> None:
        """Add a change d (K, B) of the starting score."""
        self._compose(slice(None), self.as_kept(d))

    def add_step(self, at: StepLeaves, d: Real) -> None:
        """Add changes d (M, O, B) of the leaves of a step, in the form of D."""
        for ids, o in zip(at.ids, at.first, strict=True):
            self._compose(slice(o, o + d.shape[1]), d[ids])

    def _compose(self, outputs: slice, d: Real) -> None:
        """Add a change to some outputs of D, both in the form of D."""
        part = self.D[:, outputs]
        part += d * (1 + part) if self.exponential else d

    def shrink(self, factor: float) -> None:
        """Multiply all changes."""
        if self.exponential:
            self.D[...] = np.expm1(factor * np.log1p(self.D))
        else:
            self.D[...] *= factor

    def postpone(self, at: StepLeaves, d: Real) -> None:
        """Leave it to the next sweep to add the changes d (M, O, B) of a step."""
        self._pending = at, d

    def take_pending(self) -> tuple[StepLeaves, Real] | tuple[None, None]:
        """The changes that the next sweep must add, which are pending no longer."""
        pending = self._pending
        self._pending = None
        return (None, None) if pending is None else pending


class LeafSelection:
    """The leaves of each step whose rows are in the update set, for B columns."""

    def __init__(self, work: Workspace, update_set: UpdateSet, B: int) -> None:
        self.work = work
        self.update_set = update_set
        self.B = B

    @property
    def uses_changes(self) -> bool:
        """Whether the changes of other rows are used at all."""
        return not isinstance(self.update_set, SinglePoint)

    @property
    def drops_changes(self) -> bool:
        """Whether rows outside the update set do not accumulate changes."""
        return isinstance(self.update_set, TopKLeaves) and self.update_set.accumulate == "updated"

    def ranking_rows(self, t: int) -> Real | None:
        """(n,) 1 for the rows whose changes rank the leaves of step t; None for all."""
        n = self.work.trace.ensemble.n_rows
        if not isinstance(self.update_set, TopKLeaves):
            return None
        if self.update_set.sample is None or self.update_set.sample >= n:
            return None
        pick = np.zeros(n, self.work.dtype)
        rng = np.random.default_rng([self.update_set.seed, t])
        pick[rng.choice(n, self.update_set.sample, replace=False)] = 1
        return pick

    def empty_ranking(self, t: int) -> Real | None:
        """(M, B) zeros for sums that rank the leaves of step t; None if leaves are not ranked."""
        if not isinstance(self.update_set, TopKLeaves):
            return None
        leaves = self.work.trace.ensemble.leaf_range(t)
        return zeros((leaves.stop - leaves.start, self.B), self.work.dtype)

    def mask(self, t: int, ranking: Real | None) -> Real | None:
        """(M, B) 1 for leaves whose rows are in U^t; None if leaves are not ranked."""
        if ranking is None or not isinstance(self.update_set, TopKLeaves):
            return None
        e = self.work.trace.ensemble
        trees = e.trees(t)
        edges = e.tree_leaves[trees.start : trees.stop + 1] - e.leaf_range(t).start
        mask = zeros(ranking.shape, self.work.dtype)
        for begin, end in pairwise(edges.tolist()):
            kernels.top_leaves(ranking[begin:end], self.update_set.k, mask[begin:end])
        return mask

    def full_mask(self, M: int, mask: Real | None) -> Real:
        """(M, B) 1 for leaves whose rows are in U^t, also if leaves are not ranked."""
        if mask is not None:
            return mask
        return np.full((M, self.B), isinstance(self.update_set, AllPoints), self.work.dtype)


class ForwardBlock:
    """A block of training rows on its way forwards through the steps.

    For each step: `move`, then compute the changes of its leaves with `sweep`, then `finish`.

    ``index``    (B,) the rows, padded by the last one to a width that kernels are compiled for
    ``base``     (K, B) changes of the starting score
    ``changes``  changes of the scores of all rows
    ``own_D``    (K, B) changes of the scores of the rows themselves
    ``large``    columns whose changes are too large to follow; None for derivatives
    """

    def __init__(
        self,
        work: Workspace,
        index: Ints,
        update_set: UpdateSet,
        base: F64,
        exponential: bool = False,
        is_removal: bool = False,
    ) -> None:
        self.work = work
        self.e: Ensemble = work.trace.ensemble
        self.B = block_width(len(index))
        padding = self.B - len(index)
        self.index = np.concatenate([index, np.repeat(index[-1:], padding)])
        self.base = np.concatenate([base, np.repeat(base[:, -1:], padding, axis=1)], axis=1)
        self.large = LargeChanges(work, update_set, self.base) if is_removal else None
        self.lanes = np.arange(self.B)
        self.selection = LeafSelection(work, update_set, self.B)
        self.changes = ScoreChanges(work, self.base, exponential)
        self.own_D = self.base.copy()
        self._own_leaves = np.ascontiguousarray(self.e.leaves[:, self.index])
        self._own_w = self.e.w[self.index]
        # For each step that may still move: changes of its leaves, and the part of them that all
        # rows accumulate.
        self._finished: dict[int, tuple[F64, F64]] = {}

    # ---- the rows of the block ----

    def own_leaves(self, t: int) -> Ids:
        """(R, B) the leaves that hold the rows of the block."""
        return self._own_leaves[self.e.trees(t)]

    def own_weight(self, t: int) -> F64:
        """Weights of the rows of the block in step t: (B,), or (R, B)."""
        w = self._own_w
        if self.e.sample is None:
            return w
        drawn = np.stack([draws[self.index] for draws in self.e.sample[self.e.trees(t)]])
        return w * drawn if len(drawn) > 1 else w * drawn[0]

    def own_moves(self, t: int, mask: Real | None) -> F64:
        """(R, K, B) changes of the rows' own scores that step t uses."""
        own = self.own_leaves(t)
        if mask is None:
            used = isinstance(self.selection.update_set, AllPoints)
            return np.full((len(own), 1, self.B), float(used)) * self.own_D
        return mask[own, self.lanes][:, None].astype(np.float64) * self.own_D

    # ---- from step to step ----

    def step_leaves(self, t: int) -> StepLeaves:
        """Leaves of all rows in step t."""
        trees = self.e.trees(t)
        return StepLeaves(self.e.leaves[trees], self.e.first_output[trees])

    def move(self, t: int) -> None:
        """Add the changes of the steps that move before step t to the changes of scores."""
        if not self.selection.uses_changes:
            return
        for r, factor in self.e.moves_before(t):
            if r == BASE:
                self._move_base(factor)
            elif r == SHRINK:
                self.own_D *= factor
                self.changes.shrink(factor)
            else:
                self._move_step(r, factor, self.e.boosts(t))

    def _move_base(self, factor: float) -> None:
        self.changes.bound += abs(factor) * np.abs(self.base).max(initial=0.0)
        self.own_D += factor * self.base
        self.changes.add_base(factor * self.base)

    def _move_step(self, r: int, factor: float, postpone: bool) -> None:
        """Add the changes of step r; the next sweep does it for all rows if ``postpone``."""
        d, shared = self._finished[r]
        if factor != 1:
            d = factor * d
            shared = factor * shared
        changes = self.changes
        if self.large is not None:
            self.large.add_step(d, changes.D, changes.exponential)
            self.large.stop(d)
            self.large.stop(shared)
        kept = changes.as_kept(shared)
        if not changes.exponential:
            changes.bound += max(d.max(initial=0.0), -d.min(initial=0.0))
        at = self.step_leaves(r)
        for own, o in zip(self.own_leaves(r), at.first, strict=True):
            outputs = slice(o, o + d.shape[1])
            self.own_D[outputs] += d[own, :, self.lanes].T
            if self.selection.drops_changes:  # the row itself accumulates all changes
                left_out = (d - shared)[own, :, self.lanes]
                changes.D[self.index, outputs, self.lanes] += left_out
        if postpone:
            changes.postpone(at, kept)
        else:
            changes.add_step(at, kept)

    def sweep(self, t: int, ranking: Real | None) -> Sweep:
        """Arguments of the kernels that go over the rows of step t and add pending changes to D."""
        before, d_before = self.changes.take_pending()
        pick = self.selection.ranking_rows(t)
        return Sweep(self.step_leaves(t), before, d_before, pick, self.changes.D, ranking)

    def inner_iteration(self, t: int, q: int, dS: F64, mask: Real | None) -> InnerIteration:
        """The scores in inner iteration q > 0 of step t, whose leaves have changed by dS so far."""
        S = self.work.trace.steps[t].S[q]
        if self.large is not None:
            self.large.add_inner(S, dS)
        shift = self.e.loss.shift(S).astype(self.work.dtype)
        full_mask = self.selection.full_mask(len(S), mask)
        return InnerIteration(shift, self.changes.as_kept(dS), full_mask)

    def finish(self, t: int, d: F64, mask: Real | None) -> None:
        """Store the changes d (M, O, B) of the leaves of step t."""
        shared = d
        if self.selection.drops_changes and mask is not None:
            shared = d * mask[:, None]
        self._finished[t] = d, shared
        if self.e.moves is None:
            self._finished.pop(t - 1, None)
