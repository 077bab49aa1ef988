"""`Ensemble`: the one neutral description of a trained model and its training rows.

Adapters make it; everything downstream knows only it. Training is a sequence of steps; all trees of a step read the
same scores ``A``. A step is one tree with vector leaves (O = K) or several trees with scalar leaves (O = 1).

Boosting adds each step to the scores as soon as it is computed. Other schedules (DART, forests, shrinking models) are
a list of *moves*: before step t, A += factor * f_r for each (r, factor) in ``moves[t]``; ``moves[T]`` comes last. So a
forest never moves before the end, and DART takes trees out and puts them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ids, Ints
from .._kernels import kernels
from .._kernels.numpy import bounded_step
from .losses import Loss
from .start import BaseRule

BASE = -1  # in moves: the starting score


class Statistic(Protocol):
    """A leaf that is a statistic of its rows, such as the median of residuals, instead of a Newton step."""

    @property
    def name(self) -> str: ...
    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        """(M,) unshrunk values from y - A of the rows; rows of weight zero do not count."""
        ...


@dataclass(frozen=True)
class LeafRule:
    """How a leaf's step comes from its rows: s = -(D + lam)^-1 G.

    ``newton``: D = sum w h, otherwise D = sum w. ``lam = l2`` or, with ``l2_scales``, ``l2 * sum(w) / n``.
    CatBoost rounds lam to float32 where it solves for vectors (``lam_float32``). ``diagonal``: a vector leaf is solved
    one output at a time, for losses whose outputs do not see each other.
    A leaf takes ``iterations`` such steps; the sum of them times the learning rate is its value. With
    ``backtracking`` the booster may have halved some steps: the replay finds out which.
    ``l1`` takes that much off |G|; ``max_step`` bounds |s|; a leaf with D below ``min_hessian`` stays at zero. Where
    one of them decides, the leaf does not move with its rows.
    ``statistic`` replaces all of this.
    """

    newton: bool = True
    l2: float = 0.0
    l2_scales: bool = False
    lam_float32: bool = False
    diagonal: bool = False
    iterations: int = 1
    backtracking: bool = False
    l1: float = 0.0
    max_step: float = np.inf
    min_hessian: float = 0.0
    statistic: Statistic | None = None

    def lam(self, total_weight: float, n: int) -> float:
        lam = self.l2 * total_weight / n if self.l2_scales else self.l2
        return float(np.float32(lam)) if self.lam_float32 else lam

    @property
    def limited(self) -> bool:
        """Whether a leaf's step can be anything but the solution of its equations."""
        return self.l1 > 0 or self.min_hessian > 0 or np.isfinite(self.max_step)

    def step(self, G: F64, H: F64, D: F64) -> tuple[F64, NDArray[np.bool_]]:
        """s with these limits, and whether it moves with G and D = H + lam. All of one shape."""
        return bounded_step(G, H, D, self.l1, self.max_step, self.min_hessian)


@dataclass(frozen=True)
class Smoothing:
    """A tree whose leaves lean on the nodes above them: each of its N nodes, leaves included, takes the step s_a of all
    rows below it, and a leaf is the mixture ``mix @ s``. The mixture itself does not move with the weights."""

    below: F64  # (N, L) 1 where the leaf is below the node, or is it
    mix: F64  # (L, N)
    l2: F64  # (N,) more l2, for some nodes


@dataclass(frozen=True)
class Rounding:
    """What a booster keeps in float32: the scores, the derivatives, the derivatives times the weight, and those times
    how often the row was drawn. The replay does the same, or it would agree to 1e-7 only; derivatives of the training
    program do not care."""

    scores: bool = False
    derivatives: bool = False
    terms: bool = False
    draws: bool = False

    @property
    def level(self) -> int:
        """What the kernels are told of it."""
        return self.terms + 2 * self.derivatives + 4 * self.scores

    def apply(self, x: F64, w: F64, drawn: NDArray[Any] | None = None) -> F64:
        """w drawn x, rounded as the booster rounds it. w, drawn (n,): weight, how often a row was drawn; x (n, ...)."""
        if drawn is not None and not self.draws:
            w = w * drawn
            drawn = None
        shape = len(w), *[1] * (x.ndim - 1)
        x = w.reshape(shape) * (_f32(x) if self.derivatives else x)
        x = _f32(x) if self.terms else x
        return x if drawn is None else _f32(x * drawn.reshape(shape))


