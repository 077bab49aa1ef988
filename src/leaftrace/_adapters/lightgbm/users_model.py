"""LightGBM models for users: a booster in the class of theirs, and one with other leaf values."""

from __future__ import annotations

from copy import copy
from typing import Any

import lightgbm as lgb
import numpy as np

from ..._model.ensemble import Ensemble
from ..base import native_values
from .model import ParsedModel


def with_booster(model: Any, booster: lgb.Booster) -> Any:
    """A copy of the user's model with another booster; the booster itself for a Booster."""
    if isinstance(model, lgb.Booster):
        return booster
    model = copy(model)
    model._Booster = booster
    return model


def with_leaf_values(
    booster: lgb.Booster, parsed: ParsedModel, before: Ensemble, after: Ensemble
) -> lgb.Booster:
    """A copy of a booster with the leaf values and starting score of another ensemble.

    The booster of a forest divides the sum of its trees by their number.
    """
    native = np.concatenate([tree.values for tree in parsed.trees])[:, None]
    scale = parsed.iterations if parsed.averaged else 1.0
    values = native_values(before, after, native, scale)[:, 0]
    changed = lgb.Booster(model_str=booster.model_to_string())
    for tree, leaves in enumerate(np.split(values, parsed.tree_leaves[1:-1])):
        for leaf, value in enumerate(leaves.tolist()):
            changed.set_leaf_output(tree, leaf, value)
    return changed
