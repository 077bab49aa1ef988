"""Training rows by where they are: groups of a column, and regions of a map of two columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.cells import column_names, short
from ..._data.errors import InvalidInput
from ..._data.grouping import Groups, bin_edges, column, groups_of, groups_of_values, is_missing
from .session import Session

LABEL = "(label)"  # in the place of a column: the label of the training rows
BINS = 6
MAX_CORNERS = 400
MAX_CATEGORIES = 40  # on an axis of the map
_GOLDEN = 0.6180339887498949


def grouping_columns(session: Session) -> list[str]:
    """Columns that rows can be grouped by."""
    names = column_names(session.tracer.X_train)
    return [] if names is None else [str(short(name)) for name in names]


def training_groups(session: Session, by: Any) -> Groups:
    """The groups of the training rows by a column, or by label."""
    tracer = session.tracer
    if by == LABEL:
        if session.classes is not None:
            return groups_of_values(tracer.y_train, None, "label")
        values = np.asarray(tracer.y_train, dtype=float)
        return groups_of_values(values, bin_edges(values, BINS), "label")
    key = _column_key(session, by)
    return groups_of(key, tracer.X_train, tracer.n_rows, "groups", bins=BINS)


def test_groups(session: Session, by: Any) -> Groups:
    """The groups of the test rows by a column, with the bins of the training rows."""
    key = _column_key(session, by)
    X = session.rows.X
    return groups_of(key, X, session.m, "slices", session.tracer.X_train, BINS)


def _column_key(session: Session, by: Any) -> Any:
    """A column as the tables name it: by its text, or by position where columns have no names."""
    names = column_names(session.tracer.X_train) or []
    shown = [str(short(name)) for name in names]
    if by not in shown:
        raise InvalidInput(f"there is no column {by!r}.")
    place = shown.index(by)
    X = session.tracer.X_train
    named = hasattr(X, "columns") or hasattr(X, "column_names")
    return names[place] if named else place


def group_rows(session: Session, group: Any) -> Ints:
    """Positions of the training rows of a group of a basket."""
    groups, number = _group(session, group)
    return groups.rows(number)


def group_phrase(session: Session, group: Any) -> str:
    """A group of a basket in words."""
    groups, number = _group(session, group)
    return groups.phrase(number)


def _group(session: Session, group: Any) -> tuple[Groups, int]:
    if not isinstance(group, Mapping):
        raise InvalidInput("a group is an object with `by` and `number`.")
    groups = training_groups(session, group.get("by"))
    number = group.get("number")
    if type(number) is not int or not 0 <= number < len(groups):
        raise InvalidInput(f"there is no group {number!r} of {group.get('by')!r}.")
    return groups, number


# ---- the map ----


class Axis(NamedTuple):
    """A column as places on an axis.

    ``values``  (n,) places; NaN: missing. Categories are whole numbers, spread a little around them
    ``names``   categories; None: the column has numbers
    """

    values: F64
    names: list[Any] | None


def axis(session: Session, by: Any) -> Axis:
    """A column of the training rows as an axis."""
    key = ("axis", by)
    with session.lock:
        return session.answers.get(key, lambda: _make_axis(session, by))


def _make_axis(session: Session, by: Any) -> Axis:
    X = session.tracer.X_train
    values = column(X, _column_key(session, by), "axis")
    if values.dtype.kind in "iufb":
        return Axis(values.astype(float), None)
    groups = groups_of_values(values)
    if len(groups) > MAX_CATEGORIES:
        raise InvalidInput(
            f"the column {by!r} has {len(groups):,} categories; a map shows up to {MAX_CATEGORIES}."
        )
    n = len(values)
    spread = (np.arange(n) * _GOLDEN % 1.0 - 0.5) * 0.7
    return Axis(groups.code + spread, [short(name) for name in groups.names])


def region_rows(session: Session, region: Any) -> Ints:
    """Positions of the training rows inside a polygon of the map."""
    if not isinstance(region, Mapping):
        raise InvalidInput("a region is an object with `x`, `y` and `points`.")
    corners = _corners(region.get("points"))
    x = axis(session, region.get("x")).values
    y = axis(session, region.get("y")).values
    low = corners.min(axis=0)
    high = corners.max(axis=0)
    near = np.flatnonzero(
        ~(is_missing(x) | is_missing(y))
        & (x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1])
    )  # fmt: skip
    found = near[_inside(x[near], y[near], corners)]
    if not len(found):
        raise InvalidInput("there is no training row in this region.")
    return found


def _corners(points: Any) -> F64:
    """(corners, 2) of a polygon."""
    try:
        corners = np.array(points, dtype=float)
    except (TypeError, ValueError):
        corners = np.zeros((0, 2))
    fits = corners.ndim == 2 and corners.shape[1] == 2 and 3 <= len(corners) <= MAX_CORNERS
    if not fits or not np.isfinite(corners).all():
        raise InvalidInput(f"a region has 3 to {MAX_CORNERS} corners, each of two numbers.")
    return corners


def _inside(x: F64, y: F64, corners: F64) -> np.ndarray:
    """(rows,) whether points are inside: a ray to the right crosses an odd number of sides."""
    inside = np.zeros(len(x), bool)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        inside ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside
