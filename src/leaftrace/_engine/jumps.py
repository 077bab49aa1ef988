"""Rows of weight zero that have no derivative.

A leaf in which no row has weight is zero. Where there is no l2, the first row that gets any weight
there moves it to -g / h at once, so that its value jumps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import Ids, Ints
from .._data.errors import InvalidInput
from .replay import Trace

# CatBoost and HistGradientBoosting have a little l2 where the user has none (1e-20, 1e-15).
LEAST_L2 = 1e-9
MOST_LISTED = 10  # positions that a message lists


def refuse_jumping_rows(trace: Trace, index: Ints) -> None:
    """Raise an error if one of these training rows has no derivative in its weight."""
    e = trace.ensemble
    weightless = index[(e.w[index] == 0) & (e.w_factor[index] > 0)]
    if not len(weightless):
        return
    drawn = None if e.sample is None else np.stack([s[weightless] > 0 for s in e.sample])
    rows = weightless[_jump(trace, e.leaves[:, weightless], drawn)]
    if len(rows):
        raise InvalidInput(
            f"{len(rows)} training rows, the first is row {rows[0]}, have weight zero and are in a leaf where no row "
            "has weight, of a model without l2 regularisation. The leaf jumps with any weight, so there is no "
            f"derivative; {_remedy(rows, index, e.n_rows)}, or train with l2 or without rows of weight zero."
        )


def _remedy(rows: Ints, index: Ints, n: int) -> str:
    """How to ask about the other rows of ``index``."""
    if len(index) < n:
        return "leave them out of rows="
    if len(rows) <= MOST_LISTED:
        others = f"numpy.delete(numpy.arange({n}), {rows.tolist()})"
    else:
        others = "numpy.flatnonzero(sample_weight)"
    return f"leave them out by rows={others}"


def refuse_jumping_candidates(trace: Trace, leaves: Ids) -> None:
    """Raise an error if one of the new rows with these leaves (trees, m) has no derivative."""
    rows = np.flatnonzero(_jump(trace, leaves, None))
    if len(rows):
        raise InvalidInput(
            f"{len(rows)} new rows, the first is row {rows[0]}, fall into a leaf where no training row has weight, of "
            "a model without l2 regularisation. The leaf jumps with any weight, so there is no derivative; leave them "
            "out, or train with l2."
        )


def _jump(trace: Trace, leaves: Ids, drawn: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """(m,) whether a row in these leaves (trees, m) is in one that jumps.

    ``drawn``: (trees, m) whether a tree drew the row; None: all did.
    """
    jumps = _jumping_leaves(trace)
    if not jumps.any():
        return np.zeros(leaves.shape[1], bool)
    places = jumps[trace.ensemble.tree_offset[:, None] + leaves]
    return np.any(places if drawn is None else places & drawn, axis=0)


def _jumping_leaves(trace: Trace) -> NDArray[np.bool_]:
    """(leaves,) whether a leaf has no row of non-zero weight, and no l2."""
    e = trace.ensemble
    smoothed = e.step_nodes is not None and any(nodes.smoothed for nodes in e.step_nodes)
    if smoothed or e.rule.min_hessian > 0:  # such leaves stay at zero, or at their parent's value
        return np.zeros(len(e.values), bool)
    jumps = np.concatenate([step.rows for step in trace.steps]) == 0
    more_l2 = 0.0 if e.leaf_l2 is None else e.leaf_l2
    if e.step_nodes is not None:
        more_l2 = np.concatenate([nodes.l2[nodes.leaf] for nodes in e.step_nodes])
    jumps &= e.lam + more_l2 < LEAST_L2
    return jumps if e.fixed is None else jumps & ~e.fixed
