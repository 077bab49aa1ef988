"""Training rows of rankers by query: their ids and rows, and influence of whole queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._data.grouping import SourceTables
from .._data.query_ids import QueryRows
from .._data.time_limit import TimeLimit
from .._engine.engine import Engine
from .._engine.methods import Baseline, LeafInfluence, LeafRefit, Method, Retrain
from .._engine.queries import Queries
from .._engine.whole_refits import values_by_refitting
from .influence import Influence
from .noise_floor import NoiseFloors
from .retrained_rows import values_by_retraining

if TYPE_CHECKING:
    from .answers import QueryArguments
    from .tracer import Tracer


class QueriesOfTraining(NoiseFloors):
    """The queries of a ranker's training rows, for `Tracer`."""

    engine: Engine

    @property
    def queries(self) -> QueryRows | None:
        """Queries of the training rows: `ids`, `sizes`, `number` of each row; None without."""
        return self.engine.source.queries

    def rows_of_queries(self, ids: Any) -> Ints:
        """Positions of all training rows of the queries with these ids.

        >>> tracer.refit(without=tracer.rows_of_queries(["q17", "q18"]))      # doctest: +SKIP

        Ids are those given as qid; queries given by their sizes are numbered from 0.
        """
        return training_queries(self.engine).rows_of(ids)


def training_queries(engine: Engine) -> QueryRows:
    """The queries of the training rows; an error for models that are no rankers."""
    found = engine.source.queries
    if found is None:
        raise InvalidInput("this model is no ranker: its training rows have no queries.")
    return found


def whole_queries_influence(
    tracer: Tracer,
    query: QueryArguments,
    queries: Queries,
    test_index: np.ndarray,
    method: Method,
    document_values: Any,
    change_is: str,
) -> Influence:
    """Influence of whole training queries.

    ``document_values``: a function without arguments that gives values (n, queries) of all
    documents, for methods that have such.
    """
    engine = tracer.engine
    ranked = training_queries(engine)
    changed = None
    if isinstance(method, (LeafRefit, Retrain)):
        sets = np.split(np.arange(engine.n_rows), np.cumsum(ranked.sizes)[:-1])
        values, changed = _values_without(engine, query, queries, method, sets)
    else:
        _check_summable(method)
        weight = engine.ensemble.sample_weight if method.gives == "derivatives" else 1.0
        values = _sums(document_values(), ranked, weight)
    return Influence(
        values,
        ranked.ids,
        test_index,
        queries.of,
        f"{method!r}, whole queries",
        "removed",
        np.ones(len(ranked.ids)),
        method.gives == "derivatives",
        structure_changed=changed,
        lower_is_better=queries.lower_is_better,
        tables=SourceTables(None, None, None, True, tracer.table_kind),
        scored=method.gives == "scores",
        change_is=change_is,
        unit="query",
    )


def _check_summable(method: Method) -> None:
    """Raise an error for methods whose values of documents do not add up to those of queries."""
    if isinstance(method, LeafInfluence) and method.change == "presence":
        raise InvalidInput(
            "a whole query leaves with all its pairs, so that its presence is its weight; use LeafInfluence() without "
            "change= with by='query'."
        )
    if not isinstance(method, (LeafInfluence, Baseline)):
        raise InvalidInput(
            f"{type(method).__name__} is not for by='query'; use LeafInfluence(), LeafRefit(), Retrain() or "
            "baselines.BoostIn()."
        )


def _sums(values: Real, ranked: QueryRows, weight: F64 | float) -> Real:
    """(Q, columns) sums of values (n, columns) times weights over the rows of each query."""
    starts = np.cumsum(ranked.sizes) - ranked.sizes
    weighted = values * np.broadcast_to(weight, len(values))[:, None]
    return np.add.reduceat(weighted, starts, axis=0).astype(values.dtype)


def _values_without(
    engine: Engine,
    query: QueryArguments,
    queries: Queries,
    method: LeafRefit | Retrain,
    sets: Sequence[Ints],
) -> tuple[Real, np.ndarray | None]:
    """(sets, queries) Q(with) - Q(without) each set, by refitting or training again."""
    if isinstance(method, Retrain):
        if method.time_limit is not None:
            raise InvalidInput(
                "by='query' asks about all queries; use Retrain() without time_limit."
            )
        return values_by_retraining(
            engine, query.X_test, query.baseline, queries, sets, TimeLimit(None)
        )
    return values_by_refitting(engine.work, engine.rest, queries, method, sets), None
