"""Settings that a model's numbers suggest and that XGBoost does not store."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._data.wording import words
from ..own_objectives import GIVE_OBJECTIVE
from .model import Trees


def suspected_objective(params: dict[str, str], base_score: F64) -> str:
    """Words for an objective that the user wrote, which a base_score without estimate suggests.

    Boosters that were trained with ``obj=`` store another objective, and XGBoost's default score.
    """
    if params["boost_from_average"] != "1" or np.any(base_score != 0.5):
        return ""
    return f"likely an objective of your own (obj=), which XGBoost does not store: {GIVE_OBJECTIVE}"


def suspected_bound(trees: Trees, given: frozenset[str]) -> str:
    """Words for the bound that equal values of unequal leaves suggest; empty if there is none."""
    bound = bounds_shown(trees)
    if bound == "max_delta_step" and bound not in given:
        return (
            "likely max_delta_step, which the file does not keep, as many leaves have the same largest value: "
            f"pass {words().parameters(max_delta_step=...)} as in training"
        )
    if bound == "monotone_constraints" and bound not in given:
        return (
            "likely monotone_constraints, which the file does not keep, as unequal leaves of a tree have the same "
            f"value: pass {words().parameters(monotone_constraints=...)} as in training"
        )
    return ""


def bounds_shown(trees: Trees) -> str:
    """The parameter that seems to have bounded leaf values: its name, or empty.

    Leaves of different cover have the same value if both are at a bound: max_delta_step, the same
    for all trees, or monotone_constraints, by which two leaves of a tree meet in the middle.
    """
    if trees.cover is None or not len(trees.values):
        return ""
    values = trees.values[:, 0]
    size = np.abs(values)
    largest = size >= (1 - 1e-6) * size.max()
    if np.count_nonzero(largest) >= 3 and _differ(*np.sort(trees.cover[largest])[[0, -1]]):
        return "max_delta_step"
    tree = np.repeat(np.arange(len(trees)), np.diff(trees.edges))
    order = np.lexsort([trees.cover, values, tree])
    here = order[:-1]
    following = order[1:]
    alike = (tree[here] == tree[following]) & (values[here] == values[following])
    alike &= (values[here] != 0) & _differ(trees.cover[here], trees.cover[following])
    return "monotone_constraints" if alike.any() else ""


def _differ(less: F64, more: F64) -> NDArray[np.bool_]:
    """Whether covers differ by more than rounding."""
    return np.asarray(less < (1 - 1e-4) * more)
