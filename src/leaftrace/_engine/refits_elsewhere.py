"""Soft splits in trees that are refitted on other rows than those that grew them.

The splits of a tree were chosen by its training rows, and its leaf values are sums over them. Both make
its answers about a row depend on which other rows happened to be there. Refitted on other rows, the same
trees give another answer, for the price of a refit and a backward pass. An average over several
such answers, and over rows inside and outside of each refit, is nearer to what retraining does.

A row outside of a refit has weight zero in it. Its value is the derivative there, with the
denominators that leaves would have with it (`row_effects.joining_effects`): rows that trees were not
grown on can leave a leaf with next to no second derivative.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Real
from .._model.kernels import blocks_of
from .._model.training_set import TrainingSet
from .backward import expand_joining, expand_training
from .engine import Engine
from .linear_replay import replayed
from .queries import Queries
from .refit import alter, refit_on
from .settings import thread_pool
from .soft_splits import SoftPass, SoftQueries, SoftSplits, block_of
from .split_bins import make_bins
from .workspace import Workspace


class RefitsElsewhere:
    """A model, its training rows, and other rows that its trees can be refitted on.

    ``engine``   of the model
    ``X, y, weight``  the other rows, and the weights that they would have

    Models that drew rows anew for each tree raise an error.
    """

    def __init__(self, engine: Engine, X: Any, y: np.ndarray, weight: F64) -> None:
        every = np.arange(engine.n_rows)
        rows = TrainingSet(engine.n_rows, every, added=(X, y, weight))
        self.ensemble = alter(engine.source, rows)
        self.engine = engine
        self.search = engine.soft_splits.search
        added = engine.source.split_columns(X)
        self.columns = np.concatenate([self.search.values, added])

    def values(
        self, inside: NDArray[np.bool_], queries: Queries, X_test: Any, temperature: float
    ) -> Real:
        """(rows, queries) dQ/d(sample weight) of the training rows and then of the others.

        ``inside``  (rows,) on which of them the trees are refitted
        """
        work = self._refitted(inside)
        e = work.trace.ensemble
        bins = make_bins(self.columns[inside], list(self.search.columns))
        splits = SoftSplits(self.search, bins, bins.codes(self.columns))
        codes = bins.codes(self.engine.source.split_columns(X_test))
        asked = SoftQueries(queries.at(e), codes)
        outside = np.flatnonzero(~inside)
        chunks = work.row_chunks(outside) if len(outside) else []
        out = np.empty((e.n_rows, len(queries)), work.dtype)
        work.prepare_effects()
        for columns in blocks_of(len(queries), block_of(work, splits)):
            soft = SoftPass(work, splits, asked, columns, temperature)
            adjoint = soft.run()
            values = expand_training(work, adjoint, None)
            for chunk in chunks:
                weight = self.ensemble.w[chunk]
                values[chunk] = expand_joining(work, adjoint, work.rows.take(chunk), weight)
            out[:, columns] = values + soft.weight_derivatives(slice(None))[:, : adjoint.columns]
        return out

    def _refitted(self, inside: NDArray[np.bool_]) -> Workspace:
        """The model refitted on some of the rows, and replayed there."""
        engine = self.engine
        like = engine.work
        some = self.ensemble.weigh_only(np.flatnonzero(inside))
        with thread_pool(like.n_jobs) as threads:
            refitted = refit_on(like.trace, some, threads)
            e = replace(some, base=refitted.base, values=refitted.values)
            trace = replayed(e, engine.source.tolerance, (), threads)
        return Workspace(trace, like.dtype, like.n_jobs, like.memory_limit)
