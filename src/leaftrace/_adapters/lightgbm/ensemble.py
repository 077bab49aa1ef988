"""From what a LightGBM model says of itself and its training rows to an `Ensemble`.

The first trees (of a forest, all) hold the starting score; DART made trees smaller after they were computed. Both are
taken back, so that leaf values are those that training computed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import BASE, Ensemble, LeafRule, Recorded
from ..base import UNWEIGHTED, f32
from . import recover
from .leaves import objective, steepness
from .model import Model
from .rows import Witness, dart, draw_rows
from .smooth import smoothing


@dataclass(frozen=True)
class Training:
    """The rows a model was trained on: labels as the loss takes them, weights before and of the wrapper's
    class_weight, scores given in advance."""

    told: Model
    leaves: Ids
    y: F64
    sample_weight: F64
    class_weight: F64
    offset: F64 | None
    version: tuple[int, ...]  # of LightGBM
    base: F64 | None = None  # (K,) the starting score, if it is not that of these labels

    @cached_property
    def alone(self) -> NDArray[np.bool_]:
        """(T, K) trees of one leaf."""
        return np.array([len(tree.values) == 1 for tree in self.told.trees]).reshape(
            -1, self.told.outputs
        )

    @cached_property
    def counts(self) -> F64 | None:
        """(leaves,) rows of each leaf in training, as the model recorded them; NaN for a tree of one leaf."""
        counts = [
            tree.counts if len(tree.values) > 1 else np.array([np.nan]) for tree in self.told.trees
        ]
        found = [c for c in counts if c is not None]
        return np.concatenate(found) if len(found) == len(counts) else None

    def factor(self, p: dict[str, Any]) -> float:
        return steepness(self.told.objective[0], p, self.told.outputs)

    def ensemble(self, p: dict[str, Any], bags: Sequence[Any] | None = None) -> Ensemble:
        """With these parameters; ``bags`` are the rows drawn for each step."""
        told = self.told
        T = self.told.iterations
        K = self.told.outputs
        w = f32(self.sample_weight * self.class_weight)
        label_weight = _label_weight(told, p, self.y)
        weighted = bool(np.any(w != 1) or np.any(label_weight != 1))
        factor = self.factor(p)
        kind = objective(told.objective[0], p, K, weighted, self.version)
        averaged = self.offset is None and not refitted(p) and self._averaged(p)
        with np.errstate(divide="ignore", invalid="ignore"):
            base = kind.base.fit(kind.loss, f32(self.y), w) if averaged else np.zeros(K)
        base = self.base if averaged and self.base is not None else base
        if not np.isfinite(base).all():
            raise UnsupportedModel(
                "a class has no training rows; train with the classes that there are."
            )
        rates = np.full(T, float(p["learning_rate"]))
        moves = None
        holds_base = np.arange(T) == 0
        if told.averaged:
            rates, moves, holds_base = self._forest()
        elif p["boosting"] == "dart" and not refitted(p):
            rates, moves = dart(p, T, averaged)
        goss = p["data_sample_strategy"] == "goss"  # multiplies terms that are rounded already
        sample = None
        if label_weight.ndim == 2:  # one against all: every class weighs the rows its own way
            sample = [np.ascontiguousarray(label_weight[:, r % K]) for r in range(T * K)]
            label_weight = np.ones(len(self.y))
        leaves = np.diff(told.tree_leaves)
        e = Ensemble(
            loss=kind.loss,
            rule=LeafRule(
                l2=float(p["lambda_l2"]) / factor,
                l1=float(p["lambda_l1"]),
                max_step=float(p["max_delta_step"]) * factor if p["max_delta_step"] > 0 else np.inf,
                statistic=kind.statistic,
            ),
            learning_rate=rates[0] / factor if np.all(rates == rates[0]) else rates / factor,
            leaves=self.leaves,
            first_output=np.tile(np.arange(K, dtype=np.int32), T),
            step_trees=told.step_trees,
            tree_leaves=told.tree_leaves,
            values=np.concatenate([tree.values for tree in told.trees])[:, None],
            y=f32(self.y),
            w=w * label_weight,
            w_factor=self.class_weight * label_weight,
            base=base,
            base_rule=kind.base if averaged else None,
            base_factor=self.class_weight if np.any(label_weight != 1) else None,
            offset=self.offset,
            sample=self._sample(sample, bags),
            moves=moves,
            leaf_l2=self._cat_l2(p),
            fixed=np.repeat(self.alone.ravel(), leaves) if self.alone.any() else None,
            rounding=replace(kind.rounding, draws=goss and weighted and sample is None),
            weights_fixed="" if kind.statistic is None or kind.statistic.weighted else UNWEIGHTED,
            labels_fixed="" if sample is None else "every class weighs them its own way",
        )
        held = np.where(holds_base[:, None], base, 0.0).ravel()  # (trees,)
        smaller = np.repeat(np.ones(T) if told.averaged else e.factors, K)
        e = replace(
            e,
            values=e.values / np.repeat(smaller, leaves)[:, None]
            - np.repeat(held, leaves)[:, None],
        )
        if p["path_smooth"] > 0 and kind.statistic is None and not refitted(p):
            e = replace(e, smoothing=smoothing(told, p, e, factor, held, smaller), leaf_l2=None)
        return e

    def _averaged(self, p: dict[str, Any]) -> bool:
        """Whether there is a starting score. Without boost_from_average a first tree of one leaf still holds it."""
        first = self.alone[0] & (not self.told.averaged)
        if not p["boost_from_average"] and first.any() and not first.all():
            raise UnsupportedModel(
                "a class has no split in its first tree, which holds a starting score instead, while other classes "
                "have none (boost_from_average=False); train with boost_from_average=True."
            )
        return bool(p["boost_from_average"]) or bool(first.all())

    def _forest(self) -> tuple[F64, list[list[tuple[int, float]]], NDArray[np.bool_]]:
        """boosting="rf": no learning rate, the mean of all trees. One without splits is zero, not the base score."""
        T = self.told.iterations
        empty = self.alone.all(axis=1)
        if np.any(self.alone.any(axis=1) & ~empty):
            raise UnsupportedModel(
                "a class of this forest has a tree without splits; train with fewer constraints."
            )
        mean = [(t, 1 / T) for t in range(T)]
        return (
            np.ones(T),
            [*[[] for _ in range(T)], [(BASE, -float(empty.mean())), *mean]],
            np.logical_not(empty),
        )

    def _cat_l2(self, p: dict[str, Any]) -> F64 | None:
        """(leaves,) more l2 below splits of many categories against many. Leaves computed anew do without."""
        many = [
            tree.many(self.told.bins, p["max_cat_to_onehot"])[-len(tree.values) :]
            for tree in self.told.trees
        ]
        more = np.concatenate(many) * np.float64(p["cat_l2"]) / self.factor(p)
        return more if more.any() and not p["use_quantized_grad"] and not refitted(p) else None

    def _sample(
        self, by_tree: Sequence[Any] | None, by_step: Sequence[Any] | None
    ) -> Sequence[Any] | None:
        """How often each tree draws each row."""
        if by_step is None:
            return by_tree
        drawn = [by_step[r // self.told.outputs] for r in range(len(self.told.trees))]
        return drawn if by_tree is None else [a * b for a, b in zip(by_tree, drawn, strict=True)]

    def recall(
        self, p: dict[str, Any], rounded: list[str], given: Container[str]
    ) -> tuple[Ensemble, dict[str, Any], list[str]]:
        """The ensemble with everything that is drawn again or recovered, its parameters, and notes on that.
        ``rounded``: parameters known to six digits; ``given``: those that the user knows better than the model."""
        drawn, notes = self._drawn(p)
        smoothed = p["path_smooth"] > 0
        if rounded and not smoothed:
            before = p
            p = recover.parameters(lambda p: self.ensemble(p, drawn), p, rounded)
            if names := [name for name in rounded if p[name] != before[name]]:
                notes.append(
                    f"{' and '.join(names)} recovered from the leaf values, as files keep six digits"
                )
        e = self.ensemble(p, drawn)
        told_rates = self._told_rates(p, e)
        if told_rates is not None and not smoothed and "learning_rate" not in given:
            e = recover.rates(e, told_rates / self.factor(p))
            if not refitted(p):
                notes.append("a schedule of learning rates recovered from the leaf values")
        if refitted(p):
            notes.append("read as made by Booster.refit(decay_rate=0)")
        return self._recorded(e, p), p, notes

    def _drawn(self, p: dict[str, Any]) -> tuple[list[Any] | None, list[str]]:
        """For each step how often it drew each row, and a note on that."""
        if refitted(p):
            return None, []
        e = self.ensemble({**p, "path_smooth": 0.0})
        spare = min(max(int(p["num_iterations"]) - e.n_steps, 0), 100)

        def fits(t: int, A: F64, drawn: NDArray[Any]) -> bool:
            return p["path_smooth"] > 0 or recover.fits(e, t, A, drawn)

        def sizes(t: int, A: F64) -> NDArray[np.float32]:
            return recover.sizes(e, t, A, self.factor(p))

        witness = Witness(e, self.counts, spare, fits)
        drawn = draw_rows(p, e, self.told.objective[0] == "binary", sizes, witness)
        if drawn is None or all(d.all() for d in drawn):
            return None, []
        if (
            e.rule.statistic is not None
        ):  # a percentile counts the rows drawn, it does not weigh them
            drawn = [(d > 0).astype(np.uint8) for d in drawn]
        confirmed = "rows of each tree drawn again, confirmed by the number of rows in every leaf"
        return drawn, [confirmed] if witness.sure else []

    def _told_rates(self, p: dict[str, Any], e: Ensemble) -> F64 | None:
        """(T,) six digits of the learning rates; None if they are the parameter's. NaN: not told."""
        if self.told.averaged or (p["boosting"] == "dart" and not refitted(p)):
            return None
        found = np.array([tree.shrinkage for tree in self.told.trees[:: self.told.outputs]])
        found[self.alone[:, 0]] = np.nan
        if e.base_rule is not None:
            found[0] = np.nan  # adding the starting score sets it to 1
        return (
            found
            if np.any(np.abs(found - p["learning_rate"]) > 1e-5 * p["learning_rate"])
            else None
        )

    def _recorded(self, e: Ensemble, p: dict[str, Any]) -> Ensemble:
        # Refitting keeps the counts of the rows before; on several machines they are guessed from second derivatives.
        if self.counts is None or refitted(p) or int(p.get("num_machines", 1)) > 1:
            return e
        drawn = (
            [e.n_rows] * len(e.first_output)
            if e.sample is None
            else [np.count_nonzero(s) for s in e.sample]
        )
        counts = np.where(
            np.isnan(self.counts), np.repeat(drawn, np.diff(e.tree_leaves)), self.counts
        )
        return replace(e, recorded=Recorded("rows", counts))


def refitted(p: dict[str, Any]) -> bool:
    """Booster.refit(decay_rate=0) computes all leaves anew, from zero scores and on all rows."""
    return float(p["refit_decay_rate"]) == 0


def _label_weight(told: Model, p: dict[str, Any], y: F64) -> F64:
    """(n,) is_unbalance and scale_pos_weight, which the starting score ignores; (n, K) if one against all."""

    def weight(positive: NDArray[np.bool_]) -> F64:
        many = np.count_nonzero(positive)
        few = np.count_nonzero(~positive)
        up = 1.0
        down = 1.0
        if p["is_unbalance"] and many and few:
            up, down = (1.0, many / few) if many > few else (few / many, 1.0)
        return np.where(positive, up * float(p["scale_pos_weight"]), down)

    if told.objective[0] == "multiclassova":
        weights = np.stack([weight(y == k) for k in range(told.outputs)], axis=1)
        return weights if np.any(weights != 1) else np.ones(len(y))
    return weight(y > 0) if told.objective[0] == "binary" else np.ones(len(y))
