"""The leaves that training rows were in, from the scores that CatBoost had for them after each tree.

Text and embedding columns are read, in training, as numbers that come from the rows before a row, and
with ctr_leaf_count_limit so are categories. The finished model uses all rows instead, so it puts some
training rows into other leaves. Which leaves those were shows in the scores, if the model is trained
again and they are recorded: a row moves by the value of its leaf. Of leaves that have the same value,
the finished model's choice is taken, or else one that lacks rows by its recorded weight.
"""

from __future__ import annotations

from typing import Any

import catboost
import numpy as np

from ..._data.arrays import F64, Ids
from ..._data.errors import UnsupportedModel
from ..base import cumulative, smallest_type
from .recorder import scores_by_tree

TIE = 1e-9  # leaf values closer than this, by the largest of a tree, cannot be told apart
_NOT_RECORDED = (
    "trained again with its own parameters this model comes out different, so the leaves of its training rows could "
    "not be recorded: likely other rows, labels or weights than in training, or another number of threads"
)
_RECORDED = (
    "the leaves of training rows recorded by training the model again, because text, embedding or limited category "
    "columns depended on the rows before each row"
)


def recorded_leaves(
    model: catboost.CatBoost,
    params: dict[str, Any],
    pool: catboost.Pool,
    finished: Ids,
    start: F64,
    values: F64,
    weights: F64 | None,
) -> tuple[Ids, str]:
    """Return the leaves (trees, n) in training, or those of the finished model, and a note.

    ``finished``  (trees, n) leaves that the finished model puts the rows in
    ``start``     (n, K) scores before the first tree
    ``values``    (leaves, K) of all trees
    ``weights``   (leaves,) recorded weights of leaves of rows of one weight each; None: not known"""
    if params.get("model_shrink_rate"):
        raise UnsupportedModel(
            "model_shrink_rate together with text or embedding columns, or ctr_leaf_count_limit, is not supported; "
            "train with model_shrink_rate=0."
        )
    recorded = scores_by_tree(model, params, pool)
    if recorded is None:
        return finished, _NOT_RECORDED
    scores = np.concatenate([start[None], recorded])
    edges = cumulative(np.asarray(model.get_tree_leaf_counts(), np.int64))
    leaves = np.empty_like(finished, dtype=smallest_type(int(np.diff(edges).max())))
    for t, moved in enumerate(np.diff(scores, axis=0)):
        own = slice(int(edges[t]), int(edges[t + 1]))
        full = None if weights is None else weights[own]
        leaves[t] = _leaves_of_tree(moved, values[own], full, finished[t])
    return leaves, _RECORDED


def _leaves_of_tree(moved: F64, values: F64, weights: F64 | None, finished: Ids) -> Ids:
    """Return the leaves (n,) of rows that a tree has moved by ``moved`` (n, K)."""
    distance = np.abs(moved[:, None, :] - values[None]).max(axis=2)  # (n, L)
    if weights is not None:
        distance[:, weights == 0] = np.inf
    possible = distance <= distance.min(axis=1, keepdims=True) + TIE * np.abs(values).max()
    rows = np.arange(len(moved))
    leaves = np.where(possible[rows, finished], finished, distance.argmin(axis=1))
    if weights is None:
        return leaves
    counts = np.bincount(leaves, minlength=len(values)).astype(float)
    for row in np.flatnonzero(possible.sum(axis=1) > 1):
        free = np.flatnonzero(possible[row] & (counts < weights))
        if counts[leaves[row]] > weights[leaves[row]] and len(free):
            counts[leaves[row]] -= 1
            counts[free[0]] += 1
            leaves[row] = free[0]
    return leaves
