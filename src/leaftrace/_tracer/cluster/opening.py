"""Opening a model whose training rows are on a cluster, with as little in one place as it allows.

    stand-ins   a few rows stand for all; the client has nothing of each row
    facts       the client has the labels and weights of all rows. It repeats the draws of training,
                weights of classes and the like, and sends each partition its own
    client      the client also has the leaves of all rows, on its disk, and computes by itself

Each is tried only if the one before does not give the model's own leaf values.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..._adapters import Source, open_model
from ..._adapters.base import Wrapped
from ..._data.arrays import F64
from ..._data.errors import FidelityError, InvalidInput, LeaftraceError, UnsupportedModel
from ..._engine.free_memory import available_memory
from ..._engine.replay import Trace
from ..._engine.settings import Settings
from ..._model.ensemble import Ensemble
from ..tracer import Tracer
from .labels import LabelSummary, stand_in_rows
from .part import facts_of
from .protocol import Cluster, Rows
from .replaying import replay_on
from .table import ClusterTable, RowsElsewhere


@dataclass(frozen=True)
class OpenedModel:
    """A model replayed with the rows of a cluster.

    ``finder``      the model opened with stand-in rows: it finds leaves on the cluster
    ``mean_draws``  (trees,) how often each tree drew a row on average; None: once
    """

    source: Source
    finder: Source
    cluster: Cluster
    trace: Trace
    mean_draws: F64 | None = None


@dataclass
class Opening:
    """A model to be opened, and the rows on a cluster that it was trained on."""

    rows: Rows
    model: Any
    params: dict[str, Any]
    settings: Settings
    labels: LabelSummary = field(init=False)

    def run(self) -> OpenedModel | Tracer:
        """Open the model: on the cluster, or, if that is not possible, at the client."""
        self.labels = self.rows.labels()
        if not self.labels.n or not self.labels.weight:
            raise InvalidInput("the partitions have no training rows of non-zero weight.")
        source = self._with_stand_ins()
        opened = None
        if source is not None and not needs_one_place(source.ensemble):
            opened = self._on_cluster(source)
            if opened is not None and opened.trace.fidelity.exact:
                return opened
        try:
            return self._at_client(source)
        except FidelityError:
            if opened is None or self.settings.fidelity == "raise":
                raise
            return opened

    def _with_stand_ins(self) -> Source | None:
        """The model opened with stand-in rows, to be sent; None if that is not possible.

        Errors are those of the stand-in rows; true ones come again when all rows are read.
        """
        if self.labels.several:
            return None
        y, w = stand_in_rows(self.labels)
        try:
            X, baseline = self.rows.first(len(y))
            source = open_model(self.model, X, y, w, baseline, dict(self.params))
        except (InvalidInput, UnsupportedModel):
            return None
        return source if can_be_sent(source) else None

    def _on_cluster(self, source: Source) -> OpenedModel | None:
        """Replay the model on the cluster; None if the adapter needs the leaves for its facts."""
        opened = None
        if not needs_facts(source.ensemble):
            cluster = self.rows.open(source, self.labels)
            opened = OpenedModel(source, source, cluster, replay_on(cluster, source, False))
            if opened.trace.fidelity.exact:
                return opened
        try:
            return self._with_facts(source, opened) or opened
        except LeaftraceError:
            return opened

    def _with_facts(self, finder: Source, opened: OpenedModel | None) -> OpenedModel | None:
        """Replay the model with facts about rows from the labels and weights of all.

        ``finder``: the model opened with stand-in rows.
        """
        rows = self.rows.in_order()
        y, w, baseline, *_ = rows.vectors()
        nowhere = RowsElsewhere(
            (), tuple(rows.columns), 0, None, (), len(y), finder.ensemble.leaves
        )
        source = open_model(self.model, nowhere, y, w, baseline, dict(self.params))
        e = source.ensemble
        if needs_one_place(e):
            return None
        cluster = rows.open(finder, self.labels)
        edges = np.cumsum([0, *cluster.sizes])
        cluster.give([facts_of(e, slice(*edge)) for edge in pairwise(edges)])
        means = None
        if e.sample is not None:
            means = np.array([float(drawn[e.w_factor > 0].mean()) for drawn in e.sample])
            drop_draws(source)
        trace = replay_on(cluster, source, True)
        return OpenedModel(source, finder, cluster, trace, means)

    def _at_client(self, finder: Source | None) -> Tracer:
        """A tracer at the client, for which the cluster has found the leaves of all rows."""
        rows = self.rows.in_order()
        y, w, baseline, qid, names = rows.vectors()
        limit = self.settings.memory_limit or available_memory() // 2
        table = ClusterTable((), tuple(rows.columns), limit // 2, None, (), rows, len(y), finder)
        more = {
            "baseline": baseline,
            "qid": qid,
            "dtype": self.settings.dtype.name,
            "memory_limit": self.settings.memory_limit,
            "params": self.params,
        }
        try:
            tracer = Tracer(self.model, table, y, w, **more)
        except UnsupportedModel:
            if not table.fits_in_memory(len(table)):
                raise
            tracer = Tracer(self.model, table.read_all(), y, w, **more)
        if names is not None:
            tracer._set_labels(names)
        return tracer


def drop_draws(source: Source) -> None:
    """Let go of the draws of all rows, which partitions have now."""
    inner: Any = source
    while isinstance(inner, Wrapped):
        inner = inner.inner
    inner.ensemble = replace(inner.ensemble, sample=None)


def can_be_sent(source: Source) -> bool:
    """Whether other processes can read the source: not with a function that only this one has."""
    try:
        pickle.dumps(source)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError):
        return False
    return True


def needs_facts(e: Ensemble) -> bool:
    """Whether all rows together decide numbers of each."""
    return e.sample is not None or bool((e.w_factor == 0).any())


def needs_one_place(e: Ensemble) -> bool:
    """Whether leaf values are not made of sums over rows."""
    return bool(e.not_smooth) or e.coupled
