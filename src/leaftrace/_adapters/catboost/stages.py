"""Models that were trained in stages (init_model), of which CatBoost keeps the last one's settings.

The user gives the stages: ``params={"stages": [{"iterations": 100, "learning_rate": 0.1}, ...]}``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import InvalidInput, UnsupportedModel
from ..base import f32

_NAMES = {"iterations", "learning_rate"}
_EXAMPLE = "params={'stages': [{'iterations': 100, 'learning_rate': 0.1}, {'iterations': 50, 'learning_rate': 0.05}]}"


def take_stages(
    given: dict[str, Any], trees: int, shrinks: bool
) -> tuple[F64 | None, dict[str, Any]]:
    """The learning rate (trees,) of each tree, if stages are given, and the other parameters."""
    if "stages" not in given:
        return None, given
    rest = {name: value for name, value in given.items() if name != "stages"}
    stages = given["stages"]
    if not isinstance(stages, (list, tuple)) or any(
        not isinstance(stage, dict) or set(stage) != _NAMES for stage in stages
    ):
        raise InvalidInput(
            f"params has stages={stages!r}; expected iterations and learning_rate of each, such as {_EXAMPLE}. Other "
            "settings must be the same in all stages."
        )
    counts = [int(stage["iterations"]) for stage in stages]
    if sum(counts) != trees:
        raise InvalidInput(
            f"the stages have {' + '.join(map(str, counts))} iterations, and this model has {trees} trees; give as "
            "many as each stage kept."
        )
    if shrinks:
        raise InvalidInput("stages cannot be given for models with model_shrink_rate.")
    return f32(np.repeat([float(stage["learning_rate"]) for stage in stages], counts)), rest


def refuse_stages(rates: F64 | None) -> None:
    """Raise if a model that is to be trained again was trained in stages."""
    if rates is not None:
        raise UnsupportedModel(
            "a model that was trained in stages (init_model) cannot be trained again; use refit()."
        )
