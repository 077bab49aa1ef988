"""Derivatives of queries in the labels of training rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._data.arrays import Ints, Real
from .._model.kernels import blocks_of
from .backward import expand_labels
from .engine import Engine
from .linear_passes import LinearPasses
from .methods import LeafInfluence
from .placed_rows import PlacedRows
from .queries import Queries

Expand = Callable[[PlacedRows], Real]


def label_slopes(engine: Engine, queries: Queries, index: Ints, target: int | None) -> Real:
    """(rows, queries) derivatives in the labels of these training rows.

    ``target``: the class that label mass goes to, for several classes; the number of the label,
    for rows with several.
    """
    work = engine.work
    engine.needs_separate_rows("label_influence()")
    if not len(index):
        return np.zeros((0, len(queries)))
    expansion_of = _expansions(engine, queries, len(index))

    def slopes_of_chunk(expand: Expand, chunk: Ints) -> Real:
        rows = work.rows.take(chunk)
        slopes = expand(rows)  # (rows, columns, Y)
        if target is None:
            return slopes[..., 0]
        if engine.ensemble.y.ndim == 2:
            return slopes[..., target]
        own = rows.y.astype(int)[:, None, None]
        own_slopes = np.take_along_axis(slopes, own, axis=2)[..., 0]
        return slopes[..., target] - own_slopes

    def slopes_of_block(columns: slice) -> Real:
        expand = expansion_of(columns)
        return np.concatenate([slopes_of_chunk(expand, c) for c in work.row_chunks(index)])

    blocks = work.map(slopes_of_block, blocks_of(len(queries)))
    return np.concatenate(list(blocks), axis=1)


def _expansions(engine: Engine, queries: Queries, rows: int) -> Callable[[slice], Expand]:
    """A function that runs the backward pass for some columns, and gives one from rows to their slopes."""
    work = engine.work
    if engine.ensemble.linear is not None:
        passes = LinearPasses(work)

        def linear_expansion(columns: slice) -> Expand:
            adjoint = passes.adjoint(queries, columns)
            return lambda part: passes.label_slopes(adjoint, part).astype(work.dtype)

        return linear_expansion
    adjoint_of = engine.adjoint(queries, engine.plan(LeafInfluence(), len(queries), rows))

    def expansion(columns: slice) -> Expand:
        adjoint = adjoint_of(columns)
        return lambda part: expand_labels(work, adjoint, part)

    return expansion
