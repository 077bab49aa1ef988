"""One step of training: sums over the rows of its leaves, and what follows from them. replay.py has the formulas.

Sums over rows and what is made of them are kept apart: `StepLeaves` asks for sums and uses them, whoever has rows
answers. `Step` has all rows; a cluster has them in parts, whose sums are added.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ids, Ints
from .._data.progress import progress
from .._kernels import kernels
from .._kernels.numpy import sum_by_leaf
from .._model.ensemble import Ensemble

ROW_CHUNK = 1 << 17  # rows whose sums are taken together, whatever the number of threads
T_ = TypeVar("T_")


@dataclass(frozen=True)
class Iteration:
    """One inner iteration of a step."""

    c: float
    S: F64 | None  # (M, O) before it; None means zero
    s: F64  # (M, O)
    sums: LeafSums
    D: F64  # (M, O, O) with lam
    D_inverse: F64  # zero where the leaf does not move
    J: F64 | None  # (M, O, O); None where a step has one iteration only
    spread: F64 | None = None  # see StepTrace

    def after(self) -> F64:
        return self.c * self.s if self.S is None else self.S + self.c * self.s


@dataclass(frozen=True)
class Ask:
    """Sums over the rows of each leaf at scores A + S, S (M, O) or None for zero; with ``s`` (M, O) those of J."""

    S: F64 | None = None
    s: F64 | None = None


@dataclass(frozen=True)
class LeafSums:
    """What a step asks of its rows, added up over each of its M leaves."""

    W: F64  # (M,) w
    rows: F64  # (M,) rows of non-zero weight
    G: F64  # (M, O) w g; of a statistic, its value
    h: F64  # (M, O, O) w h; zero where the leaf rule does not ask for it
    k: F64 | None = None  # (M,) w k of one output; J then needs nothing else
    count: F64 | None = None  # (M,) rows drawn, where the model recorded them

    def __add__(self, other: LeafSums) -> LeafSums:
        pairs = zip(*(vars(sums).values() for sums in (self, other)), strict=True)
        return LeafSums(*(None if a is None or b is None else a + b for a, b in pairs))  # pyright: ignore


Asking = Generator[Ask, Any, T_]  # is sent what it asks for: LeafSums, or J (M, O, O)


class StepLeaves:
    """The leaves of one step, and what follows from the sums over their rows."""

    def __init__(self, ensemble: Ensemble, t: int) -> None:
        self.ensemble = ensemble
        self.t = t
        e = ensemble
        self.M = int(e.step_leaves[t + 1] - e.step_leaves[t])
        self.lam = np.broadcast_to(
            e.lam if e.leaf_l2 is None else e.lam + e.leaf_l2[e.leaf_range(t)], self.M
        )

    def iterate(self, S: F64 | None, c: float = 1.0) -> Asking[Iteration]:
        """The inner iteration at A + S, S (M, O) or None for zero."""
        e = self.ensemble
        rule = self.ensemble.rule
        eye = np.eye(self.ensemble.leaf_outputs)
        sums: LeafSums = yield Ask(S)
        if rule.statistic is not None:
            return self._statistic(sums, c)
        H = sums.h if rule.newton else sums.W[:, None, None] * eye
        H = H * eye if rule.diagonal else H
        if e.smoothing is not None:
            return self._smoothed(sums, H, c)
        # A softmax Hessian is singular along (1, ..., 1); CatBoost keeps it solvable by a floor under lam.
        floor = 0.0
        if len(eye) > 1 and not rule.diagonal:
            floor = np.finfo(np.float32).eps * np.einsum("maa->ma", H).max(axis=1)
        D = H + np.maximum(self.lam, floor)[:, None, None] * eye
        s, D_inverse = self._solve(sums.G, H, D)
        J = None
        if sums.k is not None:
            J = sums.h + sums.k[:, None, None] * s[..., None] if rule.newton else sums.h
        elif rule.iterations > 1:
            J = yield Ask(S, s)
        return Iteration(c, S, s, sums, D, D_inverse, J)

    def _solve(self, G: F64, H: F64, D: F64) -> tuple[F64, F64]:
        """The step s (M, O), and D^-1, zero for leaves that do not move."""
        e = self.ensemble
        rule = self.ensemble.rule
        D_inverse = inverse(D)
        if rule.limited:
            s, moves = rule.step(G, np.einsum("maa->ma", H), np.einsum("maa->ma", D))
            D_inverse = D_inverse * moves[..., None]
        else:
            s = -np.einsum("mab,mb->ma", D_inverse, G)
        if e.fixed is not None:
            D_inverse = np.where(self._set_fixed(s)[:, None, None], 0.0, D_inverse)
        return s, D_inverse

    def _set_fixed(self, s: F64) -> NDArray[np.bool_]:
        """(M,) leaves whose value does not come from their rows; s gets it."""
        e = self.ensemble
        here = self.ensemble.leaf_range(self.t)
        fixed = np.zeros(self.M, bool) if e.fixed is None else e.fixed[here]
        s[fixed] = e.values[here][fixed] / e.rate(self.t)
        return fixed

    def _smoothed(self, sums: LeafSums, H: F64, c: float) -> Iteration:
        """Leaves that are mixtures of the steps of the nodes above them."""
        e = self.ensemble
        s = np.zeros_like(sums.G)
        spread = np.zeros((self.M, self.M, 2))
        assert e.smoothing is not None
        trees = e.trees(self.t)
        edges = e.tree_leaves[trees.start : trees.stop + 1] - e.leaf_range(self.t).start
        for tree, begin, end in zip(e.smoothing[trees], edges[:-1], edges[1:], strict=True):
            here = slice(begin, end)
            node_G = tree.below @ sums.G[here, 0]
            node_H = tree.below @ H[here, 0, 0]
            D = node_H + e.lam + tree.l2
            steps, moves = e.rule.step(node_G, node_H, D)
            s[here, 0] = tree.mix @ steps
            slope = (
                -e.rate(self.t) * moves / np.where(D > 0, D, 1.0)
            )  # of a node's step, in its sum of g
            spread[here, here, 0] = (tree.mix * slope) @ tree.below
            spread[here, here, 1] = (tree.mix * (slope * steps)) @ tree.below
        spread[self._set_fixed(s)] = 0
        nothing = np.zeros_like(H)
        return Iteration(c, None, s, sums, nothing, nothing, None, spread)

    def _statistic(self, sums: LeafSums, c: float) -> Iteration:
        s = sums.G.copy()
        nothing = np.zeros((self.M, 1, 1))
        self._set_fixed(s)
        return Iteration(c, None, s, replace(sums, G=np.zeros_like(s)), nothing, nothing, None)

    def recorded(self, kind: str, first: Iteration) -> F64:
        """(M,) what the model recorded of its leaves."""
        if kind == "hessian":
            return first.D[:, 0, 0] - self.lam
        found = {
            "weight": first.sums.W,
            "weighted rows": first.sums.rows,
            "rows": first.sums.count,
        }[kind]
        assert found is not None
        return found


class Step(StepLeaves):
    """The leaves of one step and their rows; computes the sums the formulas above ask for.

    Takes the scores A as the step before read them, and moves them on. One output with a native loss does that, the
    derivatives and the sums over leaves in one pass over the rows, in chunks that do not depend on the threads."""

    def __init__(
        self,
        ensemble: Ensemble,
        t: int,
        A: F64,  # (n, K), moved in place
        values: F64 | None = None,  # leaf values to move by, if not the ensemble's
        buffer: F64 | None = None,  # the state of another step, no longer needed
        threads: Executor | None = None,
        known: F64
        | None = None,  # (M, 8) what the one pass would give; then the scores stay where they are
    ) -> None:
        super().__init__(ensemble, t)
        self.A = A
        self.values = values
        self.buffer = buffer
        self.threads = threads
        e = ensemble
        trees = ensemble.trees(t)
        self.leaves = e.leaves[trees]
        self.first = e.first_output[trees]
        self.weights = [e.tree_weight(r) for r in range(trees.start, trees.stop)]  # R times (n,)
        self.one_pass = has_one_pass(e)
        if self.one_pass:
            sums = self._one_pass() if known is None else known
            self.W = sums[:, 3].copy()
            self.rows = sums[:, 4].copy()
            self.sums = sums[:, :3]
            return
        e.move(t, e.leaves, A, values)
        if e.rounding.scores:
            A[:] = A.astype(np.float32)
        self.W, self.rows = np.zeros(self.M), np.zeros(self.M)
        for ids, w in zip(self.leaves, self.weights, strict=True):
            sum_by_leaf(ids, w, self.W)
            sum_by_leaf(ids, (w > 0).astype(float), self.rows)

    def _one_pass(self) -> F64:
        """(M, 8) sums of derivatives; the scores move on."""
        e = self.ensemble
        t = self.t
        if e.boosts(t) and self._one_tree(t) and self._one_tree(t - 1):
            both = slice(e.trees(t - 1).start, e.trees(t).stop)
            leaves = e.step_leaves[t - 1 : t + 2]
            values = (e.values if self.values is None else self.values)[leaves[0] : leaves[2], 0]
            edges = leaves - leaves[0]
            w = self.weights[0]
            sums = one_output_sums(e, e.leaves[both], True, edges, values, self.A, w, self.threads)
            return sums[edges[1] :]
        e.move(t, e.leaves, self.A, self.values)
        # nothing moves within the step
        edges = np.array([0, self.M])
        values = np.zeros(self.M)
        trees = zip(self.leaves, self.weights, strict=True)
        parts = [
            one_output_sums(e, ids[None], False, edges, values, self.A, w, self.threads)
            for ids, w in trees
        ]
        return np.sum(parts, axis=0)

    def _one_tree(self, t: int) -> bool:
        return bool(np.diff(self.ensemble.step_trees[t : t + 2]) == 1)

    @cached_property
    def state(self) -> F64:
        return self.ensemble.loss.state(self.A, self.buffer)

    def answer(self, ask: Ask) -> Any:
        if ask.s is not None:
            return self._slopes(ask.S, ask.s)
        if self.ensemble.rule.statistic is not None:
            G = self._statistics()
            h = np.zeros((self.M, 1, 1))
            k = None
        elif self.one_pass:
            g_h_k = self.sums if ask.S is None else self._moved_sums(ask.S)
            G = g_h_k[:, :1]
            h = g_h_k[:, 1, None, None]
            k = g_h_k[:, 2]
        else:
            (G, h) = self._general_sums(ask.S)
            k = None
        return LeafSums(self.W, self.rows, G, h, k, self._count)

    @cached_property
    def _count(self) -> F64 | None:
        e = self.ensemble
        count = np.zeros(self.M)
        if e.recorded is None or e.recorded.kind != "rows":
            return None
        for r, ids in enumerate(self.leaves, e.trees(self.t).start):
            drawn = np.ones(e.n_rows) if e.sample is None else e.sample[r] > 0
            sum_by_leaf(ids, drawn * (e.w_factor > 0), count)
        return count

    def _moved_sums(self, S: F64) -> F64:
        e = self.ensemble
        sums = np.zeros((self.M, 4))
        shift = self.ensemble.loss.shift(S[:, 0])
        for ids, w in zip(self.leaves, self.weights, strict=True):
            kernels.leaf_sums(e.loss.kernel, ids, self.state, shift, e.y, w, sums)
        return sums

    def _general_sums(self, S: F64 | None) -> list[F64]:
        """G and h of any loss."""
        e = self.ensemble
        O = self.ensemble.leaf_outputs
        drawn = [None] * len(self.first) if e.sample is None else e.sample[e.trees(self.t)]

        def chunk(part: slice) -> tuple[F64, F64]:
            at = self._moved(part, S)
            y = e.y[part]
            w = e.w[part]
            G = np.zeros((self.M, O))
            H = np.zeros((self.M, O, O))
            g = e.loss.gradient(at, y)
            h = e.loss.hessian(at, y) if e.rule.newton else None
            for ids, o, times in zip(self.leaves, self.first, drawn, strict=True):
                out = slice(o, o + O)
                times = None if times is None else times[part]
                sum_by_leaf(ids[part], e.rounding.apply(g[:, out], w, times), G)
                if h is not None:
                    sum_by_leaf(ids[part], e.rounding.apply(h[:, out, out], w, times), H)
            return G, H

        return [np.sum(x, axis=0) for x in zip(*self._map(chunk), strict=True)]

    def _slopes(self, S: F64 | None, s: F64) -> F64:
        """J (M, O, O) of a step of one tree."""
        e = self.ensemble

        def chunk(part: slice) -> F64:
            at = self._moved(part, S)
            y = e.y[part]
            ids = self.leaves[0][part]
            J = np.zeros((*s.shape, s.shape[1]))
            slope = e.loss.jacobian(at, y)
            if e.rule.newton:
                slope = slope + e.loss.third_dot(at, y, s[ids])
            sum_by_leaf(ids, self.weights[0][part, None, None] * slope, J)
            return J

        return np.sum(self._map(chunk), axis=0)

    def _map(self, fn: Callable[[slice], T_]) -> list[T_]:
        """fn of all rows, in chunks that do not depend on the threads."""
        parts = [
            slice(i, min(i + ROW_CHUNK, len(self.A))) for i in range(0, len(self.A), ROW_CHUNK)
        ]
        return list(map(fn, parts) if self.threads is None else self.threads.map(fn, parts))

    def _moved(self, part: slice, S: F64 | None) -> F64:
        """The state of these rows at A + S."""
        loss = self.ensemble.loss
        state = loss.state(self.A[part])
        return state if S is None else loss.moved(state, loss.shift(S)[self.leaves[0][part]])

    def _statistics(self) -> F64:
        e = self.ensemble
        s = np.zeros((self.M, 1))
        assert e.rule.statistic is not None
        for ids, o, w in zip(self.leaves, self.first, self.weights, strict=True):
            here = np.unique(ids)
            s[here, 0] = e.rule.statistic(ids, self.M, e.y - self.A[:, o], e.y, w)[here]
        return s


def answered(asking: Asking[T_], step: Step) -> T_:
    """The end of this, with the rows of this step."""
    try:
        ask = next(asking)
        while True:
            ask = asking.send(step.answer(ask))
    except StopIteration as end:
        return end.value


def has_one_pass(e: Ensemble) -> bool:
    """One output with a native loss: derivatives and sums over leaves come from one pass over the rows."""
    native = e.loss.kernel is not None and not e.loss.rounded
    return e.n_outputs == 1 and native and e.smoothing is None and not e.rounding.draws


def one_output_sums(
    e: Ensemble,
    leaf: Ids,
    skip: bool,
    edges: Ints,
    values: F64,
    A: F64,
    w: F64,
    threads: Executor | None,
    what: str = "",
) -> F64:
    """(leaves, 8) of `kernels.replay_sums`, in chunks of rows that do not depend on the threads. ``what``: of progress,
    where it takes long."""
    values = np.ascontiguousarray(values)

    def chunk(start: int) -> F64:
        sums = np.zeros((len(values), 8))
        rows = (start, min(start + ROW_CHUNK, e.n_rows))
        kernels.replay_sums(
            e.loss.kernel, leaf, skip, edges, values, A, e.y, w, e.rounding.flags, *rows, sums
        )
        return sums

    starts = range(0, e.n_rows, ROW_CHUNK)
    done = map(chunk, starts) if threads is None else threads.map(chunk, starts)
    return np.sum(list(progress(done, e.n_rows, what, "row", ROW_CHUNK) if what else done), axis=0)


def sums_of_all_steps(e: Ensemble, A: F64, threads: Executor | None) -> F64 | None:
    """(leaves, 8) where each row can go through all steps at once: then it passes through the caches once."""
    rule = e.rule
    plain = e.moves is None and e.sample is None and len(e.leaves) == e.n_steps
    if not (has_one_pass(e) and plain and rule.iterations == 1 and rule.statistic is None):
        return None
    return one_output_sums(
        e, e.leaves, False, e.step_leaves, e.values[:, 0], A, e.w, threads, "replaying"
    )


def inverse(D: F64) -> F64:
    """(M, O, O) inverses; zero where there is nothing to invert (a leaf without rows, lam = 0)."""
    ok = np.einsum("maa->ma", D).min(axis=1) > 0
    if D.shape[-1] == 1:
        return np.where(ok, 1 / np.where(ok, D[:, 0, 0], 1), 0)[:, None, None]
    ok = ok[:, None, None]
    eye = np.eye(D.shape[-1])
    return np.where(ok, np.linalg.inv(np.where(ok, D, eye)), 0)


def walk(
    step: StepLeaves, scales: Sequence[float], first: Iteration | None = None
) -> Asking[list[Iteration]]:
    """Inner iterations with these scales; the first may be known already."""
    if first is None:
        first = yield from step.iterate(None)
    path = [replace(first, c=scales[0])]
    for c in scales[1:]:
        path.append((yield from step.iterate(path[-1].after(), c)))
    return path
