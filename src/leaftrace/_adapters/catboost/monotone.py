"""Monotone constraints of a CatBoost model: the leaves of its symmetric trees in order.

Bit d of a leaf's number is its side of split d. For each setting of the bits of free splits, the leaves
over the constrained bits are one chain, in which values must not fall: the first constrained split
counts most, and a split on a column in which the model falls counts the other way round. CatBoost
pools the leaves of each chain (isotonic regression), which is more than the constraints ask for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import Ints
from .model_json import Json


def constraints(value: Any) -> dict[int, int]:
    """Return 1 or -1 by the number of a column among those of numbers.

    ``value`` is in any of the forms that CatBoost keeps the parameter in."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, str):
        parts = [part for part in value.strip("()").split(",") if part.strip()]
        for k, part in enumerate(parts):
            column, _, sign = part.rpartition(":")
            pairs.append((column or k, sign))
    elif value:
        pairs = list(enumerate(value))
    return {int(column): int(float(sign)) for column, sign in pairs if int(float(sign))}


def leaf_chains(content: Json, signs: dict[int, int]) -> list[Ints]:
    """Return the chains (chains, n) of leaves of every tree of a model in JSON."""
    return [_chains(_split_signs(tree, signs)) for tree in content["oblivious_trees"]]


def _split_signs(tree: Json, signs: dict[int, int]) -> list[int]:
    """Return 1, -1 or 0 for each split of a tree."""
    return [
        signs.get(split["float_feature_index"], 0) if split["split_type"] == "FloatFeature" else 0
        for split in tree["splits"] or []
    ]


def _chains(signs: list[int]) -> Ints:
    """Return the chains (chains, n) of a tree whose splits have these signs."""
    free = [d for d, sign in enumerate(signs) if not sign]
    bound = [d for d, sign in enumerate(signs) if sign]
    falling = sum(1 << d for d, sign in enumerate(signs) if sign < 0)
    starts = _numbers(free) ^ falling
    return starts[:, None] ^ _numbers(bound[::-1])


def _numbers(bits: list[int]) -> Ints:
    """Return all numbers (2^n,) that have only these bits, the last bit of the list counting most."""
    place = np.arange(1 << len(bits))
    return sum(((place >> k & 1) << d for k, d in enumerate(bits)), np.zeros(len(place), np.int64))
