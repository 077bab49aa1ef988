"""Errors of leaf values that come from rounding gradients to float32.

The gradients of a leaf can cancel: where a sum of them is zero, the leaf value is made of rounding
errors alone. XGBoost and LightGBM round each gradient; their last bits differ between machines. Such
a leaf value may be off by

    eta 2^-23 sum_j w_j |g_j| / D

which is far below any effect that is asked about, but not small relative to the value itself.
"""

from __future__ import annotations

import numpy as np

from .._data.arrays import F64

FLOAT32_ROUNDING = 2.0**-23


def value_noise(rate: float | F64, sizes: F64, D: F64) -> F64:
    """Possible rounding errors of leaf values; sizes: sums of w |g|, D: with lam, of one shape."""
    noise = np.abs(rate) * FLOAT32_ROUNDING * sizes
    return np.divide(noise, D, out=np.zeros_like(D), where=D > 0)
