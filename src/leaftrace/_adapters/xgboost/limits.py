"""Limits of leaf values that the leaves of a model allow, for files that do not keep them."""

from __future__ import annotations

import numpy as np

from ..._model.ensemble import Ensemble
from .model import Trees


def smallest_cover(trees: Trees, e: Ensemble) -> float:
    """The smallest cover of a leaf that has a value, which min_child_weight cannot exceed."""
    if trees.cover is None:
        return np.inf
    return float(trees.cover[e.values[:, 0] != 0].min(initial=np.inf))


def shown_limits(trees: Trees, e: Ensemble, hessian_factor: float) -> dict[str, str]:
    """Words for the limits that the leaves of the model allow."""
    rates = np.broadcast_to(e.learning_rate, e.n_steps)
    steps = e.values[:, 0] / np.repeat(rates, np.diff(e.step_leaves))
    longest = np.abs(steps).max(initial=0.0) / hessian_factor
    smallest = smallest_cover(trees, e)
    least = f"at most {smallest:.6g}" if np.isfinite(smallest) else "of any size"
    return {
        "min_child_weight": least,
        "max_delta_step": f"none, or at least {longest:.3g}",
    }
