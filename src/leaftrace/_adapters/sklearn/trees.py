"""Trees of scikit-learn models with numbered leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints, Real
from ..._data.progress import progress
from ..._model.routes import MISSING_LEFT, NodeRoutes, slots_of
from ..base import cumulative, pack_leaves
from ..own_leaves import LeavesByNodes, OwnLeaves


class Trees(ABC):
    """The trees of a fitted model.

    ``is_leaf`` holds for each tree which of its nodes (nodes,) are leaves. Each of the ``K`` trees
    of a step writes to an output of its own."""

    def __init__(self, model: Any, is_leaf: Sequence[NDArray[np.bool_]], K: int = 1) -> None:
        self.model = model
        self.is_leaf = is_leaf
        self.tree_leaves = cumulative([leaf.sum() for leaf in is_leaf])
        self.step_trees = np.arange(0, len(is_leaf) + 1, K)
        self.first_output = np.tile(np.arange(K, dtype=np.int32), len(is_leaf) // K)

    @abstractmethod
    def read(self, X: Any) -> Any:
        """Return rows as the trees take them."""

    @abstractmethod
    def nodes(self, X: Any) -> Iterator[Ints]:
        """Yield, tree by tree, the node (n,) that each row ends in."""

    @abstractmethod
    def set_values(self, values: F64) -> None:
        """Write leaf values (leaves, O) into the model. Values of inner nodes stay."""

    @abstractmethod
    def node_bytes(self) -> bytes:
        """Return the content of all nodes."""

    @abstractmethod
    def routes(self, r: int) -> NodeRoutes:
        """Return the comparisons at the inner nodes of tree r."""

    @abstractmethod
    def compared(self, X: Any) -> Real:
        """Return the values (n, d) that splits compare, of rows that `read` returned."""

    @abstractmethod
    def covers(self) -> F64:
        """Return the cover (leaves,) of each leaf: the weight, or the number, of its rows."""

    def features(self) -> Ints | None:
        """Return the feature (d,) that each column of `compared` is, or None if it is its own."""
        return None

    @cached_property
    def own_leaves(self) -> OwnLeaves:
        trees = [self.routes(r) for r in range(len(self.is_leaf))]
        return LeavesByNodes(trees, self.tree_leaves, self.step_trees)

    def leaves(self, X: Any) -> Ids:
        """Return the leaves (trees, n) of rows that `read` returned."""
        if hasattr(X, "tocsr"):
            return self._library_leaves(X)
        return self.own_leaves.find(
            len(X),
            lambda: self.compared(X),
            lambda rows: self._library_leaves(X if rows is None else X[rows]),
        )

    def _library_leaves(self, X: Any) -> Ids:
        """Return the same by scikit-learn."""
        ids = (
            (np.cumsum(leaf) - 1)[nodes]
            for leaf, nodes in zip(self.is_leaf, self.nodes(X), strict=True)
        )
        ids = progress(ids, len(self.is_leaf), "leaves", "tree")
        return pack_leaves(ids, self.tree_leaves, self.step_trees, X.shape[0])

    def slots(self, r: int, left: Ints, right: Ints) -> tuple[Ints, NDArray[np.int32]]:
        """Return `slots_of` tree r, from arrays (nodes,) of children."""
        is_leaf = self.is_leaf[r]
        number = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
        return slots_of(left.astype(np.int64), right.astype(np.int64), number)

    def at_leaves(self, node_values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return values (leaves, ...) of all leaves, from an array (nodes, ...) for each tree."""
        pairs = zip(node_values, self.is_leaf, strict=True)
        return np.concatenate([values[leaf] for values, leaf in pairs])

    @property
    def layout(self) -> dict[str, Any]:
        """Arguments of an `Ensemble` that describe how the trees are laid out."""
        return {name: getattr(self, name) for name in ("tree_leaves", "step_trees", "first_output")}


class ArrayTrees(Trees):
    """Trees of sklearn.tree."""

    def __init__(self, model: Any, trees: Sequence[Any], K: int = 1) -> None:
        self.trees = [tree.tree_ for tree in trees]
        super().__init__(model, [tree.children_left == -1 for tree in self.trees], K)

    def nodes(self, X: Any) -> Iterator[Ints]:
        return (tree.apply(X) for tree in self.trees)

    def routes(self, r: int) -> NodeRoutes:
        tree = self.trees[r]
        inner, children = self.slots(r, tree.children_left, tree.children_right)
        missing = getattr(tree, "missing_go_to_left", np.zeros(len(tree.feature), np.uint8))
        return NodeRoutes(
            children,
            tree.feature[inner].astype(np.int32),
            tree.threshold[inner],
            MISSING_LEFT * missing[inner].astype(np.uint8),
        )

    def compared(self, X: Any) -> Real:
        return X

    def node_bytes(self) -> bytes:
        return b"".join(tree.__getstate__()["nodes"].tobytes() for tree in self.trees)

    def values(self) -> F64:
        """Return the leaf values (leaves, O)."""
        return self.at_leaves([tree.value.reshape(tree.node_count, -1) for tree in self.trees])

    def rows(self) -> F64:
        """Return the number (leaves,) of rows each leaf was grown from."""
        return self.at_leaves([tree.n_node_samples for tree in self.trees]).astype(np.float64)

    def set_values(self, values: F64) -> None:
        parts = np.split(values, self.tree_leaves[1:-1])
        for tree, leaf, part in zip(self.trees, self.is_leaf, parts, strict=True):
            tree.value[leaf] = part.reshape(-1, *tree.value.shape[1:])

    def covers(self) -> F64:
        return self.weights()

    def weights(self) -> F64:
        """Return the weight (leaves,) of the rows each leaf was grown from."""
        return self.at_leaves([tree.weighted_n_node_samples for tree in self.trees])
