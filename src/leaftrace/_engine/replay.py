"""Replay: recompute every leaf value from the data and the fixed trees, and linearise each step.

One leaf, one inner iteration q, at scores B = A + S (S the sum of the leaf's steps so far, no
shrinkage):

    D = sum w h + lam,   s = -D^-1 sum w g,   S <- S + c s            (c = 1, or a power of 1/2 after backtracking)

Its differential is ds = -D^-1 (direct + J dS), with J = sum w (j + k.s) and a direct term from the
weight, label or score that changed. Chaining the Q iterations and the learning rate eta, a leaf's
value f = eta S moves by

    df = sum_q N_q direct_q,    N_q = -eta c_q [prod_{r > q} (I - c_r D_r^-1 J_r)] D_q^-1

so several inner iterations cost the passes over rows nothing: they only sum over q. Direct terms:

    weight of row i:      g_i + h_i s          score of row j:   w_j (j_j + k_j.s)        (j = dg/dA)
    label of row i:       w_i (dg_i/dy + dh_i/dy s)          lam: s

The gradient rule has D = sum w + lam, so there h -> 1 and k, dh/dy -> 0 wherever they stand for D's
derivative. A leaf whose value is decided by an l1 term or a bound does not move: its D^-1 is zero
in all of this. Weights w are those of the tree: sample weights times how often it drew the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.arrays import F64, Ints
from .._data.progress import progress
from .._model.ensemble import Ensemble
from .._model.leaf_rule import LeafRule
from .._model.start import condense_labels
from .chain_sums import sums_of_all_steps
from .diagnosis import FirstValues
from .fidelity import Fidelity, judge, largest_gradient, leaf_scales, refuse_diverged
from .leaf_equations import Iteration, LeafEquations, SumsCoroutine, SumsRequest, centred
from .linear_steps import LinearStep
from .node_slopes import NodeSlopes
from .pooled_leaves import PoolSlopes
from .rounding_noise import has_rounding_noise, rounding_note, scores_before, step_noise
from .steps import Step, TrainingScores, run_on_rows
from .unknown_limits import strictest_rule

if TYPE_CHECKING:
    from concurrent.futures import Executor

# Relative error of the leaf values of the right path; it gives 1e-12, and a wrong one is far off or
# changes nothing.
PATH_TOLERANCE = 1e-9


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
    # for rows that move other leaves than their own: derivatives of all values in the sums of their
    # effects over leaves. N is zero for leaves that depend on other nodes; for pooled leaves it gives
    # effects, without the learning rate
    slopes: NodeSlopes | PoolSlopes | None = None
    # (M,) for centred leaves: the share of each in the weight of all; the values are the steps minus
    # their mean by these shares
    centre: F64 | None = None
    # (M, M) for leaves that are solved all at once: derivatives of the steps in the sums of g
    mix: F64 | None = None

    @property
    def lam_effect(self) -> F64:
        """df / dlam, (M, O)."""
        if isinstance(self.slopes, PoolSlopes):
            return self.slopes.lam_effect(self.s[:, :, 0])[:, None]
        return np.einsum("qmab,qmb->ma", self.N, self.s)


@dataclass(frozen=True)
class Trace:
    """A replayed model, on which every method works.

    ``base_labels``  labels and weights that give the starting score; few that stand for those of
                     all training rows, if the rule for the starting score is smooth
    ``linear``       the linear functions of the leaves of each step, whose constants are in
                     ``steps``; None if leaves are constants
    """

    ensemble: Ensemble
    steps: list[StepTrace]
    fidelity: Fidelity
    base_labels: tuple[F64, F64]
    linear: Sequence[LinearStep] | None = None

    @cached_property
    def strictest_rule(self) -> LeafRule | None:
        """The leaf rule with the strictest limits that are possible; None if all are known."""
        steps = self.steps
        return strictest_rule(self.ensemble, [x.s[0] for x in steps], [x.D[0] for x in steps])

    @cached_property
    def effect_outputs(self) -> int:
        """Numbers in the effect of a row on the leaves of a tree: see row_effects.py."""
        pooled = [x.slopes.effects for x in self.steps if isinstance(x.slopes, PoolSlopes)]
        return max([self.ensemble.effect_outputs, *pooled])

    @cached_property
    def lam_effect(self) -> F64:
        """df / dlam, (leaves, O)."""
        return np.concatenate([step.lam_effect for step in self.steps])


@dataclass(frozen=True)
class ReplayedStep:
    """A linearised step, and how far the replay is from the model in it."""

    trace: StepTrace
    error: float  # largest relative error of a leaf value
    leaf: int  # the leaf that has it
    weight_error: float  # largest relative error of the numbers the model recorded of its leaves


def replay(
    ensemble: Ensemble, tolerance: float, notes: Sequence[str] = (), threads: Executor | None = None
) -> Trace:
    """Replay all steps at the model's own scores, so that each step is judged by itself."""
    e = ensemble
    refuse_diverged(e)
    scores = TrainingScores(e)
    scales = leaf_scales(e, largest_gradient(e, scores.A), tolerance)
    all_sums = sums_of_all_steps(e, scores.A, threads)
    steps: list[ReplayedStep] = []
    searching = True
    for t in progress(range(e.n_steps), e.n_steps, "replaying", "step"):
        step = Step(e, t, threads)
        if all_sums is None:
            step.advance(scores)
        else:
            step.use_sums(all_sums[e.leaf_range(t)])
        replayed = run_on_rows(replay_step(e, t, scales[t], tolerance, searching), step)
        steps.append(replayed)
        # A search that failed would fail, slowly, at every later step.
        searching = searching and max(replayed.error, replayed.weight_error) <= tolerance
    if has_rounding_noise(e):
        steps = _without_noise(e, steps, scales, tolerance)
    notes = [*notes, *rounding_note(e, scores.A)]
    return judged(e, steps, (e.y, e.base_weight), base_labels(e), scales[-1], tolerance, notes)


