"""model_shrink_rate: before each step, CatBoost multiplies all scores by a factor below one.

    A <- shrink[t] A before step t,  shrink[0] = 1

A finished model holds what is left of its leaf values and starting score after the last step.

For some losses CatBoost keeps exp(A). To shrink them it takes an approximate logarithm in float32,
"fastlog" of fastapprox by Paul Mineiro, which is right to about five digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import SHRINK


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


def approximate_log(x: F64) -> F64:
    """Return the logarithm of positive numbers as CatBoost takes it."""
    bits = x.astype(np.float32).view(np.uint32)
    mantissa = (bits & np.uint32(0x007FFFFF) | np.uint32(0x3F000000)).view(np.float32)
    log2 = bits.astype(np.float32) * np.float32(1.1920928955078125e-7)
    log2 = log2 - np.float32(124.22551499) - np.float32(1.498030302) * mantissa
    log2 = log2 - np.float32(1.72587999) / (np.float32(0.3520887068) + mantissa)
    return (np.float32(0.69314718) * log2).astype(np.float64)


def shrink_roughly(shrink: F64 | None) -> Callable[[int, F64], F64] | None:
    """Return ``rough_scores`` of an `Ensemble` whose scores were kept as exp(A); shrink (T,)."""
    if shrink is None:
        return None

    def rough_scores(t: int, A: F64) -> F64:
        with np.errstate(over="ignore"):
            return shrink[t] * approximate_log(np.exp(A))

    return rough_scores


def values_before_shrinking(values: F64, counts: NDArray[np.int64], shrink: F64 | None) -> F64:
    """Return leaf values (leaves, K) as training computed them; counts (T,) leaves of each tree."""
    if shrink is None:
        return values
    later = np.append(
        np.cumprod(shrink[:0:-1])[::-1], 1.0
    )  # (T,) product over the steps after each
    return values / np.repeat(later, counts)[:, None]


def shrinking_moves(shrink: F64) -> list[list[tuple[int, float]]]:
    """Return the shrinking (T,) as ``moves`` of an `Ensemble`: add a step, then shrink everything."""
    T = len(shrink)
    before_steps = [[(t - 1, 1.0), (SHRINK, float(shrink[t]))] for t in range(1, T)]
    return [[], *before_steps, [(T - 1, 1.0)]]
