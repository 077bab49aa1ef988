"""Sums over leaves of models of one output, natively: one pass through one step, two or all of them.

Rows are summed in chunks of fixed size, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._data.arrays import F64
from .._data.progress import progress
from .._model.ensemble import Ensemble
from .._model.kernels import kernels
from .._model.kernels.arguments import ScoredRows, TreeChain

if TYPE_CHECKING:
    from concurrent.futures import Executor

ROW_CHUNK = 1 << 17  # rows that are summed in one piece


def has_native_sums(e: Ensemble) -> bool:
    """Whether a native kernel sums derivatives over leaves in one pass over the rows.

    There is one for models of one output and some of the losses.
    """
    is_native = e.loss.kernel is not None and not e.loss.rounded
    return e.n_outputs == 1 and is_native and not e.rounding.draws


def sums_of_all_steps(e: Ensemble, A: F64, threads: Executor | None) -> F64 | None:
    """(leaves, 8) native sums of all steps in one pass, or None if the model needs a pass for each.

    Every row goes through all steps before the next row, so it is loaded into the caches once. A
    (n, 1) moves on to the scores before the last step.
    """
    one_tree_a_step = len(e.leaves) == e.n_steps
    if not (has_native_sums(e) and one_tree_a_step and e.moves is None and e.sample is None):
        return None
    if e.rule.iterations != 1 or e.rule.statistic is not None:
        return None
    chain = TreeChain(e.leaves, e.step_leaves, e.values[:, 0])
    return chain_sums(e, chain, ScoredRows(A, e.y, e.w), threads, show_progress=True)


def chain_sums(
    e: Ensemble,
    chain: TreeChain,
    rows: ScoredRows,
    threads: Executor | None,
    *,
    first_only_moves: bool = False,
    show_progress: bool = False,
) -> F64:
    """(leaves, 8) sums of `kernels.replay_sums`; the scores move from the first step to the last.

    ``first_only_moves``: the first tree moves the scores, and its leaves get no sums.
    """
    values = np.ascontiguousarray(chain.values)

    def sums_of_chunk(start: int) -> F64:
        sums = np.zeros((len(values), 8))
        chunk = (start, min(start + ROW_CHUNK, e.n_rows))
        trees = (chain.ids, first_only_moves, chain.edges, values)
        kernels.replay_sums(e.loss.kernel, *trees, *rows, e.rounding.flags, *chunk, sums)
        return sums

    starts = range(0, e.n_rows, ROW_CHUNK)
    if threads is None or len(starts) == 1:
        done = map(sums_of_chunk, starts)
    else:
        done = threads.map(sums_of_chunk, starts)
    if show_progress:
        done = progress(done, e.n_rows, "replaying", "row", ROW_CHUNK)
    return np.sum(list(done), axis=0)
