"""Training rows similar to a test row: those that share many leaves with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._data import inputs
from ..._data.arrays import Ids, Ints, Real
from ..._model.kernels import blocks_of
from ..._tracer.influence import largest
from ..._tracer.neighbours import at_leaves, shared_sums
from .explained_rows import ExplainedRows

SIMILAR = 20  # similar training rows that are looked at
# Leaves of training rows that are compared with those of a test row. Beyond, rows evenly spread
# over the table stand for all, so that a verdict takes a second or two.
MAX_COMPARED = 20_000_000
_LEAST = 10_000  # rows that are compared in any case


@dataclass(frozen=True)
class Similar:
    """The training rows most similar to a test row.

    ``rows``       positions
    ``closeness``  mean share of trees in which they are in the same leaf
    ``among``      number of training rows they were chosen from; None: all
    """

    rows: Ints
    closeness: float
    among: int | None = None

    @property
    def words(self) -> str:
        """The rows in words."""
        if self.among is None:
            return f"{len(self.rows)} most similar training rows"
        return f"{len(self.rows)} most similar of {self.among:,} training rows"


def similar_rows(rows: ExplainedRows, positions: Ints) -> list[Similar]:
    """The training rows most similar to the test rows at these positions."""
    engine = rows.tracer.engine
    baseline = None if rows.baseline is None else rows.baseline[positions]
    X = inputs.take_rows(rows.X, positions)
    queries, _ = engine.queries(X, None, "prediction", None, None, baseline)
    compared = _compared_rows(engine.n_rows, len(queries.leaves))
    among = None if len(compared) == engine.n_rows else len(compared)
    found = []
    for block in blocks_of(len(positions)):
        for column in _shared_leaves(rows, compared, queries.leaves[:, block]).T:
            nearest = largest(column, min(SIMILAR, len(column)))
            found.append(Similar(compared[nearest], float(column[nearest].mean()), among))
    return found


def _compared_rows(n: int, trees: int) -> Ints:
    """Positions of the training rows that are compared: all, or evenly spread ones."""
    most = max(_LEAST, MAX_COMPARED // trees)
    if n <= most:
        return np.arange(n)
    return np.linspace(0, n - 1, most).astype(np.intp)


def _shared_leaves(rows: ExplainedRows, compared: Ints, leaves: Ids) -> Real:
    """(compared, B) shares of trees in which training rows are in these leaves (trees, B)."""
    work = rows.tracer.engine.work
    here = at_leaves(work, leaves, np.ones(leaves.shape))
    share = np.empty((len(compared), leaves.shape[1]), work.dtype)

    def fill_chunk(places: Ints) -> None:
        own = np.ascontiguousarray(work.trace.ensemble.leaves[:, compared[places]])
        drawn = np.ones((*own.shape, 1), work.dtype)
        share[places] = shared_sums(work, own, drawn, here)[:, : leaves.shape[1]] / len(own)

    list(work.map(fill_chunk, work.row_chunks(np.arange(len(compared)))))
    return share
