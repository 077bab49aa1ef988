"""The leaf equations of one step: from sums over the rows of each leaf to its value.

replay.py has the formulas. `LeafEquations` has no rows. Its methods are coroutines: where they need
sums over the rows of each leaf they yield a `SumsRequest`, and they are sent the result. `Step` in
steps.py computes it from rows in memory. On a cluster each partition computes it from its own rows,
and the results are added.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64
from .._model.ensemble import Ensemble
from .._model.leaf_rule import PairwiseLeaves
from .._model.node_trees import ActiveBounds
from .node_slopes import NodeSlopes
from .pooled_leaves import pool

Result = TypeVar("Result")


@dataclass(frozen=True)
class SumsRequest:
    """A request for sums over the rows of each leaf at scores A + S.

    ``S``  (M, O), or None for zero
    ``s``  (M, O); if given, J is requested instead of `LeafSums`
    """

    S: F64 | None = None
    s: F64 | None = None


# A coroutine that yields requests and is sent LeafSums, or J (M, O, O).
SumsCoroutine = Generator[SumsRequest, Any, Result]


@dataclass(frozen=True)
class LeafSums:
    """Sums over the rows of each of the M leaves of a step.

    Those of parts of the rows can be added.
    """

    W: F64  # (M,) w
    rows: F64  # (M,) rows of non-zero weight
    G: F64  # (M, O) w g; the value of the statistic for rules that have one
    h: F64  # (M, O, O) w h; zero for leaf rules that do not use it
    k: F64 | None = None  # (M,) w k for one output; J needs nothing else then
    count: F64 | None = None  # (M,) rows drawn, if the model recorded them
    between: F64 | None = (
        None  # (M, M) weights of pairs, for leaf rules that solve all leaves at once
    )

    def __add__(self, other: LeafSums) -> LeafSums:
        return LeafSums(
            self.W + other.W,
            self.rows + other.rows,
            self.G + other.G,
            self.h + other.h,
            _optional_sum(self.k, other.k),
            _optional_sum(self.count, other.count),
            _optional_sum(self.between, other.between),
        )


def _optional_sum(a: F64 | None, b: F64 | None) -> F64 | None:
    return None if a is None or b is None else a + b


@dataclass(frozen=True)
class Iteration:
    """One inner iteration of a step."""

    c: float
    S: F64 | None  # (M, O) before it; None means zero
    s: F64  # (M, O)
    sums: LeafSums
    D: F64  # (M, O, O) with lam
    D_inverse: F64  # zero for leaves that do not move
    J: F64 | None  # (M, O, O); None for steps of one iteration
    slopes: NodeSlopes | None = None  # see StepTrace
    pooled: F64 | None = None  # (M, 1) the values that leaves were pooled to, if they were
    centre: F64 | None = None  # see StepTrace
    mix: F64 | None = None  # see StepTrace

    def after(self) -> F64:
        """(M, O) S after it."""
        s = self.c * centred(self.s, self.centre)
        return s if self.S is None else self.S + s


def centred(s: F64, centre: F64 | None) -> F64:
    """Steps s (M, O) minus their mean by the shares ``centre`` (M,), zero where a share is; or s."""
    if centre is None:
        return s
    return np.where(centre[:, None] > 0, s - centre @ s, 0.0)


class LeafEquations:
    """The leaf equations of one step of training.

    ``derivatives``: whether iterations of leaves that depend on other nodes get their `slopes`.
    """

    def __init__(self, ensemble: Ensemble, t: int, derivatives: bool = True) -> None:
        e = ensemble
        self.ensemble = e
        self.t = t
        self.derivatives = derivatives
        self.M = int(e.step_leaves[t + 1] - e.step_leaves[t])
        lam = e.lam if e.leaf_l2 is None else e.lam + e.leaf_l2[e.leaf_range(t)]
        self.lam = np.broadcast_to(lam, self.M)

    def iterate(self, S: F64 | None, c: float = 1.0) -> SumsCoroutine[Iteration]:
        """Compute the inner iteration at scores A + S, S (M, O) or None for zero."""
        rule = self.ensemble.rule
        sums: LeafSums = yield SumsRequest(S)
        if rule.statistic is not None:
            return self._from_statistic(sums, c)
        if self.ensemble.leaf_gradient is not None:
            constants = self.ensemble.leaf_gradient[self.ensemble.leaf_range(self.t)]
            sums = replace(sums, G=sums.G + np.where(sums.rows[:, None] > 0, constants, 0.0))
        centre = sums.W / (sums.W.sum() or 1.0) if rule.centred else None
        if rule.pairwise is not None:
            return self._pairwise(rule.pairwise, sums, c, centre)
        H = self._curvature(sums)
        if self.ensemble.step_nodes is not None:
            return self._from_nodes(sums, H, c)
        D = self._regularised(H)
        s, D_inverse = self._solve(sums.G, H, D)
        pooled = None
        if self.ensemble.chains is not None:
            before = 0.0 if S is None else S
            pooled = pool(before + s, D[:, :, 0], self.ensemble.chains[self.t])
            s = pooled - before
        J = self._slope_from_sums(sums, s)
        if J is None and rule.iterations > 1:
            J = yield SumsRequest(S, s)
        return Iteration(c, S, s, sums, D, D_inverse, J, pooled=pooled, centre=centre)

    def iterate_with_scales(
        self, scales: Sequence[float], first: Iteration | None = None
    ) -> SumsCoroutine[list[Iteration]]:
        """Compute an inner iteration for each of these scales c.

        ``first``: the first one, if it has been computed already.
        """
        if first is None:
            first = yield from self.iterate(None)
        path = [replace(first, c=scales[0])]
        for c in scales[1:]:
            path.append((yield from self.iterate(path[-1].after(), c)))
        return path

    def values(self, S: F64) -> F64:
        """(M, O) leaf values from the sum S (M, O) of all inner iterations."""
        return self.ensemble.rate(self.t) * S + self._shift

    @property
    def _shift(self) -> F64 | float:
        shift = self.ensemble.leaf_shift
        return 0.0 if shift is None else shift[self.ensemble.leaf_range(self.t)]

    def recorded(self, kind: str, first: Iteration) -> F64:
        """(M,) the numbers that the model recorded of its leaves, recomputed."""
        if kind == "hessian":
            return self._curvature(first.sums)[:, 0, 0]
        found = {
            "weight": first.sums.W,
            "weighted rows": first.sums.rows,
            "rows": first.sums.count,
        }[kind]
        assert found is not None
        return found

    def _curvature(self, sums: LeafSums) -> F64:
        """(M, O, O) D without lam."""
        rule = self.ensemble.rule
        eye = np.eye(self.ensemble.leaf_outputs)
        H = sums.h if rule.newton else sums.W[:, None, None] * eye
        return H * eye if rule.diagonal else H

    def _regularised(self, H: F64) -> F64:
        """(M, O, O) D = H + lam."""
        O = self.ensemble.leaf_outputs
        lam = self.lam
        rule = self.ensemble.rule
        if O > 1 and rule.newton and not rule.diagonal:
            # A softmax Hessian is singular along (1, ..., 1); CatBoost keeps it solvable by a
            # floor under lam.
            lam = np.maximum(lam, np.finfo(np.float32).eps * np.einsum("maa->ma", H).max(axis=1))
        return H + lam[:, None, None] * np.eye(O)

    def _slope_from_sums(self, sums: LeafSums, s: F64) -> F64 | None:
        """J (M, O, O), if it follows from the sums of one output."""
        if sums.k is None:
            return None
        if not self.ensemble.rule.newton:
            return sums.h
        return sums.h + sums.k[:, None, None] * s[..., None]

    def _solve(self, G: F64, H: F64, D: F64) -> tuple[F64, F64]:
        """The step s (M, O), and D^-1 (M, O, O), zero for leaves that do not move."""
        e = self.ensemble
        D_inverse = inverse(D, signed=e.rule.l2 < 0)
        if e.rule.limited:
            s, moves = e.rule.step(G, np.einsum("maa->ma", H), np.einsum("maa->ma", D))
            D_inverse = D_inverse * moves[..., None]
        else:
            s = -np.einsum("mab,mb->ma", D_inverse, G)
        if e.fixed is not None:
            D_inverse = np.where(self._set_fixed(s)[:, None, None], 0.0, D_inverse)
        return s, D_inverse

    def _set_fixed(self, s: F64) -> NDArray[np.bool_]:
        """Write zeros into s for fixed leaves; return (M,) which leaves are fixed."""
        e = self.ensemble
        fixed = np.zeros(self.M, bool) if e.fixed is None else e.fixed[e.leaf_range(self.t)]
        s[fixed] = 0.0
        return fixed

    def _from_nodes(self, sums: LeafSums, H: F64, c: float) -> Iteration:
        """The iteration of trees in which leaves depend on other nodes."""
        e = self.ensemble
        assert e.step_nodes is not None
        nodes = e.step_nodes[self.t]
        leading = e.rule, sums.G, H[:, :, 0], e.lam
        slopes = None
        if self.derivatives:
            steps = nodes.steps(*leading, slopes=True)
            active = ActiveBounds(nodes)
            s = nodes.outputs(steps.s, active)
            live = ~self._set_fixed(s)
            slopes = NodeSlopes(nodes, active, steps, e.rate(self.t), live)
        else:
            s = nodes.values(*leading)
            self._set_fixed(s)
        D = H + (e.lam + nodes.l2[nodes.leaf])[:, None, None]
        return Iteration(c, None, s, sums, D, np.zeros_like(D), None, slopes)

    def _pairwise(
        self, leaves: PairwiseLeaves, sums: LeafSums, c: float, centre: F64 | None
    ) -> Iteration:
        """The iteration of leaves that are solved all at once."""
        assert sums.between is not None
        mix = leaves.matrix(sums.between)
        nothing = np.zeros((self.M, 1, 1))
        s = mix @ sums.G
        return Iteration(c, None, s, sums, nothing, nothing, None, centre=centre, mix=mix)

    def _from_statistic(self, sums: LeafSums, c: float) -> Iteration:
        """The iteration of leaves that are a statistic of their rows, which has no derivatives."""
        s = sums.G.copy()
        nothing = np.zeros_like(sums.h)
        self._set_fixed(s)
        return Iteration(c, None, s, replace(sums, G=np.zeros_like(s)), nothing, nothing, None)


def inverse(D: F64, *, signed: bool = False) -> F64:
    """(M, O, O) inverses; zero for leaves that have none (no rows, and lam = 0).

    ``signed``: a negative l2 makes some D negative, which have inverses too.
    """
    diagonal = np.einsum("maa->ma", D)
    ok = (np.abs(diagonal) if signed else diagonal).min(axis=1) > 0
    if D.shape[-1] == 1:
        with np.errstate(over="ignore"):  # of a leaf that is infinite then, which is refused
            return np.where(ok, 1 / np.where(ok, D[:, 0, 0], 1), 0)[:, None, None]
    ok = ok[:, None, None]
    eye = np.eye(D.shape[-1])
    return np.where(ok, np.linalg.inv(np.where(ok, D, eye)), 0)
