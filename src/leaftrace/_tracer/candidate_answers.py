"""Results about rows that are not in the training set: the effect of adding them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data import inputs
from .._data.arrays import F64, Real
from .._data.errors import InvalidInput
from .._data.row_labels import aligned, labels_of, row_index
from .._engine.candidates import Candidates, candidate_values, structure_candidate_values
from .._engine.engine import Engine
from .._engine.jumps import refuse_jumping_candidates
from .._engine.less_memory import in_smaller_pieces
from .._engine.methods import LeafInfluence, Method, StructureInfluence
from .._engine.queries import Queries
from .._model.linear_leaves import as_trained
from .._model.reading import Reading
from .answers import QueryArguments, finite_values, result_tables
from .influence import FIRST_ORDER, SOFT_SPLITS, Influence

if TYPE_CHECKING:
    from .tracer import Tracer


class CandidateSlopes(NamedTuple):
    """Derivatives of queries in the weights of new rows, at weight zero.

    ``queries, test_index``  the queries and the names of their columns
    ``values``     (rows, queries)
    ``per_label``  the same under each label, if the new rows have none; otherwise None
    """

    queries: Queries
    test_index: NDArray[Any]
    values: Real
    per_label: dict[Any, Real] | None


def candidates_influence(
    tracer: Tracer, query: QueryArguments, X_new: Any, y_new: Any, method: Method | None
) -> Influence:
    """Derivatives of queries in the weights of new rows, as a result for users."""
    X_new = inputs.as_table(X_new, tracer.X_train)
    found = candidate_slopes(tracer.engine, query, X_new, y_new, method)
    queries = found.queries
    soft = _soft_candidates(method)
    m = len(found.values)
    return Influence(
        finite_values(found.values),
        row_index(X_new, m),
        found.test_index,
        queries.of,
        "candidates at weight zero" + (f", {soft!r}" if soft else ""),
        "added",
        np.ones(m),
        per_label=found.per_label,
        lower_is_better=queries.lower_is_better,
        tables=result_tables(tracer, X_new, None, query.X_test, queries),
        change_is=SOFT_SPLITS if soft else FIRST_ORDER,
    )


def candidate_slopes(
    engine: Engine, query: QueryArguments, X_new: Any, y_new: Any, method: Method | None
) -> CandidateSlopes:
    """Derivatives of queries in the weights of new rows, at weight zero."""
    engine.needs_separate_rows("score_candidates()")
    soft = _soft_candidates(method)
    engine.needs_derivatives()
    y_new = aligned(y_new, labels_of(X_new), "y_new", "X_new")
    leaves, offset = engine.source.rows(X_new)
    leaves = as_trained(leaves)
    refuse_jumping_candidates(engine.work.trace, leaves)
    queries, test_index = engine.queries(*query)
    m = leaves.shape[1]
    start = np.tile(engine.ensemble.base, (m, 1)) + (0.0 if offset is None else offset)
    new = Candidates(X_new, leaves, start)

    def values_under(labels: list[F64]) -> Real:
        if soft is None:
            return candidate_values(engine, queries, new, labels)
        return structure_candidate_values(engine, queries, query.X_test, new, labels, soft)

    def values_and_labels() -> tuple[Real, dict[Any, Real] | None]:
        if y_new is not None:  # scores are not needed, and take a while
            return values_under([engine.labels(y_new, m, "y_new")])[0], None
        scores = engine.ensemble.scores(leaves, offset)
        return values_of_new_rows(engine, values_under, scores, None)

    values, per_label = in_smaller_pieces(engine.work, values_and_labels)
    return CandidateSlopes(queries, test_index, values, per_label)


def _soft_candidates(method: Method | None) -> StructureInfluence | None:
    """The method if splits are soft, or None for those of trees as they are."""
    if method is None or (isinstance(method, LeafInfluence) and method == LeafInfluence()):
        return None
    if isinstance(method, StructureInfluence):
        return method
    raise InvalidInput(
        f"method is {method!r}; score_candidates() takes LeafInfluence() without an update set, or "
        "StructureInfluence(). For effects that are not of first order, use refit(added=...) or retrain(added=...)."
    )


def values_of_new_rows(
    engine: Engine, values_under: Callable[[list[F64]], Real], scores: F64, y_new: Any
) -> tuple[Real, dict[Any, Real] | None]:
    """(rows, queries) values of new rows, and their values under each label of a classifier.

    They are under the labels y_new, or, if these are None, expected under the model's prediction.

    ``values_under``  a function of several labelings (rows,) that gives (labelings, rows, queries)
    ``scores``        (rows, K) of the new rows
    """
    m = len(scores)
    if y_new is not None:
        labels = engine.labels(y_new, m, "y_new")
        return values_under([labels])[0], None
    trained = Reading(engine.ensemble.loss, engine.source.classes)  # in the unit that training fits
    response = trained.response(scores)  # (m, classes) or (m,)
    if response.ndim == 1:
        # The effect is linear in the label, so its expectation is that of the mean label.
        return values_under([response])[0], None
    classes = engine.reading.with_numbered_classes().classes
    assert classes is not None
    labelings = [np.full(m, float(code)) for code in range(len(classes))]
    by_label = values_under(labelings)
    expected = np.einsum("cnq,nc->nq", by_label, response)
    return expected.astype(engine.work.dtype), dict(zip(classes.tolist(), by_label, strict=True))
