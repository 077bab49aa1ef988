"""Models trained with other seeds on bags of the rows, and what is asked of each.

Bags are drawn without replacement. Each row is left out as often as any other, to one, and every class keeps its share:
rows are left out in the order of a permutation that spreads each label evenly, then of another, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._engine.methods import Method
from ..._engine.queries import Of, Queries, Reduce
from ..._tracer.influence import Influence
from ..._tracer.tracer import Tracer

Bag = NDArray[np.bool_]  # (n,) which rows are in it
Fit = Callable[[Any, Any, np.ndarray, F64 | None], Any]


def draw_bags(y: np.ndarray, members: int, size: int, rng: np.random.Generator) -> list[Bag]:
    """Bags of this size of the rows with labels y (n,)."""
    # rows to leave out of each bag; the order they are left out in
    out = len(y) - size
    left = np.zeros(0, np.intp)
    bags = []
    for _ in range(members):
        if len(left) < out:
            others = np.setdiff1d(
                np.arange(len(y)), left
            )  # first, or a row could be twice out of one bag
            left = np.concatenate([left, _spread(others, y, rng), _spread(left, y, rng)])
        bag = np.ones(len(y), bool)
        bag[left[:out]] = False
        left = left[out:]
        bags.append(bag)
    return bags


def _spread(rows: Ints, y: np.ndarray, rng: np.random.Generator) -> Ints:
    """The rows in a random order that spreads each label evenly: the j-th of c falls between j / c and (j + 1) / c."""
    order = rng.permutation(rows)
    n = len(rows)
    _, label, count = np.unique(y[order], return_inverse=True, return_counts=True)
    place = np.empty(n)
    place[np.argsort(label, kind="stable")] = np.arange(n) - np.repeat(
        np.cumsum(count) - count, count
    )
    return order[np.argsort((place + rng.random(n)) / count[label])]


@dataclass(frozen=True)
class Member:
    """A fitted model, the seed it was made with and the training rows it has seen."""

    seed: int
    model: Any
    bag: Bag

    @property
    def rows(self) -> Ints:
        return np.flatnonzero(self.bag)


@dataclass(frozen=True)
class Training:
    """The rows that bags are drawn from, and how a model is trained on one."""

    X: Any
    y: np.ndarray
    sample_weight: F64 | None
    make_model: Callable[[int], Any]
    fit: Fit | None
    n_jobs: int | None

    def train(self, seed: int, bag: Bag) -> Member:
        model = self.make_model(seed)
        if self.fit is None and not hasattr(model, "fit"):
            raise InvalidInput(
                f"make_model({seed}) gave a {type(model).__name__}, which has no fit(); return an unfitted model, or "
                "pass fit= to say how it is trained."
            )
        return Member(seed, (self.fit or _fit)(model, *self._rows(bag)), bag)

    def trace(self, member: Member) -> Tracer:
        tracer = Tracer(member.model, *self._rows(member.bag), n_jobs=self.n_jobs)
        labels = np.unique(self.y)
        if tracer.classes is not None and len(tracer.classes) < len(labels):
            raise InvalidInput(
                f"the bag of member {member.seed} has rows of {len(tracer.classes)} of {len(labels)} classes, so not "
                "all members predict the same ones; use a larger bag, or bag=1.0 for other seeds on all rows."
            )
        return tracer

    def _rows(self, bag: Bag) -> tuple[Any, np.ndarray, F64 | None]:
        rows = np.flatnonzero(bag)
        return (
            inputs.take_rows(self.X, rows),
            self.y[rows],
            None if self.sample_weight is None else self.sample_weight[rows],
        )


def _fit(model: Any, X: Any, y: np.ndarray, sample_weight: F64 | None) -> Any:
    """As scikit-learn does it; of a Pipeline, the last step gets the weights."""
    if sample_weight is None:
        return model.fit(X, y)
    step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
    return model.fit(X, y, **{f"{step}sample_weight": sample_weight})


@dataclass(frozen=True)
class Question:
    """What is asked of every member: of these test rows, as `Tracer.influence` takes it. Without (X is None), of the
    training rows that the member has not seen."""

    training: Training
    X: Any
    y: Any
    of: Of
    reduce: Reduce
    output: int | None
    method: Method | None

    def influence(self, member: Member) -> Influence:
        tracer = self.training.trace(member)
        several = tracer.engine.ensemble.n_outputs > 1
        if several and self.output is None and isinstance(self.of, str) and self.of == "prediction":
            raise InvalidInput(
                "members may predict other classes for a test row; say with output= which class's score is meant."
            )
        return self._ask(tracer, member)

    def effects(self, member: Member, rows: Ints, retrain: bool) -> tuple[F64, list[str]]:
        """(4, queries): the scalars asked for and how they change without these rows, predicted, refitted and
        retrained; and the names of the queries."""
        tracer = self.training.trace(member)
        gone = np.flatnonzero(np.isin(member.rows, rows))
        X, y = self._test_rows(member)
        queries, test_index = tracer.engine.queries(X, y, self.of, self.reduce, self.output, None)
        out = np.zeros((4, len(queries)))
        out[0] = _values(queries)
        out[3] = 0.0 if retrain else np.nan
        if len(gone):
            out[1] = self._ask(tracer, member, rows=gone).change.sum(axis=0, dtype=float)
            ways = (tracer.refit, tracer.retrain) if retrain else (tracer.refit,)
            for line, way in enumerate(ways, start=2):
                out[line] = queries.change((way(gone).scores(X) - queries.scores)[:, :, None])[:, 0]
        return out, self.names(queries.of, test_index, queries.reduce is not None)

    def names(self, of: str, test_index: np.ndarray, reduced: bool) -> list[str]:
        """Of the mean over the queries and, if there are several, of each."""
        if reduced:  # a goal is one number without a word from the user
            whose = "all test rows" if self.X is not None else "the rows left out of each bag"
            return [f"{self.reduce} {of} of {whose}" if self.reduce else f"{of} of {whose}"]
        rows = [f"{of} of test row {name}" for name in test_index]
        return [f"mean {of} of {len(rows):,} test rows", *rows] if len(rows) > 1 else rows

    def _ask(self, tracer: Tracer, member: Member, **more: Any) -> Influence:
        how = {"method": self.method, "of": self.of, "reduce": self.reduce, "output": self.output}
        return tracer.influence(*self._test_rows(member), **how, **more)

    def _test_rows(self, member: Member) -> tuple[Any, Any]:
        if self.X is not None:
            return self.X, self.y
        left_out = np.flatnonzero(~member.bag)
        return inputs.take_rows(self.training.X, left_out), self.training.y[left_out]


def _values(queries: Queries) -> F64:
    """(queries,) the scalars themselves; NaN where only a gradient was given."""
    if queries.goal is not None:
        return np.array([queries.goal.at(queries.scores)])
    if queries.of == "loss":
        assert queries.y is not None
        return queries.reduced(queries.ensemble.loss.value(queries.scores, queries.y)[:, None])[
            :, 0
        ]
    known = 1.0 if queries.of == "prediction" else np.nan
    return known * queries.slope(queries.scores[:, :, None])[:, 0]
