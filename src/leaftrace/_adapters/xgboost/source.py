"""XGBoost 2 and 3: Booster, XGBClassifier, XGBRegressor, XGBRFClassifier, XGBRFRegressor, and .ubj / .json files.

How XGBoost computes a leaf (scores, and g and h times the weight, in float32; their sums and the division in float64):

    s = -T_alpha(G) / (H + lambda), within +-max_delta_step; 0 if H < min_child_weight
    value = learning_rate / num_parallel_tree * s

It multiplies the second derivative of some losses with a constant c (softmax: 2, Poisson: exp(max_delta_step)). With
the loss's own H that is s = -(1 / c) T_alpha(G) / (H + lambda / c), so the constant goes into the rule. Absolute and
quantile error renew their leaves: there s is a quantile of the residuals.

A base_margin takes the place of the base_score, for training rows and for others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from xgboost.core import XGBoostError

from ..._data import frames, inputs
from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.progress import progress
from ..._data.wording import words
from ..._model.training_set import TrainingSet
from ..base import BaseSource, f32, given_scores, pack_leaves
from .ensemble import Training, tree_method
from .loss import OBJECTIVES, QUANTILES, alphas, single
from .model import ALIASES, Trees, learner, parameters, parse_trees, reports_defaults
from .start import margin

# Reported parameters that the model itself holds, and others that describe the run and not how to run again.
_HELD = {
    "base_score", "boost_from_average", "booster", "multi_strategy", "num_class", "num_feature", "num_parallel_tree",
    "num_target", "num_trees", "objective",
}  # fmt: skip
_NOT_FOR_RETRAINING = {
    "base_score", "boost_from_average", "num_feature", "num_target", "num_trees", "process_type", "updater",
    "updater_seq", "nthread", "validate_parameters", "fail_on_invalid_gpu_id", "cache_opt", "sketch_ratio",
}  # fmt: skip
_VERSION = tuple(int(v) for v in re.findall(r"\d+", xgb.__version__)[:2])
_LEAF_BYTES = 100_000_000  # of leaf numbers to ask XGBoost for at once


@dataclass(frozen=True)
class _Opened:
    """A model as the user holds it."""

    booster: xgb.Booster
    name: str
    classes: NDArray[Any] | None = None
    rounds: int | None = None  # that it predicts with; None: all
    missing: float = np.nan
    sketched: bool = False  # trained on a QuantileDMatrix


def open_model(
    model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]
) -> XGBoostSource:
    opened = _open(model)
    params = _with_given(parameters(opened.booster), given)
    details = learner(opened.booster)
    _refuse(details, params)
    return XGBoostSource(opened, details, params, X, y, sample_weight, baseline)


def _with_given(reported: dict[str, str], given: dict[str, Any]) -> dict[str, str]:
    """The reported parameters, but for those the user gives."""
    values = {
        ALIASES.get(name, name): str(int(v) if isinstance(v, bool) else v)
        for name, v in given.items()
    }
    known = set(reported) - _HELD
    if strangers := sorted(set(values) - known):
        raise InvalidInput(
            f"params has {', '.join(strangers)}, which this XGBoost model was not trained with; "
            f"it has {', '.join(sorted(known))}."
        )
    for name, value in values.items():
        if _is_number(reported[name]) and not _is_number(value):
            raise InvalidInput(
                f"params has {name}={value!r}; expected a number, such as {reported[name]}."
            )
    return reported | values


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def _reason(error: Exception) -> str:
    """What XGBoost says, without time, place and stack."""
    return re.sub(r"^\[[^\]]*\] \S+: ", "", str(error).strip().splitlines()[0])


def _open(model: Any) -> _Opened:
    if isinstance(model, _Opened):  # read from a file
        return model
    if isinstance(model, (str, os.PathLike)):
        return _load(os.fspath(model))
    if isinstance(model, xgb.Booster):
        return _Opened(model, "Booster")
    name = type(model).__name__
    if not isinstance(model, xgb.XGBModel):
        raise UnsupportedModel(
            f"{name} is not an XGBoost model; pass a Booster, an XGBClassifier or an XGBRegressor."
        )
    if not model.__sklearn_is_fitted__():
        raise UnsupportedModel(f"this {name} is not fitted; call fit() first.")
    if callable(model.objective):
        raise UnsupportedModel(
            f"this {name} was trained with an objective of its own, whose derivatives leaftrace does not know; "
            f"supported objectives are {', '.join(OBJECTIVES)}."
        )
    booster = model.get_booster()
    classes = None
    if isinstance(model, xgb.XGBClassifier):
        classes = np.asarray(model.classes_)
    missing = np.nan if model.missing is None else float(model.missing)
    return _Opened(
        booster, name, classes, _best(booster), missing, model.tree_method in (None, "auto", "hist")
    )


def _load(path: str) -> _Opened:
    try:
        booster = xgb.Booster(model_file=path)
    except XGBoostError as error:
        raise UnsupportedModel(
            f"'{path}' cannot be read as an XGBoost model; is the file whole? XGBoost says: {_reason(error)}"
        ) from None
    wrapper = booster.attr("scikit_learn")  # written by the scikit-learn classes
    if wrapper is None:
        return _Opened(booster, "Booster")
    if json.loads(wrapper).get("_estimator_type") != "classifier":
        return _Opened(booster, "XGBRegressor", None, _best(booster), sketched=True)
    classes = np.arange(max(2, int(parameters(booster)["num_class"])))
    return _Opened(booster, "XGBClassifier", classes, _best(booster), sketched=True)


def _best(booster: xgb.Booster) -> int | None:
    """Rounds that the scikit-learn classes predict with after early stopping. A Booster predicts with all of them."""
    best = booster.attr("best_iteration")
    return None if best is None else int(best) + 1


def _refuse(details: dict[str, Any], params: dict[str, str]) -> None:
    """Raise for settings whose leaf values are not reconstructed."""
    booster = details["gradient_booster"]["name"]
    objective = details["objective"]["name"]
    if booster == "gblinear":
        raise UnsupportedModel(
            "booster='gblinear' has no trees; train with booster='gbtree' or 'dart'."
        )
    if objective not in OBJECTIVES:
        raise UnsupportedModel(
            f"the objective '{objective}' is not supported; supported objectives are {', '.join(OBJECTIVES)}."
        )
    if objective == "reg:quantileerror" and len(alphas(params)) > 1:
        raise UnsupportedModel(
            f"this model has {len(alphas(params))} quantiles (quantile_alpha); train a model for each quantile."
        )
    if int(params["num_target"]) > 1:
        raise UnsupportedModel(
            f"this model predicts {params['num_target']} targets at once; train a model for each target."
        )
    if any(c in params.get("monotone_constraints", "") for c in "123456789"):
        raise UnsupportedModel(
            "monotone_constraints bound leaf values by those of other leaves; train without them."
        )
    if single(params["subsample"]) < 1 and params.get("sampling_method") == "gradient_based":
        raise UnsupportedModel(
            "sampling_method='gradient_based' draws rows by their gradients, which is not replayed; train with "
            "sampling_method='uniform'."
        )
    if booster == "dart" and params["one_drop"] not in ("0", "False"):
        raise UnsupportedModel(
            "one_drop=1 draws trees in a way that is not replayed; train with one_drop=0."
        )
    if objective in QUANTILES and tree_method(params) == "exact":
        raise UnsupportedModel(
            f"with tree_method='exact' the leaves of {objective} are not quantiles; train with tree_method='hist'."
        )


class XGBoostSource(BaseSource):
    """An XGBoost model with its training data."""

    # Relative to the largest leaf value. Scores, derivatives and leaf values are rounded to float32, which the replay
    # does too; a last bit (6e-8) remains where XGBoost's float32 exponentials are not the rounded ones.
    tolerance = 1e-6

    def __init__(
        self,
        opened: _Opened,
        details: dict[str, Any],
        params: dict[str, str],
        X: Any,
        y: Any,
        sample_weight: Any,
        baseline: Any,
    ) -> None:
        self.opened = opened
        self.booster = opened.booster
        self.name = opened.name
        self.X = X
        self.objective: str = details["objective"]["name"]
        self.outputs = max(1, int(params["num_class"]))
        self.classes = np.arange(self.outputs) if self.outputs > 1 else opened.classes
        self.label_range = OBJECTIVES[self.objective]
        self.columns = list(
            self.booster.feature_names or map(str, range(self.booster.num_features()))
        )
        self.trees = parse_trees(details)
        if not len(self.trees):
            raise UnsupportedModel(
                "this XGBoost model has no trees, so no training row acts through one."
            )
        trained = len(self.trees.rounds) - 1
        self.rounds = min(opened.rounds or trained, trained)
        if (
            self.trees.weight is None
        ):  # later trees of DART have changed the weights of earlier ones
            self.trees = self.trees.first(self.rounds)
        base_score = self._base_score(details)
        self.base = margin(self.objective, base_score)
        if isinstance(X, xgb.DMatrix):
            own = X.get_weight()
            sample_weight = own if sample_weight is None and own.size else sample_weight
        y = self.own_labels(X) if y is None else y
        self.estimated = False  # whether the starting score comes from the labels
        leaves, offset = self.training_rows(X, baseline)
        n = leaves.shape[1]
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        self.training = Training(
            self.objective,
            params,
            self.trees,
            self.rounds,
            base_score,
            self.base,
            reports_defaults(self.booster),
            leaves,
            f32(self.labels(y, n, "y_train")),
            None if sample_weight is None else f32(inputs.weights(sample_weight, n)),
            offset,
            old=xgb.__version__.startswith("2.0."),
        )
        best = _best(self.booster)
        if best is not None and best < trained:
            all_ = f"all {trained} rounds, as Booster.predict does; the best are {best}"
            used = f"the best {best} of {trained} rounds" if self.rounds < trained else all_
            self.training.notes.append(f"predictions are those of {used}")
        self.ensemble = self.training.ensemble()
        self.estimated = self.ensemble.base_rule is not None
        self.notes = self.training.notes

    def _base_score(self, details: dict[str, Any]) -> F64:
        """(K,) the base_score that a model has stored."""
        stored = np.array(json.loads(details["learner_model_param"]["base_score"]), float)
        return np.broadcast_to(stored, self.outputs)

    # ---- rows ----

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        matrix = self._matrix(X)
        leaves = self._leaves(self.booster, matrix, self.trees)
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

    def structure(self) -> bytes:
        parts = (
            learner(self.booster)["gradient_booster"],
            self.booster.feature_names,
            self.booster.feature_types,
        )
        return json.dumps(
            [*parts, self._categories, str(self.opened.missing), self.rounds]
        ).encode()

    def _matrix(self, X: Any, kind: type[xgb.DMatrix] = xgb.DMatrix, **more: Any) -> xgb.DMatrix:
        if isinstance(X, xgb.DMatrix):
            if X.num_col() != len(self.columns):
                raise InvalidInput(
                    f"X has {X.num_col()} columns, but the model was trained on {len(self.columns)}."
                )
            return X
        X = inputs.columns(X, self.columns)
        if frames.kind(X) and (frames.has_categories(X, "XGBoost") or _VERSION < (3, 1)):
            X = self._coded(frames.to_pandas(X))
        elif hasattr(X, "iloc") and self._categories:
            X = frames.in_order(X, self._categories)
        types = self.booster.feature_types
        if types and "c" in types and not hasattr(X, "columns"):
            more["feature_types"] = types
        try:
            return kind(X, missing=self.opened.missing, enable_categorical=True, **more)
        except (XGBoostError, ValueError) as error:
            raise InvalidInput(f"XGBoost cannot read these rows: {_reason(error)}") from None

    def _coded(self, X: Any) -> Any:
        """A DataFrame made of another kind of table, whose categories may stand in any order."""
        strangers = [
            c for c in X.columns if X[c].dtype == "category" and str(c) not in self._categories
        ]
        if strangers:
            raise InvalidInput(
                f"the column '{strangers[0]}' is a category, and this model knows categories by their number only "
                "(XGBoost before 3.1); pass a pandas DataFrame with the categories of training."
            )
        return frames.in_order(X, self._categories)

    @cached_property
    def _categories(self) -> dict[str, list[Any]]:
        """The categories of each column, in the order of training, on which the trees that XGBoost grows depend."""
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            return {}
        found = self.booster.get_categories(export_to_arrow=True) if _VERSION >= (3, 1) else None
        if found is None or found.empty():
            return {}
        return {name: values.to_pylist() for name, values in found.to_arrow() if values is not None}

    def _leaves(self, booster: xgb.Booster, matrix: xgb.DMatrix, trees: Trees) -> Ids:
        """(trees, rows) leaf numbers, of some rounds at a time."""
        m = matrix.num_row()
        rounds = len(trees.rounds) - 1
        at_once = max(1, _LEAF_BYTES // (4 * max(m, 1) * int(np.diff(trees.rounds).max())))

        def leaves() -> Iterator[NDArray[np.int64]]:
            for start in progress(range(0, rounds, at_once), rounds, "leaves", "round", at_once):
                stop = min(start + at_once, rounds)
                some = trees.leaf[trees.rounds[start] : trees.rounds[stop] : trees.width]
                # Leaves are told from the first round on only, so those of later ones by a model that begins there.
                part, asked = (booster[start:], stop - start) if start else (booster, stop)
                nodes = (
                    self._ask(part, matrix, pred_leaf=True, iteration_range=(0, asked))
                    if m
                    else np.zeros(0)
                )
                for number, ids in zip(some, nodes.reshape(m, len(some)).T, strict=True):
                    yield from [number[ids.astype(np.int64)]] * trees.width

        return pack_leaves(leaves(), trees.edges, trees.steps, m)

    def _ask(self, booster: xgb.Booster, matrix: xgb.DMatrix, **what: Any) -> NDArray[Any]:
        """booster.predict; names are XGBoost's to check where both sides have them."""
        names = bool(booster.feature_names and matrix.feature_names)
        try:
            return booster.predict(matrix, validate_features=names, **what)
        except (XGBoostError, ValueError) as error:
            hint = "; pass the table itself" if isinstance(matrix, xgb.QuantileDMatrix) else ""
            raise InvalidInput(
                f"XGBoost cannot predict these rows: {_reason(error)}{hint}"
            ) from None

    def own_labels(self, X: Any) -> Any | None:
        if not isinstance(X, xgb.DMatrix):
            return None
        labels = X.get_label()
        return labels if labels.size else None

    def as_trained(
        self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None
    ) -> tuple[F64, F64]:
        return f32(codes), f32(f32(weight) * f32(factor))

    # ---- training again ----

    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedXGBoost:
        if (self.training.loaded or self.training.recovered) and not self._comes_back:
            raise UnsupportedModel(
                "trained again on all rows, this model does not come out the same, so retraining it without some would "
                "tell nothing: its training parameters are not those it reports (a file keeps none, and callbacks can "
                f"change them). {words().give_parameters} as in training."
            )
        t = self.training
        codes = t.y if rows.y is None else f32(self.labels(rows.y, len(t.y), "y"))
        if rows.added is not None:
            if isinstance(self.X, xgb.DMatrix):
                raise InvalidInput(
                    "rows cannot be added to a DMatrix; pass X_train and y_train as a table."
                )
            X, labels, w = rows.added
            rows = replace(rows, added=(X, f32(self.labels(labels, len(labels), "y_new")), f32(w)))
        rows = replace(rows, y=codes)
        booster = self._train(rows, threads)
        base = margin(self.objective, self._base_score(learner(booster)))
        return RetrainedXGBoost(booster, not self._same_structure(booster), self, base, rows)

    def _train(self, rows: TrainingSet, threads: int) -> xgb.Booster:
        known = self.training.params
        params: dict[str, Any] = {
            k: v for k, v in known.items() if v and k not in _NOT_FOR_RETRAINING
        }
        # With given scores, no training row has met the base_score: it stays as it is.
        if known["boost_from_average"] != "1" or self.training.offset is not None:
            params["base_score"] = known["base_score"]
        params |= {"nthread": threads, "verbosity": 0}
        return xgb.train(params, self._altered(rows, threads), len(self.trees.rounds) - 1)

    def _same_structure(self, booster: xgb.Booster) -> bool:
        trees = parse_trees(learner(booster))
        return np.array_equal(trees.edges, self.trees.edges) and np.array_equal(
            self._leaves(booster, self._matrix(self.X), trees), self.ensemble.leaves
        )

    @cached_property
    def _comes_back(self) -> bool:
        """Whether all rows and these parameters give this model."""
        return self._same_structure(self._train(TrainingSet.unchanged(len(self.training.y)), 1))

    def _altered(self, rows: TrainingSet, threads: int) -> xgb.DMatrix:
        """These training rows, in the kind of matrix the model was trained on."""
        t = self.training
        more: dict[str, Any] = {"label": rows.labels(t.y)}
        if (weight := rows.weights(t.sample_weight)) is not None:
            more["weight"] = weight
        if (offset := rows.offset(t.offset)) is not None:
            more["base_margin"] = offset + self.base
        if isinstance(self.X, xgb.DMatrix):
            try:
                matrix = self.X.slice(rows.keep.tolist())
            except XGBoostError as error:
                raise InvalidInput(
                    f"rows of this matrix cannot be taken; pass the table itself. XGBoost says: {_reason(error)}"
                ) from None
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


