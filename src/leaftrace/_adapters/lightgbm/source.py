"""LightGBM: Booster, LGBMClassifier, LGBMRegressor, and their .txt files.

How LightGBM computes a leaf (labels, weights, w g and w h in float32; scores, sums and leaves in float64):

    value = learning_rate * clip(-T(G, lambda_l1) / (H + lambda_l2 + c), +-max_delta_step)

with c = cat_l2 below a split of many categories against many. The first trees also hold the starting score. Rows drawn
at random (bagging, GOSS), forests and DART are drawn again from the seeds that the model keeps.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

from ..._data import frames, inputs
from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.progress import progress
from ..._model.ensemble import Ensemble
from ..._model.training_set import TrainingSet
from ..base import BaseSource, f32, given_scores, pack_leaves
from .ensemble import Training, refitted
from .leaves import OBJECTIVES, objective
from .model import Model, parameters, read

# Parameters that describe the finished run, its files or its machines, and not how to run again.
_NOT_FOR_RETRAINING = {
    "data", "valid", "num_iterations", "early_stopping_round", "seed", "categorical_feature", "metric", "verbosity",
    "label_column", "weight_column", "group_column", "ignore_column", "header", "two_round", "pre_partition",
    "num_machines", "local_listen_port", "time_out", "machine_list_filename", "machines", "eval_at",
}  # fmt: skip
# Reported as 0 and 1, but taken as True and False only.
_SWITCHES = {
    "deterministic", "force_col_wise", "force_row_wise", "extra_trees", "first_metric_only", "xgboost_dart_mode",
    "uniform_drop", "use_quantized_grad", "quant_train_renew_leaf", "stochastic_rounding", "linear_tree",
    "is_enable_sparse", "enable_bundle", "use_missing", "zero_as_missing", "feature_pre_filter", "is_unbalance",
    "boost_from_average", "reg_sqrt", "lambdarank_norm", "bagging_by_query", "gpu_use_dp", "precise_float_parser",
}  # fmt: skip
_VERSION = tuple(int(v) for v in re.findall(r"\d+", lgb.__version__)[:2])


def open_model(
    model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]
) -> LightGBMSource:
    if isinstance(model, (str, os.PathLike)):
        model = _load(os.fspath(model))
    if isinstance(model, lgb.LGBMModel):
        if not model.__sklearn_is_fitted__():
            raise UnsupportedModel(f"this {type(model).__name__} is not fitted; call fit() first.")
        booster = model.booster_
    elif isinstance(model, lgb.Booster):
        booster = model
    else:
        raise UnsupportedModel(
            f"{type(model).__qualname__} is not a LightGBM model; pass a Booster, LGBMClassifier or LGBMRegressor "
            "(of a CVBooster, one of its boosters with the rows of that fold)."
        )
    return LightGBMSource(model, booster, given, X, y, sample_weight, baseline)


def _load(path: str) -> lgb.Booster:
    try:
        with open(path, encoding="utf-8") as file:
            if "\nend of trees" not in file.read():  # LightGBM would take the whole process down
                raise ValueError("the trees do not end")
        return lgb.Booster(model_file=path)
    except (ValueError, lgb.basic.LightGBMError) as error:
        raise UnsupportedModel(
            f"'{path}' cannot be read as a LightGBM model; is the file whole? The reader says: {error}"
        ) from None


def _refuse(told: Model, p: dict[str, Any]) -> None:
    """Raise for settings whose leaf values are not reconstructed."""
    name = told.objective[0]
    if not any(len(tree.values) > 1 for tree in told.trees):
        raise UnsupportedModel(
            "this LightGBM model has no splits, so no training row acts through a tree."
        )
    if name in ("lambdarank", "rank_xendcg"):
        raise UnsupportedModel(
            f"the ranking objective '{name}' is not supported: its gradients are of pairs of rows. The nearest "
            "supported choice is 'regression' or 'cross_entropy' on the relevance."
        )
    if name not in OBJECTIVES:
        raise UnsupportedModel(
            f"{f'the objective {name!r}' if name else 'a custom objective'} is not supported, for its derivatives are "
            f"not known; supported objectives are {', '.join(OBJECTIVES)}."
        )
    if any(tree.linear for tree in told.trees):
        raise UnsupportedModel(
            "linear_tree=True puts linear models into leaves; train with linear_tree=False."
        )
    if any(float(v) for v in re.findall(r"-?\d+", str(p.get("monotone_constraints", "")))):
        raise UnsupportedModel(
            "monotone_constraints bound leaf values by those of other leaves, which cannot be replayed; train without."
        )
    if p.get("use_quantized_grad") and not p.get("quant_train_renew_leaf"):
        raise UnsupportedModel(
            "use_quantized_grad=True computes leaf values from gradients rounded at random; train with "
            "quant_train_renew_leaf=True, which computes them from the gradients themselves."
        )
    if p.get("bagging_by_query"):
        raise UnsupportedModel(
            "bagging_by_query draws queries, not rows; train with bagging_by_query=False."
        )
    if told.averaged and p["data_sample_strategy"] == "goss":
        raise UnsupportedModel(
            "boosting='rf' with GOSS is not supported; use data_sample_strategy='bagging'."
        )


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
    ) -> None:
        self.model = model
        self.name = type(model).__name__
        self.booster = booster
        self.told = read(
            booster.model_to_string()
        )  # up to the best iteration, as predict() takes it
        params, rounded = parameters(self.told.params, booster.params)
        if strangers := sorted(set(given) - set(params)):
            raise InvalidInput(
                f"params has {', '.join(strangers)}, which this LightGBM model does not report; its parameters are "
                f"{', '.join(sorted(params))}."
            )
        params |= given
        _refuse(self.told, params)
        self._class_weights = model.class_weight if isinstance(model, lgb.LGBMClassifier) else None
        self._labels_of(model, params)
        if isinstance(X, lgb.Dataset):
            y = X.construct().get_label() if y is None else y
            sample_weight = X.get_weight() if sample_weight is None else sample_weight
        leaves, offset = self.training_rows(X, baseline)
        n = leaves.shape[1]
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        own = super().labels(y, n, "y_train")
        weight = inputs.weights(sample_weight, n)
        self._data = X, own, weight, offset
        rows = leaves, self._transformed(own), weight, self._class_weight(own), offset
        training = Training(self.told, *rows, version=_VERSION)
        rounded = [name for name in rounded if name not in given]
        self._recalled = training, params, rounded, given
        self.ensemble, self.params, self.notes = training.recall(params, rounded, given)
        self._factor = training.factor(self.params)
        # One against all, class weights and GOSS's factor share a number, and not every parameter is recovered to its
        # last digit.
        goss = (
            params["data_sample_strategy"] == "goss" and self.told.objective[0] == "multiclassova"
        )
        if goss or any(self.params[name] != params[name] for name in rounded):
            self.tolerance = 1e-6

    # ---- labels and weights ----

    def _labels_of(self, model: Any, params: dict[str, Any]) -> None:
        kind = objective(self.told.objective[0], params, self.told.outputs, False, _VERSION)
        self.label_range = kind.labels
        if isinstance(model, lgb.LGBMClassifier):
            self.classes = np.asarray(model.classes_)
        elif kind.classes:
            self.classes = np.arange(kind.classes)

    def labels(self, y: Any, length: int, name: str) -> F64:
        return self._transformed(super().labels(y, length, name))

    def _transformed(self, y: F64) -> F64:
        """reg_sqrt fits the square root."""
        return np.sign(y) * f32(np.sqrt(f32(np.abs(y)))) if "sqrt" in self.told.objective else y

    def own_labels(self, X: Any) -> Any | None:
        return X.construct().get_label() if isinstance(X, lgb.Dataset) else None

    def _class_weight(self, y: F64) -> F64:
        """(n,) the wrapper's class_weight, which it multiplies sample weights with."""
        given = self._class_weights
        codes = y.astype(int)
        if given is None or self.classes is None:
            return np.ones(len(y))
        if isinstance(given, str):  # "balanced"
            counts = np.bincount(codes)
            return len(y) / (np.count_nonzero(counts) * counts[codes])
        return np.array([float(given.get(label, 1.0)) for label in self.classes.tolist()])[codes]

    def rebased(self, base: F64) -> Ensemble:
        training, params, rounded, given = self._recalled
        return replace(training, base=base).recall(params, rounded, given)[0]

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        class_weight = factor if base_factor is None else base_factor
        return f32(codes), f32(weight * class_weight) * (factor / class_weight)

    # ---- rows ----

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        table = self._table(X)
        K = self.told.outputs
        m = _length(table)
        if baseline is None and isinstance(X, lgb.Dataset):
            baseline = X.get_init_score()
        if baseline is not None and K > 1 and np.shape(baseline) == (m * K,):
            baseline = np.reshape(
                baseline, (m, K), order="F"
            )  # LightGBM's own order: class after class
        leaves = pack_leaves(
            self._leaf_numbers(table), self.told.tree_leaves, self.told.step_trees, m
        )
        return leaves, given_scores(baseline, "baseline", m, K)

    def structure(self) -> bytes:
        return self.booster.model_to_string().partition("end of trees")[0].encode()

    def _leaf_numbers(self, table: Any, booster: lgb.Booster | None = None) -> Iterator[np.ndarray]:
        """Tree by tree (n,) the leaf of each row."""
        n = _length(table)
        K = self.told.outputs
        T = self.told.iterations
        at_once = max(
            1, 200_000_000 // (8 * max(n, 1) * K)
        )  # LightGBM answers in float64, rows first
        starts = range(0, T if n else 0, at_once)
        for start in progress(starts, T, "leaves", "step", at_once):
            count = min(at_once, T - start)
            yield from self._predict(
                table, booster, start_iteration=start, num_iteration=count, pred_leaf=True
            ).T

    def _predict(self, table: Any, booster: lgb.Booster | None, **how: Any) -> np.ndarray:
        """(n, ...)"""
        try:
            found = np.asarray((booster or self.booster).predict(table, **how))
        except (ValueError, TypeError, lgb.basic.LightGBMError) as error:
            raise InvalidInput(f"LightGBM cannot read these rows: {error}") from None
        return found.reshape(_length(table), -1)

    def _table(self, X: Any) -> Any:
        """X as LightGBM takes it: the model's columns in their order, by name where there are names."""
        if isinstance(X, lgb.Dataset):
            try:
                X = X.construct().get_data()
            except lgb.basic.LightGBMError:
                raise InvalidInput(
                    "this lightgbm.Dataset has freed its raw data, so its rows cannot be put through the trees; make "
                    "it with free_raw_data=False, or pass the table itself."
                ) from None
        names = self.booster.feature_name()
        frame = frames.kind(X)
        if frame or hasattr(X, "iloc"):
            given = [
                str(c).replace(" ", "_") for c in (frames.as_narwhals(X) if frame else X).columns
            ]  # as LightGBM does
            X = frames.renamed(X, given) if frame else X.set_axis(given, axis=1)
            if names == [f"Column_{i}" for i in range(len(names))] and not set(names) & set(given):
                names = [
                    str(i) for i in range(len(names))
                ]  # trained on an array, whose columns have no names
        elif issparse(X):
            X = csr_matrix(X)
        X = inputs.columns(X, names)
        # Of polars and Arrow LightGBM takes numbers alone; met by anything else it ends the whole process.
        if frame and (frames.has_categories(X, "LightGBM") or _VERSION < (4, 7)):
            X = frames.to_pandas(X)
        if hasattr(X, "iloc") and (known := self.booster.pandas_categorical):
            given = [name for name, dtype in X.dtypes.items() if dtype == "category"]
            X = frames.order_categories(X, dict(zip(given, known, strict=False)))
        return X

    # ---- training again ----

    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedLightGBM:
        if refitted(self.params):
            raise UnsupportedModel(
                "what Booster.refit() made cannot be retrained; trace the model it was made of."
            )
        X, y, sample_weight, offset = self._data
        told = {k: v for k, v in self.params.items() if v != "" and k not in _NOT_FOR_RETRAINING}
        params = {k: bool(v) if k in _SWITCHES else v for k, v in told.items()}
        params |= {"verbosity": -1, "metric": "None"}
        if params["data_sample_strategy"] != "goss":  # which draws other rows with other threads
            params["num_threads"] = threads
        codes = y if rows.y is None else super().labels(rows.y, len(y), "y")
        if rows.added is not None:
            new, labels, w = rows.added
            rows = replace(
                rows, added=(self._table(new), super().labels(labels, len(labels), "y_new"), w)
            )
        table = self._table(X)
        codes = replace(rows, y=codes).labels(y)
        weight = cast(F64, rows.weights(sample_weight))
        offset = rows.offset(offset)
        training = rows.table(table)
        data = lgb.Dataset(
            training,
            label=codes,
            weight=weight * self._class_weight(codes),
            init_score=offset if offset is None or self.told.outputs > 1 else offset[:, 0],
            categorical_feature=[
                int(c) for c in re.findall(r"\d+", str(self.params["categorical_feature"]))
            ],
            params=params,
        )
        rates = np.asarray(self.ensemble.learning_rate) * self._factor
        callbacks = []
        if rates.ndim and params["boosting"] != "dart":
            callbacks = [lgb.reset_parameter(learning_rate=rates.tolist())]
        booster = lgb.train(params, data, num_boost_round=self.told.iterations, callbacks=callbacks)
        labels = codes if self.classes is None else self.classes[codes.astype(int)]
        return RetrainedLightGBM(
            booster, self._moved(booster, table), self, (training, labels, weight, offset)
        )

    def _moved(self, booster: lgb.Booster, table: Any) -> bool:
        """Whether any two training rows part or meet in any tree of the other booster. (Leaves may be renumbered.)"""
        if booster.num_trees() != len(self.told.trees):
            return True
        for ids, others in zip(
            self._leaf_numbers(table), self._leaf_numbers(table, booster), strict=True
        ):
            pairs = len(np.unique(ids.astype(np.int64) << 32 | others.astype(np.int64)))
            if not pairs == len(np.unique(ids)) == len(np.unique(others)):
                return True
        return False


def _length(table: Any) -> int:
    return table.shape[0] if hasattr(table, "shape") else len(table)


@dataclass(frozen=True)
class RetrainedLightGBM:
    """LightGBM trained again."""

    booster: lgb.Booster
    structure_changed: bool
    source: LightGBMSource
    training: tuple[Any, NDArray[Any], F64, F64 | None]  # table, labels, weights, given scores

    def scores(self, X: Any) -> F64:
        total = self.source._predict(self.source._table(X), self.booster, raw_score=True)
        return total / self.booster.current_iteration() if self.source.told.averaged else total

    def open(self) -> LightGBMSource:
        return LightGBMSource(self.source.model, self.booster, {}, *self.training)
