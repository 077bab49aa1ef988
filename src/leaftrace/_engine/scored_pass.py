"""The backward pass of one query from scores: effects of rows are computed where they are used.

It takes steps of one tree and one output each whose leaves depend on their own rows alone, with a loss that has
a kernel. The scores of the rows go back with the pass, chunk by chunk on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .._data.arrays import F64, Real
from .._model.kernels import kernels, zeros
from .replay import Trace
from .row_effects import has_native_effects, linearised_leaves
from .workspace import Workspace, chunks_of

LARGE_EFFECTS = 1 << 28  # bytes
PASSES_BY_SCORES = 3


def goes_by_scores(trace: Trace, columns: int) -> bool:
    """Whether the pass from scores can be used for so many columns."""
    e = trace.ensemble
    plain_steps = e.moves is None and len(e.leaves) == e.n_steps and e.sample is None
    return columns == 1 and plain_steps and has_native_effects(e) and not e.joins_leaves


def defers_effects(work: Workspace, columns: int) -> bool:
    """Whether this many columns are computed from scores, although effects of rows could be kept.

    To fill so much new memory takes as long as a few passes from scores. So it is done when as many
    have been asked for.
    """
    could_keep = work.keeps_effects and not work.has_effects
    is_large = work.effect_bytes() >= LARGE_EFFECTS and work.passes_by_scores < PASSES_BY_SCORES
    return could_keep and is_large and goes_by_scores(work.trace, columns)


def steps_by_scores(
    work: Workspace,
    fbar: Real,
    abar: Real,
    out: Real | None,
    before_step: Callable[[int, Real, Real], None] | None,
) -> Iterator[int]:
    """Go through the steps backwards, and yield each when it is done.

    ``fbar``  (leaves, 1, 1)
    ``abar``  (n, 1, 1)
    ``out``   (n, 1) += V fbar: the influence of rows through each step
    """
    e = work.trace.ensemble
    A = work.finished_scores[:, 0].copy()
    for t in reversed(range(e.n_steps)):
        if before_step is not None:
            before_step(t, abar, fbar[e.leaf_range(t)])
        here = fbar[e.leaf_range(t), 0, 0]
        below = fbar[e.leaf_range(t - 1), 0, 0] if t else None
        to = None if out is None else out[:, 0]
        _backward_step(work, t, A, here, abar[:, 0, 0], below, to)
        yield t


def _backward_step(
    work: Workspace, t: int, A: F64, fbar: Real, abar: Real, below: Real | None, out: Real | None
) -> None:
    """Run one step: A and abar (n,), fbar (M,), below (M',) or None, out (n,) or None."""
    e = work.trace.ensemble
    rows = work.rows
    values = np.ascontiguousarray(e.values[e.leaf_range(t), 0])
    tables = linearised_leaves(work.trace, slice(t, t + 1), 0)
    by_iteration = [table.reshape(-1, len(values)) for table in tables[1:]]

    def backward_chunk(part: slice) -> Real | None:
        sums = None if below is None else zeros(below.shape, work.dtype)
        kernels.backward_scored(
            e.loss.kernel,
            e.rule.newton,
            rows.leaves[t],
            part.start,
            part.stop,
            values,
            *by_iteration,
            A,
            *work.narrow_labels,
            fbar,
            abar,
            None if below is None else rows.leaves[t - 1],
            sums,
            out,
        )
        return sums

    for sums in work.map(backward_chunk, chunks_of(len(rows))):
        if below is not None:
            below += sums
