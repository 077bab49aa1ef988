"""Replay: recompute every leaf value from the data and the fixed structure, and linearise each step.

One leaf, one inner iteration q, reading scores B = A + S (S the sum of the leaf's steps so far, no shrinkage):

    D = sum w h + lam,   s = -D^-1 sum w g,   S <- S + c s            (c = 1, or a power of 1/2 after backtracking)

Its differential is ds = -D^-1 (direct + J dS), with J = sum w (j + k.s) and a direct term from what moved. Chaining
the Q iterations and the learning rate eta, a leaf's value f = eta S moves by

    df = sum_q N_q direct_q,    N_q = -eta c_q [prod_{r > q} (I - c_r D_r^-1 J_r)] D_q^-1

so several inner iterations cost the passes over rows nothing: they only sum over q. The direct terms are

    weight of row i:      g_i + h_i s          score of row j:   w_j (j_j + k_j.s)        (j = dg/dA)
    label of row i:       w_i (dg_i/dy + dh_i/dy s)          lam: s

The gradient rule has D = sum w + lam, so there h -> 1 and k, dh/dy -> 0 wherever they stand for D's derivative.
A leaf that an l1 term or a bound decides does not move: its D^-1 is zero in all of this. Weights w are those of the
tree: times how often it drew the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ._arrays import F64, Ids, Ints
from ._ensemble import Ensemble
from ._fidelity import Fidelity, judge
from ._kernels import kernels
from ._twins import sum_by_leaf

ROW_CHUNK = 1 << 17  # rows whose sums are taken together, whatever the number of threads
PATH_TOLERANCE = 1e-9  # relative; a matching path gives 1e-12, a wrong one is far off or changes nothing


@dataclass(frozen=True)
class Iteration:
    """One inner iteration of a step."""

    c: float
    S: F64 | None  # (M, O) before it; None means zero
    s: F64  # (M, O)
    G: F64  # (M, O)
    D: F64  # (M, O, O) with lam
    D_inverse: F64  # zero where the leaf does not move
    J: F64 | None  # (M, O, O); None where a step has one iteration only
    spread: F64 | None = None  # see StepTrace

    def after(self) -> F64:
        return self.c * self.s if self.S is None else self.S + self.c * self.s


@dataclass(frozen=True)
class StepTrace:
    """One step, linearised. Q accepted inner iterations, M leaves, O outputs of a leaf."""

    scale: F64  # (Q,) c
    S: F64  # (Q, M, O) before each iteration
    s: F64  # (Q, M, O)
    G: F64  # (Q, M, O)
    D: F64  # (Q, M, O, O) with lam
    N: F64  # (Q, M, O, O)
    rows: F64  # (M,) rows of non-zero weight
    spread: F64 | None = None  # (M, M, 2) of smoothed trees: what sums of g and of h over leaf l do to leaf l'

    @property
    def lam_effect(self) -> F64:
        """df / dlam, (M, O)."""
        return np.einsum("qmab,qmb->ma", self.N, self.s)


@dataclass(frozen=True)
class Trace:
    """A replayed model: what every method works on."""

    ensemble: Ensemble
    steps: list[StepTrace]
    fidelity: Fidelity

    @cached_property
    def lam_effect(self) -> F64:
        """df / dlam, (leaves, O)."""
        return np.concatenate([step.lam_effect for step in self.steps])


@dataclass
class Step:
    """The rows and leaves of one step; computes the sums the formulas above ask for.

    Takes the scores A as the step before read them, and moves them on. One output with a native loss does that, the
    derivatives and the sums over leaves in one pass over the rows, in chunks that do not depend on the threads."""

    ensemble: Ensemble
    t: int
    A: F64  # (n, K), moved in place
    values: F64 | None = None  # leaf values to move by, if not the ensemble's
    buffer: F64 | None = None  # the state of another step, no longer needed
    threads: Executor | None = None
    known: F64 | None = None  # (M, 8) what the one pass would give; then the scores stay where they are

    def __post_init__(self) -> None:
        e, trees = self.ensemble, self.ensemble.trees(self.t)
        self.leaves = e.leaves[trees]
        self.first = e.first_output[trees]
        self.M = int(e.step_leaves[self.t + 1] - e.step_leaves[self.t])
        self.weights = [e.tree_weight(r) for r in range(trees.start, trees.stop)]  # R times (n,)
        self.W, self.rows = np.zeros(self.M), np.zeros(self.M)  # weight of each leaf, rows of non-zero weight
        self.one_pass = has_one_pass(e)
        if self.one_pass:
            sums = self._one_pass() if self.known is None else self.known
            self.sums, self.W, self.rows = sums[:, :3], sums[:, 3].copy(), sums[:, 4].copy()
            return
        e.move(self.t, e.leaves, self.A, self.values)
        if e.rounding.scores:
            self.A[:] = self.A.astype(np.float32)
        for ids, w in zip(self.leaves, self.weights, strict=True):
            sum_by_leaf(ids, w, self.W)
            sum_by_leaf(ids, (w > 0).astype(float), self.rows)

    def _one_pass(self) -> F64:
        """(M, 8) sums of derivatives; the scores move on."""
        e, t = self.ensemble, self.t
        if e.boosts(t) and self._one_tree(t) and self._one_tree(t - 1):
            both = slice(e.trees(t - 1).start, e.trees(t).stop)
            leaves = e.step_leaves[t - 1 : t + 2]
            values = (e.values if self.values is None else self.values)[leaves[0] : leaves[2], 0]
            edges, w = leaves - leaves[0], self.weights[0]
            sums = one_output_sums(e, e.leaves[both], True, edges, values, self.A, w, self.threads)
            return sums[edges[1] :]
        e.move(t, e.leaves, self.A, self.values)
        edges, values = np.array([0, self.M]), np.zeros(self.M)  # nothing moves within the step
        trees = zip(self.leaves, self.weights, strict=True)
        parts = [one_output_sums(e, ids[None], False, edges, values, self.A, w, self.threads) for ids, w in trees]
        return np.sum(parts, axis=0)

    def _one_tree(self, t: int) -> bool:
        return bool(np.diff(self.ensemble.step_trees[t : t + 2]) == 1)

    @cached_property
    def state(self) -> F64:
        return self.ensemble.loss.state(self.A, self.buffer)

    def iterate(self, S: F64 | None, c: float = 1.0) -> Iteration:
        """The inner iteration at A + S, S (M, O) or None for zero."""
        e, O = self.ensemble, self.ensemble.leaf_outputs
        if e.rule.statistic is not None:
            return self._statistic(c)
        lam = e.lam if e.leaf_l2 is None else e.lam + e.leaf_l2[e.leaf_range(self.t)]
        if self.one_pass:
            sums = self.sums if S is None else np.zeros((self.M, 4))
            if S is not None:
                shift = e.loss.shift(S[:, 0])
                for ids, w in zip(self.leaves, self.weights, strict=True):
                    kernels.leaf_sums(e.loss.kernel, ids, self.state, shift, e.y, w, sums)
            G, h, k = sums[:, :1], sums[:, 1, None, None], sums[:, 2, None, None]
            H = h if e.rule.newton else self.W[:, None, None]
            D = H + np.reshape(lam, (-1, 1, 1))
            s, D_inverse = self._solve(G, H, D)
            J = h + k * s[..., None] if e.rule.newton else h
            return Iteration(c, S, s, G, D, D_inverse, J)
        at = self._moved(S)
        g, h = e.loss.gradient(at, e.y), e.loss.hessian(at, e.y)
        G, H = np.zeros((self.M, O)), np.zeros((self.M, O, O))
        drawn = [None] * len(self.first) if e.sample is None else e.sample[e.trees(self.t)]
        for ids, o, w, times in zip(self.leaves, self.first, self.weights, drawn, strict=True):
            out = slice(o, o + O)
            sum_by_leaf(ids, e.rounding.apply(g[:, out], e.w, times), G)
            here = e.rounding.apply(h[:, out, out], e.w, times) if e.rule.newton else w[:, None, None] * np.eye(O)
            sum_by_leaf(ids, here * np.eye(O) if e.rule.diagonal else here, H)
        # A softmax Hessian is singular along (1, ..., 1); CatBoost keeps it solvable by a floor under lam.
        floor = 0.0
        if O > 1 and not e.rule.diagonal:
            floor = np.finfo(np.float32).eps * np.einsum("maa->ma", H).max(axis=1)
        if e.smoothing is not None:
            return self._smoothed(G, H, c)
        D = H + np.broadcast_to(np.maximum(lam, floor), self.M)[:, None, None] * np.eye(O)
        s, D_inverse = self._solve(G, H, D)
        if e.rule.iterations == 1:
            return Iteration(c, S, s, G, D, D_inverse, None)
        J = np.zeros_like(D)
        slope = e.loss.jacobian(at, e.y)
        if e.rule.newton:
            slope = slope + e.loss.third_dot(at, e.y, s[self.leaves[0]])
        sum_by_leaf(self.leaves[0], self.weights[0][:, None, None] * slope, J)
        return Iteration(c, S, s, G, D, D_inverse, J)

    def _solve(self, G: F64, H: F64, D: F64) -> tuple[F64, F64]:
        """The step s (M, O), and D^-1, zero for leaves that do not move."""
        e, rule = self.ensemble, self.ensemble.rule
        D_inverse = inverse(D)
        if rule.limited:
            s, moves = rule.step(G, np.einsum("maa->ma", H), np.einsum("maa->ma", D))
            D_inverse = D_inverse * moves[..., None]
        else:
            s = -np.einsum("mab,mb->ma", D_inverse, G)
        if e.fixed is not None:
            fixed = e.fixed[e.leaf_range(self.t)]
            s[fixed] = e.values[e.leaf_range(self.t)][fixed] / e.rate(self.t)
            D_inverse = np.where(fixed[:, None, None], 0.0, D_inverse)
        return s, D_inverse

    def _smoothed(self, G: F64, H: F64, c: float) -> Iteration:
        """Leaves that are mixtures of the steps of the nodes above them."""
        e, s, spread = self.ensemble, np.zeros_like(G), np.zeros((self.M, self.M, 2))
        assert e.smoothing is not None
        trees = e.trees(self.t)
        edges = e.tree_leaves[trees.start : trees.stop + 1] - e.leaf_range(self.t).start
        for tree, begin, end in zip(e.smoothing[trees], edges[:-1], edges[1:], strict=True):
            here = slice(begin, end)
            node_G, node_H = tree.below @ G[here, 0], tree.below @ H[here, 0, 0]
            D = node_H + e.lam + tree.l2
            steps, moves = e.rule.step(node_G, node_H, D)
            s[here, 0] = tree.mix @ steps
            slope = -e.rate(self.t) * moves / np.where(D > 0, D, 1.0)  # of a node's step, in its sum of g
            spread[here, here, 0] = (tree.mix * slope) @ tree.below
            spread[here, here, 1] = (tree.mix * (slope * steps)) @ tree.below
        fixed = np.zeros(self.M, bool) if e.fixed is None else e.fixed[e.leaf_range(self.t)]
        s[fixed] = e.values[e.leaf_range(self.t)][fixed] / e.rate(self.t)
        spread[fixed] = 0
        nothing = np.zeros_like(H)
        return Iteration(c, None, s, G, nothing, nothing, None, spread)

    def _statistic(self, c: float) -> Iteration:
        e, s = self.ensemble, np.zeros((self.M, 1))
        assert e.rule.statistic is not None
        for ids, o, w in zip(self.leaves, self.first, self.weights, strict=True):
            here = np.unique(ids)
            s[here, 0] = e.rule.statistic(ids, self.M, e.y - self.A[:, o], e.y, w)[here]
        if e.fixed is not None:
            fixed = e.fixed[e.leaf_range(self.t)]
            s[fixed] = e.values[e.leaf_range(self.t)][fixed] / e.rate(self.t)
        nothing = np.zeros((self.M, 1, 1))
        return Iteration(c, None, s, np.zeros_like(s), nothing, nothing, None)

    def _moved(self, S: F64 | None) -> F64:
        loss = self.ensemble.loss
        return self.state if S is None else loss.moved(self.state, loss.shift(S)[self.leaves[0]])

    def recorded(self, kind: str, first: Iteration) -> F64:
        """(M,) what the model recorded of its leaves."""
        e = self.ensemble
        if kind == "weight":
            return self.W
        if kind == "weighted rows":
            return self.rows
        if kind == "hessian":
            lam = e.lam if e.leaf_l2 is None else e.lam + e.leaf_l2[e.leaf_range(self.t)]
            return first.D[:, 0, 0] - lam
        count = np.zeros(self.M)
        for r, ids in enumerate(self.leaves, e.trees(self.t).start):
            drawn = np.ones(e.n_rows) if e.sample is None else e.sample[r] > 0
            sum_by_leaf(ids, drawn * (e.w_factor > 0), count)
        return count


def has_one_pass(e: Ensemble) -> bool:
    """One output with a native loss: derivatives and sums over leaves come from one pass over the rows."""
    native = e.loss.kernel is not None and not e.loss.rounded
    return e.n_outputs == 1 and native and e.smoothing is None and not e.rounding.draws


def one_output_sums(
    e: Ensemble, leaf: Ids, skip: bool, edges: Ints, values: F64, A: F64, w: F64, threads: Executor | None
) -> F64:
    """(leaves, 8) of `kernels.replay_sums`, in chunks of rows that do not depend on the threads."""
    values = np.ascontiguousarray(values)

    def chunk(start: int) -> F64:
        sums, rows = np.zeros((len(values), 8)), (start, min(start + ROW_CHUNK, e.n_rows))
        kernels.replay_sums(e.loss.kernel, leaf, skip, edges, values, A, e.y, w, e.rounding.level, *rows, sums)
        return sums

    starts = range(0, e.n_rows, ROW_CHUNK)
    return np.sum(list(map(chunk, starts) if threads is None else threads.map(chunk, starts)), axis=0)


def _sums_of_all_steps(e: Ensemble, A: F64, threads: Executor | None) -> F64 | None:
    """(leaves, 8) where each row can go through all steps at once: then it passes through the caches once."""
    rule, plain = e.rule, e.moves is None and e.sample is None and len(e.leaves) == e.n_steps
    if not (has_one_pass(e) and plain and rule.iterations == 1 and rule.statistic is None):
        return None
    return one_output_sums(e, e.leaves, False, e.step_leaves, e.values[:, 0], A, e.w, threads)


def inverse(D: F64) -> F64:
    """(M, O, O) inverses; zero where there is nothing to invert (a leaf without rows, lam = 0)."""
    ok = np.einsum("maa->ma", D).min(axis=1) > 0
    if D.shape[-1] == 1:
        return np.where(ok, 1 / np.where(ok, D[:, 0, 0], 1), 0)[:, None, None]
    ok, eye = ok[:, None, None], np.eye(D.shape[-1])
    return np.where(ok, np.linalg.inv(np.where(ok, D, eye)), 0)


def replay(ensemble: Ensemble, tolerance: float, notes: Sequence[str] = (), threads: Executor | None = None) -> Trace:
    """Walk through the steps with the model's own scores, so that each step is judged by itself."""
    A = ensemble.start()
    steps, errors, weight_errors = [], np.zeros(ensemble.n_steps), np.zeros(ensemble.n_steps)
    scale = _leaf_scale(ensemble, A)
    searching = ensemble.rule.backtracking
    worst_leaf = np.zeros(ensemble.n_steps, dtype=int)
    buffer, sums = None, _sums_of_all_steps(ensemble, A, threads)
    for t in range(ensemble.n_steps):
        known = None if sums is None else sums[ensemble.leaf_range(t)]
        step = Step(ensemble, t, A, None, buffer, threads, known)
        target = ensemble.values[ensemble.leaf_range(t)]
        first = step.iterate(None)
        if ensemble.recorded is not None:
            recorded = ensemble.recorded.values[ensemble.leaf_range(t)]
            found = step.recorded(ensemble.recorded.kind, first)
            # Of all steps for second derivatives: those of late steps can be mere rounding.
            scope = ensemble.recorded.values if ensemble.recorded.kind == "hessian" else recorded
            weight_errors[t] = np.abs(found - recorded).max(initial=0.0) / (scope.max(initial=0.0) or 1.0)
            searching = searching and weight_errors[t] <= tolerance
        iterations = _inner_iterations(step, first, target, scale, searching)
        found = ensemble.rate(t) * iterations[-1].after()
        difference = np.abs(found - target).max(axis=1)
        errors[t], worst_leaf[t] = difference.max() / scale, difference.argmax()
        searching = searching and errors[t] <= tolerance  # a search that failed would fail, slowly, at every step
        steps.append(_linearise(step, iterations))
        if ensemble.loss.exponential:  # an additive loss's state is A itself
            buffer = step.__dict__.get("state")
    fidelity = judge(ensemble, errors, worst_leaf, weight_errors, _base_error(ensemble), tolerance, notes)
    return Trace(ensemble, steps, fidelity)


