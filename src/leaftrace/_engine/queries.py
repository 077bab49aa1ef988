"""Queries: scalars of the test predictions, and their gradients.

A query is a column of the result. Its scalar Q is the loss of a test row, its raw prediction, or anything whose
gradient c = dQ/dF is given. `reduce` makes one query of the whole test set; a goal is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .._data.arrays import F64, Ids
from .._data.errors import InvalidInput
from .._kernels import kernels, zeros
from .._model.ensemble import Ensemble
from .._model.goal import Goal, GoalRows, ReadyGoal, squeezed
from .._model.reading import Reading

Of = str | np.ndarray | Callable[[F64], Any] | Goal | ReadyGoal
Reduce = Literal["mean", "sum"] | None


@dataclass(frozen=True)
class Queries:
    """m test rows and what is asked of them."""

    ensemble: Ensemble
    leaves: Ids  # (trees, m)
    scores: F64  # (m, K)
    y: F64 | None  # (m,) labels, for the loss
    gradient: F64  # (m, K) c = dQ/dF
    of: str  # "loss", "prediction" or "goal"; the name of a Goal
    reduce: Reduce
    goal: Goal | None = None  # then `gradient` is its gradient, and `reduce` "sum"

    def __len__(self) -> int:
        return 1 if self.reduce else self.leaves.shape[1]

    @property
    def lower_is_better(self) -> bool | None:
        return self.of == "loss" or None if self.goal is None else self.goal.lower_is_better

    def seeds(self, columns: slice, width: int, dtype: np.dtype) -> tuple[Any, F64]:
        """What each leaf of the ensemble (leaves, O, width) and the base score (K, width) get from these queries."""
        e = self.ensemble
        O = e.leaf_outputs
        factors = np.repeat(e.factors, np.diff(e.step_trees))
        out = zeros((len(e.values), O, width), dtype)
        base = np.zeros((e.n_outputs, width))
        if self.reduce:
            c = self.gradient / (len(self.gradient) if self.reduce == "mean" else 1)
            sums = np.zeros((len(e.values), O))
            kernels.tree_sums(
                np.ascontiguousarray(self.leaves), e.first_output, e.tree_offset, c, sums
            )
            out[:, :, 0] = sums * np.repeat(e.factors, np.diff(e.step_leaves))[:, None]
            base[:, 0] = e.base_scale * c.sum(axis=0)
            return out, base
        ids = self.leaves[:, columns] + e.tree_offset[:, None]
        c = self.gradient[columns]
        b = np.arange(c.shape[0])
        for i in range(O):
            out[ids, i, b] = c.T[e.first_output + i] * factors[:, None]
        base[:, : len(b)] = e.base_scale * c.T
        return out, base

    def change(self, dF: F64) -> F64:
        """Q(F + dF) - Q(F) for changes of the test scores dF (m, K, B): (queries, B)."""
        if self.goal is not None:
            before = self.goal.at(self.scores)
            return np.array(
                [[self.goal.at(self.scores + d) - before for d in np.moveaxis(dF, 2, 0)]]
            )
        if self.of == "loss":
            assert self.y is not None
            moved = np.moveaxis(self.scores[:, :, None] + dF, 2, 0)  # (B, m, K)
            change = (
                self.ensemble.loss.value(moved, self.y)
                - self.ensemble.loss.value(self.scores, self.y)
            ).T
            return self.reduced(change)
        return self.slope(dF)

    def slope(self, dF: F64) -> F64:
        """dQ along dF, to first order: (queries, B)."""
        return self.reduced(np.einsum("mk,mkb->mb", self.gradient, dF))

    def reduced(self, columns: F64) -> F64:
        if self.reduce == "mean":
            return columns.mean(axis=0, keepdims=True)
        return columns.sum(axis=0, keepdims=True) if self.reduce else columns


def make_queries(
    ensemble: Ensemble,
    leaves: Ids,
    offset: F64 | None,
    y: F64 | None,
    of: Of,
    reduce: Reduce,
    output: int | None,
    classes: np.ndarray | None = None,
) -> Queries:
    """Check `of`, `reduce`, `output` and put the gradient together."""
    if reduce not in (None, "mean", "sum"):
        raise InvalidInput(
            f"reduce is {reduce!r}; it can be None (a column for each test row), 'mean' or 'sum'."
        )
    if output is not None and not (isinstance(of, str) and of == "prediction"):
        raise InvalidInput(
            "output= says which prediction is meant, so it goes with of='prediction'."
        )
    F = ensemble.scores(leaves, offset)
    if isinstance(of, str):
        if of == "loss":
            if y is None:
                raise InvalidInput(
                    "of='loss' needs the labels of the test rows; pass y_test, or of='prediction'."
                )
            return Queries(
                ensemble,
                leaves,
                F,
                y,
                ensemble.loss.gradient(ensemble.loss.state(F), y),
                of,
                reduce,
            )
        if of == "prediction":
            return Queries(ensemble, leaves, F, y, _pick_output(F, output), of, reduce)
        raise InvalidInput(
            f"of is '{of}'; it can be 'loss', 'prediction', a goal, an array of gradients or a function."
        )
    if isinstance(of, (Goal, ReadyGoal)):
        if reduce is not None:
            raise InvalidInput(
                f"reduce is '{reduce}', but a goal is one number of all test rows; leave reduce out."
            )
        goal = of.bind(GoalRows(Reading(ensemble.loss, classes), y, len(F)))
        goal.at(F)  # that it has a value
        c = gradient_at(goal.gradient, F, f"the gradient of the goal '{goal.name}'")
        return Queries(ensemble, leaves, F, y, c, goal.name, "sum", goal)
    if isinstance(of, type) and issubclass(of, (Goal, ReadyGoal)):
        raise InvalidInput(f"of is the class {of.__name__}; make a goal of it: {of.__name__}(...).")
    what = "the function given as of=" if callable(of) else "the array given as of="
    return Queries(ensemble, leaves, F, y, gradient_at(of, F, what), "goal", reduce)


def gradient_at(of: Any, F: F64, what: str) -> F64:
    """(m, K) from an array, or a function of the scores."""
    given = np.asarray(of(squeezed(F)) if callable(of) else of, dtype=np.float64)
    c = given[:, None] if given.ndim == 1 and F.shape[1] == 1 else given
    if c.shape != F.shape:
        what += " returned" if callable(of) else " has"
        raise InvalidInput(
            f"{what} shape {given.shape}; expected the gradient of your goal with respect to the raw predictions, "
            f"shape {F.shape if F.shape[1] > 1 else F.shape[:1]}."
        )
    if not np.isfinite(c).all():
        raise InvalidInput("the gradient given as of= has missing or infinite values.")
    return c


def _pick_output(F: F64, output: int | None) -> F64:
    m, K = F.shape
    if output is None:
        chosen = F.argmax(axis=1)  # the predicted class
    elif isinstance(output, (int, np.integer)) and 0 <= output < K:
        chosen = np.full(m, output)
    else:
        raise InvalidInput(f"output is {output!r}, but this model has outputs 0 to {K - 1}.")
    c = np.zeros((m, K))
    c[np.arange(m), chosen] = 1.0
    return c
