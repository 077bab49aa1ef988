"""Parts that the scikit-learn adapters share: opening a model with its rows, retraining it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from ..._data import inputs
from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, training_errors
from ..._data.forks import works_in_forks
from ..._model.early_stopping import EvalSet, Rounds
from ..._model.ensemble import Ensemble
from ..._model.training_set import TrainingSet
from ..._model.tree_paths import TreePaths, paths_of_routes
from ..base import BaseSource, for_sklearn
from ..split_columns import columns_of_training, numbers
from .labels import WeightedLabels
from .trees import Trees


class SklearnSource(BaseSource, ABC):
    """A scikit-learn model with its training data."""

    tolerance = 1e-7
    extra_params: Sequence[str] = ()  # names that Tracer's params may have besides the model's own
    # What retraining does about early stopping; that on rows held out of X is repeated by itself.
    early_stopping: Literal["none", "kept", "repeated"] = "none"

    def __init__(
        self, model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]
    ) -> None:
        self.model = model
        self.name = type(model).__name__
        self.params: dict[str, Any] = model.get_params(deep=False)
        self.given = {k: v for k, v in given.items() if k not in self.extra_params}
        if unknown := sorted(set(self.given) - set(self.params)):
            raise InvalidInput(
                f"params has {', '.join(unknown)}, which {self.name} does not have; use the names of get_params()."
            )
        self.params |= given
        self._refuse()
        if y is None:
            raise InvalidInput("y_train is missing; pass the labels the model was trained on.")
        self.trees = self._trees(model)
        self.classes = np.asarray(model.classes_) if hasattr(model, "classes_") else None
        leaves, offset = self.training_rows(X, baseline)
        n = leaves.shape[1]
        weights = inputs.weights(sample_weight, n)
        self._data = (
            self._table(X),
            self.given_labels(y, n, "y_train"),
            None if sample_weight is None else weights,
        )
        codes = self.labels(y, n, "y_train")
        labels = WeightedLabels(codes, weights, np.ones(n), sample_weight is not None)
        self.ensemble = self._ensemble(leaves, offset, labels)

    @abstractmethod
    def _refuse(self) -> None:
        """Raise for settings whose leaf values are not reconstructed."""

    @abstractmethod
    def _trees(self, model: Any) -> Trees:
        """Return the trees of this model, or of a clone that was trained again."""

    @abstractmethod
    def _ensemble(self, leaves: Ids, offset: F64 | None, labels: WeightedLabels) -> Ensemble:
        """Describe the model. ``labels`` have the user's weights, class weights not included."""

    @abstractmethod
    def _scores(self, model: Any, X: Any) -> F64:
        """Return raw predictions (m, K) for rows as the trees take them."""

    @abstractmethod
    def _prepare_clone(self, model: Any, threads: int) -> Any:
        """Give a clone the settings it needs to be trained as the model was."""

    def _offset(self, X: Any) -> F64 | None:
        """Return the scores (m, K) that an estimator of the user's gives rows, or None."""
        return None

    @property
    def _directions(self) -> Ints | None:
        """Return 1, -1 or 0 for each column (d,) by monotonic_cst; None if no column is constrained."""
        given = self.params.get("monotonic_cst")
        if given is None:
            return None
        if isinstance(given, dict):
            given = [given.get(name, 0) for name in self.model.feature_names_in_]
        found = np.asarray(given).astype(np.int64)
        return found if found.any() else None

    def _table(self, X: Any) -> Any:
        """Return X with the model's columns in the model's order: pandas, polars or an array."""
        names = getattr(self.model, "feature_names_in_", None)
        if names is None:
            names = range(self.model.n_features_in_)
        return for_sklearn(inputs.columns(X, [str(name) for name in names]))

    def read(self, X: Any, trees: Trees | None = None) -> Any:
        """Return rows as the model's trees, or these trees, take them."""
        X = self._table(X)
        try:
            return (trees or self.trees).read(X)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"{self.name} cannot read these rows: {error}") from None

    @works_in_forks
    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        if baseline is not None:
            raise InvalidInput("scikit-learn models are not trained with a baseline; leave it out.")
        X = self.read(X)
        return self.trees.leaves(X), self._offset(X)

    @works_in_forks
    def split_columns(self, X: Any) -> F64:
        return numbers(self.read(X))

    @works_in_forks
    def tree_paths(self, X: Any) -> TreePaths:
        trees = self.trees
        rows = self.read(X)
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        return paths_of_routes(
            [trees.routes(r) for r in range(len(trees.is_leaf))],
            np.split(trees.covers(), trees.tree_leaves[1:-1]),
            trees.compared(rows),
            getattr(self.model, "feature_names_in_", None),
            trees.features(),
        )

    @property
    def _split_values(self) -> F64:
        """Columns (n, d) of the training rows that splits compare."""
        return columns_of_training(self.split_columns, self._data[0])

    @works_in_forks
    def structure(self) -> bytes:
        names = getattr(self.model, "feature_names_in_", np.zeros(0, str))
        return self.trees.node_bytes() + " ".join(map(str, names)).encode()

    def refitted_model(self, e: Ensemble) -> Any:
        model = deepcopy(self.model)
        self._set_values(self._trees(model), e)
        return model

    @abstractmethod
    def _set_values(self, trees: Trees, e: Ensemble) -> None:
        """Give a copy of the model, by its trees, the leaf values and starting score of ``e``."""

    @works_in_forks
    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedSklearn:
        """Train a clone on another training set.

        Where random_state is not an integer, the clone also differs by chance."""
        X, y, weights = self._data
        labels = rows.labels(y)
        if self.classes is not None and len(np.unique(labels)) < len(self.classes):
            raise InvalidInput(
                "without these rows a class has none left; keep at least one of each class."
            )
        model: Any = clone(self.model)
        model = model.set_params(**self.given)
        stopping = self._stopping_rows(rows.eval_set)
        if not stopping:
            model = self._prepare_clone(model, threads)
        table = rows.table(X)
        weights = rows.weights(weights)
        with training_errors(self.name, ValueError), threadpool_limits(threads, "openmp"):
            if weights is None:
                model.fit(table, labels, **stopping)
            else:
                model.fit(table, labels, sample_weight=weights, **stopping)
        trees = self._trees(model)
        how = "repeated" if stopping else self.early_stopping
        rounds = Rounds(_rounds(model), _rounds(self.model), how)
        return RetrainedSklearn(trees, self, (table, labels, weights), rounds)

    @works_in_forks
    def same_structure(self, trees: Trees) -> bool:
        """Whether all training rows fall into the same leaves of other trees."""
        X = self._data[0]
        return np.array_equal(trees.leaves(self.read(X, trees)), self.ensemble.leaves)

    def _stopping_rows(self, eval_set: EvalSet | None) -> dict[str, Any]:
        """Return the arguments of fit() with the rows that decide when to stop."""
        if eval_set is None:
            return {}
        raise InvalidInput(
            f"this {self.name} was not stopped by rows that fit() got (X_val); leave eval_set out."
        )


def _rounds(model: Any) -> int:
    """Return the number of rounds of a boosted model, or of trees of a forest."""
    return model.n_iter_ if hasattr(model, "n_iter_") else len(getattr(model, "estimators_", [0]))


@dataclass(frozen=True)
class RetrainedSklearn:
    """A scikit-learn model that was trained again."""

    trees: Trees
    source: SklearnSource
    training: tuple[Any, NDArray[Any], F64 | None]  # table, labels, weights
    rounds: Rounds

    @cached_property
    def structure_changed(self) -> bool:
        return not self.source.same_structure(self.trees)

    @works_in_forks
    def scores(self, X: Any) -> F64:
        scores = self.source._scores(self.trees.model, self.source.read(X, self.trees))
        offset = self.source._offset(self.source.read(X))
        # The caller adds the scores that the first model's init estimator gives.
        return scores if offset is None else scores - offset

    def own_model(self) -> Any:
        return self.trees.model

    @works_in_forks
    def open(self) -> SklearnSource:
        return type(self.source)(self.trees.model, *self.training, None, self.source.given)
