"""Rows that users name: by position, by a mask, by one of our tables, or by their labels.

Labels are those of a DataFrame's index; rows of other tables have positions only. Wherever rows or
values for rows come in, they come through here: a label is never taken for a position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import frames
from .arrays import Ints
from .errors import InvalidInput

# The argument with the rows that positions count.
_TABLES = {"training rows": "X_train", "test rows": "X_test"}
# Columns of our tables with the labels and the positions of rows.
ROW_COLUMNS = {
    "training rows": ("train_row", "position"),
    "test rows": ("test_row", "test_position"),
}


def row_numbers(
    rows: Any,
    n: int,
    name: str = "rows",
    of: str = "training rows",
    labels: np.ndarray | None = None,
) -> Ints:
    """Positions of rows, from positions, a mask or one of our tables of rows; None means all.

    ``name``    of the argument, for messages
    ``of``      "training rows" or "test rows"
    ``labels``  (n,) the rows' own labels: see `labels_of`
    """
    if rows is None:
        return np.arange(n)
    if _is_table(rows):
        return _rows_of_table(rows, n, name, of, labels)
    _refuse_labels(rows, name, of, labels)
    array = np.atleast_1d(frames.to_numpy(rows))
    if array.dtype == bool:
        if array.shape != (n,):
            raise InvalidInput(
                f"{name} is a mask of shape {array.shape}; expected ({n},), one for each of the {of}."
            )
        return np.flatnonzero(frames.to_numpy(aligned(rows, labels, name, _TABLES[of])))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        hint = ""
        if of == "training rows" and array.dtype.kind in "OU":
            hint = " Labels of rows are translated by tracer.positions(labels)."
        raise InvalidInput(
            f"{name} must be positions of {of} (whole numbers), a boolean mask, or a table of ours with such rows."
            + hint
        )
    return _checked_positions(array.astype(np.intp), n, name, of)


def _checked_positions(positions: Ints, n: int, name: str, of: str) -> Ints:
    """These positions; an error if some are outside of the n rows."""
    outside = positions[(positions < 0) | (positions >= n)]
    if len(outside):
        raise InvalidInput(
            f"{name} has {outside[0]}, but positions of {of} go from 0 to {n - 1}; "
            f"rows are counted from 0 in the order of {_TABLES[of]}, whatever its index."
        )
    return positions


def _is_table(rows: Any) -> bool:
    """Whether this is a table with named columns: pandas, polars, Arrow or a dict."""
    return bool(frames.kind(rows)) or isinstance(rows, Mapping) or hasattr(rows, "columns")


def _rows_of_table(rows: Any, n: int, name: str, of: str, labels: np.ndarray | None) -> Ints:
    """Positions of the rows in one of our tables, each once, in the order of the table.

    Their labels must be those of the rows at these positions, or the table is about other rows.
    """
    label_column, position_column = ROW_COLUMNS[of]
    given = _table_column(rows, label_column)
    found = _table_column(rows, position_column)
    if given is None or found is None or (len(found) and found.dtype.kind not in "iu"):
        raise InvalidInput(
            f"{name} is a table, but not one of ours of {of}, which have the columns '{label_column}' and "
            f"'{position_column}' (whole numbers); pass such a table, positions, or a boolean mask."
        )
    positions = _checked_positions(found.astype(np.intp), n, name, of)
    own = positions if labels is None else labels[positions]
    differ = np.flatnonzero([str(a) != str(b) for a, b in zip(given, own, strict=True)])
    if len(differ):
        i = differ[0]
        raise InvalidInput(
            f"{name} is a table about other rows: it names the row at position {positions[i]} '{given[i]}', but "
            f"in {_TABLES[of]} that is '{own[i]}'; pass a table of this model's {of}."
        )
    first = np.unique(positions, return_index=True)[1]
    return positions[np.sort(first)]


def _table_column(table: Any, name: str) -> np.ndarray | None:
    """A column of a table, or a level of its index; None if there is none of this name."""
    names = getattr(table, "column_names", getattr(table, "columns", table))
    if name in list(names):
        return frames.to_numpy(table[name])
    index: Any = getattr(table, "index", None)
    if name in getattr(index, "names", ()):
        return np.asarray(index.get_level_values(name))
    return None


def _refuse_labels(rows: Any, name: str, of: str, labels: np.ndarray | None) -> None:
    """Raise an error for a pandas Index, or a column of labels of our tables.

    They are labels of rows, which are positions only where rows are labelled 0, 1, ...
    """
    is_index = hasattr(rows, "nlevels")
    is_label_column = getattr(rows, "name", None) == ROW_COLUMNS[of][0]
    if not is_index and not is_label_column:
        return
    if labels is None:
        are_positions = is_label_column
    else:
        are_positions = same_labels(labels, np.arange(len(labels)))
    if not are_positions and len(rows):
        translate = "translate them by tracer.positions(labels), " if of == "training rows" else ""
        raise InvalidInput(
            f"{name} has labels of rows, but positions of {of} are expected; {translate}"
            "or pass the table that they come from, or a mask."
        )


def positions_of(wanted: Any, labels: np.ndarray) -> Ints:
    """Positions of the rows with these labels, in the order of the labels.

    A label that several rows share gives all of them.

    ``labels``: (n,) of all rows.
    """
    places: dict[Any, list[int]] = {}
    for position, label in enumerate(labels.tolist()):
        places.setdefault(label, []).append(position)
    asked = _label_list(wanted, labels)
    try:
        unknown = [label for label in asked if label not in places]
    except TypeError:  # a label that is a list
        raise InvalidInput(
            "labels of training rows are single values, but these are lists, or rows of a table; pass the labels in "
            "one list, or a column such as table['train_row']."
        ) from None
    if unknown:
        listed = ", ".join(repr(label) for label in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise InvalidInput(
            f"no training row has the label {listed}{more}; labels are those of the index of X_train, such as "
            f"{', '.join(repr(label) for label in labels[:3].tolist())}."
        )
    return np.array([place for label in asked for place in places[label]], dtype=np.intp)


def _label_list(wanted: Any, labels: np.ndarray) -> list[Any]:
    """The labels asked for as a list, of the types that `labels` have."""
    are_tuples = bool(len(labels)) and isinstance(labels[0], tuple)
    is_one = isinstance(wanted, (str, bytes)) or not hasattr(wanted, "__len__")
    if is_one or (are_tuples and isinstance(wanted, tuple)):
        wanted = [wanted]
    if labels.dtype.kind in "mM":
        try:
            return np.array(list(wanted), dtype=labels.dtype).tolist()
        except (TypeError, ValueError):
            raise InvalidInput(
                f"the rows of X_train are labelled by times, but {wanted!r} are none."
            ) from None
    if isinstance(wanted, (list, tuple)) or hasattr(wanted, "nlevels"):
        return list(wanted)
    return frames.to_numpy(wanted).tolist()


def aligned(values: Any, labels: np.ndarray | None, name: str, table: str = "X") -> Any:
    """Values for rows, in the order of the rows. They go by labels where both have an index.

    ``labels``  (n,) of the rows; None: they have positions only
    ``name``    of the values, for messages
    ``table``   name of the table with the rows, for messages
    """
    if labels is None or not hasattr(values, "iloc") or len(values) != len(labels):
        return values
    own = row_index(values, len(values))
    if same_labels(own, labels):
        return values
    places = {label: position for position, label in enumerate(own.tolist())}
    order = [places.get(label) for label in labels.tolist()]
    if None in order or len(set(order)) < len(labels):
        where = next(i for i, (a, b) in enumerate(zip(own, labels, strict=True)) if a != b)
        raise InvalidInput(
            f"{name} has another index than {table}: at position {where} '{own[where]}', not '{labels[where]}'. "
            f"Give both the same index; if the values are in the order of the rows, pass {name}.to_numpy()."
        )
    return values.iloc[order]


def same_labels(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of labels (n,) are the same. Missing ones count as equal."""
    if a.dtype == b.dtype and a.dtype != object:
        return bool(np.all((a == b) | ((a != a) & (b != b))))
    return all(
        x is y or x == y or (x != x and y != y) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    )


def row_index(X: Any, n: int) -> np.ndarray:
    """The labels of the rows of X: the index of a DataFrame, otherwise 0 .. n - 1."""
    index = getattr(X, "index", None)
    if index is None or callable(index):
        return np.arange(n)
    if getattr(index, "nlevels", 1) > 1:
        labels = np.empty(n, dtype=object)
        labels[:] = list(index)
        return labels
    return np.asarray(index)


def labels_of(X: Any) -> np.ndarray | None:
    """The labels of the rows of X, if it is a DataFrame; other tables have positions only."""
    return row_index(X, len(X)) if hasattr(X, "iloc") else None


def duplicate_labels(labels: np.ndarray) -> list[Any]:
    """The labels that several rows share, in the order of the rows."""
    if labels.dtype.kind in "biufM":  # a million Python objects would be larger than all else
        ordered = np.sort(labels)
        if not np.any(ordered[1:] == ordered[:-1]):
            return []
    names = labels.tolist()
    if len(set(names)) == len(names):
        return []
    return [label for label, count in Counter(names).items() if count > 1]