@dataclass(frozen=True)
class RetrainedXGBoost:
    """XGBoost trained again."""

    booster: xgb.Booster
    structure_changed: bool  # does any training row fall into another leaf of any tree?
    source: XGBoostSource
    base: F64
    rows: TrainingSet  # labels as XGBoost takes them

    def scores(self, X: Any) -> F64:
        source = self.source
        matrix = self.source._matrix(X)
        F = source._ask(
            self.booster, matrix, output_margin=True, iteration_range=(0, source.rounds)
        )
        F = F.astype(np.float64).reshape(matrix.num_row(), -1)
        # A matrix's base_margin stands for the base score in F; here it is the caller's, as what it adds to that.
        own = np.asarray(matrix.get_base_margin(), float)
        trees = F - (own.reshape(F.shape) if own.size else self.base)
        return trees + (self.base if source.estimated else source.base)

    def open(self) -> XGBoostSource:
        source = self.source
        rows = self.rows
        t = self.source.training
        X = source._altered(rows, 1) if isinstance(source.X, xgb.DMatrix) else rows.table(source.X)
        codes = rows.labels(t.y)
        offset = rows.offset(t.offset)
        labels = codes if source.classes is None else source.classes[codes.astype(int)]
        weight = rows.weights(t.sample_weight)
        baseline = None if offset is None else offset + source.base
        opened = replace(source.opened, booster=self.booster, rounds=source.rounds)
        return XGBoostSource(
            opened, learner(self.booster), parameters(self.booster), X, labels, weight, baseline
        )
