"""Replay: recompute every leaf value from the data and the fixed structure, and linearise each step.

One leaf, one inner iteration q, reading scores B = A + S (S the sum of the leaf's steps so far, no shrinkage):

    D = sum w h + lam,   s = -D^-1 sum w g,   S <- S + c s            (c = 1, or a power of 1/2 after backtracking)

Its differential is ds = -D^-1 (direct + J dS), with J = sum w (h + k.s) and a direct term from what moved. Chaining
the Q iterations and the learning rate eta, a leaf's value f = eta S moves by

    df = sum_q N_q direct_q,    N_q = -eta c_q [prod_{r > q} (I - c_r D_r^-1 J_r)] D_q^-1

so several inner iterations cost the passes over rows nothing: they only sum over q. The direct terms are

    weight of row i:      g_i + h_i s          score of row j:   w_j (h_j + k_j.s)
    label of row i:       w_i (dg_i/dy + dh_i/dy s)          lam: s

The gradient rule has D = sum w + lam, so there h -> 1 and k, dh/dy -> 0 wherever they stand for D's derivative.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from ._arrays import F64, Ids
from ._ensemble import Ensemble
from ._fidelity import Fidelity, judge
from ._kernels import kernels
from ._twins import sum_by_leaf

PATH_TOLERANCE = 1e-9  # relative; a matching path gives 1e-12, a wrong one is far off or changes nothing


@dataclass(frozen=True)
class Iteration:
    """One inner iteration of a step."""

    c: float
    S: F64 | None  # (M, O) before it; None means zero
    s: F64  # (M, O)
    D: F64  # (M, O, O) with lam
    D_inverse: F64
    J: F64 | None  # (M, O, O); None where a step has one iteration only

    def after(self) -> F64:
        return self.c * self.s if self.S is None else self.S + self.c * self.s


@dataclass(frozen=True)
class StepTrace:
    """One step, linearised. Q accepted inner iterations, M leaves, O outputs of a leaf."""

    scale: F64  # (Q,) c
    S: F64  # (Q, M, O) before each iteration
    s: F64  # (Q, M, O)
    D: F64  # (Q, M, O, O) with lam
    N: F64  # (Q, M, O, O)
    rows: F64  # (M,) rows of non-zero weight

    @property
    def lam_effect(self) -> F64:
        """df / dlam, (M, O)."""
        return np.einsum("qmab,qmb->ma", self.N, self.s)


@dataclass(frozen=True)
class Trace:
    """A replayed model: what every method works on."""

    ensemble: Ensemble
    steps: list[StepTrace]
    base_slope: F64  # (K, K): d base / dw_i = base_slope g_i(base); zero when the base score is a constant
    fidelity: Fidelity


@dataclass
class Step:
    """The rows and leaves of one step at scores A; computes the sums the formulas above ask for."""

    ensemble: Ensemble
    t: int
    A: F64  # (n, K)
    buffer: F64 | None = None  # the state of another step, no longer needed
    leaves: Ids = field(init=False)
    state: F64 = field(init=False)
    W: F64 = field(init=False)  # (M,) weight of each leaf

    def __post_init__(self) -> None:
        e = self.ensemble
        self.leaves = e.leaves[e.trees(self.t)]
        self.first = e.first_output[e.trees(self.t)]
        self.M = int(e.step_leaves[self.t + 1] - e.step_leaves[self.t])
        self.state = e.loss.state(self.A, self.buffer)
        self.W, self.rows = np.zeros(self.M), np.zeros(self.M)
        for ids in self.leaves:
            sum_by_leaf(ids, e.w, self.W)
            if e.unit_weights:
                self.rows = self.W
            else:
                sum_by_leaf(ids, (e.w > 0).astype(float), self.rows)

    def iterate(self, S: F64 | None, c: float = 1.0) -> Iteration:
        """The inner iteration at A + S, S (M, O) or None for zero."""
        e, O = self.ensemble, self.ensemble.leaf_outputs
        if e.n_outputs == 1:
            sums = np.zeros((self.M, 4))
            shift = None if S is None else e.loss.shift(S[:, 0])
            for ids in self.leaves:
                kernels.leaf_sums(e.loss.kernel, ids, self.state, shift, e.y, e.w, sums)
            G, h, k = sums[:, :1], sums[:, 1, None, None], sums[:, 2, None, None]
            D = (h if e.rule.newton else self.W[:, None, None]) + e.lam
            D_inverse = inverse(D)
            s = -D_inverse[:, 0] * G
            return Iteration(c, S, s, D, D_inverse, h + k * s[..., None] if e.rule.newton else h)
        at = self._moved(S)
        g, h = e.loss.gradient(at, e.y), e.loss.hessian(at, e.y)
        G, D = np.zeros((self.M, O)), np.zeros((self.M, O, O))
        for ids, o in zip(self.leaves, self.first, strict=True):
            out = slice(o, o + O)
            sum_by_leaf(ids, e.w[:, None] * g[:, out], G)
            sum_by_leaf(ids, e.w[:, None, None] * (h[:, out, out] if e.rule.newton else np.eye(O)), D)
        # A softmax Hessian is singular along (1, ..., 1); CatBoost keeps it solvable by a floor under lam.
        floor = np.finfo(np.float32).eps * np.einsum("maa->ma", D).max(axis=1) if O > 1 else 0.0
        D += np.broadcast_to(np.maximum(e.lam, floor), self.M)[:, None, None] * np.eye(O)
        D_inverse = inverse(D)
        s = -np.einsum("mab,mb->ma", D_inverse, G)
        if e.rule.iterations == 1:
            return Iteration(c, S, s, D, D_inverse, None)
        J = np.zeros_like(D)
        slope = h + e.loss.third_dot(at, e.y, s[self.leaves[0]]) if e.rule.newton else h
        sum_by_leaf(self.leaves[0], e.w[:, None, None] * slope, J)
        return Iteration(c, S, s, D, D_inverse, J)

    def _moved(self, S: F64 | None) -> F64:
        loss = self.ensemble.loss
        return self.state if S is None else loss.moved(self.state, loss.shift(S)[self.leaves[0]])


def inverse(D: F64) -> F64:
    """(M, O, O) inverses; zero where there is nothing to invert (a leaf without rows, lam = 0)."""
    ok = np.einsum("maa->ma", D).min(axis=1) > 0
    if D.shape[-1] == 1:
        return np.where(ok, 1 / np.where(ok, D[:, 0, 0], 1), 0)[:, None, None]
    ok, eye = ok[:, None, None], np.eye(D.shape[-1])
    return np.where(ok, np.linalg.inv(np.where(ok, D, eye)), 0)


def replay(ensemble: Ensemble, tolerance: float) -> Trace:
    """Walk through the steps with the model's own scores, so that each step is judged by itself."""
    A = ensemble.start()
    base_error, base_slope = _base(ensemble)
    steps, errors, weight_errors = [], np.zeros(ensemble.n_steps), np.zeros(ensemble.n_steps)
    scale = _leaf_scale(ensemble, A)
    searching = ensemble.rule.backtracking
    worst_leaf = np.zeros(ensemble.n_steps, dtype=int)
    buffer = None
    for t in range(ensemble.n_steps):
        step = Step(ensemble, t, A, buffer)
        buffer = step.state if ensemble.loss.exponential else None  # an additive loss's state is A itself
        target = ensemble.values[ensemble.leaf_range(t)]
        if ensemble.leaf_weights is not None:
            recorded = ensemble.leaf_weights[ensemble.leaf_range(t)]
            weight_errors[t] = np.abs(step.W - recorded).max(initial=0.0) / (recorded.max(initial=0.0) or 1.0)
            searching = searching and weight_errors[t] <= tolerance
        iterations = _inner_iterations(step, target, scale, searching)
        found = leaf_values(ensemble, iterations)
        difference = np.abs(found - target).max(axis=1)
        errors[t], worst_leaf[t] = difference.max() / scale, difference.argmax()
        searching = searching and errors[t] <= tolerance  # a search that failed would fail, slowly, at every step
        steps.append(_linearise(step, iterations))
        ensemble.add_leaf_values(t, target, ensemble.leaves, A)
    fidelity = judge(ensemble, errors, worst_leaf, weight_errors, base_error, tolerance)
    return Trace(ensemble, steps, base_slope, fidelity)


