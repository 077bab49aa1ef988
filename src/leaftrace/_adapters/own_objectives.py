"""Objectives that users wrote: from ``params=``, or from the model that was trained with one.

Libraries keep derivatives of such an objective nowhere, and some do not even store that there was
one. The function comes from the user as ``params={"objective": f}``, f(margin, y) -> (grad, hess),
or from an estimator that still holds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .._data.errors import InvalidInput
from .._model.further_losses.own import OwnFunctions

GIVE_OBJECTIVE = (
    "pass it as params={'objective': f} with f(margin, y) -> (grad, hess), unweighted, and for losses of test rows "
    "also 'loss': L with L(margin, y) -> one number a row"
)
_NAMES = ("objective", "third", "loss")


def take_functions(
    given: dict[str, Any], own: Callable[[Any, Any], Any] | None
) -> tuple[OwnFunctions | None, dict[str, Any]]:
    """The functions of an objective that a user wrote, and the other given parameters.

    ``own``: f(margin, y) of the model, if it still holds its objective. Without that and without a
    given one there are no functions.
    """
    functions = {name: given[name] for name in _NAMES if callable(given.get(name))}
    rest = {name: value for name, value in given.items() if name not in functions}
    for name in {"third", "loss"} & rest.keys():
        raise InvalidInput(
            f"params[{name!r}] is {rest[name]!r:.60}; expected a function of margins and labels that gives one number "
            "a row."
        )
    if own is not None:
        functions = {"objective": own, **functions}
    if functions and "objective" not in functions:
        raise InvalidInput(
            f"params has the function {next(iter(functions))!r} but no objective; pass params={{'objective': f, ...}} "
            "with f(margin, y) -> (grad, hess)."
        )
    return (OwnFunctions(**functions) if functions else None), rest


def label_first(objective: Any) -> Callable[[Any, Any], Any] | None:
    """An objective (y, margin) or (y, margin, weight) of a scikit-learn class as f(margin, y).

    None for the name of an objective.
    """
    if not callable(objective):
        return None
    if takes_weights(objective):
        return lambda margin, y: objective(y, margin, np.ones(len(y)))
    return lambda margin, y: objective(y, margin)


def takes_weights(objective: Callable[..., Any]) -> bool:
    """Whether an objective of a scikit-learn class has a third argument, for weights."""
    try:
        parameters = inspect.signature(objective).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 2


def are_class_numbers(y: Any, classes: int) -> bool:
    """Whether labels are whole numbers from 0 to the number of classes; also if there are none."""
    found = np.asarray([] if y is None else y)
    if found.dtype.kind not in "biuf":
        return True  # the check of labels says what is wrong
    return bool(np.all((found == np.round(found)) & (found >= 0) & (found < classes)))
