"""Trees with their choices of splits, which passes of soft splits keep for the next pass.

The order of the rows, the sums over bins, and the probabilities of candidate splits depend on the model
and on the temperature alone. The native kernel keeps them in an object for each tree, its twin nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._model.ensemble import Ensemble
from .._model.splits import SplitSearch
from .split_bins import SplitBins
from .workspace import Workspace

MISSING_LAST = 1  # the kind of columns whose missing values are tried on both sides
SIDE_NUMBERS = 6  # that the kernel keeps of a candidate and output
TREE_BYTES = 1 << 14  # that a tree takes in any case


class KeptTrees:
    """The kernels' objects of trees, at one temperature.

    ``fills``  whether trees that are not there yet may be added
    """

    def __init__(self, trees: dict[int, Any] | None = None, fills: bool = False) -> None:
        self.trees = {} if trees is None else trees
        self.fills = fills

    def of(self, r: int, new: Callable[[], Any]) -> Any:
        """The object of tree r; if it is not there, a new one that may be added, or None."""
        if r in self.trees or not self.fills:
            return self.trees.get(r)
        return new()

    def add(self, r: int, kept: Any) -> None:
        """Keep the object of tree r, after a call of the kernel has filled it.

        Passes on other threads find it only then.
        """
        if kept is not None:
            self.trees[r] = kept


def kept_trees(
    work: Workspace, search: SplitSearch, bins: SplitBins, temperature: float, fills: bool
) -> KeptTrees:
    """Trees that are kept at this temperature; those of another one make room for them, if they may be filled."""
    fills = fills and _fits(work, search, bins)
    if fills and temperature not in work.soft_choices:
        work.soft_choices = {temperature: {}}
    return KeptTrees(work.soft_choices.get(temperature, {}), fills)


def _fits(work: Workspace, search: SplitSearch, bins: SplitBins) -> bool:
    """Whether all trees fit in memory beside the effects and derivatives."""
    others = work.effect_bytes() + work.derivative_bytes()
    return others + choice_bytes(work.trace.ensemble, search, bins) <= work.memory_limit // 2


def choice_bytes(e: Ensemble, search: SplitSearch, bins: SplitBins) -> int:
    """Bytes that are kept of all trees."""
    outputs = e.n_outputs if search.joint else e.leaf_outputs
    sizes = bins.sizes.astype(np.int64)
    candidates = int(sizes.sum() + sizes[bins.kinds == MISSING_LAST].sum())
    trees = search.trees
    if search.joint:  # one tree for all outputs of a step
        trees = [trees[e.trees(t).start] for t in range(e.n_steps)]
    nodes = sum(len(tree.left) for tree in trees)
    of_rows = len(trees) * (4 * e.n_rows + TREE_BYTES)
    return of_rows + nodes * (32 + candidates * (9 + 8 * SIDE_NUMBERS * outputs))
