"""Queries: scalars of the test predictions, and their gradients.

A query is a column of the result. Its scalar Q is the loss of a test row, its raw prediction, or
anything whose gradient c = dQ/dF is given. `reduce` makes one query of the whole test set, or one of
each slice of it; a goal is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from .._adapters import Source
from .._adapters.base import test_codes
from .._data import inputs
from .._data.arrays import F64, Ids, Ints
from .._data.errors import InvalidInput
from .._data.query_ids import QueryRows
from .._data.row_labels import aligned, labels_of, row_index
from .._model.coupled.loss import CoupledLoss
from .._model.coupled.scalars import OwnLoss, QueryScalar
from .._model.ensemble import Ensemble
from .._model.goal import Goal, GoalRows, QueryGoal, ReadyGoal, ShapGoal, squeezed
from .._model.kernels import kernels, zeros
from .._model.linear_leaves import refuse_linear
from .._model.losses import Criterion
from .._model.reading import Reading
from .._model.target_unit import TargetUnit, criterion_of

Of = str | np.ndarray | Callable[[F64], Any] | Goal | ReadyGoal | QueryGoal | ShapGoal
Reduce = Literal["mean", "sum"] | None


@dataclass(frozen=True)
class Queries:
    """m test rows, and the scalars of their predictions."""

    ensemble: Ensemble
    leaves: Ids  # (trees, m)
    scores: F64  # (m, K)
    y: F64 | None  # (m,) labels, as `criterion` takes them
    gradient: F64  # (m, K) c = dQ/dF
    of: str  # "loss", "prediction" or "goal"; the name of a Goal
    reduce: Reduce
    goal: Goal | None = None  # then `gradient` is its gradient, and `reduce` is "sum"
    slices: Ints | None = None  # (m,) with `reduce`: numbers from 0 of the rows' slices, none empty
    # A number of each query of ranked rows, whose gradient `gradient` is; `slices` are these queries,
    # or None for their mean (`averages`) or sum. `reduce` is "sum".
    scalar: QueryScalar | None = None
    averages: bool = False
    better: bool | None = None  # whether a lower `scalar` is better
    target: TargetUnit | None = None  # where labels and predictions have another unit than scores

    of_scores = True  # they are functions of scores; those of leaf values are in leaf_queries.py

    @property
    def criterion(self) -> Criterion:
        """The loss of a test row."""
        return criterion_of(self.ensemble.loss, self.target)

    def __len__(self) -> int:
        return len(self._slice_sizes) if self.reduce else self.leaves.shape[1]

    @property
    def _slice_sizes(self) -> Ints:
        """(slices,) number of test rows in each slice."""
        return np.array([len(self.gradient)]) if self.slices is None else np.bincount(self.slices)

    def slice_gradient(self, s: int) -> F64:
        """(m, K) dQ/dF of the query of slice s, with `reduce`."""
        c = self.gradient / (self._slice_sizes[s] if self.reduce == "mean" else 1)
        return c if self.slices is None else c * (self.slices == s)[:, None]

    @property
    def lower_is_better(self) -> bool | None:
        """Whether a lower value of the scalar is better; None if that is not known."""
        if self.goal is not None:
            return self.goal.lower_is_better
        if self.scalar is not None:
            return self.better
        return True if self.of == "loss" else None

    def seeds(self, columns: slice, width: int, dtype: np.dtype) -> tuple[Any, F64]:
        """Direct derivatives of some queries in each leaf value and in the base score.

        (leaves, O, width) and (K, width): the start of a backward pass.
        """
        if self.ensemble.linear is not None:
            refuse_linear("this question")
        fbar = zeros((len(self.ensemble.values), self.ensemble.leaf_outputs, width), dtype)
        base = np.zeros((self.ensemble.n_outputs, width))
        with np.errstate(over="ignore"):  # beyond float32: the answer is not finite, and is refused
            if self.reduce:
                for lane, s in enumerate(range(len(self))[columns]):
                    self._add_reduced_seeds(s, fbar[:, :, lane], base[:, lane])
            else:
                self._add_row_seeds(columns, fbar, base)
        return fbar, base

    def _add_reduced_seeds(self, s: int, fbar: Any, base: F64) -> None:
        """Seeds of the query of slice s: fbar (leaves, O), base (K,)."""
        e = self.ensemble
        c = self.slice_gradient(s)
        sums = np.zeros((len(e.values), e.leaf_outputs))
        leaves = np.ascontiguousarray(self.leaves)
        kernels.tree_sums(leaves, e.first_output, e.tree_offset, c, sums)
        fbar[:] = sums * np.repeat(e.factors, np.diff(e.step_leaves))[:, None]
        base[:] = e.base_scale * c.sum(axis=0)

    def _add_row_seeds(self, columns: slice, fbar: Any, base: F64) -> None:
        """Seeds of queries that are test rows."""
        e = self.ensemble
        factors = np.repeat(e.factors, np.diff(e.step_trees))
        ids = self.leaves[:, columns] + e.tree_offset[:, None]
        c = self.gradient[columns]
        lanes = np.arange(c.shape[0])
        for i in range(e.leaf_outputs):
            fbar[ids, i, lanes] = c.T[e.first_output + i] * factors[:, None]
        base[:, : len(lanes)] = e.base_scale * c.T

    def change(self, dF: F64) -> F64:
        """Q(F + dF) - Q(F) for changes of the test scores dF (m, K, B): (queries, B)."""
        if self.goal is not None:
            before = self.goal.at(self.scores)
            changes = np.moveaxis(dF, 2, 0)  # (B, m, K)
            return np.array([[self.goal.at(self.scores + d) - before for d in changes]])
        if self.scalar is not None:
            values = self.scalar.at(self.scores[:, 0]).values
            before = values(self.scores[:, 0])
            moved = self.scores[:, 0] + dF[:, 0].T  # (B, m)
            change = np.stack([values(F) - before for F in moved], axis=1)  # (Q, B)
            return change if self.slices is not None else self._over_queries(change)
        if self.of == "loss":
            assert self.y is not None
            loss = self.criterion
            moved = np.moveaxis(self.scores[:, :, None] + dF, 2, 0)  # (B, m, K)
            change = loss.value(moved, self.y) - loss.value(self.scores, self.y)
            return self.reduced(change.T)
        if self.of == "prediction" and self.target is not None:
            before = self.target.back(self.scores)
            moved = [self.target.back(self.scores + d) - before for d in np.moveaxis(dF, 2, 0)]
            return self.reduced(np.stack(moved, axis=1))
        return self.slope(dF)

    def change_between(self, before: Ensemble, after: Ensemble) -> F64:
        """(queries,) Q in one model minus Q in another, both with the same trees."""
        moved = after.scores(self.leaves) - before.scores(self.leaves)
        return self.change(moved[:, :, None])[:, 0]

    def _over_queries(self, x: F64) -> F64:
        """(1, B) the mean or sum of numbers (Q, B) of queries of ranked rows."""
        return x.mean(axis=0, keepdims=True) if self.averages else x.sum(axis=0, keepdims=True)

    def gradient_at(self, F: F64) -> F64:
        """(m, K) dQ/dF at other scores F (m, K) of all test rows, before `reduce`."""
        if self.goal is not None:
            return goal_gradient(self.goal, F)
        if self.scalar is not None:
            return _scalar_gradient(self.scalar, F, self.averages)
        if self.of == "loss":
            assert self.y is not None
            return self.criterion.value_gradient(F, self.y)
        if self.of == "prediction" and self.target is not None:
            return self.target.slopes(F)
        return self.gradient  # of predictions, and of anything that was given by its gradient alone

    def slope(self, dF: F64) -> F64:
        """dQ along dF, to first order: (queries, B)."""
        return self.reduced(np.einsum("mk,mkb->mb", self.gradient, dF))

    def at(self, ensemble: Ensemble) -> Queries:
        """The same queries at other leaf values of the same trees."""
        F = self.scores + ensemble.scores(self.leaves) - self.ensemble.scores(self.leaves)
        return replace(self, ensemble=ensemble, scores=F, gradient=self.gradient_at(F))

    def reduced(self, columns: F64) -> F64:
        """(queries, B) from values of each test row (m, B)."""
        if not self.reduce:
            return columns
        parts = [columns]
        if self.slices is not None:
            parts = [columns[self.slices == s] for s in range(len(self))]
        combined = np.mean if self.reduce == "mean" else np.sum
        return np.stack([combined(part, axis=0) for part in parts])


def queries_for(
    source: Source,
    X: Any,
    y: Any,
    of: Of,
    reduce: Reduce,
    output: int | None,
    baseline: Any,
    qid: Any = None,
) -> tuple[Queries, np.ndarray]:
    """The queries about these test rows, as a user passes them, and the names of their columns.

    ``qid``: queries of ranked test rows, by ids or sizes.
    """
    labels = labels_of(X)
    y = aligned(y, labels, "y_test", "X_test")
    baseline = aligned(baseline, labels, "baseline", "X_test")
    of = aligned(of, labels, "the array given as of=", "X_test")
    leaves, offset = source.rows(X, baseline)
    m = leaves.shape[1]
    if m == 0:
        raise InvalidInput("X_test has no rows; pass at least one test row.")
    y = source.own_labels(X) if y is None else y
    codes = None if y is None else test_codes(source, y, m, "y_test")
    ranked = source.test_queries(X, aligned(qid, labels, "qid", "X_test"), m)
    loss = source.ensemble.loss
    if isinstance(loss, CoupledLoss) and loss.whole and not isinstance(of, QueryGoal):
        ranked = QueryRows(np.zeros(m, np.intp), np.array(["all"]))
    if isinstance(of, QueryGoal) or (source.ensemble.coupled and _is_loss(of)):
        return _ranked_queries(source.ensemble, leaves, offset, codes, of, reduce, ranked)
    asked = codes, of, reduce, output
    names = source.classes, labels
    queries = make_queries(source.ensemble, leaves, offset, *asked, *names, source.target)
    if queries.goal is not None:
        return queries, np.array([queries.of])
    if reduce:
        return queries, np.array([reduce])
    return queries, row_index(X, m)


def _is_loss(of: Of) -> bool:
    return isinstance(of, str) and of == "loss"


def _ranked_queries(
    ensemble: Ensemble,
    leaves: Ids,
    offset: F64 | None,
    y: F64 | None,
    of: Any,
    reduce: Reduce,
    ranked: QueryRows | None,
) -> tuple[Queries, np.ndarray]:
    """Queries about whole queries of ranked test rows, and their names."""
    what = of.name if isinstance(of, QueryGoal) else "the loss of a ranking"
    if not inputs.is_name(reduce, (None, "mean", "sum")):
        raise InvalidInput(
            f"reduce is {reduce!r}; it can be None (a column for each query), 'mean' or 'sum'."
        )
    if y is None:
        raise InvalidInput(
            f"{what} needs the labels of the test rows; pass y_test, or of='prediction'."
        )
    if ranked is None:
        raise InvalidInput(
            f"{what} is a number of a whole query; pass qid= with the query of each test row, or the sizes of the "
            "queries, or test rows that bring them (a Pool, a DMatrix), or ask for of='prediction'."
        )
    loss = ensemble.loss
    if isinstance(of, QueryGoal):
        scalar = of.scalar(y, ranked.number)
        better = of.lower_is_better
    else:
        assert isinstance(loss, CoupledLoss)
        scalar = OwnLoss(loss, y, ranked.number)
        better = True
    F = ensemble.scores(leaves, offset)
    averages = reduce == "mean"
    c = _scalar_gradient(scalar, F, averages)
    name = of.name if isinstance(of, QueryGoal) else "loss"
    slices = ranked.number if reduce is None else None
    queries = Queries(
        ensemble,
        leaves,
        F,
        y,
        c,
        name,
        "sum",
        slices=slices,
        scalar=scalar,
        averages=averages,
        better=better,
    )
    return queries, ranked.ids if reduce is None else np.array([reduce])


def _scalar_gradient(scalar: QueryScalar, F: F64, averages: bool) -> F64:
    """(m, 1) the gradient of the sum, or the mean, of the numbers of all queries."""
    c = scalar.at(F[:, 0]).gradient[:, None]
    return c / (scalar.number[-1] + 1) if averages else c


def make_queries(
    ensemble: Ensemble,
    leaves: Ids,
    offset: F64 | None,
    y: F64 | None,
    of: Of,
    reduce: Reduce,
    output: int | None,
    classes: np.ndarray | None = None,
    index: np.ndarray | None = None,
    target: TargetUnit | None = None,
) -> Queries:
    """Check `of`, `reduce` and `output`, and compute the gradient.

    ``index``   (m,) labels of the test rows in their table, or None
    ``target``  the unit of y and of predictions, if it is not that of scores
    """
    if not inputs.is_name(reduce, (None, "mean", "sum")):
        raise InvalidInput(
            f"reduce is {reduce!r}; it can be None (a column for each test row), 'mean' or 'sum'."
        )
    if output is not None and not (isinstance(of, str) and of == "prediction"):
        raise InvalidInput(
            "output= says which prediction is meant, so it goes with of='prediction'."
        )
    F = ensemble.scores(leaves, offset)
    if isinstance(of, str):
        c = _named_gradient(criterion_of(ensemble.loss, target), F, y, of, output)
        if of == "prediction" and target is not None:
            c = target.slopes(F)
        return Queries(ensemble, leaves, F, y, c, of, reduce, target=target)
    if isinstance(of, (Goal, ReadyGoal)):
        if reduce is not None:
            raise InvalidInput(
                f"reduce is '{reduce}', but a goal is one number of all test rows; leave reduce out."
            )
        reading = Reading(criterion_of(ensemble.loss, target), classes)
        goal = of.bind(GoalRows(reading, y, len(F), index))
        goal.at(F)  # raises an error if it has no value
        c = goal_gradient(goal, F)
        return Queries(ensemble, leaves, F, y, c, goal.name, "sum", goal)
    if isinstance(of, ShapGoal):
        raise InvalidInput("goals.shap() is for influence() of leaftrace.Tracer.")
    if isinstance(of, type) and issubclass(of, (Goal, ReadyGoal)):
        raise InvalidInput(f"of is the class {of.__name__}; make a goal of it: {of.__name__}(...).")
    name = "the function given as of=" if callable(of) else "the array given as of="
    return Queries(ensemble, leaves, F, y, _given_gradient(of, F, name), "goal", reduce)


def _named_gradient(
    criterion: Criterion, F: F64, y: F64 | None, of: str, output: int | None
) -> F64:
    """(m, K) dQ/dF at scores F of a query that has a name."""
    if of == "loss":
        if y is None:
            raise InvalidInput(
                "of='loss' needs the labels of the test rows; pass y_test, or of='prediction'."
            )
        return criterion.value_gradient(F, y)
    if of == "prediction":
        if output is None and criterion.several_numbers:
            raise InvalidInput(
                f"this model predicts {F.shape[1]} numbers for a row; say with output=0, 1, ... which one is meant."
            )
        return output_gradient(F, output)
    raise InvalidInput(
        f"of is '{of}'; it can be 'loss', 'prediction', a goal, an array of gradients or a function."
    )


def goal_gradient(goal: Goal, F: F64) -> F64:
    """(m, K) the gradient of a goal at scores F (m, K)."""
    return _given_gradient(goal.gradient, F, f"the gradient of the goal '{goal.name}'")


def _given_gradient(of: Any, F: F64, name: str) -> F64:
    """(m, K) the gradient that a user gives as an array, or as a function of the scores F (m, K).

    ``name``: of the array or function, for messages.
    """
    given = inputs.array_of_numbers(of(squeezed(F)) if callable(of) else of, name)
    c = given[:, None] if given.ndim == 1 and F.shape[1] == 1 else given
    if c.shape != F.shape:
        verb = "returned" if callable(of) else "has"
        raise InvalidInput(
            f"{name} {verb} shape {given.shape}; expected the gradient of your goal with respect to the raw "
            f"predictions, shape {F.shape if F.shape[1] > 1 else F.shape[:1]}."
        )
    if not np.isfinite(c).all():
        raise InvalidInput("the gradient given as of= has missing or infinite values.")
    return c


def output_gradient(F: F64, output: int | None) -> F64:
    """(m, K) 1 for the output that is meant: the given one, or that of the predicted class."""
    m, K = F.shape
    if output is None:
        chosen = F.argmax(axis=1)
    elif isinstance(output, (int, np.integer)) and 0 <= output < K:
        chosen = np.full(m, output)
    else:
        raise InvalidInput(f"output is {output!r}, but this model has outputs 0 to {K - 1}.")
    c = np.zeros((m, K))
    c[np.arange(m), chosen] = 1.0
    return c