def _without_noise(
    e: Ensemble, steps: Sequence[ReplayedStep], scales: F64, tolerance: float
) -> list[ReplayedStep]:
    """The steps, with errors only where rounding of the gradients does not explain them."""
    suspects = {t for t, step in enumerate(steps) if not step.error <= tolerance}
    found = list(steps)
    for t, A in scores_before(e, suspects):
        trace = steps[t].trace
        values = _values_of(e, t, trace)
        noise = step_noise(e, t, A, values, np.einsum("maa->ma", trace.D[0]))
        beyond = np.abs(values - e.values[e.leaf_range(t)]) - noise
        error = float(np.maximum(beyond, 0).max() / scales[t])
        found[t] = replace(steps[t], error=error, leaf=int(beyond.max(axis=1).argmax()))
    return found


def _values_of(e: Ensemble, t: int, trace: StepTrace) -> F64:
    """(M, O) the recomputed leaf values of step t."""
    S = trace.S[-1] + trace.scale[-1] * centred(trace.s[-1], trace.centre)
    return LeafEquations(e, t).values(S)


def _first_values(e: Ensemble, trace: StepTrace) -> FirstValues:
    """The first step as the search for a cause takes it."""
    return FirstValues(_values_of(e, 0, trace), trace.G[0], np.einsum("maa->ma", trace.D[0]))


def replay_from_sums(
    ensemble: Ensemble,
    take_sums: Callable[[dict[int, SumsRequest]], dict[int, Any]],
    gradient: float,
    labels: tuple[F64, F64],
    tolerance: float,
    notes: Sequence[str] = (),
) -> Trace:
    """Replay a model whose training rows are elsewhere. All steps request their sums at once.

    ``take_sums``  computes the requested sums, both by step
    ``gradient``   the largest absolute gradient of a row at the starting score
    ``labels``     labels and weights that give the starting score
    """
    e = ensemble
    refuse_diverged(e)
    scales = leaf_scales(e, gradient, tolerance)
    coroutines = {t: replay_step(e, t, scales[t], tolerance) for t in range(e.n_steps)}
    requests = {t: next(coroutine) for t, coroutine in coroutines.items()}
    finished = {}
    while requests:
        found = take_sums(requests)
        requests = {}
        for t, sums in found.items():
            try:
                requests[t] = coroutines[t].send(sums)
            except StopIteration as end:
                finished[t] = end.value
    steps = [finished[t] for t in range(e.n_steps)]
    return judged(e, steps, labels, labels, scales[-1], tolerance, notes)


def replay_step(
    e: Ensemble, t: int, scale: float, tolerance: float, searching: bool = True
) -> SumsCoroutine[ReplayedStep]:
    """Replay step t at the model's own scores.

    ``scale``      leaf value that errors are relative to
    ``searching``  whether to search for halved steps of a model with backtracking
    """
    equations = LeafEquations(e, t)
    target = e.values[e.leaf_range(t)]
    first = yield from equations.iterate(None)
    weight_error = _recorded_error(equations, first)
    if e.rule.backtracking and searching and weight_error <= tolerance:
        search = _BacktrackingSearch(equations, first, target, scale)
        iterations = yield from search.run()
    else:
        scales = [1.0] * e.rule.iterations
        iterations = yield from equations.iterate_with_scales(scales, first)
    difference = np.abs(equations.values(iterations[-1].after()) - target).max(axis=1)
    error = float(difference.max() / scale)
    leaf = int(difference.argmax())
    return ReplayedStep(_linearise(equations, iterations), error, leaf, weight_error)


def _recorded_error(equations: LeafEquations, first: Iteration) -> float:
    """Largest relative error of the numbers that the model recorded of the leaves of this step."""
    e = equations.ensemble
    if e.recorded is None:
        return 0.0
    recorded = e.recorded.values[e.leaf_range(equations.t)]
    # Second derivatives are compared with the largest of all steps: those of late steps can be
    # mere rounding.
    scope = e.recorded.values if e.recorded.kind == "hessian" else recorded
    found = equations.recorded(e.recorded.kind, first)
    return float(np.abs(found - recorded).max(initial=0.0) / (scope.max(initial=0.0) or 1.0))


