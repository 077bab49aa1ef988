"""`Ensemble`: the one neutral description of a trained model and its training rows.

Adapters make it; everything downstream knows only it. Training is a sequence of steps; all trees of a step read the
same scores ``A``. A step is one tree with vector leaves (O = K) or several trees with scalar leaves (O = 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ._arrays import F64, Ids
from ._losses import Loss


@dataclass(frozen=True)
class LeafRule:
    """How a leaf's step comes from its rows: s = -(D + lam)^-1 G.

    ``newton``: D = sum w h, otherwise D = sum w. ``lam = l2`` or, with ``l2_scales``, ``l2 * sum(w) / n``.
    CatBoost rounds lam to float32 where it solves for vectors (``lam_float32``).
    A leaf takes ``iterations`` such steps; the sum of them times the learning rate is its value. With
    ``backtracking`` the booster may have halved some steps: the replay finds out which.
    """

    newton: bool
    l2: float
    l2_scales: bool = False
    lam_float32: bool = False
    iterations: int = 1
    backtracking: bool = False

    def lam(self, total_weight: float, n: int) -> float:
        lam = self.l2 * total_weight / n if self.l2_scales else self.l2
        return float(np.float32(lam)) if self.lam_float32 else lam


@dataclass(frozen=True)
class Ensemble:
    """A model's trees as its training rows see them.

    ``leaves``       (trees, n)  leaf of each row, counted over all leaves of the tree's step
    ``first_output`` (trees,)    first output a tree writes to
    ``step_trees``   (T + 1,)    trees of step t: step_trees[t] .. step_trees[t + 1]
    ``tree_leaves``  (trees + 1,) leaves of each tree, likewise, in the model's list of all leaves
    ``values``       (leaves, O) the model's leaf values, learning rate included
    ``leaf_weights`` (leaves,)   sum of weights the model recorded for each leaf, or None
    ``y`` (n,) labels as the loss takes them; ``w`` (n,) weights as the loss uses them (class weights included)
    ``w_factor`` (n,)            dw / d(sample weight): the class weight of each row
    ``base`` (K,)                starting score; ``base_from_data``: it is the loss's constant optimum
    ``base_float32``             the mean behind that optimum was rounded to float32
    ``offset`` (n, K) or None    a score given for each row (CatBoost's baseline)
    """

    loss: Loss
    rule: LeafRule
    learning_rate: float
    leaves: Ids
    first_output: NDArray[np.int32]
    step_trees: NDArray[np.int64]
    tree_leaves: NDArray[np.int64]
    values: F64
    y: F64
    w: F64
    w_factor: F64
    base: F64
    base_from_data: bool
    base_float32: bool = False
    offset: F64 | None = None
    leaf_weights: F64 | None = None

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def n_steps(self) -> int:
        return len(self.step_trees) - 1

    @property
    def n_outputs(self) -> int:
        return self.loss.n_outputs

    @property
    def leaf_outputs(self) -> int:
        return self.values.shape[1]

    @cached_property
    def total_weight(self) -> float:
        return float(self.w.sum())

    @cached_property
    def unit_weights(self) -> bool:
        return bool(np.all(self.w == 1))

    @cached_property
    def lam(self) -> float:
        return self.rule.lam(self.total_weight, self.n_rows)

    @cached_property
    def lam_slope(self) -> float:
        """d lam / d w_i, the same for every row."""
        return self.rule.l2 / self.n_rows if self.rule.l2_scales else 0.0

    @cached_property
    def sample_weight(self) -> F64:
        """(n,) weights before class weights."""
        return np.divide(self.w, self.w_factor, out=np.zeros_like(self.w), where=self.w_factor > 0)

    @cached_property
    def step_leaves(self) -> NDArray[np.int64]:
        """(T + 1,) leaves of step t in the list of all leaves."""
        return self.tree_leaves[self.step_trees]

    @cached_property
    def tree_offset(self) -> NDArray[np.int64]:
        """(trees,) where the leaves of each tree's step begin in the list of all leaves."""
        return np.repeat(self.step_leaves[:-1], np.diff(self.step_trees))

    def trees(self, t: int) -> slice:
        return slice(int(self.step_trees[t]), int(self.step_trees[t + 1]))

    def leaf_range(self, t: int) -> slice:
        return slice(int(self.step_leaves[t]), int(self.step_leaves[t + 1]))

    def start(self) -> F64:
        """(n, K) score of each training row before the first step."""
        A = np.tile(self.base, (self.n_rows, 1))
        return A if self.offset is None else A + self.offset

    def add_leaf_values(self, t: int, table: F64, leaves: Ids, A: F64) -> None:
        """A (rows, K) += table[leaf] for all trees of step t. table (M, O), leaves (trees, rows)."""
        for ids, o in zip(leaves[self.trees(t)], self.first_output[self.trees(t)], strict=True):
            A[:, o : o + table.shape[1]] += table[ids]

    def scores(self, leaves: Ids, offset: F64 | None = None, values: F64 | None = None) -> F64:
        """(m, K) raw scores of rows with these leaves, with the model's leaf values or others."""
        values = self.values if values is None else values
        A = np.tile(self.base, (leaves.shape[1], 1)) + (0.0 if offset is None else offset)
        for t in range(self.n_steps):
            self.add_leaf_values(t, values[self.leaf_range(t)], leaves, A)
        return A