def _leaf_scale(ensemble: Ensemble, A: F64) -> float:
    """The largest leaf value; where all are rounding noise, what a leaf could have been."""
    possible = ensemble.learning_rate * np.abs(ensemble.loss.gradient(ensemble.loss.state(A), ensemble.y)).max()
    return float(max(np.abs(ensemble.values).max(initial=0.0), 1e-6 * possible)) or 1.0


def _base(ensemble: Ensemble) -> tuple[float, F64]:
    """Error of the starting score, and its linearisation: step 0 is one leaf that holds every row."""
    e = ensemble
    if not e.base_from_data:
        return 0.0, np.zeros((e.n_outputs, e.n_outputs))
    mean = mean_target(e, e.w)
    found = e.loss.from_mean(mean.astype(np.float32).astype(np.float64) if e.base_float32 else mean)
    state = e.loss.state(np.tile(e.base, (e.n_rows, 1)))
    H = np.einsum("n,nab->ab", e.w, e.loss.hessian(state, e.y))
    scale = max(float(np.abs(e.base).max()), float(np.abs(e.values).max(initial=0.0))) or 1.0
    return float(np.abs(found - e.base).max()) / scale, -np.linalg.pinv(H)


def mean_target(ensemble: Ensemble, w: F64) -> F64:
    """(K,) weighted mean of the labels: of a one-hot row for each class if there are several outputs."""
    if ensemble.n_outputs == 1:
        return np.array([np.average(ensemble.y, weights=w)])
    return np.bincount(ensemble.y.astype(int), w, ensemble.n_outputs) / w.sum()


