"""Open CatBoost models and model files, and refuse those that cannot be replayed."""

from __future__ import annotations

import json
from typing import Any

import catboost

from ..._data.errors import InvalidInput, UnsupportedModel
from ..own_objectives import take_functions
from .langevin import is_noisy
from .leaf_rule import LEAF_METHODS
from .own_objective import held_objective, refuse_own_loss
from .ranking import refuse_unknown_pairs, take_pairs
from .source import CatBoostSource
from .stages import take_stages


def open_model(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    baseline: Any,
    given: dict[str, Any],
    qid: Any = None,
) -> CatBoostSource:
    """Open a fitted model with its training data.

    ``given`` holds parameters from the user that replace those the model reports."""
    if not isinstance(model, catboost.CatBoost):
        raise UnsupportedModel(
            f"{type(model).__qualname__} is not a CatBoost model; pass the model itself."
        )
    if not model.is_fitted():
        raise UnsupportedModel(f"this {type(model).__name__} is not fitted; call fit() first.")
    if not model.tree_count_:
        raise UnsupportedModel(
            "this CatBoost model has no trees, so no training row acts through one."
        )
    params = model.get_all_params()
    own, given = take_functions(given, held_objective(model))
    refuse_own_loss(str(params["loss_function"]), own is not None)
    shrinks = bool(params.get("model_shrink_rate"))
    rates, given = take_stages(given, model.tree_count_, shrinks)
    pairs, given = take_pairs(given)
    if unknown := sorted(set(given) - set(params)):
        raise InvalidInput(
            f"params has {', '.join(unknown)}, which this CatBoost model does not report; use the names of "
            "get_all_params()."
        )
    params |= given
    _refuse_settings(params)
    refuse_unknown_pairs(X, pairs)
    more = {"own": own, "rates": rates, "pairs": pairs}
    return CatBoostSource(model, params, X, y, sample_weight, baseline, qid, **more)


def load_model(path: str) -> catboost.CatBoost:
    """Load a .cbm or .json file."""
    with open(path, "rb") as file:
        kind = "cbm" if file.read(4) == b"CBM1" else "json"
    try:
        if kind == "json":  # CatBoost takes any text for an empty model
            with open(path, encoding="utf-8") as file:
                json.load(file)["model_info"]
        return catboost.CatBoost().load_model(path, format=kind)
    except (catboost.CatBoostError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedModel(
            f"'{path}' cannot be read as a CatBoost {kind} model; is the file whole? The reader says: {error}"
        ) from None


def _refuse_settings(params: dict[str, Any]) -> None:
    """Raise for settings whose leaf values are not reconstructed."""
    method = params["leaf_estimation_method"]
    if method not in LEAF_METHODS:
        raise UnsupportedModel(
            f"leaf_estimation_method='{method}' is not supported; use 'Newton' or 'Gradient'."
        )
    is_noisy(params)
