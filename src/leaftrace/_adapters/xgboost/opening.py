"""Opening an XGBoost model: its Booster and parameters, or an error that says why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from xgboost.core import XGBoostError

from ..._data.errors import InvalidInput, UnsupportedModel
from ..._model.further_losses.own import OwnFunctions
from ..own_objectives import label_first
from .draws import tree_method
from .gradient_sampling import draws_by_gradient
from .model import ALIASES, best_rounds, error_reason, parameters
from .monotone import constraints_text
from .objectives import OBJECTIVES, OF_TARGETS, QUANTILES, as_float32, quantile_levels
from .stopping import StoppingRule, rule_of_estimator

# Parameters that the model itself holds, so the user cannot give others.
_HELD = {
    "base_score", "boost_from_average", "booster", "multi_strategy", "num_class", "num_feature", "num_parallel_tree",
    "num_target", "num_trees", "objective",
}  # fmt: skip


@dataclass(frozen=True)
class OpenedModel:
    """A Booster, and what the class or file it came in adds to it."""

    booster: xgb.Booster
    name: str
    classes: NDArray[Any] | None = None
    rounds: int | None = None  # that it predicts with; None: all
    missing: float = np.nan
    sketched: bool = False  # trained on a QuantileDMatrix
    stopping: StoppingRule = field(default_factory=StoppingRule)
    model: Any = None  # the user's estimator, if it is one
    own: OwnFunctions | None = None  # the objective that it was trained with, if a user wrote it

    @property
    def held_objective(self) -> Callable[[Any, Any], Any] | None:
        """The objective f(margin, y) that the user's estimator holds, if it is a function."""
        return None if self.model is None else label_first(self.model.objective)


def open_booster(model: Any) -> OpenedModel:
    """Open an estimator or a Booster; a model read from a file is open already."""
    if isinstance(model, OpenedModel):
        return model
    if isinstance(model, xgb.Booster):
        return OpenedModel(model, "Booster")
    name = type(model).__name__
    if not isinstance(model, xgb.XGBModel):
        raise UnsupportedModel(
            f"{name} is not an XGBoost model; pass a Booster, an XGBClassifier or an XGBRegressor."
        )
    if not model.__sklearn_is_fitted__():
        raise UnsupportedModel(f"this {name} is not fitted; call fit() first.")
    booster = model.get_booster()
    return OpenedModel(
        booster,
        name,
        classes=np.asarray(model.classes_) if isinstance(model, xgb.XGBClassifier) else None,
        rounds=best_rounds(booster),
        missing=np.nan if model.missing is None else float(model.missing),
        sketched=model.tree_method in (None, "auto", "hist"),
        stopping=rule_of_estimator(model),
        model=model,
    )


def load_model(path: str) -> OpenedModel:
    """Open a .ubj or .json file, as the class of model that wrote it."""
    try:
        booster = xgb.Booster(model_file=path)
    except XGBoostError as error:
        raise UnsupportedModel(
            f"'{path}' cannot be read as an XGBoost model; is the file whole? XGBoost says: {error_reason(error)}"
        ) from None
    wrapper = booster.attr("scikit_learn")  # written by the scikit-learn classes
    if wrapper is None:
        return OpenedModel(booster, "Booster")
    rounds = best_rounds(booster)
    if json.loads(wrapper).get("_estimator_type") != "classifier":
        return OpenedModel(booster, "XGBRegressor", None, rounds, sketched=True)
    classes = np.arange(max(2, int(parameters(booster)["num_class"])))
    return OpenedModel(booster, "XGBClassifier", classes, rounds, sketched=True)


def with_given(
    reported: dict[str, str], given: dict[str, Any], columns: Sequence[str] | None
) -> dict[str, str]:
    """The reported parameters, replaced by those that the user gives.

    ``columns``: names of the columns of the model, or None.
    """
    if "monotone_constraints" in given:
        constraints = constraints_text(given["monotone_constraints"], columns)
        given = {**given, "monotone_constraints": constraints}
    values = {
        ALIASES.get(name, name): str(int(v) if isinstance(v, bool) else v)
        for name, v in given.items()
    }
    allowed = set(reported) - _HELD
    if unknown := sorted(set(values) - allowed):
        raise InvalidInput(
            f"params has {', '.join(unknown)}, which this XGBoost model was not trained with; "
            f"it has {', '.join(sorted(allowed))}."
        )
    for name, value in values.items():
        if _is_number(reported[name]) and not _is_number(value):
            raise InvalidInput(
                f"params has {name}={value!r}; expected a number, such as {reported[name]}."
            )
    return reported | values


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def refuse_unsupported(details: dict[str, Any], params: dict[str, str], own: bool) -> None:
    """Raise for settings whose leaf values are not reconstructed.

    ``own``: the objective that the model stores is not the one it was trained with.
    """
    booster = details["gradient_booster"]["name"]
    objective = details["objective"]["name"]
    if booster == "gblinear":
        raise UnsupportedModel(
            "booster='gblinear' has no trees; train with booster='gbtree' or 'dart'."
        )
    if not own:
        _refuse_objective(objective, params)
    elif int(params["num_target"]) > 1:
        raise UnsupportedModel(
            "objectives of your own are supported for one target, and this model has "
            f"{params['num_target']}; train a model for each target."
        )
    if draws_by_gradient(params) and booster == "dart":
        raise UnsupportedModel(
            "sampling_method='gradient_based' with booster='dart' is not supported; train with "
            "sampling_method='uniform'."
        )
    several = int(params["num_target"]) > 1
    if not own and several and objective in QUANTILES and tree_method(params) == "exact":
        raise UnsupportedModel(
            f"several outputs of {objective} with tree_method='exact' are not supported; train with tree_method='hist'."
        )


def _refuse_objective(objective: str, params: dict[str, str]) -> None:
    """Raise for objectives that are not supported, and for several of them in one model."""
    if objective not in OBJECTIVES:
        raise UnsupportedModel(
            f"the objective '{objective}' is not supported; supported objectives are {', '.join(OBJECTIVES)}."
        )
    targets = int(params["num_target"])
    several_quantiles = objective == "reg:quantileerror" and len(quantile_levels(params)) == targets
    if targets == 1 or several_quantiles:
        return
    if objective not in OF_TARGETS or int(params["num_class"]) > 1:
        raise UnsupportedModel(
            f"this model predicts {targets} targets at once with {objective}; several targets are supported for "
            f"{', '.join(OF_TARGETS)}. Train a model for each target."
        )
    if as_float32(params.get("scale_pos_weight", 1)) != 1:
        raise UnsupportedModel(
            "scale_pos_weight with several targets weighs a row otherwise for each of them; train a model for each "
            "target."
        )
