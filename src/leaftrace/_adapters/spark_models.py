"""Models that were trained on Spark, as models of one machine."""

from __future__ import annotations

from typing import Any

# Parameters of the estimators of xgboost.spark under other names.
_ALIASES = {"random_state": "seed", "gamma": "min_split_loss", "eta": "learning_rate"}


def local_model(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model itself, and parameters of its training that it has lost.

    It can be a model of `xgboost.spark` (`get_booster()`), a LightGBM model of SynapseML or its
    native text; other models come back as they are."""
    if hasattr(model, "get_booster") and type(model).__module__.startswith("xgboost.spark"):
        return model.get_booster(), _xgboost_params(model)
    if hasattr(model, "getNativeModel"):
        return _from_text(model.getNativeModel()), {}
    if isinstance(model, str) and model.lstrip().startswith("tree\n"):
        return _from_text(model), {}
    return model, {}


def _from_text(text: str) -> Any:
    """Return the Booster that LightGBM reads from its native text."""
    import lightgbm as lgb

    from .lightgbm.text import check_text

    check_text(text)  # LightGBM would take the whole process down
    return lgb.Booster(model_str=text)


def _xgboost_params(model: Any) -> dict[str, Any]:
    """Return the parameters of a Spark estimator that its booster reports and may have lost."""
    from .xgboost.model import ALIASES, parameters

    reported = parameters(model.get_booster())
    found = {}
    for param, value in model.extractParamMap().items():
        name = _ALIASES.get(param.name, ALIASES.get(param.name, param.name))
        if value is not None and name in reported and isinstance(value, (int, float, str)):
            found[name] = value
    return found
