"""CatBoost: CatBoostClassifier, CatBoostRegressor, CatBoost, and their .cbm / .json files.

How CatBoost computes a leaf (CPU, float64; targets, weights, learning rate and l2 are rounded to float32):

    lam = l2_leaf_reg * sum(w) / n           n counts rows of weight zero
    value = learning_rate * sum of leaf_estimation_iterations steps -G / (H + lam), or -G / (W + lam)

Bootstrap, random_strength, rsm and Ordered boosting change which tree is grown, never what its leaves hold.
Target statistics of categories decide which leaf a row sits in: see statistics.py.
With model_shrink_rate all that was learned before is multiplied by a number below one before each step.
"""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data import frames, inputs
from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.parquet import PartedTable
from ..._data.progress import progress
from ..._model.ensemble import BASE, Ensemble, LeafRule, Recorded
from ..._model.training_set import TrainingSet
from ..base import BaseSource, cumulative, f32, given_scores
from .file import leaf_weights, written
from .losses import EXPONENTIAL, LABELS, OF_CLASSES, objective
from .recorder import record
from .statistics import Rows, statistics, training_leaves

_METHODS = {"Newton": True, "Gradient": False, "Simple": False, "Exact": False}
_ROWS_AT_ONCE = 1 << 15
_VERSION = tuple(int(v) for v in re.findall(r"\d+", catboost.__version__)[:3])
_SHRINKING_TREES = 200  # each step moves all before it: their number squared in all
# Resolved parameters that describe the finished run and not how to run again.
_NOT_FOR_RETRAINING = {
    "pool_metainfo_options",
    "use_best_model",
    "best_model_min_trees",
    "classes_count",
    "eval_fraction",
    "force_unit_auto_pair_weights",
    "od_type",
    "od_wait",
    "od_pval",
}


def open_model(
    model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]
) -> CatBoostSource:
    if isinstance(model, (str, os.PathLike)):
        model = _load(os.fspath(model))
    if not isinstance(model, catboost.CatBoost):
        raise UnsupportedModel(
            f"{type(model).__qualname__} is not a CatBoost model; pass the model itself."
        )
    if not model.is_fitted():
        raise UnsupportedModel(f"this {type(model).__name__} is not fitted; call fit() first.")
    if not model.tree_count_:
        raise UnsupportedModel(
            "this CatBoost model has no trees, so no training row acts through one."
        )
    params = model.get_all_params()
    if strangers := sorted(set(given) - set(params)):
        raise InvalidInput(
            f"params has {', '.join(strangers)}, which this CatBoost model does not report; use the names of "
            "get_all_params()."
        )
    params |= given
    _refuse(model, params)
    return CatBoostSource(model, params, X, y, sample_weight, baseline)


