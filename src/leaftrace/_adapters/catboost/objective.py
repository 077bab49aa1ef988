"""CatBoost's loss functions in leaftrace's terms: loss, labels, leaf statistic, starting score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Statistic
from ..._model.general_losses import Huber, Tweedie
from ..._model.leaf_rule import PairwiseLeaves
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..._model.separate_losses import OneVsAll
from ..._model.start import BaseRule, LabelStatistic, Mean
from ..base import f32
from .leaf_statistics import LogCoshMinimum, QuantileOfResiduals
from .losses import Expectile, LogCosh, Lq, Quantile, RelativeError
from .ranking import COUPLED, read_ranking

# The labels a loss takes: lowest, highest, in words.
_ANY = -np.inf, np.inf, "finite numbers"
_POSITIVE = 0.0, np.inf, "numbers of zero or more"
LABELS: dict[str, tuple[float, float, str]] = {
    "RMSE": _ANY,
    "Logloss": (0.0, 1.0, "the model's two classes"),
    "CrossEntropy": (0.0, 1.0, "probabilities from 0 to 1"),
    "Poisson": _POSITIVE,
    "MultiClass": (0.0, np.inf, "the model's classes"),
    "MultiClassOneVsAll": (0.0, np.inf, "the model's classes"),
    "MAE": _ANY,
    "Quantile": _ANY,
    "MAPE": _ANY,
    "Tweedie": _POSITIVE,
    "Huber": _ANY,
    "Expectile": _ANY,
    "LogCosh": _ANY,
    "Lq": _ANY,
    **COUPLED,
}
CLASS_LOSSES = ("Logloss", "MultiClass", "MultiClassOneVsAll")
EXPONENTIAL = ("Logloss", "CrossEntropy", "Poisson", "Tweedie")  # CatBoost keeps exp(score)
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
    statistic: Statistic | None
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
    numbers = _numbers(settings)
    if name == "Lq" and numbers["q"] < 2:
        raise UnsupportedModel(
            f"the loss '{description}' has no second derivative; use Lq with q of 2 or more, or MAE."
        )
    quantile = _quantile(name, numbers)
    statistic = None
    if exact:
        statistic = LogCoshMinimum() if name == "LogCosh" else quantile
    return Objective(_loss(name, numbers, K), statistic, _base_rule(name, quantile))


def _numbers(settings: str) -> dict[str, float]:
    """Return settings such as "alpha=0.7;delta=0.001" as numbers by name."""
    given = dict(part.split("=") for part in settings.split(";") if part)
    return {key: float(value) for key, value in given.items() if key != "use_weights"}


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
    }
    return losses[name]()


def _quantile(name: str, numbers: dict[str, float]) -> QuantileOfResiduals:
    if name == "MAPE":
        return QuantileOfResiduals(_alpha(numbers), 0.0, relative=True)
    return QuantileOfResiduals(_alpha(numbers), _delta(numbers))


def _base_rule(name: str, quantile: QuantileOfResiduals) -> BaseRule | None:
    if name == "RMSE":
        return _RoundedMean("identity", float32=True)
    if name in ("Logloss", "CrossEntropy"):
        return _RoundedMean("logit", float32=True)
    if name in _QUANTILES:
        return LabelStatistic(quantile.of_labels)
    return None


@dataclass(frozen=True)
class _RoundedMean(Mean):
    """A mean for which each label times its weight is rounded to float32, too."""

    def fit(self, loss: Loss, y: F64, b: F64) -> F64:
        return self._link(f32([f32(y * b).sum() / b.sum()]))
