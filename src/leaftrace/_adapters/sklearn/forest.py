"""RandomForest, ExtraTrees and single trees (float64).

A leaf is the weighted mean of its labels, one-hot for classifiers, or their weighted median with
criterion="absolute_error"; the prediction is the mean over the trees. So a forest is boosting whose
trees do not depend on each other: all start from the mean of all labels, and scores move only once,
at the end, by 1 / T of every tree. A leaf that a refit leaves without rows stays at that mean.

With bootstrap, a row counts in a tree as often as it was drawn. Since scikit-learn 1.9, sample and
class weights only set the chances of being drawn; before, they multiplied the count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.parquet import PartedTable
from ..._model.ensemble import Ensemble, Recorded
from ..._model.further_losses.targets import QuantileTargets, SquaredTargets
from ..._model.general_losses import Pinball
from ..._model.leaf_rule import LeafRule, Statistic
from ..._model.losses import Loss, SquaredError
from ..._model.node_trees import StepNodes, monotone_tree, nodes_by_step
from ..._model.separate_losses import Brier
from ..._model.splits import SplitSearch
from ..._model.start import target_matrix
from ..split_columns import splits_not_by_gain
from .labels import ResidualStatistic, WeightedLabels
from .source import SklearnSource
from .splits import array_nodes, array_search
from .trees import ArrayTrees, Trees

_VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
_CHANCES = "those of this forest only set the chances of rows being drawn"
_OWN_CLASS_WEIGHTS = "every tree weighs classes by its own draw"


def weighted_median(values: F64, weights: F64 | None) -> float:
    """Return the weighted median, or the mean of two values if the half falls between them."""
    assert weights is not None
    order = np.argsort(values)
    values = values[order]
    below = np.cumsum(weights[order])
    half = below[-1] / 2
    first = np.searchsorted(below, half, "left")
    last = np.searchsorted(below, half, "right")
    return 0.5 * (values[first] + values[min(last, len(values) - 1)])


class ForestTrees(ArrayTrees):
    """The trees of a forest, or a single tree.

    ``apart``: a classifier's tree stands here as one tree for each class, with its share in leaves.
    """

    def __init__(self, model: Any, apart: bool = False) -> None:
        trees = getattr(model, "estimators_", [model])
        self.apart = apart and hasattr(model, "classes_")
        K = len(model.classes_) if self.apart else 1
        super().__init__(model, [tree for tree in trees for _ in range(K)], K)

    def values(self) -> F64:
        """Return the leaf values (leaves, O)."""
        if not self.apart:
            return super().values()
        pairs = zip(self.trees, self.first_output, strict=True)
        return self.at_leaves([tree.value[:, 0, o : o + 1] for tree, o in pairs])

    def set_values(self, values: F64) -> None:
        if not self.apart:
            super().set_values(values)
            return
        parts = np.split(values[:, 0], self.tree_leaves[1:-1])
        columns = zip(self.trees, self.first_output, self.is_leaf, parts, strict=True)
        for tree, o, leaf, part in columns:
            tree.value[leaf, 0, o] = part

    def starts(self, base: F64) -> F64:
        """Return the starting score of every leaf (leaves, O), from that of all outputs (K,)."""
        if not self.apart:
            return np.tile(base, (int(self.tree_leaves[-1]), 1))
        return np.repeat(base[self.first_output], np.diff(self.tree_leaves))[:, None]

    def read(self, X: Any) -> Any:
        if hasattr(self.model, "estimators_"):
            return self.model._validate_X_predict(X)
        return self.model._validate_X_predict(X, check_input=True)


class ForestSource(SklearnSource):
    """A forest, or a single tree, with its training data."""

    trees: ForestTrees

    def _refuse(self) -> None:
        if self.model.n_outputs_ > 1:
            if hasattr(self.model, "classes_"):
                raise UnsupportedModel(
                    f"this {self.name} has classes for each of {self.model.n_outputs_} columns of y; train one model "
                    "for each column."
                )
            self.targets = self.model.n_outputs_
        if self._directions is not None and self.params["criterion"] == "absolute_error":
            raise UnsupportedModel(
                "monotonic_cst with criterion='absolute_error' keeps medians within bounds, which is not replayed; "
                "train with criterion='squared_error', or without monotonic_cst."
            )
        if self.params["criterion"] == "poisson":
            self.label_range = (0.0, np.inf)

    def _trees(self, model: Any) -> ForestTrees:
        return ForestTrees(model, apart=self._directions is not None)

    @property
    def _draws(self) -> bool:
        """Whether every tree has rows of its own, drawn with replacement."""
        return bool(self.params.get("bootstrap"))

    @property
    def _weights_set_chances(self) -> bool:
        """Whether weights only decided how likely rows were to be drawn."""
        # Version 1.9 keeps the weights, to be able to draw again.
        return self._draws and hasattr(self.model, "_sample_weight")

    @property
    def _balances_draws(self) -> bool:
        """Whether every tree balances the classes of the rows it drew."""
        return self._draws and self.params.get("class_weight") == "balanced_subsample"

    def _ensemble(self, leaves: Ids, offset: F64 | None, labels: WeightedLabels) -> Ensemble:
        T = len(self.trees.step_trees) - 1
        factor = self._class_weights(labels)
        w = labels.w * factor
        sample = self._by_tree(self._counts(labels.y)) if self._draws else None
        if self._weights_set_chances:
            self._check_chances(w)
            factor = np.ones(len(w))
            w = np.ones(len(w))
        self.notes = tuple(self._remarks(labels.has_weights))
        loss, statistic = self._loss()
        base = np.average(target_matrix(loss, labels.y), axis=0, weights=w)
        weights_fixed = self._weights_set_chances and labels.has_weights
        return Ensemble(
            loss=loss,
            rule=LeafRule(diagonal=loss.n_outputs > 1, statistic=statistic),
            learning_rate=1.0,
            leaves=leaves,
            **self.trees.layout,
            values=self.trees.values() - self.trees.starts(base),
            y=labels.y,
            w=w,
            w_factor=factor,
            base=base,
            sample=sample,
            sample_class_weight=self._by_tree(self._class_weights_of_draws(labels.y)),
            moves=[*([] for _ in range(T)), [(t, 1 / T) for t in range(T)]],
            step_nodes=self._step_nodes(),
            recorded=Recorded("weight", self.trees.weights()),
            further_records=[Recorded("rows", self.trees.rows())],
            weights_fixed=_CHANCES if weights_fixed else "",
            labels_fixed=_OWN_CLASS_WEIGHTS if self._balances_draws else "",
        )

    def _by_tree(self, found: list[Any] | None) -> list[Any] | None:
        """Return one entry for each tree, from one for each tree of the model."""
        copies = int(self.trees.step_trees[1])
        return None if found is None else [x for x in found for _ in range(copies)]

    def _step_nodes(self) -> list[StepNodes] | None:
        """Return the nodes of every tree, whose bounds follow from monotonic_cst; None without.

        A classifier is constrained in the share of its second class; that of the first one falls
        where the other rises.
        """
        direction = self._directions
        if direction is None:
            return None
        pairs = zip(array_nodes(self.trees), self.trees.first_output, strict=True)
        falls = self.trees.apart
        trees = [monotone_tree(x, -direction if falls and o == 0 else direction) for x, o in pairs]
        return nodes_by_step(trees, self.trees.step_trees)

    def _loss(self) -> tuple[Loss, Statistic | None]:
        if self.params["criterion"] == "absolute_error":
            statistic = ResidualStatistic("median", weighted_median, weighted=True)
            if self.targets is not None:
                return QuantileTargets((0.5,) * self.targets, name="absolute error"), statistic
            return Pinball(0.5, "absolute error"), statistic
        if self.targets is not None:
            return SquaredTargets(self.targets), None
        return SquaredError() if self.classes is None else Brier(len(self.classes)), None

    def _remarks(self, has_weights: bool) -> Iterator[str]:
        """Yield the notes for the verdict on the replay."""
        if self._draws:
            yield "bootstrap draws replayed, checked by the weight of every leaf"
        class_weights = self.params.get("class_weight") not in (None, "balanced_subsample")
        if self._weights_set_chances and (has_weights or class_weights):
            yield "weights only set the chances of being drawn: influence is that of a drawn copy of a row"
        if self._misplaced_missing():
            yield (
                "before scikit-learn 1.8, rows with missing values were not always trained in the leaves they are "
                "predicted with"
            )
        if self._share_of_one_label() > 0.95:
            yield (
                "nearly all rows are in leaves of one label only, which do not move with the weights of their rows: "
                "ask for label_influence, or train with a larger min_samples_leaf"
            )

    def _misplaced_missing(self) -> bool:
        """Check for missing values that versions before 1.8 put into other leaves in training."""
        if _VERSION >= (1, 8):
            return False
        X = self._data[0]
        tables = (part for _, part in X.parts()) if isinstance(X, PartedTable) else (X,)
        for table in tables:
            rows = self.read(table)
            if isinstance(rows, np.ndarray) and np.isnan(rows).any():
                return True
        return False

    def _share_of_one_label(self) -> float:
        """Return the share of the weight that is in leaves whose rows all have the same label."""
        impurity = self.trees.at_leaves([tree.impurity for tree in self.trees.trees])
        pure = impurity <= 1e-9 * max(tree.impurity[0] for tree in self.trees.trees)
        return float(np.average(pure, weights=self.trees.weights()))

    def _class_weights(self, labels: WeightedLabels) -> F64:
        """Return the factors (n,) of class_weight, taking those of "balanced" as given numbers."""
        chosen = self.params.get("class_weight")
        if chosen is None or self.classes is None or self._balances_draws:
            return np.ones(len(labels.y))
        codes = labels.y.astype(int)
        if isinstance(chosen, str):
            # Since 1.9 forests add up a class's weights; earlier ones and single trees count rows.
            w = labels.w if hasattr(self.model, "_sample_weight") else None
            mass = np.bincount(codes, w, len(self.classes))
            return (mass.sum() / (len(mass) * mass))[codes]
        return np.array([float(chosen.get(label, 1.0)) for label in self.classes.tolist()])[codes]

    def _counts(self, y: F64) -> list[NDArray[Any]]:
        """Return for each tree how often it drew each row (n,).

        With "balanced_subsample" the counts are multiplied with the tree's own class weights."""
        n = len(y)
        if n != self.model._n_samples:
            raise InvalidInput(
                f"X has {n} rows, but this {self.name} drew from {self.model._n_samples}; pass all rows it was "
                "trained on."
            )
        counts = [np.bincount(drawn, minlength=n) for drawn in self.model.estimators_samples_]
        if not self._balances_draws:
            small = np.min_scalar_type(max(count.max() for count in counts))
            return [count.astype(small) for count in counts]
        codes = y.astype(int)
        return [count * _balanced_weights(count, codes)[codes] for count in counts]

    def _class_weights_of_draws(self, y: F64) -> list[F64] | None:
        """Return for each tree the class weights (C,) by which it balances the rows it drew."""
        if not self._balances_draws:
            return None
        codes = y.astype(int)
        drawn = self.model.estimators_samples_
        counts = [np.bincount(rows, minlength=len(y)) for rows in drawn]
        return [_balanced_weights(count, codes) for count in counts]

    def _check_chances(self, weights: F64) -> None:
        """Raise if these are not the weights (n,) that the forest drew its rows with."""
        kept = self.model._sample_weight
        if not np.allclose(weights, 1.0 if kept is None else kept, rtol=1e-6):
            raise InvalidInput(
                "sample_weight is not what this forest was trained with: it drew its rows with other chances. "
                "Pass the weights of training, or none if there were none."
            )

    def _scores(self, model: Any, X: Any) -> F64:
        trees = ForestTrees(model)
        pairs = zip(trees.trees, trees.nodes(X), strict=True)
        scores = sum(tree.value[nodes].reshape(len(nodes), -1) for tree, nodes in pairs)
        return np.asarray(scores) / len(trees.trees)

    def split_search(self) -> SplitSearch:
        if isinstance(self.model, (ExtraTreesClassifier, ExtraTreesRegressor)):
            raise splits_not_by_gain(f"{self.name} draws thresholds at random")
        return array_search(self.trees, self.params, self._split_values, "missing", self.ensemble)

    def _set_values(self, trees: Trees, e: Ensemble) -> None:
        trees.set_values(self.trees.starts(e.base) + e.values)

    def _prepare_clone(self, model: Any, threads: int) -> Any:
        return model.set_params(n_jobs=threads) if hasattr(model, "n_jobs") else model


def _balanced_weights(count: NDArray[Any], codes: NDArray[Any]) -> F64:
    """Return the weights (C,) that balance the classes of the drawn rows."""
    mass = np.bincount(codes, count)
    return count.sum() / (np.count_nonzero(mass) * np.where(mass > 0, mass, 1))
