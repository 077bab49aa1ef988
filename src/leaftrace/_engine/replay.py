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

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._data.arrays import F64
from .._data.progress import progress
from .._model.ensemble import Ensemble
from .._model.start import condense_labels
from .fidelity import Fidelity, judge
from .steps import Ask, Asking, Iteration, Step, StepLeaves, answered, sums_of_all_steps, walk

PATH_TOLERANCE = (
    1e-9  # relative; a matching path gives 1e-12, a wrong one is far off or changes nothing
)


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
    spread: F64 | None = (
        None  # (M, M, 2) of smoothed trees: what sums of g and of h over leaf l do to leaf l'
    )

    @property
    def lam_effect(self) -> F64:
        """df / dlam, (M, O)."""
        return np.einsum("qmab,qmb->ma", self.N, self.s)


@dataclass(frozen=True)
class Trace:
    """A replayed model: what every method works on. ``base_labels``: labels and weights that the starting score comes
    from, of all training rows, condensed."""

    ensemble: Ensemble
    steps: list[StepTrace]
    fidelity: Fidelity
    base_labels: tuple[F64, F64]

    @cached_property
    def lam_effect(self) -> F64:
        """df / dlam, (leaves, O)."""
        return np.concatenate([step.lam_effect for step in self.steps])


@dataclass(frozen=True)
class Replayed:
    """A step, and how far it is from the model's: relative errors of its values and of what the model recorded."""

    trace: StepTrace
    error: float
    leaf: int  # where it is largest
    weight_error: float


def replay(
    ensemble: Ensemble, tolerance: float, notes: Sequence[str] = (), threads: Executor | None = None
) -> Trace:
    """Walk through the steps with the model's own scores, so that each step is judged by itself."""
    e = ensemble
    A = ensemble.start()
    scale = leaf_scale(e, largest_gradient(e, A))
    steps: list[Replayed] = []
    buffer = None
    sums = sums_of_all_steps(e, A, threads)
    searching = True
    for t in progress(range(e.n_steps), e.n_steps, "replaying", "step"):
        known = None if sums is None else sums[e.leaf_range(t)]
        step = Step(e, t, A, None, buffer, threads, known)
        steps.append(answered(replay_step(step, scale, tolerance, searching), step))
        # A search that failed would fail, slowly, at every step.
        searching = searching and max(steps[-1].error, steps[-1].weight_error) <= tolerance
        if e.loss.exponential:  # an additive loss's state is A itself
            buffer = step.__dict__.get("state")
    fidelity = judged(e, steps, (e.y, e.base_weight), tolerance, notes)
    return Trace(e, [step.trace for step in steps], fidelity, base_labels(e))


def replay_apart(
    ensemble: Ensemble,
    answers: Callable[[dict[int, Ask]], dict[int, Any]],
    gradient: float,
    labels: tuple[F64, F64],
    tolerance: float,
    notes: Sequence[str] = (),
) -> Trace:
    """The same where the rows are somewhere else: all steps ask at once, and ``answers`` gives the sums each asks for.

    ``gradient``: the largest of a row at the starting score; ``labels``: that the starting score comes from."""
    e = ensemble
    scale = leaf_scale(e, gradient)
    asking = {t: replay_step(StepLeaves(e, t), scale, tolerance) for t in range(e.n_steps)}
    asks = {t: next(step) for t, step in asking.items()}
    done = {}
    while asks:
        found = answers(asks)
        asks = {}
        for t, sums in found.items():
            try:
                asks[t] = asking[t].send(sums)
            except StopIteration as end:
                done[t] = end.value
    steps = [done[t] for t in range(e.n_steps)]
    return Trace(
        e, [step.trace for step in steps], judged(e, steps, labels, tolerance, notes), labels
    )


