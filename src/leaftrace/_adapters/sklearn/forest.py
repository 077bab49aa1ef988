"""RandomForest, ExtraTrees and single trees (float64).

A leaf is the weighted mean of its labels, one-hot for classifiers, or with criterion="absolute_error" their weighted
median; the prediction is the mean over the trees. So a forest is boosting whose trees do not see each other: all start
from the mean of all labels, and scores move only once, at the end, by 1 / T of every tree. A leaf that a refit leaves
without rows stays at that mean.

With bootstrap, a row weighs in a tree as often as it was drawn. Since scikit-learn 1.9, sample and class weights only
set the chances of being drawn; before, they multiplied the count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.parquet import PartedTable
from ..._model.ensemble import Ensemble, LeafRule, Recorded
from ..._model.general_losses import Pinball
from ..._model.losses import Loss, SquaredError
from ..._model.separate_losses import Brier
from ..._model.start import target_matrix
from .source import ArrayTrees, OfResiduals, Rows, SklearnSource

_VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
_CHANCES = "those of this forest only set the chances of rows being drawn"


def weighted_median(values: F64, weights: F64 | None) -> float:
    """The value that half of the weight lies below; the mean of two if the half falls between them."""
    assert weights is not None
    order = np.argsort(values)
    values = values[order]
    below = np.cumsum(weights[order])
    first, last = (np.searchsorted(below, below[-1] / 2, side) for side in ("left", "right"))
    return 0.5 * (values[first] + values[min(last, len(values) - 1)])


class ForestTrees(ArrayTrees):
    def __init__(self, model: Any) -> None:
        super().__init__(model, getattr(model, "estimators_", [model]))

    def read(self, X: Any) -> Any:
        forest = hasattr(self.model, "estimators_")
        return (
            self.model._validate_X_predict(X) if forest else self.model._validate_X_predict(X, True)
        )


class ForestSource(SklearnSource):
    """A forest, or a single tree, with its training data."""

    trees: ForestTrees

    def _refuse(self) -> None:
        if self.model.n_outputs_ > 1:
            raise UnsupportedModel(
                f"this {self.name} has {self.model.n_outputs_} outputs; train one model for each column of y."
            )
        self._refuse_constraints()
        if self.params["criterion"] == "poisson":
            self.label_range = (0.0, np.inf)

    def _trees(self, model: Any) -> ForestTrees:
        return ForestTrees(model)

    @property
    def _draws(self) -> bool:
        return bool(self.params.get("bootstrap"))

    @property
    def _weights_set_chances(self) -> bool:
        return self._draws and hasattr(
            self.model, "_sample_weight"
        )  # which 1.9 keeps to draw again

    @property
    def _weighs_draws(self) -> bool:
        return self._draws and self.params.get("class_weight") == "balanced_subsample"

    def _ensemble(self, leaves: Ids, offset: F64 | None, rows: Rows) -> Ensemble:
        n = len(rows.y)
        T = len(self.trees.trees)
        factor = self._class_weights(rows)
        notes = []
        sample = None
        if self._draws:
            sample = self._counts(rows.y)
            notes.append("bootstrap draws replayed, checked by the weight of every leaf")
        if self._weights_set_chances:
            self._check_chances(rows.w * factor)
            if rows.given or self.params.get("class_weight") not in (None, "balanced_subsample"):
                notes.append(
                    "weights only set the chances of being drawn: influence is that of a drawn copy of a row"
                )
            factor = np.ones(n)
            w = np.ones(n)
        else:
            w = rows.w * factor
        if self._misplaced_missing():
            notes.append(
                "before scikit-learn 1.8, rows with missing values were not always trained in the leaves they are "
                "predicted with"
            )
        if self._share_of_one_label() > 0.95:
            notes.append(
                "nearly all rows are in leaves of one label only, which do not move with the weights of their rows: "
                "ask for label_influence, or train with a larger min_samples_leaf"
            )
        self.notes = tuple(notes)
        loss: Loss = SquaredError() if self.classes is None else Brier(len(self.classes))
        statistic = None
        if self.params["criterion"] == "absolute_error":
            loss = Pinball(0.5, "absolute error")
            statistic = OfResiduals("median", weighted_median, True)
        base = np.average(target_matrix(loss, rows.y), axis=0, weights=w)
        return Ensemble(
            loss=loss,
            rule=LeafRule(diagonal=self.classes is not None, statistic=statistic),
            learning_rate=1.0,
            leaves=leaves,
            **self.trees.arrays,
            values=self.trees.values() - base,
            y=rows.y,
            w=w,
            w_factor=factor,
            base=base,
            sample=sample,
            moves=[*([] for _ in range(T)), [(t, 1 / T) for t in range(T)]],
            recorded=Recorded("weight", self.trees.weights()),
            weights_fixed=_CHANCES if self._weights_set_chances and rows.given else "",
            labels_fixed="every tree weighs classes by its own draw" if self._weighs_draws else "",
        )

    def _misplaced_missing(self) -> bool:
        if _VERSION >= (1, 8):
            return False
        X = self._data[0]
        tables = (part for _, part in X.parts()) if isinstance(X, PartedTable) else (X,)
        return any(
            isinstance(rows := self.read(table), np.ndarray) and np.isnan(rows).any()
            for table in tables
        )

    def _share_of_one_label(self) -> float:
        impurity = self.trees.of_leaves([tree.impurity for tree in self.trees.trees])
        pure = impurity <= 1e-9 * max(tree.impurity[0] for tree in self.trees.trees)
        return float(np.average(pure, weights=self.trees.weights()))

    def _class_weights(self, rows: Rows) -> F64:
        """(n,) what class_weight multiplies the weights with. Those of "balanced" are taken as given numbers."""
        chosen = self.params.get("class_weight")
        codes = rows.y.astype(int)
        if (
            chosen is None
            or self.classes is None
            or (chosen == "balanced_subsample" and self._draws)
        ):
            return np.ones(len(codes))
        if isinstance(chosen, str):
            # Forests weigh the classes since 1.9; earlier ones, and single trees, count them.
            mass = np.bincount(
                codes, rows.w if hasattr(self.model, "_sample_weight") else None, len(self.classes)
            )
            return (mass.sum() / (len(mass) * mass))[codes]
        return np.array([float(chosen.get(label, 1.0)) for label in self.classes.tolist()])[codes]

    def _counts(self, y: F64) -> list[NDArray[Any]]:
        """For each tree (n,) how often it drew each row; times its own class weights with "balanced_subsample"."""
        n = len(y)
        codes = y.astype(int)
        if n != self.model._n_samples:
            raise InvalidInput(
                f"X has {n} rows, but this {self.name} drew from {self.model._n_samples}; pass all rows it was "
                "trained on."
            )
        counts = [np.bincount(drawn, minlength=n) for drawn in self.model.estimators_samples_]
        if not self._weighs_draws:
            small = np.min_scalar_type(max(count.max() for count in counts))
            return [count.astype(small) for count in counts]
        masses = [np.bincount(codes, count) for count in counts]
        return [
            count * (count.sum() / (np.count_nonzero(mass) * np.where(mass > 0, mass, 1)))[codes]
            for count, mass in zip(counts, masses, strict=True)
        ]

    def _check_chances(self, weights: F64) -> None:
        kept = self.model._sample_weight
        if not np.allclose(weights, 1.0 if kept is None else kept, rtol=1e-6):
            raise InvalidInput(
                "sample_weight is not what this forest was trained with: it drew its rows with other chances. "
                "Pass the weights of training, or none if there were none."
            )

    def _scores(self, model: Any, X: Any) -> F64:
        trees = ForestTrees(model)
        scores = sum(
            tree.value[nodes, 0] for tree, nodes in zip(trees.trees, trees.nodes(X), strict=True)
        )
        return np.asarray(scores) / len(trees.trees)

    def _fresh(self, model: Any, threads: int) -> Any:
        return model.set_params(n_jobs=threads) if hasattr(model, "n_jobs") else model
