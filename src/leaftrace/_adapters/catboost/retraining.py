"""Parameters that train a CatBoost model again, and a callback that ends such a training."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import catboost

from ..._data.errors import InvalidInput
from ..._data.stopping import is_wanted
from ..._model.early_stopping import EvalRows, EvalSet

# Resolved parameters that describe the finished run and not how to run again.
_NOT_FOR_RETRAINING = {
    "pool_metainfo_options",
    "classes_count",
    "eval_fraction",
    "force_unit_auto_pair_weights",
}
# Those that say when to stop by other rows.
_STOPPING = {"use_best_model", "best_model_min_trees", "od_type", "od_wait", "od_pval"}
# Resolved ones that CatBoost does not read as it writes them; those that the user gave replace them.
_RESOLVED_TEXT = {"text_processing", "embedding_processing"}
_TEXT = {*_RESOLVED_TEXT, "tokenizers", "dictionaries", "feature_calcers", "embedding_calcers"}
_STATISTICS = {"simple_ctr", "combinations_ctr", "per_feature_ctr"}


def stopped_early(reported: dict[str, Any]) -> bool:
    """Whether other rows decided after how many rounds training ended."""
    return bool(reported.get("use_best_model")) or "od_type" in reported


def retraining_params(
    model: catboost.CatBoost, reported: dict[str, Any], repeat_stopping: bool = False
) -> dict[str, Any]:
    """Return parameters that train this model again, from those that it reports.

    ``repeat_stopping``: let other rows decide again when to stop, or keep the number of rounds."""
    left_out = _NOT_FOR_RETRAINING | _RESOLVED_TEXT
    params = {k: v for k, v in reported.items() if k not in left_out}
    params |= {k: v for k, v in model.get_params().items() if k in _TEXT}
    if not repeat_stopping:
        params = {k: v for k, v in params.items() if k not in _STOPPING}
        params["iterations"] = model.tree_count_
    # Balanced class weights were resolved for all rows; let CatBoost balance the remaining ones.
    balanced = params.get("auto_class_weights") != "None"
    params.pop("class_weights" if balanced else "auto_class_weights", None)
    if len(model.get_leaf_values()) > sum(model.get_tree_leaf_counts()):
        # With several outputs the number of classes sets these; nobody else can.
        params.pop("ctr_target_border_count", None)
        for key in params.keys() & _STATISTICS:
            params[key] = [re.sub(r":TargetBorderCount=\d+", "", text) for text in params[key]]
    return params | {
        "allow_writing_files": False,
        "logging_level": "Silent",
    }


def eval_pools(
    eval_set: EvalSet | None,
    reported: dict[str, Any],
    make_pool: Callable[[EvalRows], catboost.Pool],
) -> list[catboost.Pool] | None:
    """Return the rows that decide when to stop, as Pools."""
    if eval_set is None:
        return None
    if not stopped_early(reported):
        raise InvalidInput(
            "this CatBoost model was trained without an eval_set that could stop it; leave eval_set out."
        )
    return [make_pool(rows) for rows in eval_set]


class StopIfUnwanted:
    """A callback that ends a training nobody waits for."""

    def after_iteration(self, info: Any) -> bool:
        return is_wanted()
