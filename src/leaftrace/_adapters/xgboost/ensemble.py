"""An XGBoost model's trees, parameters and training rows as an `Ensemble`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ..._data.arrays import F64, Ids
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble, LeafRule, Recorded, Rounding
from ..._model.start import LabelStatistic
from ..base import UNWEIGHTED, f32
from . import recover
from .draws import Dart, Drawn, Moves, draw_again
from .loss import QUANTILES, Quantile, alphas, loss_of, single
from .model import Trees
from .start import rule_of


@dataclass
class Training:
    """A training run: the model that came out of it and what went in.

    ``rounds``         that the model predicts with; ``trees`` may have more
    ``base_score``     (K,) as stored; ``base`` the raw score it stands for
    ``offset``         (n, K) what a base_margin adds to that, or None
    ``sample_weight``  (n,), or None: quantile leaves of rows without weights differ from those of weight one
    ``loaded``         the parameters are XGBoost's defaults, not those of the run
    ``notes``          what was found out on the way
    ``recovered``      some parameters are not those that the model reported
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
    old: bool  # XGBoost 2.0
    notes: list[str] = field(default_factory=list)
    recovered: bool = False

    def ensemble(self) -> Ensemble:
        params = self.params
        trees = self.trees
        loss, c = loss_of(self.objective, params, len(self.base))
        factor = np.where(self.y == 1, single(params.get("scale_pos_weight", 1)), 1.0)
        w = f32(factor if self.sample_weight is None else self.sample_weight * factor)
        quantile = None
        if self.objective in QUANTILES:
            quantile = Quantile(alphas(params)[0], self.sample_weight is not None)
        base_rule = None
        if params["boost_from_average"] == "1" and self.offset is None:
            of_labels = None if quantile is None else LabelStatistic(quantile.of_labels)
            base_rule = rule_of(self.objective, loss, self.y, w, self.base_score, c, of_labels)
        recorded = None
        if trees.cover is not None:
            recorded = (
                Recorded("hessian", trees.cover / c)
                if quantile is None
                else Recorded("weight", trees.cover)
            )
        drawn = self._drawn()
        ensemble = Ensemble(
            loss=loss,
            rule=self._rule(c, quantile),
            learning_rate=single(params["learning_rate"]) / (c * int(params["num_parallel_tree"])),
            leaves=self.leaves,
            first_output=trees.output,
            step_trees=trees.steps,
            tree_leaves=trees.edges,
            values=trees.values,
            y=self.y,
            w=w,
            w_factor=factor,
            base=self.base,
            base_rule=base_rule,
            offset=self.offset,
            sample=None
            if drawn.sample is None
            else [s for s in drawn.sample for _ in range(trees.width)],
            moves=self._moves(drawn),
            recorded=recorded,
            rounding=Rounding(scores=True, derivatives=True, terms=True),
            weights_fixed="" if quantile is None or quantile.weighted else UNWEIGHTED,
        )
        return self._with_recovered(ensemble, c)

    def _rule(self, c: float, quantile: Quantile | None) -> LeafRule:
        params = self.params
        bound = single(self.params["max_delta_step"])
        return LeafRule(
            l2=single(params["reg_lambda"]) / c,
            l1=single(params["reg_alpha"]),
            max_step=bound * c if bound else np.inf,
            min_hessian=single(params["min_child_weight"]) / c,
            statistic=quantile,
        )

    def _drawn(self) -> Drawn:
        """Which rows and, with DART, which trees every tree was trained on."""
        params = self.params
        dart = None
        if self.trees.weight is not None:
            weighted = params["sample_type"] in ("1", "weighted")
            forest = params["normalize_type"] in ("1", "forest")
            dart = Dart(single(params["rate_drop"]), single(params["skip_drop"]), weighted, forest)
        drawn = draw_again(
            (np.diff(self.trees.rounds) // self.trees.width).tolist(),
            len(self.y),
            seed=int(params["seed"]),
            subsample=single(params["subsample"]),
            method=tree_method(params),
            parallel=int(params["num_parallel_tree"]),
            seed_per_iteration=params["seed_per_iteration"] in ("1", "True"),
            columns_first=self.old,
            learning_rate=single(params["learning_rate"]),
            dart=dart,
        )
        if drawn.sample is not None:
            self.notes.append(
                f"rows drawn again (subsample={single(params['subsample']):.6g}, seed={params['seed']}) and checked "
                f"by the {'values' if self.trees.cover is None else 'cover'} of all leaves"
            )
        return drawn

    def _moves(self, drawn: Drawn) -> Moves | None:
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

    def _with_recovered(self, e: Ensemble, c: float) -> Ensemble:
        """The ensemble with the parameters that gave its leaf values, if those it reports did not."""
        if recover.reported_fit(e):
            return e
        unit = c * int(self.params["num_parallel_tree"])
        found = recover.recovered(e, unit, c)
        if found is None:
            if self.loaded:
                self.notes.append(
                    "this model was loaded from a file, which keeps no training parameters: pass params={'subsample': "
                    "..., 'seed': ..., 'max_delta_step': ..., ...} with those that were not XGBoost's defaults"
                )
            return e
        rule, rate, names = found
        self.recovered = True
        self.params |= {"reg_lambda": str(rule.l2 * c), "reg_alpha": str(rule.l1)}
        self.params["min_child_weight"] = str(rule.min_hessian * c)
        if np.ndim(rate) == 0:
            self.params["learning_rate"] = str(float(rate) * unit)
        shown = [
            f"{name}={float(self.params[name]):.6g}" if name in self.params else name
            for name in names
        ]
        why = (
            "as a file keeps no training parameters"
            if self.loaded
            else "as the model reports others"
        )
        self.notes.append(f"{', '.join(shown)} recovered from the leaf values, {why}")
        return replace(e, rule=rule, learning_rate=rate)


def tree_method(params: dict[str, str]) -> Literal["hist", "approx", "exact"]:
    method = params["tree_method"]
    updaters = params.get("updater_seq", "")
    if method == "exact" or (method == "auto" and "grow_colmaker" in updaters):
        return "exact"
    return (
        "approx"
        if method == "approx" or (method == "auto" and "grow_histmaker" in updaters)
        else "hist"
    )
