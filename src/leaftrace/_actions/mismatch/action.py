"""Training rows that do not match the rows a model must serve: groups to weight differently.

The test rows are split at random. One half, the unseen one, only judges. The other half chooses:
first the groups of training rows whose mean slope d(loss)/d(weight) is clear of that of the average
row, by the spread over parts of the test rows; then factors for the weights of those groups (see
group_weights.py). The model is retrained with them, and the loss of the unseen half before and
after shows whether it was worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.grouping import column_names
from ..._data.progress import progress
from ..._data.row_labels import aligned, labels_of
from ..._data.time_limit import TimeLimit
from ..._engine.refit import RefittedModel, RetrainedModel
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer
from ..common import Interruptible, check_tracer, first_order, stopping_note
from ..effects import in_target_unit, unit_of
from ..effects import judged as judge
from ..statistics import paired_interval
from .group_weights import descend, measured_slopes
from .partition import (
    TREE_BINS,
    GroupedColumn,
    Partition,
    by_tree,
    by_values,
    label_column,
    table_column,
)
from .result import DECREASE, INCREASE, LEAVE, Judged, Mismatch, advice_of

_MIN_ROWS = 80  # test rows
_CONFIDENCE = 0.95
_TITLE = "Groups of training rows whose weight should change to serve these test rows"
_NOTHING = (
    "No improvement: no change of the weights of groups clearly lowers the loss of these test "
    "rows. Keep the weights."
)


def mismatch(
    tracer: Tracer,
    X_test: Any,
    y_test: Any,
    features: Sequence[Any] | None = None,
    *,
    by: Literal["values", "tree"] | None = None,
    bins: int = 5,
    max_groups: int = 8,
    min_rows: int = 10,
    max_factor: float = 5.0,
    steps: int = 10,
    others: tuple[Any, Any] | None = None,
    retrain: bool = True,
    seed: int = 0,
    time_limit: float | None = None,
) -> Mismatch:
    """Find groups of training rows whose weight should change to serve these test rows, and try it.

    >>> found = mismatch(tracer, X_slice, y_slice, features=["age"])               # doctest: +SKIP
    >>> model.fit(X_train, y_train, sample_weight=found.sample_weight)             # doctest: +SKIP

    ``X_test, y_test``  rows of the kind the model must serve: a test set, or a slice of one. Half
                     of them choose, the other half judge
    ``features``     columns whose values make the groups, each value with each label; [] for labels
                     alone; None for a tree over all columns
    ``by``           "values" of the features and the label, or the leaves of a small "tree" over
                     them. The tree is grown on half of the test rows that choose, and the other
                     half decides which leaves are clear
    ``bins``         number of groups of about equal size for a column of many numbers
    ``max_groups, min_rows``  of the tree: most leaves, and fewest training rows in a leaf
    ``max_factor``   weights change by factors from 1 / max_factor to max_factor; the total is kept
    ``steps``        most steps of descent on the factors
    ``others``       (X, y) of other rows the model serves, to see the effect on them
    ``retrain``      train the model again with the weights found; without it, nothing is confirmed
    ``seed``         seed of the random halves of the test rows
    ``time_limit``   seconds after which no more step is taken, nor a model trained

    A group moves if its direction is clear at 95 %, for all groups together; the rest moves as one.
    Ctrl-C ends it with the results that are finished.
    """
    time = TimeLimit(time_limit)
    check_tracer(tracer, "mismatch")
    tracer.engine.needs_derivatives()
    use_tree = checked_way(by, features) == "tree"
    check_settings(max_factor, steps, max_groups, min_rows)
    y = checked_labels(X_test, y_test)
    parts = split_rows(len(y), use_tree, seed)
    columns = _columns(tracer, X_test, y, features, TREE_BINS if use_tree else bins, bins)
    if use_tree:
        slopes = _mean_influence(tracer, *rows_of(X_test, y, parts.growing))
        partition = by_tree(columns, tracer.sample_weight, slopes, int(max_groups), int(min_rows))
    else:
        partition = by_values(columns, tracer.n_rows)
    choosing = rows_of(X_test, y, parts.choosing)
    mean, error, clear = measured_slopes(tracer, *choosing, partition.train, _CONFIDENCE)
    factor, interrupted = _factors(
        tracer, *choosing, partition, clear, max_factor, int(steps), time
    )
    groups = _group_columns(tracer, partition, mean, error, clear, factor)
    weight = tracer.sample_weight * factor[partition.train]
    if np.all(factor == 1):
        ended = interrupted or time.passed
        advice = "Interrupted before any weights were found." if ended else _NOTHING
        advice = time.note + advice
        return Mismatch(_TITLE, advice, groups, weight, parts.unseen, tracer.table_kind)
    training = tracer.engine.training_set(sample_weight=weight)
    model = None
    if inputs.flag(retrain, "retrain") and not interrupted and time.allows():
        model = _retrained(tracer, training)
    loss = tracer.engine.criterion
    judged = tuple(
        in_target_unit(judge(effect, (effect.low, effect.high)), loss)
        for effect in judged_effects(tracer, X_test, y, parts, others, training, model)
    )
    return Mismatch(
        _TITLE,
        time.note
        + advice_of(groups, judged, unit_of(loss))
        + stopping_note(tracer, model is not None),
        groups,
        weight,
        parts.unseen,
        tracer.table_kind,
        judged,
        model,
    )


def checked_way(by: str | None, features: Sequence[Any] | None) -> str:
    """How groups are made: "values" or "tree"."""
    is_list = isinstance(features, str) or (
        isinstance(features, Iterable) and np.ndim(features) < 2
    )
    if features is not None and not is_list:
        raise InvalidInput(
            f"features is {features!r}; pass a list of columns of X, [] for none of them, or None."
        )
    if by is None:
        return "tree" if features is None else "values"
    if not inputs.is_name(by, ("values", "tree")):
        raise InvalidInput(f"by is {by!r}; it can be 'values', 'tree' or None.")
    if by == "values" and features is None:
        raise InvalidInput("by='values' needs features, the columns whose values make the groups.")
    return by


def check_settings(max_factor: float, steps: int, max_groups: int, min_rows: int) -> None:
    """Check the numbers among the arguments of `mismatch`."""
    if not inputs.is_number(max_factor) or max_factor <= 1:
        raise InvalidInput(
            f"max_factor is {max_factor!r}; it must be larger than 1 for weights to change."
        )
    numbers = (steps, max_groups, min_rows)
    if not all(map(inputs.is_whole, numbers)) or steps < 1 or max_groups < 2 or min_rows < 1:
        raise InvalidInput(
            f"steps is {steps!r}, max_groups {max_groups!r}, min_rows {min_rows!r}; they are whole numbers of at "
            "least 1, 2 and 1."
        )


def checked_labels(X: Any, y: Any) -> np.ndarray:
    """The labels of the test rows, which must be enough."""
    m = inputs.row_count(X)
    if m < _MIN_ROWS:
        raise InvalidInput(
            f"X_test has {m} rows; pass at least {_MIN_ROWS}, or no direction can be told from "
            "chance."
        )
    return inputs.vector(aligned(y, labels_of(X), "y_test", "X_test"), "y_test", m)


class _Parts(NamedTuple):
    """Positions of the test rows that judge, grow the tree, choose."""

    unseen: Ints
    growing: Ints
    choosing: Ints


def split_rows(m: int, tree: bool, seed: int) -> _Parts:
    """Split m test rows at random. ``tree``: some of them grow a tree."""
    order = inputs.random_numbers(seed).permutation(m)
    rest = order[m // 2 :]
    grown = len(rest) // 2 if tree else 0
    return _Parts(order[: m // 2], rest[:grown], rest[grown:])


def rows_of(X: Any, y: np.ndarray, index: Ints) -> tuple[Any, np.ndarray]:
    return inputs.take_rows(X, index), y[index]


def _mean_influence(tracer: Tracer, X: Any, y: np.ndarray) -> F64:
    """(n,) influence of each training row on the mean loss of X, y."""
    return tracer.influence(X, y, reduce="mean").values[:, 0].astype(float)


def _columns(
    tracer: Tracer,
    X_test: Any,
    y: np.ndarray,
    features: Sequence[Any] | None,
    bins: int,
    label_bins: int,
) -> list[GroupedColumn]:
    """The columns that make groups, and the label as the last one."""
    names = [features] if isinstance(features, str) else features
    names = column_names(tracer.X_train) if names is None else list(names)
    if features is None and not names:
        raise InvalidInput(
            f"X_train is a {type(tracer.X_train).__name__}, whose columns are not known here; pass "
            "tables to Tracer."
        )
    y_train = tracer.y_train
    if tracer.classes is not None:  # one spelling of the labels in both sets
        y_train, y = (
            tracer.classes[inputs.class_codes(labels, tracer.classes, "y_test").astype(int)]
            for labels in (y_train, y)
        )
    label = "y" if "y" not in map(str, names) else "the label"
    return [
        *(table_column(tracer.X_train, X_test, name, bins) for name in names),
        label_column(y_train, y, label, label_bins, tracer.classes is not None),
    ]


def _factors(
    tracer: Tracer,
    X: Any,
    y: np.ndarray,
    partition: Partition,
    clear: np.ndarray,
    max_factor: float,
    steps: int,
    time: TimeLimit,
) -> tuple[F64, bool]:
    """(G,) factors for the weights of groups that lower the loss of X, y; whether Ctrl-C ended it.

    Groups whose direction is not clear move as one.
    """
    if not clear.any():
        return np.ones(len(clear)), False
    _, mover = np.unique(np.where(clear, np.arange(len(clear)), -1), return_inverse=True)
    factors, interrupted = descend(tracer, X, y, mover[partition.train], max_factor, steps, time)
    return factors[mover], interrupted


def _group_columns(
    tracer: Tracer, partition: Partition, influence: F64, error: F64, clear: np.ndarray, factor: F64
) -> dict[str, Any]:
    """Columns of the table: groups of clear direction first, by the size of their influence."""
    G = len(influence)
    w = tracer.sample_weight
    known = partition.test[partition.test >= 0]
    towards = np.where(influence < 0, INCREASE, DECREASE)
    columns = {
        "group": np.array(partition.names, dtype=object),
        "rows": np.bincount(partition.train, minlength=G),
        "train_share": np.bincount(partition.train, w, G) / w.sum(),
        "test_share": np.bincount(known, minlength=G) / len(partition.test),
        "mean_influence": influence,
        "error": error,
        "direction": np.where(clear, towards, LEAVE).astype(object),
        "factor": factor,
    }
    order = np.lexsort([-np.abs(influence), ~clear])
    return {name: values[order] for name, values in columns.items()}


def _retrained(tracer: Tracer, training: TrainingSet) -> RetrainedModel | None:
    """The retrained model; None if Ctrl-C ended it."""
    model = None
    with Interruptible():
        for _ in progress(range(1), 1, "retraining", "model"):
            model = tracer.retrain(training)
    return model


def judged_effects(
    tracer: Tracer,
    X_test: Any,
    y: np.ndarray,
    parts: _Parts,
    others: tuple[Any, Any] | None,
    training: TrainingSet,
    retrained: RetrainedModel | None,
) -> tuple[Judged, ...]:
    """Effects of the new weights on the unseen test rows, on those that chose, and on others."""
    refitted = tracer.refit(training)
    judges = {
        f"loss of the {len(parts.unseen):,} unseen test rows": rows_of(X_test, y, parts.unseen),
        f"loss of the {len(parts.choosing):,} that chose": rows_of(X_test, y, parts.choosing),
    }
    if others is not None:
        judges["loss of the others"] = others
    return tuple(
        _effect(tracer, of, *rows, training, refitted, retrained) for of, rows in judges.items()
    )


def _effect(
    tracer: Tracer,
    of: str,
    X: Any,
    y: Any,
    training: TrainingSet,
    refitted: RefittedModel,
    retrained: RetrainedModel | None,
) -> Judged:
    """Effect of the new weights on the mean loss of X, y. ``of``: its name."""
    before = tracer.engine.unchanged.loss(X, y)  # (m,)
    by_refitting = refitted.loss(X, y) - before
    by_retraining = None if retrained is None else retrained.loss(X, y) - before
    last = by_refitting if by_retraining is None else by_retraining
    low, high = paired_interval(last, _CONFIDENCE)
    return Judged(
        of,
        before=float(before.mean()),
        predicted=first_order(tracer, X, y, training),
        refitted=float(by_refitting.mean()),
        retrained=np.nan if by_retraining is None else float(by_retraining.mean()),
        low=low,
        high=high,
    )
