"""Survival times that are known, or known to lie in an interval: accelerated failure time.

The score A is the logarithm of the expected time. z = (log t - A) / scale follows a distribution
with density p and distribution function C. A label is an interval of log times; if it is one point,
the loss is -log p(z), otherwise -log(C(z_upper) - C(z_lower)). Both are -log P with

    P, P_1, P_2, P_3 = p, p', p'', p'''   or   C, p, p', p''  of the upper end minus the lower end

and, with a = P_1 / P, b = P_2 / P, c = P_3 / P,

    g = a / scale,   dg/dA = (a^2 - b) / scale^2,   d^2 g/dA^2 = (c - 3 a b + 2 a^3) / scale^3

Boosters keep g within +-15 and h within 1e-16 and 15. Far from the score P is zero in their numbers;
g and h are their limits there then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..general_losses import General, Terms, sigmoids

Distribution = Literal["normal", "logistic", "extreme"]
_LARGEST = 15.0  # of |g| and h
_LEAST = 1e-16  # of h
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _derivatives(distribution: Distribution, z: F64) -> tuple[F64, F64, F64, F64, F64]:
    """C, p, p', p'' and p''' at z; at infinite z only C is not zero."""
    finite = np.where(np.isfinite(z), z, 0.0)
    if distribution == "normal":
        p = np.exp(-0.5 * finite**2) / math.sqrt(2 * math.pi)
        factors = -finite, finite**2 - 1, 3 * finite - finite**3
        C = 0.5 * (1 + _erf(finite / math.sqrt(2)))
    elif distribution == "logistic":
        C, rest = sigmoids(finite)
        p = C * rest
        factors = rest - C, 1 - 6 * p, (rest - C) * (1 - 12 * p)
    else:
        w = np.exp(np.minimum(finite, 700.0))
        p = w * np.exp(-w)
        factors = 1 - w, 1 - 3 * w + w**2, 1 - 7 * w + 6 * w**2 - w**3
        C = 1 - np.exp(-w)  # rounded as boosters round it
    inside = np.isfinite(z)
    C = np.where(inside, C, (z > 0).astype(float))
    p = np.where(inside, p, 0.0)
    with np.errstate(invalid="ignore"):
        slopes = [np.where(p > 0, p * factor, 0.0) for factor in factors]
    return C, p, slopes[0], slopes[1], slopes[2]


@dataclass(frozen=True)
class AcceleratedTime(General):
    """Accelerated failure time, with labels (..., 2): lower and upper end of the log time.

    The lower end may be minus infinity, the upper one infinity.
    """

    distribution: Distribution
    scale: float
    name: str = "accelerated failure time"
    changes = "numpy", ()

    def value(self, A: F64, y: F64) -> F64:
        P, *_ = self._ratios(A[..., 0], y)
        known = y[..., 0] == y[..., 1]
        with np.errstate(divide="ignore"):
            return -np.log(P) + np.where(known, np.log(self.scale), 0.0)

    def terms(self, A: F64, y: F64) -> Terms:
        _, a, b, c = self._ratios(A, y)
        g = a / self.scale
        with np.errstate(invalid="ignore"):
            j = (a * a - b) / self.scale**2
            k = (c - 3 * a * b + 2 * a**3) / self.scale**3
        is_free = (np.abs(g) < _LARGEST) & np.isfinite(j)
        is_curved = (j > _LEAST) & (j < _LARGEST) & np.isfinite(k)
        far_g, far_h = self._limits(A, y)
        return (
            np.clip(np.where(np.isfinite(g), g, far_g), -_LARGEST, _LARGEST),
            np.where(is_free, j, 0.0),
            np.clip(np.where(np.isfinite(j), j, far_h), _LEAST, _LARGEST),
            np.where(is_curved, k, 0.0),
        )

    def _limits(self, A: F64, y: F64) -> tuple[F64, F64]:
        """g and h where the score is far below, or far above, what the label says."""
        steep = _LARGEST, 1 / self.scale**2
        flat = 1 / self.scale, _LEAST
        below, above = {
            "normal": (steep, steep),
            "logistic": (flat, flat),
            "extreme": ((_LARGEST, _LARGEST), flat),
        }[self.distribution]
        lower, upper = np.moveaxis(y - A[..., None], -1, 0)
        is_below = (lower > 0) & np.isfinite(lower) | (upper > 0) & np.isfinite(upper)
        g = np.where(is_below, -below[0], above[0])
        h = np.where(is_below, below[1], above[1])
        # An open end says nothing about that side.
        satisfied = np.where(is_below, np.isinf(lower), np.isinf(upper))
        return np.where(satisfied, 0.0, g), np.where(satisfied, _LEAST, h)

    def label_terms(self, A: F64, y: F64) -> tuple[F64, F64]:
        raise UnsupportedModel(
            "the labels of survival times are intervals, for which there is no derivative here; refit(y=...) gives "
            "the model with other labels."
        )

    def response(self, state: F64) -> F64:
        return np.exp(state[:, 0])

    def _ratios(self, A: F64, y: F64) -> tuple[F64, F64, F64, F64]:
        """P, and P_1, P_2, P_3 divided by it."""
        lower = _derivatives(self.distribution, (y[..., 0] - A) / self.scale)
        upper = _derivatives(self.distribution, (y[..., 1] - A) / self.scale)
        known = y[..., 0] == y[..., 1]
        ends = zip(lower, upper, strict=True)
        C, p, p1, p2, _ = (high - low for low, high in ends)
        P = np.where(known, lower[1], C)
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b, c = (
                np.where(known, at, between) / P
                for at, between in zip(lower[2:], (p, p1, p2), strict=True)
            )
        return P, a, b, c
