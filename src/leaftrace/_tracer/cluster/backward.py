"""The backward pass over partitions, in two forms (see _engine/backward.py and leaf_space.py).

row form    a reduction a step: partitions send derivatives in the leaf values of the steps before
leaf form   one reduction that builds W, once; the client solves for any number of queries
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import numpy as np

from ..._data.arrays import F64, Real
from ..._engine.backward import (
    LeafAdjoint,
    backward_chunks,
    effect_adjoint,
    finish_pass,
    undo_moves,
)
from ..._engine.leaf_space import LeafSpace, build_leaf_space
from ..._engine.queries import Queries
from ..._engine.replay import Trace
from ..._engine.workspace import Workspace
from ..._model.kernels import block_width, zeros
from . import scratch
from .part import Part
from .protocol import Cluster


def part_leaf_space(part: Part, trace: Trace, dtype: np.dtype) -> LeafSpace:
    """The leaf space of one partition."""
    return build_leaf_space(part.workspace(trace, dtype))


@dataclass(frozen=True)
class StepBack:
    """Terms that rows add to derivatives when the pass has gone back over a step.

    ``below``  (M, O, B) for the leaf values of the step before, where that is added to the scores
    ``moved``  (leaves, O, B) for all leaf values, where other moves come before the step
    ``base``   (K, B) for the starting score
    """

    below: Real | None
    moved: Real | None
    base: F64

    def __add__(self, other: StepBack) -> StepBack:
        return StepBack(
            _sum(self.below, other.below),
            _sum(self.moved, other.moved),
            self.base + other.base,
        )


def _sum(a: Real | None, b: Real | None) -> Real | None:
    return b if a is None else a if b is None else a + b


class BackwardRows:
    """The rows of a partition in a backward pass: their scores and the derivatives in them."""

    def __init__(self, part: Part, trace: Trace, width: int, dtype: np.dtype) -> None:
        self.work: Workspace = part.workspace(trace, dtype)
        e = self.work.trace.ensemble
        self.t = e.n_steps  # the step that the scores come before
        self.A = e.scores(e.leaves, e.offset)  # (n, K)
        self.abar = zeros((e.n_rows, e.n_outputs, width), dtype)  # (n, K, B)

    def go_back(self, fbar: Real) -> StepBack:
        """Go back over the step before, whose leaf values have derivatives fbar (M, O, B)."""
        e = self.work.trace.ensemble
        t = self.t - 1
        abar = self.abar
        e.move(self.t, e.leaves, self.A, back=True)
        below = None
        moved = None
        base = np.zeros((e.n_outputs, abar.shape[2]))
        if e.boosts(t):
            M = int(e.step_leaves[t] - e.step_leaves[t - 1])
            below = zeros((M, e.leaf_outputs, abar.shape[2]), abar.dtype)
        backward_chunks(self.work, t, self.A, fbar, abar, below)
        if not e.boosts(t) and e.moves_before(t):
            moved = zeros((len(e.values), e.leaf_outputs, abar.shape[2]), abar.dtype)
            undo_moves(e, t, abar, moved, base)
        if t == 0:
            base += abar.sum(axis=0, dtype=np.float64)
        self.t = t
        return StepBack(below, moved, base)


def step_back(
    part: Part,
    trace: Trace,
    key: str,
    t: int,
    fbar: Real,
    width: int,
    dtype: np.dtype,
    above: Real,
) -> StepBack:
    """Go back over step t with the rows of a partition, and keep these for the step before.

    ``key``    of the pass
    ``fbar``   derivatives in the effects of rows on step t: see `effect_adjoint`
    ``above``  (leaves, O, B) derivatives in all leaf values, of which those of later steps are used
               if the process has not kept the rows
    """
    rows = scratch.take(key, part.identity)
    if rows is None or rows.t != t + 1:
        rows = BackwardRows(part, trace, width, dtype)
        for later in range(trace.ensemble.n_steps - 1, t, -1):
            rows.go_back(effect_adjoint(trace, later, above))
    found = rows.go_back(fbar)
    if t:
        scratch.keep(key, part.identity, rows)
    return found


def step_further(rows: BackwardRows, t: int, fbar: Real) -> StepBack | None:
    """Go back over step t with rows that a process has kept; None if they are at another step."""
    return rows.go_back(fbar) if rows.t == t + 1 else None


def row_form(
    cluster: Cluster, trace: Trace, sent: object, queries: Queries, columns: slice, dtype: np.dtype
) -> LeafAdjoint:
    """Run the backward pass for some of the queries; the same as `leaf_adjoint`.

    ``sent``: the trace, as the cluster has it.
    """
    e = trace.ensemble
    count = len(range(len(queries))[columns])
    width = block_width(count)
    fbar, base = queries.seeds(columns, width, dtype)
    if e.independent:
        return finish_pass(trace, fbar, base, count)
    key = uuid4().hex
    for t in reversed(range(e.n_steps)):
        step = {"t": t, "fbar": effect_adjoint(trace, t, fbar)}
        found: StepBack | None = None
        if t < e.n_steps - 1:
            found = cluster.go_on(key, step_further, **step)
        if found is None:
            rows = {"trace": sent, "key": key, "width": width, "dtype": dtype, "above": fbar}
            found = cluster.total(step_back, **rows, **step)
        assert found is not None
        if found.below is not None:
            fbar[e.leaf_range(t - 1)] += found.below
        if found.moved is not None:
            fbar += found.moved
        base += found.base
    cluster.forget(key)
    return finish_pass(trace, fbar, base, count)
