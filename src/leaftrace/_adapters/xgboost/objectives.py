"""XGBoost's objectives as losses, and the quantiles that the leaves of some of them are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from ..._data.arrays import F64, Ids, Ints
from ..._model.coupled.cox import Cox
from ..._model.further_losses.survival import AcceleratedTime, Distribution
from ..._model.further_losses.targets import (
    LogisticTargets,
    QuantileTargets,
    SquaredTargets,
    diagonal,
)
from ..._model.further_losses.targets import Terms as SeveralTerms
from ..._model.general_losses import (
    Gamma,
    General,
    Hinge,
    Pinball,
    PseudoHuber,
    SquaredLog,
    Terms,
    Tweedie,
    pieces,
)
from ..._model.leaf_ranks import values_of_rank
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..base import f32
from .draws import tree_method
from .ranking import RANKING
from .survival import AFT

ANY = (-np.inf, np.inf)
POSITIVE = (0.0, np.inf)
FRACTION = (0.0, 1.0)
OBJECTIVES = {  # and the range of their labels
    "reg:squarederror": ANY,
    "reg:logistic": FRACTION,
    "binary:logistic": FRACTION,
    "binary:logitraw": FRACTION,
    "binary:hinge": FRACTION,
    "multi:softmax": ANY,
    "multi:softprob": ANY,
    "count:poisson": POSITIVE,
    "reg:gamma": POSITIVE,
    "reg:tweedie": POSITIVE,
    "reg:squaredlogerror": (-1.0, np.inf),
    "reg:pseudohubererror": ANY,
    "reg:absoluteerror": ANY,
    "reg:quantileerror": ANY,
    AFT: ANY,
    "survival:cox": ANY,
    **RANKING,
}
QUANTILES = ("reg:absoluteerror", "reg:quantileerror")
# Objectives of several targets at once.
OF_TARGETS = ("reg:squarederror", "reg:logistic", "binary:logistic", "reg:absoluteerror")
_CACHED_ROWS = 4096  # a piece of this many rows stays in the processor's cache


def tolerance_of(objective: str) -> float:
    """The relative error of a leaf value, by the largest one, that rounding explains.

    Scores, derivatives and leaf values are rounded to float32, which the replay does too; a last bit
    (6e-8) remains where XGBoost's float32 exponentials are not the rounded ones. With Cox, those of
    all rows remain in the smallest risk sets.
    """
    return 1e-5 if objective == "survival:cox" else 1e-6


def as_float32(value: str | float) -> float:
    """A parameter rounded to float32, in which XGBoost keeps it."""
    return float(np.float32(value))


def quantile_levels(params: Mapping[str, str]) -> list[float]:
    """The quantiles of a quantile or absolute error."""
    found = json.loads(params.get("quantile_alpha", "0.5"))
    levels = found if isinstance(found, list) else [found]
    return [as_float32(alpha) for alpha in levels]


@dataclass(frozen=True)
class Logistic32(Logistic):
    """Logistic loss with XGBoost's p = 1 / (1 + exp -A).

    The exponential, the sum and the quotient are rounded to float32. A row that is predicted well
    has 1 - p in multiples of 1e-7, and with it g and h.
    """

    rounded = True

    def state(self, A: F64, out: F64 | None = None) -> F64:
        out = np.empty((len(A), 2)) if out is None else out
        for start in range(0, len(A), _CACHED_ROWS):
            rows = slice(start, start + _CACHED_ROWS)
            e = np.exp(np.minimum(-A[rows, 0], 88.7)).astype(np.float32)
            p = np.float32(1) / (np.float32(1) + e)
            out[rows, 0] = p
            out[rows, 1] = np.float32(1) - p
        return out


@dataclass(frozen=True)
class Softmax32(Softmax):
    """Softmax loss with XGBoost's p, from exponentials and their sum rounded to float32."""

    def state(self, A: F64, out: F64 | None = None) -> F64:
        A32 = A.astype(np.float32)
        centred = A32 - np.maximum(A32.max(axis=1, keepdims=True), 0)
        e = np.exp(centred.astype(np.float64)).astype(np.float32)
        total = e.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
        return (e / total).astype(np.float64)


@dataclass(frozen=True)
class LogisticTargets32(LogisticTargets):
    """Logistic losses of several targets, with XGBoost's p in float32."""

    def terms(self, A: F64, y: F64) -> SeveralTerms:
        e = np.exp(np.minimum(-A, 88.7)).astype(np.float32)
        p = np.float32(1) / (np.float32(1) + e)
        q = (np.float32(1) - p).astype(np.float64)
        p = p.astype(np.float64)
        h = p * q
        return SeveralTerms(p - y, diagonal(h), h, diagonal(h * (q - p)))


