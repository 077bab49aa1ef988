"""Computations with the rows of one partition.

All functions are pure: they depend on the partition, and on data that the client sends to all
partitions. So if a partition is lost with its worker, Dask computes it again, and all that was
computed from it.

The model is sent once, as a `Source` opened with a few stand-in rows, and then its `Trace` without
rows. Together with the rows of a partition it is a `Workspace` of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._adapters import Source
from .._data import inputs
from .._data.arrays import F64, Ids, Ints, Real
from .._data.row_labels import row_index
from .._engine.backward import LeafAdjoint, backward_chunks, expand_training
from .._engine.leaf_equations import SumsRequest
from .._engine.leaf_space import LeafSpace, build_leaf_space
from .._engine.refit import class_factors
from .._engine.replay import Trace, base_labels, largest_gradient
from .._engine.steps import Step, TrainingScores, sums_of_all_steps
from .._engine.workspace import Workspace
from .._kernels import zeros
from .._model.ensemble import Ensemble
from .._tracer.influence import Influence, rank

MAX_DISTINCT_LABELS = 1000  # up to this many are counted one by one


# ---- labels, before the model is opened ----


@dataclass(frozen=True)
class LabelSummary:
    """Labels of all rows: the weight of each, or the mean and range of many numbers."""

    n: int
    weight: float
    weight_by_label: dict[Any, float] | None  # None: too many labels
    total: float = 0.0  # sum of weight times label
    low: float = np.inf
    high: float = -np.inf
    sizes: tuple[int, ...] = ()  # number of rows of each partition

    def __add__(self, other: LabelSummary) -> LabelSummary:
        return LabelSummary(
            self.n + other.n,
            self.weight + other.weight,
            _add_weights(self.weight_by_label, other.weight_by_label),
            self.total + other.total,
            min(self.low, other.low),
            max(self.high, other.high),
            self.sizes + other.sizes,
        )


def _add_weights(a: dict[Any, float] | None, b: dict[Any, float] | None) -> dict[Any, float] | None:
    """Weights of the labels of both; None if they are too many."""
    if a is None or b is None:
        return None
    both = dict(a)
    for label, weight in b.items():
        both[label] = both.get(label, 0.0) + weight
    return both if len(both) <= MAX_DISTINCT_LABELS else None


def summarise_labels(y: Any, w: Any) -> LabelSummary:
    """Summarise the labels y and weights w (or None) of a partition."""
    y = np.asarray(y).ravel()
    y = inputs.vector(y, "y", len(y))
    w = np.ones(len(y)) if w is None else inputs.numbers(np.asarray(w), "sample_weight", len(y))
    if (w < 0).any():
        raise inputs.InvalidInput(
            "sample_weight has negative values; weights must be zero or more."
        )
    n = len(y)
    weight = float(w.sum())
    names, code = np.unique(y, return_inverse=True)
    weights = np.bincount(code, w, len(names))
    by_label = dict(zip(names.tolist(), weights.tolist(), strict=True))
    if y.dtype.kind not in "iufb" or not n:
        return LabelSummary(n, weight, by_label, sizes=(n,))
    numbers = y.astype(np.float64)
    few = by_label if len(names) <= MAX_DISTINCT_LABELS else None
    total = float(w @ numbers)
    return LabelSummary(n, weight, few, total, numbers.min(), numbers.max(), (n,))


# ---- rows ----


@dataclass(frozen=True)
class Part:
    """The rows of a partition with the leaves that hold them."""

    leaves: Ids  # (trees, n)
    y: F64
    w: F64
    factor: F64
    base_factor: F64 | None
    names: np.ndarray  # (n,)

    def __sizeof__(self) -> int:
        """Bytes of the arrays, by which Dask places work."""
        return sum(x.nbytes for x in (self.leaves, self.y, self.w, self.factor))

    def ensemble(self, e: Ensemble) -> Ensemble:
        """The model with these training rows."""
        rows = {"leaves": self.leaves, "y": self.y, "w": self.w, "w_factor": self.factor}
        return replace(e, **rows, base_factor=self.base_factor)

    def workspace(self, trace: Trace, dtype: np.dtype) -> Workspace:
        """A workspace for one task. It keeps no effects, and computes them chunk by chunk."""
        with_rows = replace(trace, ensemble=self.ensemble(trace.ensemble))
        return Workspace(with_rows, dtype, 1, 1 << 28)


def open_part(source: Source, X: Any, y: Any, w: Any, start: int) -> Part:
    """Find the leaves of the rows of a partition.

    ``start``: number of rows in the partitions before.
    """
    leaves, offset = source.rows(X)
    if offset is not None:
        raise inputs.InvalidInput(
            "models that start from scores given to each row are not for leaftrace.dask."
        )
    n = leaves.shape[1]
    e = source.ensemble
    codes = source.labels(np.asarray(y).ravel(), n, "y")
    weight = np.ones(n) if w is None else inputs.numbers(np.asarray(w), "sample_weight", n)
    base_factor = None
    if e.base_factor is None:
        (factor,) = class_factors(source, codes, [e.w_factor])
    else:
        factor, base_factor = class_factors(source, codes, [e.w_factor, e.base_factor])
    labels, weight = source.as_trained(codes, weight, factor, base_factor)
    names = row_index(X, n) if hasattr(X, "index") else np.arange(start, start + n)
    return Part(np.ascontiguousarray(leaves), labels, weight, factor, base_factor, names)


# ---- replay ----


@dataclass(frozen=True)
class Totals:
    """Number and weight of rows, and condensed labels and weights that give the starting score."""

    n: int
    weight: float
    labels: tuple[F64, F64]

    def __add__(self, other: Totals) -> Totals:
        y = np.concatenate([self.labels[0], other.labels[0]])
        w = np.concatenate([self.labels[1], other.labels[1]])
        return Totals(self.n + other.n, self.weight + other.weight, (y, w))


def take_totals(part: Part, e: Ensemble) -> Totals:
    """The totals of one partition."""
    e = part.ensemble(e)
    return Totals(e.n_rows, float(e.w.sum()), base_labels(e))


@dataclass(frozen=True)
class StepSums:
    """Sums over rows that steps have requested."""

    by_step: dict[int, Any]
    gradient: float = 0.0  # the largest absolute one at the starting score

    def __add__(self, other: StepSums) -> StepSums:
        by_step = {t: sums + other.by_step[t] for t, sums in self.by_step.items()}
        return StepSums(by_step, max(self.gradient, other.gradient))


def take_sums(part: Part, e: Ensemble, requests: dict[int, SumsRequest]) -> StepSums:
    """The requested sums over the rows of this partition, at the model's own scores."""
    e = part.ensemble(e)
    scores = TrainingScores(e)
    gradient = largest_gradient(e, scores.A)
    are_first = all(request.S is None and request.s is None for request in requests.values())
    all_sums = sums_of_all_steps(e, scores.A, None) if are_first else None
    by_step = {}
    for t in range(max(requests) + 1):
        step = Step(e, t)
        if all_sums is None:
            step.advance(scores)
        else:
            step.use_sums(all_sums[e.leaf_range(t)])
        if t in requests:
            by_step[t] = step.answer(requests[t])
    return StepSums(by_step, gradient)


