"""Rows that the models of a cross-validation were trained on: from a splitter, or as users give them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from ..._data import frames, inputs
from ..._data.arrays import Ints
from ..._data.errors import InvalidInput, UnsupportedModel

_ASK = (
    "pass them: Tracer.of_folds(model, X, y, folds), with folds=list(cv.split(X, y)) as in training, or the training "
    "rows of each member"
)


def folds_of_splitter(cv: Any, X: Any, y: Any, count: int) -> list[Ints]:
    """Return the training rows of each of ``count`` folds that a `cv` argument of scikit-learn makes.

    An error if it does not make the same folds again.
    """
    from sklearn.model_selection import check_cv

    if hasattr(cv, "__next__"):
        raise UnsupportedModel(f"cv was an iterator of folds, which is used up; {_ASK}.")
    splitter: Any = check_cv(cv=cv, y=frames.to_numpy(y), classifier=True)
    name = type(splitter).__name__
    if _draws_anew(splitter):
        raise UnsupportedModel(
            f"the folds of {name} with random_state={splitter.random_state!r} cannot be drawn again; {_ASK}."
        )
    n = inputs.row_count(X)
    try:
        found = [np.asarray(train) for train, _ in splitter.split(np.zeros((n, 1)), y)]
    except (ValueError, TypeError) as error:
        raise UnsupportedModel(
            f"{name} makes no folds from X and y alone ({error}); {_ASK}."
        ) from None
    if len(found) != count:
        raise UnsupportedModel(
            f"{name} makes {len(found)} folds, but there are {count} models; {_ASK}."
        )
    return found


def _draws_anew(splitter: Any) -> bool:
    """Whether a splitter makes other folds each time."""
    shuffles = getattr(splitter, "shuffle", True)
    state = getattr(splitter, "random_state", 0)
    return bool(shuffles) and not isinstance(state, Integral)


def given_folds(folds: Any, X: Any, y: Any, count: int) -> list[Ints]:
    """Return the training rows of each of ``count`` models, as a user gives them.

    ``folds``: pairs (training rows, other rows), training rows alone, a splitter, or the "indices" of
    `cross_validate`.
    """
    n = inputs.row_count(X)
    if isinstance(folds, Mapping):
        folds = folds.get("train", folds)
    if hasattr(folds, "split") and not hasattr(folds, "dtype"):
        return folds_of_splitter(folds, X, y, count)
    rows = [_training_rows(fold, n, number) for number, fold in enumerate(folds)]
    if len(rows) != count:
        raise InvalidInput(f"folds has {len(rows)} folds for {count} models; pass one for each.")
    return rows


def _training_rows(fold: Any, n: int, number: int) -> Ints:
    """Return the training rows of one fold: a pair, positions or a mask."""
    if isinstance(fold, tuple) and len(fold) == 2:
        fold = fold[0]
    rows = np.asarray(fold)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows)
    if (
        rows.ndim != 1
        or rows.dtype.kind not in "iu"
        or (len(rows) and rows.max() >= n)
        or np.any(rows < 0)
    ):
        raise InvalidInput(
            f"fold {number} is no set of training rows; expected positions from 0 to {n - 1}, a mask of {n}, or a pair "
            "(training rows, other rows)."
        )
    return rows.astype(np.intp)
