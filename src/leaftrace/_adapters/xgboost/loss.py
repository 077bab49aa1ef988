"""XGBoost's objectives as losses, and the quantiles that the leaves of some of them are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..._data.arrays import F64, Ids
from ..._model.general_losses import Gamma, Hinge, Pinball, PseudoHuber, SquaredLog, Tweedie
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..base import f32

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
}
QUANTILES = ("reg:absoluteerror", "reg:quantileerror")


def single(value: str | float) -> float:
    """A parameter as XGBoost keeps it: in float32."""
    return float(np.float32(value))


def alphas(params: Mapping[str, str]) -> list[float]:
    """The quantiles of a quantile or absolute error."""
    found = json.loads(params.get("quantile_alpha", "0.5"))
    return [single(alpha) for alpha in (found if isinstance(found, list) else [found])]


@dataclass(frozen=True)
class Logistic32(Logistic):
    """With XGBoost's p = 1 / (1 + exp -A), where the exponential, the sum and the quotient are rounded to float32. A
    row that is predicted well has 1 - p in multiples of 1e-7, and with it g and h."""

    rounded = True

    def state(self, A: F64, out: F64 | None = None) -> F64:
        out = np.empty((len(A), 2)) if out is None else out
        for start in range(0, len(A), 4096):  # pieces that stay in the cache
            e = np.exp(np.minimum(-A[start : start + 4096, 0], 88.7)).astype(np.float32)
            p = np.float32(1) / (np.float32(1) + e)
            out[start : start + 4096, 0], out[start : start + 4096, 1] = p, np.float32(1) - p
        return out


@dataclass(frozen=True)
class Softmax32(Softmax):
    """With XGBoost's p, from exponentials and their sum rounded to float32."""

    def state(self, A: F64, out: F64 | None = None) -> F64:
        A32 = A.astype(np.float32)
        e = np.exp((A32 - np.maximum(A32.max(axis=1, keepdims=True), 0)).astype(np.float64)).astype(
            np.float32
        )
        return (e / e.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)).astype(
            np.float64
        )


def loss_of(objective: str, params: Mapping[str, str], outputs: int) -> tuple[Loss, float]:
    """The loss, and what XGBoost multiplies its second derivative with."""
    if objective.startswith("multi:"):
        return Softmax32(outputs), 2.0
    if objective == "count:poisson":
        return Poisson(), float(np.exp(single(params["max_delta_step"])))
    if objective in ("reg:logistic", "binary:logistic", "binary:logitraw"):
        return Logistic32(), 1.0
    if objective == "reg:tweedie":
        return Tweedie(single(params["tweedie_variance_power"])), 1.0
    if objective == "reg:pseudohubererror":
        return PseudoHuber(single(params["huber_slope"])), 1.0
    if objective in QUANTILES:
        return Pinball(
            alphas(params)[0], objective.partition(":")[2].replace("error", " error")
        ), 1.0
    others = {"reg:gamma": Gamma(), "reg:squaredlogerror": SquaredLog(), "binary:hinge": Hinge()}
    return others.get(objective, SquaredError()), 1.0


@dataclass(frozen=True)
class Quantile:
    """Of residuals in float32: between the two nearest, or where the rows have weights the first that reaches it."""

    alpha: float
    weighted: bool
    name = "quantile"

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        out = np.zeros(M)
        rows = np.flatnonzero(w > 0)
        values = f32(residual)
        leaf = np.asarray(leaf)
        order = rows[np.lexsort((values[rows], leaf[rows]))]
        edges = np.searchsorted(leaf[order], np.arange(M + 1))
        for m in np.flatnonzero(np.diff(edges)):
            here = order[edges[m] : edges[m + 1]]
            out[m] = self._of(values[here], w[here])
        return out

    def of_labels(self, y: F64, b: F64) -> float:
        order = np.argsort(y, kind="stable")
        order = order[b[order] > 0]
        return self._of(f32(y[order]), b[order])

    def _of(self, values: F64, w: F64) -> float:
        """Of sorted values (n,)."""
        last = len(values) - 1
        if self.weighted:
            below = np.cumsum(w.astype(np.float32))
            return float(
                values[
                    min(int(np.searchsorted(below, single(float(below[-1]) * self.alpha))), last)
                ]
            )
        place = min(max(self.alpha * (last + 2) - 1, 0.0), float(last))
        low = int(place)
        return single(
            values[low] + (place - low) * single(values[min(low + 1, last)] - values[low])
        )
