"""The methods by which actions rank rows: those with derivatives in the weights of all rows, trained on or not."""

from __future__ import annotations

from typing import Any

from .._data.errors import InvalidInput
from .._engine.methods import LeafInfluence, StructureInfluence

RankingMethod = LeafInfluence | StructureInfluence


def ranking_method(method: Any, action: str) -> RankingMethod:
    """The method that an action ranks rows by; None stands for LeafInfluence."""
    method = LeafInfluence() if method is None else method
    is_plain = isinstance(method, LeafInfluence) and method == LeafInfluence()
    if isinstance(method, StructureInfluence) or is_plain:
        return method
    raise InvalidInput(
        f"method is {method!r}; {action}() needs the derivatives of all rows, trained on or not, which "
        "LeafInfluence() without an update set and StructureInfluence() give: pass one of them, or None."
    )