@dataclass(frozen=True)
class AbsoluteError(General):
    """L = |A - y|, whose leaves are steps with h = 1: those of tree_method="exact"."""

    name: str = "absolute error"
    changes = pieces("residual", 0.0, 0.0, (-1.0, 0.0, 1.0), (0.0, 0.0, 1.0), (1.0, 0.0, 1.0))

    def value(self, A: F64, y: F64) -> F64:
        return np.abs(A[..., 0] - y)

    def terms(self, A: F64, y: F64) -> Terms:
        g = np.sign(A - y)
        return g, np.zeros_like(g), np.ones_like(g), np.zeros_like(g)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        return np.zeros_like(A), np.zeros_like(A)


def loss_and_factor(objective: str, params: Mapping[str, str], outputs: int) -> tuple[Loss, float]:
    """The loss, and the constant by which XGBoost multiplies its second derivative."""
    if objective.startswith("multi:"):
        return Softmax32(outputs), 2.0
    if outputs > 1:
        return _several_outputs(objective, params, outputs), 1.0
    if objective == "count:poisson":
        return Poisson(), float(np.exp(as_float32(params["max_delta_step"])))
    return _loss(objective, params), 1.0


def _several_outputs(objective: str, params: Mapping[str, str], outputs: int) -> Loss:
    """The loss of several targets, or of several quantiles of one."""
    if objective in ("reg:logistic", "binary:logistic"):
        return LogisticTargets32(outputs)
    if objective in QUANTILES:
        levels = quantile_levels(params)
        levels = levels if len(levels) == outputs else levels * outputs
        return QuantileTargets(tuple(levels))
    return SquaredTargets(outputs)


def _loss(objective: str, params: Mapping[str, str]) -> Loss:
    """The loss of an objective whose second derivative is not multiplied."""
    if objective in ("reg:logistic", "binary:logistic", "binary:logitraw"):
        return Logistic32()
    if objective == "reg:tweedie":
        return Tweedie(as_float32(params["tweedie_variance_power"]))
    if objective == "reg:pseudohubererror":
        return PseudoHuber(as_float32(params["huber_slope"]))
    if objective == "survival:cox":
        return Cox(float32=True)
    if objective == "reg:absoluteerror" and tree_method(params) == "exact":
        return AbsoluteError()
    if objective in QUANTILES:
        name = objective.partition(":")[2].replace("error", " error")
        return Pinball(quantile_levels(params)[0], name)
    if objective == AFT:
        distribution = cast(Distribution, params["aft_loss_distribution"])
        return AcceleratedTime(distribution, as_float32(params["aft_loss_distribution_scale"]))
    others = {"reg:gamma": Gamma(), "reg:squaredlogerror": SquaredLog(), "binary:hinge": Hinge()}
    return others.get(objective, SquaredError())


@dataclass(frozen=True)
class Quantile:
    """A quantile of residuals in float32.

    It lies between the two nearest residuals or, where the rows have weights, is the first residual
    that reaches it.
    """

    alpha: float
    weighted: bool
    name = "quantile"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        out = np.zeros(M)
        values = f32(residual)
        leaf = np.asarray(leaf)
        if not self.weighted:
            counts = w > 0
            if not counts.all():
                leaf, values = leaf[counts], values[counts]
            return self._of_leaves(leaf, M, values)
        rows = np.flatnonzero(w > 0)
        order = rows[np.lexsort((values[rows], leaf[rows]))]
        edges = np.searchsorted(leaf[order], np.arange(M + 1))
        for m in np.flatnonzero(np.diff(edges)):
            in_leaf = order[edges[m] : edges[m + 1]]
            out[m] = self._of_sorted(values[in_leaf], w[in_leaf])
        return out

    def _of_leaves(self, leaf: Ids, M: int, values: F64) -> F64:
        """The quantile (M,) of rows without weights in each leaf: as `_of_sorted`."""

        def place(count: Ints) -> F64:
            last = np.maximum(count - 1, 0).astype(float)
            return np.clip(self.alpha * (last + 2) - 1, 0.0, last)

        low, high, count = values_of_rank(leaf, M, values, lambda c: place(c).astype(np.intp))
        at = place(count)
        return f32(low + (at - at.astype(np.intp)) * f32(high - low))

    def label_quantile(self, y: F64, b: F64) -> float:
        """The quantile of the labels, from which such a model starts."""
        order = np.argsort(y, kind="stable")
        order = order[b[order] > 0]
        return self._of_sorted(f32(y[order]), b[order])

    def _of_sorted(self, values: F64, w: F64) -> float:
        """The quantile of sorted values (n,) with weights w (n,)."""
        if self.weighted:
            return self._first_to_reach(values, w)
        last = len(values) - 1
        place = min(max(self.alpha * (last + 2) - 1, 0.0), float(last))
        low = int(place)
        gap = as_float32(values[min(low + 1, last)] - values[low])
        return as_float32(values[low] + (place - low) * gap)

    def _first_to_reach(self, values: F64, w: F64) -> float:
        below = np.cumsum(w.astype(np.float32))
        reached = np.searchsorted(below, as_float32(float(below[-1]) * self.alpha))
        return float(values[min(int(reached), len(values) - 1)])
