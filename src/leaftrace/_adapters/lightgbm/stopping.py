"""LightGBM's early stopping, as far as a model keeps it: patience, metric and largest number of rounds."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb

from ..._data.errors import InvalidInput


def stopped_early(booster: lgb.Booster, params: dict[str, Any], rounds: int) -> bool:
    """Whether a model with this many rounds was trained with early stopping.

    A model from a file tells by the rounds that it lacks.
    """
    patience = int(params.get("early_stopping_round") or 0)
    most = int(params.get("num_iterations", rounds))
    return booster.best_iteration > 0 or patience > 0 or rounds < most


def known_rounds(booster: lgb.Booster) -> int:
    """Number of rounds that the booster predicts with."""
    return booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()


def stopping_params(params: dict[str, Any], stopped: bool) -> dict[str, Any]:
    """Parameters with which training stops as it did. ``stopped``: whether it did."""
    patience = int(params.get("early_stopping_round") or 0)
    if patience < 1:
        what = "does not keep the patience of its early stopping (a callback)"
        if not stopped:
            what = "shows no early stopping"
        raise InvalidInput(
            f"this LightGBM model {what}; pass params={{'early_stopping_rounds': ...}} as in training"
            f"{'' if stopped else ', or leave eval_set out'}."
        )
    metric = str(params.get("metric", ""))
    return {
        "early_stopping_round": patience,
        "early_stopping_min_delta": float(params.get("early_stopping_min_delta") or 0.0),
        "metric": metric.split(",") if metric else "",
    }
