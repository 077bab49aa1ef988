"""Parameters that train a CatBoost model again."""

from __future__ import annotations

import re
from typing import Any

import catboost

# Resolved parameters that describe the finished run and not how to run again.
_NOT_FOR_RETRAINING = {
    "pool_metainfo_options",
    "use_best_model",
    "best_model_min_trees",
    "classes_count",
    "eval_fraction",
    "force_unit_auto_pair_weights",
    "od_type",
    "od_wait",
    "od_pval",
}
_STATISTICS = {"simple_ctr", "combinations_ctr", "per_feature_ctr"}


def retraining_params(model: catboost.CatBoost, reported: dict[str, Any]) -> dict[str, Any]:
    """Return parameters that train this model again, from those that it reports."""
    params = {k: v for k, v in reported.items() if k not in _NOT_FOR_RETRAINING}
    # Balanced class weights were resolved for all rows; let CatBoost balance the remaining ones.
    balanced = params.get("auto_class_weights") != "None"
    params.pop("class_weights" if balanced else "auto_class_weights", None)
    if len(model.get_leaf_values()) > sum(model.get_tree_leaf_counts()):
        # With several outputs the number of classes sets these; nobody else can.
        params.pop("ctr_target_border_count", None)
        for key in params.keys() & _STATISTICS:
            params[key] = [re.sub(r":TargetBorderCount=\d+", "", text) for text in params[key]]
    return params | {
        "iterations": model.tree_count_,
        "allow_writing_files": False,
        "logging_level": "Silent",
    }
