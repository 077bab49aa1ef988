"""LightGBM: Booster, LGBMClassifier, LGBMRegressor, and their .txt files.

How LightGBM computes a leaf (labels, weights, w g and w h in float32; scores, sums and leaves in
float64):

    value = learning_rate * clip(-T(G, lambda_l1) / (H + lambda_l2 + c), +-max_delta_step)

with c = cat_l2 below a split of many categories against many. The first trees also hold the starting
score. Random choices (rows of bagging and GOSS, trees of DART) are drawn again from the seeds.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, UnsupportedModel, training_errors
from ..._data.forks import works_in_forks
from ..._model.early_stopping import EvalRows, EvalSet, Rounds
from ..._model.ensemble import Ensemble
from ..._model.further_losses.own import OwnFunctions
from ..._model.linear_leaves import as_trained
from ..._model.splits import SplitSearch
from ..._model.training_set import TrainingSet
from ..base import BaseSource, f32, given_scores, pack_leaves, training_queries
from ..own_leaves import LeavesByNodes, OwnLeaves
from ..own_objectives import are_class_numbers, label_first, take_functions, takes_weights
from ..split_columns import columns_of_training
from .calls import while_training
from .completion import complete_ensemble
from .ensemble import LightGBMRun
from .linear import with_linear_values
from .model import parameters, read
from .objectives import INTENSITY, objective, root_unit, rounded_root, signed_square
from .opening import VERSION, open_booster, refuse_unsupported
from .prediction import leaf_numbers
from .ranking import RANKING, label_gains
from .refitting import refitted, with_old_leaves
from .retraining import (
    NOT_FOR_RETRAINING,
    SWITCHES,
    RetrainedLightGBM,
    stop_callback,
    training_objective,
)
from .splits import routes_of, split_columns, split_search, tree_paths
from .stopping import known_rounds, stopped_early, stopping_params
from .tables import compared_numbers, model_table, table_length, with_linear_columns
from .users_model import with_booster, with_leaf_values

ALIASES = {"early_stopping_rounds": "early_stopping_round"}


def open_model(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    baseline: Any,
    given: dict[str, Any],
    qid: Any = None,
) -> LightGBMSource:
    """Open a model with its training data; ``given`` are parameters that the user states."""
    model, booster = open_booster(model)
    held = label_first(model.objective) if isinstance(model, lgb.LGBMModel) else None
    own, given = take_functions(given, held)
    return LightGBMSource(model, booster, given, X, y, sample_weight, baseline, qid, own=own)


class LightGBMSource(BaseSource):
    """A LightGBM model with its training data."""

    tolerance = 1e-7  # terms are rounded to float32 as LightGBM does, so replays agree to 1e-12

    def __init__(
        self,
        model: Any,
        booster: lgb.Booster,
        given: dict[str, Any],
        X: Any,
        y: Any,
        sample_weight: Any,
        baseline: Any,
        qid: Any = None,
        *,
        own: OwnFunctions | None = None,
    ) -> None:
        self.model = model
        self.own = own
        self.name = type(model).__name__
        self.booster = booster
        self.parsed = read(booster.model_to_string())  # up to the best iteration, as predictions
        # LightGBM reports it without the s, which its aliases have.
        self._given = {ALIASES.get(name, name): value for name, value in given.items()}
        self._reported, self._rounded = self._parameters()
        refuse_unsupported(self.parsed, self._reported, own is not None)
        self._class_weights = self._class_weights_of_model()
        self._set_label_kind(y)
        self._run = self._training_run(X, y, sample_weight, baseline, qid)
        self.ensemble, self.params, self.notes = self._complete(self._run)
        if "sqrt" in self.parsed.objective:
            self.target = root_unit(self._data[1])
        if self.parsed.objective[0] == INTENSITY and own is None:
            self.notes.append("weights are intensities: influence is that of a copy of a row")
        # Rankers add up pairs in float32; columns that almost follow from others multiply rounding.
        if self._loses_digits() or self.queries is not None or self.ensemble.linear is not None:
            self.tolerance = 1e-6

    def _parameters(self) -> tuple[dict[str, Any], list[str]]:
        """The parameters with those that the user gives, and the names of those with six digits."""
        params, rounded = parameters(self.parsed.params, self.booster.params)
        if unknown := sorted(set(self._given) - set(params)):
            raise InvalidInput(
                f"params has {', '.join(unknown)}, which this LightGBM model does not report; its parameters are "
                f"{', '.join(sorted(params))}."
            )
        params = with_old_leaves(params | self._given, self.parsed)
        return params, [name for name in rounded if name not in self._given]

    def _training_run(
        self, X: Any, y: Any, sample_weight: Any, baseline: Any, qid: Any
    ) -> LightGBMRun:
        """Put the trees and the training rows together. Labels and weights may be in a Dataset."""
        if isinstance(X, lgb.Dataset):
            X.construct()
            y = X.get_label() if y is None else y
            sample_weight = X.get_weight() if sample_weight is None else sample_weight
        leaves, offset = self.training_rows(X, baseline)
        leaves = as_trained(with_linear_columns(self.parsed, leaves, X, self._table))
        n = leaves.shape[1]
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        codes = super().labels(y, n, "y_train")
        weight = inputs.weights(sample_weight, n)
        self._data = X, codes, weight, offset
        qid = self.own_queries(X) if qid is None else qid
        self.queries = training_queries(qid, n, self.parsed.objective[0] in RANKING)
        return LightGBMRun(
            parsed=self.parsed,
            leaves=leaves,
            y=self._as_fitted(codes),
            sample_weight=weight,
            class_weight=self._class_weight(codes),
            offset=offset,
            version=VERSION,
            queries=self.queries,
            own=self.own,
            classes=0 if self.classes is None else len(self.classes),
        )

    def _complete(self, run: LightGBMRun) -> tuple[Ensemble, dict[str, Any], list[str]]:
        """The ensemble, its parameters, and notes on what was drawn again or recovered."""
        return complete_ensemble(run, self._reported, self._rounded, self._given)

    def _loses_digits(self) -> bool:
        """Whether some terms or parameters are not known to their last digit.

        With one against all, class weights and GOSS's factor share a number.
        """
        goss = self._reported["data_sample_strategy"] == "goss"
        if goss and self.parsed.objective[0] == "multiclassova":
            return True
        return any(self.params[name] != self._reported[name] for name in self._rounded)

    # ---- labels and weights ----

    def _set_label_kind(self, y: Any) -> None:
        """Set the range of labels, and the classes of a classifier."""
        if self.parsed.objective[0] in RANKING:
            self.label_range = (0.0, len(label_gains(self._reported)) - 1.0)
            return
        K = self.parsed.outputs
        if isinstance(self.model, lgb.LGBMClassifier):
            self.classes = np.asarray(self.model.classes_)
        elif self.own is not None and K > 1 and are_class_numbers(y, K):
            self.classes = np.arange(K)
        if self.own is not None:
            return
        kind = objective(self.parsed.objective[0], self._reported, K, False, VERSION)
        self.label_range = kind.labels
        if kind.classes and self.classes is None:
            self.classes = np.arange(kind.classes)

    def _class_weights_of_model(self) -> Any:
        """The wrapper's class_weight, which objectives of users without an argument for it ignore."""
        if not isinstance(self.model, lgb.LGBMClassifier):
            return None
        held = self.model.objective
        return None if callable(held) and not takes_weights(held) else self.model.class_weight

    def labels(self, y: Any, length: int, name: str) -> F64:
        return self._as_fitted(super().labels(y, length, name))

    def _as_fitted(self, y: F64) -> F64:
        return rounded_root(y) if "sqrt" in self.parsed.objective else y

    def own_labels(self, X: Any) -> Any | None:
        return X.construct().get_label() if isinstance(X, lgb.Dataset) else None

    def own_queries(self, X: Any) -> Any | None:
        return X.construct().get_group() if isinstance(X, lgb.Dataset) else None

    def _class_weight(self, y: F64) -> F64:
        """(n,) the wrapper's class_weight, by which it multiplies sample weights."""
        given = self._class_weights
        codes = y.astype(int)
        if given is None or self.classes is None:
            return np.ones(len(y))
        if isinstance(given, str):  # "balanced"
            counts = np.bincount(codes)
            return len(y) / (np.count_nonzero(counts) * counts[codes])
        return np.array([float(given.get(label, 1.0)) for label in self.classes.tolist()])[codes]

    def rebased(self, base: F64) -> Ensemble:
        return self._complete(replace(self._run, base=base))[0]

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        class_weight = factor if base_factor is None else base_factor
        return f32(codes), f32(weight * class_weight) * (factor / class_weight)

    # ---- rows ----

    @works_in_forks
    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        table = self._table(X)
        K = self.parsed.outputs
        m = table_length(table)
        if baseline is None and isinstance(X, lgb.Dataset):
            baseline = X.get_init_score()
        if baseline is not None and K > 1 and np.shape(baseline) == (m * K,):
            # LightGBM's own order: class after class.
            baseline = np.reshape(baseline, (m, K), order="F")
        leaves = self._own_leaves.find(
            m, lambda: compared_numbers(table), lambda rows: self._leaves(table, rows)
        )
        leaves = with_linear_columns(self.parsed, leaves, X, self._table)
        return leaves, given_scores(baseline, "baseline", m, K)

    def _leaves(self, table: Any, rows: Ints | None) -> Ids:
        """(trees, m) leaves of these rows of a table, or of all, by LightGBM."""
        some = table if rows is None else inputs.take_rows(table, rows)
        numbers = leaf_numbers(self.booster, some, self.parsed)
        parsed = self.parsed
        return pack_leaves(numbers, parsed.tree_leaves, parsed.step_trees, table_length(some))

    @cached_property
    def _own_leaves(self) -> OwnLeaves:
        trees = [routes_of(tree) for tree in self.parsed.trees]
        return LeavesByNodes(trees, self.parsed.tree_leaves, self.parsed.step_trees)

    @works_in_forks
    def split_search(self) -> SplitSearch:
        values = columns_of_training(self.split_columns, self._data[0])
        return split_search(self._run, self.params, values)

    @works_in_forks
    def split_columns(self, X: Any) -> F64:
        return split_columns(self.parsed, self.params, self._table(X))

    tree_paths = works_in_forks(tree_paths)

    @works_in_forks
    def structure(self) -> bytes:
        return self.booster.model_to_string().partition("end of trees")[0].encode()

    def _table(self, X: Any) -> Any:
        return model_table(self.booster, X)

    def own_predictions(self, F: F64) -> NDArray[Any]:
        if self.own is not None:
            return F[:, 0] if self.parsed.outputs == 1 else F
        if isinstance(self.model, lgb.LGBMClassifier):
            return super().own_predictions(F)
        if "sqrt" in self.parsed.objective:
            return signed_square(F)
        if self.parsed.objective[0] == INTENSITY:
            return np.logaddexp(0.0, F[:, 0])
        response = self.own_response(F)
        return response[:, 1] if response.ndim == 2 and self.parsed.outputs == 1 else response

    def refitted_model(self, e: Ensemble) -> Any:
        write = with_leaf_values if e.linear is None else with_linear_values
        booster = write(self.booster, self.parsed, self.ensemble, e)
        return with_booster(self.model, booster)

    # ---- training again ----

    @works_in_forks
    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedLightGBM:
        """Train a model with the same parameters on another training set."""
        if refitted(self.params):
            raise UnsupportedModel(
                "what Booster.refit() made cannot be retrained; trace the model it was made of."
            )
        X, y, sample_weight, offset = self._data
        reported = {k: v for k, v in self.params.items() if v != "" and k not in NOT_FOR_RETRAINING}
        params = {k: bool(v) if k in SWITCHES else v for k, v in reported.items()}
        params |= {"verbosity": -1, "metric": "None"}
        if self.own is not None:
            params["objective"] = training_objective(self.own)
        if params["data_sample_strategy"] != "goss":  # which draws other rows with other threads
            params["num_threads"] = threads
        codes = y if rows.y is None else super().labels(rows.y, len(y), "y")
        if rows.added is not None:
            new, labels, w = rows.added
            rows = replace(
                rows, added=(self._table(new), super().labels(labels, len(labels), "y_new"), w)
            )
        codes = replace(rows, y=codes).labels(y)
        weight = cast(F64, rows.weights(sample_weight))
        offset = rows.offset(offset)
        training = rows.table(self._table(X))
        sizes = None if self.queries is None else self.queries.take(rows.keep).sizes
        data = lgb.Dataset(
            training,
            label=codes,
            group=sizes,
            weight=weight * self._class_weight(codes),
            init_score=offset if offset is None or self.parsed.outputs > 1 else offset[:, 0],
            categorical_feature=[
                int(c) for c in re.findall(r"\d+", str(self.params["categorical_feature"]))
            ],
            params=params,
        )
        with while_training(), training_errors("LightGBM", lgb.basic.LightGBMError):
            booster = self._train(params, data, rows.eval_set)
        labels = codes if self.classes is None else self.classes[codes.astype(int)]
        return RetrainedLightGBM(
            booster,
            self,
            (training, labels, weight, offset, sizes),
            self._rounds(booster, rows.eval_set is not None),
        )

    def _train(
        self, params: dict[str, Any], data: lgb.Dataset, eval_set: EvalSet | None
    ) -> lgb.Booster:
        """Train for as many rounds as the model has, or until early stopping on other rows."""
        rates = np.asarray(self.ensemble.learning_rate) * self._run.steepness(self.params)
        varies = bool(rates.ndim) and params["boosting"] != "dart"
        callbacks: list[Any] = [stop_callback]
        if varies:
            callbacks.append(lgb.reset_parameter(learning_rate=rates.tolist()))
        rounds = self.parsed.iterations
        if eval_set is None:
            return lgb.train(params, data, num_boost_round=rounds, callbacks=callbacks)
        if varies:
            raise UnsupportedModel(
                "early stopping cannot be repeated where the learning rate changes with the rounds, as it is not known "
                "for further rounds; leave eval_set out."
            )
        params |= stopping_params(self.params, stopped_early(self.booster, self.params, rounds))
        sets = [self._eval_data(data, rows) for rows in eval_set]
        most = int(self.params.get("num_iterations", rounds))
        return lgb.train(params, data, most, valid_sets=sets, callbacks=callbacks)

    def _eval_data(self, data: lgb.Dataset, rows: EvalRows) -> lgb.Dataset:
        """Rows that decide when to stop, with the bins of the training rows."""
        X, y, weight = rows
        scores = None
        if isinstance(X, lgb.Dataset):
            y = self.own_labels(X) if y is None else y
            weight = X.get_weight() if weight is None else weight
            scores = X.get_init_score()
        table = self._table(X)
        codes = super().labels(y, table_length(table), "the labels of eval_set")
        return data.create_valid(table, codes, weight, init_score=scores)

    def _rounds(self, booster: lgb.Booster, repeated: bool) -> Rounds:
        """Rounds of a retrained booster beside those of the model."""
        before = self.parsed.iterations
        kept = "kept" if stopped_early(self.booster, self.params, before) else "none"
        return Rounds(known_rounds(booster), before, "repeated" if repeated else kept)

    @works_in_forks
    def moved(self, booster: lgb.Booster) -> bool:
        """Whether any two training rows are separated or joined in any tree of the other booster.

        Leaves may be numbered in another order.
        """
        if booster.num_trees() != len(self.parsed.trees):
            return True
        table = self._table(self._data[0])
        before = leaf_numbers(self.booster, table, self.parsed)
        after = leaf_numbers(booster, table, self.parsed)
        for ids, other_ids in zip(before, after, strict=True):
            pairs = len(np.unique(ids.astype(np.int64) << 32 | other_ids.astype(np.int64)))
            if not pairs == len(np.unique(ids)) == len(np.unique(other_ids)):
                return True
        return False
