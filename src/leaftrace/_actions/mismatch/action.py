"""Training rows that do not match the rows a model must serve: which groups should count more, and which less.

The test rows are parted at random. One half, the unseen one, only judges. The other chooses: groups of training rows
whose mean slope d(loss)/d(weight) is clear of that of the average row by the spread over parts of the test rows, then
factors for the weights of those groups (see group_weights.py). The model is retrained with them, and the loss of the
unseen half before and after says whether it was worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.grouping import column_names
from ..._data.progress import progress
from ..._data.tables import table
from ..._engine.refit import RetrainedModel
from ..._tracer.tracer import Tracer
from ..common import (
    Change,
    Effect,
    Finding,
    Interruptible,
    check_tracer,
    effects_table,
    first_order,
    paired_interval,
)
from .group_weights import descend, measured_slopes
from .partition import TREE_BINS, Column, Partition, by_tree, by_values, label_column, table_column

_LEAST = 80  # test rows
_CONFIDENCE = 0.95
_TITLE = "Groups of training rows whose weight should change to serve these test rows"
_NOTHING = (
    "No improvement: no change of the weights of groups clearly lowers the loss of these test rows. "
    "Keep the weights."
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
) -> Mismatch:
    """Finds groups of training rows whose weight should go up or down to serve these test rows, and tries it.

    >>> found = mismatch(tracer, X_slice, y_slice, features=["age"])               # doctest: +SKIP
    >>> model.fit(X_train, y_train, sample_weight=found.sample_weight)             # doctest: +SKIP

    ``X_test, y_test``  rows of the kind the model must serve: a test set, or a slice of one. Half of them choose, the
                     other half judge
    ``features``     columns whose values make the groups, each value with each label; [] for labels alone; None for
                     a tree over all columns
    ``by``           "values" of the features and the label, or the leaves of a small "tree" over them. The tree is
                     grown on half of the test rows that choose, and the other half decides which leaves are clear
    ``bins``         into how many groups of about equal size a column of many numbers is cut
    ``max_groups, min_rows``  of the tree: most leaves, and training rows in a leaf
    ``max_factor``   weights change by factors from 1 / max_factor to max_factor; their total is kept
    ``steps``        most steps of descent on the factors
    ``others``       (X, y) of other rows the model serves, to see what it costs them
    ``retrain``      train the model again with the weights found; without it, nothing is promised
    ``seed``         of the parting of the test rows

    A group moves if its direction is clear at 95 %, for all groups together; the rest moves as one. Ctrl-C ends with
    what is finished.
    """
    check_tracer(tracer)
    tracer.engine.needs_derivatives()
    by = ("values" if features is not None else "tree") if by is None else by
    if by not in ("values", "tree"):
        raise InvalidInput(f"by is {by!r}; it can be 'values', 'tree' or None.")
    if by == "values" and features is None:
        raise InvalidInput("by='values' needs features, the columns whose values make the groups.")
    if max_factor <= 1:
        raise InvalidInput(
            f"max_factor is {max_factor}; it must be larger than 1 for weights to change."
        )
    if steps < 1 or max_groups < 2 or min_rows < 1:
        raise InvalidInput(
            f"steps is {steps}, max_groups {max_groups}, min_rows {min_rows}; they are at least 1, 2 and 1."
        )
    m = inputs.row_count(X_test)
    if m < _LEAST:
        raise InvalidInput(
            f"X_test has {m} rows; pass at least {_LEAST}, or no direction can be told from chance."
        )
    y = inputs.vector(y_test, "y_test", m)
    unseen, grow, choose = _parts(m, by == "tree", seed)
    columns = _columns(tracer, X_test, y, features, TREE_BINS if by == "tree" else bins, bins)
    if by == "values":
        partition = by_values(columns, tracer.n_rows)
    else:
        slopes = (
            tracer.influence(inputs.take_rows(X_test, grow), y[grow], reduce="mean")
            .values[:, 0]
            .astype(float)
        )
        partition = by_tree(columns, tracer.sample_weight, slopes, max_groups, min_rows)
    chosen_by = inputs.take_rows(X_test, choose), y[choose]
    influence, error, clear = measured_slopes(tracer, *chosen_by, partition.train, _CONFIDENCE)
    factor = np.ones(len(clear))
    interrupted = False
    if clear.any():
        _, mover = np.unique(
            np.where(clear, np.arange(len(clear)), -1), return_inverse=True
        )  # the rest moves as one
        moved, interrupted = descend(tracer, *chosen_by, mover[partition.train], max_factor, steps)
        factor = moved[mover]
    groups = _groups(tracer, partition, influence, error, clear, factor)
    weight = tracer.sample_weight * factor[partition.train]
    if np.all(factor == 1):
        advice = "Interrupted before any weights were found." if interrupted else _NOTHING
        return Mismatch(_TITLE, advice, groups, weight, unseen, tracer.table_kind)
    model: RetrainedModel | None = None
    with Interruptible():
        for _ in progress([0], 1, "retraining", "model") if retrain and not interrupted else ():
            model = tracer.retrain(sample_weight=weight)
    rows = {
        f"loss of the {len(unseen):,} unseen test rows": (
            inputs.take_rows(X_test, unseen),
            y[unseen],
        ),
        f"loss of the {len(choose):,} that chose": chosen_by,
    } | ({} if others is None else {"loss of the others": others})
    judged = tuple(_effect(tracer, of, *part, weight, model) for of, part in rows.items())
    return Mismatch(
        _TITLE, _advice(groups, judged), groups, weight, unseen, tracer.table_kind, judged, model
    )


def _parts(m: int, tree: bool, seed: int) -> tuple[Ints, Ints, Ints]:
    """Positions of the test rows that judge, grow the tree, choose."""
    order = np.random.default_rng(seed).permutation(m)
    unseen = order[: m // 2]
    rest = order[m // 2 :]
    grown = len(rest) // 2 if tree else 0
    return unseen, rest[:grown], rest[grown:]


def _columns(
    tracer: Tracer,
    X_test: Any,
    y: np.ndarray,
    features: Sequence[Any] | None,
    bins: int,
    label_bins: int,
) -> list[Column]:
    names = [features] if isinstance(features, str) else features
    names = column_names(tracer.X_train) if names is None else list(names)
    if not names and features is None:
        raise InvalidInput(
            f"X_train is a {type(tracer.X_train).__name__}, whose columns are not known here; pass tables to Tracer."
        )
    y_train = tracer.y_train
    label = "y" if "y" not in map(str, names) else "the label"
    if tracer.classes is not None:  # one spelling of the labels on both sides
        codes = (inputs.class_codes(v, tracer.classes, "y_test").astype(int) for v in (y_train, y))
        y_train, y = (tracer.classes[c] for c in codes)
    return [
        *(table_column(tracer.X_train, X_test, name, bins) for name in names),
        label_column(y_train, y, label, label_bins, tracer.classes is not None),
    ]


def _groups(
    tracer: Tracer, partition: Partition, influence: F64, error: F64, clear: np.ndarray, factor: F64
) -> dict[str, Any]:
    """The table: groups of clear direction first, by the size of their influence."""
    G = len(influence)
    w = tracer.sample_weight
    known = partition.test[partition.test >= 0]
    order = np.lexsort([-np.abs(influence), ~clear])
    columns = {
        "group": np.array(partition.names, dtype=object),
        "rows": np.bincount(partition.train, minlength=G),
        "train_share": np.bincount(partition.train, w, G) / w.sum(),
        "test_share": np.bincount(known, minlength=G) / len(partition.test),
        "mean_influence": influence,
        "error": error,
        "direction": np.where(
            clear, np.where(influence < 0, "weigh up", "weigh down"), "leave"
        ).astype(object),
        "factor": factor,
    }
    return {name: values[order] for name, values in columns.items()}


@dataclass(frozen=True)
class Judged(Effect):
    """An effect with the interval of the last that was measured, by the spread over the test rows."""

    low: float = np.nan
    high: float = np.nan

    @property
    def improved(self) -> bool:
        """By retraining and, lest it is the luck of other splits, already with the trees as they were."""
        return self.refitted < 0 and not np.isnan(self.retrained) and self.high < 0


def _effect(
    tracer: Tracer, of: str, X: Any, y: Any, weight: F64, model: RetrainedModel | None
) -> Judged:
    loss = tracer.engine.unchanged.loss(X, y)  # (m,)
    change = Change(sample_weight=weight)
    refitted = change.refit(tracer).loss(X, y) - loss
    retrained = None if model is None else model.loss(X, y) - loss
    last = refitted if retrained is None else retrained
    return Judged(
        of,
        float(loss.mean()),
        first_order(tracer, X, y, change),
        float(refitted.mean()),
        np.nan if retrained is None else float(retrained.mean()),
        *paired_interval(last, _CONFIDENCE),
    )


def _advice(groups: dict[str, Any], effects: Sequence[Judged]) -> str:
    judged = effects[0]
    interval = f"95 % interval {judged.low:+.3g} to {judged.high:+.3g}"
    if np.isnan(judged.retrained):
        return (
            f"Not retrained: with the trees as they are, the loss of unseen rows changes by {judged.refitted:+.3g} "
            f"({interval}). Retraining may say otherwise; ask for retrain=True before you use these weights."
        )
    result = f"retrained with these weights, the loss of unseen rows changes by {judged.retrained:+.3g} ({interval})"
    if not judged.improved:
        return f"No improvement: {result}. Keep the weights as they are."
    lines = zip(groups["group"], groups["direction"], groups["factor"], strict=True)
    moved = [
        f"{direction} `{group}` (x {factor:.2g})"
        for group, direction, factor in lines
        if direction != "leave"
    ]
    more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
    text = f"{', '.join(moved[:3])}{more}: {result}. The weights are in `sample_weight`."
    cost = " They serve rows like these: see with others=(X, y) what it costs the other rows that you serve."
    if len(effects) > 2:
        cost = f" The loss of the others changes by {effects[2].retrained:+.3g}."
    return text[0].upper() + text[1:] + cost


@dataclass(frozen=True, repr=False)
class Mismatch(Finding):
    """Which groups of training rows to weigh up or down, and what that does.

    ``groups``         the columns of `table`: each group's name, rows, share of the training weight and of the test
                       rows, mean influence of a row (on the loss of the test rows, by unit of weight, less that of the
                       average row) with its standard error, direction, suggested factor
    ``sample_weight``  (n,) suggested weights; those of training where nothing was found
    ``unseen``         positions of the test rows that only judged
    ``judged``         effects on the unseen test rows, on those that chose and on others; empty where nothing was tried
    ``model``          the retrained model, or None
    """

    title: str
    advice: str
    groups: dict[str, Any]
    sample_weight: F64
    unseen: Ints
    _kind: str
    judged: tuple[Judged, ...] = ()
    model: RetrainedModel | None = None

    @property
    def improved(self) -> bool:
        """Whether retraining lowered the loss of the unseen rows, beyond chance."""
        return bool(self.judged) and self.judged[0].improved

    @property
    def table(self) -> Any:
        return table(self.groups, self._kind)

    @property
    def effects(self) -> Any:
        """Changes of mean losses; low and high bound the retrained one (the refitted, if it was not retrained)."""
        return effects_table(self.judged, self._kind)
