"""Queries that are sums over leaf values: SHAP values of features.

A SHAP value is no function of scores, but with trees and covers fixed it is linear in the leaf values
of the finished model. Its weights there are the seeds of the backward pass; the starting score is in
none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from .._adapters import Source
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._data.row_labels import aligned, labels_of, row_index
from .._model.ensemble import Ensemble
from .._model.goal import ShapGoal
from .._model.kernels import zeros
from .._model.linear_leaves import refuse_linear
from .._model.tree_paths import TreePaths
from .queries import Of, Queries, Reduce, output_gradient, queries_for


@dataclass(frozen=True, kw_only=True)
class LeafQueries(Queries):
    """SHAP values of features at m test rows.

    There is a query for each test row and one feature or, with `reduce`, one for each feature.
    ``gradient`` has the output that is meant.
    """

    paths: TreePaths
    features: Sequence[int]

    of_scores = False

    def __len__(self) -> int:
        return len(self.features) if self.reduce else self.leaves.shape[1]

    def seeds(self, columns: slice, width: int, dtype: np.dtype) -> tuple[Any, F64]:
        e = self.ensemble
        fbar = zeros((len(e.values), e.leaf_outputs, width), dtype)
        count = len(range(len(self))[columns])
        fbar[:, :, :count] = self.leaf_weights(columns)
        return fbar, np.zeros((e.n_outputs, width))

    def leaf_weights(self, columns: slice) -> F64:
        """(leaves, O, queries) weights of some queries in the leaf values of training."""
        if not self.reduce:
            return self._weights(self.features[0], columns, per_row=True)
        parts = [self._weights(f, slice(None), per_row=False) for f in self.features[columns]]
        total = np.concatenate(parts, axis=2)
        return total / len(self.gradient) if self.reduce == "mean" else total

    def _weights(self, feature: int, rows: slice, per_row: bool) -> F64:
        """(leaves, O, rows) weights for one feature; (leaves, O, 1) their sum unless ``per_row``."""
        e = self.ensemble
        c = self.gradient[rows]  # (m', K)
        factors = np.repeat(e.factors, np.diff(e.step_trees))
        out = np.zeros((len(e.values), e.leaf_outputs, len(c) if per_row else 1))
        for r, first in enumerate(e.first_output):
            chosen = c[:, first : first + e.leaf_outputs]  # (m', O)
            if not chosen.any():
                continue
            weights = factors[r] * self.paths.feature_weights(r, rows, feature)  # (m', L)
            leaves = slice(*e.tree_leaves[r : r + 2])
            axes = "ml,mo->lom" if per_row else "ml,mo->lo"
            part = np.einsum(axes, weights, chosen)
            out[leaves] = part if per_row else part[:, :, None]
        return out

    def change_between(self, before: Ensemble, after: Ensemble) -> F64:
        moved = after.values - before.values
        return np.einsum("loq,lo->q", self.leaf_weights(slice(None)), moved)

    def at(self, ensemble: Ensemble) -> LeafQueries:
        return replace(self, ensemble=ensemble)

    def values_of(self, ensemble: Ensemble) -> F64:
        """(queries,) the SHAP values in a model with these leaf values."""
        return np.einsum("loq,lo->q", self.leaf_weights(slice(None)), ensemble.values)

    def change(self, dF: F64) -> NoReturn:
        raise _needs_leaves()

    def slope(self, dF: F64) -> NoReturn:
        raise _needs_leaves()

    def gradient_at(self, F: F64) -> NoReturn:
        raise _needs_leaves()


def _needs_leaves() -> InvalidInput:
    return InvalidInput(
        "a SHAP value depends on leaf values, not on predictions alone, so goals.shap() works with LeafInfluence(), "
        "LeafRefit() without an update set, label_influence() and score_candidates() of a tracer."
    )


def refuse_other_methods(queries: Queries, is_possible: bool) -> None:
    """Raise an error for queries about leaf values and a method that moves scores or trees."""
    if not queries.of_scores and not is_possible:
        raise _needs_leaves()


def queries_about(
    source: Source,
    X: Any,
    y: Any,
    of: Of,
    reduce: Reduce,
    output: int | None,
    baseline: Any,
    qid: Any = None,
) -> tuple[Queries, np.ndarray]:
    """The queries about these test rows, as a user passes them, and the names of their columns."""
    if not isinstance(of, ShapGoal):
        return queries_for(source, X, y, of, reduce, output, baseline, qid)
    return shap_queries(source, X, of, reduce, output, baseline)


def shap_queries(
    source: Source, X: Any, of: ShapGoal, reduce: Reduce, output: int | None, baseline: Any
) -> tuple[LeafQueries, np.ndarray]:
    """The SHAP values of features at these test rows, and the names of their columns."""
    if reduce not in (None, "mean", "sum"):
        raise InvalidInput(
            f"reduce is {reduce!r}; it can be None (a column for each test row), 'mean' or 'sum'."
        )
    if source.ensemble.linear is not None:
        refuse_linear("goals.shap()")
    leaves, offset = source.rows(X, aligned(baseline, labels_of(X), "baseline", "X_test"))
    m = leaves.shape[1]
    if m == 0:
        raise InvalidInput("X_test has no rows; pass at least one test row.")
    paths = source.tree_paths(X)
    names = _feature_names(paths, X)
    features = _feature_numbers(of, names)
    if of.several and reduce is None:
        if m > 1:
            raise InvalidInput(
                f"goals.shap() of several features has a column for each feature, so it takes one test row, and X_test "
                f"has {m}; pass one row, or reduce='mean' for the mean over all."
            )
        reduce = "sum"  # over one row
    e = source.ensemble
    F = e.scores(leaves, offset)
    if e.n_outputs > 1 and output is None and e.loss.several_numbers:
        raise InvalidInput(
            f"this model predicts {F.shape[1]} numbers for a row; say with output=0, 1, ... which one is meant."
        )
    c = output_gradient(F, output)
    what = "shap" if of.several else f"shap_{names[features[0]]}"
    queries = LeafQueries(e, leaves, F, None, c, what, reduce, paths=paths, features=features)
    if of.several:
        return queries, np.array([names[f] for f in features], dtype=object)
    return queries, np.array([reduce]) if reduce else row_index(X, m)


def _feature_names(paths: TreePaths, X: Any) -> list[str]:
    """Names of the features that the model compares: its own, those of the table, or numbers."""
    count = 1 + max((f for player in paths.players for f in player), default=-1)
    names = paths.names
    if names is None:
        columns = getattr(X, "columns", None)
        names = None if columns is None or len(columns) != count else list(columns)
    if names is None:
        return [f"feature {f}" for f in range(count)]
    return [str(name) for name in names]


def _feature_numbers(of: ShapGoal, names: list[str]) -> list[int]:
    """Positions of the features that a user names."""
    if of.features is None:
        return list(range(len(names)))
    return [_feature_number(feature, names) for feature in of.features]


def _feature_number(feature: Any, names: list[str]) -> int:
    if isinstance(feature, (int, np.integer)) and not isinstance(feature, bool):
        if 0 <= feature < len(names):
            return int(feature)
        raise InvalidInput(
            f"goals.shap() has the position {feature}; this model has features 0 to {len(names) - 1}."
        )
    for name in (str(feature), str(feature).replace(" ", "_")):  # as LightGBM writes names
        if name in names:
            return names.index(name)
    known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise InvalidInput(f"goals.shap() has the feature {feature!r}; this model has {known}.")
