"""`Tracer` over a Dask DataFrame or Array."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Client, Future

from ...._data.arrays import Ints
from ...._data.errors import InvalidInput
from ...._data.row_labels import row_numbers
from ...._engine.methods import Method
from ...._engine.queries import Of, Reduce
from ...._engine.refit import RefittedModel
from ...influence import Influence
from ...label_answers import label_action, refuse_transformed_labels, target_class
from ..answers import QueryWords, part_influence, part_labels_influence
from ..costs import Prices
from ..group_effects import group_effects_table, two_or_more_groups
from ..refitting import RemovedPositions
from ..tracer import ClusterTracer, Plan, query_words
from .cluster import DaskCluster, cluster_errors
from .influence import DaskInfluence, ValueWords
from .row_columns import brought_column, spread_column
from .rows import DaskRows

PRICES = Prices(round=0.003, wire=2e8)


class Tracer(ClusterTracer):
    """A model and its training rows on a Dask cluster.

    >>> tracer = leaftrace.dask.Tracer(model, frame, frame["income"])       # doctest: +SKIP
    >>> tracer.top(X_test, y_test, 10)                                       # doctest: +SKIP

    ``model``          as `leaftrace.Tracer` takes it, or what `xgboost.dask.train` returns
    ``X, y, sample_weight``  Dask DataFrame and Series, or Arrays: the rows of training, in their
                       order, in the same partitions
    ``baseline, qid``  scores given to the rows before the first tree, and queries of a ranker, in the
                       same partitions
    ``client``         a `distributed.Client`; by default the one in use
    ``plan``           "rows" or "leaves": the form of the backward pass; by default the one that is
                       expected to take less time
    ``fidelity, dtype, memory_limit, params``  as those of `leaftrace.Tracer`; the memory is that of
                       the client

    Where a model drew rows, held some out or weighed classes by their share, labels and weights of all
    rows come to the client once, which repeats that. Models that need the leaves of all rows in
    one place (rankers, quantiles for leaves, rows drawn by their gradients, target statistics of
    categories, files without parameters) are traced at the client, with the leaves on its disk.
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        baseline: Any = None,
        qid: Any = None,
        client: Client | None = None,
        plan: Plan = None,
        fidelity: str = "raise",
        dtype: str = "float32",
        memory_limit: int | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        self.cluster = DaskCluster(client)
        rows = DaskRows(self.cluster, X, y, sample_weight, baseline, qid)
        self._labelled = rows.labelled
        with cluster_errors():
            self._open(
                rows, local_model(model), plan, fidelity, dtype, memory_limit, params, PRICES
            )

    @property
    def client(self) -> Any:
        """The client of the cluster."""
        return self.cluster.client

    def _errors(self) -> Any:
        return cluster_errors()

    def influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        method: Method | None = None,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
    ) -> DaskInfluence | Influence:
        """Exact LeafInfluence of all training rows, in their partitions.

        ``of, reduce, output``  as those of `leaftrace.Tracer.influence`
        ``method``              LeafInfluence(), and no other

        A model that is traced at the client gives a `leaftrace.Influence`.
        """
        how = {"of": of, "reduce": reduce, "output": output}
        if self.local is not None:
            return self.local.influence(X_test, y_test, method=method, **how)
        queries, test_index = self._queries(X_test, y_test, **how, method=method)
        with cluster_errors():
            chunks = self.cluster.map(
                part_influence, trace=self._trace, blocks=self._sent_blocks(queries)
            )
        return DaskInfluence(self, chunks, test_index, ValueWords(query_words(queries)))

    def label_influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        to: Any = None,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
    ) -> DaskInfluence | Influence:
        """dQ/dy of all training rows, as `leaftrace.Tracer.label_influence`."""
        how = {"of": of, "reduce": reduce, "output": output}
        if self.local is not None:
            return self.local.label_influence(X_test, y_test, to=to, **how)
        queries, test_index = self._queries(X_test, y_test, **how, method=None)
        engine = self.engine
        assert engine is not None
        refuse_transformed_labels(engine)
        target = target_class(engine, to)
        with cluster_errors():
            chunks = self.cluster.map(
                part_labels_influence,
                trace=self._trace,
                blocks=self._sent_blocks(queries),
                target=target,
            )
        name = "label influence" if to is None else f"label influence, towards {to}"
        action = label_action(engine)
        words = QueryWords(queries.of, name, queries.lower_is_better)
        weight = "flip" if action == "flipped" else "one"
        return DaskInfluence(self, chunks, test_index, ValueWords(words, action, weight))

    def refit(self, without: Any) -> RefittedModel:
        """The model with the same trees and all leaf values refitted without some rows, exactly.

        ``without``  positions of training rows over all partitions, a mask (a Dask Series or Array
                     of True and False in the partitions of the rows, or an array), or a table of
                     ours
        """
        positions = self._positions(without)
        if self.local is not None:
            return self.local.refit(without=positions)
        return self._refit(RemovedPositions(np.unique(positions)))

    def group_effects(self, groups: Any, X_test: Any, y_test: Any, *, refit: bool = True) -> Any:
        """Changes of the mean loss of the test rows without each group of training rows.

        ``groups``  a label for each training row, in a Dask Series or Array with the partitions of
                    the rows
        ``refit``   refit all leaf values without each group: exact, with the trees fixed

        A table with a line for each group: ``predicted`` is the change to first order, ``refitted``
        that of the refit. A step of the refits is one reduction for eight groups; the labels of all
        rows come to the client.
        """
        labels = self._gathered(groups, "groups")
        grouped = two_or_more_groups(labels)
        found = self.influence(X_test, y_test, reduce="mean").by(
            groups if self.local is None else labels
        )
        change = dict(zip(found["group"], found["loss_change_if_removed"], strict=True))
        predicted = np.array([change[name] for name in grouped.names.tolist()])
        with cluster_errors():
            return group_effects_table(
                self, grouped, predicted, RemovedPositions, X_test, y_test, refit
            )

    def _spread(self, column: Any, name: str) -> list[Future]:
        """A column for the training rows, an array for each partition."""
        return spread_column(self.cluster, column, name, self._labelled)

    def _gathered(self, column: Any, name: str) -> np.ndarray:
        """A column for all training rows, brought to the client."""
        if self.local is not None:
            labels = self.local.train_index if self._labelled else None
            return brought_column(self.cluster, column, name, self.n_rows, labels)
        with cluster_errors():
            return np.concatenate(self.cluster.gather(self._spread(column, name)))

    def _positions(self, rows: Any) -> Ints:
        """Positions of rows as a user gives them."""
        if hasattr(rows, "to_delayed"):
            rows = self._gathered(rows, "without")
            if rows.dtype != bool:
                raise InvalidInput(
                    f"without has values of type {rows.dtype}; a Dask Series or Array must be a mask."
                )
        if hasattr(rows, "columns") and "position" in rows:
            rows = np.asarray(rows["position"])
        return row_numbers(rows, self.n_rows, "without")

    @property
    def _trace(self) -> Any:
        """The trace, as the cluster has it."""
        assert self.engine is not None
        return self.engine.sent


def local_model(model: Any) -> Any:
    """The model itself, from what training on a cluster returns."""
    trained: Any = model
    if isinstance(model, dict) and "booster" in model:
        trained = model["booster"]
    return trained.to_local() if hasattr(trained, "to_local") else trained
