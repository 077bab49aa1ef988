"""Derivatives of leaf values that depend on other nodes, with the bounds that decide held fixed.

Outputs are linear in the steps s of nodes then (see _model/node_trees.py):

    o_m = own_m s_m + rest_m (o_a + o_b) / 2

where a = b is the node above for smoothing, and the pair of the active bound for a node at a bound
(own = 0, rest = 1). Changes go through the rounds of nodes forwards, adjoints backwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints, Real
from .._model.node_trees import ActiveBounds, NodeSteps, StepNodes


@dataclass(frozen=True)
class _Dependence:
    """Nodes of a round whose outputs depend on those of pairs of nodes, half of `half` on each."""

    nodes: Ints  # (k,)
    pair: Ints  # (k, 2)
    half: F64  # (k, 1) rest / 2
    sources: Ints  # the nodes in pairs, each once
    sorted: Ints  # (2 k,) places in `nodes`, sorted by the node in their pair
    starts: Ints  # where the places of each source begin

    @staticmethod
    def of(nodes: Ints, active: ActiveBounds) -> _Dependence:
        """The dependence of these nodes by what decides their outputs."""
        pair = active.pair[nodes]
        by_source = np.argsort(pair.ravel(), kind="stable")
        sources, starts = np.unique(pair.ravel()[by_source], return_index=True)
        half = 0.5 * active.rest[nodes, None]
        return _Dependence(nodes, pair, half, sources, by_source // 2, starts)


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
        depends = active.rest > 0
        rounds = [group.nodes[depends[group.nodes]] for group in nodes.rounds]
        self._order = [_Dependence.of(kept, active) for kept in rounds if len(kept)]

    def adjoint(self, fbar: Real) -> Real:
        """(M, 2, B) derivatives of queries in the sums, from those in the values, fbar (M, B)."""
        nodes = self.nodes
        bar = np.zeros((nodes.N, fbar.shape[1]))
        bar[nodes.value] = fbar * self.live[:, None]
        for group in reversed(self._order):
            moved = group.half * bar[group.nodes]
            bar[group.sources] += np.add.reduceat(moved[group.sorted], group.starts)
        by_sum = self.slopes[:, :, None] * bar[: nodes.with_rows, None]
        return nodes.down_to_leaves(by_sum).astype(fbar.dtype)

    def tangent(self, sums: F64) -> F64:
        """(M, B) changes of the values, from changes of the sums (M, 2, B)."""
        nodes = self.nodes
        out = np.zeros((nodes.N, sums.shape[2]))
        out[: nodes.with_rows] = np.einsum("ne,neb->nb", self.slopes, nodes.node_sums(sums))
        for group in self._order:
            out[group.nodes] += group.half * out[group.pair].sum(axis=1)
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
