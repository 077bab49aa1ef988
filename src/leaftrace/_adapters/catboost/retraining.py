"""Parameters that train a CatBoost model again, and a callback that ends such a training."""

from __future__ import annotations

import re
from typing import Any

import catboost

from ..._data.stopping import is_wanted

# Resolved parameters that describe the finished run and not how to run again.
_NOT_FOR_RETRAINING = {
    "pool_metainfo_options",
    "classes_count",
    "eval_fraction",
    "force_unit_auto_pair_weights",
}
# Those that say when to stop by other rows.
_STOPPING = {"use_best_model", "best_model_min_trees", "od_type", "od_wait", "od_pval"}
_STATISTICS = {"simple_ctr", "combinations_ctr", "per_feature_ctr"}


def stopped_early(reported: dict[str, Any]) -> bool:
    """Whether other rows decided after how many rounds training ended."""
    return bool(reported.get("use_best_model")) or "od_type" in reported


def retraining_params(
    model: catboost.CatBoost, reported: dict[str, Any], repeat_stopping: bool = False
) -> dict[str, Any]:
    """Return parameters that train this model again, from those that it reports.

    ``repeat_stopping``: let other rows decide again when to stop, or keep the number of rounds."""
    params = {k: v for k, v in reported.items() if k not in _NOT_FOR_RETRAINING}
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


class StopIfUnwanted:
    """A callback that ends a training nobody waits for."""

    def after_iteration(self, info: Any) -> bool:
        return is_wanted()
