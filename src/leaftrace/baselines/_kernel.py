"""The tree kernel: two rows are similar if trees put them into the same leaves.

    K(i, x) = sum over trees of [l(i) = l(x)] a_l^2          the dot product of embeddings with a_l at each row's leaves

    a_l = 1 / (training rows in l)     "count": rare leaves count more
    a_l = 1                            "path":  the number of shared leaves
    a_l = |f_l|                        "output": leaves with large values count more

Rows of weight zero, or held out in training, are not training rows: they are not counted, and their
similarity is zero. A tree with vector leaves whose outputs are solved one by one (XGBoost's) is a
tree for each output here: with "count" and "path" it counts as often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import InvalidInput
from .._data.progress import progress
from .._engine.queries import Queries
from .._engine.workspace import Workspace
from .._model.ensemble import Ensemble
from .._model.kernels import blocks_of
from .._model.reading import Reading
from .._tracer.neighbours import at_leaves, shared_sums

Weighting = Literal["count", "path", "output"]
CHUNK_BYTES = 1 << 25  # for a chunk of training rows and all test rows


def check_weighting(weighting: str, name: str) -> None:
    """Raise an error if there is no such weighting. ``name``: of the method."""
    if weighting not in get_args(Weighting):
        raise InvalidInput(
            f"{name} has weighting={weighting!r}; it can be 'count', 'path' or 'output'."
        )


def embedding(e: Ensemble, weighting: Weighting) -> F64:
    """(leaves,) a of every leaf."""
    if weighting == "path":
        return np.ones(len(e.values))
    if weighting == "output":
        factors = np.repeat(e.factors, np.diff(e.step_leaves))
        return np.linalg.norm(e.values, axis=1) * np.abs(factors)
    rows = np.zeros(len(e.values))
    trained = (e.w > 0).astype(float)
    for ids, start in zip(e.leaves, e.tree_offset, strict=True):
        here = np.bincount(ids, trained)
        rows[start : start + len(here)] += here
    return np.divide(1.0, rows, out=np.zeros_like(rows), where=rows > 0)


def signed_by_labels(
    e: Ensemble, queries: Queries, classes: np.ndarray | None
) -> Callable[[Ints, Real], Real]:
    """A function of some training rows and similarities K (rows, m): values (rows, queries).

    K is negative (helpful) where labels agree: the same class, or numbers on the same side of the
    prediction for the test row. ``queries`` are losses.
    """
    assert queries.y is not None
    if e.y.ndim == 2 or e.loss.several_numbers:
        raise InvalidInput(
            "this baseline compares one label a row with one prediction; this model has several."
        )
    y = queries.y
    labels = e.y if queries.target is None else queries.target.labels
    predicted = Reading(queries.criterion, classes).number(queries.scores)

    def signed(rows: Ints, K: Real) -> Real:
        own = labels[rows][:, None]
        if classes is not None:
            agree = own == y  # (rows, m)
        else:
            agree = (own >= predicted) == (y >= predicted)
        return queries.reduced(np.where(agree, -K, K).T).T

    return signed


def by_training_rows(
    work: Workspace,
    index: Ints | None,
    leaves: Ids,
    a: F64,
    values: Callable[[Ints, Real], Real],
    numbers: int = 1,
) -> Real:
    """(rows, queries) values of training rows, computed in chunks from the tree kernel.

    ``leaves``   (trees, m) of the test rows
    ``values``   function of some training rows, and their kernel K (rows, m) with all test rows
    ``numbers``  how many numbers `values` needs for each entry of K
    """
    m = leaves.shape[1]
    index = np.arange(len(work.rows)) if index is None else index
    most = max(1, CHUNK_BYTES // (8 * m * numbers))
    chunks = [
        part[i : i + most] for part in work.row_chunks(index) for i in range(0, len(part), most)
    ]

    def values_of_chunk(rows: Ints) -> Real:
        return values(rows, _kernel(work, rows, leaves, a)).astype(work.dtype)

    if not chunks:
        return values(index, np.zeros((0, m))).astype(work.dtype)
    done = work.map(values_of_chunk, chunks)
    shown = progress(done, len(index), "training rows", "row", most)
    return np.concatenate(list(shown))


def _kernel(work: Workspace, rows: Ints, leaves: Ids, a: F64) -> Real:
    """(rows, m) K of these training rows and the test rows with these leaves (trees, m)."""
    e = work.trace.ensemble
    ids = np.ascontiguousarray(e.leaves[:, rows])
    ones = np.ones((len(leaves), len(rows), 1), work.dtype)
    ones *= (e.w[rows] > 0)[:, None]
    out = np.empty((len(rows), leaves.shape[1]), work.dtype)
    for part in blocks_of(leaves.shape[1]):
        here = leaves[:, part]
        squares = at_leaves(work, here, a[e.tree_offset[:, None] + here] ** 2)
        out[:, part] = shared_sums(work, ids, ones, squares)[:, : here.shape[1]]
    return out
