"""Leaf values from rows: the leaf rule, statistics and rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ids
from .kernels.numpy_removal import bounded_step


class Statistic(Protocol):
    """A leaf value that is not a Newton step but a statistic of its rows, such as a median."""

    @property
    def name(self) -> str: ...
    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        """(M,) unshrunk values from the residuals y - A, zero for leaves without rows.

        The rows are those that the tree was fitted to. Some of them may have weight zero; whether
        those count is for the library to say.
        """
        ...


@dataclass(frozen=True)
class StatisticsByOutput:
    """A statistic for each output of the model, such as several quantiles."""

    outputs: tuple[Statistic, ...]
    name: str = "statistics"


@runtime_checkable
class UncertainStatistic(Statistic, Protocol):
    """A statistic that rounding may decide, such as a minimum of a function that is nearly flat."""

    def fits(self, leaf: Ids, M: int, residual: F64, values: F64) -> NDArray[np.bool_]:
        """(M,) whether these values (M,) are the statistic, too, but for rounding."""
        ...


@runtime_checkable
class StepStatistic(Statistic, Protocol):
    """A statistic with a number that comes from all training rows, drawn for the tree or not."""

    def among(self, residual: F64, w: F64) -> Statistic:
        """The statistic at the residuals (n,) and weights (n,) of all rows."""
        ...


@dataclass(frozen=True)
class PairwiseLeaves:
    """Steps s (M,) of a tree that solve (L + (prior + l2) I - prior / M) s = -G, minus their mean.

    L is the Laplacian of the weights of pairs between leaves. The step of the last leaf is zero before
    the mean is subtracted, and its equation is left out.
    """

    prior: float
    l2: float

    def matrix(self, between: F64) -> F64:
        """(M, M) -P K^-1, by which sums of gradients become steps; ``between``: (M, M) pair weights."""
        M = len(between)
        joint = between + between.T
        K = np.diag(joint.sum(axis=1)) - joint
        K = K + (self.prior + self.l2) * np.eye(M) - self.prior / M
        out = np.zeros((M, M))
        if M > 1:
            out[:-1, :-1] = -np.linalg.inv(K[:-1, :-1])
        return out - out.mean(axis=0)


@dataclass(frozen=True)
class LeafRule:
    """Formula for the step of a leaf from its rows: s = -(D + lam)^-1 G.

    ``newton``: D = sum w h, otherwise D = sum w. ``lam = l2`` or, with ``l2_scales``,
    ``l2 * sum(w) / n``. CatBoost rounds lam to float32 when it solves for vectors
    (``lam_float32``). ``diagonal``: a vector leaf is solved one output at a time, for losses whose
    outputs do not depend on each other.

    A leaf takes ``iterations`` such steps; its value is their sum times the learning rate. With
    ``backtracking`` the booster may have halved some steps, and the replay finds out which.

    ``l1`` is subtracted from |G|; ``max_step`` bounds |s|; a leaf with D below ``min_hessian``
    stays at zero. A leaf whose step is decided by one of them does not change with its rows.

    ``centred``: the mean of the steps of all leaves, by the weight of their rows, is subtracted from
    them; leaves without weight stay at zero.

    ``pairwise``: the steps of all leaves solve one system of equations, from the weights of the pairs
    that rows of different leaves are in.

    ``statistic`` replaces all of this.
    """

    newton: bool = True
    l2: float = 0.0
    l2_scales: bool = False
    lam_float32: bool = False
    diagonal: bool = False
    centred: bool = False
    pairwise: PairwiseLeaves | None = None
    iterations: int = 1
    backtracking: bool = False
    l1: float = 0.0
    max_step: float = np.inf
    min_hessian: float = 0.0
    statistic: Statistic | StatisticsByOutput | None = None

    def statistic_of(self, output: int) -> Statistic:
        """The statistic that the leaves of an output are, of a rule that has one."""
        assert self.statistic is not None
        if isinstance(self.statistic, StatisticsByOutput):
            return self.statistic.outputs[output]
        return self.statistic

    def lam(self, total_weight: float, n: int) -> float:
        """The l2 penalty for n training rows of this total weight."""
        lam = self.l2 * total_weight / n if self.l2_scales else self.l2
        return float(np.float32(lam)) if self.lam_float32 else lam

    @property
    def limited(self) -> bool:
        """Whether a leaf's step can be anything but the solution of its equations."""
        return self.l1 > 0 or self.min_hessian > 0 or np.isfinite(self.max_step)

    @property
    def bounds(self) -> F64:
        """(3,) the limits of a step as `removal_step` takes them: l1, longest step, least D."""
        return np.array([self.l1, self.max_step, self.min_hessian])

    def step(self, G: F64, H: F64, D: F64) -> tuple[F64, NDArray[np.bool_]]:
        """The step s within these limits, and whether it changes with G and D = H + lam."""
        return bounded_step(G, H, D, self.l1, self.max_step, self.min_hessian)


@dataclass(frozen=True)
class Recorded:
    """Numbers (leaves,) of one kind that the model recorded of its leaves, to check the rows by."""

    kind: Literal["weight", "rows", "weighted rows", "hessian"]
    values: F64


@dataclass(frozen=True)
class UnknownLimits:
    """Limits of leaf steps that are not kept with a model, such as those of a file of XGBoost.

    The model's own leaves are the same for all limits that are possible. With other training rows
    they may not be, so refits compare the loosest with the strictest of them.

    ``names``   fields of `LeafRule`, which has the loosest possible limits
    ``remedy``  what the user has to give, for messages
    """

    names: frozenset[Literal["min_hessian", "max_step"]]
    remedy: str


@dataclass(frozen=True)
class Rounding:
    """The numbers that a booster keeps in float32.

    These are the scores, the derivatives, the derivatives times the weight (terms), and the terms
    times how often the row was drawn. The replay rounds in the same places; otherwise it would
    agree to 1e-7 only. Derivatives of the training program ignore the rounding.
    """

    scores: bool = False
    derivatives: bool = False
    terms: bool = False
    draws: bool = False

    @property
    def flags(self) -> int:
        """Bit flags for the kernels: 1 terms, 2 derivatives, 4 scores, 8 draws."""
        return self.terms + 2 * self.derivatives + 4 * self.scores + 8 * self.draws

    @property
    def hessian_factor(self) -> float:
        """The factor that second derivatives have when they are rounded."""
        return 1.0

    def apply(self, x: F64, w: F64, drawn: NDArray[Any] | None = None) -> F64:
        """w * drawn * x, rounded as the booster rounds it.

        x (n, ...); w (n,) weights; drawn (n,) how often each row was drawn.
        """
        if drawn is not None and not self.draws:
            w = w * drawn
            drawn = None
        shape = len(w), *[1] * (x.ndim - 1)
        x = w.reshape(shape) * (_f32(x) if self.derivatives else x)
        x = _f32(x) if self.terms else x
        return x if drawn is None else _f32(x * drawn.reshape(shape))


def _f32(x: F64) -> F64:
    """Numbers rounded to float32."""
    return x.astype(np.float32).astype(np.float64)
