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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._kernels import BLOCKS, block_width, kernels, zeros
from .._kernels.arguments import StepLeaves
from .._kernels.numpy import sum_by_leaf
from .._model.ensemble import BASE, SHRINK, Ensemble
from .placed_rows import PlacedRows
from .queries import Queries
from .replay import Trace
from .row_effects import base_effect, base_label_effect, direct_effects, label_effects
from .workspace import ROW_CHUNK, Workspace

BeforeStep = Callable[[int, Real], None]


@dataclass(frozen=True)
class LeafAdjoint:
    """Derivatives of a block of queries in every leaf value, the base score and lam."""

    fbar: Real  # (leaves, O, B); (leaves, E, B) if rows move other leaves, see `effect_adjoint`
    base: F64  # (K, B)
    lam: F64  # (B,)
    columns: int  # number of queries; the other columns pad the block


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
    ``before_step``  is called with t and abar (n, K, B), the derivatives in the scores after step
                     t, before the pass goes back over step t; what it adds to abar goes on to the
                     steps below
    """
    e = work.trace.ensemble
    count = len(range(len(queries))[columns])
    B = block_width(count)
    fbar, base = queries.seeds(columns, B, work.dtype)
    of_effects: list[Real] = []
    if knock_on and not e.independent:
        abar = zeros((e.n_rows, e.n_outputs, B), work.dtype)
        if work.keeps_effects:
            steps = _steps_with_kept_effects(work, fbar, abar, before_step)
        else:
            steps = _steps_with_new_effects(work, fbar, abar, out, before_step)
        for t, of_step in steps:
            of_effects.insert(0, of_step)
            if not e.boosts(t):
                undo_moves(e, t, abar, fbar, base)
        base += abar.sum(axis=0, dtype=np.float64)
    return finish_pass(work.trace, fbar, base, count, of_effects)


def finish_pass(
    trace: Trace, fbar: Real, base: F64, count: int, of_effects: Sequence[Real] = ()
) -> LeafAdjoint:
    """Wrap up a finished backward pass, in which the derivatives in all leaf values are known.

    ``of_effects``: for each step what `effect_adjoint` gives, if the pass had it.
    """
    e = trace.ensemble
    lam = lam_adjoint(trace, fbar)
    if e.joins_leaves:
        steps = range(e.n_steps)
        found = of_effects or [effect_adjoint(trace, t, fbar[e.leaf_range(t)]) for t in steps]
        fbar = np.concatenate(found)
    return LeafAdjoint(fbar, base, lam, count)


def _steps_with_kept_effects(
    work: Workspace, fbar: Real, abar: Real, before_step: BeforeStep | None
) -> Iterator[tuple[int, Real]]:
    """Go through the steps backwards, all rows at once.

    Yields each step when it is done, with the derivatives in the effects of rows on it.
    """
    e = work.trace.ensemble
    for t, U in work.knock_on_backwards():
        if before_step is not None:
            before_step(t, abar)
        fbar_t = effect_adjoint(work.trace, t, fbar[e.leaf_range(t)])
        below = fbar[e.leaf_range(t - 1)] if e.boosts(t) else None
        backward_rows(work.trace, t, e.leaves, U, fbar_t, abar, below)
        yield t, fbar_t


def _steps_with_new_effects(
    work: Workspace, fbar: Real, abar: Real, out: Real | None, before_step: BeforeStep | None
) -> Iterator[tuple[int, Real]]:
    """The same for effects that are not kept: each step computes its own."""
    e = work.trace.ensemble
    for t, A in work.scores_backwards():
        if before_step is not None:
            before_step(t, abar)
        fbar_t = effect_adjoint(work.trace, t, fbar[e.leaf_range(t)])
        below = fbar[e.leaf_range(t - 1)] if e.boosts(t) else None
        backward_chunks(work, t, A, fbar_t, abar, below, out)
        yield t, fbar_t


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

    for sums in work.map(backward_chunk, _chunks(n)):
        if below is not None:
            below += sums


def _chunks(n: int) -> list[slice]:
    return [slice(start, min(start + ROW_CHUNK, n)) for start in range(0, n, ROW_CHUNK)]


def backward_rows(
    trace: Trace, t: int, leaves: Ids, U: Real, fbar: Real, abar: Real, below: Real | None
) -> None:
    """Run step t of the backward pass for some rows.

    Adds U' fbar to abar (n, K, B), and sums of abar to the derivatives in the leaf values of the
    step below, unless they are None. leaves (trees, n), U (R, n, O, K), fbar and below (M, O, B).
    """
    e = trace.ensemble
    at = _step_leaves(e, t, leaves)
    if e.joins_leaves:  # several effects of rows on leaves of one output come one after the other
        for effect in range(1, U.shape[2]):
            if U[:, :, effect].any():  # not if h is constant
                kernels.backward_step(*at, *_one_effect(effect, U, fbar), abar, None, None, None)
        U, fbar = _one_effect(0, U, fbar)
    at_below = (None, None) if below is None else _step_leaves(e, t - 1, leaves)
    kernels.backward_step(*at, U, fbar, abar, *at_below, below)


def _one_effect(effect: int, U: Real, fbar: Real) -> tuple[Real, Real]:
    """The part of U (R, n, E, K) and fbar (M, E, B) that belongs to one of the effects of rows."""
    one = slice(effect, effect + 1)
    return np.ascontiguousarray(U[:, :, one]), np.ascontiguousarray(fbar[:, one])


def _step_leaves(e: Ensemble, t: int, leaves: Ids) -> StepLeaves:
    trees = e.trees(t)
    return StepLeaves(np.ascontiguousarray(leaves[trees]), e.first_output[trees])


def effect_adjoint(trace: Trace, t: int, fbar: Real) -> Real:
    """Derivatives of the queries in the sums of row effects over each leaf of step t.

    A row's effect is a change of its leaf's value, so these are fbar (M, O, B) itself, unless rows
    move other leaves, too. Then they are (M, E, B) for the E numbers that the effect of a row has.
    """
    slopes = trace.steps[t].slopes
    if slopes is None:
        return fbar
    found = slopes.adjoint(fbar[:, 0])
    missing = trace.effect_outputs - found.shape[1]
    return np.pad(found, [(0, 0), (0, missing), (0, 0)]) if missing else found


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
        for ids, o in zip(e.leaves[e.trees(r)], e.first_output[e.trees(r)], strict=True):
            sum_by_leaf(ids, factor * abar[:, o : o + e.leaf_outputs], leaves)


# ---- from leaves to rows ----


def single_pass_influence(work: Workspace, queries: Queries, columns: slice) -> Real:
    """(n, columns) dQ/dw of all training rows, for effects that are not kept.

    It gives the same as `expand_training` of `leaf_adjoint`, and computes the effects of each step
    once for both: when the pass comes to a step, the derivatives in its leaf values are known.
    """
    count = len(range(len(queries))[columns])
    n = len(work.rows)
    out = zeros((n, block_width(count)), work.dtype)
    adjoint = leaf_adjoint(work, queries, columns, out=out)
    for part in _chunks(n):
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


def expand_labels(work: Workspace, adjoint: LeafAdjoint, rows: PlacedRows) -> Real:
    """(rows, columns, Y) dQ/dy of these rows."""
    offset = work.trace.ensemble.tree_offset
    Y = label_effects(work.trace, rows, work.dtype)
    Y0 = base_label_effect(work.trace, rows)
    out = np.zeros((Y.shape[3], len(rows), adjoint.fbar.shape[2]), work.dtype)
    for y in range(Y.shape[3]):
        effects = np.ascontiguousarray(Y[..., y])
        expand_effects(rows.leaves, offset, effects, adjoint.fbar, out[y])
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
        expand_effects(rows.leaves, offset, V, adjoint.fbar, out, slice(*edge))

    list(work.map(expand_piece, pairwise(edges)))
    _to_weight_derivatives(work, adjoint, rows, out)
    return out[:, : adjoint.columns]


def expand_effects(
    leaves: Ids, offset: Ints, effects: Real, fbar: Real, out: Real, part: slice | None = None
) -> None:
    """out (n, B) += sum over trees of effects . fbar at the row's leaf, for some of the rows.

    ``leaves``   (trees, n)
    ``offset``   (trees,) where the leaves of each tree's step begin in fbar
    ``effects``  (trees, n, O)
    ``fbar``     (leaves, O, B)
    """
    begin = 0 if part is None else part.start
    end = len(out) if part is None else part.stop
    kernels.expand(leaves, begin, end, offset, effects, fbar, out)


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
