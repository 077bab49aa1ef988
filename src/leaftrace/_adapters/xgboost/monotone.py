"""Monotone constraints of an XGBoost model, which bound the values of its leaves.

Splits of categories are free, and so are leaves that are quantiles. A file does not keep the
constraints, so the user may give them in any of the forms that XGBoost takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._data.arrays import Ints
from ..._data.errors import InvalidInput
from ..._model.node_trees import StepNodes, monotone_tree, nodes_by_step
from .model import Trees


def constraints_text(given: Any, names: Sequence[str] | None) -> str:
    """Constraints as XGBoost reports them, "(1,0,-1)".

    ``given``  numbers of the first columns, or a dictionary of numbers by the name of a column
    ``names``  of the columns of the model, or None
    """
    values = given
    if isinstance(given, str):
        values = re.findall(r"[^\s,()\[\]]+", given)
    elif isinstance(given, dict):
        if unknown := sorted(set(map(str, given)) - set(names or ())):
            raise InvalidInput(
                f"params has monotone_constraints for {', '.join(unknown)}, which no column of this model is called; "
                "pass a number for each column, such as (1, 0, -1)."
            )
        values = [given.get(name, 0) for name in names or ()]
    found = [str(value) for value in values] if np.iterable(values) else [str(values)]
    if any(value not in ("-1", "0", "1") for value in found):
        raise InvalidInput(
            f"params has monotone_constraints={given!r}; expected 1, 0 or -1 for each column, such as (1, 0, -1)."
        )
    return f"({','.join(found)})"


def directions(params: dict[str, str], features: int) -> Ints:
    """(features,) 1, -1 or 0: whether the model rises or falls in each column."""
    found = [int(v) for v in re.findall(r"-?\d+", params.get("monotone_constraints", ""))]
    out = np.zeros(max(features, len(found)), np.int64)
    out[: len(found)] = found
    return out


def constrained_nodes(params: dict[str, str], trees: Trees) -> list[StepNodes] | None:
    """The nodes of every step; None for a model without constraints."""
    columns = [nodes.column.max(initial=0) + 1 for nodes in trees.nodes]
    direction = directions(params, int(max(columns)))
    if not direction.any():
        return None
    direction[trees.categorical] = 0
    bounded = [monotone_tree(nodes, direction) for nodes in trees.nodes]
    return nodes_by_step(bounded, trees.steps)
