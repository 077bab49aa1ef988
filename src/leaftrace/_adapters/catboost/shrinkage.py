"""model_shrink_rate: before each step, CatBoost multiplies all scores by a factor below one.

    A <- shrink[t] A before step t,  shrink[0] = 1

A finished model holds what is left of its leaf values and starting score after the last step.
Losses for which CatBoost keeps exp(A) shrink through an approximate logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import BASE
from ..._model.leaf_rule import Rounding
from ..._model.losses import Logistic, Loss, Poisson


def shrink_factors(params: dict[str, Any], T: int) -> F64 | None:
    """Return the factors (T,) of the scores before each step; None if the model does not shrink."""
    rate = float(np.float32(params.get("model_shrink_rate") or 0))
    if not rate:
        return None
    if params["model_shrink_mode"] == "Constant":
        shrink = np.full(T, 1 - rate * float(np.float32(params["learning_rate"])))
    else:
        shrink = 1 - rate / np.maximum(np.arange(T), 1.0)
    shrink[0] = 1
    return shrink


def values_before_shrinking(values: F64, counts: NDArray[np.int64], shrink: F64 | None) -> F64:
    """Return leaf values (leaves, K) as training computed them; counts (T,) leaves of each tree."""
    if shrink is None:
        return values
    later = np.append(
        np.cumprod(shrink[:0:-1])[::-1], 1.0
    )  # (T,) product over the steps after each
    return values / np.repeat(later, counts)[:, None]


def shrinking_moves(shrink: F64) -> list[list[tuple[int, float]]]:
    """Return the shrinking as ``moves`` of an `Ensemble`.

    Before each step, all steps before it and the starting score move."""
    moves: list[list[tuple[int, float]]] = [[]]
    weight = np.zeros(0)  # of each earlier step, as it stands in the scores
    base = 1.0
    for t in range(1, len(shrink)):
        now = shrink[t] * np.append(weight, 1.0)
        steps = [(r, float(c)) for r, c in enumerate(now - np.append(weight, 0.0))]
        moves.append([(BASE, base * (shrink[t] - 1)), *steps])
        weight = now
        base = base * shrink[t]
    return [*moves, [(len(shrink) - 1, 1.0)]]


def fast_log(x: F64) -> F64:
    """The approximation of log by P. Mineiro (fastapprox), in float32."""
    f = np.float32
    bits = x.astype(np.float32).view(np.int32)
    mantissa = ((bits & 0x007FFFFF) | 0x3F000000).view(np.float32)
    y = bits.astype(np.float32) * f(1.1920928955078125e-7)
    log2 = (
        y
        - f(124.22551499)
        - f(1.498030302) * mantissa
        - f(1.72587999) / (f(0.3520887068) + mantissa)
    )
    return (f(0.69314718) * log2).astype(np.float64)


@dataclass(frozen=True)
class ShrunkLogarithms(Rounding):
    """Scores of losses for which CatBoost keeps exp(A): it takes their logarithm to shrink them.

    The logarithm is an approximation of about five digits.
    """

    shrink: tuple[float, ...] = ()

    def round_scores(self, t: int, A: F64, error: F64) -> None:
        if t == 0:
            return
        shrunk = A - error
        before = shrunk / self.shrink[t] + error
        A[:] = self.shrink[t] * fast_log(np.exp(before))
        error[:] = A - shrunk


@dataclass(frozen=True)
class ReplayedLogistic(Logistic):
    """Logistic loss that NumPy replays, because scores are rounded as they shrink."""

    rounded = True


@dataclass(frozen=True)
class ReplayedPoisson(Poisson):
    """Poisson loss that NumPy replays, because scores are rounded as they shrink."""

    rounded = True


def with_shrunk_logarithms(loss: Loss) -> Loss:
    """The loss of a model whose scores shrink by their logarithms."""
    if isinstance(loss, Logistic):
        return ReplayedLogistic()
    return ReplayedPoisson() if isinstance(loss, Poisson) else loss
