"""One step of training with its rows in memory: sums over the rows of each leaf.

Rows are summed in chunks of fixed size, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from .._data.arrays import F64
from .._model.coupled.loss import PairPoint
from .._model.ensemble import Ensemble
from .._model.kernels import kernels
from .._model.kernels.arguments import ScoredRows, TreeChain
from .._model.kernels.numpy import sum_by_leaf
from .._model.leaf_rule import StepStatistic
from .chain_sums import ROW_CHUNK, chain_sums, has_native_sums
from .leaf_equations import LeafSums, Result, SumsCoroutine, SumsRequest

if TYPE_CHECKING:
    from concurrent.futures import Executor

_NUMBERS_CHUNK = 1 << 16  # numbers of all outputs that NumPy sums in one piece
T_ = TypeVar("T_")


class TrainingScores:
    """Scores A (n, K) of the training rows, moved in place from step to step."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.loss = ensemble.loss
        self.A = ensemble.start()
        self._state: F64 | None = None
        self._state_is_current = False

    def mark_moved(self) -> None:
        """Note that A has changed."""
        self._state_is_current = False

    @property
    def state(self) -> F64:
        """(n, C) the state of the loss at A. Its array is used again after the next move."""
        if self._state is None or not self._state_is_current:
            # The state of an additive loss is A itself.
            buffer = self._state if self.loss.exponential else None
            self._state = self.loss.state(self.A, buffer)
            self._state_is_current = True
        return self._state


