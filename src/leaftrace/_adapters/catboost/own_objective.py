"""Objectives that users wrote for CatBoost: classes with a method ``calc_ders_range``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import catboost
import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.further_losses.own import OwnFunctions, own_loss
from ..._model.losses import Logistic
from ..own_objectives import GIVE_OBJECTIVE
from .objective import Objective

OWN_LOSS = "PythonUserDefinedPerObject"  # in place of the name of a loss


def held_objective(model: catboost.CatBoost) -> Callable[[Any, Any], Any] | None:
    """The objective f(margin, y) -> (grad, hess) that a model still holds, or None.

    CatBoost maximises, so its derivatives have the other sign.
    """
    held: Any = model.get_params().get("loss_function")
    if not hasattr(held, "calc_ders_range"):
        return None

    def objective(margin: Any, y: Any) -> tuple[Any, Any]:
        ders = np.asarray(held.calc_ders_range(margin, y, None))
        return -ders[:, 0], -ders[:, 1]

    return objective


def refuse_own_loss(name: str, is_given: bool) -> None:
    """Raise if a loss that the user wrote is not given, or is of a kind that is not supported."""
    if name == OWN_LOSS and not is_given:
        raise UnsupportedModel(
            "this model was trained with an objective of its own, which CatBoost does not store: "
            f"{GIVE_OBJECTIVE}. The derivatives of CatBoost's calc_ders_range have the other sign."
        )
    if name.startswith("PythonUserDefined") and name != OWN_LOSS:
        raise UnsupportedModel(
            "objectives of your own are supported for one output (calc_ders_range), not for several at once "
            "(calc_ders_multi)."
        )


def own_objective(functions: OwnFunctions, A: F64, y: F64, classes: int) -> Objective:
    """The user's functions as an objective; they are tried at scores A (n, 1) and labels y (n,)."""
    link = Logistic() if classes else None
    return Objective(own_loss(functions, A, y, classes=classes, link=link), None, None)


@contextmanager
def without_numba_warning() -> Iterator[None]:
    """Silence CatBoost's recommendation of numba for objectives that users wrote."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to import numba")
        yield


class TrainingObjective:
    """A user's objective as CatBoost's training takes it."""

    def __init__(self, functions: OwnFunctions) -> None:
        self.functions = functions

    def calc_ders_range(
        self, scores: Sequence[float], labels: Sequence[float], weights: Sequence[float] | None
    ) -> list[tuple[float, float]]:
        g, h = self.functions.objective(np.array(scores), np.array(labels))
        w = np.ones(len(g)) if weights is None else np.array(weights)
        return list(zip((-w * g).tolist(), (-w * h).tolist(), strict=True))
