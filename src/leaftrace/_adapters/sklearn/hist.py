"""HistGradientBoostingClassifier and HistGradientBoostingRegressor.

    value = -learning_rate G / (H + l2_regularization + 1e-15)        w g and w h rounded to float32
    absolute_error, quantile:  learning_rate * quantile of the residuals

A tree that is only a root has the value zero, whatever its rows. With more than 10,000 rows, or
with early_stopping=True, some rows are held out; the model keeps the seed of that split.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

from ..._data.arrays import F64, Ids, Ints, Real
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._model.early_stopping import EvalSet
from ..._model.ensemble import Ensemble, LeafRule, Recorded, Rounding
from ..._model.general_losses import Gamma, Pinball
from ..._model.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from ..._model.node_trees import StepNodes, monotone_tree, nodes_by_step
from ..._model.routes import BY_CATEGORY, MISSING_LEFT, NodeRoutes
from ..._model.splits import SplitSearch
from ..._model.start import BaseRule, LabelStatistic, Mean
from ..base import UNWEIGHTED
from .labels import ResidualStatistic, WeightedLabels
from .source import SklearnSource
from .splits import hist_nodes, hist_search
from .trees import Trees

_LOSSES: dict[str, tuple[Loss, BaseRule]] = {
    "squared_error": (SquaredError(), Mean()),
    "poisson": (Poisson(), Mean("log")),
    "gamma": (Gamma(), Mean("log")),
    "log_loss": (Logistic(), Mean("logit")),
}
_QUANTILES = ("absolute_error", "quantile")


def _threads(X: Any) -> int:
    """Return how many threads to predict with: one for few rows, where starting more costs more."""
    return _openmp_effective_n_threads() if len(X) > 10_000 else 1


def _is_whole(tree: Any, features: int) -> bool:
    """Whether a tree refers only to nodes and columns that are there, which scikit-learn does not check."""
    inner = tree.nodes[tree.nodes["is_leaf"] == 0]
    children = np.concatenate([inner["left"], inner["right"]]).astype(np.int64)
    inside = np.all((children >= 1) & (children < len(tree.nodes)))
    columns = np.all((inner["feature_idx"] >= 0) & (inner["feature_idx"] < features))
    return bool(inside and columns and len(np.unique(children)) == len(children))


def _is_known(column: F64, words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return whether each category (n,) is in a set of 32 bits a word."""
    inside = (column >= 0) & (column < 32 * len(words))
    category = np.where(inside, column, 0).astype(np.int64)
    return inside & (words[category // 32] >> (category % 32).astype(np.uint32) & 1 > 0)


class HistTrees(Trees):
    """The trees of a HistGradientBoosting model, K a step."""

    def __init__(self, model: Any) -> None:
        self.predictors = [tree for step in model._predictors for tree in step]
        if not all(_is_whole(tree, model._n_features) for tree in self.predictors):
            raise UnsupportedModel(
                "a tree of this model has nodes or columns that are not there; is its file whole? Save the model again."
            )
        is_leaf = [tree.nodes["is_leaf"].astype(bool) for tree in self.predictors]
        super().__init__(model, is_leaf, len(model._predictors[0]))

    def read(self, X: Any) -> Any:
        return self.model._preprocess_X(X, reset=False)

    def nodes(self, X: Any) -> Iterator[Ints]:
        """Predict with copies of the trees that have node numbers as values: there is no apply()."""
        bitsets = self.model._bin_mapper.make_known_categories_bitsets()
        for tree in self.predictors:
            numbered = copy.copy(tree)
            numbered.nodes = tree.nodes.copy()
            numbered.nodes["value"] = np.arange(len(tree.nodes))
            yield numbered.predict(X, *bitsets, _threads(X)).astype(np.intp)

    def routes(self, r: int) -> NodeRoutes:
        tree = self.predictors[r]
        inner, children = self.slots(r, tree.nodes["left"], tree.nodes["right"])
        nodes = tree.nodes[inner]
        by_category = nodes["is_categorical"].astype(bool)
        flags = MISSING_LEFT * nodes["missing_go_to_left"] + BY_CATEGORY * by_category
        nothing = np.zeros(0, np.uint32)
        sets = [
            tree.raw_left_cat_bitsets[place] if is_category else nothing
            for place, is_category in zip(nodes["bitset_idx"], by_category, strict=True)
        ]
        return NodeRoutes(
            children,
            nodes["feature_idx"].astype(np.int32),
            nodes["num_threshold"].astype(np.float64),
            flags.astype(np.uint8),
            sets,
        )

    def compared(self, X: Any) -> Real:
        """Return the columns; categories that training did not have are missing there."""
        known, place = self.model._bin_mapper.make_known_categories_bitsets()
        categorical = self.model._bin_mapper.is_categorical_
        if categorical is None or not np.any(categorical):
            return X
        X = np.array(X)
        for f in np.flatnonzero(categorical):
            X[~_is_known(X[:, f], known[place[f]]), f] = np.nan
        return X

    def covers(self) -> F64:
        return self.at_leaves([tree.nodes["count"] for tree in self.predictors]).astype(np.float64)

    def features(self) -> Ints | None:
        """Return the features in the order of their columns: categories come first."""
        categorical = self.model.is_categorical_
        if categorical is None:
            return None
        return np.append(np.flatnonzero(categorical), np.flatnonzero(~categorical))

    def node_bytes(self) -> bytes:
        arrays: list[Any] = []
        for tree in self.predictors:
            # Fields one by one: the gaps between them hold whatever was in memory.
            arrays += [tree.nodes[name] for name in tree.nodes.dtype.names]
            arrays += [tree.raw_left_cat_bitsets, tree.binned_left_cat_bitsets]
        arrays += self.model._bin_mapper.make_known_categories_bitsets()
        return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)

    def set_values(self, values: F64) -> None:
        parts = np.split(values[:, 0], self.tree_leaves[1:-1])
        for tree, leaf, part in zip(self.predictors, self.is_leaf, parts, strict=True):
            tree.nodes["value"][leaf] = part

    def leaf_field(self, name: str) -> NDArray[Any]:
        """Return a field of the nodes for all leaves (leaves,)."""
        return self.at_leaves([tree.nodes[name] for tree in self.predictors])


class HistSource(SklearnSource):
    """A HistGradientBoosting model with its training data."""

    trees: HistTrees

    def _refuse(self) -> None:
        loss = self.params["loss"]
        if loss not in (*_LOSSES, *_QUANTILES):
            raise UnsupportedModel(
                f"the loss {loss!r} of this {self.name} is not supported; supported are {', '.join(_LOSSES)} and, "
                f"by LeafRefit, {', '.join(_QUANTILES)}."
            )
        self.label_range = (0.0 if loss in ("poisson", "gamma") else -np.inf, np.inf)

    def _trees(self, model: Any) -> HistTrees:
        return HistTrees(model)

    def _ensemble(self, leaves: Ids, offset: F64 | None, labels: WeightedLabels) -> Ensemble:
        model = self.model
        labels = self._with_class_weights(labels)
        held = self._held_out(labels.y)
        self._stopped_by_given_rows = (
            model.do_early_stopping_ and model._use_validation_data and held is None
        )
        if model.do_early_stopping_:
            self.early_stopping = "kept" if self._stopped_by_given_rows else "repeated"
        if held is not None:
            labels = labels.hold_out(held)
            self.notes = (
                "rows held out for early stopping found again, checked by the row count of every leaf",
            )
        loss, base_rule, statistic = self._loss(labels)
        rates = np.asarray(self.params["learning_rate"], dtype=np.float64)
        weighted = statistic is None or statistic.weighted
        return Ensemble(
            loss=loss,
            rule=LeafRule(l2=float(self.params["l2_regularization"]) + 1e-15, statistic=statistic),
            learning_rate=float(rates) if rates.ndim == 0 else rates,
            leaves=leaves,
            **self.trees.layout,
            values=self.trees.leaf_field("value")[:, None],
            y=labels.y,
            w=labels.w,
            w_factor=labels.factor,
            base=model._baseline_prediction.ravel().astype(np.float64),
            base_rule=base_rule,
            step_nodes=self._step_nodes() if statistic is None else None,
            fixed=self._roots_alone() if statistic is None else None,
            recorded=Recorded("rows", self.trees.leaf_field("count").astype(np.float64)),
            rounding=Rounding(terms=True),
            weights_fixed="" if weighted else UNWEIGHTED,
        )

    def _with_class_weights(self, labels: WeightedLabels) -> WeightedLabels:
        factor = self.model._finalize_sample_weight(np.ones(len(labels.y)), labels.y)
        if not np.all(factor):
            raise UnsupportedModel(
                "class_weight gives a class no weight at all; train without the rows of that class."
            )
        return replace(labels, w=labels.w * factor, factor=factor)

    def _step_nodes(self) -> list[StepNodes] | None:
        """Return the nodes of every step, whose bounds follow from monotonic_cst; None without."""
        direction = self._directions
        if direction is None:
            return None
        if self.model.is_categorical_ is not None:  # these columns come first in the trees
            direction = direction[np.argsort(~self.model.is_categorical_, kind="stable")]
        trees = [monotone_tree(nodes, direction) for nodes in hist_nodes(self.trees)]
        return nodes_by_step(trees, self.trees.step_trees)

    def _roots_alone(self) -> NDArray[np.bool_] | None:
        """Return which leaves (leaves,) are all there is of a tree; None if there are none."""
        counts = np.diff(self.trees.tree_leaves)
        alone = np.repeat(counts == 1, counts)
        return alone if alone.any() else None

    def _loss(self, labels: WeightedLabels) -> tuple[Loss, BaseRule, ResidualStatistic | None]:
        """Return the loss, the rule of the starting score and, for quantiles, what leaves are."""
        name = self.params["loss"]
        K = len(self.model._predictors[0])
        if K > 1:
            return Softmax(K), Mean("centred log"), None
        if name in _LOSSES:
            return *_LOSSES[name], None
        level = 0.5 if name == "absolute_error" else float(self.params["quantile"])
        kind = "median" if name == "absolute_error" else f"{level:g} quantile"

        def fit(values: F64, weights: F64 | None) -> Any:
            return self.model._loss.fit_intercept_only(y_true=values, sample_weight=weights)

        return (
            Pinball(level, name.replace("_", " ")),
            LabelStatistic(labels.starting_score(fit)),
            ResidualStatistic(kind, fit, labels.has_weights, None if labels.has_weights else level),
        )

    def _held_out(self, y: F64) -> NDArray[np.bool_] | None:
        """Return which rows (n,) only decided when to stop; None if training used all.

        Rows that the user gave as X_val are not in X."""
        model = self.model
        n = len(y)
        trained = int(self.trees.predictors[0].nodes["count"][0])
        splits = model.do_early_stopping_ and self.params["validation_fraction"] is not None
        if not splits or trained == n:
            return None
        try:
            kept, _ = train_test_split(
                np.arange(n),
                test_size=self.params["validation_fraction"],
                stratify=None if self.classes is None else y,
                random_state=model._random_seed,
            )
        except ValueError as error:
            raise InvalidInput(
                f"the split for early stopping cannot be made with these {n} rows ({error}); pass all rows that were "
                "given to fit()."
            ) from None
        held = np.ones(n, bool)
        held[kept] = False
        return held

    def _scores(self, model: Any, X: Any) -> F64:
        scores = np.tile(model._baseline_prediction, (X.shape[0], 1))
        model._predict_iterations(X, model._predictors, scores, False, _threads(X))
        return scores

    def split_search(self) -> SplitSearch:
        return hist_search(self.trees, self.params, self._split_values)

    def _stopping_rows(self, eval_set: EvalSet | None) -> dict[str, Any]:
        if eval_set is None or not self._stopped_by_given_rows:
            return super()._stopping_rows(eval_set)
        if len(eval_set) > 1:
            raise InvalidInput(
                f"eval_set has {len(eval_set)} sets; {self.name} takes one, as X_val."
            )
        X, y, weight = next(iter(eval_set))
        arguments = {"X_val": self._table(X), "y_val": y}
        return arguments if weight is None else {**arguments, "sample_weight_val": weight}

    def _set_values(self, trees: Trees, e: Ensemble) -> None:
        trees.set_values(e.finished_values)
        shape = np.shape(self.model._baseline_prediction)
        trees.model._baseline_prediction = np.reshape(e.finished_base, shape)

    def _prepare_clone(self, model: Any, threads: int) -> Any:
        if self._stopped_by_given_rows:  # rows given as X_val, which are not here
            return model.set_params(early_stopping=False, max_iter=len(self.model._predictors))
        return model