def _inner_iterations(step: Step, target: F64, scale: float, search: bool) -> list[Iteration]:
    """The accepted inner iterations of a step.

    Backtracking accepts a step or halves it on a comparison of two losses that differ by rounding, so its decisions
    cannot be predicted; they can be found, because the model's leaf values tell which were taken. Depth first,
    'accept' first; a rejection halves the step and uses up an iteration.
    """
    e, count = step.ensemble, step.ensemble.rule.iterations
    best: tuple[float, list[Iteration]] = (np.inf, [])
    if not search:
        return walk(step, [1.0] * count)

    def visit(left: int, path: list[Iteration]) -> bool:
        nonlocal best
        if left == 0:
            error = float(np.abs(leaf_values(e, path) - target).max()) / scale
            if error < best[0]:
                best = error, path
            return error <= PATH_TOLERANCE
        full = step.iterate(path[-1].after() if path else None)
        for rejected in range(left):
            if visit(left - rejected - 1, [*path, replace(full, c=0.5**rejected)]):
                return True
        return bool(path) and visit(0, path)  # every remaining iteration was rejected

    visit(count, [])
    return best[1]


def walk(step: Step, scales: Iterable[float]) -> list[Iteration]:
    """Inner iterations with these scales."""
    path: list[Iteration] = []
    for c in scales:
        path.append(step.iterate(path[-1].after() if path else None, c))
    return path


def leaf_values(ensemble: Ensemble, path: list[Iteration]) -> F64:
    """(M, O) learning rate times the sum of the steps."""
    return ensemble.learning_rate * path[-1].after()


def _linearise(step: Step, path: list[Iteration]) -> StepTrace:
    O = step.ensemble.leaf_outputs
    N: list[F64] = []
    after = np.eye(O)  # product over later iterations
    for it in reversed(path):
        N.insert(0, -step.ensemble.learning_rate * it.c * after @ it.D_inverse)
        if it.J is not None:
            after = after @ (np.eye(O) - it.c * it.D_inverse @ it.J)
    return StepTrace(
        scale=np.array([it.c for it in path]),
        S=np.stack([np.zeros_like(it.s) if it.S is None else it.S for it in path]),
        s=np.stack([it.s for it in path]),
        D=np.stack([it.D for it in path]),
        N=np.stack(N),
        rows=step.rows,
    )
