"""CatBoost's loss functions in leaftrace's terms: loss, labels, leaf statistic, starting score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.further_losses.targets import (
    LogisticTargets,
    NormalDistribution,
    QuantileTargets,
    SquaredTargets,
)
from ..._model.general_losses import Huber, Tweedie
from ..._model.leaf_rule import PairwiseLeaves, Statistic, StatisticsByOutput
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..._model.separate_losses import OneVsAll
from ..._model.start import BaseRule, LabelStatistic, LabelStatistics, Mean, MeanAndLogSpread
from ..base import f32
from .leaf_statistics import LogCoshMinimum, QuantileOfResiduals
from .losses import Expectile, LogCosh, LogLinQuantile, Lq, Quantile, RelativeError
from .ranking import COUPLED, read_ranking
from .survival import AFT, survival_loss

# The labels a loss takes: lowest, highest, in words.
ANY_LABELS = -np.inf, np.inf, "finite numbers"
_POSITIVE = 0.0, np.inf, "numbers of zero or more"
LABELS: dict[str, tuple[float, float, str]] = {
    "RMSE": ANY_LABELS,
    "Logloss": (0.0, 1.0, "the model's two classes"),
    "CrossEntropy": (0.0, 1.0, "probabilities from 0 to 1"),
    "Poisson": _POSITIVE,
    "MultiClass": (0.0, np.inf, "the model's classes"),
    "MultiClassOneVsAll": (0.0, np.inf, "the model's classes"),
    "MAE": ANY_LABELS,
    "Quantile": ANY_LABELS,
    "MAPE": ANY_LABELS,
    "Tweedie": _POSITIVE,
    "Huber": ANY_LABELS,
    "Expectile": ANY_LABELS,
    "LogCosh": ANY_LABELS,
    "Lq": ANY_LABELS,
    "LogLinQuantile": ANY_LABELS,
    "MultiQuantile": ANY_LABELS,
    "RMSEWithUncertainty": ANY_LABELS,
    "MultiRMSE": ANY_LABELS,
    AFT: ANY_LABELS,
    "MultiLogloss": (0.0, 1.0, "0 and 1, a column for each output"),
    "MultiCrossEntropy": (0.0, 1.0, "probabilities from 0 to 1, a column for each output"),
    **COUPLED,
}
TARGETS = ("MultiRMSE", "MultiLogloss", "MultiCrossEntropy")  # a label for each output
# Losses whose vectors are solved one output at a time.
DIAGONAL = (*TARGETS, "MultiClassOneVsAll", "RMSEWithUncertainty", "MultiQuantile")
ALWAYS_STARTS = ("RMSEWithUncertainty",)  # from a score of the data, whatever boost_from_average is
CLASS_LOSSES = ("Logloss", "MultiClass", "MultiClassOneVsAll")
EXPONENTIAL = ("Logloss", "CrossEntropy", "Poisson")  # CatBoost keeps exp(score)
_QUANTILES = ("MAE", "Quantile", "MAPE")


@dataclass(frozen=True)
class Objective:
    """A loss function with its settings.

    ``statistic``: what the leaves of the method Exact are, None for other methods
    ``base_rule``: how a starting score comes from the data, None if it cannot
    ``centred``: whether the mean of the leaves is subtracted from them
    ``pairwise``: the rule of leaves that are solved all at once, None for others
    """

    loss: Loss
    statistic: Statistic | StatisticsByOutput | None
    base_rule: BaseRule | None
    centred: bool = False
    pairwise: PairwiseLeaves | None = None


def read_objective(description: str, K: int, params: dict[str, Any]) -> Objective:
    """Translate CatBoost's description of a loss, such as "Quantile:alpha=0.7".

    ``K`` counts the model's outputs."""
    name, _, settings = description.partition(":")
    exact = params["leaf_estimation_method"] == "Exact"
    if name not in LABELS:
        raise UnsupportedModel(
            f"the loss '{description}' is not supported; supported losses are {', '.join(LABELS)}."
        )
    if name in COUPLED:
        loss, centred, pairwise = read_ranking(description, params)
        return Objective(loss, None, None, centred, pairwise)
    if name == AFT:
        return Objective(survival_loss(settings), None, None)
    if name == "MultiQuantile":
        return _several_quantiles(settings, exact)
    numbers = _numbers(settings)
    quantile = _quantile(name, numbers)
    statistic = None
    if exact:
        statistic = LogCoshMinimum() if name == "LogCosh" else quantile
    return Objective(_loss(name, numbers, K), statistic, _base_rule(name, quantile))


