"""CatBoost: CatBoostClassifier, CatBoostRegressor and CatBoost with their training data.

How CatBoost computes a leaf (CPU, float64; targets, weights, learning rate and l2 are rounded to
float32):

    lam = l2_leaf_reg * sum(w) / n           n counts rows of weight zero
    value = learning_rate * sum of leaf_estimation_iterations steps -G / (H + lam), or -G / (W + lam)

Bootstrap, random_strength, rsm and Ordered boosting change which tree is grown, never the values of
its leaves. Target statistics of categories decide which leaf a row is in: see training_leaves.py.
With model_shrink_rate the scores shrink before each step: see shrinkage.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.parquet import PartedTable
from ..._model.coupled.lambdas import LambdaLoss
from ..._model.ensemble import Ensemble, LeafRule, Recorded
from ..._model.further_losses.own import OwnFunctions
from ..._model.splits import SplitSearch
from ..._model.training_set import TrainingSet
from ..._model.tree_paths import TreePaths
from ..base import (
    BaseSource,
    coupled_places,
    cumulative,
    f32,
    given_scores,
    refuse_elsewhere,
    training_queries,
)
from ..split_columns import columns_of_training
from . import objective as objectives
from . import shrinkage
from .langevin import is_noisy, with_noise
from .leaf_rule import leaf_rule
from .model_json import Json, leaf_weights, model_to_json
from .monotone import constraints, leaf_chains
from .own_objective import own_objective
from .paths import tree_paths
from .pools import leaf_numbers, pool_of, readable_table
from .ranking import RANKING, labels_fixed, ranking_notes, refuse_ignored_weights, with_pairs
from .recorded_leaves import recorded_leaves
from .recorder import recording_notes
from .retrained import RetrainedCatBoost, retrain
from .retraining import retraining_params
from .row_leaves import RowLeaves
from .split_values import SplitValues
from .splits import split_search
from .stages import refuse_stages
from .statistics import CategoricalRows, target_statistics
from .survival import AFT, UNWEIGHTED_ROWS, log_bounds, refuse_weights
from .training_leaves import TrainingLeaves, training_leaves
from .users_model import own_predictions, with_leaf_values
from .yeti import YETI, YetiPairs, YetiSeeds, YetiTrees, yeti_settings

_SHRUNK = "with model_shrink_rate CatBoost rounds the scores of this loss to about five digits before each step"


class CatBoostSource(BaseSource):
    """A CatBoost model with its training data."""

    # float64 throughout: replays agree to 1e-12, or to 1e-8 with a baseline (float32)
    tolerance = 1e-7

    def __init__(
        self,
        model: catboost.CatBoost,
        params: dict[str, Any],
        X: Any,
        y: Any,
        sample_weight: Any,
        baseline: Any,
        qid: Any = None,
        *,
        own: OwnFunctions | None = None,
        rates: F64 | None = None,
        pairs: tuple[Ints, F64] | None = None,
    ) -> None:
        self.model = model
        self.own = own
        self.rates = rates  # (T,) learning rates, if they were given
        self.pairs = pairs  # of a Pool: rows (P, 2) and weights (P,), if they were given
        self.params = params
        self.name = type(model).__name__
        self.counts = np.asarray(model.get_tree_leaf_counts(), dtype=np.int64)
        values = np.asarray(model.get_leaf_values(), dtype=np.float64)
        self.values = values.reshape(int(self.counts.sum()), -1)
        self.loss_name = params["loss_function"].partition(":")[0]
        if own is None:
            self.objective = objectives.read_objective(
                params["loss_function"], self.values.shape[1], params
            )
        has_classes = own is not None or self.loss_name in objectives.CLASS_LOSSES
        classes = np.asarray(model.classes_ if has_classes else [])
        self.classes = classes if len(classes) else None
        self.targets = self.values.shape[1] if self.loss_name in objectives.TARGETS else None
        if isinstance(X, catboost.Pool):
            y = X.get_label() if y is None else y
            sample_weight = X.get_weight() if sample_weight is None else sample_weight
        leaves, offset = self.training_rows(X, baseline)
        n = leaves.shape[1]
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        labels = self.given_labels(y, n, "y_train")
        self._data = X, labels, inputs.weights(sample_weight, n), offset
        qid = self.own_queries(X) if qid is None else qid
        self.queries = training_queries(qid, n, self.loss_name in RANKING)
        self.ensemble = self._ensemble(leaves, offset)
        if is_noisy(params):
            refuse_elsewhere(leaves, "the noise of langevin and posterior_sampling")
            self.ensemble, note = with_noise(self.ensemble, params)
            self.notes = [*self.notes, note]

    # ---- the ensemble ----

    def _ensemble(self, leaves: Ids, offset: F64 | None) -> Ensemble:
        T = len(self.counts)
        _, labels, sample_weight, _ = self._data
        codes = self.labels(labels, len(labels), "y_train")
        class_weight = self._class_weights(codes)
        y = f32(codes)
        w = f32(sample_weight.astype(np.float32) * class_weight.astype(np.float32))
        refuse_ignored_weights(self.loss_name, w)
        self.notes = [*self.notes, *ranking_notes(self.loss_name, len(y), self.params)]
        if self.loss_name == AFT:
            refuse_weights(w)
            self.notes = [UNWEIGHTED_ROWS]
        shrink = shrinkage.shrink_factors(self.params, T)
        rough_scores = None
        if self.loss_name in objectives.EXPONENTIAL:
            rough_scores = shrinkage.shrink_roughly(shrink)
        if rough_scores is not None:
            self.notes = [_SHRUNK]
        starts = self.loss_name in objectives.ALWAYS_STARTS or self.params.get("boost_from_average")
        averaged = bool(starts) and offset is None
        scores = self._scores(shrink, y, w, averaged)
        if self.own is not None:
            A = np.tile(scores.base, (len(y), 1)) + (0.0 if offset is None else offset)
            self.objective = own_objective(
                self.own, A, y, 0 if self.classes is None else len(self.classes)
            )
        rate = float(f32(self.params["learning_rate"])) if self.rates is None else self.rates
        rule = leaf_rule(self.params, self.loss_name, self.objective, self.values.shape[1])
        if self.pairs is not None:
            number = np.zeros(len(y), np.intp) if self.queries is None else self.queries.number
            loss = with_pairs(self.objective.loss, self.pairs, T, number)
            self.objective = replace(self.objective, loss=loss)
        if self.loss_name in YETI:
            refuse_elsewhere(leaves, "the pairs of YetiRank")
            given = np.zeros(len(y)) if offset is None else offset[:, 0]
            self._draw_pairs(leaves, y, scores.base[0] + given, rule, rate)
        pools = self.values.shape[1] == 1 and self.objective.statistic is None
        signs = constraints(self.params.get("monotone_constraints")) if pools else {}
        weights = self._leaf_weights(w)
        values = shrinkage.values_before_shrinking(self.values, self.counts, shrink)
        if self._splits_on_targets or self._reads_rows_before:
            leaves = self._training_leaves(y, w, leaves, scores.finished, offset, weights)
        return Ensemble(
            loss=self.objective.loss,
            rule=rule,
            learning_rate=rate,
            leaves=leaves,
            first_output=np.zeros(T, np.int32),
            step_trees=np.arange(T + 1),
            tree_leaves=cumulative(self.counts),
            values=values,
            y=y,
            w=w,
            w_factor=class_weight,
            base=scores.base,
            shift=scores.shift,
            base_rule=self.objective.base_rule if averaged else None,
            offset=offset,
            moves=shrinkage.shrinking_moves(shrink, T, scores.scale),
            chains=leaf_chains(self._content, signs) if signs else None,
            rough_scores=rough_scores,
            recorded=None if weights is None else Recorded("weight", weights),
            places=coupled_places(self.objective.loss, self.queries, len(y)),
            weights_fixed=UNWEIGHTED_ROWS if self.loss_name == AFT else "",
            labels_fixed=labels_fixed(self.loss_name, self.pairs),
        )

    def _scores(self, shrink: F64 | None, y: F64, w: F64, averaged: bool) -> shrinkage.Scores:
        """Return the starting score and what was done to the scores after training.

        ``averaged``: it is that of the data."""
        start = None
        if averaged and self.own is None and (rule := self.objective.base_rule) is not None:
            start = partial(rule.fit, self.objective.loss, y, w)
        shrinkage.refuse_scaled_baseline(self.model, self._data[3])
        return shrinkage.Scores(self.model, self.values.shape[1], shrink, start)

    def _class_weights(self, codes: F64) -> F64:
        """Return the class weight (n,) of each row."""
        if self.params.get("class_weights") and self.classes is not None:
            return f32(self.params["class_weights"])[codes.astype(int)]
        return np.ones(len(codes))

    def _leaf_weights(self, w: F64) -> F64 | None:
        """Return the weights (leaves,) that training recorded, or None if they cannot be compared.

        With category columns, whether or not a tree splits on one, each row may count with another
        row's weight. So where the weights of rows differ, the recorded ones are of no use here; for
        trees that split on target statistics, `training_leaves` does the check."""
        if self.model.get_cat_feature_indices() and np.ptp(w) > 0:
            return None
        if self.values.shape[1] == 1:
            return np.asarray(self.model.get_leaf_weights())
        return leaf_weights(self.model, self._content)

    def _draw_pairs(self, leaves: Ids, y: F64, A: F64, rule: LeafRule, rate: F64 | float) -> None:
        """Put the pairs that YetiRank drew in training into the loss; scores A (n,) at the start."""
        assert self.queries is not None
        settings = yeti_settings(self.params, self._training_pool, len(y))
        values = np.split(self.values[:, 0], cumulative(self.counts)[1:-1])
        newton = self.params["leaf_estimation_method"] == "Newton"
        trees = YetiTrees(leaves, values, rule, rule.lam(len(y), len(y)), rate, newton)
        pairs, note = trees.pairs(YetiSeeds(YetiPairs(settings, y, self.queries.number)), A)
        self.notes = [*self.notes, note]
        assert isinstance(self.objective.loss, LambdaLoss)
        loss = replace(self.objective.loss, pair_rule=pairs)
        self.objective = replace(self.objective, loss=loss)

    # ---- target statistics ----

    @cached_property
    def _splits_on_targets(self) -> bool:
        """Whether any split looks at a target statistic of categories."""
        has_categories = bool(self.model.get_cat_feature_indices())
        recomputed = has_categories and not self._reads_rows_before
        return recomputed and bool(target_statistics(self._content))

    @cached_property
    def _reads_rows_before(self) -> bool:
        """Whether training had numbers for columns that are not recomputed: see recorded_leaves.py."""
        columns = self.model.get_text_feature_indices(), self.model.get_embedding_feature_indices()
        limit = int(self.params.get("ctr_leaf_count_limit", 2**64 - 1))
        limited = limit <= len(self._data[1]) and bool(self.model.get_cat_feature_indices())
        return any(columns) or limited

    def _training_leaves(
        self, y: F64, w: F64, leaves: Ids, base: F64, offset: F64 | None, weights: F64 | None
    ) -> Ids:
        """Return the leaves (trees, n) in training, where those of the finished model differ.

        ``leaves`` are those of the finished model, ``base`` (K,) the score it starts from, and
        ``weights`` (leaves,) those recorded. Notes on how the leaves were found are added."""
        if isinstance(self._data[0], PartedTable):
            raise UnsupportedModel(
                "this model splits on target statistics of category columns, or on text or embedding columns, which "
                "depend on all rows at once, so it cannot be read part by part; pass the whole table: "
                "Tracer(model, X_train, y_train)."
            )
        start = base + (np.zeros((len(y), 1)) if offset is None else offset)
        if self._reads_rows_before:
            refuse_elsewhere(leaves, "text and embedding columns, and ctr_leaf_count_limit,")
            params = retraining_params(self.model, self.params)
            full = weights if np.ptp(w) == 0 else None
            leaves, note = recorded_leaves(
                self.model, params, self._training_pool, leaves, start, self.values, full
            )
            self.notes = [*self.notes, note]
            return leaves
        found = self._in_training(y, w, leaves)
        further = recording_notes(
            self.model, start, self.values, self.counts, found.leaves, self.tolerance
        )
        self.notes = [*self.notes, found.note, *further]
        return found.leaves

    def _in_training(self, y: F64, w: F64, leaves: Ids) -> TrainingLeaves:
        """Return leaves and statistics of training rows, from the finished model's leaves."""
        X = self._data[0]
        table = X if isinstance(X, catboost.Pool) else self._table(X)
        rows = CategoricalRows(table, self._training_pool, y, w, leaves)
        return training_leaves(self.model, self._content, self.params, rows)

    # ---- rows and labels ----

    @cached_property
    def _content(self) -> Json:
        """The model as JSON."""
        return model_to_json(self.model)

    def structure(self) -> bytes:
        names = ("features_info", "oblivious_trees", "trees", "ctr_data")
        parts = [self._content.get(name) for name in names]
        return json.dumps(parts, sort_keys=True).encode()

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        leaves = self._row_leaves.find(X)
        if baseline is None and isinstance(X, catboost.Pool):
            of_pool = np.asarray(X.get_baseline(), dtype=np.float64)
            baseline = of_pool if of_pool.size else None
        offset = given_scores(baseline, "baseline", leaves.shape[1], self.values.shape[1])
        return leaves, None if offset is None else f32(offset)

    @cached_property
    def _row_leaves(self) -> RowLeaves:
        return RowLeaves(self.model, self._table, self._pool, lambda: self._content)

    def reads_in_place(self, X: Any) -> bool:
        return self._row_leaves.reads_in_place(X)

    def split_search(self) -> SplitSearch:
        values = columns_of_training(self.split_columns, self._data[0])
        if self._splits_on_targets:
            e = self.ensemble
            rows = self._in_training(e.y, e.w, self._finished_leaves())
            self._split_values.set_training_statistics(values, rows)
        return split_search(self.model, self._split_values, self.params, values)

    def split_columns(self, X: Any) -> F64:
        return self._split_values.of_rows(X)

    def tree_paths(self, X: Any) -> TreePaths:
        leaves = self.rows(X)[0]
        return tree_paths(self.model, self._split_values, leaves, lambda: self.split_columns(X))

    @cached_property
    def _split_values(self) -> SplitValues:
        return SplitValues(self._content, self.params, self._data[0], self._table, self._pool)

    def _table(self, X: Any) -> Any:
        """Return X with the model's columns in the model's order, as CatBoost takes it."""
        return readable_table(inputs.columns(X, list(self.model.feature_names_ or [])))

    def _pool(self, X: Any, **extra: Any) -> catboost.Pool:
        """Return X as a Pool; ``extra`` holds labels, weights or a baseline for it."""
        return X if isinstance(X, catboost.Pool) else pool_of(self.model, self._table(X), extra)

    @cached_property
    def _training_pool(self) -> catboost.Pool:
        """The training rows with labels, weights and baseline, as a Pool."""
        X, y, sample_weight, offset = self._data
        more = {} if self.queries is None else {"group_id": self.queries.number}
        return self._pool(X, label=y, weight=sample_weight, baseline=offset, **more)

    def own_queries(self, X: Any) -> Any | None:
        return X.get_group_id_hash() if isinstance(X, catboost.Pool) else None

    def own_labels(self, X: Any) -> Any | None:
        return X.get_label() if isinstance(X, catboost.Pool) and X.has_label() else None

    def given_labels(self, y: Any, length: int, name: str) -> NDArray[Any]:
        if self.loss_name == AFT:
            return inputs.intervals(y, name, length)
        return super().given_labels(y, length, name)

    def labels(self, y: Any, length: int, name: str) -> F64:
        if self.loss_name == AFT:
            return log_bounds(y, length, name)
        numbers = super().labels(y, length, name)
        low, high, words = objectives.LABELS.get(self.loss_name, objectives.ANY_LABELS)
        if self.classes is None and length and (numbers.min() < low or numbers.max() > high):
            raise InvalidInput(
                f"{name} goes from {numbers.min():g} to {numbers.max():g}; "
                f"a model with the loss {self.loss_name} has labels that are {words}."
            )
        return numbers

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        return f32(codes), f32(f32(weight) * f32(factor))

    def own_predictions(self, F: F64) -> NDArray[Any]:
        return own_predictions(self.model, F)

    def refitted_model(self, e: Ensemble) -> catboost.CatBoost:
        return with_leaf_values(self.model, e)

    # ---- training again ----

    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedCatBoost:
        refuse_stages(self.rates)
        return retrain(self, rows, threads)

    def same_structure(self, model: catboost.CatBoost) -> bool:
        """Return whether all training rows fall into the same leaves of another model."""
        return np.array_equal(leaf_numbers(model, self._training_pool), self._finished_leaves())

    def _finished_leaves(self) -> Ids:
        """Return the leaves (trees, n) that the finished model puts its training rows in."""
        if self._splits_on_targets or self._reads_rows_before:
            return leaf_numbers(self.model, self._training_pool)
        return self.ensemble.leaves
