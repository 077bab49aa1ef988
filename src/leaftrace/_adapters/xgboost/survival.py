"""Labels of survival:aft: lower and upper bounds of times, and their logarithms for the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from ..._data import inputs
from ..._data.arrays import F64
from ..._data.errors import InvalidInput

AFT = "survival:aft"


def log_bounds(y: Any, length: int, name: str) -> F64:
    """(length, 2) logarithms of the bounds (length, 2) that a user gives, in float32 as trained."""
    bounds = inputs.intervals(y, name, length)
    lower, upper = bounds.astype(np.float32).astype(np.float64).T
    if np.any((lower < 0) | (upper < lower) | (upper <= 0)):
        row = int(np.flatnonzero((lower < 0) | (upper < lower) | (upper <= 0))[0])
        raise InvalidInput(
            f"{name} has the interval from {lower[row]:g} to {upper[row]:g} at row {row}; expected times with "
            "0 <= lower <= upper, where upper may be infinite: the columns label_lower_bound and label_upper_bound."
        )
    with np.errstate(divide="ignore"):
        return np.log(np.stack([lower, upper], axis=1))


def bounds_of_logs(y: F64) -> dict[str, Any]:
    """The bounds as a DMatrix takes them, from their logarithms (n, 2)."""
    bounds = np.exp(y).astype(np.float32)
    return {"label_lower_bound": bounds[:, 0], "label_upper_bound": bounds[:, 1]}


def own_bounds(rows: xgb.DMatrix) -> F64 | None:
    """(n, 2) the bounds that a DMatrix holds, or None."""
    lower = rows.get_float_info("label_lower_bound")
    upper = rows.get_float_info("label_upper_bound")
    return np.stack([lower, upper], axis=1).astype(np.float64) if lower.size else None
