"""Results of a `Tracer`: from the arguments of its methods to an `Influence`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._data import inputs
from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput, LeaftraceError
from .._data.grouping import SourceTables
from .._data.row_labels import row_numbers
from .._data.time_limit import TimeLimit
from .._engine.engine import Engine
from .._engine.jumps import refuse_jumping_rows
from .._engine.leaf_queries import refuse_other_methods
from .._engine.less_memory import empty_answer, in_smaller_pieces
from .._engine.methods import (
    Baseline,
    LeafInfluence,
    LeafRefit,
    Method,
    Retrain,
    RetrainingBaseline,
    SplitBaseline,
    StructureInfluence,
    moves_leaves,
    runs_backward,
)
from .._engine.queries import Of, Queries, Reduce
from .._engine.subset_training import SubsetTraining
from .._engine.whole_refits import values_by_refitting
from .._model.ensemble import Ensemble
from .influence import FIRST_ORDER, REFITTED, SOFT_SPLITS, Influence, Unit, rank, top_table
from .query_rows import whole_queries_influence
from .retrained_rows import values_by_retraining

if TYPE_CHECKING:
    from .tracer import Tracer


class QueryArguments(NamedTuple):
    """The arguments by which users describe queries: see `Tracer.influence`."""

    X_test: Any
    y_test: Any
    of: Of
    reduce: Reduce
    output: int | None
    baseline: Any
    qid: Any = None


def asked(tracer: Tracer, X_test: Any, *others: Any) -> QueryArguments:
    """The arguments of a call, with a single row (a Series) as a table."""
    table = inputs.as_table(X_test, tracer.X_train)
    inputs.needs_rows(table)
    return QueryArguments(table, *others)


def result_tables(
    tracer: Tracer, train: Any, rows: Ints | None, test: Any, queries: Queries
) -> SourceTables:
    """The tables in which a result looks up columns by name.

    ``rows``: which rows of the table `train` the result is about; None for all.
    """
    reduced = queries.reduce is not None
    labels = tracer.y_train if train is tracer.X_train else None
    return SourceTables(train, rows, None if reduced else test, reduced, tracer.table_kind, labels)


# ---- removal of training rows ----


def rows_influence(
    tracer: Tracer, query: QueryArguments, method: Method | None, rows: Any, by: Any = None
) -> Influence:
    """Influence of training rows on queries by any method.

    ``rows``: training rows as the user gives them; None for all.
    ``by``: "query" for that of whole training queries; None for that of rows.
    """
    if not inputs.is_name(by, (None, "query")):
        raise InvalidInput(f"by is {by!r}; it can be None, for rows, or 'query'.")
    if by is not None and rows is not None:
        raise InvalidInput(
            "rows= names single rows, and by='query' asks for whole queries; leave one out."
        )
    engine = tracer.engine
    method = LeafInfluence() if method is None else method
    if not isinstance(method, Method):
        raise InvalidInput(
            f"method is {method!r}; it can be LeafInfluence(), StructureInfluence(), LeafRefit(), Retrain() or one "
            "of lt.baselines, such as lt.baselines.BoostIn()."
        )
    if method.differentiates:
        engine.needs_derivatives()
    queries, test_index = engine.queries(*query)
    refuse_other_methods(queries, moves_leaves(method))
    index = row_numbers(rows, engine.n_rows, labels=tracer.row_labels)
    some = None if rows is None else index
    if method.gives == "derivatives":
        refuse_jumping_rows(engine.work.trace, index)
    if by is not None:

        def of_documents() -> Real:
            assert isinstance(method, (LeafInfluence, Baseline))
            return _values(engine, queries, query.X_test, method, None)

        kind = kind_of_change(engine, method)
        return whole_queries_influence(
            tracer, query, queries, test_index, method, of_documents, kind
        )
    changed = None
    done = ""
    if isinstance(method, Retrain):
        sets = list(index[:, None])
        limit = TimeLimit(method.time_limit)
        values, changed = values_by_retraining(
            engine, query.X_test, query.baseline, queries, sets, limit
        )
        if limit.passed:
            index = some = index[: limit.begun]
            done = f", {limit.begun:,} of {len(sets):,} rows"
    elif isinstance(method, RetrainingBaseline):
        values = method.values(_subset_training(tracer, query), queries, index)
    elif isinstance(method, SplitBaseline):
        engine.needs_constant_leaves(repr(method))
        trees = engine.source.split_search().trees
        values = method.values(engine.work, trees, queries, index)
    else:
        fixed = method
        values = in_smaller_pieces(
            engine.work, lambda: _values(engine, queries, query.X_test, fixed, some)
        )
    tables = result_tables(tracer, tracer.X_train, some, query.X_test, queries)
    extra = {
        "structure_changed": changed,
        "tables": tables,
        "noise": single_row_noise(tracer, queries, method),
        "change_is": kind_of_change(engine, method),
    }
    found = removal_influence(tracer, values, index, test_index, queries, method, **extra)
    return replace(found, method=found.method + done)


def _subset_training(tracer: Tracer, query: QueryArguments) -> SubsetTraining:
    """The means to train the model again on subsets of its rows."""
    engine = tracer.engine
    offset = engine.source.rows(query.X_test, query.baseline)[1]
    return SubsetTraining(
        engine.retrainings,
        engine.work,
        tracer.X_train,
        query.X_test,
        offset,
        engine.source.classes,
    )


def kind_of_change(engine: Engine, method: Method) -> str:
    """Which number a change by this method is, for tables."""
    if isinstance(method, Retrain):
        return engine.retrainings.kind
    if isinstance(method, StructureInfluence):
        return SOFT_SPLITS
    return FIRST_ORDER if method.gives == "derivatives" else REFITTED


def single_row_noise(tracer: Tracer, queries: Queries, method: Method) -> F64 | None:
    """(queries,) sizes from which effects of a single row stand out, if they were measured."""
    is_measured = method.gives != "scores" and queries.of_scores
    found = tracer.noise_of(queries, 1) if is_measured else None
    return None if found is None else found[0]


def _values(
    engine: Engine,
    queries: Queries,
    X_test: Any,
    method: LeafInfluence | StructureInfluence | LeafRefit | Baseline,
    index: Ints | None,
) -> Real:
    """(rows, queries) by the pass of the method, for some training rows or, with None, for all."""
    if isinstance(method, Baseline):
        engine.needs_constant_leaves(repr(method))
        return method.values(engine.work, queries, index, engine.source.classes)
    if not isinstance(method, LeafRefit) and runs_backward(method):
        count = engine.n_rows if index is None else len(index)
        values = empty_answer(count, len(queries), engine.work.dtype)
        for columns, block in _backward_blocks(engine, queries, X_test, method, index):
            values[:, columns] = block
        return values
    assert not isinstance(method, StructureInfluence)
    rows = np.arange(engine.n_rows) if index is None else index
    e = engine.ensemble
    if isinstance(method, LeafRefit) and _is_refitted_whole(e, queries):
        sets = list(rows[:, None])
        return values_by_refitting(engine.work, engine.rest, queries, method, sets)
    return engine.forward_values(queries, method, rows)


def _is_refitted_whole(e: Ensemble, queries: Queries) -> bool:
    """Whether LeafRefit is a refit of all leaves without each row."""
    whole = bool(e.not_smooth) or e.coupled or e.linear is not None
    return whole or not queries.of_scores


def _backward_blocks(
    engine: Engine,
    queries: Queries,
    X_test: Any,
    method: LeafInfluence | StructureInfluence,
    index: Ints | None,
) -> Iterator[tuple[slice, Real]]:
    """Values of training rows, block by block: (columns, values (rows, columns))."""
    if isinstance(method, StructureInfluence):
        return engine.structure_blocks(queries, X_test, method, index)
    return engine.backward_blocks(queries, method, index)


def removal_influence(
    tracer: Tracer,
    values: Real,
    index: Ints,
    test_index: np.ndarray,
    queries: Queries,
    method: Method,
    **extra: Any,
) -> Influence:
    """An `Influence` about removing the training rows in `index`."""
    e = tracer.engine.ensemble
    action = "removed"
    size = e.sample_weight[index]
    if e.coupled and method.gives == "derivatives":
        action = "weight_zero"
        if isinstance(method, LeafInfluence) and method.change == "presence":
            action = "absent"
            size = np.ones(len(index))
    return Influence(
        finite_values(values),
        tracer.train_index[index],
        test_index,
        queries.of,
        repr(method),
        action,
        size,
        method.gives == "derivatives",
        lower_is_better=queries.lower_is_better,
        scored=method.gives == "scores",
        positions=index,
        **extra,
    )


def finite_values(values: Real) -> Real:
    """The values, or an error if some are not numbers."""
    if not np.isfinite(values).all():
        rows = int((~np.isfinite(values)).any(axis=1).sum())
        wider = ', or use dtype="float64"' if values.dtype == np.float32 else ""
        raise LeaftraceError(
            f"the values of {rows} training rows are not finite numbers: scores or derivatives of this model are too "
            f"large for floating-point numbers. Train it with a smaller learning rate or more regularisation{wider}."
        )
    return values


def streamed_top(
    tracer: Tracer,
    query: QueryArguments,
    method: LeafInfluence | StructureInfluence | None,
    k: int,
    effect: str | None,
) -> Any:
    """The table of the k rows that matter most to each query, made block by block."""
    method = LeafInfluence() if method is None else method
    if not runs_backward(method):
        raise InvalidInput(
            "top() streams over test rows, so it takes StructureInfluence, or LeafInfluence with AllPoints or "
            "SinglePoint."
        )
    tracer.engine.needs_derivatives()
    if isinstance(method, LeafInfluence) and method.change == "presence":
        raise InvalidInput(
            "top() takes derivatives in weights; use influence(...).top(k) for presences."
        )
    queries, test_index = tracer.engine.queries(*query)
    every_row = np.arange(tracer.n_rows)
    refuse_jumping_rows(tracer.engine.work.trace, every_row)

    def ranked() -> list[Any]:
        tops = []
        blocks = _backward_blocks(tracer.engine, queries, query.X_test, method, None)
        for columns, values in blocks:
            names = test_index[columns]
            block = removal_influence(tracer, values, every_row, names, queries, method)
            tops += rank(block, k, effect)
        return tops

    tops = in_smaller_pieces(tracer.engine.work, ranked)
    name = (
        f"{queries.of}_change_if_{'weight_zero' if tracer.engine.ensemble.coupled else 'removed'}"
    )
    rows = {"train_row": tracer.train_index, "position": every_row}
    kind = kind_of_change(tracer.engine, method)
    unit = Unit(kind, single_row_noise(tracer, queries, method))
    return top_table(tops, rows, test_index, name, tracer.table_kind, unit)
