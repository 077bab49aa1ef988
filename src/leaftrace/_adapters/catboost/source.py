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
from functools import cached_property
from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, LeaftraceError, UnsupportedModel
from ..._data.parquet import PartedTable
from ..._data.stopping import stop_if_unwanted
from ..._model.early_stopping import EvalRows, EvalSet, Rounds
from ..._model.ensemble import Ensemble, LeafRule, Recorded
from ..._model.further_losses.own import OwnFunctions
from ..._model.splits import SplitSearch
from ..._model.training_set import TrainingSet
from ..base import BaseSource, coupled_places, cumulative, f32, given_scores, training_queries
from ..split_columns import columns_of_training
from . import objective as objectives
from . import shrinkage
from .model_json import Json, leaf_weights, model_to_json
from .monotone import constraints, leaf_chains
from .own_objective import TrainingObjective, own_objective, without_numba_warning
from .pools import leaf_numbers, readable_table, sliced_pool
from .ranking import COUPLED, RANKING, cox_note, refuse_ignored_weights
from .recorder import comparison_note, final_scores, recorded_scores
from .retrained import RetrainedCatBoost
from .retraining import StopIfUnwanted, retraining_params, stopped_early
from .split_values import SplitValues
from .splits import split_search
from .stages import refuse_stages
from .statistics import CategoricalRows, target_statistics
from .survival import AFT, UNWEIGHTED_ROWS, log_bounds, refuse_weights
from .training_leaves import TrainingLeaves, training_leaves
from .users_model import own_predictions, with_leaf_values

