"""Passes over a model whose loss couples rows: see _model/coupled/loss.py.

The backward pass of backward.py has a factor U_j for each row. Here it is one product with the
terms of all rows: with N and s of the row's leaf (see replay.py),

    gbar_i = N fbar_l(i),   hbar_i = s gbar_i              derivatives in the terms w g and w h
    abar  += gbar . d(w g)/dA + hbar . d(w h)/dA           by `Point.vjp`, and likewise
    dQ/dw += ... d/dw,   dQ/dpi += ... d/dpi

The forward pass is its transpose, by `Point.jvp`. Leaves take one Newton step each. If leaves are
centred, value_k = s_k - sum_l u_l s_l with u_l = W_l / W: their fbar become those of the steps s, and
a weight also moves the shares u.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import UnsupportedModel
from .._data.progress import progress
from .._model.coupled.loss import PairPoint, Point, Slopes
from .._model.ensemble import Ensemble
from .._model.kernels import block_width, blocks_of
from .._model.kernels.numpy import sum_by_leaf
from .backward import lam_adjoint, undo_moves
from .coupled_matrices import QueryMatrices
from .leaf_equations import centred
from .methods import AllPoints, LeafInfluence
from .placed_rows import exact_scores_backwards, forward_scores
from .queries import Queries
from .workspace import Workspace

BYTES_OF_PAIR = 128  # of a point, for each pair or row


def refuse_coupled(e: Ensemble, what: str) -> None:
    """Raise an error for a loss that couples rows. ``what``: is not for such losses."""
    if e.coupled:
        raise UnsupportedModel(
            f"{what} is not for the {e.loss.name} loss, whose gradients depend on other rows; use influence() with "
            "LeafInfluence(), LeafRefit() or Retrain(), refit() or retrain()."
        )


class CoupledPasses:
    """The passes over a replayed model; keeps the points of all steps if they fit in memory."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self._points: list[Point] | None = None
        self._matrices: dict[bool, QueryMatrices] = {}  # by whether normalisers are frozen
        self._limit = 0  # on memory when they were made

    # ---- points ----

    def _first_point(self) -> Point:
        """The point before the first step."""
        e = self.work.trace.ensemble
        return e.coupling.at(e.start()[:, 0], 0)

    def _keeps_points(self) -> bool:
        """Whether the points of all steps fit in memory."""
        e = self.work.trace.ensemble
        pairs = getattr(self._first_point(), "pairs", None)
        size = e.n_rows + (0 if pairs is None else len(pairs.a))
        return e.n_steps * size * BYTES_OF_PAIR <= self.work.memory_limit // 4

    def _forwards(self) -> Iterator[tuple[int, Point]]:
        """(t, the point before step t) from the first step to the last."""
        if self._points is None and self._keeps_points():
            self._points = [point for _, point in self._computed_forwards()]
        yield from self._computed_forwards() if self._points is None else enumerate(self._points)

    def _computed_forwards(self) -> Iterator[tuple[int, Point]]:
        trace = self.work.trace
        for t, A in forward_scores(trace, self.work.rows):
            yield t, trace.ensemble.coupling.at(A[:, 0].copy(), t)

    def _backwards(self) -> Iterator[tuple[int, Point]]:
        """The same from the last step to the first."""
        if self._points is None and self._keeps_points():
            self._points = [point for _, point in self._computed_forwards()]
        if self._points is not None:
            return reversed(list(enumerate(self._points)))
        return self._computed_backwards()

    def _computed_backwards(self) -> Iterator[tuple[int, Point]]:
        e = self.work.trace.ensemble
        for t, A in exact_scores_backwards(self.work.trace, self.work.rows):
            yield t, e.coupling.at(A[:, 0].copy(), t)

    # ---- backwards ----

    def blocks(
        self, queries: Queries, method: LeafInfluence, index: Ints | None
    ) -> Iterator[tuple[slice, Real]]:
        """LeafInfluence, block by block: (columns, values (rows, columns))."""
        knock_on = isinstance(method.update_set, AllPoints)
        frozen = method.normalisers == "frozen"
        blocks = blocks_of(len(queries), self.work.block)
        matrices = self._query_matrices(frozen) if method.change == "weight" else None
        for columns in progress(blocks, len(queries), "influence", "query", self.work.block):
            if matrices is not None:
                values = matrices.weight_slopes(queries, columns, knock_on)
            else:
                slopes = self.slopes(queries, columns, frozen=frozen, knock_on=knock_on)
                values = slopes.weights if method.change == "weight" else slopes.presences
            kept = values if index is None else values[index]
            yield columns, kept.astype(self.work.dtype, copy=False)

    def _query_matrices(self, frozen: bool) -> QueryMatrices | None:
        """The matrices of all queries; None where the pass goes row by row."""
        if self.work.memory_limit < self._limit:  # an answer ran out of memory since
            self._matrices = {}
        if frozen not in self._matrices:
            work = self.work
            first = self._first_point()
            of_all, of_one = QueryMatrices.bytes_of(work.trace.ensemble, first, work.dtype.itemsize)
            if of_one > work.memory_limit // 4:
                return None
            keep = of_all + of_one <= work.memory_limit // 4
            source = self._computed_backwards if keep else self._backwards
            found = QueryMatrices(work, first, source, frozen, keep)
            self._matrices = {frozen: found}
            self._limit = work.memory_limit
        return self._matrices[frozen]

    def slopes(
        self,
        queries: Queries,
        columns: slice,
        *,
        frozen: bool,
        knock_on: bool = True,
        through_lam: bool = True,
    ) -> Slopes:
        """Derivatives of some queries in the scores given to rows, their weights and presences.

        ``knock_on``: False leaves out the effects of rows on others through later trees, and
        ``through_lam`` those by a regulariser that depends on all weights.
        """
        trace = self.work.trace
        e = trace.ensemble
        if e.joins_leaves:
            raise UnsupportedModel(
                f"the leaves of this {e.loss.name} model depend on other leaves (path_smooth, monotone constraints), "
                "whose derivatives are not supported with such a loss; use LeafRefit(), refit() or retrain()."
            )
        count = len(range(len(queries))[columns])
        fbar, base = queries.seeds(columns, block_width(count), np.dtype(np.float64))
        fbar = fbar[:, :, :count]
        base = base[:, :count]
        abar = np.zeros((e.n_rows, 1, count))
        weights = np.zeros((e.n_rows, count))
        presences = np.zeros((e.n_rows, count))
        for t, point in self._backwards():
            if trace.steps[t].centre is not None:
                self._uncentre(t, fbar[e.leaf_range(t), 0], weights)
            gbar, hbar = self._term_slopes(t, fbar[e.leaf_range(t), 0])
            slopes = point.vjp(gbar, hbar, frozen)
            weights += slopes.weights
            presences += slopes.presences
            if trace.steps[t].mix is not None:
                of_pairs = self._pair_slopes(t, point, fbar[e.leaf_range(t), 0])
                weights += of_pairs.weights
                presences += of_pairs.presences
            if knock_on:
                abar[:, 0] += slopes.scores
            undo_moves(e, t, abar, fbar, base)
        if through_lam:
            weights += e.lam_slope * lam_adjoint(trace, fbar)
        return Slopes(abar[:, 0], weights * e.w_factor[:, None], presences)

    def _uncentre(self, t: int, fbar: F64, weights: F64) -> None:
        """Turn derivatives in centred leaves (M, B) into those in steps, and add those in weights."""
        e = self.work.trace.ensemble
        step = self.work.trace.steps[t]
        assert step.centre is not None
        fbar[step.centre == 0] = 0.0
        total = fbar.sum(axis=0)
        moved = e.rate(t) * centred(step.s[0], step.centre) / e.total_weight  # (M, 1)
        for ids in e.leaves[e.trees(t)]:
            weights -= moved[ids] * total
        fbar -= step.centre[:, None] * total

    def _term_slopes(self, t: int, fbar: F64) -> tuple[F64, F64]:
        """(n, B) derivatives in w g and w h of each row in step t, from those in its leaves (M, B)."""
        e = self.work.trace.ensemble
        step = self.work.trace.steps[t]
        in_G = step.N[0, :, 0] * fbar  # (M, B)
        in_H = step.s[0] * in_G
        if step.mix is not None:
            in_G = e.rate(t) * step.mix.T @ fbar
        gbar = np.zeros((e.n_rows, fbar.shape[1]))
        hbar = np.zeros_like(gbar)
        for r, ids in enumerate(e.leaves[e.trees(t)], e.trees(t).start):
            drawn = 1.0 if e.sample is None else e.sample[r][:, None]
            gbar += drawn * in_G[ids]
            hbar += drawn * in_H[ids]
        return gbar, hbar

    def _pair_slopes(self, t: int, point: Point, fbar: F64) -> Slopes:
        """Derivatives through the weights of pairs, of a step whose leaves are solved all at once.

        The equations of the leaves l and m of a pair of weight p have the terms +-p (s_l - s_m).
        """
        e = self.work.trace.ensemble
        step = self.work.trace.steps[t]
        assert step.mix is not None
        assert isinstance(point, PairPoint)
        a, b = self._pair_leaves(t, point)
        z = e.rate(t) * step.mix.T @ fbar  # (M, B)
        return point.pair_vjp((z[a] - z[b]) * (step.s[0, a] - step.s[0, b]))

    def _pair_leaves(self, t: int, point: PairPoint) -> tuple[Ids, Ids]:
        """(P,) leaves of both rows of each pair, in a step of one tree."""
        ids = self.work.trace.ensemble.leaves[self.work.trace.ensemble.trees(t).start]
        return ids[point.pairs.a], ids[point.pairs.b]

    # ---- forwards ----

    def leaf_changes(self, dw: F64, dpi: F64, *, frozen: bool) -> F64:
        """(leaves, 1) first-order changes of all leaf values along a direction.

        ``dw``, ``dpi``: (n,) changes of sample weights and presences.
        """
        trace = self.work.trace
        e = trace.ensemble
        dw = dw * e.w_factor
        dlam = e.lam_slope * float(dw.sum())
        dA = np.zeros((e.n_rows, 1))
        changes = np.zeros((len(e.values), 1))
        for t, point in self._forwards():
            e.move(t, e.leaves, dA, changes)
            dg, dh = point.jvp(dA[:, 0], dw, dpi, frozen)
            step = trace.steps[t]
            M = len(step.rows)
            dG = np.zeros(M)
            dH = np.zeros(M)
            for r, ids in enumerate(e.leaves[e.trees(t)], e.trees(t).start):
                drawn = 1.0 if e.sample is None else e.sample[r]
                sum_by_leaf(ids, drawn * dg, dG)
                sum_by_leaf(ids, drawn * dh, dH)
            direct = dG + step.s[0, :, 0] * (dH + dlam)
            df = step.N[0, :, 0] * direct[:, None]
            if step.mix is not None:
                assert isinstance(point, PairPoint)
                a, b = self._pair_leaves(t, point)
                pull = point.pair_jvp(dw, dpi) * (step.s[0, a, 0] - step.s[0, b, 0])
                pulled = dG + np.bincount(a, pull, M) - np.bincount(b, pull, M)
                df = e.rate(t) * (step.mix @ pulled)[:, None]
            if step.centre is not None:
                dW = np.zeros(M)
                for ids in e.leaves[e.trees(t)]:
                    sum_by_leaf(ids, dw, dW)
                values = e.rate(t) * centred(step.s[0], step.centre)
                shift = dW @ values / e.total_weight
                df = np.where(step.centre[:, None] > 0, centred(df, step.centre) - shift, 0.0)
            changes[e.leaf_range(t)] = df
        return changes
