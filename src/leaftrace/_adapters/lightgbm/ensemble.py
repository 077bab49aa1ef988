"""A LightGBM model and its training rows as an `Ensemble`.

The first trees (of a forest, all) hold the starting score; DART made trees smaller after they were
computed. Both are taken back, so that leaf values are those that training computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids
from ..._data.errors import UnsupportedModel
from ..._data.query_ids import QueryRows
from ..._model.coupled.loss import Places
from ..._model.ensemble import BASE, Ensemble, LeafRule
from ..._model.further_losses.own import OwnFunctions, own_loss
from ..._model.leaf_rule import Rounding
from ..._model.node_trees import StepNodes, nodes_by_step
from ..._model.start import BaseRule, Mean
from ..base import UNWEIGHTED, f32
from .dart import Moves, dart_schedule, refuse_unfinished
from .draws import times_added
from .linear import SUSPICION, is_linear, linear_leaves, linear_values
from .model import ParsedModel
from .monotone import constrained_tree, directions, suspected_bounds
from .objectives import (
    INTENSITY,
    QUANTILES,
    Objective,
    label_weights,
    objective,
    one_against_all,
    steepness,
)
from .path_smooth import smoothing
from .ranking import ranking_objective
from .refitting import kept_values, refit_rates, refitted, refuse_trees_of_one_leaf


@dataclass(frozen=True)
class _RowWeights:
    """Weights of the training rows.

    ``w``         (n,) sample weights times class weights, in float32
    ``by_label``  (n,) factors of is_unbalance and scale_pos_weight; the starting score ignores them
    ``by_tree``   for each tree (n,) such factors, where every class has its own; otherwise None
    ``differ``    whether any of all these is not one
    ``by_class``  for each tree (K,) the factors of ``by_tree`` by class
    """

    w: F64
    by_label: F64
    by_tree: list[F64] | None
    differ: bool
    by_class: list[F64] | None = None


@dataclass(frozen=True)
class _Schedule:
    """How the steps are scaled and added up, before the starting score is taken back."""

    rates: F64  # (T,) learning rates
    moves: Moves | None  # see `Ensemble`; None: boosting
    holds_base: NDArray[np.bool_]  # (T,) whether the trees of a step hold the starting score


@dataclass(frozen=True)
class LightGBMRun:
    """A training run: the model that came out of it, and the rows it was trained on.

    ``leaves``         (trees, n) leaf of each row
    ``y``              (n,) labels as the loss takes them
    ``sample_weight``  (n,); ``class_weight`` (n,) factors from the wrapper's class_weight
    ``offset``         (n, K) scores given in advance, or None
    ``version``        of LightGBM
    ``base``           (K,) the starting score, if it is not that of these labels
    ``queries``        of a ranker, or None
    ``own``            the functions of an objective that the user wrote, or None
    ``classes``        number of classes for such an objective; 0 if labels are numbers
    """

    parsed: ParsedModel
    leaves: Ids
    y: F64
    sample_weight: F64
    class_weight: F64
    offset: F64 | None
    version: tuple[int, ...]
    base: F64 | None = None
    queries: QueryRows | None = None
    own: OwnFunctions | None = None
    classes: int = 0

    @cached_property
    def without_splits(self) -> NDArray[np.bool_]:
        """(T, K) whether a tree is one leaf."""
        single = [len(tree.values) == 1 for tree in self.parsed.trees]
        return np.array(single).reshape(-1, self.parsed.outputs)

    @cached_property
    def counts(self) -> F64 | None:
        """(leaves,) rows of each leaf in training, as recorded; NaN for a tree of one leaf."""
        counts = [
            tree.counts if len(tree.values) > 1 else np.array([np.nan])
            for tree in self.parsed.trees
        ]
        found = [c for c in counts if c is not None]
        return np.concatenate(found) if len(found) == len(counts) else None

    @cached_property
    def linear(self) -> bool:
        """Whether leaves are linear functions."""
        return is_linear(self.parsed)

    @cached_property
    def _values(self) -> F64:
        """(leaves, 1) leaf values of the model, or those of linear leaves."""
        if self.linear:
            return linear_values(self.parsed)
        return np.concatenate([tree.values for tree in self.parsed.trees])[:, None]

    @property
    def has_constant_hessian(self) -> bool:
        """Whether h is the same for all rows, so that LightGBM does not look at it."""
        constant = self.parsed.objective[0] in ("regression", "huber") and self.own is None
        return constant and bool(np.all(self.sample_weight * self.class_weight == 1))

    def steepness(self, params: dict[str, Any]) -> float:
        """The factor by which the objective multiplies h."""
        return steepness(self.parsed.objective[0], params, self.parsed.outputs)

    def ensemble(self, params: dict[str, Any], bags: Sequence[Any] | None = None) -> Ensemble:
        """Describe the run with these parameters; ``bags`` are the rows drawn for each step."""
        parsed = self.parsed
        K = parsed.outputs
        weights = self._row_weights(params)
        kind = self._objective(params, weights.differ)
        base, base_rule = self._start(params, kind, weights.w)
        schedule = self._schedule(params, folded=base_rule is not None)
        rates = schedule.rates / self.steepness(params)
        one_rate = bool(np.all(schedule.rates == schedule.rates[0]))
        labels_matter = bool(np.any(weights.by_label != 1))
        # GOSS multiplies terms that are rounded already.
        rounds_draws = params["data_sample_strategy"] == "goss" and weights.differ
        e = Ensemble(
            loss=kind.loss,
            rule=self._leaf_rule(params, kind),
            learning_rate=rates[0] if one_rate else rates,
            leaves=self.leaves,
            first_output=np.tile(np.arange(K, dtype=np.int32), parsed.iterations),
            step_trees=parsed.step_trees,
            tree_leaves=parsed.tree_leaves,
            values=self._values,
            y=f32(self.y),
            w=weights.w * weights.by_label,
            w_factor=self.class_weight * weights.by_label,
            base=base,
            base_rule=base_rule,
            base_factor=self.class_weight if labels_matter else None,
            offset=self.offset,
            sample=self._sample(weights.by_tree, bags),
            sample_class_weight=weights.by_class,
            moves=schedule.moves,
            added=times_added(params, bags),
            leaf_l2=self._category_l2(params),
            leaf_shift=kept_values(params),
            fixed=self._fixed_leaves(),
            rounding=replace(kind.rounding, draws=rounds_draws and weights.by_tree is None),
            weights_fixed=self._weights_fixed(kind),
            labels_fixed="" if weights.by_tree is None else "every class weighs them its own way",
            places=None if self.queries is None else Places.of_training(self.queries.number),
            linear=linear_leaves(parsed, params, self.steepness(params)) if self.linear else None,
            suspected=SUSPICION if self.linear else suspected_bounds(self.parsed),
        )
        return self._as_computed(e, params, schedule)

    def _objective(self, params: dict[str, Any], weighted: bool) -> Objective:
        """The objective with its functions; ``weighted``: rows have weights other than one."""
        K = self.parsed.outputs
        if weighted and self.parsed.objective[0] == INTENSITY:
            raise UnsupportedModel(
                "weights of rows are intensities for cross_entropy_lambda, to which its gradients are not "
                "proportional; train without them, or with cross_entropy."
            )
        if self.queries is not None:
            return ranking_objective(self.parsed.objective[0], params, self.queries)
        if self.own is None:
            return objective(self.parsed.objective[0], params, K, weighted, self.version)
        start = np.zeros((len(self.y), K)) if self.offset is None else self.offset
        loss = own_loss(self.own, start, f32(self.y), classes=self.classes)
        return Objective(loss, Mean(), Rounding(derivatives=not weighted, terms=True))

    def _weights_fixed(self, kind: Objective) -> str:
        """Why leaves for other weights of rows cannot be computed; empty if they can."""
        if self.parsed.objective[0] == INTENSITY:
            return "weights of rows are intensities for cross_entropy_lambda"
        return "" if kind.statistic is None or kind.statistic.weighted else UNWEIGHTED

    def _row_weights(self, params: dict[str, Any]) -> _RowWeights:
        """The weights that leaves are computed with."""
        w = f32(self.sample_weight * self.class_weight)
        by_label = label_weights(self.parsed, params, self.y)
        differ = bool(np.any(w != 1) or np.any(by_label != 1))
        if by_label.ndim == 1:
            return _RowWeights(w, by_label, None, differ)
        K = self.parsed.outputs
        trees = range(len(self.parsed.trees))
        by_tree = [np.ascontiguousarray(by_label[:, r % K]) for r in trees]
        sides = one_against_all(self.parsed, params, np.arange(K), self.y)
        by_class = [np.ascontiguousarray(sides[:, r % K]) for r in trees]
        return _RowWeights(w, np.ones(len(self.y)), by_tree, differ, by_class)

    def _start(
        self, params: dict[str, Any], kind: Objective, w: F64
    ) -> tuple[F64, BaseRule | None]:
        """(K,) the starting score, and the rule it came from; zero and None if there is none."""
        is_given = self.offset is not None or self.own is not None
        if is_given or refitted(params) or not self._has_start(params):
            return np.zeros(self.parsed.outputs), None
        with np.errstate(divide="ignore", invalid="ignore"):
            fitted = kind.base.fit(kind.loss, f32(self.y), w)
        base = fitted if self.base is None else self.base
        if not np.isfinite(base).all():
            raise UnsupportedModel(
                "a class has no training rows; train with the classes that there are."
            )
        return self._held_start(params, base), kind.base

    def _held_start(self, params: dict[str, Any], fitted: F64) -> F64:
        """(K,) the starting score; where a first tree of one leaf shows it, the model's own.

        Other labels show there alone, if all later leaves are at a limit.
        """
        if self.parsed.averaged or params["boosting"] == "dart":  # which scale that leaf
            return fitted
        shown = [tree.values[0] for tree in self.parsed.trees[: self.parsed.outputs]]
        return np.where(self.without_splits[0], shown, fitted)

    def _has_start(self, params: dict[str, Any]) -> bool:
        """Whether there is a starting score, which rankers have not.

        Without boost_from_average a first tree of one leaf still holds it.
        """
        if self.queries is not None:
            return False
        first = self.without_splits[0] & (not self.parsed.averaged)
        if not params["boost_from_average"] and first.any() and not first.all():
            raise UnsupportedModel(
                "a class has no split in its first tree, which holds a starting score instead, while other classes "
                "have none (boost_from_average=False); train with boost_from_average=True."
            )
        return bool(params["boost_from_average"]) or bool(first.all())

    def _schedule(self, params: dict[str, Any], folded: bool) -> _Schedule:
        """The schedule of boosting, DART or a forest.

        ``folded``: the first trees hold a starting score.
        """
        if self.parsed.averaged:
            return self._forest_schedule(folded)
        T = self.parsed.iterations
        is_first = np.arange(T) == 0
        if params["boosting"] == "dart" and not refitted(params):
            refuse_unfinished(self.parsed, first_is_empty=bool(self.without_splits[0].all()))
            rates, moves = dart_schedule(params, T, folded)
            return _Schedule(rates, moves, is_first)
        if refitted(params):
            refuse_trees_of_one_leaf(self.without_splits)
            trees = self.parsed.trees[:: self.parsed.outputs]
            return _Schedule(refit_rates(params, trees), None, is_first)
        return _Schedule(np.full(T, float(params["learning_rate"])), None, is_first)

    def _forest_schedule(self, folded: bool) -> _Schedule:
        """The mean of all trees, without learning rate.

        A tree without splits does not hold the starting score.
        """
        T = self.parsed.iterations
        empty = self.without_splits.all(axis=1)
        if self.parsed.objective[0] in QUANTILES and np.any(self.without_splits[1:]):
            raise UnsupportedModel(
                "a tree of this forest has no split, so that its value is a step along the gradient, while other "
                "leaves are quantiles of their rows; train with fewer constraints on splits."
            )
        if folded and np.any(self.without_splits.any(axis=1) & ~empty):
            raise UnsupportedModel(
                "a class of this forest has a tree without splits, which lacks the starting score that the trees of "
                "other classes hold; train with boost_from_average=False, or with fewer constraints on splits."
            )
        mean = [(t, 1 / T) for t in range(T)]
        before_steps: Moves = [[] for _ in range(T)]
        at_the_end = [(BASE, -float(empty.mean())), *mean]
        return _Schedule(np.ones(T), [*before_steps, at_the_end], np.logical_not(empty))

    def _leaf_rule(self, params: dict[str, Any], kind: Objective) -> LeafRule:
        """The leaf rule of the loss's own h, so with the steepness in its limits."""
        factor = self.steepness(params)
        bound = params["max_delta_step"]
        return LeafRule(
            # Its 1e-15 decides the order of a ranker's rows in leaves of one value, such as -2 learning rates.
            l2=(float(params["lambda_l2"]) + 1e-15) / factor,
            l1=float(params["lambda_l1"]),
            max_step=float(bound) * factor if bound > 0 else np.inf,
            statistic=kind.statistic,
        )

    def _category_l2(self, params: dict[str, Any]) -> F64 | None:
        """(leaves,) more l2 below splits of many categories against many, or None.

        Leaves that are computed anew do without it.
        """
        bins = self.parsed.bins
        max_onehot = params["max_cat_to_onehot"]
        many = [
            tree.below_many_categories(bins, max_onehot)[-len(tree.values) :]
            for tree in self.parsed.trees
        ]
        l2 = np.concatenate(many) * np.float64(params["cat_l2"]) / self.steepness(params)
        computed_anew = _renewed(params)
        return l2 if l2.any() and not computed_anew else None

    def _fixed_leaves(self) -> NDArray[np.bool_] | None:
        """(leaves,) whether a leaf is a whole tree that is the starting score or zero; or None.

        In a forest only the first trees are. Later ones without a split have the value of all their rows.
        """
        alone = self.without_splits.copy()
        if self.parsed.averaged:
            alone[1:] = False
        if not alone.any():
            return None
        return np.repeat(alone.ravel(), np.diff(self.parsed.tree_leaves))

    def _sample(
        self, by_tree: Sequence[Any] | None, by_step: Sequence[Any] | None
    ) -> Sequence[Any] | None:
        """How often each tree draws each row: factors of its class times the bag of its step."""
        if by_step is None:
            return by_tree
        drawn = [by_step[r // self.parsed.outputs] for r in range(len(self.parsed.trees))]
        return drawn if by_tree is None else [a * b for a, b in zip(by_tree, drawn, strict=True)]

    def _as_computed(self, e: Ensemble, params: dict[str, Any], schedule: _Schedule) -> Ensemble:
        """The ensemble with leaf values as training computed them, and with their smoothing."""
        leaves = np.diff(self.parsed.tree_leaves)
        held_base = np.where(schedule.holds_base[:, None], e.base, 0.0).ravel()  # (trees,)
        step_factors = np.ones(e.n_steps) if self.parsed.averaged else e.factors
        factors = np.repeat(step_factors, self.parsed.outputs)  # (trees,)
        unshrunk = e.values / np.repeat(factors, leaves)[:, None]
        constants = unshrunk[:, :2]  # of linear leaves, too
        constants -= np.repeat(held_base, leaves)[:, None]
        e = replace(e, values=unshrunk)
        if e.rule.statistic is not None or refitted(params):
            return e
        if params["path_smooth"] > 0:
            trees = smoothing(self.parsed, params, e, self.steepness(params), held_base, factors)
            return replace(e, step_nodes=nodes_by_step(trees, e.step_trees), leaf_l2=None)
        if not len(directions(params)):
            return e
        return replace(e, step_nodes=self._constrained_nodes(params), leaf_l2=None)

    def _constrained_nodes(self, params: dict[str, Any]) -> list[StepNodes]:
        """The nodes of every step of a model with monotone constraints."""
        l2 = self._node_l2(params)
        nodes = self._nodes_without_l2
        edges = self.parsed.step_trees.tolist()
        return [
            x.with_l2(np.concatenate(l2[a:b]))
            for x, (a, b) in zip(nodes, pairwise(edges), strict=True)
        ]

    @cached_property
    def _nodes_without_l2(self) -> list[StepNodes]:
        """The same without additional l2, which may be fitted: constraints are whole numbers."""
        trees = [constrained_tree(self.parsed, tree) for tree in self.parsed.trees]
        return nodes_by_step(trees, self.parsed.step_trees)

    def _node_l2(self, params: dict[str, Any]) -> list[F64]:
        """For each tree (2 L - 1,) more l2 of the nodes below splits of many categories."""
        l2 = np.float64(params["cat_l2"]) / self.steepness(params)
        computed_anew = _renewed(params)
        max_onehot = np.inf if computed_anew else params["max_cat_to_onehot"]
        bins = self.parsed.bins
        return [l2 * tree.below_many_categories(bins, max_onehot) for tree in self.parsed.trees]


def _renewed(params: dict[str, Any]) -> bool:
    """Whether leaves are computed anew when their tree has been grown."""
    quantised = params["use_quantized_grad"] and params["quant_train_renew_leaf"]
    return bool(quantised) or refitted(params)