def replay_step(
    leaves: StepLeaves, scale: float, tolerance: float, searching: bool = True
) -> Asking[Replayed]:
    """One step at the model's own scores. ``scale``: what errors of leaf values are relative to."""
    e = leaves.ensemble
    t = leaves.t
    weight_error = 0.0
    target = e.values[e.leaf_range(t)]
    first = yield from leaves.iterate(None)
    if e.recorded is not None:
        recorded = e.recorded.values[e.leaf_range(t)]
        # Of all steps for second derivatives: those of late steps can be mere rounding.
        scope = e.recorded.values if e.recorded.kind == "hessian" else recorded
        found = leaves.recorded(e.recorded.kind, first)
        weight_error = float(
            np.abs(found - recorded).max(initial=0.0) / (scope.max(initial=0.0) or 1.0)
        )
    search = e.rule.backtracking and searching and weight_error <= tolerance
    iterations = yield from _inner_iterations(leaves, first, target, scale, search)
    difference = np.abs(e.rate(t) * iterations[-1].after() - target).max(axis=1)
    error = float(difference.max() / scale)
    leaf = int(difference.argmax())
    return Replayed(_linearise(leaves, iterations), error, leaf, weight_error)


def judged(
    e: Ensemble,
    steps: Sequence[Replayed],
    labels: tuple[F64, F64],
    tolerance: float,
    notes: Sequence[str],
) -> Fidelity:
    """``labels``: and weights, that the starting score comes from."""
    errors = np.array([s.error for s in steps])
    weight_errors = np.array([s.weight_error for s in steps])
    return judge(
        e,
        errors,
        np.array([s.leaf for s in steps]),
        weight_errors,
        _base_error(e, labels),
        tolerance,
        notes,
    )


def base_labels(e: Ensemble) -> tuple[F64, F64]:
    if e.base_rule is None:
        return np.zeros(0), np.zeros(0)
    return (
        condense_labels(e.base_rule, e.loss, e.y, e.base_weight)
        if e.base_rule.smooth
        else (e.y, e.base_weight)
    )


def largest_gradient(e: Ensemble, A: F64) -> float:
    return float(np.abs(e.loss.gradient(e.loss.state(A), e.y)).max())


def leaf_scale(e: Ensemble, gradient: float) -> float:
    """The largest leaf value; where all are rounding noise, what a leaf could have been with this largest gradient."""
    possible = float(np.max(e.learning_rate)) * gradient
    return float(max(np.abs(e.values).max(initial=0.0), 1e-6 * possible)) or 1.0


def _base_error(e: Ensemble, labels: tuple[F64, F64]) -> float:
    """Relative error of the starting score."""
    if e.base_rule is None:
        return 0.0
    found = e.base_rule.fit(e.loss, *labels)
    scale = max(float(np.abs(e.base).max()), float(np.abs(e.values).max(initial=0.0))) or 1.0
    return float(np.abs(found - e.base).max()) / scale


def _inner_iterations(
    step: StepLeaves, first: Iteration, target: F64, scale: float, search: bool
) -> Asking[list[Iteration]]:
    """The accepted inner iterations of a step.

    Backtracking accepts a step or halves it on a comparison of two losses that differ by rounding, so its decisions
    cannot be predicted; they can be found, because the model's leaf values tell which were taken. Depth first,
    'accept' first; a rejection halves the step and uses up an iteration.
    """
    count = step.ensemble.rule.iterations
    rate = step.ensemble.rate(step.t)
    best: tuple[float, list[Iteration]] = (np.inf, [])
    if not search:
        return (yield from walk(step, [1.0] * count, first))

    def visit(left: int, path: list[Iteration]) -> Asking[bool]:
        nonlocal best
        if left == 0:
            error = float(np.abs(rate * path[-1].after() - target).max()) / scale
            if error < best[0]:
                best = error, path
            return error <= PATH_TOLERANCE
        full = (yield from step.iterate(path[-1].after())) if path else first
        for rejected in range(left):
            if (yield from visit(left - rejected - 1, [*path, replace(full, c=0.5**rejected)])):
                return True
        return (
            yield from visit(0, path or [replace(full, c=0.0)])
        )  # every remaining iteration was rejected

    yield from visit(count, [])
    return best[1]


def _linearise(step: StepLeaves, path: list[Iteration]) -> StepTrace:
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
        G=np.stack([it.sums.G for it in path]),
        D=np.stack([it.D for it in path]),
        N=np.stack(N),
        rows=path[0].sums.rows,
        spread=path[-1].spread,
    )
