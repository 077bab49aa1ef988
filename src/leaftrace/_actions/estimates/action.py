"""Seconds and bytes of an action, before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..._data.errors import InvalidInput
from ..._data.time_limit import TimeLimit
from ..._engine.costs import Estimate
from ..clean.action import clean
from ..fix.action import fix
from ..groups import group_effects
from ..impact.action import removal_impact
from ..mismatch.action import mismatch
from ..stability.action import ensemble_influence
from ..values.action import data_values
from ..values.sources import source_values
from . import changes, members, removals
from .parts import Course

# The parts of each action, from its arguments by name.
_COURSES: dict[Any, Callable[[Any], Course]] = {
    clean: changes.of_clean,
    data_values: members.of_data_values,
    ensemble_influence: members.of_ensemble_influence,
    fix: changes.of_fix,
    group_effects: removals.of_group_effects,
    mismatch: changes.of_mismatch,
    removal_impact: removals.of_removal_impact,
    source_values: removals.of_source_values,
}


def estimate(action: Callable[..., Any], /, *arguments: Any, **options: Any) -> Estimate:
    """Seconds and bytes that an action will take with these arguments.

    >>> lt.estimate(lt.group_effects, tracer, "age", X_test, y_test, retrain=True)    # doctest: +SKIP
    Estimate(about 41 s, 90 MB; 1 loss calculation, 1 influence, 1 leaf lookup, 5 refits, 5 retrainings)

    ``action``     a function of leaftrace: clean, data_values, ensemble_influence, fix,
                   group_effects, mismatch, removal_impact or source_values
    ``arguments``  those that it will be called with

    One part of each kind is done and timed (a refit, a retraining, a member), so it takes about as
    long as these. Where the number of models depends on what they say, as in `fix`, `clean` and
    `mismatch`, `seconds` is of the shortest course that trains any and `most` of the longest.
    `Tracer.estimate` is for `Tracer.influence`.
    """
    course = _COURSES.get(action)
    if course is None:
        names = ", ".join(sorted(known.__name__ for known in _COURSES))
        raise InvalidInput(
            f"action is {getattr(action, '__name__', action)!r}; estimate() knows {names}. For "
            "tracer.influence use tracer.estimate."
        )
    try:
        bound = inspect.signature(action).bind(*arguments, **options)
    except TypeError as error:
        raise InvalidInput(f"{action.__name__}() cannot be called so: {error}.") from None
    bound.apply_defaults()
    TimeLimit(bound.arguments["time_limit"])  # raises for what is none
    given = SimpleNamespace(**bound.arguments)
    return course(given).estimate(given.time_limit)
