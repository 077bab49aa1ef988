"""LightGBM models that were trained again, and the objective of users in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._data.forks import works_in_forks
from ..._data.stopping import stop_if_unwanted
from ..._model.early_stopping import Rounds
from ..._model.further_losses.own import OwnFunctions
from .prediction import predict
from .users_model import with_booster

if TYPE_CHECKING:
    from .source import LightGBMSource

# Parameters that describe the finished run, its files or its machines, and not how to run again.
NOT_FOR_RETRAINING = {
    "data", "valid", "num_iterations", "early_stopping_round", "seed", "categorical_feature", "metric", "verbosity",
    "label_column", "weight_column", "group_column", "ignore_column", "header", "two_round", "pre_partition",
    "num_machines", "local_listen_port", "time_out", "machine_list_filename", "machines", "eval_at", "refit_from",
}  # fmt: skip
# Reported as 0 and 1, but taken as True and False only.
SWITCHES = {
    "deterministic", "force_col_wise", "force_row_wise", "extra_trees", "first_metric_only", "xgboost_dart_mode",
    "uniform_drop", "use_quantized_grad", "quant_train_renew_leaf", "stochastic_rounding", "linear_tree",
    "is_enable_sparse", "enable_bundle", "use_missing", "zero_as_missing", "feature_pre_filter", "is_unbalance",
    "boost_from_average", "reg_sqrt", "lambdarank_norm", "bagging_by_query", "gpu_use_dp", "precise_float_parser",
}  # fmt: skip


def training_objective(functions: OwnFunctions) -> Callable[[Any, lgb.Dataset], tuple[Any, Any]]:
    """A user's objective as LightGBM's training takes it, with the weights of rows."""

    def objective(scores: Any, rows: lgb.Dataset) -> tuple[Any, Any]:
        g, h = functions.objective(scores, np.asarray(rows.get_label()))
        w = rows.get_weight()
        if w is None:
            return g, h
        w = np.asarray(w).reshape(-1, *[1] * (np.ndim(g) - 1))
        return w * g, w * h

    return objective


def stop_callback(_: Any) -> None:
    """A callback that ends a training nobody waits for."""
    stop_if_unwanted()


@dataclass(frozen=True)
class RetrainedLightGBM:
    """A LightGBM model trained again."""

    booster: lgb.Booster
    source: LightGBMSource
    # table, labels, weights, given scores, sizes of queries
    training: tuple[Any, NDArray[Any], F64, F64 | None, Ints | None]
    rounds: Rounds

    @cached_property
    def structure_changed(self) -> bool:
        return self.source.moved(self.booster)

    @works_in_forks
    def scores(self, X: Any) -> F64:
        total = predict(self.booster, self.source._table(X), raw_score=True)
        return total / self.rounds.count if self.source.parsed.averaged else total

    def own_model(self) -> Any:
        return with_booster(self.source.model, self.booster)

    @works_in_forks
    def open(self) -> LightGBMSource:
        source = self.source
        return type(source)(source.model, self.booster, {}, *self.training, own=source.own)
