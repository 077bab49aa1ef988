"""XGBoost's early stopping, as far as a model keeps it: patience, metric and largest number of rounds.

The scikit-learn classes keep all of them. A Booster keeps its metrics alone, and a file not even those.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xgboost as xgb
from xgboost.callback import EarlyStopping, TrainingCallback

from ..._data.errors import InvalidInput
from ..._data.stopping import stop_if_unwanted

# Names in Tracer's params that belong to the early stopping, and the fields that they set.
STOPPING_NAMES = {
    "early_stopping_rounds": "patience",
    "num_boost_round": "most_rounds",
    "n_estimators": "most_rounds",
    "eval_metric": "metric",
}


@dataclass(frozen=True)
class StoppingRule:
    """Settings of early stopping; None: not known.

    ``patience``     rounds without a better value after which it stops
    ``most_rounds``  rounds after which training ends in any case
    ``metric``       name or names of the metric, or a function of labels and predictions
    ``callback``     an `EarlyStopping` of the user's, in place of the patience
    """

    patience: int | None = None
    most_rounds: int | None = None
    metric: Any = None
    callback: Any = None

    def with_given(self, given: dict[str, Any]) -> StoppingRule:
        """The rule with the settings that a user states in Tracer's params."""
        fields = {STOPPING_NAMES[name]: value for name, value in given.items()}
        return replace(self, **fields)

    def train(
        self,
        params: dict[str, Any],
        data: xgb.DMatrix,
        eval_data: list[xgb.DMatrix],
        metrics: list[str],
        callbacks: list[TrainingCallback],
    ) -> xgb.Booster:
        """Train until the last of the eval matrices stops it.

        ``metrics``    names that the booster itself reports, for a rule without a metric
        ``callbacks``  further ones, to be called after each round
        """
        if self.most_rounds is None or (self.patience is None and self.callback is None):
            raise InvalidInput(
                "this XGBoost model does not keep the settings of its early stopping; pass them as in training: "
                "params={'early_stopping_rounds': ..., 'num_boost_round': ...}."
            )
        options: dict[str, Any] = {"early_stopping_rounds": self.patience}
        if self.callback is not None:
            options = {}
            callbacks = [*callbacks, _fresh(self.callback)]
        metric = metrics if self.metric is None else self.metric
        if callable(metric):
            options["custom_metric"] = _on_matrix(metric)
        elif metric:
            params = params | {"eval_metric": metric}
        named = [(matrix, f"validation_{i}") for i, matrix in enumerate(eval_data)]
        return xgb.train(
            params,
            data,
            self.most_rounds,
            evals=named,
            verbose_eval=False,
            callbacks=callbacks,
            **options,
        )


def rule_of_estimator(model: xgb.XGBModel) -> StoppingRule:
    """The rule that a model of the scikit-learn classes was trained with."""
    found = [c for c in model.callbacks or [] if isinstance(c, EarlyStopping)]
    return StoppingRule(
        model.early_stopping_rounds,
        model.get_num_boosting_rounds(),
        model.eval_metric,
        found[0] if found else None,
    )


def reported_metrics(booster: xgb.Booster) -> list[str]:
    """Names of the metrics that a booster was trained with; none for one from a file."""
    return [m["name"] for m in json.loads(booster.save_config())["learner"]["metrics"]]


def _fresh(callback: Any) -> Any:
    """The same callback before any training."""
    return EarlyStopping(
        rounds=callback.rounds,
        metric_name=callback.metric_name,
        data_name=callback.data,
        maximize=callback.maximize,
        save_best=callback.save_best,
        min_delta=vars(callback)["_min_delta"],
    )


def _on_matrix(metric: Callable[..., Any]) -> Callable[..., tuple[str, float]]:
    """A metric of labels and predictions as `xgboost.train` calls it."""

    def of_matrix(predicted: np.ndarray, matrix: xgb.DMatrix) -> tuple[str, float]:
        weight = matrix.get_weight()
        options = {"sample_weight": weight} if weight.size else {}
        return metric.__name__, float(metric(matrix.get_label(), predicted, **options))

    return of_matrix


class StopIfUnwanted(TrainingCallback):
    """A callback that ends a training nobody waits for."""

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        stop_if_unwanted()
        return False
