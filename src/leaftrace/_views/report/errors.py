"""Errors in the unit of the target, beside losses that are half their squares.

A model that is trained by squared error has losses that nobody can read. A page shows the error of a
row, |prediction - label|, in place of its loss, and the root mean squared error (RMSE) in place of
the mean loss. Changes to first order are divided by the error, as d|e| = d(e^2 / 2) / |e|.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._actions.effects import unit_of
from ..._model.losses import Criterion

_UNIT = "error"


def add_errors(data: dict[str, Any], loss: Criterion) -> None:
    """Add errors to the data of a report, where its losses are half the squared error."""
    unit = unit_of(loss)
    squared = unit.squared and data["of"] == "loss"
    data["quantity"] = _UNIT if squared else "loss" if data["of"] == "loss" else "score"
    data["names"] = {"row": unit.of_row if data["of"] == "loss" else "score", "mean": unit.name}
    in_errors = data["test"].pop("error_histogram")
    if not squared:
        return
    for case in data["cases"]:
        case["error"] = error_of(case["loss"])
        add_changes(case["training_rows"], case["error"])
        for outcome in (case["removal"] or {}).values():
            if isinstance(outcome, dict):
                outcome["error"] = error_of(outcome["loss"])
    test = data["test"]
    test["rmse"] = error_of(test["mean_loss"])
    test["histogram"] = in_errors
    if data["overall"] is not None:
        add_changes(data["overall"]["training_rows"], test["rmse"])


def error_of(loss: Any) -> Any:
    """The error whose half square is this loss; what is no number stays as it is."""
    return float(np.sqrt(2.0 * loss)) if isinstance(loss, (int, float)) else loss


def add_changes(rows: list[dict[str, Any]], error: Any) -> None:
    """Add to each training row the change of this error without it."""
    for row in rows:
        known = isinstance(error, float) and error > 0
        row["error_change"] = row["change"] / error if known else None
