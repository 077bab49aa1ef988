"""Derivatives at a refitted model: other weights and leaf values, the same trees.

Paths along which weights change, and sets that grow row by row, ask for derivatives where the model
would be by then. A refitted model is replayed there as the model itself was at first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .._adapters import Source
from .._data.arrays import F64, Real
from .._model.kernels import blocks_of
from .backward import expand_training, leaf_adjoint
from .linear_passes import LinearPasses
from .linear_replay import replayed
from .methods import LeafInfluence
from .queries import Queries
from .refit import RefittedModel, alter
from .soft_splits import SoftQueries, SoftSplits, structure_blocks
from .split_bins import Codes
from .workspace import Workspace

if TYPE_CHECKING:
    from concurrent.futures import Executor


class RefitPoint:
    """A refitted model, replayed.

    ``like``  the workspace of the model itself, whose settings this one has
    """

    def __init__(
        self, source: Source, model: RefittedModel, like: Workspace, threads: Executor | None
    ) -> None:
        refitted = model.ensemble
        e = replace(alter(source, model.rows), base=refitted.base, values=refitted.values)
        trace = replayed(e, source.tolerance, (), threads)
        self.work = Workspace(trace, like.dtype, like.n_jobs, like.memory_limit)
        if trace.linear is None:
            self.work.prepare_effects()
        self._n = like.trace.ensemble.n_rows
        self._kept = model.rows.keep if e.n_rows < self._n else None

    def slopes(self, queries: Queries) -> F64:
        """(n, queries) dQ/d(sample weight), with the trees fixed; zero for removed rows.

        ``queries``: about the model itself; their derivatives are taken here.
        """
        here = queries.at(self.work.trace.ensemble)
        if self.work.trace.linear is not None:
            parts = LinearPasses(self.work).blocks(here, LeafInfluence(), None)
            return self._all_rows([values for _, values in parts])
        blocks = [
            expand_training(self.work, leaf_adjoint(self.work, here, columns), None)
            for columns in blocks_of(len(here), self.work.block)
        ]
        return self._all_rows(blocks)

    def soft_slopes(
        self,
        queries: Queries,
        splits: SoftSplits,
        codes: Codes,
        temperature: float,
        whole_leaves: bool = False,
    ) -> F64:
        """(n, queries) the same through soft choices of splits.

        ``codes``         (m, d) bins of the test rows
        ``whole_leaves``  leaves go all their way, and splits alone give way
        """
        if self._kept is not None:
            splits = replace(splits, codes=np.ascontiguousarray(splits.codes[self._kept]))
        asked = SoftQueries(queries.at(self.work.trace.ensemble), codes)
        parts = structure_blocks(self.work, splits, asked, temperature, None, whole_leaves)
        return self._all_rows([values for _, values in parts])

    def _all_rows(self, blocks: list[Real]) -> F64:
        """(n, queries) from blocks of columns, which have lines for the rows that are left."""
        values = np.concatenate(blocks, axis=1).astype(np.float64)
        if self._kept is None:
            return values
        every = np.zeros((self._n, values.shape[1]))
        every[self._kept] = values
        return every
