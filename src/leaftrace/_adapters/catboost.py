"""CatBoost: CatBoostClassifier, CatBoostRegressor, CatBoost, and their .cbm / .json files.

How CatBoost computes a leaf (CPU, float64; targets, weights, learning rate and l2 are rounded to float32):

    lam = l2_leaf_reg * sum(w) / n           n counts rows of weight zero
    value = learning_rate * sum of leaf_estimation_iterations steps -G / (H + lam), or -G / (W + lam)

Bootstrap, random_strength, rsm and Ordered boosting change which tree is grown, never what its leaves hold.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import catboost
import numpy as np

from .. import _inputs
from .._arrays import F64, Ids, Ints
from .._base import Mean
from .._ensemble import Ensemble, LeafRule, Recorded
from .._errors import InvalidInput, UnsupportedModel
from .._losses import Logistic, Loss, Poisson, Softmax, SquaredError

_TARGETS = {
    "RMSE": "finite numbers",
    "Logloss": "the model's two classes",
    "CrossEntropy": "probabilities from 0 to 1",
    "Poisson": "numbers of zero or more",
    "MultiClass": "the model's classes",
}
_LINKS: dict[str, Any] = {
    "RMSE": "identity",
    "Logloss": "logit",
    "CrossEntropy": "logit",
    "Poisson": "log",
    "MultiClass": "centred log",
}
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


def open_model(model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]) -> CatBoostSource:
    if isinstance(model, (str, os.PathLike)):
        model = _load(os.fspath(model))
    if not isinstance(model, catboost.CatBoost):
        raise UnsupportedModel(f"{type(model).__qualname__} is not a CatBoost model; pass the model itself.")
    if not model.is_fitted():
        raise UnsupportedModel(f"this {type(model).__name__} is not fitted; call fit() first.")
    if not model.tree_count_:
        raise UnsupportedModel("this CatBoost model has no trees, so no training row acts through one.")
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
    name = params["loss_function"].partition(":")[0]
    if name not in _TARGETS:
        raise UnsupportedModel(
            f"the loss '{params['loss_function']}' is not supported; supported losses are {', '.join(_TARGETS)}."
        )
    method = params["leaf_estimation_method"]
    if method not in ("Newton", "Gradient"):
        raise UnsupportedModel(f"leaf_estimation_method='{method}' is not supported; use 'Newton' or 'Gradient'.")
    if any(_constraints(params.get("monotone_constraints"))):
        raise UnsupportedModel("monotone_constraints move leaf values in a way that cannot be replayed; train without.")
    if params.get("langevin") or params.get("posterior_sampling"):
        raise UnsupportedModel("langevin and posterior_sampling add noise to leaf values; train without them.")
    if params.get("model_shrink_rate"):
        raise UnsupportedModel("model_shrink_rate is not supported; train with model_shrink_rate=0.")
    if np.any(np.asarray(model.get_scale_and_bias()[0]) != 1):
        raise UnsupportedModel("this model's predictions were rescaled (set_scale_and_bias); pass it as trained.")
    if model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise UnsupportedModel("text and embedding features are not supported; train on numeric and category columns.")
    if model.get_cat_feature_indices() and (used := _target_statistics(model)):
        raise UnsupportedModel(
            f"this model splits on target statistics of category columns ({', '.join(used)}), which CatBoost "
            "computed on the fly while training, so its training rows sat in other leaves than the finished model "
            "puts them in. Train with one_hot_max_size at least the largest number of categories, or encode the "
            "categories as numbers."
        )


def _constraints(value: Any) -> list[int]:
    """monotone_constraints as numbers, from any of the forms CatBoost keeps them in."""
    if not value:
        return []
    if isinstance(value, str):
        value = value.strip("()").replace(":", ",").split(",")
        return [int(float(v)) for v in value if v.strip().lstrip("+-").isdigit()]
    return [int(v) for v in (value.values() if isinstance(value, dict) else value)]


def _target_statistics(model: catboost.CatBoost) -> list[str]:
    """Kinds of target statistics in the model's splits. Counts of categories do not look at the target."""
    used = _exported(model)["features_info"].get("ctrs") or []
    return sorted({ctr["ctr_type"] for ctr in used} - {"Counter", "FeatureFreq"})


