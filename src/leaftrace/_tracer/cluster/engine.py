"""`ClusterEngine`: a model replayed on a cluster, and the passes over its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ids, Real
from ..._engine.backward import LeafAdjoint, expand_candidates
from ..._engine.engine import Engine
from ..._engine.free_memory import available_memory
from ..._engine.leaf_space import LeafSpace, has_leaf_form, space_bytes
from ..._engine.placed_rows import PlacedRows
from ..._engine.queries import Queries
from ..._engine.refit import RefittedModel, class_factors
from ..._engine.settings import Settings
from ..._engine.workspace import Workspace
from ..._model.ensemble import Ensemble
from ..._model.kernels import blocks_of
from .backward import part_leaf_space, row_form
from .costs import Prices, leaf_form_seconds, row_form_seconds
from .opening import OpenedModel
from .refitting import Removal, RowsLeft, refits_without


class ClusterEngine(Engine):
    """A model whose training rows are on a cluster, replayed and checked.

    ``cluster``     has the rows
    ``finder``      the model opened with stand-in rows, small enough to be sent
    ``sent``        the trace, as the cluster has it
    ``mean_draws``  (trees,) how often each tree drew a row on average; None: once
    """

    def __init__(
        self,
        opened: OpenedModel,
        settings: Settings,
        plan: str | None,
        prices: Prices,
    ) -> None:
        trace = opened.trace
        self.cluster = opened.cluster
        self.source = opened.source
        self.finder = opened.finder
        self.settings = settings
        self.fidelity = trace.fidelity
        self.mean_draws = opened.mean_draws
        self.chosen_form = plan
        self.prices = prices
        self.sent = self.cluster.send(trace)
        self.work = Workspace(
            trace, settings.dtype, 1, settings.memory_limit or available_memory() // 2
        )
        self.space: LeafSpace | None = None

    @property
    def ensemble(self) -> Ensemble:
        """The model, without its training rows."""
        return self.work.trace.ensemble

    @property
    def n_rows(self) -> int:
        whole = self.ensemble.whole
        assert whole is not None
        return whole[0]

    # ---- backward pass ----

    def adjoints(self, queries: Queries) -> Iterator[LeafAdjoint]:
        """Derivatives of the queries in all leaf values, block by block."""
        self.cluster.check()
        in_leaf_form = self._uses_leaf_form(len(queries))
        for columns in blocks_of(len(queries)):
            if in_leaf_form:
                yield self._leaf_space().adjoint(self.work, queries, columns)
            else:
                trace = self.work.trace
                yield row_form(self.cluster, trace, self.sent, queries, columns, self.work.dtype)

    def _leaf_space(self) -> LeafSpace:
        """W of all rows, computed once."""
        if self.space is None:
            dtype = self.work.dtype
            self.space = self.cluster.total(part_leaf_space, trace=self.sent, dtype=dtype)
        assert self.space is not None
        return self.space

    def _uses_leaf_form(self, queries: int) -> bool:
        """Whether the leaf form was chosen by the user, or takes less time."""
        e = self.ensemble
        if not has_leaf_form(e):
            return False
        if self.chosen_form is not None:
            return self.chosen_form == "leaves"
        itemsize = self.work.dtype.itemsize
        if 3 * space_bytes(e, itemsize) > self.work.memory_limit:
            return False
        asked = (self.cluster, self.prices, e, self.n_rows, queries)
        in_leaves = leaf_form_seconds(*asked, itemsize, self.space is not None)
        return in_leaves < row_form_seconds(*asked)

    # ---- answers ----

    def total(self, fn: Callable[..., Any], **common: Any) -> Any:
        """The sum over partitions of a function of a partition and the trace."""
        return self.cluster.total(fn, trace=self.sent, **common)

    def refits(self, removals: Sequence[Removal]) -> list[RefittedModel]:
        """The model with its trees fixed and all leaf values refitted without each set of rows."""
        self.cluster.check()
        nothing = np.zeros(0, np.intp)
        return [
            RefittedModel(self.source, RowsLeft(self.n_rows, nothing, count=count), refitted)
            for refitted, count in refits_without(self.cluster, self.work.trace, removals)
        ]

    def candidate_values(
        self, queries: Queries, leaves: Ids, start: F64, labels: Sequence[F64]
    ) -> Real:
        """(labelings, rows, queries) derivatives in the weights of new rows, at weight zero."""
        labelings = [self._placed(leaves, start, y) for y in labels]
        blocks = [
            np.stack([expand_candidates(self.work, adjoint, rows) for rows in labelings])
            for adjoint in self.adjoints(queries)
        ]
        return np.concatenate(blocks, axis=2)

    def _placed(self, leaves: Ids, start: F64, y: F64) -> PlacedRows:
        """New rows with labels y (rows,), and the class weights of these."""
        e = self.source.ensemble
        trained = [e.w_factor, e.w_factor if e.base_factor is None else e.base_factor]
        factor, base_factor = class_factors(self.source, y, trained)
        sample = None
        if self.mean_draws is not None:
            sample = [np.full(len(y), mean) for mean in self.mean_draws]
        return PlacedRows(leaves, start, y, np.zeros(len(y)), factor, base_factor, sample)