def _f32(x: F64) -> F64:
    return x.astype(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Recorded:
    """What the model recorded of each leaf in training, to check the rows by: (leaves,) numbers of one kind."""

    kind: Literal["weight", "rows", "weighted rows", "hessian"]
    values: F64


@dataclass(frozen=True)
class Ensemble:
    """A model's trees as its training rows see them.

    ``leaves``       (trees, n)  leaf of each row, counted over all leaves of the tree's step
    ``first_output`` (trees,)    first output a tree writes to
    ``step_trees``   (T + 1,)    trees of step t: step_trees[t] .. step_trees[t + 1]
    ``tree_leaves``  (trees + 1,) leaves of each tree, likewise, in the model's list of all leaves
    ``values``       (leaves, O) leaf values as training computed them, learning rate included
    ``learning_rate``            one number, or one for each step
    ``y`` (n,) labels as the loss takes them; ``w`` (n,) weights as the loss uses them (class weights included)
    ``w_factor`` (n,)            dw / d(sample weight): the class weight of each row; zero for rows held out
    ``base`` (K,)                starting score; ``base_rule``: how it came from the data, None if it was given
    ``base_factor`` (n,) or None weight of each row in the starting score / sample weight; None means w_factor
    ``offset`` (n, K) or None    a score given for each row (baseline, base_margin, init_score)
    ``sample``                   for each tree (n,) how often a row was drawn for it; None: every row once
    ``moves``                    see above; None: boosting
    ``leaf_l2`` (leaves,) or None  more l2, for some leaves
    ``smoothing``                for each tree how its leaves lean on the nodes above them, or None
    ``fixed`` (leaves,) or None  leaves whose value does not come from their rows
    ``recorded``                 what the model recorded of its leaves, or None
    ``whole``                    rows and total weight of the training set that these rows stand for; None: their own
    ``weights_fixed``, ``labels_fixed``  why leaf values for other weights or labels of rows cannot be computed from
                                 this description; empty if they can
    """

    loss: Loss
    rule: LeafRule
    learning_rate: float | F64
    leaves: Ids
    first_output: NDArray[np.int32]
    step_trees: NDArray[np.int64]
    tree_leaves: NDArray[np.int64]
    values: F64
    y: F64
    w: F64
    w_factor: F64
    base: F64
    base_rule: BaseRule | None = None
    base_factor: F64 | None = None
    offset: F64 | None = None
    sample: Sequence[NDArray[Any]] | None = None
    moves: Sequence[Sequence[tuple[int, float]]] | None = None
    leaf_l2: F64 | None = None
    smoothing: Sequence[Smoothing] | None = None
    fixed: NDArray[np.bool_] | None = None
    recorded: Recorded | None = None
    rounding: Rounding = field(default_factory=Rounding)
    whole: tuple[int, float] | None = None
    weights_fixed: str = ""
    labels_fixed: str = ""

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

    @property
    def effect_outputs(self) -> int:
        """Numbers through which a row moves the leaves of a tree: see _engine/row_effects.py."""
        return self.leaf_outputs if self.smoothing is None else 2

    @cached_property
    def total_weight(self) -> float:
        return float(self.w.sum()) if self.whole is None else self.whole[1]

    @property
    def counted_rows(self) -> int:
        """Rows as lam counts them."""
        return self.n_rows if self.whole is None else self.whole[0]

    @cached_property
    def lam(self) -> float:
        return self.rule.lam(self.total_weight, self.counted_rows)

    @cached_property
    def lam_slope(self) -> float:
        """d lam / d w_i, the same for every row."""
        return self.rule.l2 / self.counted_rows if self.rule.l2_scales else 0.0

    @cached_property
    def sample_weight(self) -> F64:
        """(n,) weights before class weights."""
        return np.divide(self.w, self.w_factor, out=np.zeros_like(self.w), where=self.w_factor > 0)

    @cached_property
    def base_weight(self) -> F64:
        """(n,) weights in the starting score."""
        return self.w if self.base_factor is None else self.sample_weight * self.base_factor

    @cached_property
    def step_leaves(self) -> NDArray[np.int64]:
        """(T + 1,) leaves of step t in the list of all leaves."""
        return self.tree_leaves[self.step_trees]

    @cached_property
    def tree_offset(self) -> NDArray[np.int64]:
        """(trees,) where the leaves of each tree's step begin in the list of all leaves."""
        return np.repeat(self.step_leaves[:-1], np.diff(self.step_trees))

    @cached_property
    def factors(self) -> F64:
        """(T,) what each step's values are multiplied with in the finished model."""
        out = np.ones(self.n_steps)
        if self.moves is not None:
            out[:] = 0
            for r, factor in (move for moves in self.moves for move in moves):
                if r != BASE:
                    out[r] += factor
        return out

    @cached_property
    def independent(self) -> bool:
        """No step reads another, nor a starting score that depends on the data (forests)."""
        return self.moves is not None and not any(self.moves[:-1]) and self.base_rule is None

    @property
    def not_smooth(self) -> str:
        """Why leaf values have no derivatives; empty if they have."""
        if self.rule.statistic is not None:
            return f"a leaf of this model is the {self.rule.statistic.name} of its rows"
        if self.base_rule is not None and not self.base_rule.smooth:
            return "the starting score of this model is a quantile of the labels"
        return ""

    @property
    def refits_whole(self) -> bool:
        """Whether the change of a leaf is not a function of its own rows' changes."""
        return bool(self.not_smooth) or self.smoothing is not None

    def before(self, t: int) -> Sequence[tuple[int, float]]:
        """Moves between step t - 1 and step t."""
        if self.moves is not None:
            return self.moves[t]
        return [(t - 1, 1.0)] if t else []

    def boosts(self, t: int) -> bool:
        """Whether all that happens between step t - 1 and step t is that step t - 1 is added."""
        return t > 0 and (self.moves is None or list(self.moves[t]) == [(t - 1, 1.0)])

    def rate(self, t: int) -> float:
        return float(
            self.learning_rate
            if np.ndim(self.learning_rate) == 0
            else np.asarray(self.learning_rate)[t]
        )

    def tree_weight(self, r: int) -> F64:
        """(n,) weight of each row in tree r."""
        return self.w if self.sample is None else self.w * self.sample[r]

    def trees(self, t: int) -> slice:
        return slice(int(self.step_trees[t]), int(self.step_trees[t + 1]))

    def leaf_range(self, t: int) -> slice:
        return slice(int(self.step_leaves[t]), int(self.step_leaves[t + 1]))

    def start(self) -> F64:
        """(n, K) score of each training row before the first step."""
        A = np.tile(self.base, (self.n_rows, 1))
        return A if self.offset is None else A + self.offset

    def move(
        self, t: int, leaves: Ids, A: F64, values: F64 | None = None, back: bool = False
    ) -> None:
        """Bring scores A (rows, K) from before step t - 1 to before step t, or the other way."""
        values = self.values if values is None else values
        moves = self.before(t)
        for r, factor in reversed(moves) if back else moves:
            factor = -factor if back else factor
            if r == BASE:
                A += factor * self.base
            else:
                self.add_leaf_values(r, factor * values[self.leaf_range(r)], leaves, A)

    def add_leaf_values(self, t: int, table: F64, leaves: Ids, A: F64) -> None:
        """A (rows, K) += table[leaf] for all trees of step t. table (M, O), leaves (trees, rows)."""
        for ids, o in zip(leaves[self.trees(t)], self.first_output[self.trees(t)], strict=True):
            A[:, o : o + table.shape[1]] += table[ids]

    def scores(self, leaves: Ids, offset: F64 | None = None) -> F64:
        """(m, K) raw scores of rows with these leaves."""
        A = np.tile(self.base * self.base_scale, (leaves.shape[1], 1)) + (
            0.0 if offset is None else offset
        )
        values = self.values * np.repeat(self.factors, np.diff(self.step_leaves))[:, None]
        kernels.tree_scores(
            np.ascontiguousarray(leaves), self.first_output, self.tree_offset, values, A
        )
        return A

    @cached_property
    def base_scale(self) -> float:
        """What the starting score is multiplied with in the finished model."""
        moves = [] if self.moves is None else [move for moves in self.moves for move in moves]
        return 1.0 + sum(factor for r, factor in moves if r == BASE)

    def take(self, index: Ints) -> Ensemble:
        """The same model with some of its training rows."""
        return replace(
            self,
            leaves=np.take(
                self.leaves, index, axis=1
            ),  # in order, and eight times as fast as leaves[:, index]
            y=self.y[index],
            w=self.w[index],
            w_factor=self.w_factor[index],
            base_factor=None if self.base_factor is None else self.base_factor[index],
            offset=None if self.offset is None else self.offset[index],
            sample=None if self.sample is None else take_sample(self.sample, index),
            recorded=None,
            whole=None,
        )

    def keep(self, index: Ints) -> Ensemble:
        """The same as `take` to all who ask for sums. Leaves on disk are not copied: the other rows stay, with weight
        zero."""
        if not isinstance(self.leaves, np.memmap):
            return self.take(index)
        w = np.zeros_like(self.w)
        w[index] = self.w[index]
        return replace(self, w=w, recorded=None, whole=(len(index), float(w.sum())))


def take_sample(sample: Sequence[NDArray[Any]], index: Any) -> list[NDArray[Any]]:
    """The same rows of every tree's sample; trees that shared one go on sharing it."""
    taken = {id(s): s[index] for s in sample}
    return [taken[id(s)] for s in sample]
