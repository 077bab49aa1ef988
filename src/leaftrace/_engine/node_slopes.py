"""Derivatives of leaf values that depend on other nodes, with the bounds that decide held fixed.

Outputs are linear in the steps s of nodes then (see _model/node_trees.py):

    o_m = own_m s_m + rest_m (o_a + o_b) / 2

where a = b is the node above for smoothing, and the pair of the active bound for a node at a bound
(own = 0, rest = 1). Changes go through the rounds of nodes forwards, adjoints backwards.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints, Real
from .._model.kernels import BLOCKS, block_width, blocks_of, kernels
from .._model.node_trees import ActiveBounds, NodeSteps, StepNodes


class _Dependence(NamedTuple):
    """Nodes whose outputs depend on those of pairs of nodes, `half` on each, in the order of the nodes.

    Some nodes have no rows and take the step of another node, which is that node's output.
    """

    place: Ints  # (k,) in `StepNodes.order`
    nodes: Ints  # (k,)
    pair: Ints  # (k, 2)
    half: F64  # (k,) rest / 2

    def take(self, index: Ints | slice) -> _Dependence:
        return _Dependence(self.place[index], self.nodes[index], self.pair[index], self.half[index])


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
        assert steps.slope is not None
        slope = rate * steps.slope[:, 0]
        own = active.own[: nodes.with_rows] * slope
        self.slopes = np.stack([own, own * steps.s[:, 0]], axis=1)  # (N, 2)

    @cached_property
    def _dependence(self) -> _Dependence:
        nodes, active = self.nodes, self.active
        order = nodes.order.nodes
        kept = np.flatnonzero(active.rest[order] > 0)
        taking = np.flatnonzero((order >= nodes.with_rows) & (active.own[order] > 0))
        step = nodes.own[order[taking]]
        place = np.concatenate([kept, taking])
        pair = np.concatenate([active.pair[order[kept]], np.column_stack([step, step])])
        half = 0.5 * np.concatenate([active.rest[order[kept]], active.own[order[taking]]])
        by_place = np.argsort(place, kind="stable")
        return _Dependence(place, order[place], pair, half).take(by_place)

    @cached_property
    def _backwards(self) -> tuple[Any, ...]:
        """The step as `kernels.node_adjoint` takes it."""
        nodes = self.nodes
        _, source, pair, half = self._dependence.take(slice(None, None, -1))
        value = np.where(self.live, nodes.value, -1)
        numbers = (value, nodes.leaf, *nodes.above, source, pair)
        numbers = (np.ascontiguousarray(x, np.int32) for x in numbers)
        return nodes.N, *numbers, np.ascontiguousarray(half), self.slopes

    def adjoint(self, fbar: Real, out: Real | None = None) -> Real:
        """(M, 2, B) derivatives of queries in the sums, from those in the values, fbar (M, B).

        They are added to ``out``, if it is given.
        """
        M, B = fbar.shape
        if out is None:
            out = np.zeros((M, 2, B), fbar.dtype)
        if B in BLOCKS:
            kernels.node_adjoint(*self._backwards, np.ascontiguousarray(fbar), out)
            return out
        for columns in blocks_of(B):
            part = fbar[:, columns]
            width = block_width(part.shape[1])
            padded = np.pad(part, [(0, 0), (0, width - part.shape[1])])
            out[:, :, columns] += self.adjoint(padded)[:, :, : part.shape[1]]
        return out

    def rows(self, fbar: Real, first: int, rows: Real, place: Ints) -> int:
        """Write `adjoint` of fbar (M, B) to rows[place] (M, 2, B), once for leaves that have the same.

        It begins at row ``first``, needs 2 M rows, and returns the row after the last; row 0 has zeros.
        """
        here = np.ascontiguousarray(fbar)
        return kernels.node_rows(*self._backwards, here, first, rows, place)

    def tangent(self, sums: F64) -> F64:
        """(M, B) changes of the values, from changes of the sums (M, 2, B)."""
        nodes = self.nodes
        out = np.zeros((nodes.N, sums.shape[2]))
        out[: nodes.with_rows] = np.einsum("ne,neb->nb", self.slopes, nodes.node_sums(sums))
        found = self._dependence
        for begin, end in pairwise(np.searchsorted(found.place, nodes.order.rounds)):
            _, nodes_of, pair, half = found.take(slice(begin, end))
            np.add.at(out, nodes_of, half[:, None] * out[pair].sum(axis=1))
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
