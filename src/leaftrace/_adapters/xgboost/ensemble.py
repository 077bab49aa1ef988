"""An XGBoost model's trees, parameters and training rows as an `Ensemble`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids
from ..._data.errors import UnsupportedModel
from ..._data.query_ids import QueryRows
from ..._data.wording import words
from ..._model.coupled.loss import CoupledLoss
from ..._model.ensemble import Ensemble, Recorded
from ..._model.further_losses.own import OwnFunctions, own_loss
from ..._model.leaf_rule import LeafRule, Rounding, StatisticsByOutput, UnknownLimits
from ..._model.losses import Loss
from ..._model.start import BaseRule, LabelStatistic, LabelStatistics
from ..base import UNWEIGHTED, are_elsewhere, coupled_places, f32
from . import recover
from .continued import Begins, continued_runs
from .draws import Drawn, Moves, dart_settings, draw_again, tree_method
from .gradient_sampling import draws_by_gradient, with_drawn_rows
from .limits import shown_limits, smallest_cover
from .model import Trees
from .monotone import constrained_nodes
from .objectives import QUANTILES, Quantile, as_float32, loss_and_factor, quantile_levels
from .ranking import RankedRows, labels_fixed, ranking_loss
from .start import starting_rule, takes_newton_step
from .survival import AFT
from .suspicions import suspected_bound, suspected_objective

# Limits of leaf values that only other training rows show, with XGBoost's defaults; 0 is no limit.
_DEFAULT_LIMITS = {"min_child_weight": 1, "max_delta_step": 0}
_DEFAULTS = {
    "learning_rate": 0.3, "reg_lambda": 1, "reg_alpha": 0, "min_split_loss": 0, "max_depth": 6, "min_child_weight": 1,
    "subsample": 1, "colsample_bytree": 1,
}  # fmt: skip
_RULE_LIMITS: dict[str, Literal["min_hessian", "max_step"]] = {
    "min_child_weight": "min_hessian",
    "max_delta_step": "max_step",
}


@dataclass
class XGBoostRun:
    """A training run: its data and parameters, and the model that came out of it.

    ``rounds``         that the model predicts with; ``trees`` may have more
    ``base_score``     (K,) as stored; ``base`` the raw score that corresponds to it
    ``loaded``         the parameters are XGBoost's defaults, not those of the run
    ``sample_weight``  (n,), or None: quantile leaves of rows without weights differ from those of
                       rows of weight one
    ``offset``         (n, K) difference of a base_margin to the base score, or None
    ``columns_first``  the random numbers come in the order of XGBoost 2.0, see `draws`
    ``given``          names of parameters that the user gave
    ``notes``          findings that the user should read
    ``recovered``      some parameters are not those that the model reported
    ``queries``        of a ranker, or None; ``sample_weight`` is then that of each row's query
    ``own``            the objective of training if the user wrote it; ``objective`` only gives the
                       response then
    ``classes``        number of classes, for such an objective; 0 if labels are numbers
    """

    objective: str
    params: dict[str, str]
    trees: Trees
    rounds: int
    base_score: F64
    base: F64
    loaded: bool
    leaves: Ids
    y: F64
    sample_weight: F64 | None
    offset: F64 | None
    columns_first: bool
    given: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    recovered: bool = False
    queries: QueryRows | None = None
    own: OwnFunctions | None = None
    classes: int = 0

    def ensemble(self) -> Ensemble:
        """Describe the run, with recovered parameters if the reported ones give other leaves."""
        loss, hessian_factor = self._loss_and_factor()
        label_weight = self._label_weight()
        with_labels = (
            label_weight if self.sample_weight is None else self.sample_weight * label_weight
        )
        w = f32(with_labels)
        levels = self._quantiles()
        quantiles = levels if self._renews_leaves else []
        base_rule = self._base_rule(loss, hessian_factor, w, levels)
        ranks_rows = bool(quantiles) or (bool(levels) and base_rule is not None)
        drawn = self._draw_again()
        rate_unit = hessian_factor * self._parallel_trees
        reported = Ensemble(
            loss=loss,
            rule=self._leaf_rule(hessian_factor, quantiles),
            learning_rate=as_float32(self.params["learning_rate"]) / rate_unit,
            leaves=self.leaves,
            first_output=self.trees.output,
            step_trees=self.trees.steps,
            tree_leaves=self.trees.edges,
            values=self.trees.values,
            y=self.y,
            w=w,
            w_factor=label_weight,
            base=self.base,
            base_rule=base_rule,
            offset=self.offset,
            sample=self._sample(drawn),
            moves=self._moves(drawn),
            step_nodes=None if quantiles else constrained_nodes(self.params, self.trees),
            recorded=self._recorded(hessian_factor, bool(quantiles)),
            rounding=Rounding(scores=True, derivatives=True, terms=True),
            weights_fixed=UNWEIGHTED if ranks_rows and not levels[0].weighted else "",
            suspected=self._suspected(),
            labels_fixed=labels_fixed(self.params, self.queries),
            places=coupled_places(loss, self.queries, len(self.y)),
        )
        if are_elsewhere(self.leaves):
            if self._by_gradient:
                raise UnsupportedModel(
                    "sampling_method='gradient_based' draws among all rows at once, so it cannot be traced on a "
                    "cluster; trace it in memory, or train with sampling_method='uniform'."
                )
            return reported
        if self._by_gradient:
            rounds = np.diff(self.trees.rounds).tolist()
            cover = self.trees.cover
            reported = with_drawn_rows(reported, self.params, rounds, cover, hessian_factor)
        elif drawn.moves is None:
            reported = self._with_further_runs(reported)
        return self._with_recovered(reported, rate_unit, hessian_factor)

    def _suspected(self) -> str:
        """Words for an objective of the user's that the model does not store, if there may be one."""
        if self.own is not None or self.objective == AFT:
            return ""
        return suspected_objective(self.params, self.base_score)

    def _loss_and_factor(self) -> tuple[Loss, float]:
        """The loss, and the constant by which its second derivative is multiplied."""
        if self.queries is not None:
            start = self.base[0] + (0.0 if self.offset is None else self.offset[:, 0])
            rows = RankedRows(self.y, self.queries, self.leaves, self.trees, start)
            return ranking_loss(self.objective, self.params, rows), 1.0
        stored, factor = loss_and_factor(self.objective, self.params, len(self.base))
        if self.own is None:
            return stored, factor
        A = np.tile(self.base, (len(self.y), 1))
        A = A if self.offset is None else A + self.offset
        link = stored if self.classes or len(self.base) == 1 else None
        return own_loss(self.own, A, self.y, classes=self.classes, link=link), 1.0

    def _label_weight(self) -> F64:
        """(n,) factors of the weights that come from scale_pos_weight."""
        if self.own is not None or self.y.ndim == 2:
            return np.ones(len(self.y))
        return np.where(self.y == 1, as_float32(self.params.get("scale_pos_weight", 1)), 1.0)

    @property
    def _by_gradient(self) -> bool:
        """Whether rows were drawn by their gradients."""
        return draws_by_gradient(self.params)

    @property
    def _parallel_trees(self) -> int:
        return int(self.params["num_parallel_tree"])

    @property
    def _renews_leaves(self) -> bool:
        """Whether leaves are quantiles of residuals; the method exact leaves them as Newton steps."""
        renews = self.objective in QUANTILES and tree_method(self.params) != "exact"
        return renews and self.own is None

    def _quantiles(self) -> list[Quantile]:
        """The quantile of each output, for objectives that have them."""
        if self.objective not in QUANTILES or self.own is not None:
            return []
        levels = quantile_levels(self.params)
        levels = levels if len(levels) == len(self.base) else levels[:1] * len(self.base)
        return [Quantile(alpha, self.sample_weight is not None) for alpha in levels]

    def _base_rule(
        self, loss: Loss, hessian_factor: float, w: F64, quantiles: list[Quantile]
    ) -> BaseRule | None:
        """The rule that estimated the starting score, if it was estimated."""
        is_given = self.params["boost_from_average"] != "1" or self.offset is not None
        if is_given or self.own is not None or self.objective == AFT:
            return None
        if isinstance(loss, CoupledLoss):  # some 1e-9, from gradients of all rows, which cancel
            return None
        label_rule: BaseRule | None = None
        if len(quantiles) == 1:
            label_rule = LabelStatistic(quantiles[0].label_quantile)
        elif quantiles:
            label_rule = LabelStatistics(tuple(q.label_quantile for q in quantiles))
        newton = takes_newton_step(self.params)
        return starting_rule(
            self.objective, loss, self.y, w, self.base_score, hessian_factor, label_rule, newton
        )

    def _leaf_rule(self, hessian_factor: float, quantiles: list[Quantile]) -> LeafRule:
        """The leaf rule of the loss's own second derivative."""
        params = self.params
        bound = as_float32(params["max_delta_step"])
        return LeafRule(
            l2=as_float32(params["reg_lambda"]) / hessian_factor,
            l1=as_float32(params["reg_alpha"]),
            max_step=bound * hessian_factor if bound else np.inf,
            # A leaf that XGBoost split off had at least this H in its own float32 arithmetic,
            # which may differ from ours in the last digits.
            min_hessian=(1 - 1e-6) * as_float32(params["min_child_weight"]) / hessian_factor,
            statistic=StatisticsByOutput(tuple(quantiles)) if quantiles else None,
        )

    def _recorded(self, hessian_factor: float, counts_weights: bool) -> Recorded | None:
        """The cover of the leaves, which counts weights where the leaves are quantiles."""
        cover = self.trees.cover
        if cover is None:
            return None
        if counts_weights:
            return Recorded("weight", cover)
        return Recorded("hessian", cover / hessian_factor)

    def _with_further_runs(self, e: Ensemble) -> Ensemble:
        """The ensemble with the rows that further runs drew, if training was continued."""
        rounds = self.trees.rounds
        e, begins = continued_runs(
            e, rounds, lambda begins: self._sample(self._drawn(begins)) or []
        )
        for begin in begins:
            self.notes.append(f"training was continued after {begin} rounds, as the covers show")
        return e

    def _draw_again(self) -> Drawn:
        """Draw the rows and, with DART, the trees that every tree was trained on."""
        params = self.params
        drawn = self._drawn({})
        if drawn.sample is not None or self._by_gradient:
            self.notes.append(
                f"rows drawn again (subsample={as_float32(params['subsample']):.6g}, seed={params['seed']}) and "
                f"checked by the {'values' if self.trees.cover is None else 'cover'} of all leaves"
            )
        return drawn

    def _drawn(self, begins: Begins) -> Drawn:
        """The draws, with further runs that begin in these rounds."""
        params = self.params
        return draw_again(
            (np.diff(self.trees.rounds) // self.trees.width).tolist(),
            len(self.y),
            seed=int(params["seed"]),
            subsample=1.0 if self._by_gradient else as_float32(params["subsample"]),
            method=tree_method(params),
            parallel=self._parallel_trees,
            seed_per_iteration=params["seed_per_iteration"] in ("1", "True"),
            columns_first=self.columns_first,
            learning_rate=as_float32(params["learning_rate"]),
            dart=None if self.trees.weight is None else dart_settings(params),
            begins=begins,
        )

    def _sample(self, drawn: Drawn) -> list[NDArray[np.bool_]] | None:
        """The rows of each tree; the trees that stand for one tree with vectors share them."""
        if drawn.sample is None:
            return None
        return [rows for rows in drawn.sample for _ in range(self.trees.width)]

    def _moves(self, drawn: Drawn) -> Moves | None:
        """The moves of DART, without the trees of rounds that the model does not predict with."""
        weight = self.trees.weight
        if drawn.moves is None or drawn.tree_weight is None or weight is None:
            return None
        if not np.array_equal(drawn.tree_weight, weight):
            raise UnsupportedModel(
                "the trees that DART dropped cannot be found again: with the parameters the model reports they would "
                "weigh otherwise. Was it loaded from a file, or trained in two runs? A file keeps no parameters: pass "
                "params={'rate_drop': ..., 'learning_rate': ..., 'seed': ..., ...} as in training."
            )
        self.notes.append(
            "the trees dropped by DART found again, as the weights of all trees confirm"
        )
        unused = range(int(self.trees.rounds[self.rounds]), len(self.trees))
        return [*drawn.moves[:-1], drawn.moves[-1] + [(t, -float(weight[t])) for t in unused]]

    def _with_recovered(self, e: Ensemble, rate_unit: float, hessian_factor: float) -> Ensemble:
        """The ensemble with the parameters that gave its leaves, if the reported ones did not."""
        if not np.isfinite(e.values).all():
            return e  # no parameters give such leaves; the replay refuses them
        if not self.loaded:
            if recover.reported_agree(e):
                return e
            if not self._has_defaults or recover.has_one_partition(e):
                return self._with_found(e, recover.rates_of_rounds(e), rate_unit, hessian_factor)
            self.loaded = True  # a metric that was set up after loading does not show it
        e = replace(e, suspected=suspected_bound(self.trees, self.given) or e.suspected)
        if "min_child_weight" in self._unknown:
            e = replace(e, rule=replace(e.rule, min_hessian=0.0))
        candidates = [replace(e, rule=rule) for rule in recover.possible_rules(e)]
        for candidate in candidates:
            if recover.reported_agree(candidate):
                return self._with_unknown_limits(candidate, hessian_factor)
        for candidate in candidates:
            found = recover.recover_parameters(candidate, rate_unit, hessian_factor, self.given)
            if found is not None and not found.ambiguous:
                e = self._with_found(candidate, found, rate_unit, hessian_factor)
                return self._with_unknown_limits(e, hessian_factor)
            if found is not None:
                needed = words().parameters(learning_rate=..., reg_lambda=...)
                return replace(
                    e,
                    missing=f"pass {needed} as in training: this model was loaded from a file, which keeps no training "
                    "parameters, and its leaf values do not tell learning_rate and reg_lambda apart",
                )
        least = float(self.params["min_child_weight"])
        if "min_child_weight" in self.given and smallest_cover(self.trees, e) < (1 - 1e-6) * least:
            return replace(
                e,
                missing=f"min_child_weight={least:.6g} is not that of training: this model has a leaf of "
                f"{smallest_cover(self.trees, e):.6g}",
            )
        others = words().parameters(subsample=..., seed=..., max_delta_step=...)
        self.notes.append(
            "this model was loaded from a file, which keeps no training parameters: give those that were not XGBoost's "
            f"defaults, such as {others}"
        )
        return e

    def _with_found(
        self,
        e: Ensemble,
        found: recover.Recovered | None,
        rate_unit: float,
        hessian_factor: float,
    ) -> Ensemble:
        """The ensemble with recovered parameters, if there are some."""
        if found is None:
            return e
        rule = found.rule
        self.recovered = True
        self.params |= {"reg_lambda": str(rule.l2 * hessian_factor), "reg_alpha": str(rule.l1)}
        if np.ndim(found.rate) == 0:
            self.params["learning_rate"] = str(float(found.rate) * rate_unit)
        self.notes.append(recover.recovery_note(found.names, self.params, self.loaded))
        return replace(e, rule=rule, learning_rate=found.rate)

    @property
    def _has_defaults(self) -> bool:
        """Whether all reported parameters of trees are XGBoost's defaults, as after loading."""
        return all(
            as_float32(self.params[name]) == as_float32(default)
            for name, default in _DEFAULTS.items()
            if name not in self.given
        )

    @property
    def _unknown(self) -> dict[str, float]:
        """Limits of leaf values that neither the model nor the user reports, with their defaults.

        A value that is not the default was set after loading.
        """
        if not self.loaded or self._renews_leaves:
            return {}
        return {
            name: default
            for name, default in _DEFAULT_LIMITS.items()
            if name not in self.given and float(self.params[name]) == default
        }

    def _with_unknown_limits(self, e: Ensemble, hessian_factor: float) -> Ensemble:
        """The ensemble of a loaded model, with its limits of leaf values marked as not known."""
        unknown = self._unknown
        if not unknown:
            return e
        shown = shown_limits(self.trees, e, hessian_factor)
        if smallest_cover(self.trees, e) < float(self.params["min_child_weight"]):
            self.params["min_child_weight"] = "0"  # for training again
        limits = " and no ".join(f"{name} ({shown[name]})" for name in unknown)
        needed = words().parameters(**dict.fromkeys(unknown, ...))
        self.notes.append(
            f"the file keeps no {limits}, which influences do not need; refits that do ask for {needed}"
        )
        if e.step_nodes is None and "monotone_constraints" not in self.given:
            self.notes.append(
                "monotone_constraints, which the file does not keep either, are taken to be none"
            )
        limited: list[Literal["min_hessian", "max_step"]] = [_RULE_LIMITS[name] for name in unknown]
        remedy = (
            f"the file of this model keeps no {limits}. Pass {needed} as in training; XGBoost's defaults are "
            f"{words().parameters(**unknown)}."
        )
        return replace(e, unknown_limits=UnknownLimits(frozenset(limited), remedy))
