"""What the scikit-learn adapters share: numbered leaves, rows by name, leaves that are quantiles, retraining."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from ..._data import inputs
from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.progress import progress
from ..._model.ensemble import Ensemble
from ..._model.start import Constant
from ..._model.training_set import TrainingSet
from ..base import BaseSource, cumulative, for_sklearn, pack_leaves

Fit = Callable[[F64, F64 | None], Any]  # a number from values and their weights


class Trees(ABC):
    """The leaves of a fitted model, numbered. ``K`` trees a step write to an output each."""

    def __init__(self, model: Any, is_leaf: Sequence[NDArray[np.bool_]], K: int = 1) -> None:
        self.model = model
        self.is_leaf = is_leaf
        self.tree_leaves = cumulative([leaf.sum() for leaf in is_leaf])
        self.step_trees = np.arange(0, len(is_leaf) + 1, K)
        self.first_output = np.tile(np.arange(K, dtype=np.int32), len(is_leaf) // K)

    @abstractmethod
    def read(self, X: Any) -> Any:
        """Rows as the trees take them."""

    @abstractmethod
    def nodes(self, X: Any) -> Iterator[Ints]:
        """Tree by tree, the node (n,) that each row ends in."""

    def leaves(self, X: Any) -> Ids:
        """(trees, n) from rows as the trees take them."""
        ids = (
            (np.cumsum(leaf) - 1)[nodes]
            for leaf, nodes in zip(self.is_leaf, self.nodes(X), strict=True)
        )
        ids = progress(ids, len(self.is_leaf), "leaves", "tree")
        return pack_leaves(ids, self.tree_leaves, self.step_trees, X.shape[0])

    def of_leaves(self, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """(leaves, ...) from an array (nodes, ...) for each tree."""
        return np.concatenate([v[leaf] for v, leaf in zip(values, self.is_leaf, strict=True)])

    @abstractmethod
    def bytes(self) -> bytes:
        """All nodes."""

    @property
    def arrays(self) -> dict[str, Any]:
        """What an `Ensemble` is told of them."""
        return {name: getattr(self, name) for name in ("tree_leaves", "step_trees", "first_output")}


class ArrayTrees(Trees):
    """Trees of sklearn.tree."""

    def __init__(self, model: Any, trees: Sequence[Any], K: int = 1) -> None:
        self.trees = [tree.tree_ for tree in trees]
        super().__init__(model, [tree.children_left == -1 for tree in self.trees], K)

    def nodes(self, X: Any) -> Iterator[Ints]:
        return (tree.apply(X) for tree in self.trees)

    def bytes(self) -> bytes:
        return b"".join(tree.__getstate__()["nodes"].tobytes() for tree in self.trees)

    def values(self) -> F64:
        """(leaves, O)."""
        return self.of_leaves([tree.value[:, 0] for tree in self.trees])

    def weights(self) -> F64:
        """(leaves,) weight of the rows each leaf was grown from."""
        return self.of_leaves([tree.weighted_n_node_samples for tree in self.trees])


@dataclass(frozen=True)
class Rows:
    """Training rows as the model took them. ``w`` is zero for rows held out; ``given``: whether there were weights."""

    y: F64
    w: F64
    factor: F64
    given: bool

    def hold_out(self, held: NDArray[np.bool_]) -> Rows:
        return Rows(
            self.y, np.where(held, 0.0, self.w), np.where(held, 0.0, self.factor), self.given
        )

    def constant(self, fit: Fit) -> Constant:
        """``fit`` of the rows that have weight."""

        def of_labels(y: F64, b: F64) -> float:
            return float(np.squeeze(fit(y[b > 0], b[b > 0] if self.given else None)))

        return of_labels


@dataclass
class OfResiduals:
    """A statistic of the residuals in each leaf."""

    name: str
    fit: Fit
    weighted: bool  # otherwise ``fit`` is told of no weights

    def __call__(self, leaf: Ids, M: int, residual: F64, y: F64, w: F64) -> F64:
        out = np.zeros(M)
        rows = np.flatnonzero(w > 0)
        rows = rows[np.argsort(leaf[rows], kind="stable")]
        for part in np.split(rows, np.flatnonzero(np.diff(leaf[rows].astype(np.int64))) + 1):
            if len(part):
                out[leaf[part[0]]] = self.fit(residual[part], w[part] if self.weighted else None)
        return out


class SklearnSource(BaseSource, ABC):
    """A scikit-learn model with its training data."""

    tolerance = 1e-7
    more_params: Sequence[str] = ()  # that Tracer's params may have besides the model's own

    def __init__(
        self, model: Any, X: Any, y: Any, sample_weight: Any, baseline: Any, given: dict[str, Any]
    ) -> None:
        self.model = model
        self.name = type(model).__name__
        self.params: dict[str, Any] = model.get_params(deep=False)
        self.given = {k: v for k, v in given.items() if k not in self.more_params}
        if strangers := sorted(set(self.given) - set(self.params)):
            raise InvalidInput(
                f"params has {', '.join(strangers)}, which {self.name} does not have; use the names of get_params()."
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
            inputs.vector(y, "y_train", n),
            None if sample_weight is None else weights,
        )
        codes = self.labels(y, n, "y_train")
        rows = Rows(codes, weights, np.ones(n), sample_weight is not None)
        self.ensemble = self._ensemble(leaves, offset, rows)

    @abstractmethod
    def _refuse(self) -> None:
        """Raise for settings whose leaf values are not reconstructed."""

    @abstractmethod
    def _trees(self, model: Any) -> Trees: ...

    @abstractmethod
    def _ensemble(self, leaves: Ids, offset: F64 | None, rows: Rows) -> Ensemble: ...

    @abstractmethod
    def _scores(self, model: Any, X: Any) -> F64:
        """(m, K) raw predictions for rows as the trees take them."""

    @abstractmethod
    def _fresh(self, model: Any, threads: int) -> Any:
        """This clone with what it needs to be trained as the model was."""

    def _offset(self, X: Any) -> F64 | None:
        return None

    def _refuse_constraints(self) -> None:
        constraints = self.params.get("monotonic_cst")
        values = constraints.values() if isinstance(constraints, dict) else constraints
        if values is not None and any(int(v) for v in values):
            raise UnsupportedModel(
                "monotonic_cst bounds leaf values in a way that cannot be replayed; train without."
            )

    def _table(self, X: Any) -> Any:
        """X with the model's columns in the model's order, as scikit-learn takes it: pandas, polars, arrays."""
        names = getattr(self.model, "feature_names_in_", None)
        names = (
            [str(i) for i in range(self.model.n_features_in_)]
            if names is None
            else [str(name) for name in names]
        )
        return for_sklearn(inputs.columns(X, names))

    def read(self, X: Any, trees: Trees | None = None) -> Any:
        """Rows as the trees, or these trees, take them."""
        X = self._table(X)
        try:
            return (trees or self.trees).read(X)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"{self.name} cannot read these rows: {error}") from None

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        if baseline is not None:
            raise InvalidInput("scikit-learn models are not trained with a baseline; leave it out.")
        X = self.read(X)
        return self.trees.leaves(X), self._offset(X)

    def structure(self) -> bytes:
        names = getattr(self.model, "feature_names_in_", np.zeros(0, str))
        return self.trees.bytes() + " ".join(map(str, names)).encode()

    def retrain(self, rows: TrainingSet, threads: int) -> RetrainedSklearn:
        """A clone trained on these rows. Where random_state is not an integer it also differs by chance."""
        X, y, weights = self._data
        labels = rows.labels(y)
        if self.classes is not None and len(np.unique(labels)) < len(self.classes):
            raise InvalidInput(
                "without these rows a class has none left; keep at least one of each class."
            )
        model: Any = clone(self.model)
        model = self._fresh(model.set_params(**self.given), threads)
        training = rows.table(X), labels, rows.weights(weights)
        more = {} if training[2] is None else {"sample_weight": training[2]}
        with threadpool_limits(threads, "openmp"):
            model.fit(*training[:2], **more)
        trees = self._trees(model)
        same = np.array_equal(trees.leaves(self.read(X, trees)), self.ensemble.leaves)
        return RetrainedSklearn(trees, not same, self, training)


@dataclass(frozen=True)
class RetrainedSklearn:
    """The model trained again."""

    trees: Trees
    structure_changed: bool  # does any training row fall into another leaf of any tree?
    source: SklearnSource
    training: tuple[Any, NDArray[Any], F64 | None]  # table, labels, weights

    def scores(self, X: Any) -> F64:
        scores = self.source._scores(self.trees.model, self.source.read(X, self.trees))
        given = self.source._offset(self.source.read(X))
        return (
            scores if given is None else scores - given
        )  # the caller adds what the first model was given

    def open(self) -> SklearnSource:
        return type(self.source)(self.trees.model, *self.training, None, self.source.given)