# ---- backward pass ----


def part_leaf_space(part: Part, trace: Trace, dtype: np.dtype) -> LeafSpace:
    """The leaf space of this partition."""
    return build_leaf_space(part.workspace(trace, dtype))


@dataclass(frozen=True)
class Carry:
    """The backward pass between two steps."""

    A: F64  # (n, K) scores before the later step
    abar: Real  # (n, K, B) derivatives of the queries in them

    def __sizeof__(self) -> int:
        return self.A.nbytes + self.abar.nbytes


def begin_backwards(part: Part, trace: Trace, width: int, dtype: np.dtype) -> Carry:
    """The backward pass before the last step."""
    e = part.ensemble(trace.ensemble)
    return Carry(e.scores(e.leaves, e.offset), zeros((e.n_rows, e.n_outputs, width), dtype))


def step_backwards(
    part: Part, carry: Carry, trace: Trace, t: int, fbar: Real
) -> tuple[Carry, Real]:
    """Go back over step t, whose leaf values have derivatives fbar (M, O, B).

    Returns the carry after it, and what these rows add to the derivatives in the leaf values of the
    step before, or, at t = 0, in the starting score.
    """
    e = part.ensemble(trace.ensemble)
    work = part.workspace(trace, carry.abar.dtype)
    A = carry.A.copy()
    abar = zeros(carry.abar.shape, carry.abar.dtype)
    abar[...] = carry.abar
    e.move(t + 1, e.leaves, A, back=True)
    below = None
    if t:
        M = int(e.step_leaves[t] - e.step_leaves[t - 1])
        below = zeros((M, e.leaf_outputs, abar.shape[2]), abar.dtype)
    backward_chunks(work, t, A, fbar, abar, below)
    sums = abar.sum(axis=0, dtype=np.float64) if below is None else below
    return Carry(A, abar), sums


# ---- from leaves to rows ----


def part_influence(part: Part, trace: Trace, blocks: Sequence[LeafAdjoint]) -> Real:
    """(n, columns) dQ/dw of the rows of this partition."""
    work = part.workspace(trace, blocks[0].fbar.dtype)
    return np.concatenate([expand_training(work, block, None) for block in blocks], axis=1)


@dataclass(frozen=True)
class QueryWords:
    """Facts about the queries that decide the words of tables: see `Influence`."""

    of: str
    method: str
    lower_is_better: bool | None


# Positions over all rows, names, effects and changes of the most important rows of one query.
TopOfQuery = tuple[Ints, np.ndarray, np.ndarray, Real]


@dataclass(frozen=True)
class TopRows:
    """The k rows that matter most to each query."""

    k: int
    queries: tuple[TopOfQuery, ...]

    def __add__(self, other: TopRows) -> TopRows:
        out = []
        for mine, theirs in zip(self.queries, other.queries, strict=True):
            columns = (np.concatenate(pair) for pair in zip(mine, theirs, strict=True))
            number, name, effect, change = columns
            first = np.lexsort((number, -np.abs(change)))[: self.k]  # ties go to the earlier row
            out.append((number[first], name[first], effect[first], change[first]))
        return TopRows(self.k, tuple(out))


def part_top(
    part: Part,
    start: int,
    trace: Trace,
    block: LeafAdjoint,
    k: int,
    effect: str | None,
    words: QueryWords,
) -> TopRows:
    """The rows of this partition that matter most.

    ``start``: number of rows in the partitions before.
    """
    influence = Influence(
        part_influence(part, trace, [block]),
        part.names,
        np.arange(block.columns),
        words.of,
        words.method,
        "removed",
        part.ensemble(trace.ensemble).sample_weight,
        lower_is_better=words.lower_is_better,
    )
    queries = [
        (rows + start, part.names[rows], np.array(effects, dtype=object), change)
        for rows, effects, change in rank(influence, k, effect)
    ]
    return TopRows(k, tuple(queries))
