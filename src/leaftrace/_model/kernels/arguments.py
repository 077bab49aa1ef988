"""Groups of kernel arguments, as ``src/native/kernels.hpp`` has them in structs.

Kernels and twins take plain arguments. Each group is a named tuple, so that callers pass it around
as one value and unpack it where they call the kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints, Real
from ..losses import Loss


class StepLeaves(NamedTuple):
    """Leaves of all rows in the R trees of one step."""

    ids: Ids  # (R, n) counted over all M leaves of the step
    first: Ints  # (R,) first output that each tree writes to


class TreeChain(NamedTuple):
    """R steps of one tree and one output each, one after another."""

    ids: Ids  # (R, n)
    edges: Ints  # (R + 1,) leaves of tree r are edges[r] .. edges[r + 1] of all leaves
    values: F64  # (leaves,) added to the scores between the steps


class ScoredRows(NamedTuple):
    """Rows that go through a `TreeChain`."""

    A: F64  # (n, 1), or (n,) for effects: scores before the first step, moved in place
    y: F64  # (n,)
    w: F64  # (n,)


class LinearisedLeaves(NamedTuple):
    """The linearised leaf equations of a `TreeChain`, for Q inner iterations of M leaves a step."""

    edges: Ints  # (R + 1,) the numbers of tree r are (Q, M) at edges[r] .. edges[r + 1]
    shift: F64
    s: F64
    N: F64


class Sweep(NamedTuple):
    """One pass over the rows of a step, for a block of B columns.

    On the way the changes of the step before are added to D.
    """

    at: StepLeaves
    before: StepLeaves | None  # the step whose changes D lacks; None: D lacks none
    d_before: Real | None  # (M', O', B) changes of its leaf values
    pick: Real | None  # (n,) 1 for the rows that rank the leaves; None: all do
    D: Real  # (n, K, B) changes of the scores
    ranking: Real | None  # (M, B) += sums of |D| over the rows of each leaf

    @property
    def leading(self) -> tuple[Any, ...]:
        """The arguments that sweeping kernels take before all others."""
        before = (None, None) if self.before is None else self.before
        return (*self.at, *before, self.d_before, self.pick)


class InnerIteration(NamedTuple):
    """Scores within a step after its first inner iteration. All None: the first one."""

    shift: Real | None = None  # (M, O) of the state, by the iterations so far
    inner: Real | None = None  # (M, O, B) changes of the leaves in those iterations
    mask: Real | None = None  # (M, B) 1 for leaves whose rows also change by D


class LossTerms(NamedTuple):
    """The rows as the loss sees them in `change_sums`."""

    loss: Loss
    form: int  # of D: 0 changes, 1 exp(change) - 1, 2 small changes
    state: Real  # (n, C)
    y: F64  # (n,)
    w: Real  # (n,), or (R, n) if trees drew rows differently
    iteration: InnerIteration


class RemovedRows(NamedTuple):
    """The B rows of `removal_step`, of which column b removes row b."""

    ids: Ids  # (R, B) their leaves
    first: Ints  # (R,) first output that each tree writes to
    state: F64  # (B, C) of the loss, before the step
    move: F64  # (R, K, B) changes of their scores
    y: F64  # (B,)
    w: F64  # (B,), or (R, B) if trees drew rows differently


class SolvedLeaves(NamedTuple):
    """An inner iteration of the model itself, from which `removal_step` takes differences."""

    s: F64  # (M, O)
    D: F64  # (M, O, O)
    rows: F64  # (M,) rows of non-zero weight
    dlam: F64  # (B,) changes of lam
    c: float


class StepLimits(NamedTuple):
    """Limits of a leaf's step, for `removal_step`."""

    bounds: F64  # (3,) l1, longest step, least sum of h
    G: F64  # (M, O) of the model
    lam: F64  # (M,)
    fixed: NDArray[np.bool_]  # (M,) leaves that keep their value
    diagonal: bool  # outputs of a leaf are solved one at a time


class TreePairs(NamedTuple):
    """One tree and those of the steps before it, for `pair_sums`."""

    ids: Ids  # (n, trees) by row
    offset: Ints  # (earlier trees,) where the leaves of each earlier tree begin
    first: Ints  # (earlier trees,) first output of each
    order: Ints  # (n,) rows in the order of their leaves in the tree
    edges: Ints  # (L + 1,) rows of leaf l of the tree are order[edges[l] : edges[l + 1]]