_SHRUNK = "with model_shrink_rate CatBoost rounds the scores of this loss to about five digits before each step"
# Supported leaf_estimation_methods, and whether they divide by second derivatives.
LEAF_METHODS = {"Newton": True, "Gradient": False, "Simple": False, "Exact": False}
_NOTE = "target statistics of categories recomputed, in the random order of training, as part of the fixed structure"
_NOT_CONFIRMED = (
    ", which the weights of the leaves do not confirm (likely other training rows or labels, or a model trained on "
    "rows in groups or by another version of CatBoost)"
)


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
    ) -> None:
        self.model = model
        self.own = own
        self.rates = rates  # (T,) learning rates, if they were given
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

    # ---- the ensemble ----

    def _ensemble(self, leaves: Ids, offset: F64 | None) -> Ensemble:
        T = len(self.counts)
        _, labels, sample_weight, _ = self._data
        codes = self.labels(labels, len(labels), "y_train")
        class_weight = self._class_weights(codes)
        y = f32(codes)
        w = f32(sample_weight.astype(np.float32) * class_weight.astype(np.float32))
        refuse_ignored_weights(self.loss_name, w)
        if self.loss_name == "Cox":
            self.notes = [*self.notes, *cox_note(len(y))]
        if self.loss_name == AFT:
            refuse_weights(w)
            self.notes = [UNWEIGHTED_ROWS]
        shrink = shrinkage.shrink_factors(self.params, T)
        rough_scores = None
        if self.loss_name in objectives.EXPONENTIAL:
            rough_scores = shrinkage.shrink_roughly(shrink)
        if rough_scores is not None:
            self.notes = [_SHRUNK]
        if self.own is not None:
            A = np.tile(self._base(shrink), (len(y), 1)) + (0.0 if offset is None else offset)
            self.objective = own_objective(
                self.own, A, y, 0 if self.classes is None else len(self.classes)
            )
        pools = self.values.shape[1] == 1 and self.objective.statistic is None
        signs = constraints(self.params.get("monotone_constraints")) if pools else {}
        rate = float(f32(self.params["learning_rate"])) if self.rates is None else self.rates
        starts = self.loss_name in objectives.ALWAYS_STARTS or self.params.get("boost_from_average")
        averaged = bool(starts) and offset is None
        weights = self._leaf_weights(w)
        if self._splits_on_targets:
            leaves = self._training_leaves(y, w, leaves, offset)
        return Ensemble(
            loss=self.objective.loss,
            rule=self._leaf_rule(),
            learning_rate=rate,
            leaves=leaves,
            first_output=np.zeros(T, np.int32),
            step_trees=np.arange(T + 1),
            tree_leaves=cumulative(self.counts),
            values=shrinkage.values_before_shrinking(self.values, self.counts, shrink),
            y=y,
            w=w,
            w_factor=class_weight,
            base=self._base(shrink),
            base_rule=self.objective.base_rule if averaged else None,
            offset=offset,
            moves=None if shrink is None else shrinkage.shrinking_moves(shrink),
            chains=leaf_chains(self._content, signs) if signs else None,
            rough_scores=rough_scores,
            recorded=None if weights is None else Recorded("weight", weights),
            places=coupled_places(self.objective.loss, self.queries, len(y)),
            weights_fixed=UNWEIGHTED_ROWS if self.loss_name == AFT else "",
        )

    def _leaf_rule(self) -> LeafRule:
        params = self.params
        # Losses that couple rows have in their h what leaves divide by.
        newton = LEAF_METHODS[params["leaf_estimation_method"]] or self.loss_name in COUPLED
        iterations = int(params["leaf_estimation_iterations"])
        backtracks = params.get("leaf_estimation_backtracking", "No") != "No"
        return LeafRule(
            newton,
            l2=float(np.float32(params["l2_leaf_reg"])),
            l2_scales=self.loss_name != AFT,
            lam_float32=newton and self.values.shape[1] > 1,
            diagonal=self.loss_name in objectives.DIAGONAL,
            iterations=iterations,
            backtracking=iterations > 1 and backtracks,
            statistic=self.objective.statistic,
            centred=self.objective.centred,
            pairwise=self.objective.pairwise,
        )

    def _base(self, shrink: F64 | None) -> F64:
        """Return the starting score (K,) before any shrinking."""
        base = np.broadcast_to(self._bias, (self.values.shape[1],)).copy()
        return base if shrink is None else base / np.prod(shrink)

    @property
    def _bias(self) -> F64:
        """Starting score in the finished model: one number, or (K,)."""
        return np.asarray(self.model.get_scale_and_bias()[1], dtype=np.float64)

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

    # ---- target statistics ----

    @cached_property
    def _splits_on_targets(self) -> bool:
        """Whether any split looks at a target statistic of categories."""
        has_categories = bool(self.model.get_cat_feature_indices())
        return has_categories and bool(target_statistics(self._content))

    def _training_leaves(self, y: F64, w: F64, leaves: Ids, offset: F64 | None) -> Ids:
        """Return the leaves (trees, n) in training of a model that splits on target statistics.

        ``leaves`` are those of the finished model. Notes on how they were confirmed are added."""
        if isinstance(self._data[0], PartedTable):
            raise UnsupportedModel(
                "this model splits on target statistics of category columns, which depend on all rows at once, so it "
                "cannot be read part by part; pass the whole table: Tracer(model, X_train, y_train)."
            )
        found = self._in_training(y, w, leaves)
        leaves = found.leaves
        self.notes = [*self.notes, _NOTE + ("" if found.confirmed else _NOT_CONFIRMED)]
        recorded = recorded_scores(self.model)
        if recorded is not None and len(recorded) == len(y):
            start = self._bias + (0.0 if offset is None else offset)
            scores = final_scores(start, self.values, self.counts, leaves)
            self.notes = [*self.notes, comparison_note(recorded, scores, self.tolerance)]
        return leaves

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
        leaves = leaf_numbers(self.model, self._pool(X))
        if baseline is None and isinstance(X, catboost.Pool):
            of_pool = np.asarray(X.get_baseline(), dtype=np.float64)
            baseline = of_pool if of_pool.size else None
        offset = given_scores(baseline, "baseline", leaves.shape[1], self.values.shape[1])
        return leaves, None if offset is None else f32(offset)

    def split_search(self) -> SplitSearch:
        values = columns_of_training(self.split_columns, self._data[0])
        if self._splits_on_targets:
            e = self.ensemble
            rows = self._in_training(e.y, e.w, self._finished_leaves())
            self._split_values.set_training_statistics(values, rows)
        return split_search(self.model, self._split_values, self.params, values)

    def split_columns(self, X: Any) -> F64:
        return self._split_values.of_rows(X)

    @cached_property
    def _split_values(self) -> SplitValues:
        return SplitValues(self._content, self.params, self._data[0], self._table, self._pool)

    def _table(self, X: Any) -> Any:
        """Return X with the model's columns in the model's order, as CatBoost takes it."""
        return readable_table(inputs.columns(X, list(self.model.feature_names_ or [])))

    def _pool(self, X: Any, **extra: Any) -> catboost.Pool:
        """Return X as a Pool; ``extra`` holds labels, weights or a baseline for it."""
        if isinstance(X, catboost.Pool):
            return X
        X = self._table(X)
        try:
            return catboost.Pool(X, cat_features=self.model.get_cat_feature_indices(), **extra)
        except catboost.CatBoostError as error:
            raise InvalidInput(f"CatBoost cannot read these rows: {error}") from None

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
        repeats = rows.eval_set is not None
        params = retraining_params(self.model, self.params, repeats) | {"thread_count": threads}
        if self.own is not None:
            params["loss_function"] = TrainingObjective(self.own)
        _, y, weight, offset = self._data
        labels = rows.labels(y)
        weights = rows.weights(weight)
        baseline = rows.offset(offset)
        table, pool = self._table_and_pool(rows, labels, weights, baseline)
        try:
            with without_numba_warning():
                model = catboost.CatBoost(params).fit(
                    pool,
                    eval_set=self._eval_pools(rows.eval_set),
                    callbacks=[StopIfUnwanted()],
                )
        except catboost.CatBoostError as error:
            raise LeaftraceError(
                f"CatBoost cannot train the model again; it says: {error}"
            ) from None
        stop_if_unwanted()
        kept = "kept" if stopped_early(self.params) else "none"
        trees = len(model.get_tree_leaf_counts())
        rounds = Rounds(trees, len(self.counts), "repeated" if repeats else kept)
        qid = None if self.queries is None else self.queries.take(rows.keep).number
        return RetrainedCatBoost(model, self, (table, labels, weights, baseline, qid), rounds)

    def _eval_pools(self, eval_set: EvalSet | None) -> list[catboost.Pool] | None:
        """Return the rows that decide when to stop, as Pools."""
        if eval_set is None:
            return None
        if not stopped_early(self.params):
            raise InvalidInput(
                "this CatBoost model was trained without an eval_set that could stop it; leave eval_set out."
            )
        return [self._eval_pool(rows) for rows in eval_set]

    def _eval_pool(self, rows: EvalRows) -> catboost.Pool:
        """Return one set of these rows."""
        if isinstance(rows.X, catboost.Pool):
            return rows.X
        self.labels(rows.y, len(rows.y), "the labels of eval_set")  # raises for wrong ones
        return self._pool(rows.X, label=rows.y, weight=rows.weight)

    def _table_and_pool(
        self, rows: TrainingSet, labels: NDArray[Any], weights: F64 | None, baseline: F64 | None
    ) -> tuple[Any, catboost.Pool]:
        """Return another training set as a table (or a Pool, if there is none) and as a Pool."""
        X = self._data[0]
        sliced = self.queries is None or isinstance(X, catboost.Pool)  # only whole groups can be
        if rows.y is None and rows.added is None and sliced:
            pool = sliced_pool(self._training_pool, rows.keep)
            if rows.sample_weight is not None:
                pool.set_weight(weights)
            return pool if isinstance(X, catboost.Pool) else rows.table(X), pool
        if isinstance(X, catboost.Pool):
            raise InvalidInput(
                "labels and rows of a Pool cannot be changed; pass X_train and y_train as a table."
            )
        table = rows.table(X)
        more = {} if self.queries is None else {"group_id": self.queries.number[rows.keep]}
        return table, self._pool(table, label=labels, weight=weights, baseline=baseline, **more)

    def same_structure(self, model: catboost.CatBoost) -> bool:
        """Return whether all training rows fall into the same leaves of another model."""
        leaves = leaf_numbers(model, self._training_pool)
        return np.array_equal(leaves, self._finished_leaves())

    def _finished_leaves(self) -> Ids:
        """Return the leaves (trees, n) that the finished model puts its training rows in."""
        if self._splits_on_targets:
            return leaf_numbers(self.model, self._training_pool)
        return self.ensemble.leaves