def _load(path: str) -> catboost.CatBoost:
    with open(path, "rb") as file:
        kind = "cbm" if file.read(4) == b"CBM1" else "json"
    try:
        if kind == "json":  # CatBoost takes any text for an empty model
            with open(path, encoding="utf-8") as file:
                json.load(file)["model_info"]
        return catboost.CatBoost().load_model(path, format=kind)
    except (catboost.CatBoostError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedModel(
            f"'{path}' cannot be read as a CatBoost {kind} model; is the file whole? The reader says: {error}"
        ) from None


def _refuse(model: catboost.CatBoost, params: dict[str, Any]) -> None:
    """Raise for settings whose leaf values are not reconstructed."""
    method = params["leaf_estimation_method"]
    if method not in _METHODS:
        raise UnsupportedModel(
            f"leaf_estimation_method='{method}' is not supported; use 'Newton' or 'Gradient'."
        )
    if any(_constraints(params.get("monotone_constraints"))):
        raise UnsupportedModel(
            "monotone_constraints move leaf values in a way that cannot be replayed; train without."
        )
    if params.get("langevin") or params.get("posterior_sampling"):
        raise UnsupportedModel(
            "langevin and posterior_sampling add noise to leaf values; train without them."
        )
    if params.get("model_shrink_rate") and (model.tree_count_ or 0) > _SHRINKING_TREES:
        raise UnsupportedModel(
            f"model_shrink_rate is supported for up to {_SHRINKING_TREES} trees (this model has {model.tree_count_}), "
            "as every step then moves all before it; train with fewer trees or with model_shrink_rate=0."
        )
    if np.any(np.asarray(model.get_scale_and_bias()[0]) != 1):
        raise UnsupportedModel(
            "this model's predictions were rescaled (set_scale_and_bias); pass it as trained."
        )
    if model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise UnsupportedModel(
            "text and embedding features are not supported; train on numeric and category columns."
        )


def _constraints(value: Any) -> list[int]:
    """monotone_constraints as numbers, from any of the forms CatBoost keeps them in."""
    if not value:
        return []
    if isinstance(value, str):
        value = value.strip("()").replace(":", ",").split(",")
        return [int(float(v)) for v in value if v.strip().lstrip("+-").isdigit()]
    return [int(v) for v in (value.values() if isinstance(value, dict) else value)]


def _leaves(model: catboost.CatBoost, pool: catboost.Pool) -> Ids:
    """(trees, rows) leaf numbers in the smallest type that holds them."""
    small = np.uint8 if max(model.get_tree_leaf_counts()) <= 256 else np.uint16
    trees = len(model.get_tree_leaf_counts())
    rows = pool.num_row()
    out = np.empty((trees, rows), small)
    # CatBoost answers in uint32, rows first. Some rows at a time keep that small, and parts on threads of our own are
    # faster than its threads on a part; a pool with groups of rows, which only ranking needs, cannot be cut.
    at_once = _ROWS_AT_ONCE if pool.get_group_id_hash() is None else max(rows, 1)

    def fill(start: int) -> None:
        stop = min(start + at_once, rows)
        whole = stop - start == rows
        ids = model.calc_leaf_indexes(
            pool if whole else pool.slice(np.arange(start, stop)), thread_count=-1 if whole else 1
        )
        for row in range(start, stop, 4096):  # a transposition that stays in the cache
            end = min(row + 4096, stop)
            out[:, row:end] = ids[row - start : end - start].astype(small).T

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        starts = range(0, rows, at_once)
        for _ in progress(threads.map(fill, starts), rows, "leaves", "row", at_once):
            pass
    return out


def _shrinkage(params: dict[str, Any], T: int) -> F64 | None:
    """(T,) what the scores are multiplied with before each step."""
    rate = float(np.float32(params.get("model_shrink_rate") or 0))
    if not rate:
        return None
    if params["model_shrink_mode"] == "Constant":
        shrink = np.full(T, 1 - rate * float(np.float32(params["learning_rate"])))
    else:
        shrink = 1 - rate / np.maximum(np.arange(T), 1.0)
    shrink[0] = 1
    return shrink


def _moves(shrink: F64) -> list[list[tuple[int, float]]]:
    """A <- shrink[t] A before step t, as moves of all steps before it and of the starting score."""
    moves: list[list[tuple[int, float]]] = [[]]
    # of the steps before, as they stand in the scores
    weight = np.zeros(0)
    base = 1.0
    for t in range(1, len(shrink)):
        now = shrink[t] * np.append(weight, 1.0)
        steps = [(r, float(c)) for r, c in enumerate(now - np.append(weight, 0.0))]
        moves.append([(BASE, base * (shrink[t] - 1)), *steps])
        weight = now
        base = base * shrink[t]
    return [*moves, [(len(shrink) - 1, 1.0)]]


def _readable(X: Any) -> Any:
    """X, or of a table that CatBoost does not take a DataFrame."""
    if frames.kind(X) == "polars" and _VERSION >= (1, 2, 10):
        return frames.categories_as_text(X)  # which CatBoost makes of them anyway
    return frames.to_pandas(X)


class CatBoostSource(BaseSource):
    """A CatBoost model with its training data."""

    tolerance = (
        1e-7  # float64 throughout: replays agree to 1e-12, or to 1e-8 with a baseline (float32)
    )

    def __init__(
        self,
        model: catboost.CatBoost,
        params: dict[str, Any],
        X: Any,
        y: Any,
        sample_weight: Any,
        baseline: Any,
    ) -> None:
        self.model = model
        self.params = params
        self.name = type(model).__name__
        self.counts = np.asarray(model.get_tree_leaf_counts(), dtype=np.int64)
        self.values = np.asarray(model.get_leaf_values(), dtype=np.float64).reshape(
            int(self.counts.sum()), -1
        )
        self.loss_name = params["loss_function"].partition(":")[0]
        self.objective = objective(
            params["loss_function"],
            self.values.shape[1],
            params["leaf_estimation_method"] == "Exact",
        )
        classes = np.asarray(model.classes_ if self.loss_name in OF_CLASSES else [])
        self.classes = classes if len(classes) else None
        if isinstance(X, catboost.Pool):
            y = X.get_label() if y is None else y
            sample_weight = X.get_weight() if sample_weight is None else sample_weight
        leaves, offset = self.training_rows(X, baseline)
        n = leaves.shape[1]
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        self._data = X, inputs.vector(y, "y_train", n), inputs.weights(sample_weight, n), offset
        self.ensemble = self._ensemble(leaves, offset)

    def _ensemble(self, leaves: Ids, offset: F64 | None) -> Ensemble:
        params = self.params
        K = self.values.shape[1]
        T = len(self.counts)
        _, labels, sample_weight, _ = self._data
        codes = self.labels(labels, len(labels), "y_train")
        class_weight = np.ones(len(labels))
        if params.get("class_weights") and self.classes is not None:
            class_weight = f32(params["class_weights"])[codes.astype(int)]
        y = f32(codes)
        w = f32(sample_weight.astype(np.float32) * class_weight.astype(np.float32))
        iterations = int(params["leaf_estimation_iterations"])
        newton = _METHODS[params["leaf_estimation_method"]]
        rule = LeafRule(
            newton,
            l2=float(np.float32(params["l2_leaf_reg"])),
            l2_scales=True,
            lam_float32=newton and K > 1,
            diagonal=self.loss_name == "MultiClassOneVsAll",
            iterations=iterations,
            backtracking=iterations > 1
            and params.get("leaf_estimation_backtracking", "No") != "No",
            statistic=self.objective.statistic,
        )
        values = self.values
        moves = None
        base = np.broadcast_to(
            np.asarray(self.model.get_scale_and_bias()[1], dtype=np.float64), (K,)
        ).copy()
        if (
            shrink := _shrinkage(params, T)
        ) is not None:  # the model has what is left of values at its end
            later = np.append(
                np.cumprod(shrink[:0:-1])[::-1], 1.0
            )  # (T,) product over the steps after each
            values = values / np.repeat(later, self.counts)[:, None]
            base = base / np.prod(shrink)
            moves = _moves(shrink)
            if self.loss_name in EXPONENTIAL:
                self.notes = [_SHRUNK]
        averaged = bool(params.get("boost_from_average"))
        weights = self._leaf_weights(w)
        return Ensemble(
            loss=self.objective.loss,
            rule=rule,
            learning_rate=float(np.float32(params["learning_rate"])),
            leaves=self._training_leaves(y, w, leaves, offset)
            if self._splits_on_targets
            else leaves,
            first_output=np.zeros(T, np.int32),
            step_trees=np.arange(T + 1),
            tree_leaves=cumulative(self.counts),
            values=values,
            y=y,
            w=w,
            w_factor=class_weight,
            base=base,
            base_rule=self.objective.base if averaged and offset is None else None,
            offset=offset,
            moves=moves,
            recorded=None if weights is None else Recorded("weight", weights),
        )

    def _training_leaves(self, y: F64, w: F64, leaves: Ids, offset: F64 | None) -> Ids:
        """Where training had the rows, of a model that splits on target statistics."""
        X = self._data[0]
        if isinstance(X, PartedTable):
            raise UnsupportedModel(
                "this model splits on target statistics of category columns, which depend on all rows at once, so it "
                "cannot be read part by part; pass the whole table: Tracer(model, X_train, y_train)."
            )
        table = X if isinstance(X, catboost.Pool) else self._table(X)
        rows = Rows(table, self._training_pool, y, w, leaves)
        leaves, confirmed = training_leaves(self.model, self._written, self.params, rows)
        self.notes = [*self.notes, _NOTE + ("" if confirmed else _NOT_CONFIRMED)]
        recorded = getattr(self.model, _RECORDED, None)
        if recorded is not None and len(recorded) == len(y):
            scores = np.asarray(self.model.get_scale_and_bias()[1]) + (
                0.0 if offset is None else offset
            )
            for ids, values in zip(
                leaves, np.split(self.values, cumulative(self.counts)[1:-1]), strict=True
            ):
                scores = scores + values[ids]
            error = float(np.abs(scores - recorded).max()) / max(1.0, float(np.abs(recorded).max()))
            same = "confirm" if error <= self.tolerance else "do not confirm"
            self.notes = [
                *self.notes,
                f"the recorded scores of all rows {same} them (largest difference {error:.0e})",
            ]
        return leaves

    def _leaf_weights(self, w: F64) -> F64 | None:
        """(leaves,) as training recorded them. With category columns, whether or not a tree splits on one, each row may
        count with another row's weight. Where weights differ that tells nothing, and `training_leaves` does the check
        for trees that split on target statistics."""
        if self.model.get_cat_feature_indices() and np.ptp(w) > 0:
            return None
        if self.values.shape[1] == 1:
            return np.asarray(self.model.get_leaf_weights())
        return leaf_weights(self.model, self._written)

    @cached_property
    def _written(self) -> dict[str, Any]:
        """The model as a json file has it."""
        return written(self.model)

    def structure(self) -> bytes:
        parts = [
            self._written.get(name)
            for name in ("features_info", "oblivious_trees", "trees", "ctr_data")
        ]
        return json.dumps(parts, sort_keys=True).encode()

    @cached_property
    def _splits_on_targets(self) -> bool:
        return bool(self.model.get_cat_feature_indices()) and bool(statistics(self._written))

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        leaves = _leaves(self.model, self._pool(X))
        if baseline is None and isinstance(X, catboost.Pool):
            given = np.asarray(X.get_baseline(), dtype=np.float64)
            baseline = given if given.size else None
        offset = given_scores(baseline, "baseline", leaves.shape[1], self.values.shape[1])
        return leaves, None if offset is None else f32(offset)

    def _table(self, X: Any) -> Any:
        """X with the model's columns in the model's order, as CatBoost takes it."""
        return _readable(inputs.columns(X, list(self.model.feature_names_ or [])))

    def _pool(self, X: Any, **extra: Any) -> catboost.Pool:
        if isinstance(X, catboost.Pool):
            return X
        X = self._table(X)
        try:
            return catboost.Pool(X, cat_features=self.model.get_cat_feature_indices(), **extra)
        except catboost.CatBoostError as error:
            raise InvalidInput(f"CatBoost cannot read these rows: {error}") from None

    def own_labels(self, X: Any) -> Any | None:
        return X.get_label() if isinstance(X, catboost.Pool) and X.has_label() else None

    def labels(self, y: Any, length: int, name: str) -> F64:
        numbers = super().labels(y, length, name)
        low, high, words = LABELS[self.loss_name]
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

    @cached_property
    def _training_pool(self) -> catboost.Pool:
        X, y, sample_weight, offset = self._data
        return (
            X
            if isinstance(X, catboost.Pool)
            else self._pool(X, label=y, weight=sample_weight, baseline=offset)
        )

    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedCatBoost:
        model = catboost.CatBoost(_again(self.model, self.params) | {"thread_count": threads})
        X, y, weight, offset = self._data
        training = rows.labels(y), rows.weights(weight), rows.offset(offset)
        if rows.y is None and rows.added is None:
            pool = self._training_pool.slice(rows.keep.tolist())
            if rows.sample_weight is not None:
                pool.set_weight(training[1])
            table = pool if isinstance(X, catboost.Pool) else rows.table(X)
        elif isinstance(X, catboost.Pool):
            raise InvalidInput(
                "labels and rows of a Pool cannot be changed; pass X_train and y_train as a table."
            )
        else:
            table = rows.table(X)
            pool = self._pool(table, label=training[0], weight=training[1], baseline=training[2])
        model.fit(pool)
        every = self._training_pool
        before = _leaves(self.model, every) if self._splits_on_targets else self.ensemble.leaves
        return RetrainedCatBoost(
            model, not np.array_equal(_leaves(model, every), before), self, (table, *training)
        )


def _again(model: catboost.CatBoost, reported: dict[str, Any]) -> dict[str, Any]:
    """Parameters that train this model again."""
    params = {k: v for k, v in reported.items() if k not in _NOT_FOR_RETRAINING}
    # Balanced class weights were resolved for all rows; let CatBoost balance the remaining ones.
    params.pop(
        "auto_class_weights" if params.get("auto_class_weights") == "None" else "class_weights",
        None,
    )
    if len(model.get_leaf_values()) > sum(
        model.get_tree_leaf_counts()
    ):  # set by the number of classes, by no one else
        params.pop("ctr_target_border_count", None)
        for key in params.keys() & {"simple_ctr", "combinations_ctr", "per_feature_ctr"}:
            params[key] = [re.sub(r":TargetBorderCount=\d+", "", text) for text in params[key]]
    return params | {
        "iterations": model.tree_count_,
        "allow_writing_files": False,
        "logging_level": "Silent",
    }


def record_catboost(
    model: Any, X: Any, y: Any = None, sample_weight: Any = None, baseline: Any = None, **fit: Any
) -> Any:
    """The CatBoost model, fitted, with the scores that training itself had for each row.

    A `Tracer` of the model then compares its replay of target statistics with them row by row; without a recording it
    compares the weights of leaves. An unfitted model is fitted first, with `fit` passed on. Then it is **trained
    again** with its own parameters while CatBoost shows its scores, and must come out the same to the last bit: the
    cost is that of training. The recording is not kept in saved models."""
    if not isinstance(model, catboost.CatBoost):
        raise UnsupportedModel(
            f"record_catboost is for CatBoost models; this is a {type(model).__qualname__}."
        )
    pool = X
    if not isinstance(X, catboost.Pool):
        categories = (
            model.get_cat_feature_indices()
            if model.is_fitted()
            else model.get_param("cat_features")
        )
        y, sample_weight = (None if x is None else frames.to_numpy(x) for x in (y, sample_weight))
        pool = catboost.Pool(_readable(X), y, categories, weight=sample_weight, baseline=baseline)
    if not model.is_fitted():
        model.fit(pool, **fit)
    setattr(model, _RECORDED, record(model, _again(model, model.get_all_params()), pool))
    return model


_RECORDED = "_leaftrace_scores"
_SHRUNK = "with model_shrink_rate CatBoost rounds the scores of this loss to about five digits before each step"
_NOTE = "target statistics of categories recomputed, in the random order of training, as part of the fixed structure"
_NOT_CONFIRMED = (
    ", which the weights of the leaves do not confirm (likely other training rows or labels, or a model trained on "
    "rows in groups or by another version of CatBoost)"
)


@dataclass(frozen=True)
class RetrainedCatBoost:
    """CatBoost trained again."""

    model: catboost.CatBoost
    structure_changed: bool  # does any training row fall into another leaf of any tree?
    source: CatBoostSource
    training: tuple[
        Any, NDArray[Any], F64 | None, F64 | None
    ]  # table, labels, weights, given scores

    def scores(self, X: Any) -> F64:
        pool = self.source._pool(X)
        scores = np.asarray(self.model.predict(pool, prediction_type="RawFormulaVal")).reshape(
            pool.num_row(), -1
        )
        given = np.asarray(pool.get_baseline(), dtype=np.float64)
        return (
            scores - given if given.size else scores
        )  # CatBoost adds a pool's baseline; here it is the caller's

    def open(self) -> CatBoostSource:
        return CatBoostSource(self.model, self.model.get_all_params(), *self.training)
