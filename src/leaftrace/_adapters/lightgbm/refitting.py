"""Models made by Booster.refit, which computes all leaves anew on other rows, from zero scores:

    new = decay_rate old + (1 - decay_rate) shrinkage step

LightGBM keeps neither the old leaf values nor that there were any. With decay_rate=0 there is no need
for them; otherwise the user gives the model before the refit, as params={"refit_from": model}. Its
values are constants: the rows that made them are not those of the refit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._data.errors import InvalidInput, UnsupportedModel
from .model import ParsedModel, Tree, read
from .opening import open_booster

REFIT_FROM = "refit_from"
REFITTED = "read as made by Booster.refit(decay_rate=0)"


def refitted(params: dict[str, Any]) -> bool:
    """Whether the model was made by Booster.refit."""
    return float(params["refit_decay_rate"]) == 0 or params[REFIT_FROM] is not None


def with_old_leaves(params: dict[str, Any], parsed: ParsedModel) -> dict[str, Any]:
    """The parameters with the old leaf values (leaves,) in the place of the old model."""
    if params[REFIT_FROM] is None or isinstance(params[REFIT_FROM], np.ndarray):
        return params
    if parsed.averaged:
        raise UnsupportedModel("Booster.refit of boosting='rf' is not supported.")
    old = read(open_booster(params[REFIT_FROM])[1].model_to_string())
    same = len(old.trees) == len(parsed.trees) and all(
        np.array_equal(a.children, b.children) and np.array_equal(a.features, b.features)
        for a, b in zip(old.trees, parsed.trees, strict=True)
    )
    if not same:
        raise InvalidInput(
            "params['refit_from'] is a model with other trees; pass the model that refit() was called on."
        )
    return {**params, REFIT_FROM: np.concatenate([tree.values for tree in old.trees])}


def refit_note(params: dict[str, Any]) -> str:
    """A sentence for the verdict on the replay."""
    if params[REFIT_FROM] is None:
        return REFITTED
    decay = float(params["refit_decay_rate"])
    return (
        f"read as made by Booster.refit(decay_rate={decay:g}), with the leaf values before it given"
    )


def kept_values(params: dict[str, Any]) -> F64 | None:
    """(leaves, 1) what is left of the old leaf values in such a model; None if nothing is."""
    old = params[REFIT_FROM]
    return None if old is None else float(params["refit_decay_rate"]) * old[:, None]


def refuse_trees_of_one_leaf(without_splits: NDArray[np.bool_]) -> None:
    """Raise an error if a tree has no split. ``without_splits``: whether each tree (T, K) has none.

    LightGBM computes its value anew, but leaves it out of the scores from which it computes the next trees.
    """
    if without_splits.any():
        raise UnsupportedModel(
            "a tree of this model has no split, and Booster.refit() leaves such trees out of the scores that the next "
            "trees start from, which is not replayed; trace the model it was made of, or train with fewer "
            "constraints on splits."
        )


def refit_rates(params: dict[str, Any], trees: Sequence[Tree]) -> F64:
    """(trees,) factors of the new steps. The model has six digits of the rates."""
    rate = float(params["learning_rate"])
    stored = np.array([tree.shrinkage for tree in trees])
    stored = np.where(np.abs(stored - rate) <= 1e-5 * rate, rate, stored)
    return (1 - float(params["refit_decay_rate"])) * stored