class Step:
    """The training rows in the trees of one step; computes the sums that `LeafEquations` request.

    Before the first request, `advance` brings the scores to this step, or `use_sums` takes over
    sums that were computed for all steps at once.
    """

    scores: TrainingScores
    W: F64  # (M,) sums of w
    rows: F64  # (M,) rows of non-zero weight

    def __init__(self, ensemble: Ensemble, t: int, threads: Executor | None = None) -> None:
        e = ensemble
        trees = e.trees(t)
        self.ensemble = e
        self.t = t
        self.threads = threads
        self.M = int(e.step_leaves[t + 1] - e.step_leaves[t])
        self.leaves = e.leaves[trees]  # (R, n)
        self.first = e.first_output[trees]  # (R,)
        self.weights = [e.tree_weight(r) for r in range(trees.start, trees.stop)]  # R times (n,)

    def advance(self, scores: TrainingScores, values: F64 | None = None) -> None:
        """Bring the scores from the step before to this one, in place, and take sums there.

        ``values``: leaf values to move the scores by, if not those of the ensemble.
        """
        e = self.ensemble
        self.scores = scores
        if has_native_sums(e):
            self.use_sums(self._native_pass(scores.A, values))
        else:
            self._move(scores.A, values)
            self._sum_weights()
        scores.mark_moved()

    def stand(self, scores: TrainingScores) -> None:
        """Take sums at scores that somebody else has brought to this step."""
        self.scores = scores
        scores.mark_moved()
        if has_native_sums(self.ensemble):
            self.use_sums(self._native_sums_here(scores.A))
        else:
            self._sum_weights()

    def _move(self, A: F64, values: F64 | None) -> None:
        """Bring scores A (n, K) from the step before to this one, rounded as in training.

        A booster that keeps scores in float32 rounds them after each tree, also where several trees
        of a step add to one output.
        """
        e = self.ensemble
        if not (e.rounding.scores and e.boosts(self.t)):
            self._move_roughly(A, values)
        else:
            before = e.trees(self.t - 1)
            table = (e.values if values is None else values)[e.leaf_range(self.t - 1)]
            for ids, o in zip(e.leaves[before], e.first_output[before], strict=True):
                part = A[:, o : o + table.shape[1]]
                part[:] = (part + table[ids]).astype(np.float32)
        if e.rounding.scores:
            A[:] = A.astype(np.float32)

    def use_sums(self, sums: F64) -> None:
        """Use sums (M, 8) of a native pass over the rows at the scores of this step."""
        self.W = sums[:, 3].copy()
        self.rows = sums[:, 4].copy()
        self._derivative_sums = sums[:, :3]  # w g, w h, w k

    def answer(self, request: SumsRequest) -> LeafSums | F64:
        """Compute the sums that were requested: `LeafSums`, or J (M, O, O)."""
        if request.s is not None:
            return self._slopes(request.S, request.s)
        k = None
        if self.ensemble.rule.statistic is not None:
            G = self._statistics()
            O = self.ensemble.leaf_outputs
            h = np.zeros((self.M, O, O))
        elif has_native_sums(self.ensemble):
            sums = self._native_sums(request.S)
            G = sums[:, :1]
            h = sums[:, 1, None, None]
            k = sums[:, 2]
        else:
            G, h = self._general_sums(request.S)
        between = None
        if self.ensemble.rule.pairwise is not None:
            between = self._pairs_between()
        return LeafSums(self.W, self.rows, G, h, k, self._count, between)

    # ---- one output, a loss with native kernels ----

    def _native_pass(self, A: F64, values: F64 | None) -> F64:
        """(M, 8) sums at the scores of this step, to which A (n, 1) moves on.

        If one tree follows another, one pass over the rows does both.
        """
        e = self.ensemble
        t = self.t
        if e.boosts(t) and self._has_one_tree(t) and self._has_one_tree(t - 1):
            edges = e.step_leaves[t - 1 : t + 2]
            both = slice(e.trees(t - 1).start, e.trees(t).stop)
            table = (e.values if values is None else values)[edges[0] : edges[2], 0]
            chain = TreeChain(e.leaves[both], edges - edges[0], table)
            rows = ScoredRows(A, e.y, self.weights[0])
            sums = chain_sums(e, chain, rows, self.threads, first_only_moves=True)
            return sums[chain.edges[1] :]
        self._move(A, values)
        return self._native_sums_here(A)

    def _native_sums_here(self, A: F64) -> F64:
        """(M, 8) sums at the scores A (n, 1) of this step."""
        e = self.ensemble
        edges = np.array([0, self.M])
        no_move = np.zeros(self.M)
        parts = [
            chain_sums(e, TreeChain(ids[None], edges, no_move), ScoredRows(A, e.y, w), self.threads)
            for ids, w in zip(self.leaves, self.weights, strict=True)
        ]
        return np.sum(parts, axis=0)

    def _move_roughly(self, A: F64, values: F64 | None) -> None:
        """Bring scores A (n, K) from the step before to this one, as roughly as the library did."""
        e = self.ensemble
        before = self.t - 1
        if e.rough_scores is None or before < 0:
            e.move(self.t, e.leaves, A, values)
            return
        table = (e.values if values is None else values)[e.leaf_range(before)]
        e.add_leaf_values(before, table, e.leaves, A)
        A[:] = e.rough_scores(self.t, A)

    def _has_one_tree(self, t: int) -> bool:
        return bool(np.diff(self.ensemble.step_trees[t : t + 2]) == 1)

    def _native_sums(self, S: F64 | None) -> F64:
        """(M, 3 or 4) sums of w g, w h, w k at A + S."""
        if S is None:
            return self._derivative_sums
        e = self.ensemble
        sums = np.zeros((self.M, 4))
        shift = e.loss.shift(S[:, 0])
        for ids, w in zip(self.leaves, self.weights, strict=True):
            kernels.leaf_sums(e.loss.kernel, ids, self.scores.state, shift, e.y, w, sums)
        return sums

    # ---- any loss, by NumPy ----

    def _sum_weights(self) -> None:
        sums = np.zeros((self.M, 2))
        e = self.ensemble
        kernels.weight_sums(np.ascontiguousarray(self.leaves), e.w, self._draws(slice(None)), sums)
        self.W = sums[:, 0].copy()
        self.rows = sums[:, 1].copy()

    def _draws(self, part: slice) -> F64:
        """(R, rows) how often each tree drew the rows of a part; (0, rows) if all drew each once."""
        e = self.ensemble
        if e.sample is None:
            return np.empty((0, len(e.w[part])))
        return np.array([draws[part] for draws in e.sample[e.trees(self.t)]], dtype=np.float64)

    def _general_sums(self, S: F64 | None) -> tuple[F64, F64]:
        """G (M, O) and h (M, O, O) at A + S."""
        e = self.ensemble
        if e.coupled:
            return self._coupled_sums()
        if e.leaf_outputs == 1 and e.rule.newton:
            return self._sums_of_outputs(S)
        O = e.leaf_outputs
        sample = [None] * len(self.first) if e.sample is None else e.sample[e.trees(self.t)]

        def sums_of_chunk(part: slice) -> tuple[F64, F64]:
            at = self._state_at(part, S)
            y = e.y[part]
            w = e.w[part]
            G = np.zeros((self.M, O))
            H = np.zeros((self.M, O, O))
            g = e.loss.gradient(at, y)
            h = self._own_curvatures(at, y) if e.rule.newton else None
            for ids, o, draws in zip(self.leaves, self.first, sample, strict=True):
                out = slice(o, o + O)
                drawn = None if draws is None else draws[part]
                sum_by_leaf(ids[part], e.rounding.apply(g[:, out], w, drawn), G)
                if h is not None:
                    sum_by_leaf(ids[part], e.rounding.apply(h[:, o // O], w, drawn), H)
            return G, H

        gradients, hessians = zip(*self._map_chunks(sums_of_chunk), strict=True)
        return np.sum(gradients, axis=0), np.sum(hessians, axis=0)

    def _sums_of_outputs(self, S: F64 | None) -> tuple[F64, F64]:
        """The same for trees that write to one output each, by Newton steps."""
        e = self.ensemble
        factor = e.rounding.hessian_factor

        def sums_of_chunk(part: slice) -> tuple[F64, F64]:
            at = self._state_at(part, S)
            y = e.y[part]
            G = np.zeros((self.M, 1))
            H = np.zeros((self.M, 1))
            kernels.output_sums(
                e.rounding.flags,
                np.ascontiguousarray(self.leaves[:, part]),
                self.first,
                np.ascontiguousarray(e.loss.gradient(at, y)),
                np.ascontiguousarray(factor * e.loss.hessian_diagonal(at, y)),
                np.ascontiguousarray(e.w[part]),
                self._draws(part),
                G,
                H,
            )
            return G, H

        gradients, hessians = zip(*self._map_chunks(sums_of_chunk), strict=True)
        return np.sum(gradients, axis=0), np.sum(hessians, axis=0)[:, :, None] / factor

    def _coupled_sums(self) -> tuple[F64, F64]:
        """The same for a loss that couples rows, whose terms have the weights in them."""
        e = self.ensemble
        point = e.coupling.at(self.scores.A[:, 0], self.t)
        one = np.ones(e.n_rows)
        G = np.zeros((self.M, 1))
        H = np.zeros((self.M, 1, 1))
        for r, ids in enumerate(self.leaves, e.trees(self.t).start):
            drawn = None if e.sample is None else e.sample[r]
            sum_by_leaf(ids, e.rounding.apply(point.g[:, None], one, drawn), G)
            sum_by_leaf(ids, e.rounding.apply(point.h[:, None, None], one, drawn), H)
        return G, H

    def _pairs_between(self) -> F64:
        """(M, M) weights of pairs whose rows are in two leaves, of a step of one tree."""
        e = self.ensemble
        point = e.coupling.at(self.scores.A[:, 0], self.t)
        assert isinstance(point, PairPoint)
        ids = self.leaves[0].astype(np.intp)
        a, b = (ids[x] for x in (point.pairs.a, point.pairs.b))
        apart = a != b
        place = a[apart] * self.M + b[apart]
        sums = np.bincount(place, point.pair_weights[apart], self.M**2)
        return sums.reshape(self.M, self.M).astype(np.float64)

    def _own_curvatures(self, state: F64, y: F64) -> F64:
        """(n, K / O, O, O) the second derivatives among the outputs of each tree."""
        loss = self.ensemble.loss
        if self.ensemble.leaf_outputs == 1 < loss.n_outputs:
            return loss.hessian_diagonal(state, y)[:, :, None, None]
        return loss.hessian(state, y)[:, None]

    def _slopes(self, S: F64 | None, s: F64) -> F64:
        """J (M, O, O) of a step of one tree."""
        e = self.ensemble

        def sums_of_chunk(part: slice) -> F64:
            at = self._state_at(part, S)
            y = e.y[part]
            ids = self.leaves[0][part]
            J = np.zeros((*s.shape, s.shape[1]))
            slope = e.loss.jacobian(at, y)
            if e.rule.newton:
                slope = slope + e.loss.third_dot(at, y, s[ids])
            sum_by_leaf(ids, self.weights[0][part, None, None] * slope, J)
            return J

        return np.sum(self._map_chunks(sums_of_chunk), axis=0)

    def _map_chunks(self, fn: Callable[[slice], T_]) -> list[T_]:
        """fn of each chunk of rows."""
        n = self.ensemble.n_rows
        K = self.ensemble.n_outputs
        size = ROW_CHUNK if K == 1 else max(1, _NUMBERS_CHUNK // K)
        chunks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
        if self.threads is None or len(chunks) == 1:
            return list(map(fn, chunks))
        return list(self.threads.map(fn, chunks))

    def _state_at(self, part: slice, S: F64 | None) -> F64:
        """The state of these rows at A + S."""
        loss = self.ensemble.loss
        state = loss.state(self.scores.A[part])
        return state if S is None else loss.moved(state, loss.shift(S)[self.leaves[0][part]])

    def _statistics(self) -> F64:
        """(M, O) the statistic of each leaf's rows."""
        e = self.ensemble
        s = np.zeros((self.M, e.leaf_outputs))
        first_tree = e.trees(self.t).start
        for r, (ids, first, w) in enumerate(
            zip(self.leaves, self.first.tolist(), self.weights, strict=True)
        ):
            rows = e.drawn_rows(first_tree + r)
            for i, o in enumerate(range(first, first + e.leaf_outputs)):
                y = e.labels_of(o)
                residual = y - self.scores.A[:, o]
                statistic = e.rule.statistic_of(o)
                if hasattr(
                    statistic, "among"
                ):  # isinstance() of a protocol takes longer than the rest
                    statistic = cast("StepStatistic", statistic).among(residual, e.w)
                s[:, i] += statistic(ids[rows], self.M, residual[rows], y[rows], w[rows])
        return s

    @cached_property
    def _count(self) -> F64 | None:
        """(M,) rows drawn for each leaf, if the model recorded them."""
        e = self.ensemble
        if e.recorded is None or e.recorded.kind != "rows":
            return None
        count = np.zeros(self.M)
        for r, ids in enumerate(self.leaves, e.trees(self.t).start):
            drawn = e.w_factor > 0
            if e.sample is not None:
                drawn &= e.sample[r] > 0
            sum_by_leaf(ids, drawn.astype(np.float64), count)
        return count


def run_on_rows(coroutine: SumsCoroutine[Result], step: Step) -> Result:
    """Run the coroutine to its result, answering its requests from the rows of this step."""
    try:
        request = next(coroutine)
        while True:
            request = coroutine.send(step.answer(request))
    except StopIteration as end:
        return end.value
