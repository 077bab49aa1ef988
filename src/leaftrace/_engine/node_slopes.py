"""Derivatives of leaf values that depend on other nodes, with the bounds that decide held fixed.

Outputs are linear in the steps s of nodes then (see _model/node_trees.py):

    o_m = own_m s_m + rest_m (o_a + o_b) / 2

where a = b is the node above for smoothing, and the pair of the active bound for a node at a bound
(own = 0, rest = 1). Changes go through the rounds of nodes forwards, adjoints backwards.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints, Real
from .._model.kernels import BLOCKS, block_width, blocks_of, kernels
from .._model.node_trees import ActiveBounds, NodeSteps, StepNodes


class _Dependence(NamedTuple):
    """Nodes of a round whose outputs depend on those of pairs of nodes, `half` on each."""

    nodes: Ints  # (k,)
    pair: Ints  # (k, 2)
    half: F64  # (k,) rest / 2


def _dependences(nodes: StepNodes, active: ActiveBounds, group: Ints) -> list[_Dependence]:
    """The dependences of the nodes of a round.

    Some of them have no rows and take the step of another node, which is that node's output.
    """
    kept = group[active.rest[group] > 0]
    found = [_Dependence(kept, active.pair[kept], 0.5 * active.rest[kept])]
    taking = group[(group >= nodes.with_rows) & (active.own[group] > 0)]
    if len(taking):
        step = nodes.own[taking]
        found.append(_Dependence(taking, np.column_stack([step, step]), 0.5 * active.own[taking]))
    return found


class NodeSlopes:
    """Derivatives of the leaf values of a step in the sums of g and h over its leaves.

    ``live``  (M,) whether the value of a leaf comes from its rows
    """

    def __init__(
        self,
        nodes: StepNodes,
        active: ActiveBounds,
        steps: NodeSteps,
        rate: float,
        live: NDArray[np.bool_],
    ) -> None:
        self.nodes = nodes
        self.active = active
        self.live = live
        slope = rate * steps.slope[:, 0]
        own = active.own[: nodes.with_rows] * slope
        self.slopes = np.stack([own, own * steps.s[:, 0]], axis=1)  # (N, 2)
        self._rounds = [
            part for group in nodes.rounds for part in _dependences(nodes, active, group.nodes)
        ]

    @cached_property
    def _backwards(self) -> tuple[Any, ...]:
        """The step as `kernels.node_adjoint` takes it."""
        nodes = self.nodes
        nothing = _Dependence(np.zeros(0, np.int32), np.zeros((0, 2), np.int32), np.zeros(0))
        rounds = [nothing, *reversed(self._rounds)]
        source, pair, half = (np.concatenate(field) for field in zip(*rounds, strict=True))
        value = np.where(self.live, nodes.value, -1)
        numbers = (value, nodes.leaf, *nodes.above, source, pair)
        return nodes.N, *(x.astype(np.int32) for x in numbers), half, self.slopes

    def adjoint(self, fbar: Real, out: Real | None = None) -> Real:
        """(M, 2, B) derivatives of queries in the sums, from those in the values, fbar (M, B).

        They are written to ``out``, if it is given.
        """
        M, B = fbar.shape
        if out is None:
            out = np.empty((M, 2, B), fbar.dtype)
        if B in BLOCKS:
            kernels.node_adjoint(*self._backwards, np.ascontiguousarray(fbar), out)
            return out
        for columns in blocks_of(B):
            part = fbar[:, columns]
            width = block_width(part.shape[1])
            padded = np.pad(part, [(0, 0), (0, width - part.shape[1])])
            out[:, :, columns] = self.adjoint(padded)[:, :, : part.shape[1]]
        return out

    def tangent(self, sums: F64) -> F64:
        """(M, B) changes of the values, from changes of the sums (M, 2, B)."""
        nodes = self.nodes
        out = np.zeros((nodes.N, sums.shape[2]))
        out[: nodes.with_rows] = np.einsum("ne,neb->nb", self.slopes, nodes.node_sums(sums))
        for nodes_of, pair, half in self._rounds:
            out[nodes_of] += half[:, None] * out[pair].sum(axis=1)
        return out[nodes.value] * self.live[:, None]

    def gradient_slopes(self, fbar: Real) -> Real:
        """(M, B) derivatives of queries in the sum of g over each leaf."""
        return self.adjoint(fbar)[:, 0]

    def own_slopes(self) -> F64:
        """(M, 2) derivatives of each leaf's value in its own sums."""
        M = len(self.live)
        out = np.empty((M, 2))
        for start in range(0, M, 256):
            part = np.arange(start, min(start + 256, M))
            columns = np.zeros((M, len(part)))
            columns[part, part - start] = 1
            out[part] = self.adjoint(columns)[part, :, part - start]
        return out
