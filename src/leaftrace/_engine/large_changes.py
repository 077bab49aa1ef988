"""Removals that change a model too much for differences; they are replayed instead.

LeafRefit follows differences, which keep their digits however small they are. Large ones can lose
them in four ways:

- exp(D) - 1 has the digits of 1. Far below zero, it has none of exp(D); far above, it is infinite.
- A leaf of which little is left, D + dD much smaller than D, gets it from two large numbers.
- A model whose leaves move scores by more than exp can hold has rounding errors of its library in
  all digits that matter. Differences do without these; a replay repeats them.
- A gradient that jumps, such as that of the hinge loss at margin 1, or a second derivative that does,
  such as that of the expectile loss at the label, depends on the last digit of a score that comes to
  lie where it jumps.

A column of a block in which one of them happens stops moving. At the end, `replay_large_changes`
computes its leaf values from all rows that stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._model.kernels.arguments import RemovedRows
from .._model.losses import Loss
from .methods import AllPoints, UpdateSet
from .refit import refit_on
from .replay import Trace
from .workspace import Workspace

# Largest change of a score for which exp(D) - 1 keeps five (nine) digits of exp(D), and the smallest
# part of a leaf that keeps four (eight), by bytes of a number.
LARGEST_CHANGE = {4: 5.0, 8: 16.0}
SMALLEST_PART = {4: 1e-3, 8: 1e-8}
SMALLEST_ROUNDED_PART = 1e-2  # of sums of numbers that training rounded to float32: it keeps five
ON_A_JUMP = 1e-6  # distance to a jump of g or h, as a part of the change D, that may be rounding
LARGEST_LEAF = 16.0  # a change of the score that makes probabilities 0 or 1 to float32


class LargeChanges:
    """Columns of a block that are no longer followed, because their changes are too large.

    ``found``  (B,) whether a column is one of them
    """

    def __init__(self, work: Workspace, update_set: UpdateSet, base: F64) -> None:
        e = work.trace.ensemble
        size = work.dtype.itemsize
        self.update_set = update_set
        steepness = _steepness(e.loss)
        self.limit = LARGEST_CHANGE[size] / steepness if steepness else np.inf
        self.smallest_part = 0.0
        self._jumps: list[float] = []
        self._reach = np.abs(base).max(axis=0)  # (B,) |D| is no larger in any row
        self.found = ~(self._reach <= self.limit)
        if isinstance(update_set, AllPoints):  # others are approximations, which have no replay
            is_rounded = e.rounding.derivatives or e.rounding.terms
            self.smallest_part = SMALLEST_ROUNDED_PART if is_rounded else SMALLEST_PART[size]
            self._jumps = _jumps_of(e.loss, e.rule.newton)
            self.found |= steepness * np.abs(e.values).max(initial=0.0) > LARGEST_LEAF
            self.found |= _has_floors(work.trace)
        self.stop(base)

    def stop(self, changes: F64) -> None:
        """Set changes (..., B) to zero in the columns that are not followed."""
        if self.found.any():
            changes[..., self.found] = 0

    def add_step(self, d: F64, D: Real, exponential: bool) -> None:
        """Take into account that the scores of rows change by d (M, O, B).

        ``D`` (n, K, B) has the changes before, as exp(D) - 1 if ``exponential``.
        """
        if np.isinf(self.limit):
            return
        step = np.abs(d).max(axis=(0, 1))
        self._reach = self._reach + step
        if np.all((self._reach <= self.limit) | self.found):
            return
        self._reach = (
            _largest_change(D, exponential) + step
        )  # which may be less than the sum of all steps
        self.found |= ~(self._reach <= self.limit)

    def add_inner(self, S: F64, dS: F64) -> None:
        """Take into account the sums S (M, O) of inner iterations, and their changes dS (M, O, B)."""
        if np.isfinite(self.limit):
            overflows = np.abs(S).max(initial=0.0) > 16 * self.limit
            self.found |= overflows | ~(np.abs(dS).max(axis=(0, 1)) <= self.limit)
            self.stop(dS)

    def add_leaves(self, D: F64, D_left: F64) -> None:
        """Take into account that leaves with D (M, O) keep D_left (M, O, B) of it.

        Leaves that are left without rows are zero, and do not count; they have the D they had.
        """
        smallest = self.smallest_part * D[:, :, None]
        self.found |= np.any(D_left < smallest, axis=(0, 1))

    def add_jumps(self, loss: Loss, A: Real, y: F64, D: Real) -> None:
        """Take into account the rows with scores A (n, 1) and changes D (n, 1, B) that meet a jump."""
        if not self._jumps:
            return
        u, slope = _piece_variable(loss, A[:, 0].astype(np.float64), y)
        moved = slope[:, None] * D[:, 0]
        last_bits = 4 * np.finfo(D.dtype).eps * np.abs(A).max(initial=0.0)
        near = ON_A_JUMP * np.abs(moved) + last_bits
        for jump in self._jumps:
            meets = (np.abs(u[:, None] + moved - jump) <= near) & (moved != 0)
            self.found |= meets.any(axis=0)


def _jumps_of(loss: Loss, newton: bool) -> list[float]:
    """The places where g jumps, in the variable u of a loss in pieces (see `pieces`).

    ``newton``: leaves divide by h, so that those where h jumps count, too.
    """
    family, numbers = loss.changes
    if family not in ("residual", "margin", "relative"):
        return []
    low, high, *rest = numbers
    below, between, above = zip(
        rest[::3], rest[1::3], rest[2::3], strict=True
    )  # a, b, h: g = a + b u
    ends = ((low, below, between), (high, between, above))
    return sorted(
        {u for u, (a, b, h), (c, d, k) in ends if a + b * u != c + d * u or (newton and h != k)}
    )


def _piece_variable(loss: Loss, A: F64, y: F64) -> tuple[F64, F64]:
    """u (n,) of the pieces of a loss, and how u changes with the score (n,)."""
    family = loss.changes[0]
    slope = np.ones(len(y))
    if family == "margin":
        slope = 2 * y - 1
        return slope * A - 1, slope
    if family == "relative":
        slope = 1 / np.maximum(1.0, np.abs(y))
    return slope * (A - y), slope


def _steepness(loss: Loss) -> float:
    """The largest factor of the score in an exponential of the loss; zero if it has none."""
    family, numbers = loss.changes
    if family == "exponentials":
        return max(abs(numbers[0]), abs(numbers[1]))
    if family == "sigmoid":
        return abs(numbers[0])
    return 1.0 if loss.exponential else 0.0


def _has_floors(trace: Trace) -> bool:
    """Whether a leaf of several outputs has the floor that replaces l2 where there is next to none.

    The floor follows the largest second derivative, which differences do not.
    """
    e = trace.ensemble
    if e.leaf_outputs == 1 or e.rule.diagonal or not e.rule.newton:
        return False
    largest = max(np.einsum("qmaa->qma", step.D).max(initial=0.0) for step in trace.steps)
    return bool(e.lam < np.finfo(np.float32).eps * largest)


def _largest_change(D: Real, exponential: bool) -> F64:
    """(B,) the largest |D| of a row; ``exponential``: D (n, K, B) holds exp(D) - 1."""
    high = D.max(axis=(0, 1)).astype(np.float64)
    low = D.min(axis=(0, 1)).astype(np.float64)
    if exponential:
        high = np.log1p(high)
        low = np.log1p(np.maximum(low, -1 + 1e-300))
    return np.maximum(high, -low)


def left_after_removal(
    loss: Loss, newton: bool, removed: RemovedRows, D: F64, dH: Real, rows: F64
) -> F64:
    """(M, O, B) what is left of the diagonal of D (M, O, O) without the removed rows.

    ``dH``: (M, O, O, B) changes that still include these rows; ``rows``: (M,) of each leaf.
    """
    own, first, own_state, move, y, w = removed
    lanes = np.arange(dH.shape[-1])
    outputs = np.arange(D.shape[1])
    diagonal = np.einsum("maa->ma", D)
    left = diagonal[:, :, None] + newton * np.einsum("maab->mab", dH)
    for ids, o, moved, tree_w in zip(own, first, move, np.broadcast_to(w, own.shape), strict=True):
        at = loss.moved(own_state, loss.shift(moved.T))
        h = loss.hessian(at, y)[:, o + outputs, o + outputs] if newton else 1.0
        rest = left[ids, :, lanes] - tree_w[:, None] * h
        is_empty = rows[ids] - (tree_w > 0) <= 0
        left[ids, :, lanes] = np.where(is_empty[:, None], diagonal[ids], rest)
    return left


def replay_large_changes(
    work: Workspace, large: LargeChanges, sets: Sequence[Ints], changes: F64, base: F64
) -> None:
    """Write changes (leaves, O, B) and base (K, B) without each set of rows that is not followed."""
    e = work.trace.ensemble
    for b in np.flatnonzero(large.found[: len(sets)]).tolist():
        if not isinstance(large.update_set, AllPoints):
            raise InvalidInput(
                f"without training row {sets[b][0]} some scores change by more than {large.limit:g}, which "
                f"{type(large.update_set).__name__} cannot follow; leave it out of rows=, or use LeafRefit() without "
                "an update set."
            )
        keep = np.delete(np.arange(e.n_rows), sets[b])
        refitted = refit_on(work.trace, e.keep(keep))
        changes[:, :, b] = refitted.values - e.values
        base[:, b] = refitted.base - e.base
