"""Scores that CatBoost multiplies: by model_shrink_rate in training, by set_scale_and_bias after it.

    A <- shrink[t] A before step t,  shrink[0] = 1           factors below one
    F = scale * (sum of leaf values) + bias                  of a finished model

A finished model holds what is left of its leaf values and starting score after the last step. One
with a scale has another bias than training started from.

For some losses CatBoost keeps exp(A). To shrink them it takes an approximate logarithm in float32,
"fastlog" of fastapprox by Paul Mineiro, which is right to about five digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import SHRINK, Ensemble


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


def shrinking_moves(
    shrink: F64 | None, T: int, scale: float
) -> list[list[tuple[int, float]]] | None:
    """Return ``moves`` of an `Ensemble`: add a step, then shrink everything; at last rescale it.

    None stands for boosting: neither shrinking (T,) nor a scale other than one."""
    if shrink is None and scale == 1:
        return None
    shrink = np.ones(T) if shrink is None else shrink
    before_steps = [[(t - 1, 1.0), (SHRINK, float(shrink[t]))] for t in range(1, T)]
    last = [] if scale == 1 else [(SHRINK, scale)]
    return [[], *before_steps, [(T - 1, 1.0), *last]]


class Scores:
    """The starting score (K,) of training, and the scale and shift of a finished model.

    ``start``  how the starting score comes from the data; it is zero if that is None"""

    def __init__(
        self,
        model: catboost.CatBoost,
        K: int,
        shrink: F64 | None,
        start: Callable[[], F64] | None,
    ) -> None:
        scale, bias = model.get_scale_and_bias()
        bias = np.broadcast_to(np.asarray(bias, np.float64), (K,))
        left = 1.0 if shrink is None else float(np.prod(shrink))
        self.scale = float(scale)
        self.base = bias / left
        self.shift: F64 | None = None
        if scale != 1:  # the bias of training is not kept
            self.base = np.zeros(K) if start is None else np.broadcast_to(start(), (K,)).copy()
            self.shift = bias - scale * left * self.base
        self.finished = left * self.base  # before scale and shift


def refuse_scaled_baseline(model: catboost.CatBoost, baseline: F64 | None) -> None:
    """Raise for a model with a scale that was trained with a baseline."""
    if model.get_scale_and_bias()[0] != 1 and baseline is not None:
        raise UnsupportedModel(
            "this model's predictions were rescaled (set_scale_and_bias) and it was trained with a baseline, which "
            "its scale leaves alone; that is not supported. Pass the model as it was trained."
        )


def rescale(trained: catboost.CatBoost, e: Ensemble, model: catboost.CatBoost) -> None:
    """Give a model that was trained again the scale of the user's, and its shift."""
    scale, _ = model.get_scale_and_bias()
    if scale == 1 or e.shift is None:
        return
    bias = scale * np.asarray(trained.get_scale_and_bias()[1], np.float64) + e.shift
    trained.set_scale_and_bias(scale, bias.tolist() if len(bias) > 1 else float(bias[0]))