def _leaf_weights(model: catboost.CatBoost, outputs: int) -> F64 | None:
    """(leaves,) weights recorded in training. Those of vector leaves stand in the exported file only, and there in the
    order of the leaf numbers for symmetric trees only; for others the leaf values are the check."""
    if outputs == 1:
        return np.asarray(model.get_leaf_weights())
    trees = _exported(model).get("oblivious_trees")
    return np.concatenate([tree["leaf_weights"] for tree in trees]) if trees else None


def _exported(model: catboost.CatBoost) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        model.save_model(path, format="json")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def _f32(x: Any) -> F64:
    return np.asarray(x, np.float32).astype(np.float64)


def _leaves(model: catboost.CatBoost, pool: catboost.Pool) -> Ids:
    """(trees, rows) leaf numbers in the smallest type that holds them."""
    small = np.uint8 if max(model.get_tree_leaf_counts()) <= 256 else np.uint16
    trees, rows = len(model.get_tree_leaf_counts()), pool.num_row()
    out = np.empty((trees, rows), small)
    # CatBoost answers in uint32, rows first: some trees at a time keep that below 100 MB (and are faster).
    at_once = max(1, 100_000_000 // (4 * max(rows, 1)))
    for start in range(0, trees, at_once):
        stop = min(start + at_once, trees)
        ids = model.calc_leaf_indexes(pool, ntree_start=start, ntree_end=stop)
        for row in range(0, rows, 4096):  # a transposition that stays in the cache
            out[start:stop, row : row + 4096] = ids[row : row + 4096].T
    return out


class CatBoostSource:
    """A CatBoost model with its training data."""

    notes: Sequence[str] = ()
    tolerance = 1e-7  # float64 throughout: replays agree to 1e-12, or to 1e-8 with a baseline (float32)

    def __init__(
        self, model: catboost.CatBoost, params: dict[str, Any], X: Any, y: Any, sample_weight: Any, baseline: Any
    ) -> None:
        self.model, self.params = model, params
        self.name = type(model).__name__
        self.loss_name = params["loss_function"].partition(":")[0]
        self.targets = _TARGETS[self.loss_name]
        classes = np.asarray(model.classes_ if self.loss_name in ("Logloss", "MultiClass") else [])
        self.classes = classes if len(classes) else None
        if isinstance(X, catboost.Pool):
            y = X.get_label() if y is None else y
            sample_weight = X.get_weight() if sample_weight is None else sample_weight
        leaves, offset = self.rows(X, baseline)
        n = leaves.shape[1]
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        self._data = X, _inputs.vector(y, "y_train", n), _inputs.weights(sample_weight, n), offset
        self.ensemble = self._ensemble(leaves, offset)

    def _ensemble(self, leaves: Ids, offset: F64 | None) -> Ensemble:
        model, params = self.model, self.params
        _, y, sample_weight, _ = self._data
        codes = self.labels(y, len(y), "y_train")
        class_weight = np.ones(len(y))
        if params.get("class_weights") and self.classes is not None:
            class_weight = _f32(params["class_weights"])[codes.astype(int)]
        counts = np.asarray(model.get_tree_leaf_counts(), dtype=np.int64)
        values = np.asarray(model.get_leaf_values(), dtype=np.float64).reshape(int(counts.sum()), -1)
        K = values.shape[1]
        loss: Loss
        if self.loss_name == "MultiClass":
            loss = Softmax(K)
        else:
            loss = {"RMSE": SquaredError(), "Poisson": Poisson()}.get(self.loss_name, Logistic())
        newton = params["leaf_estimation_method"] == "Newton"
        iterations = int(params["leaf_estimation_iterations"])
        rule = LeafRule(
            newton,
            l2=float(np.float32(params["l2_leaf_reg"])),
            l2_scales=True,
            lam_float32=newton and K > 1,
            iterations=iterations,
            backtracking=iterations > 1 and params.get("leaf_estimation_backtracking", "No") != "No",
        )
        averaged, weights = bool(params.get("boost_from_average")), _leaf_weights(model, K)
        return Ensemble(
            loss=loss,
            rule=rule,
            learning_rate=float(np.float32(params["learning_rate"])),
            leaves=leaves,
            first_output=np.zeros(len(counts), np.int32),
            step_trees=np.arange(len(counts) + 1),
            tree_leaves=np.concatenate([[0], np.cumsum(counts)]),
            values=values,
            y=_f32(codes),
            w=_f32(sample_weight.astype(np.float32) * class_weight.astype(np.float32)),
            w_factor=class_weight,
            base=np.broadcast_to(np.asarray(model.get_scale_and_bias()[1], dtype=np.float64), (K,)).copy(),
            base_rule=Mean(_LINKS[self.loss_name], float32=True) if averaged and offset is None else None,
            offset=offset,
            recorded=None if weights is None else Recorded("weight", weights),
        )

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        pool = self._pool(X)
        leaves = _leaves(self.model, pool)
        if baseline is None and isinstance(X, catboost.Pool):
            given = np.asarray(X.get_baseline(), dtype=np.float64)
            baseline = given if given.size else None
        if baseline is None:
            return leaves, None
        offset, m = _f32(baseline), leaves.shape[1]
        if len(offset) != m or not np.isfinite(offset).all():
            raise InvalidInput(
                f"baseline has shape {offset.shape} for {m} rows; expected finite numbers, one line a row."
            )
        return leaves, offset.reshape(m, -1)

    def _pool(self, X: Any, **extra: Any) -> catboost.Pool:
        if isinstance(X, catboost.Pool):
            return X
        X = _inputs.columns(X, list(self.model.feature_names_ or []))
        try:
            return catboost.Pool(X, cat_features=self.model.get_cat_feature_indices(), **extra)
        except catboost.CatBoostError as error:
            raise InvalidInput(f"CatBoost cannot read these rows: {error}") from None

    def own_labels(self, X: Any) -> Any | None:
        return X.get_label() if isinstance(X, catboost.Pool) and X.has_label() else None

    def labels(self, y: Any, length: int, name: str) -> F64:
        if self.classes is not None:
            return _inputs.class_codes(_inputs.vector(y, name, length), self.classes, name)
        numbers = _inputs.numbers(y, name, length)
        low = 0.0 if self.loss_name != "RMSE" else -np.inf
        high = 1.0 if self.loss_name in ("Logloss", "CrossEntropy") else np.inf
        if length and (numbers.min() < low or numbers.max() > high):
            raise InvalidInput(
                f"{name} goes from {numbers.min():g} to {numbers.max():g}; "
                f"a model with the loss {self.loss_name} has labels that are {self.targets}."
            )
        return numbers

    @cached_property
    def _training_pool(self) -> catboost.Pool:
        X, y, sample_weight, offset = self._data
        return X if isinstance(X, catboost.Pool) else self._pool(X, label=y, weight=sample_weight, baseline=offset)

    def retrain(self, keep: Ints, threads: int) -> RetrainedCatBoost:
        params = {k: v for k, v in self.params.items() if k not in _NOT_FOR_RETRAINING}
        # Balanced class weights were resolved for all rows; let CatBoost balance the remaining ones.
        params.pop("auto_class_weights" if params.get("auto_class_weights") == "None" else "class_weights", None)
        params |= {"iterations": self.model.tree_count_, "thread_count": threads}
        model = catboost.CatBoost({**params, "allow_writing_files": False, "logging_level": "Silent"})
        model.fit(self._training_pool.slice(keep.tolist()))
        same = np.array_equal(_leaves(model, self._training_pool), self.ensemble.leaves)
        return RetrainedCatBoost(model, not same, self)


@dataclass(frozen=True)
class RetrainedCatBoost:
    """CatBoost trained again on some of the rows."""

    model: catboost.CatBoost
    structure_changed: bool  # does any training row fall into another leaf of any tree?
    source: CatBoostSource

    def scores(self, X: Any) -> F64:
        pool = self.source._pool(X)
        scores = np.asarray(self.model.predict(pool, prediction_type="RawFormulaVal")).reshape(pool.num_row(), -1)
        given = np.asarray(pool.get_baseline(), dtype=np.float64)
        return scores - given if given.size else scores  # CatBoost adds a pool's baseline; here it is the caller's
