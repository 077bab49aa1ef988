"""Derivatives in the labels of training rows: from the arguments of `Tracer.label_influence`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.row_labels import row_numbers
from .._engine.engine import Engine
from .._engine.label_slopes import label_slopes
from .._engine.less_memory import in_smaller_pieces
from .._engine.queries import Of
from .._model.target_unit import TargetUnit
from .answers import QueryArguments, asked, finite_values, result_tables
from .influence import Influence

if TYPE_CHECKING:
    from .tracer import Tracer


def labels_influence(tracer: Tracer, query: QueryArguments, to: Any, rows: Any) -> Influence:
    """Derivatives of queries in the labels of training rows.

    ``to``: the class that labels move to, for several classes.
    """
    engine = tracer.engine
    engine.needs_derivatives()
    target = target_class(engine, to)
    queries, test_index = engine.queries(*query)
    index = row_numbers(rows, engine.n_rows, labels=tracer.row_labels)
    some = None if rows is None else index
    values = in_smaller_pieces(engine.work, lambda: label_slopes(engine, queries, index, target))
    if engine.source.target is not None:
        values *= _slopes_of_labels(engine.source.target, index)[:, None].astype(values.dtype)
    action = label_action(engine)
    size = 1 - 2 * engine.ensemble.y[index] if action == "flipped" else np.ones(len(index))
    return Influence(
        finite_values(values),
        tracer.train_index[index],
        test_index,
        queries.of,
        "label influence" if to is None else f"label influence, towards {to}",
        action,
        size,
        lower_is_better=queries.lower_is_better,
        positions=index,
        tables=result_tables(tracer, tracer.X_train, some, query.X_test, queries),
    )


def label_changes(
    tracer: Tracer, X: Any, y: Any, rows: Ints, labels: NDArray[Any], of: Of = "loss"
) -> F64:
    """(rows,) changes of the mean over X, y if single training rows get these labels; first order.

    Transformed labels count by their change as training sees it.
    """
    query = asked(tracer, X, y, of, "mean", None, None)
    engine = tracer.engine
    if tracer.classes is None:
        engine.needs_derivatives()
        queries = engine.queries(*query)[0]
        slopes = in_smaller_pieces(engine.work, lambda: label_slopes(engine, queries, rows, None))
        step = engine.labels(labels, len(rows), "the new labels") - engine.ensemble.y[rows]
        return step * slopes[:, 0]
    changes = np.zeros(len(rows))
    several = engine.ensemble.n_outputs > 1
    for label in np.unique(labels):
        same = np.flatnonzero(labels == label)
        moved = labels_influence(tracer, query, label if several else None, rows[same])
        changes[same] = moved.change[:, 0]
    return changes


def _slopes_of_labels(target: TargetUnit, index: Ints) -> F64:
    """(rows,) slopes of the labels that training fits in labels as users give them."""
    slopes = target.label_slopes(target.labels[index])
    if steep := int((~np.isfinite(slopes)).sum()):
        raise InvalidInput(
            f"{steep} of these training labels are where the transform of labels has no slope, such as zero for a "
            "square root; ask with rows= for the others, or use refit(y=...)."
        )
    return slopes


def refuse_transformed_labels(engine: Engine) -> None:
    """Raise an error for a model that transforms labels, on a cluster."""
    if engine.source.target is not None:
        raise UnsupportedModel(
            "label_influence() of a model that transforms its labels is not for clusters; use leaftrace.Tracer."
        )


def target_class(engine: Engine, to: Any) -> int | None:
    """The number of the class that labels move to, or of the label, for rows with several.

    None for models of one output, and of several for one label.
    """
    e = engine.ensemble
    if e.y.ndim == 2:
        if not isinstance(to, int | np.integer) or not 0 <= to < e.y.shape[1]:
            raise InvalidInput(
                f"rows of this model have {e.y.shape[1]} labels; say with to=0, 1, ... which of them changes."
            )
        return int(to)
    if e.n_outputs == 1 or engine.source.classes is None:
        if to is not None:
            raise InvalidInput(
                "to= names the class that labels move to, for models of three or more classes."
            )
        return None
    if to is None:
        raise InvalidInput(
            "this model has several classes; say with to= which class the labels move to."
        )
    return int(engine.labels(np.array([to]), 1, "to")[0])


def label_action(engine: Engine) -> str:
    """The change of labels whose effect tables show."""
    if engine.source.classes is None:
        return "label_raised"
    return "relabelled" if engine.ensemble.n_outputs > 1 else "flipped"
