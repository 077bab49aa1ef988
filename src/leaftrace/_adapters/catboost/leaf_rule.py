"""The rule by which CatBoost computes leaf values, from the parameters of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._model.ensemble import LeafRule
from .objective import DIAGONAL, Objective
from .ranking import COUPLED, SUBTRACTS_L2
from .survival import AFT

# Supported leaf_estimation_methods, and whether they divide by second derivatives.
LEAF_METHODS = {"Newton": True, "Gradient": False, "Simple": False, "Exact": False}


def leaf_rule(params: dict[str, Any], loss_name: str, objective: Objective, K: int) -> LeafRule:
    """Return the rule of a model with K outputs."""
    # Losses that couple rows have in their h what leaves divide by.
    newton = LEAF_METHODS[params["leaf_estimation_method"]] or loss_name in COUPLED
    iterations = int(params["leaf_estimation_iterations"])
    backtracks = params.get("leaf_estimation_backtracking", "No") != "No"
    l2 = float(np.float32(params["l2_leaf_reg"]))
    return LeafRule(
        newton,
        l2=-l2 if loss_name == SUBTRACTS_L2 else l2,
        l2_scales=loss_name != AFT,
        lam_float32=newton and K > 1,
        diagonal=loss_name in DIAGONAL,
        iterations=iterations,
        backtracking=iterations > 1 and backtracks,
        statistic=objective.statistic,
        centred=objective.centred,
        pairwise=objective.pairwise,
    )