def _leaf_scale(ensemble: Ensemble, A: F64) -> float:
    """The largest leaf value; where all are rounding noise, what a leaf could have been."""
    gradient = np.abs(ensemble.loss.gradient(ensemble.loss.state(A), ensemble.y)).max()
    possible = float(np.max(ensemble.learning_rate)) * gradient
    return float(max(np.abs(ensemble.values).max(initial=0.0), 1e-6 * possible)) or 1.0


def _base_error(ensemble: Ensemble) -> float:
    """Relative error of the starting score."""
    e = ensemble
    if e.base_rule is None:
        return 0.0
    found = e.base_rule.fit(e.loss, e.y, e.base_weight)
    scale = max(float(np.abs(e.base).max()), float(np.abs(e.values).max(initial=0.0))) or 1.0
    return float(np.abs(found - e.base).max()) / scale


def _inner_iterations(step: Step, first: Iteration, target: F64, scale: float, search: bool) -> list[Iteration]:
    """The accepted inner iterations of a step.

    Backtracking accepts a step or halves it on a comparison of two losses that differ by rounding, so its decisions
    cannot be predicted; they can be found, because the model's leaf values tell which were taken. Depth first,
    'accept' first; a rejection halves the step and uses up an iteration.
    """
    count, rate = step.ensemble.rule.iterations, step.ensemble.rate(step.t)
    best: tuple[float, list[Iteration]] = (np.inf, [])
    if not search:
        return walk(step, [1.0] * count, first)

    def visit(left: int, path: list[Iteration]) -> bool:
        nonlocal best
        if left == 0:
            error = float(np.abs(rate * path[-1].after() - target).max()) / scale
            if error < best[0]:
                best = error, path
            return error <= PATH_TOLERANCE
        full = step.iterate(path[-1].after()) if path else first
        for rejected in range(left):
            if visit(left - rejected - 1, [*path, replace(full, c=0.5**rejected)]):
                return True
        return visit(0, path or [replace(full, c=0.0)])  # every remaining iteration was rejected

    visit(count, [])
    return best[1]


def walk(step: Step, scales: Sequence[float], first: Iteration | None = None) -> list[Iteration]:
    """Inner iterations with these scales; the first may be known already."""
    path = [replace(first or step.iterate(None), c=scales[0])]
    for c in scales[1:]:
        path.append(step.iterate(path[-1].after(), c))
    return path


def _linearise(step: Step, path: list[Iteration]) -> StepTrace:
    O = step.ensemble.leaf_outputs
    N: list[F64] = []
    after = np.eye(O)  # product over later iterations
    for it in reversed(path):
        N.insert(0, -step.ensemble.rate(step.t) * it.c * after @ it.D_inverse)
        if it.J is not None:
            after = after @ (np.eye(O) - it.c * it.D_inverse @ it.J)
    return StepTrace(
        scale=np.array([it.c for it in path]),
        S=np.stack([np.zeros_like(it.s) if it.S is None else it.S for it in path]),
        s=np.stack([it.s for it in path]),
        G=np.stack([it.G for it in path]),
        D=np.stack([it.D for it in path]),
        N=np.stack(N),
        rows=step.rows,
        spread=path[-1].spread,
    )
