"""SurvivalAft: labels are lower and upper bounds of times, where -1 is an open end.

CatBoost takes their logarithms by a float32 approximation, which is repeated here. The weights of
rows do not enter its leaves.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._model.further_losses.survival import AcceleratedTime, Distribution
from .shrinkage import approximate_log

AFT = "SurvivalAft"
UNWEIGHTED_ROWS = (
    "CatBoost ignores weights of rows in this loss, so influence is that of a copy of a row"
)


def survival_loss(settings: str) -> AcceleratedTime:
    """The loss of settings such as "dist=Normal;scale=1.2"."""
    given = dict(part.split("=") for part in settings.split(";") if part)
    distribution = cast(Distribution, given.get("dist", "Normal").lower())
    return AcceleratedTime(distribution, float(given.get("scale", 1.0)))


def log_bounds(y: Any, length: int, name: str) -> F64:
    """(length, 2) logarithms of the bounds (length, 2) that a user gives."""
    lower, upper = inputs.intervals(y, name, length).T
    wrong = (upper != -1) & (upper < lower) | (lower != -1) & (lower <= 0) | (upper == 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInput(
            f"{name} has the interval from {lower[row]:g} to {upper[row]:g} at row {row}; expected positive times, "
            "lower <= upper, or -1 for an end that is open."
        )
    logs = np.stack([approximate_log(np.abs(lower)), approximate_log(np.abs(upper))], axis=1)
    logs[lower == -1, 0] = -np.inf
    logs[upper == -1, 1] = np.inf
    return logs


def refuse_weights(w: F64) -> None:
    """Raise if rows have weights, which would only change the l2 term."""
    if np.any(w != 1):
        raise UnsupportedModel(
            "CatBoost ignores weights of rows in the leaves of SurvivalAft, and uses their sum in its l2 term; train "
            "without sample weights."
        )
