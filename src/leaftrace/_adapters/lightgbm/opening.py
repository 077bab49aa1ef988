"""Opening a LightGBM model: its Booster, or an error that says why it is not supported."""

from __future__ import annotations

import re
from typing import Any

import lightgbm as lgb

from ..._data.errors import UnsupportedModel
from ..own_objectives import GIVE_OBJECTIVE
from .calls import expect_linear_trees
from .linear import is_linear, refuse_linear_settings
from .model import ParsedModel
from .objectives import OBJECTIVES
from .ranking import RANKING
from .text import check_text

VERSION = tuple(int(v) for v in re.findall(r"\d+", lgb.__version__)[:2])


def open_booster(model: Any) -> tuple[Any, lgb.Booster]:
    """The model and its Booster, which is the model itself if it was read from a file."""
    if isinstance(model, lgb.Booster):
        return model, model
    if not isinstance(model, lgb.LGBMModel):
        raise UnsupportedModel(
            f"{type(model).__qualname__} is not a LightGBM model; pass a Booster, LGBMClassifier, LGBMRegressor or "
            "LGBMRanker, or a CVBooster with the rows of its folds: Tracer.of_folds(cvbooster, X, y, folds)."
        )
    if not model.__sklearn_is_fitted__():
        raise UnsupportedModel(f"this {type(model).__name__} is not fitted; call fit() first.")
    return model, model.booster_


def load_model(path: str) -> lgb.Booster:
    """Read a .txt file."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            check_text(file.read())  # LightGBM would take the whole process down
        return lgb.Booster(model_file=path)
    except KeyError as error:
        raise UnsupportedModel(
            f"'{path}' cannot be read as a LightGBM model; is the file whole? It lacks {error}."
        ) from None
    except (ValueError, lgb.basic.LightGBMError) as error:
        raise UnsupportedModel(
            f"'{path}' cannot be read as a LightGBM model; is the file whole? The reader says: {error}"
        ) from None


def refuse_unsupported(parsed: ParsedModel, params: dict[str, Any], own: bool) -> None:
    """Raise for settings whose leaf values are not reconstructed.

    ``own``: the objective is a function that the user wrote.
    """
    if not any(len(tree.values) > 1 for tree in parsed.trees):
        remedy = "train with a lower min_data_in_leaf or min_gain_to_split, or with more rows."
        if parsed.objective[0] == "mape":
            remedy += (
                " Searching column by column, LightGBM takes the weight of the first row for that of all rows with "
                "objective='mape', and finds no split if it is zero: put a row of another weight first, or train "
                "with force_row_wise=True."
            )
        raise UnsupportedModel(
            "this LightGBM model has no splits, so no training row acts through a tree, and nothing shows whether "
            f"these are its labels; {remedy}"
        )
    if not own:
        _refuse_objective(parsed.objective[0])
    if is_linear(parsed):
        expect_linear_trees()
        refuse_linear_settings(parsed, params, own, VERSION)
    if parsed.objective[0] in RANKING and params["path_smooth"] > 0:
        raise UnsupportedModel(
            f"path_smooth with objective='{parsed.objective[0]}' is not supported; train with path_smooth=0."
        )
    _refuse_query_bags(parsed.objective[0], params)


def _refuse_query_bags(name: str, params: dict[str, Any]) -> None:
    """Raise for bags of queries that are not replayed."""
    frequency = float(params["bagging_freq"])
    if not params.get("bagging_by_query") or frequency <= 0 or params["bagging_fraction"] >= 1:
        return
    if name != "lambdarank":
        raise UnsupportedModel(
            "bagging_by_query is supported with objective='lambdarank' alone; train with bagging_by_query=False."
        )


def _refuse_objective(name: str) -> None:
    """Raise for custom and other objectives that are not supported."""
    if not name:
        raise UnsupportedModel(
            "this model was trained with an objective of its own, which LightGBM does not store: "
            f"{GIVE_OBJECTIVE}."
        )
    if name not in (*OBJECTIVES, *RANKING):
        raise UnsupportedModel(
            f"the objective {name!r} is not supported, for its derivatives are not known; supported objectives are "
            f"{', '.join((*OBJECTIVES, *RANKING))}."
        )
