"""The backward pass of one query from scores: effects of rows are computed where they are used.

It takes steps of one tree and one output each whose leaves depend on their own rows alone, with a loss that has
a kernel. The scores of the rows go back with the pass. Each thread takes a part of the rows in every step; sums
over leaves are those of blocks of rows, so that they do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from .._data.arrays import F64, Real
from .._model.kernels import kernels, zeros
from .replay import Trace
from .row_effects import has_native_effects, linearised_leaves
from .workspace import Workspace

LARGE_EFFECTS = 1 << 28  # bytes
PASSES_BY_SCORES = 3
ROWS_OF_SUMS = 1 << 14  # rows of a block


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
    n = e.n_rows
    A = work.finished_scores[:, 0].copy()
    blocks = -(-n // ROWS_OF_SUMS)
    edges = [blocks * p // work.n_jobs for p in range(work.n_jobs + 1)]
    pieces = [slice(*edge) for edge in pairwise(edges) if edge[0] < edge[1]]
    to = None if out is None else out[:, 0]
    with work.threads() as spread:
        for t in reversed(range(e.n_steps)):
            if before_step is not None:
                before_step(t, abar, fbar[e.leaf_range(t)])
            sums = None
            if t:
                sums = zeros((blocks, e.step_leaves[t] - e.step_leaves[t - 1]), work.dtype)
            rows = A, *work.narrow_labels, fbar[e.leaf_range(t), 0, 0], abar[:, 0, 0]
            spread(
                partial(_backward_blocks, work, t, _leaf_tables(work, t), rows, sums, to), pieces
            )
            if sums is not None:
                fbar[e.leaf_range(t - 1), 0, 0] += sums.sum(axis=0)
            yield t


def _leaf_tables(work: Workspace, t: int) -> list[F64]:
    """Values (M,) of step t, and shift, s and N (Q, M) of its iterations."""
    e = work.trace.ensemble
    values = np.ascontiguousarray(e.values[e.leaf_range(t), 0])
    tables = linearised_leaves(work.trace, slice(t, t + 1), 0)
    return [values, *(table.reshape(-1, len(values)) for table in tables[1:])]


def _backward_blocks(
    work: Workspace,
    t: int,
    tables: list[F64],
    rows: tuple[Real | None, ...],
    below: Real | None,
    out: Real | None,
    blocks: slice,
) -> None:
    """Run step t for some blocks of rows.

    ``rows``   A, y, w (n,), fbar (M,) and abar (n,), as the kernel takes them
    ``below``  (all blocks, M') sums of abar over the leaves of the step below, or None
    """
    e = work.trace.ensemble
    leaves = work.rows.leaves
    kernels.backward_scored(
        e.loss.kernel,
        e.rule.newton,
        leaves[t],
        blocks.start * ROWS_OF_SUMS,
        min(blocks.stop * ROWS_OF_SUMS, e.n_rows),
        ROWS_OF_SUMS,
        *tables,
        *rows,
        None if below is None else leaves[t - 1],
        None if below is None else below[blocks],
        out,
    )
