"""`TrainingSet`: another training set, made from the one a model was trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data import frames, inputs
from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .early_stopping import EvalSet


@dataclass(frozen=True)
class TrainingSet:
    """The original training rows with some of them removed, relabelled, reweighted, or new rows added.

    ``n``                          number of original rows
    ``keep`` (k,)                  positions of the original rows that stay
    ``y``, ``sample_weight`` (n,)  labels and weights of all original rows; None: as they were
    ``added``                      table, labels and weights of new rows
    ``eval_set``                   rows that decide when a retraining stops; None: it keeps the rounds

    Labels are spelled as the user spells them.
    """

    n: int
    keep: Ints
    y: NDArray[Any] | None = None
    sample_weight: F64 | None = None
    added: tuple[Any, NDArray[Any], F64] | None = None
    eval_set: EvalSet | None = None

    @classmethod
    def unchanged(cls, n: int) -> TrainingSet:
        """The training set as it was."""
        return cls(n, np.arange(n))

    def stopped_by(self, eval_set: EvalSet | None) -> TrainingSet:
        """This set with rows that decide when a retraining stops, unless it has some."""
        return self if self.eval_set is not None else replace(self, eval_set=eval_set)

    @property
    def kept(self) -> NDArray[np.bool_]:
        """(n,) whether each original row stays."""
        kept = np.zeros(self.n, bool)
        kept[self.keep] = True
        return kept

    @property
    def removed(self) -> Ints:
        """Positions of the original rows that do not stay."""
        return np.flatnonzero(~self.kept)

    def in_words(self) -> str:
        """Differences from the original training set, for a list: `, without 2 rows`."""
        words = []
        if count := len(self.removed):
            words.append(f"without {count:,} row{'s' * (count > 1)}")
        if self.y is not None:
            words.append("other labels")
        if self.sample_weight is not None:
            words.append("other weights")
        if self.added is not None:
            words.append(f"{len(self.added[1]):,} added")
        return "".join(f", {word}" for word in words or ["on all rows"])

    def table(self, X: Any) -> Any:
        """The rows of this set, from the original table."""
        rows = inputs.take_rows(X, self.keep)
        return rows if self.added is None else _append_rows(rows, self.added[0])

    def labels(self, y: NDArray[Any]) -> NDArray[Any]:
        """The labels of this set, from the original ones (n,)."""
        kept = self.all_labels(y)[self.keep]
        return kept if self.added is None else np.concatenate([kept, self.added[1]])

    def weights(self, w: F64 | None) -> F64 | None:
        """The weights of this set, from the original ones (n,).

        None if there were none and are none: a library may compute quantiles of rows without
        weights by another rule than quantiles of rows of weight one.
        """
        w = w if self.sample_weight is None else self.sample_weight
        if w is None and (self.added is None or np.all(self.added[2] == 1)):
            return None
        kept = (np.ones(self.n) if w is None else w)[self.keep]
        return kept if self.added is None else np.concatenate([kept, self.added[2]])

    def offset(self, offset: F64 | None) -> F64 | None:
        """The scores given to the rows of this set, from those of the original rows (n, K)."""
        if offset is None:
            return None
        if self.added is not None:
            raise InvalidInput(
                "this model was trained with a baseline, which new rows lack; they cannot be added."
            )
        return offset[self.keep]

    def all_labels(self, y: NDArray[Any]) -> NDArray[Any]:
        """(n,) labels of all original rows, also of the removed ones, from the original ones."""
        return y if self.y is None else self.y

    def all_weights(self, w: F64) -> F64:
        """(n,) weights of all original rows, also of the removed ones, from the original ones."""
        return w if self.sample_weight is None else self.sample_weight

    def then(self, later: TrainingSet, y: NDArray[Any], w: F64) -> TrainingSet:
        """This set changed once more: `later` is made from the rows of this one.

        ``y``, ``w`` (n,): labels and weights of the original rows. Neither set has added rows.
        """
        labels = self.y
        if later.y is not None:
            labels = self.all_labels(y).copy()
            labels[self.keep] = later.y
        weights = self.sample_weight
        if later.sample_weight is not None:
            weights = self.all_weights(w).copy()
            weights[self.keep] = later.sample_weight
        return TrainingSet(self.n, self.keep[later.keep], labels, weights)

    def differs_from(self, other: TrainingSet, y: NDArray[Any], w: F64) -> Ints:
        """Positions of the original rows that the two sets keep, label or weight differently.

        ``y``, ``w`` (n,): labels and weights of the original rows.
        """
        relabelled = self.all_labels(y) != other.all_labels(y)
        return np.flatnonzero(
            (self.kept != other.kept)
            | (relabelled if relabelled.ndim == 1 else relabelled.any(axis=1))
            | (self.all_weights(w) != other.all_weights(w))
        )


def _append_rows(X: Any, more: Any) -> Any:
    """One table with the rows of both, of the kind of X."""
    width = np.shape(more)[1:] if not frames.kind(more) else ()
    if not hasattr(more, "columns") and len(width) == 1 and width != np.shape(X)[1:2]:
        raise InvalidInput(
            f"the added rows have {width[0]} columns, but the training rows have {np.shape(X)[1]}; pass the same "
            "columns in the same order."
        )
    if hasattr(X, "iloc"):
        import pandas as pd

        more = frames.to_pandas(more)
        more = more if hasattr(more, "iloc") else pd.DataFrame(np.asarray(more), columns=X.columns)
        if missing := [name for name in X.columns if name not in more.columns]:
            names = ", ".join(map(repr, missing))
            raise InvalidInput(
                f"the added rows lack the column(s) {names} of the training rows; pass them, too."
            )
        columns = {name: _in_dtype(more[name], dtype) for name, dtype in X.dtypes.items()}
        return pd.concat([X, pd.DataFrame(columns)])
    if hasattr(X, "tocsr"):
        from scipy.sparse import vstack

        return vstack([X, more]).tocsr()
    if frames.kind(X):
        return frames.append_rows(X, more)
    return np.concatenate([X, np.asarray(more)])


def _in_dtype(column: Any, dtype: Any) -> Any:
    """A column in another dtype where that changes no value, or as it is.

    Categories stay categories, and those that the dtype does not have are missing values. Fractions
    do not become whole numbers."""
    if hasattr(dtype, "categories"):
        return column.where(column.isin(dtype.categories)).astype(dtype)
    try:
        cast = column.astype(dtype)
    except (TypeError, ValueError):
        return column
    return cast if ((cast == column) | column.isna()).all() else column
