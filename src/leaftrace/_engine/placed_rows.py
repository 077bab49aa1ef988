"""Rows with the leaves that hold them, and their scores from step to step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._data.arrays import F64, Ids, take_sample
from .._model.ensemble import Ensemble
from .._model.linear_leaves import in_one_piece
from .replay import Trace


@dataclass(frozen=True)
class PlacedRows:
    """Rows with the leaves that hold them: training rows, or candidates of weight zero."""

    leaves: Ids  # (trees, n)
    start: F64  # (n, K) score before the first step
    y: F64
    w: F64
    factor: F64  # (n,) dw / d(sample weight)
    base_factor: F64  # (n,) the same for the weight in the starting score
    sample: Sequence[np.ndarray] | None = None  # for each tree (n,) how often it drew the row

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: slice | np.ndarray) -> PlacedRows:
        """Some of these rows, with their leaves in one piece of memory."""
        rows = self._select(index)
        return replace(rows, leaves=in_one_piece(rows.leaves))

    def view(self, part: slice) -> PlacedRows:
        """Some of these rows, with leaves that are not copied: each tree's lie apart in memory."""
        return self._select(part)

    def _select(self, index: slice | np.ndarray) -> PlacedRows:
        return PlacedRows(
            self.leaves[:, index],
            self.start[index],
            self.y[index],
            self.w[index],
            self.factor[index],
            self.base_factor[index],
            None if self.sample is None else take_sample(self.sample, index),
        )

    def drawn_weight(self, tree: int) -> F64:
        """(n,) weight of each row in a tree."""
        return self.w if self.sample is None else self.w * self.sample[tree]


def training_rows(trace: Trace) -> PlacedRows:
    """All training rows."""
    e = trace.ensemble
    base_factor = e.w_factor if e.base_factor is None else e.base_factor
    return PlacedRows(e.leaves, e.start(), e.y, e.w, e.w_factor, base_factor, e.sample)


def candidate_rows(
    trace: Trace, leaves: Ids, start: F64, y: F64, factor: F64, base_factor: F64
) -> PlacedRows:
    """Rows that were never trained on.

    A tree that drew rows counts as drawing these as often as the others on average, and gives them
    the weight that it gives their class.
    """
    e = trace.ensemble
    sample = None
    if e.sample is not None:
        sample = _expected_draws(e, e.sample, y)
    return PlacedRows(leaves, start, y, np.zeros(len(y)), factor, base_factor, sample)


def _expected_draws(e: Ensemble, sample: Sequence[np.ndarray], y: F64) -> list[F64]:
    """For each tree (rows,) how often it would draw rows with labels y, times their class weight."""
    if e.sample_class_weight is None:
        # trees of a step can share one array, and then its mean, too
        means = {id(draws): np.full(len(y), draws[e.w_factor > 0].mean()) for draws in sample}
        return [means[id(draws)] for draws in sample]
    trained = e.w_factor > 0
    codes = e.y[trained].astype(int)
    expected = []
    for draws, class_weight in zip(sample, e.sample_class_weight, strict=True):
        own = class_weight[codes]
        counts = np.divide(draws[trained], own, out=np.zeros(len(own)), where=own > 0)
        expected.append(counts.mean() * class_weight[y.astype(int)])
    return expected


def forward_scores(trace: Trace, rows: PlacedRows) -> Iterator[tuple[int, F64]]:
    """(t, A^{t-1}) for each step; the array is reused."""
    e = trace.ensemble
    A = rows.start.copy()
    for t in range(e.n_steps):
        e.move(t, rows.leaves, A)
        yield t, A


def scores_backwards(trace: Trace, rows: PlacedRows) -> Iterator[tuple[int, F64]]:
    """(t, A^{t-1}) from the last step to the first; the array is reused."""
    e = trace.ensemble
    A = e.scores(rows.leaves, rows.start - e.base)
    for t in reversed(range(e.n_steps)):
        e.move(t + 1, rows.leaves, A, back=True)  # A^{t-1} = A^t - f
        yield t, A


def exact_scores_backwards(trace: Trace, rows: PlacedRows) -> Iterator[tuple[int, F64]]:
    """The same scores as `forward_scores` to the last bit, for losses that ask which are equal.

    Some are kept on the way forwards, and those between them computed again from there.
    """
    e = trace.ensemble
    stride = math.isqrt(max(1, e.n_steps - 1)) + 1
    kept = [A.copy() for t, A in forward_scores(trace, rows) if t % stride == 0]
    for start in reversed(range(0, e.n_steps, stride)):
        between = [kept.pop()]
        for t in range(start + 1, min(start + stride, e.n_steps)):
            A = between[-1].copy()
            e.move(t, rows.leaves, A)
            between.append(A)
        for t in reversed(range(start, start + len(between))):
            yield t, between.pop()
