"""The adjoint: exact influence of all n rows on a query in one backward pass, O(T n).

    abar_j = 0
    for t = T..1:   fbar_l  = sum_{x in l} c_x + sum_{j in l} abar_j       derivative of Q in leaf l's value
                    abar_j += U_j' fbar_{l(j)}                             derivative of Q in row j's score
    base:           fbar_0  = sum_x c_x + sum_j abar_j

Then, for each row,
    dQ/dw_i = sum_t V_i . fbar_{l(i)} + (d base/dw_i) . fbar_0 + (d lam/dw_i) sum_l (df_l/dlam) . fbar_l
and the same with the label effects Y in the place of V. SinglePoint leaves the abar out.

This is boosting, where step t - 1 is added to the scores before step t. Other moves (see
_model/ensemble.py) are undone one by one between the steps: values that were added with a factor
get the abar times that factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._model.ensemble import BASE, SHRINK, Ensemble
from .._model.kernels import BLOCKS, block_width, empty, kernels, zeros
from .._model.kernels.arguments import StepLeaves
from .._model.kernels.numpy import sum_by_leaf
from .node_slopes import NodeSlopes
from .placed_rows import PlacedRows
from .queries import Queries
from .replay import Trace
from .row_effects import (
    base_effect,
    base_label_effect,
    direct_effects,
    joining_effects,
    label_effects,
)
from .scored_pass import goes_by_scores, steps_by_scores
from .workspace import Workspace, chunks_of

BeforeStep = Callable[[int, Real, Real], None]


@dataclass(frozen=True)
class LeafAdjoint:
    """Derivatives of a block of queries in every leaf value, the base score and lam."""

    fbar: Real  # (leaves, O, B); (leaves, E, B) if rows move other leaves, see `effect_adjoint`
    base: F64  # (K, B)
    lam: F64  # (B,)
    columns: int  # number of queries; the other columns pad the block
    place: Ints | None = None  # (leaves,) the row of each leaf in fbar, if leaves share rows of it


# ---- the backward pass ----


def leaf_adjoint(
    work: Workspace,
    queries: Queries,
    columns: slice,
    *,
    knock_on: bool = True,
    out: Real | None = None,
    before_step: BeforeStep | None = None,
) -> LeafAdjoint:
    """Run the backward pass for some of the queries.

    ``knock_on``     False leaves out the effects of rows on other rows through later trees
    ``out``          (n, B), for effects that are not kept: see `single_pass_influence`
    ``before_step``  is called with t, abar (n, K, B) and fbar (M, O, B), the derivatives in the
                     scores after step t and in its leaf values, before the pass goes back over
                     step t; what it changes goes on to the steps below
    """
    e = work.trace.ensemble
    count = len(range(len(queries))[columns])
    B = block_width(count)
    fbar, base = queries.seeds(columns, B, work.dtype)
    of_effects = None
    if knock_on and not e.independent:
        of_effects = _room_for_effects(work.trace, fbar)
        abar = zeros((e.n_rows, e.n_outputs, B), work.dtype)
        if work.keeps_effects and out is None:
            steps = _steps_with_kept_effects(work, fbar, abar, of_effects, before_step)
        elif goes_by_scores(work.trace, B):
            steps = steps_by_scores(work, fbar, abar, out, before_step)
        else:
            steps = _steps_with_new_effects(work, fbar, abar, of_effects, out, before_step)
        for t in steps:
            if not e.boosts(t):
                undo_moves(e, t, abar, fbar, base)
        base += abar.sum(axis=0, dtype=np.float64)
    return finish_pass(work.trace, fbar, base, count, of_effects)


def finish_pass(
    trace: Trace, fbar: Real, base: F64, count: int, of_effects: Real | None = None
) -> LeafAdjoint:
    """Wrap up a finished backward pass, in which the derivatives in all leaf values are known.

    ``of_effects``: (leaves, E, B) those in the effects of rows, if the pass had them.
    """
    lam = lam_adjoint(trace, fbar)
    if of_effects is not None or not trace.ensemble.joins_leaves:
        return LeafAdjoint(fbar if of_effects is None else of_effects, base, lam, count)
    if trace.ensemble.step_nodes is not None:
        rows, place = _node_rows(trace, fbar)
        return LeafAdjoint(rows, base, lam, count, place)
    of_effects = _room_for_effects(trace, fbar)
    for t in range(trace.ensemble.n_steps):
        effect_adjoint(trace, t, fbar, of_effects)
    return LeafAdjoint(of_effects, base, lam, count)


def _node_rows(trace: Trace, fbar: Real) -> tuple[Real, Ints]:
    """Rows (., 2, B) that leaves share, and place (leaves,): rows[place] is `effect_adjoint` of all steps."""
    e = trace.ensemble
    place = np.empty(len(fbar), np.int32)
    rows = empty((1 + 2 * len(fbar), 2, fbar.shape[2]), fbar.dtype)
    rows[0] = 0
    used = 1
    for t, step in enumerate(trace.steps):
        assert isinstance(step.slopes, NodeSlopes)
        here = e.leaf_range(t)
        used = step.slopes.rows(fbar[here, 0], used, rows, place[here])
    return rows[:used], place


def _room_for_effects(trace: Trace, fbar: Real) -> Real:
    """(leaves, E, B) room for what `effect_adjoint` gives for all steps: fbar itself, if it is that."""
    if not trace.ensemble.joins_leaves:
        return fbar
    return zeros((len(fbar), trace.effect_outputs, fbar.shape[2]), fbar.dtype)


def _steps_with_kept_effects(
    work: Workspace,
    fbar: Real,
    abar: Real,
    of_effects: Real,
    before_step: BeforeStep | None,
) -> Iterator[int]:
    """Go through the steps backwards, all rows at once; yields each when it is done.

    ``of_effects``: (leaves, E, B) gets the derivatives in the effects of rows.
    """
    e = work.trace.ensemble
    for t, U in work.knock_on_backwards():
        if before_step is not None:
            before_step(t, abar, fbar[e.leaf_range(t)])
        fbar_t = effect_adjoint(work.trace, t, fbar, of_effects)
        below = fbar[e.leaf_range(t - 1)] if e.boosts(t) else None
        backward_rows(work.trace, t, e.leaves, U, fbar_t, abar, below)
        yield t


def _steps_with_new_effects(
    work: Workspace,
    fbar: Real,
    abar: Real,
    of_effects: Real,
    out: Real | None,
    before_step: BeforeStep | None,
) -> Iterator[int]:
    """The same for effects that are not kept: each step computes its own."""
    e = work.trace.ensemble
    for t, A in work.scores_backwards():
        if before_step is not None:
            before_step(t, abar, fbar[e.leaf_range(t)])
        fbar_t = effect_adjoint(work.trace, t, fbar, of_effects)
        below = fbar[e.leaf_range(t - 1)] if e.boosts(t) else None
        backward_chunks(work, t, A, fbar_t, abar, below, out)
        yield t


def backward_chunks(
    work: Workspace,
    t: int,
    A: F64,
    fbar: Real,
    abar: Real,
    below: Real | None,
    out: Real | None = None,
) -> None:
    """Run `backward_rows` for all rows, chunk by chunk on the threads.

    ``A``    (n, K) scores of the rows before step t, from which the effects are computed
    ``out``  (n, B) += V fbar: the influence of rows through this step
    """
    n = len(work.rows)
    trees = work.trace.ensemble.trees(t)

    def backward_chunk(part: slice) -> Real | None:
        rows = work.rows.view(part)
        V, U = work.step_effects(rows, t, A[part])
        sums = None if below is None else zeros(below.shape, work.dtype)
        backward_rows(work.trace, t, rows.leaves, U, fbar, abar[part], sums)
        if out is not None:
            leaves = np.ascontiguousarray(rows.leaves[trees])
            expand_effects(leaves, np.zeros(len(V), np.int64), V, fbar, out[part])
        return sums

    for sums in work.map(backward_chunk, chunks_of(n)):
        if below is not None:
            below += sums


def backward_rows(
    trace: Trace, t: int, leaves: Ids, U: Real, fbar: Real, abar: Real, below: Real | None
) -> None:
    """Run step t of the backward pass for some rows.

    Adds U' fbar to abar (n, K, B), and sums of abar to the derivatives in the leaf values of the
    step below, unless they are None. leaves (trees, n), U (R, n, E, K), fbar (M, E, B), below (M', O, B).
    """
    e = trace.ensemble
    at = _step_leaves(e, t, leaves)
    at_below = (None, None) if below is None else _step_leaves(e, t - 1, leaves)
    kernels.backward_step(*at, U, fbar, abar, *at_below, below)


def _step_leaves(e: Ensemble, t: int, leaves: Ids) -> StepLeaves:
    trees = e.trees(t)
    return StepLeaves(np.ascontiguousarray(leaves[trees]), e.first_output[trees])


def effect_adjoint(trace: Trace, t: int, fbar: Real, of_effects: Real | None = None) -> Real:
    """(M, E, B) derivatives of the queries in the sums of row effects over each leaf of step t.

    A row's effect is a change of its leaf's value, so these are fbar (leaves, O, B) itself, unless
    rows move other leaves, too. Then they are written to ``of_effects`` (leaves, E, B), for the E
    numbers that the effect of a row has.
    """
    leaves = trace.ensemble.leaf_range(t)
    slopes = trace.steps[t].slopes
    here = fbar[leaves]
    if slopes is None:
        return here
    if of_effects is None:
        out = np.zeros((len(here), trace.effect_outputs, fbar.shape[2]), fbar.dtype)
    else:
        out = of_effects[leaves]
    if isinstance(slopes, NodeSlopes):
        return slopes.adjoint(here[:, 0], out)
    out[:, : slopes.effects] = slopes.adjoint(here[:, 0])
    return out


def lam_adjoint(trace: Trace, fbar: Real) -> F64:
    """(B,) derivatives of the queries in lam."""
    if not trace.ensemble.lam_slope:
        return np.zeros(fbar.shape[2])
    return np.einsum("mo,mob->b", trace.lam_effect, fbar)


def undo_moves(e: Ensemble, t: int, abar: Real, fbar: Real, base: F64) -> None:
    """Go back over the moves between step t - 1 and step t.

    The leaf values that a move added to the scores get the derivatives abar in the scores.
    """
    for r, factor in reversed(e.moves_before(t)):
        if r == SHRINK:
            abar *= factor
            continue
        if r == BASE:
            base += factor * abar.sum(axis=0, dtype=np.float64)
            continue
        leaves = fbar[e.leaf_range(r)]
        times = factor if e.added is None else factor * e.added[r][:, None, None]
        for ids, o in zip(e.leaves[e.trees(r)], e.first_output[e.trees(r)], strict=True):
            sum_by_leaf(ids, times * abar[:, o : o + e.leaf_outputs], leaves)


# ---- from leaves to rows ----


def single_pass_influence(work: Workspace, queries: Queries, columns: slice) -> Real:
    """(n, columns) dQ/dw of all training rows, for effects that are not kept, or not yet.

    It gives the same as `expand_training` of `leaf_adjoint`, and computes the effects of each step
    once for both: when the pass comes to a step, the derivatives in its leaf values are known.
    """
    count = len(range(len(queries))[columns])
    n = len(work.rows)
    out = zeros((n, block_width(count)), work.dtype)
    adjoint = leaf_adjoint(work, queries, columns, out=out)
    for part in chunks_of(n):
        _to_weight_derivatives(work, adjoint, work.rows.view(part), out[part])
    return out[:, :count]


def expand_training(work: Workspace, adjoint: LeafAdjoint, index: Ints | None) -> Real:
    """(rows, columns) dQ/dw of the training rows, or of those in `index`."""
    if work.keeps_effects:
        (rows, V) = next(work.direct_effects(index))
        # A block of few columns spreads its rows over the threads.
        pieces = work.n_jobs if adjoint.columns < BLOCKS[-1] else 1
        return _expand(work, adjoint, rows, V, pieces)
    n = len(work.rows)
    if index is None:
        chunks = work.row_slices()
        sizes = [len(range(n)[chunk]) for chunk in chunks]
    else:
        chunks = work.row_chunks(index)
        sizes = [len(chunk) for chunk in chunks]
    starts = np.cumsum([0, *sizes])
    out = np.empty((starts[-1], adjoint.columns), work.dtype)

    def expand_chunk(c: int) -> None:
        rows = work.rows.take(chunks[c])
        out[starts[c] : starts[c + 1]] = expand_candidates(work, adjoint, rows)

    list(work.map(expand_chunk, range(len(chunks))))
    return out


def expand_candidates(work: Workspace, adjoint: LeafAdjoint, rows: PlacedRows) -> Real:
    """(rows, columns) dQ/dw of any rows; at weight zero for those outside the training set."""
    return _expand(work, adjoint, rows, direct_effects(work.trace, rows, work.dtype))


def expand_joining(work: Workspace, adjoint: LeafAdjoint, rows: PlacedRows, weight: F64) -> Real:
    """(rows, columns) dQ/dw of rows of weight zero, in the denominators as if they had `weight` (rows,)."""
    return _expand(work, adjoint, rows, joining_effects(work.trace, rows, weight, work.dtype))


def expand_labels(work: Workspace, adjoint: LeafAdjoint, rows: PlacedRows) -> Real:
    """(rows, columns, Y) dQ/dy of these rows."""
    offset = work.trace.ensemble.tree_offset
    Y = label_effects(work.trace, rows, work.dtype)
    Y0 = base_label_effect(work.trace, rows)
    out = np.zeros((Y.shape[3], len(rows), adjoint.fbar.shape[2]), work.dtype)
    for y in range(Y.shape[3]):
        effects = np.ascontiguousarray(Y[..., y])
        expand_effects(rows.leaves, offset, effects, adjoint.fbar, out[y], place=adjoint.place)
        out[y] += (Y0[..., y] @ adjoint.base).astype(work.dtype)
    return np.moveaxis(out, 0, 2)[:, : adjoint.columns]


def _expand(
    work: Workspace, adjoint: LeafAdjoint, rows: PlacedRows, V: Real, pieces: int = 1
) -> Real:
    """(rows, columns) dQ/dw from the direct effects V (trees, rows, O), in pieces on threads."""
    offset = work.trace.ensemble.tree_offset
    out = zeros((len(rows), adjoint.fbar.shape[2]), work.dtype)
    edges = [len(rows) * p // pieces for p in range(pieces + 1)]

    def expand_piece(edge: tuple[int, int]) -> None:
        expand_effects(rows.leaves, offset, V, adjoint.fbar, out, slice(*edge), adjoint.place)

    list(work.map(expand_piece, pairwise(edges)))
    _to_weight_derivatives(work, adjoint, rows, out)
    return out[:, : adjoint.columns]


def expand_effects(
    leaves: Ids,
    offset: Ints,
    effects: Real,
    fbar: Real,
    out: Real,
    part: slice | None = None,
    place: Ints | None = None,
) -> None:
    """out (n, B) += sum over trees of effects . fbar at the row's leaf, for some of the rows.

    ``leaves``   (trees, n)
    ``offset``   (trees,) where the leaves of each tree's step begin in fbar, or in ``place``
    ``effects``  (trees, n, O)
    ``fbar``     (leaves, O, B)
    ``place``    (leaves,) the row of each leaf in fbar, if leaves share rows of it
    """
    begin = 0 if part is None else part.start
    end = len(out) if part is None else part.stop
    kernels.expand(leaves, begin, end, offset, effects, fbar, out, place)


def _to_weight_derivatives(
    work: Workspace, adjoint: LeafAdjoint, rows: PlacedRows, out: Real
) -> None:
    """Turn sums of V fbar (rows, B), in place, into dQ/dw.

    Adds the effect through lam, multiplies by class weights, and adds that through the starting
    score.
    """
    e = work.trace.ensemble
    out += (e.lam_slope * adjoint.lam).astype(work.dtype)
    if not np.all(rows.factor == 1):
        out *= rows.factor.astype(work.dtype)[:, None]
    if e.base_rule is not None:
        out += (base_effect(work.trace, rows) @ adjoint.base).astype(work.dtype)
