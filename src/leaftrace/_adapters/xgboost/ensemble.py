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
from ..._model.coupled.loss import CoupledLoss, Places
from ..._model.ensemble import Ensemble, Recorded
from ..._model.leaf_rule import LeafRule, Rounding, UnknownLimits
from ..._model.losses import Loss
from ..._model.start import BaseRule, LabelStatistic
from ..base import UNWEIGHTED, f32
from . import recover
from .draws import Dart, Drawn, Moves, TreeMethod, draw_again
from .model import Trees, bounds_shown
from .objectives import QUANTILES, Quantile, as_float32, loss_and_factor, quantile_levels
from .ranking import RankedRows, ranking_loss
from .start import starting_rule

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

    def ensemble(self) -> Ensemble:
        """Describe the run, with recovered parameters if the reported ones give other leaves."""
        loss, hessian_factor = self._loss_and_factor()
        positive_weight = as_float32(self.params.get("scale_pos_weight", 1))
        label_weight = np.where(self.y == 1, positive_weight, 1.0)
        with_labels = (
            label_weight if self.sample_weight is None else self.sample_weight * label_weight
        )
        w = f32(with_labels)
        quantile = self._quantile()
        base_rule = self._base_rule(loss, hessian_factor, w, quantile)
        drawn = self._draw_again()
        rate_unit = hessian_factor * self._parallel_trees
        reported = Ensemble(
            loss=loss,
            rule=self._leaf_rule(hessian_factor, quantile),
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
            recorded=self._recorded(hessian_factor, quantile),
            rounding=Rounding(scores=True, derivatives=True, terms=True),
            weights_fixed="" if quantile is None or quantile.weighted else UNWEIGHTED,
            labels_fixed=self._labels_fixed(),
            places=self._places(loss),
        )
        return self._with_recovered(reported, rate_unit, hessian_factor)

    def _places(self, loss: Loss) -> Places | None:
        """Queries of the rows, for a loss that couples them."""
        if not isinstance(loss, CoupledLoss):
            return None
        if self.queries is None:
            return Places.of_training(np.zeros(len(self.y), np.intp))
        return Places.of_training(self.queries.number)

    def _labels_fixed(self) -> str:
        """Why leaf values for other labels cannot be computed; empty if they can."""
        drawn = self.queries is not None and self.params["lambdarank_pair_method"] != "topk"
        return "pairs of rows were drawn by their labels" if drawn else ""

    def _loss_and_factor(self) -> tuple[Loss, float]:
        """The loss, and the constant by which XGBoost multiplies its second derivative."""
        if self.queries is None:
            return loss_and_factor(self.objective, self.params, len(self.base))
        start = np.full(len(self.y), self.base[0])
        start = start if self.offset is None else start + self.offset[:, 0]
        rows = RankedRows(self.y, self.queries, self.leaves, self.trees, start)
        return ranking_loss(self.objective, self.params, rows), 1.0

    @property
    def _parallel_trees(self) -> int:
        return int(self.params["num_parallel_tree"])

    def _quantile(self) -> Quantile | None:
        """The statistic that the leaves are, for objectives that renew their leaves."""
        if self.objective not in QUANTILES:
            return None
        return Quantile(quantile_levels(self.params)[0], self.sample_weight is not None)

    def _base_rule(
        self, loss: Loss, hessian_factor: float, w: F64, quantile: Quantile | None
    ) -> BaseRule | None:
        """The rule that estimated the starting score, if it was estimated."""
        if self.params["boost_from_average"] != "1" or self.offset is not None:
            return None
        if isinstance(loss, CoupledLoss):  # some 1e-9, from gradients of all rows, which cancel
            return None
        label_rule = None if quantile is None else LabelStatistic(quantile.label_quantile)
        return starting_rule(
            self.objective, loss, self.y, w, self.base_score, hessian_factor, label_rule
        )

    def _leaf_rule(self, hessian_factor: float, quantile: Quantile | None) -> LeafRule:
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
            statistic=quantile,
        )

    def _recorded(self, hessian_factor: float, quantile: Quantile | None) -> Recorded | None:
        """The cover of the leaves, which counts weights where the leaves are quantiles."""
        cover = self.trees.cover
        if cover is None:
            return None
        if quantile is not None:
            return Recorded("weight", cover)
        return Recorded("hessian", cover / hessian_factor)

    def _draw_again(self) -> Drawn:
        """Draw the rows and, with DART, the trees that every tree was trained on."""
        params = self.params
        drawn = draw_again(
            (np.diff(self.trees.rounds) // self.trees.width).tolist(),
            len(self.y),
            seed=int(params["seed"]),
            subsample=as_float32(params["subsample"]),
            method=tree_method(params),
            parallel=self._parallel_trees,
            seed_per_iteration=params["seed_per_iteration"] in ("1", "True"),
            columns_first=self.columns_first,
            learning_rate=as_float32(params["learning_rate"]),
            dart=self._dart(),
        )
        if drawn.sample is not None:
            self.notes.append(
                f"rows drawn again (subsample={as_float32(params['subsample']):.6g}, seed={params['seed']}) and "
                f"checked by the {'values' if self.trees.cover is None else 'cover'} of all leaves"
            )
        return drawn

    def _dart(self) -> Dart | None:
        """DART's settings; None for other boosters."""
        if self.trees.weight is None:
            return None
        params = self.params
        return Dart(
            rate_drop=as_float32(params["rate_drop"]),
            skip_drop=as_float32(params["skip_drop"]),
            weighted=params["sample_type"] in ("1", "weighted"),
            forest=params["normalize_type"] in ("1", "forest"),
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
        e = replace(e, suspected=self._suspected_bound())
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
        if "min_child_weight" in self.given and self._smallest_cover(e) < (1 - 1e-6) * least:
            return replace(
                e,
                missing=f"min_child_weight={least:.6g} is not that of training: this model has a leaf of "
                f"{self._smallest_cover(e):.6g}",
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
        self.notes.append(self._recovery_note(found.names))
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
        if not self.loaded or self.objective in QUANTILES:
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
        shown = self._shown_limits(e, hessian_factor)
        if self._smallest_cover(e) < float(self.params["min_child_weight"]):
            self.params["min_child_weight"] = "0"  # for training again
        limits = " and no ".join(f"{name} ({shown[name]})" for name in unknown)
        needed = words().parameters(**dict.fromkeys(unknown, ...))
        self.notes.append(
            f"the file keeps no {limits}, which influences do not need; refits that do ask for {needed}; "
            "monotone_constraints, which it does not keep either, are taken to be none"
        )
        limited: list[Literal["min_hessian", "max_step"]] = [_RULE_LIMITS[name] for name in unknown]
        remedy = (
            f"the file of this model keeps no {limits}. Pass {needed} as in training; XGBoost's defaults are "
            f"{words().parameters(**unknown)}."
        )
        return replace(e, unknown_limits=UnknownLimits(frozenset(limited), remedy))

    def _suspected_bound(self) -> str:
        """The bound that equal values of unequal leaves suggest, in words; empty if there is none."""
        bound = bounds_shown(self.trees)
        if bound == "max_delta_step" and bound not in self.given:
            return (
                "likely max_delta_step, which the file does not keep, as many leaves have the same largest value: "
                f"pass {words().parameters(max_delta_step=...)} as in training"
            )
        if bound == "monotone_constraints":
            return (
                "likely monotone_constraints, which the file does not keep, as unequal leaves of a tree have the same "
                "value: they cannot be replayed; train without them"
            )
        return ""

    def _smallest_cover(self, e: Ensemble) -> float:
        """The smallest cover of a leaf that has a value, which min_child_weight cannot exceed."""
        if self.trees.cover is None:
            return np.inf
        return float(self.trees.cover[e.values[:, 0] != 0].min(initial=np.inf))

    def _shown_limits(self, e: Ensemble, hessian_factor: float) -> dict[str, str]:
        """Words for the limits that the leaves of the model allow."""
        rates = np.broadcast_to(e.learning_rate, e.n_steps)
        steps = e.values[:, 0] / np.repeat(rates, np.diff(e.step_leaves))
        longest = np.abs(steps).max(initial=0.0) / hessian_factor
        smallest = self._smallest_cover(e)
        least = f"at most {smallest:.6g}" if np.isfinite(smallest) else "of any size"
        return {
            "min_child_weight": least,
            "max_delta_step": f"none, or at least {longest:.3g}",
        }

    def _recovery_note(self, names: list[str]) -> str:
        """A note with the recovered parameters of these names."""
        shown = [
            f"{name}={float(self.params[name]):.6g}" if name in self.params else name
            for name in names
        ]
        reason = "as the model reports others"
        if self.loaded:
            reason = "as a file keeps no training parameters"
        return f"{', '.join(shown)} recovered from the leaf values, {reason}"


def tree_method(params: dict[str, str]) -> TreeMethod:
    """The method that grew the trees; with "auto" the updaters show it."""
    method = params["tree_method"]
    if method != "auto":
        return method if method in ("exact", "approx") else "hist"
    updaters = params.get("updater_seq", "")
    if "grow_colmaker" in updaters:
        return "exact"
    return "approx" if "grow_histmaker" in updaters else "hist"
