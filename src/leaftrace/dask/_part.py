"""What is done with the rows of one partition. All functions are pure: of the partition, and of what the client sends
to all of them. So a partition that is lost with its worker is made again, and all that was computed from it.

The model travels once, as a `Source` opened with a few stand-in rows; then its `Trace` without rows. A partition has
the rows; put together they are what the engine works on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._adapters import Source
from .._data import inputs
from .._data.arrays import F64, Ids, Ints, Real
from .._engine.backward import LeafAdjoint, backward_chunks, expand_training
from .._engine.leaf_space import LeafSpace, build
from .._engine.refit import class_factors
from .._engine.replay import Trace, base_labels, largest_gradient
from .._engine.steps import Ask, Step, sums_of_all_steps
from .._engine.workspace import Workspace
from .._kernels import zeros
from .._model.ensemble import Ensemble
from .._tracer.influence import Influence, rank

FEW = 1000  # so many different labels are counted one by one


@dataclass(frozen=True)
class Labels:
    """Labels of all rows, summed up: the weight of each, or of many numbers their mean and range."""

    n: int
    weight: float
    of_label: dict[Any, float] | None
    total: float = 0.0  # of weight times label
    low: float = np.inf
    high: float = -np.inf
    index: tuple[int, ...] = ()  # rows of each partition

    def __add__(self, other: Labels) -> Labels:
        both = None
        each = (self.of_label, other.of_label)
        if each[0] is not None and each[1] is not None:
            both = dict(each[0])
            for label, weight in each[1].items():
                both[label] = both.get(label, 0.0) + weight
            both = both if len(both) <= FEW else None
        sums = self.n + other.n, self.weight + other.weight, both, self.total + other.total
        bounds = min(self.low, other.low), max(self.high, other.high)
        return Labels(*sums, *bounds, self.index + other.index)


def labels_of(y: Any, w: Any) -> Labels:
    y = np.asarray(y).ravel()
    y = inputs.vector(y, "y", len(y))
    w = np.ones(len(y)) if w is None else inputs.numbers(np.asarray(w), "sample_weight", len(y))
    if (w < 0).any():
        raise inputs.InvalidInput(
            "sample_weight has negative values; weights must be zero or more."
        )
    names, code = np.unique(y, return_inverse=True)
    of_label = dict(zip(names.tolist(), np.bincount(code, w, len(names)).tolist(), strict=True))
    few = of_label if len(names) <= FEW else None
    if y.dtype.kind not in "iufb" or not len(y):
        return Labels(len(y), float(w.sum()), of_label, index=(len(y),))
    numbers = y.astype(np.float64)
    return Labels(
        len(y), float(w.sum()), few, float(w @ numbers), numbers.min(), numbers.max(), (len(y),)
    )


@dataclass(frozen=True)
class Part:
    """The rows of a partition as the leaves see them."""

    leaves: Ids  # (trees, n)
    y: F64
    w: F64
    factor: F64
    base_factor: F64 | None
    names: np.ndarray  # (n,)

    def __sizeof__(self) -> int:  # by which Dask places work
        return sum(x.nbytes for x in (self.leaves, self.y, self.w, self.factor))

    def ensemble(self, e: Ensemble) -> Ensemble:
        """The model with these training rows."""
        rows = {"leaves": self.leaves, "y": self.y, "w": self.w, "w_factor": self.factor}
        return replace(e, **rows, base_factor=self.base_factor)

    def trace(self, trace: Trace) -> Trace:
        return replace(trace, ensemble=self.ensemble(trace.ensemble))

    def work(self, trace: Trace, dtype: np.dtype) -> Workspace:
        """Nothing is kept beyond a task: effects come chunk by chunk."""
        return Workspace(self.trace(trace), dtype, 1, 1 << 28)


def part_of(source: Source, X: Any, y: Any, w: Any, start: int) -> Part:
    """``start``: rows in the partitions before."""
    leaves, offset = source.rows(X)
    if offset is not None:
        raise inputs.InvalidInput(
            "models that start from scores given to each row are not for leaftrace.dask."
        )
    n = leaves.shape[1]
    e = source.ensemble
    codes = source.labels(np.asarray(y).ravel(), n, "y")
    weight = np.ones(n) if w is None else inputs.numbers(np.asarray(w), "sample_weight", n)
    own = [e.w_factor] if e.base_factor is None else [e.w_factor, e.base_factor]
    factor, *base = class_factors(source, codes, own)
    labels, weight = source.as_trained(codes, weight, factor, base[0] if base else None)
    names = inputs.row_index(X, n) if hasattr(X, "index") else np.arange(start, start + n)
    return Part(
        np.ascontiguousarray(leaves), labels, weight, factor, base[0] if base else None, names
    )


@dataclass(frozen=True)
class Totals:
    """Rows, weight, and labels with the weights that the starting score comes from, condensed."""

    n: int
    weight: float
    labels: tuple[F64, F64]

    def __add__(self, other: Totals) -> Totals:
        labels = [np.concatenate(pair) for pair in zip(self.labels, other.labels, strict=True)]
        return Totals(self.n + other.n, self.weight + other.weight, (labels[0], labels[1]))


def totals_of(part: Part, e: Ensemble) -> Totals:
    e = part.ensemble(e)
    return Totals(e.n_rows, float(e.w.sum()), base_labels(e))


@dataclass(frozen=True)
class Answers:
    """To what the steps ask, by step."""

    of_step: dict[int, Any]
    gradient: float = 0.0  # the largest at the starting score

    def __add__(self, other: Answers) -> Answers:
        both = {t: sums + other.of_step[t] for t, sums in self.of_step.items()}
        return Answers(both, max(self.gradient, other.gradient))


def answers(part: Part, e: Ensemble, asks: dict[int, Ask]) -> Answers:
    """Sums over the rows of this partition, of all steps that ask, at the model's own scores."""
    e = part.ensemble(e)
    A = e.start()
    gradient = largest_gradient(e, A)
    first = all(ask.S is None and ask.s is None for ask in asks.values())
    known = sums_of_all_steps(e, A, None) if first else None
    found = {}
    for t in range(max(asks) + 1):
        step = Step(e, t, A, known=None if known is None else known[e.leaf_range(t)])
        if t in asks:
            found[t] = step.answer(asks[t])
    return Answers(found, gradient)


