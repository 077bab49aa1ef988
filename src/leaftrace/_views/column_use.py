"""How far a model uses each column: how far predictions move when rows exchange its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._data import inputs
from .._data.arrays import F64
from .._data.cells import CellTable
from .._data.progress import progress
from .._tracer.tracer import Tracer

_ROWS = 200  # rows that exchange their values
_COLUMNS = 300  # beyond this many it would take long, and columns stay in their order


def column_uses(tracer: Tracer, X: Any, cells: CellTable) -> F64 | None:
    """(columns,) mean move of the raw scores if the rows of X exchange their values of a column.

    ``cells``: the columns that are shown of X. None: the table cannot be changed column by column,
    or has very many.
    """
    m = inputs.row_count(X)
    can_change = hasattr(X, "isetitem") or (isinstance(X, np.ndarray) and X.dtype.kind == "f")
    if not can_change or m < 2 or not 0 < len(cells.names) <= _COLUMNS:
        return None
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(m, min(m, _ROWS), replace=False))
    X = inputs.take_rows(X, rows)
    other = np.roll(rng.permutation(len(rows)), 1)
    model = tracer.engine.as_trained
    before = model.scores(X)
    places = progress(cells.places, len(cells.places), "how columns are used", "column")
    moves = [np.abs(model.scores(_exchanged(X, place, other)) - before).mean() for place in places]
    return np.array(moves, dtype=float)


def _exchanged(X: Any, place: int, other: np.ndarray) -> Any:
    """The table X with the values of other rows in the column at this place."""
    X = X.copy()
    if isinstance(X, np.ndarray):
        X[:, place] = X[other, place]
    else:
        X.isetitem(place, X.iloc[other, place].set_axis(X.index))
    return X
