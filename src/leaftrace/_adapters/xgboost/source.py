"""XGBoost 2 and 3: Booster, estimators of scikit-learn's kind, and their .ubj and .json files.

How XGBoost computes a leaf (scores, and g and h times the weight, in float32; the rest in float64):

    s = -T_alpha(G) / (H + lambda), within +-max_delta_step; 0 if H < min_child_weight
    value = learning_rate / num_parallel_tree * s

It multiplies the second derivative of some losses by a constant c (softmax: 2, Poisson:
exp(max_delta_step)). In terms of the loss's own H that is

    s = -(1 / c) T_alpha(G) / (H + lambda / c)

so the constant goes into the rule. Absolute and quantile error renew their leaves: there s is a
quantile of the residuals. A base_margin takes the place of the base_score, for all rows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, UnsupportedModel, training_errors
from ..._data.forks import works_in_forks
from ..._data.wording import words
from ..._model.early_stopping import EvalRows, Rounds
from ..._model.ensemble import Ensemble
from ..._model.splits import SplitSearch
from ..._model.training_set import TrainingSet
from ..base import BaseSource, f32, given_scores, native_values, training_queries
from ..own_leaves import LeavesByNodes, OwnLeaves
from ..own_objectives import are_class_numbers, take_functions
from ..split_columns import columns_of_training
from .ensemble import XGBoostRun
from .model import (
    ALIASES,
    best_rounds,
    is_loaded,
    learner,
    parameters,
    parse_trees,
)
from .objectives import ANY, OBJECTIVES, tolerance_of
from .opening import OpenedModel, open_booster, refuse_unsupported, with_given
from .prediction import leaves_of_rows, leaves_of_table, rounds_notes
from .ranking import RANKING, group_fields, query_weights
from .retraining import RetrainedXGBoost, training_objective
from .splits import columns_of, split_search, tree_paths
from .start import margin
from .stopping import STOPPING_NAMES, StopIfUnwanted, reported_metrics
from .survival import AFT, bounds_of_logs, log_bounds, own_bounds
from .tables import MatrixBuilder, group_sizes, take_rows
from .users_model import with_booster, with_leaf_values

# Reported parameters that describe the run, and not how to run again.
_NOT_FOR_RETRAINING = {
    "base_score", "boost_from_average", "num_feature", "num_target", "num_trees", "process_type", "updater",
    "updater_seq", "nthread", "validate_parameters", "fail_on_invalid_gpu_id", "cache_opt", "sketch_ratio",
}  # fmt: skip


def open_model(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    baseline: Any,
    given: dict[str, Any],
    qid: Any = None,
) -> XGBoostSource:
    """Open a model with its training data; ``given`` are parameters that the user states."""
    opened = open_booster(model)
    functions, given = take_functions(given, opened.held_objective)
    opened = replace(opened, own=functions)
    of_stopping = {name: given[name] for name in given if name in STOPPING_NAMES}
    opened = replace(opened, stopping=opened.stopping.with_given(of_stopping))
    given = {name: value for name, value in given.items() if name not in STOPPING_NAMES}
    params = with_given(parameters(opened.booster), given, opened.booster.feature_names)
    details = learner(opened.booster)
    refuse_unsupported(details, params, opened.own is not None)
    names = frozenset(ALIASES.get(name, name) for name in given)
    return XGBoostSource(opened, details, params, X, y, sample_weight, baseline, names, qid)


class XGBoostSource(BaseSource):
    """An XGBoost model with its training data."""

    def __init__(
        self,
        opened: OpenedModel,
        details: dict[str, Any],
        params: dict[str, str],
        X: Any,
        y: Any,
        sample_weight: Any,
        baseline: Any,
        given: frozenset[str] = frozenset(),
        qid: Any = None,
    ) -> None:
        self.given = given
        self.opened = opened
        self.booster = opened.booster
        self.name = opened.name
        self.X = X
        self.objective: str = details["objective"]["name"]
        classes = int(params["num_class"])
        targets = int(params["num_target"])
        self.outputs = max(1, classes, targets)
        self.classes = np.arange(classes) if classes > 1 else opened.classes
        if targets > 1:
            self.classes = None
            self.targets = None if self.objective == "reg:quantileerror" else targets
        if opened.own is not None and not are_class_numbers(y, classes):
            self.classes = opened.classes
        self.label_range = ANY if opened.own is not None else OBJECTIVES[self.objective]
        self._matrices = MatrixBuilder(opened.booster, opened.missing)
        self._read_trees(details)
        self.base = margin(self.objective, self._base_score(details))
        self.estimated = False  # whether the starting score comes from the labels
        self.training = self._training_run(details, params, y, sample_weight, baseline, qid)
        self.ensemble = self.training.ensemble()
        self.estimated = self.ensemble.base_rule is not None
        self.notes = self.training.notes
        self.tolerance = tolerance_of(self.objective)

    def _read_trees(self, details: dict[str, Any]) -> None:
        """Set the trees, and the number of rounds that the model predicts with."""
        trees = parse_trees(details)
        if not len(trees):
            raise UnsupportedModel(
                "this XGBoost model has no trees, so no training row acts through one."
            )
        self._trained_rounds = len(trees.rounds) - 1
        self.rounds = min(self.opened.rounds or self._trained_rounds, self._trained_rounds)
        # Later trees of DART have changed the weights of earlier ones, so all of them are needed.
        self.trees = trees.first(self.rounds) if trees.weight is None else trees

    def _base_score(self, details: dict[str, Any]) -> F64:
        """(K,) the base_score that a model has stored."""
        stored = np.array(json.loads(details["learner_model_param"]["base_score"]), float)
        return np.broadcast_to(stored, self.outputs)

    def _training_run(
        self,
        details: dict[str, Any],
        params: dict[str, str],
        y: Any,
        sample_weight: Any,
        baseline: Any,
        qid: Any,
    ) -> XGBoostRun:
        """Put the trees and the training rows together. Labels and weights may be in a DMatrix."""
        if isinstance(self.X, xgb.DMatrix):
            own = self.X.get_weight()
            sample_weight = own if sample_weight is None and own.size else sample_weight
        y = self.own_labels(self.X) if y is None else y
        leaves, offset = self.training_rows(self.X, baseline)
        n = leaves.shape[1]
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        qid = self.own_queries(self.X) if qid is None else qid
        self.queries = training_queries(qid, n, self.objective in RANKING)
        if sample_weight is not None and self.queries is not None:
            sample_weight = query_weights(np.asarray(sample_weight, float), self.queries)
        return XGBoostRun(
            objective=self.objective,
            params=params,
            trees=self.trees,
            rounds=self.rounds,
            base_score=self._base_score(details),
            base=self.base,
            loaded=is_loaded(self.booster),
            leaves=leaves,
            y=self._as_stored(self.labels(y, n, "y_train")),
            sample_weight=None if sample_weight is None else f32(inputs.weights(sample_weight, n)),
            offset=offset,
            given=self.given,
            columns_first=xgb.__version__.startswith("2.0."),
            own=self.opened.own,
            classes=0 if self.classes is None else len(self.classes),
            notes=rounds_notes(self.booster, self.rounds, self._trained_rounds),
            queries=self.queries,
        )

    # ---- rows ----

    @works_in_forks
    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        leaves = leaves_of_table(self.booster, self._matrices, X, self.trees, self._own_leaves)
        if baseline is None and isinstance(X, xgb.DMatrix):
            own = X.get_base_margin()
            baseline = own if own.size else None
        given = given_scores(baseline, "baseline", leaves.shape[1], self.outputs)
        if given is None:
            return leaves, None
        if self.estimated:
            raise InvalidInput(
                "baseline (base_margin) takes the place of XGBoost's base_score, and this model was trained without "
                "one; leave it out for other rows too."
            )
        return leaves, f32(given) - self.base

    @cached_property
    def _own_leaves(self) -> OwnLeaves:
        return LeavesByNodes(self.trees.routes, self.trees.edges, self.trees.steps)

    @works_in_forks
    def split_search(self) -> SplitSearch:
        values = columns_of_training(self.split_columns, self.X)
        return split_search(self.training, self.booster.feature_types, values)

    @works_in_forks
    def split_columns(self, X: Any) -> F64:
        return columns_of(self._matrix(X))

    tree_paths = works_in_forks(tree_paths)

    @works_in_forks
    def structure(self) -> bytes:
        parts = [
            learner(self.booster)["gradient_booster"],
            self.booster.feature_names,
            self.booster.feature_types,
            self._matrices.categories,
            str(self.opened.missing),
            self.rounds,
        ]
        return json.dumps(parts).encode()

    def _matrix(self, X: Any, kind: type[xgb.DMatrix] = xgb.DMatrix, **fields: Any) -> xgb.DMatrix:
        return self._matrices.build(X, kind, **fields)

    def given_labels(self, y: Any, length: int, name: str) -> NDArray[Any]:
        if self.objective == AFT:
            return inputs.intervals(y, name, length)
        return super().given_labels(y, length, name)

    def labels(self, y: Any, length: int, name: str) -> F64:
        if self.objective == AFT and self.opened.own is None:
            return log_bounds(y, length, name)
        return super().labels(y, length, name)

    def _as_stored(self, codes: F64) -> F64:
        """Labels as training has them; logarithms of bounds are not rounded."""
        return codes if self.objective == AFT else f32(codes)

    def own_labels(self, X: Any) -> Any | None:
        if not isinstance(X, xgb.DMatrix):
            return None
        if self.objective == AFT:
            return own_bounds(X)
        labels = X.get_label()
        return labels if labels.size else None

    def own_queries(self, X: Any) -> Any | None:
        return group_sizes(X) if isinstance(X, xgb.DMatrix) else None

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        return self._as_stored(codes), f32(f32(weight) * f32(factor))

    def own_predictions(self, F: F64) -> NDArray[Any]:
        if self.objective == "binary:logitraw" and self.opened.classes is None:
            return F[:, 0]
        if self.opened.classes is not None:
            return super().own_predictions(F)
        if self.objective == "binary:hinge":
            return (F[:, 0] > 0).astype(np.float64)
        if self.objective == "multi:softmax":
            return F.argmax(axis=1).astype(np.float64)
        response = self.own_response(F)
        return response[:, 1] if response.ndim == 2 and self.outputs == 1 else response

    def refitted_model(self, e: Ensemble) -> Any:
        weight = 1.0 if self.trees.weight is None else self.trees.weight.astype(np.float64)
        scale = 1 / np.repeat(np.broadcast_to(weight, len(self.trees)), np.diff(self.trees.edges))
        values = native_values(self.ensemble, e, self.trees.values, scale[:, None])
        booster = with_leaf_values(self.booster, self.trees, values)
        return with_booster(self.opened, booster)

    # ---- training again ----

    @works_in_forks
    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedXGBoost:
        """Train a model with the same parameters on another training set."""
        if (self.training.loaded or self.training.recovered) and not self._comes_back:
            raise UnsupportedModel(
                "trained again on all rows, this model does not come out the same, so retraining it without some would "
                "tell nothing: its training parameters are not those it reports (a file keeps none, and callbacks can "
                f"change them). {words().give_parameters} as in training."
            )
        codes = self.training.y
        if rows.y is not None:
            codes = self._as_stored(self.labels(rows.y, len(codes), "y"))
        if rows.added is not None:
            if isinstance(self.X, xgb.DMatrix):
                raise InvalidInput(
                    "rows cannot be added to a DMatrix; pass X_train and y_train as a table."
                )
            X, labels, w = rows.added
            new = self._as_stored(self.labels(labels, len(labels), "y_new"))
            rows = replace(rows, added=(X, new, f32(w)))
        rows = replace(rows, y=codes)
        with training_errors("XGBoost", xgb.core.XGBoostError):
            booster = self._train(rows, threads)
        rounds = self._rounds(booster, rows.eval_set is not None)
        return RetrainedXGBoost(booster, self, rows, rounds)

    def _train(self, rows: TrainingSet, threads: int) -> xgb.Booster:
        known = self.training.params
        params: dict[str, Any] = {
            k: v for k, v in known.items() if v and k not in _NOT_FOR_RETRAINING
        }
        # With given scores, no training row has met the base_score: it stays as it is.
        if known["boost_from_average"] != "1" or self.training.offset is not None:
            params["base_score"] = known["base_score"]
        params |= {"nthread": threads, "verbosity": 0}
        data = self._altered(rows, threads)
        own = self.opened.own
        if rows.eval_set is None:
            rounds = len(self.trees.rounds) - 1
            obj = None if own is None else training_objective(own)
            return xgb.train(params, data, rounds, obj=obj, callbacks=[StopIfUnwanted()])
        if own is not None:
            raise UnsupportedModel(
                "early stopping cannot be repeated for models with an objective of your own; leave eval_set out."
            )
        eval_data = [self._eval_matrix(part) for part in rows.eval_set]
        metrics = reported_metrics(self.booster)
        return self.opened.stopping.train(params, data, eval_data, metrics, [StopIfUnwanted()])

    def _eval_matrix(self, rows: EvalRows) -> xgb.DMatrix:
        """Rows that decide when to stop."""
        if isinstance(rows.X, xgb.DMatrix):
            return self._matrix(rows.X)
        codes = self.labels(rows.y, len(rows.y), "the labels of eval_set")
        more = bounds_of_logs(codes) if self.objective == AFT else {"label": f32(codes)}
        return self._matrix(rows.X, xgb.DMatrix, weight=rows.weight, **more)

    def _rounds(self, booster: xgb.Booster, repeated: bool) -> Rounds:
        """Rounds of a retrained booster that predictions are made with, beside those of the model."""
        if not repeated:
            kept = "none" if best_rounds(self.booster) is None else "kept"
            return Rounds(self.rounds, self.rounds, kept)
        count = booster.num_boosted_rounds()
        if self.opened.rounds is not None:
            count = best_rounds(booster) or count
        return Rounds(count, self.rounds, "repeated")

    @works_in_forks
    def same_structure(self, booster: xgb.Booster, rounds: int) -> bool:
        """Whether all training rows fall into the same leaves in the rounds of another booster."""
        trees = parse_trees(learner(booster))
        trees = trees.first(rounds) if trees.weight is None else trees
        if not np.array_equal(trees.edges, self.trees.edges):
            return False
        leaves = leaves_of_rows(booster, self._matrix(self.X), trees)
        return np.array_equal(leaves, self.ensemble.leaves)

    @cached_property
    def _comes_back(self) -> bool:
        """Whether training on all rows with these parameters gives this model again."""
        booster = self._train(TrainingSet.unchanged(len(self.training.y)), 1)
        return self.same_structure(booster, self.rounds)

    def _altered(self, rows: TrainingSet, threads: int) -> xgb.DMatrix:
        """A training set as the kind of matrix that the model was trained on."""
        t = self.training
        labels = rows.labels(t.y)
        is_aft = self.objective == AFT
        more: dict[str, Any] = bounds_of_logs(labels) if is_aft else {"label": labels}
        weight = rows.weights(t.sample_weight)
        if weight is not None:
            more["weight"] = weight
        if self.queries is not None:
            more |= group_fields(self.queries.take(rows.keep), weight)
        if (offset := rows.offset(t.offset)) is not None:
            more["base_margin"] = offset + self.base
        if isinstance(self.X, xgb.DMatrix):
            matrix = take_rows(self.X, rows.keep)
            matrix.set_info(**more)
            return matrix
        table = rows.table(self.X)
        if self.opened.sketched:
            try:
                bins = int(t.params["max_bin"])
                return self._matrix(
                    table, xgb.QuantileDMatrix, nthread=threads, max_bin=bins, **more
                )
            except TypeError:  # it takes fewer kinds of tables
                pass
        return self._matrix(table, xgb.DMatrix, nthread=threads, **more)