def pairs(part: Part, trace: Trace, dtype: np.dtype) -> LeafSpace:
    """W of the leaf form."""
    return build(part.work(trace, dtype))


@dataclass(frozen=True)
class Carry:
    """The backward pass between two steps: scores A (n, K) before the later one, and abar (n, K, B)."""

    A: F64
    abar: Real

    def __sizeof__(self) -> int:
        return self.A.nbytes + self.abar.nbytes


def begin_backwards(part: Part, trace: Trace, width: int, dtype: np.dtype) -> Carry:
    e = part.ensemble(trace.ensemble)
    return Carry(e.scores(e.leaves, e.offset), zeros((e.n_rows, e.n_outputs, width), dtype))


def step_backwards(
    part: Part, carry: Carry, trace: Trace, t: int, felt: Real
) -> tuple[Carry, Real]:
    """Step t: the carry after it, and what the leaves of the step before feel (at t = 0, the starting score)."""
    e = part.ensemble(trace.ensemble)
    work = part.work(trace, carry.abar.dtype)
    A = carry.A.copy()
    abar = zeros(carry.abar.shape, carry.abar.dtype)
    abar[...] = carry.abar
    e.move(t + 1, e.leaves, A, back=True)
    before = e.leaf_range(t - 1) if t else slice(0, 0)
    below = (
        zeros((before.stop - before.start, e.leaf_outputs, abar.shape[2]), abar.dtype)
        if t
        else None
    )
    backward_chunks(work, t, A, felt, abar, below)
    sums = abar.sum(axis=0, dtype=np.float64) if below is None else below
    return Carry(A, abar), sums


@dataclass(frozen=True)
class Question:
    """What a column is about, for the words of tables."""

    of: str
    method: str
    lower_is_better: bool | None


def values_of(part: Part, trace: Trace, blocks: Sequence[LeafAdjoint]) -> Real:
    """(n, columns) dQ/dw of the rows of this partition."""
    work = part.work(trace, blocks[0].fbar.dtype)
    return np.concatenate([expand_training(work, block, None) for block in blocks], axis=1)


@dataclass(frozen=True)
class Top:
    """The rows that matter most to each query."""

    k: int
    queries: tuple[
        tuple[Ints, np.ndarray, np.ndarray, Real], ...
    ]  # positions over all rows, names, effects, changes

    def __add__(self, other: Top) -> Top:
        out = []
        for a, b in zip(self.queries, other.queries, strict=True):
            number, name, effect, change = (np.concatenate(pair) for pair in zip(a, b, strict=True))
            first = np.lexsort((number, -np.abs(change)))[: self.k]  # ties go to the earlier row
            out.append((number[first], name[first], effect[first], change[first]))
        return Top(self.k, tuple(out))


def top_of(
    part: Part,
    start: int,
    trace: Trace,
    block: LeafAdjoint,
    k: int,
    effect: str | None,
    question: Question,
) -> Top:
    e = part.ensemble(trace.ensemble)
    values = values_of(part, trace, [block])
    about = question.of, question.method, "removed", e.sample_weight
    here = Influence(
        values,
        part.names,
        np.arange(block.columns),
        *about,
        lower_is_better=question.lower_is_better,
    )
    lines = [
        (o + start, part.names[o], np.array(words, dtype=object), change)
        for o, words, change in rank(here, k, effect)
    ]
    return Top(k, tuple(lines))