def judged(
    e: Ensemble,
    steps: Sequence[ReplayedStep],
    all_labels: tuple[F64, F64],
    labels: tuple[F64, F64],
    scale: float,
    tolerance: float,
    notes: Sequence[str],
) -> Trace:
    """Judge the replayed steps and put the trace together.

    ``all_labels``: labels and weights that the starting score is checked with.
    ``scale``: the leaf value that errors are relative to.
    """
    fidelity = judge(
        e,
        np.array([step.error for step in steps]),
        np.array([step.leaf for step in steps]),
        np.array([step.weight_error for step in steps]),
        _base_error(e, all_labels, scale),
        tolerance,
        notes,
        _first_values(e, steps[0].trace) if e.n_rows else None,
    )
    return Trace(e, [step.trace for step in steps], fidelity, labels)


def base_labels(e: Ensemble) -> tuple[F64, F64]:
    """Labels and weights that give the starting score: few, if its rule is smooth."""
    if e.base_rule is None:
        return np.zeros(0), np.zeros(0)
    if not e.base_rule.smooth:
        return e.y, e.base_weight
    return condense_labels(e.base_rule, e.loss, e.y, e.base_weight)


def _base_error(e: Ensemble, labels: tuple[F64, F64], scale: float) -> float:
    """Error of the starting score, relative to it or, if it is rounding noise, to a leaf value."""
    if e.base_rule is None:
        return 0.0
    found = e.base_rule.fit(e.loss, *labels)
    return float(np.abs(found - e.base).max()) / max(float(np.abs(e.base).max()), scale)


class _BacktrackingSearch:
    """Search for the inner iterations that backtracking accepted or halved.

    Backtracking compares two losses that differ by rounding, so its decisions cannot be predicted.
    They can be found, because they lead to the model's leaf values. The search goes depth first and
    tries to accept a step first; a rejection halves the step and uses up an iteration.
    """

    def __init__(
        self, equations: LeafEquations, first: Iteration, target: F64, scale: float
    ) -> None:
        self.equations = equations
        self.first = first
        self.target = target  # (M, O) leaf values of the model
        self.scale = scale
        self.best: list[Iteration] = []
        self.best_error = np.inf

    def run(self) -> SumsCoroutine[list[Iteration]]:
        """Find the path of iterations whose leaf values are nearest to those of the model."""
        yield from self._visit(self.equations.ensemble.rule.iterations, [])
        return self.best

    def _visit(self, left: int, path: list[Iteration]) -> SumsCoroutine[bool]:
        """Whether the path, with the iterations that are left, reaches the model's leaf values."""
        if left == 0:
            return self._is_match(path)
        full = (yield from self.equations.iterate(path[-1].after())) if path else self.first
        for rejected in range(left):
            longer = [*path, replace(full, c=0.5**rejected)]
            if (yield from self._visit(left - rejected - 1, longer)):
                return True
        # every iteration that was left has been rejected
        return (yield from self._visit(0, path or [replace(full, c=0.0)]))

    def _is_match(self, path: list[Iteration]) -> bool:
        found = self.equations.values(path[-1].after())
        error = float(np.abs(found - self.target).max()) / self.scale
        if error < self.best_error:
            self.best_error = error
            self.best = path
        return error <= PATH_TOLERANCE


def _linearise(equations: LeafEquations, path: list[Iteration]) -> StepTrace:
    """Chain the differentials of the inner iterations: N in the formulas above."""
    e = equations.ensemble
    O = e.leaf_outputs
    rate = e.rate(equations.t)
    slopes = path[-1].slopes
    N: list[F64] = []
    after = np.eye(O)  # product over later iterations
    for it in reversed(path):
        N.insert(0, -rate * it.c * after @ it.D_inverse)
        if it.J is not None:
            after = after @ (np.eye(O) - it.c * it.D_inverse @ it.J)
    if e.chains is not None:
        slopes = _pool_slopes(rate, path, e.chains[equations.t])
        N = list(slopes.N[:, :, None, None])
    return StepTrace(
        scale=np.array([it.c for it in path]),
        S=np.stack([np.zeros_like(it.s) if it.S is None else it.S for it in path]),
        s=np.stack([it.s for it in path]),
        G=np.stack([it.sums.G for it in path]),
        D=np.stack([it.D for it in path]),
        N=np.stack(N),
        rows=path[0].sums.rows,
        slopes=slopes,
        centre=path[-1].centre,
        mix=path[-1].mix,
    )


def _pool_slopes(rate: float, path: list[Iteration], chains: Ints) -> PoolSlopes:
    """The derivatives of leaves that were pooled along chains in these iterations."""
    return PoolSlopes(
        rate,
        [it.c for it in path],
        [it.D[:, 0, 0] for it in path],
        [None if it.J is None else it.J[:, 0, 0] for it in path],
        [it.pooled[:, 0] for it in path if it.pooled is not None],
        chains,
    )
