"""`Ensemble`: the one neutral description of a trained model and its training rows.

Adapters make it, and everything downstream uses it alone. Training is a sequence of steps; all
trees of a step read the same scores ``A``. A step is one tree with vector leaves (O = K) or several
trees with scalar leaves (O = 1).

Boosting adds each step to the scores as soon as it is computed. Other schedules (DART, forests,
shrinking models) are a list of *moves*: before step t, A += factor * f_r for each (r, factor) in
``moves[t]``; ``moves[T]`` comes last. A forest has no moves before the end, and DART takes trees
out and puts them back. (SHRINK, factor) multiplies A itself; there is no ``offset`` then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ids, Ints, take_sample
from .coupled.loss import CoupledLoss, CoupledRows, CoupledTerms, Places
from .kernels import kernels
from .leaf_rule import LeafRule, Recorded, Rounding, UnknownLimits
from .linear_leaves import LinearLeaves, columns_of, take_rows
from .losses import Loss
from .node_trees import StepNodes
from .start import BaseRule

BASE = -1  # stands for the starting score in moves
SHRINK = -2  # stands there for a factor of all scores


@dataclass(frozen=True)
class Ensemble:
    """A model's trees together with the leaves, labels and weights of its training rows.

    ``leaves``       (trees, n)    leaf of each row, counted over all leaves of the tree's step
    ``first_output`` (trees,)      first output that a tree writes to
    ``step_trees``   (T + 1,)      trees of step t: step_trees[t] .. step_trees[t + 1]
    ``tree_leaves``  (trees + 1,)  leaves of each tree, likewise, in the model's list of all leaves
    ``values``       (leaves, O)   leaf values as training computed them, learning rate included;
                                   (leaves, 2 + P) those of linear leaves
    ``learning_rate``              one number, or one for each step
    ``y``            (n,)          labels as the loss takes them; (n, Y) if a row has several
    ``w``            (n,)          weights as the loss uses them (class weights included)
    ``w_factor``     (n,)          dw / d(sample weight): the class weight of each row; zero for
                                   rows held out
    ``base``         (K,)          starting score
    ``base_rule``                  how it came from the data; None if it was given
    ``base_factor``  (n,) or None  weight of each row in the starting score / sample weight; None
                                   means w_factor
    ``shift``        (K,) or None  a constant that the finished model adds to all scores
    ``offset``       (n, K) or None  a score given for each row (baseline, base_margin, init_score)
    ``sample``                     for each tree (n,) how often a row was drawn; None: once
    ``sample_class_weight``        for each tree (C,) the weight of each class that ``sample``
                                   includes; None: it includes none
    ``moves``                      see the head of this module; None: boosting
    ``added``                      for each step (n,) how often it is added to the scores of each training
                                   row, which have ``leaves`` itself as their leaves; None: once
    ``leaf_l2``      (leaves,) or None  additional l2 of each leaf
    ``leaf_gradient`` (leaves, O) or None  constants in the sums of g of leaves with rows: noise
    ``leaf_shift``   (leaves, O) or None  constants in leaf values
    ``step_nodes``                 for each step the nodes of its trees, if leaves depend on other
                                   nodes (smoothed or monotone trees); otherwise None
    ``chains``                     for each step (chains, n) leaves whose values are pooled until they
                                   do not fall along a chain (monotone symmetric trees), or None
    ``fixed``        (leaves,) or None  leaves that are zero whatever their rows are
    ``recorded``                   what the model recorded of its leaves, or None
    ``further_records``            records that are not compared, but help to find a cause
    ``rough_scores``               scores (n, K) before step t > 0 from those after step t - 1, if the
                                   library computes the ``moves`` between them roughly; derivatives
                                   ignore it. None: as ``moves`` say
    ``removed``      (n,) or None  rows that are not in the training set but stay in these arrays
    ``whole``                      number of rows and total weight of the training set that these
                                   rows stand for; None: their own
    ``unknown_limits``             limits in ``rule`` that are not known; None: all are known
    ``missing``                    what the user has to give before the leaves can be recomputed;
                                   empty if nothing is missing
    ``suspected``                  a setting that the leaf values suggest and the model does not
                                   report, as the cause where they differ; empty if there is none
    ``weights_fixed``, ``labels_fixed``  why leaf values for other weights or labels of rows cannot
                                   be computed from this description; empty if they can
    ``places``                     queries of the rows, for a loss that couples them; None otherwise
    ``linear``                     leaves that are functions of columns: see linear_leaves.py; or None
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
    shift: F64 | None = None
    offset: F64 | None = None
    sample: Sequence[NDArray[Any]] | None = None
    sample_class_weight: Sequence[F64] | None = None
    moves: Sequence[Sequence[tuple[int, float]]] | None = None
    added: Sequence[NDArray[Any]] | None = None
    leaf_l2: F64 | None = None
    leaf_gradient: F64 | None = None
    leaf_shift: F64 | None = None
    step_nodes: Sequence[StepNodes] | None = None
    chains: Sequence[Ints] | None = None
    fixed: NDArray[np.bool_] | None = None
    recorded: Recorded | None = None
    further_records: Sequence[Recorded] = ()
    rounding: Rounding = field(default_factory=Rounding)
    rough_scores: Callable[[int, F64], F64] | None = None
    removed: NDArray[np.bool_] | None = None
    whole: tuple[int, float] | None = None
    unknown_limits: UnknownLimits | None = None
    missing: str = ""
    suspected: str = ""
    weights_fixed: str = ""
    labels_fixed: str = ""
    places: Places | None = None
    linear: LinearLeaves | None = None

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
        return self.values.shape[1] if self.linear is None else 1

    @cached_property
    def constants(self) -> Ensemble:
        """The model with linear leaves, with the constants of these alone."""
        return replace(self, values=self.values[:, :1], linear=None)

    @property
    def effect_outputs(self) -> int:
        """Numbers in the effect of a row on the leaves of a tree: see _engine/row_effects.py.

        Pooled leaves may have more: see `Trace.effect_outputs`.
        """
        return self.leaf_outputs if self.step_nodes is None else 2

    @property
    def joins_leaves(self) -> bool:
        """Whether rows move other leaves of a tree than their own."""
        return self.step_nodes is not None or self.chains is not None

    @cached_property
    def total_weight(self) -> float:
        return float(self.w.sum()) if self.whole is None else self.whole[1]

    @property
    def counted_rows(self) -> int:
        """The number of rows n in lam."""
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
        """(T,) the factor of each step's values in the finished model."""
        return self._move_factors[1:]

    @cached_property
    def _move_factors(self) -> F64:
        """(1 + T,) factors of the starting score and of each step's values in the finished model."""
        out = np.ones(1 + self.n_steps)
        if self.moves is None:
            return out
        out[1:] = 0
        for r, factor in (move for moves in self.moves for move in moves):
            if r == SHRINK:
                out *= factor
            else:
                out[1 + r] += factor  # that of BASE, which is -1, comes first
        return out

    @cached_property
    def independent(self) -> bool:
        """Whether no step depends on another, nor on a starting score from the data (forests)."""
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
    def coupled(self) -> bool:
        """Whether the gradient of a row depends on the scores of other rows."""
        return isinstance(self.loss, CoupledLoss)

    @cached_property
    def coupling(self) -> CoupledTerms:
        """The loss with the training rows, for a loss that couples them."""
        assert isinstance(self.loss, CoupledLoss)
        assert self.places is not None
        rows = CoupledRows(self.y, self.w, self.places.number, self.places.origin)
        return self.loss.on(rows)

    def moves_before(self, t: int) -> Sequence[tuple[int, float]]:
        """Moves between step t - 1 and step t."""
        if self.moves is not None:
            return self.moves[t]
        return [(t - 1, 1.0)] if t else []

    def boosts(self, t: int) -> bool:
        """Whether the only move between step t - 1 and step t is to add step t - 1."""
        adds_last = self.moves is None or list(self.moves[t]) == [(t - 1, 1.0)]
        return t > 0 and adds_last and self.added is None

    def rate(self, t: int) -> float:
        """The learning rate of step t."""
        rates = np.asarray(self.learning_rate)
        return float(rates if rates.ndim == 0 else rates[t])

    def tree_weight(self, r: int) -> F64:
        """(n,) weight of each row in tree r."""
        return self.w if self.sample is None else self.w * self.sample[r]

    def drawn_rows(self, r: int) -> NDArray[np.bool_]:
        """(n,) whether tree r was fitted to a row; a row of weight zero may be one of them."""
        drawn = np.ones(self.n_rows, bool) if self.sample is None else self.sample[r] > 0
        return drawn if self.removed is None else drawn & ~self.removed

    def labels_of(self, output: int) -> F64:
        """(n,) the labels that an output predicts."""
        return self.y if self.y.ndim == 1 else self.y[:, output]

    def trees(self, t: int) -> slice:
        """The trees of step t."""
        return slice(int(self.step_trees[t]), int(self.step_trees[t + 1]))

    def leaf_range(self, t: int) -> slice:
        """The leaves of step t in the list of all leaves."""
        return slice(int(self.step_leaves[t]), int(self.step_leaves[t + 1]))

    def start(self) -> F64:
        """(n, K) scores of the training rows before the first step."""
        A = np.tile(self.base, (self.n_rows, 1))
        return A if self.offset is None else A + self.offset

    def gradients(self, A: F64, t: int = 0) -> F64:
        """(n, K) the loss's gradient in each score, at scores A (n, K) before step t."""
        if self.coupled:
            return self._unweighted(self.coupling.at(A[:, 0], t).g)
        return self.loss.gradient(self.loss.state(A), self.y)

    def _unweighted(self, terms: F64) -> F64:
        """(n, 1) terms (n,) of rows of non-zero weight, divided by it."""
        return np.divide(terms, self.w, out=np.zeros_like(terms), where=self.w > 0)[:, None]

    def second_derivatives(self, A: F64, t: int = 0) -> F64:
        """(n, K) the loss's second derivative in each score, at scores A (n, K) before step t."""
        if self.coupled:
            return self._unweighted(self.coupling.at(A[:, 0], t).h)
        return self.loss.hessian_diagonal(self.loss.state(A), self.y)

    def move(
        self, t: int, leaves: Ids, A: F64, values: F64 | None = None, back: bool = False
    ) -> None:
        """Bring scores A (rows, K) from before step t - 1 to before step t, or ``back``."""
        values = self.values if values is None else values
        moves = self.moves_before(t)
        for r, factor in reversed(moves) if back else moves:
            if r == SHRINK:
                A *= 1 / factor if back else factor
                continue
            factor = -factor if back else factor
            if r == BASE:
                A += factor * self.base
                continue
            once = A if self.added is None or leaves is not self.leaves else np.zeros_like(A)
            self.add_leaf_values(r, factor * values[self.leaf_range(r)], leaves, once)
            if self.added is not None and once is not A:
                A += self.added[r][:, None] * once

    def add_leaf_values(self, t: int, table: F64, leaves: Ids, A: F64) -> None:
        """A (rows, K) += table[leaf] for all trees of step t; table (M, O), leaves (trees, rows)."""
        trees = self.trees(t)
        first = self.first_output[trees]
        if self.linear is not None:
            here = self.linear.part(self.leaf_range(t))
            for ids, o in zip(leaves[trees], first, strict=True):
                A[:, o] += here.outputs(ids, columns_of(leaves), table)
            return
        if A.flags.c_contiguous:
            ids = np.ascontiguousarray(leaves[trees])
            kernels.tree_scores(ids, first, np.zeros(len(first), np.int64), table, A)
            return
        for ids, o in zip(leaves[trees], first, strict=True):
            A[:, o : o + table.shape[1]] += table[ids]

    def scores(self, leaves: Ids, offset: F64 | None = None) -> F64:
        """(m, K) raw scores of rows with these leaves."""
        A = np.tile(self.finished_base, (leaves.shape[1], 1))
        A = A + (0.0 if offset is None else offset)
        if self.linear is not None:
            for t in range(self.n_steps):
                self.add_leaf_values(t, self.finished_values[self.leaf_range(t)], leaves, A)
            return A
        ids = np.ascontiguousarray(leaves)
        kernels.tree_scores(ids, self.first_output, self.tree_offset, self.finished_values, A)
        return A

    @property
    def finished_base(self) -> F64:
        """(K,) the starting score in the finished model."""
        base = self.base * self.base_scale
        return base if self.shift is None else base + self.shift

    @cached_property
    def finished_values(self) -> F64:
        """(leaves, O) leaf values in the finished model, whose scores are their sums."""
        return self.values * np.repeat(self.factors, np.diff(self.step_leaves))[:, None]

    @cached_property
    def base_scale(self) -> float:
        """The factor of the starting score in the finished model."""
        return float(self._move_factors[0])

    def take(self, index: Ints) -> Ensemble:
        """The same model with some of its training rows."""
        return replace(
            self,
            leaves=take_rows(self.leaves, index),
            y=self.y[index],
            w=self.w[index],
            w_factor=self.w_factor[index],
            base_factor=None if self.base_factor is None else self.base_factor[index],
            offset=None if self.offset is None else self.offset[index],
            sample=None if self.sample is None else take_sample(self.sample, index),
            added=None if self.added is None else take_sample(self.added, index),
            removed=None if self.removed is None else self.removed[index],
            places=None if self.places is None else self.places.take(index),
            recorded=None,
            further_records=(),
            whole=None,
        )

    def keep(self, index: Ints) -> Ensemble:
        """An ensemble with the sums over rows of `take`; leaves on disk are copied only if rows are coupled."""
        in_place = isinstance(self.leaves, np.memmap) and not self.coupled
        return self.weigh_only(index) if in_place else self.take(index)

    def weigh_only(self, index: Ints) -> Ensemble:
        """The same rows, of which these alone have weight; the others are marked as removed."""
        removed = ~np.isin(np.arange(self.n_rows), index)
        w = np.where(removed, 0.0, self.w)
        whole = len(index), float(w.sum())
        return replace(self, w=w, removed=removed, recorded=None, whole=whole)
