"""BoostIn: TracIn for boosted trees.

A training step is a tree, and the influence of a row in it is its direct effect V:

    BoostIn(i, x)    =  sum_t [l_t(i) = l_t(x)]  c_x^{t-1} . V_i^t,        V_i^t = df_l / dw_i
    self-influence   = -BoostIn(i, i)

c_x^{t-1} = dQ/dF at the score that x had before step t. LeafInfluence(SinglePoint()) has the same
sum with the gradient at the finished model's score, and adds the effects of a row on all leaves at
once: through the starting score, and through a lam that scales with the weights. AllPoints adds the
knock-on effects in later trees.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.progress import progress
from .._engine.backward import expand_training, leaf_adjoint
from .._engine.coupled_passes import CoupledPasses
from .._engine.methods import Baseline, Gives
from .._engine.placed_rows import PlacedRows, forward_scores
from .._engine.queries import Queries
from .._engine.replay import Trace
from .._engine.workspace import Workspace
from .._model.ensemble import Ensemble
from .._model.kernels import BLOCKS, blocks_of, zeros
from .._model.kernels.numpy import sum_by_leaf
from ._rows import RowScore


@dataclass(frozen=True)
class BoostIn(Baseline):
    """Effects of a row in the trees where it shares a leaf with the test row.

    >>> tracer.influence(X_test, y_test, method=BoostIn())              # doctest: +SKIP

    By Brophy, Hammoudeh and Lowd (JMLR 2023). The sum over those trees of (derivative of the shared
    leaf's value in the row's weight) times (gradient of the test row's loss, at its score before
    the tree). It differs from LeafInfluence(SinglePoint()) in where the gradient is taken, and
    leaves out the starting score and a regulariser that scales with the weights.

    It differs from the authors' code in its sign (positive here is harmful), and where that code is
    not the derivative it is meant to be: the second derivative is multiplied with the leaf's step
    before the learning rate; weights, sampled rows, leaf rules, several inner steps and vector
    leaves count as the model has them. If leaves depend on other leaves (monotone constraints,
    LightGBM's path_smooth), rows of other leaves count too.

    `of` can be "loss", "prediction" or a goal. It cannot be an array or a function, which has no
    value before each tree.
    """

    gives: ClassVar[Gives] = "derivatives"
    differentiates: ClassVar[bool] = True

    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        _needs_boosting(work.trace.ensemble, "BoostIn")
        if queries.of == "goal" and queries.goal is None:
            raise InvalidInput(
                "BoostIn takes the gradient at the scores before each tree, and an array or a function given as of= "
                "has it at the finished model's; use of='loss', 'prediction' or a goal (leaftrace.goals.Goal)."
            )
        stepwise = _StepwiseQueries(**{f.name: getattr(queries, f.name) for f in fields(queries)})
        if work.trace.ensemble.coupled:
            return _coupled_values(work, stepwise, index)
        work.prepare_effects()

        def values_of_block(columns: slice) -> Real:
            adjoint = leaf_adjoint(work, stepwise, columns, knock_on=False)
            return expand_training(work, replace(adjoint, lam=np.zeros_like(adjoint.lam)), index)

        blocks = work.map(values_of_block, blocks_of(len(queries)))
        done = progress(blocks, len(queries), "BoostIn", "query", BLOCKS[-1])
        return np.concatenate(list(done), axis=1)


@dataclass(frozen=True)
class SelfInfluence(RowScore):
    """The part of a row's own loss that the row itself has removed: minus `BoostIn` on itself.

    >>> tracer.influence(X_test, y_test, method=SelfInfluence(), reduce="mean")         # doctest: +SKIP

    Rows that no other rows support come first, and wrong labels are among them (Pruthi et al.,
    NeurIPS 2020, use it in this way). It uses the training row alone: every test row gets the same
    score.
    """

    differentiates: ClassVar[bool] = True

    def scores(self, work: Workspace, index: Ints | None, classes: np.ndarray | None) -> F64:
        _needs_boosting(work.trace.ensemble, "SelfInfluence")
        chunks = work.direct_effects(index)
        return np.concatenate([_self_influence(work.trace, rows, V) for rows, V in chunks])


def _self_influence(trace: Trace, rows: PlacedRows, V: Real) -> F64:
    """(n,) self-influence of some rows, from their direct effects V (trees, n, O)."""
    e = trace.ensemble
    score = np.zeros(len(rows))
    for t, A in forward_scores(trace, rows):
        c = e.factors[t] * e.loss.gradient(e.loss.state(A), rows.y)
        slopes = trace.steps[t].slopes
        own_slopes = None if slopes is None else slopes.own_slopes()
        for r in range(e.trees(t).start, e.trees(t).stop):
            effect = V[r]  # (n, O)
            if own_slopes is not None:
                own = own_slopes[rows.leaves[r]]  # (n, E)
                effect = (effect[:, : own.shape[1]] * own).sum(axis=1, keepdims=True)
            score -= (effect * c[:, e.first_output[r] :][:, : e.leaf_outputs]).sum(axis=1)
    return score * rows.factor


class _StepwiseQueries(Queries):
    """Queries whose gradient in a leaf's value is taken at the scores before the leaf's step.

    Their gradient in the starting score is zero.
    """

    def seeds(self, columns: slice, width: int, dtype: np.dtype) -> tuple[Real, F64]:
        e = self.ensemble
        part = slice(None) if self.reduce else columns
        leaves = np.ascontiguousarray(self.leaves[:, part])
        A = self.scores.copy()
        out = zeros((len(e.values), e.leaf_outputs, width), dtype)
        for t in reversed(range(e.n_steps)):
            e.move(t + 1, self.leaves, A, back=True)
            at_step = replace(self, gradient=e.factors[t] * self.gradient_at(A))
            here = out[e.leaf_range(t)]
            for ids, o in zip(leaves[e.trees(t)], e.first_output[e.trees(t)], strict=True):
                outputs = slice(o, o + e.leaf_outputs)
                if not self.reduce:
                    here[ids, :, np.arange(len(ids))] = at_step.gradient[part, outputs]
                    continue
                for lane, s in enumerate(range(len(self))[columns]):
                    sums = np.zeros(here.shape[:2])
                    sum_by_leaf(ids, at_step.slice_gradient(s)[:, outputs], sums)
                    here[:, :, lane] += sums
        return out, np.zeros((e.n_outputs, width))


def _coupled_values(work: Workspace, queries: Queries, index: Ints | None) -> Real:
    """(rows, queries) of a model whose loss couples rows."""
    passes = CoupledPasses(work)
    blocks = [
        passes.slopes(queries, columns, frozen=True, knock_on=False, through_lam=False).weights
        for columns in blocks_of(len(queries))
    ]
    values = np.concatenate(blocks, axis=1).astype(work.dtype)
    return values if index is None else values[index]


def _needs_boosting(e: Ensemble, name: str) -> None:
    """Raise an error for a forest. ``name``: of the method."""
    if e.independent:
        raise UnsupportedModel(
            f"{name} follows the scores from tree to tree, and the trees of a forest do not read each other; "
            "LeafInfluence() of a forest is the direct effect of each row already."
        )
