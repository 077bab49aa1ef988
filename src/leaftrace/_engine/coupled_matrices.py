"""The backward pass over coupled losses by matrices of queries, the fast form of coupled_passes.py.

In a step, the derivatives in the scores of a query's rows are linear in those in their leaves:

    abar_i += sum over the rows j of its query of K_ij x_leaf(j),    x = N fbar   (see replay.py)

K has the terms of both g and h, since hbar = s gbar. It depends on the step alone and not on what is
asked, so it is computed once if all matrices fit in memory, and each pass is a product in a native
kernel. Rows of one leaf have the same x, so their columns of K are summed. Losses of pairs have a number
for each row of a query and each leaf among its rows (`MatrixPoint`), others a matrix of low rank
(`SharePoint`). `CoupledPasses.slopes` is the slow twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .._data.arrays import Ids, Ints, Real
from .._model.coupled.columns import QueryColumns
from .._model.coupled.loss import CoupledRows, MatrixPoint, Point, SharePoint, Shares
from .._model.ensemble import Ensemble
from .._model.kernels import block_width, kernels, zeros
from .backward import expand_effects, lam_adjoint
from .leaf_equations import centred
from .queries import Queries
from .workspace import Workspace

BYTES_AT_WORK = 128  # for each number of a step, while it is computed


class StepMatrices(NamedTuple):
    """The matrices of a step: products and what a weight does by its own leaf, or shares."""

    products: tuple[Ids, Ints, Real] | None  # as `kernels.query_products` takes them
    own: Real | None  # (n, 1), or (n, 2) with ones if leaves are centred
    shares: Shares | None  # as `kernels.query_shares` takes them


@dataclass(frozen=True)
class _Centre:
    """The centring of the M leaves of a step.

    ``empty``   leaves without rows, which are not centred
    ``centre``  (M, 1) the share of each leaf in the mean
    ``shift``   (M, 1) minus how much the weight of a row in each leaf moves all leaves by their mean
    """

    empty: Ints
    centre: Real
    shift: Real

    def undo(self, fbar: Real) -> tuple[Real, Real]:
        """Turn derivatives in centred leaves (M, 1, B) into those in steps.

        Gives their sums (B,), and (M, 2, B) the derivatives in steps beside the derivative of a weight through
        the sums of its leaf.
        """
        fbar[self.empty] = 0.0
        total = fbar[:, 0].sum(axis=0)
        felt = np.empty((len(fbar), 2, fbar.shape[2]), fbar.dtype)
        np.multiply(self.shift, total, out=felt[:, 1])
        fbar[:, 0] -= self.centre * total
        felt[:, 0] = fbar[:, 0]
        return total, felt


class QueryMatrices:
    """The matrices of all steps, in the scores and in the weights of rows.

    ``first``             the point before the first step
    ``points_backwards``  gives (t, the point before step t) from the last step to the first
    ``frozen``            whether normalisers are held
    ``keep``              whether to keep the matrices; otherwise each pass computes them again
    """

    def __init__(
        self,
        work: Workspace,
        first: Point,
        points_backwards: Callable[[], Iterator[tuple[int, Point]]],
        frozen: bool,
        keep: bool,
    ) -> None:
        e = work.trace.ensemble
        assert e.places is not None
        self.work = work
        self.points_backwards = points_backwards
        self.frozen = frozen
        self.rows = CoupledRows(e.y, e.w, e.places.number, e.places.origin)
        self.edges = np.append(self.rows.starts, e.n_rows)  # (Q + 1,)
        self.by_shares = isinstance(first, SharePoint)
        self.kept = list(self._computed()) if keep else None

    @staticmethod
    def bytes_of(e: Ensemble, point: Point, itemsize: int) -> tuple[float, float]:
        """Bytes of the matrices of all steps, and of one while it is computed.

        They are infinite if this form is not for the model. ``point``: the terms at any scores.
        """
        boosts = e.moves is None and len(e.leaves) == e.n_steps and not e.joins_leaves
        adds_once = e.added is None
        if not (boosts and adds_once) or e.rule.pairwise is not None or e.places is None:
            return np.inf, np.inf
        numbers = 2.0 * e.n_rows  # of a step
        at_work = numbers
        if isinstance(point, SharePoint):
            numbers += sum(x.size for x in point.shares(e.w, e.w))
            at_work = numbers
        elif isinstance(point, MatrixPoint):
            sizes = np.bincount(e.places.number).astype(float)
            numbers += float((sizes * np.minimum(sizes, np.diff(e.tree_leaves).max())).sum())
            at_work += float((sizes**2).sum())
        else:
            return np.inf, np.inf
        return itemsize * e.n_steps * numbers, BYTES_AT_WORK * at_work

    def _computed(self) -> Iterator[tuple[int, StepMatrices]]:
        """(t, matrices) from the last step to the first."""
        return ((t, self._of_step(t, point)) for t, point in self.points_backwards())

    def _of_step(self, t: int, point: Point) -> StepMatrices:
        """The matrices of step t."""
        e = self.work.trace.ensemble
        dtype = self.work.dtype
        step = self.work.trace.steps[t]
        s = step.s[0, e.leaves[t], 0]
        drawn = np.ones(len(s)) if e.sample is None else np.asarray(e.sample[t], np.float64)
        if isinstance(point, SharePoint):
            found = point.shares(drawn, drawn * s)
            return StepMatrices(
                None, None, Shares(*(np.ascontiguousarray(x, dtype) for x in found))
            )
        assert isinstance(point, MatrixPoint)
        columns = QueryColumns.of_leaves(self.rows, e.leaves[t])
        cells = point.score_matrices(drawn, drawn * s, self.frozen, columns).astype(dtype)
        own = step.N[0, e.leaves[t], 0, 0] * point.weight_factors(drawn, drawn * s)
        parts = [own, np.ones_like(own)] if e.rule.centred else [own]
        own = np.stack(parts, axis=1).astype(dtype)
        return StepMatrices((columns.leaf, columns.edges, cells), own, None)

    def weight_slopes(self, queries: Queries, columns: slice, knock_on: bool) -> Real:
        """(n, columns) derivatives of some queries in the weights of rows."""
        trace = self.work.trace
        e = trace.ensemble
        count = len(range(len(queries))[columns])
        B = block_width(count)
        dtype = self.work.dtype
        fbar, _ = queries.seeds(columns, B, dtype)
        totals = np.zeros((e.n_steps, B), dtype)
        # Derivatives in scores and in weights.
        both = zeros((e.n_rows, 2, B) if self.by_shares else (2, e.n_rows, B), dtype)
        for t, matrices in self._computed() if self.kept is None else self.kept:
            here = fbar[e.leaf_range(t)]
            felt = here
            if e.rule.centred:
                totals[t], felt = self._centres[t].undo(here)
            below = fbar[e.leaf_range(t - 1), 0] if knock_on and t > 0 else None
            self._step(t, matrices, here, felt, both, below)
        out = both[:, 1] if self.by_shares else both[1]
        if e.rule.centred and self.by_shares:
            out -= self._moved @ totals
        out += (e.lam_slope * lam_adjoint(trace, fbar)).astype(dtype)
        if not np.all(e.w_factor == 1):
            out *= e.w_factor[:, None].astype(dtype)
        return out[:, :count]

    def _step(
        self, t: int, matrices: StepMatrices, fbar: Real, felt: Real, both: Real, below: Real | None
    ) -> None:
        """Go back over step t. ``felt``: (M, E, B) derivatives of a weight through its leaf, times `own`."""
        e = self.work.trace.ensemble
        ids = e.leaves[t]
        x = (self.work.trace.steps[t].N[0] * fbar)[:, 0].astype(fbar.dtype)
        next_ids = None if below is None else e.leaves[t - 1]
        if matrices.shares is not None:
            kernels.query_shares(ids, self.edges, *matrices.shares, x, both, next_ids, below)
            return
        assert matrices.own is not None
        start = np.zeros(1, np.int64)
        expand_effects(ids[None], start, matrices.own[None], felt, both[1])
        if below is not None:
            assert matrices.products is not None
            kernels.query_products(*matrices.products, self.edges, x, both[0], next_ids, below)

    @cached_property
    def _centres(self) -> list[_Centre]:
        """The centring of each step, for leaves that are centred."""
        e = self.work.trace.ensemble
        found = []
        for t, step in enumerate(self.work.trace.steps):
            assert step.centre is not None
            shift = e.rate(t) * centred(step.s[0], step.centre) / e.total_weight
            numbers = (x.astype(self.work.dtype) for x in (step.centre[:, None], -shift))
            found.append(_Centre(np.flatnonzero(step.centre == 0), *numbers))
        return found

    @cached_property
    def _moved(self) -> Real:
        """(n, T) by how much a row's weight moves all leaves of a step, through their mean."""
        e = self.work.trace.ensemble
        found = np.empty((e.n_rows, e.n_steps), self.work.dtype)
        for t in range(e.n_steps):
            found[:, t] = -self._centres[t].shift[e.leaves[t], 0]
        return found
