"""New rows at weight zero: derivatives of queries in the weights that they would get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._model.kernels import blocks_of
from .backward import expand_candidates
from .engine import Engine
from .linear_passes import LinearPasses
from .methods import LeafInfluence, StructureInfluence
from .placed_rows import PlacedRows, candidate_rows
from .queries import Queries
from .refit import class_factors
from .soft_splits import NewRows, block_of, structure_candidates

LEAST_CHUNK = 4096  # new rows of a pass through soft splits, if the training rows are fewer


class Candidates(NamedTuple):
    """New rows without labels.

    ``X``       the user's table
    ``leaves``  (trees, rows)
    ``start``   (rows, K) scores before the first tree
    """

    X: Any
    leaves: Ids
    start: F64

    def __len__(self) -> int:
        return len(self.start)


def candidate_values(
    engine: Engine, queries: Queries, new: Candidates, labels: Sequence[F64]
) -> Real:
    """(labelings, rows, queries) derivatives in the weights of new rows, tree structures fixed.

    ``labels``: for each labeling (rows,) labels of the new rows.
    """
    work = engine.work
    expansion_of = _expansions(engine, queries, len(new))
    chunks = work.row_chunks(np.arange(len(new)))
    labelings = [_placed(engine, new, y) for y in labels]

    def values_of_block(columns: slice) -> Real:
        expand = expansion_of(columns)
        by_labeling = []
        for rows in labelings:
            parts = [expand(rows.take(part)) for part in chunks]
            by_labeling.append(np.concatenate(parts))
        return np.stack(by_labeling)

    blocks = work.map(values_of_block, blocks_of(len(queries)))
    return np.concatenate(list(blocks), axis=2)


def _expansions(
    engine: Engine, queries: Queries, rows: int
) -> Callable[[slice], Callable[[PlacedRows], Real]]:
    """A function that runs the backward pass for some columns, and gives one from rows to their slopes."""
    work = engine.work
    if engine.ensemble.linear is not None:
        passes = LinearPasses(work)

        def linear_expansion(columns: slice) -> Callable[[PlacedRows], Real]:
            adjoint = passes.adjoint(queries, columns)
            return lambda part: passes.weight_slopes(adjoint, part).astype(work.dtype)

        return linear_expansion
    adjoint_of = engine.adjoint(queries, engine.plan(LeafInfluence(), len(queries), rows))

    def expansion(columns: slice) -> Callable[[PlacedRows], Real]:
        adjoint = adjoint_of(columns)
        return lambda part: expand_candidates(work, adjoint, part)

    return expansion


def structure_candidate_values(
    engine: Engine,
    queries: Queries,
    X_test: Any,
    new: Candidates,
    labels: Sequence[F64],
    method: StructureInfluence,
) -> Real:
    """(labelings, rows, queries) derivatives in the weights of new rows, through soft splits.

    A pass takes about as many new rows as there are training rows, in all labelings together.
    """
    work = engine.work
    splits = engine.soft_splits
    asked = engine.soft_queries(queries, X_test)
    codes = splits.bins.codes(engine.source.split_columns(new.X))
    chunk = max(1, max(engine.n_rows, LEAST_CHUNK) // len(labels))
    chunks = [np.arange(i, min(i + chunk, len(new))) for i in range(0, len(new), chunk)]
    work.prepare_effects()

    def values_of_chunk(columns: slice, part: Ints) -> Real:
        repeated = np.tile(part, len(labels))
        own = Candidates(new.X, new.leaves[:, repeated], new.start[repeated])
        rows = _placed(engine, own, np.concatenate([y[part] for y in labels]))
        values = structure_candidates(
            work, splits, asked, columns, method.temperature, NewRows(rows, codes[repeated])
        )
        return values.reshape(len(labels), len(part), -1)

    def values_of_block(columns: slice) -> Real:
        return np.concatenate([values_of_chunk(columns, part) for part in chunks], axis=1)

    blocks = map(values_of_block, blocks_of(len(queries), block_of(work, splits)))
    return np.concatenate(list(blocks), axis=2)


def _placed(engine: Engine, new: Candidates, y: F64) -> PlacedRows:
    """New rows with labels y (rows,), and the class weights of these."""
    e = engine.ensemble
    trained = [e.w_factor, e.w_factor if e.base_factor is None else e.base_factor]
    factors = class_factors(engine.source, y, trained)
    return candidate_rows(engine.work.trace, new.leaves, new.start, y, *factors)