def _numbers(settings: str) -> dict[str, float]:
    """Return settings such as "alpha=0.7;delta=0.001" as numbers by name."""
    given = dict(part.split("=") for part in settings.split(";") if part)
    return {key: float(value) for key, value in given.items() if key != "use_weights"}


def _several_quantiles(settings: str, exact: bool) -> Objective:
    """Return the objective of several quantiles of one label, such as "alpha=0.2,0.8"."""
    given = dict(part.split("=") for part in settings.split(";") if part)
    levels = [float(alpha) for alpha in given["alpha"].split(",")]
    delta = float(given.get("delta", 1e-6))
    quantiles = [QuantileOfResiduals(alpha, delta, weighted=True) for alpha in levels]
    loss = QuantileTargets(tuple(levels), delta)
    statistic = StatisticsByOutput(tuple(quantiles)) if exact else None
    return Objective(loss, statistic, LabelStatistics(tuple(q.of_labels for q in quantiles)))


def _alpha(numbers: dict[str, float]) -> float:
    return numbers.get("alpha", 0.5)


def _delta(numbers: dict[str, float]) -> float:
    return numbers.get("delta", 1e-6)


def _loss(name: str, numbers: dict[str, float], K: int) -> Loss:
    alpha = float(f32(_alpha(numbers)))
    quantile = partial(Quantile, alpha, _delta(numbers))
    losses: dict[str, Callable[[], Loss]] = {
        "RMSE": SquaredError,
        "Logloss": Logistic,
        "CrossEntropy": Logistic,
        "Poisson": Poisson,
        "MultiClass": partial(Softmax, K),
        "MultiClassOneVsAll": partial(OneVsAll, K),
        "MAE": quantile,
        "Quantile": quantile,
        "MAPE": RelativeError,
        "Tweedie": lambda: Tweedie(numbers["variance_power"]),
        "Huber": lambda: Huber(numbers["delta"], flat=False),
        "Expectile": partial(Expectile, alpha),
        "LogCosh": LogCosh,
        "Lq": lambda: Lq(numbers["q"]),
        "LogLinQuantile": lambda: LogLinQuantile(alpha),
        "RMSEWithUncertainty": NormalDistribution,
        "MultiRMSE": partial(SquaredTargets, K),
        "MultiLogloss": partial(LogisticTargets, K),
        "MultiCrossEntropy": partial(LogisticTargets, K),
    }
    return losses[name]()


def _quantile(name: str, numbers: dict[str, float]) -> QuantileOfResiduals:
    if name == "MAPE":
        return QuantileOfResiduals(_alpha(numbers), 0.0, relative=True)
    return QuantileOfResiduals(_alpha(numbers), _delta(numbers))


def _base_rule(name: str, quantile: QuantileOfResiduals) -> BaseRule | None:
    if name in ("RMSE", "MultiRMSE"):
        return _RoundedMean("identity", float32=True)
    if name == "RMSEWithUncertainty":
        return _RoundedSpread()
    if name in ("Logloss", "CrossEntropy"):
        return _RoundedMean("logit", float32=True)
    if name in _QUANTILES:
        return LabelStatistic(quantile.of_labels)
    return None


@dataclass(frozen=True)
class _RoundedMean(Mean):
    """A mean for which each label times its weight is rounded to float32, too."""

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        columns = y.reshape(len(y), -1)
        return self._link(f32(f32(columns * b[:, None]).sum(axis=0) / b.sum()))


@dataclass(frozen=True)
class _RoundedSpread(MeanAndLogSpread):
    """Mean and log standard deviation, from a mean and a variance that are sums of float32 terms."""

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        mean = f32(f32(y * b).sum() / b.sum())
        variance = f32(f32(b * f32(f32(y - mean) ** 2)).sum() / b.sum())
        return np.array(self._scores(float(mean), float(variance)))
