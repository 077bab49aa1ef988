"""Derivatives of leaf values that depend on other nodes, with the bounds that decide held fixed.

Outputs are linear in the steps s of nodes then (see _model/node_trees.py):

    o_m = own_m s_m + rest_m (o_a + o_b) / 2

where a = b is the node above for smoothing, and the pair of the active bound for a node at a bound
(own = 0, rest = 1). Changes go through the rounds of nodes forwards, adjoints backwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Real
from .._model.node_trees import ActiveBounds, NodeSteps, StepNodes


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
        self._order = [
            (kept, active.pair[kept], 0.5 * active.rest[kept, None])
            for kept in (group.nodes[depends[group.nodes]] for group in nodes.rounds)
            if len(kept)
        ]

    def adjoint(self, fbar: Real) -> Real:
        """(M, 2, B) derivatives of queries in the sums, from those in the values, fbar (M, B)."""
        nodes = self.nodes
        bar = np.zeros((nodes.N, fbar.shape[1]))
        np.add.at(bar, nodes.value, fbar * self.live[:, None])
        for kept, pair, half in reversed(self._order):
            moved = half * bar[kept]
            np.add.at(bar, pair[:, 0], moved)
            np.add.at(bar, pair[:, 1], moved)
        by_sum = self.slopes[:, :, None] * bar[: nodes.with_rows, None]
        return nodes.down_to_leaves(by_sum).astype(fbar.dtype)

    def tangent(self, sums: F64) -> F64:
        """(M, B) changes of the values, from changes of the sums (M, 2, B)."""
        nodes = self.nodes
        out = np.zeros((nodes.N, sums.shape[2]))
        out[: nodes.with_rows] = np.einsum("ne,neb->nb", self.slopes, nodes.node_sums(sums))
        for kept, pair, half in self._order:
            out[kept] += half * (out[pair[:, 0]] + out[pair[:, 1]])
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
