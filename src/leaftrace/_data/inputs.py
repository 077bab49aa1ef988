"""Checks of users' input. Every message gives what came, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from . import frames
from .arrays import F64, Ints
from .errors import InvalidInput
from .parquet import PartedTable

PART_BYTES = 16_000_000  # of the cells of a part of a table, as float64
_LEAST_ROWS = 256  # of a part, however wide the table is


def vector(values: Any, name: str, length: int) -> np.ndarray:
    """A one-dimensional array of this length, without missing values."""
    array = frames.to_numpy(values)
    if array.ndim == 0 or (array.ndim == 2 and 1 in array.shape):  # a single label, or a column
        array = array.ravel()
    if array.ndim != 1:
        raise InvalidInput(
            f"{name} has shape {array.shape}; expected one value a row, shape ({length},)."
        )
    if len(array) != length:
        raise InvalidInput(
            f"{name} has {len(array)} values but X has {length} rows; pass one value for each row."
        )
    missing = _is_missing(array)
    if missing.any():
        where = np.flatnonzero(missing)
        raise InvalidInput(
            f"{name} has {len(where)} missing value(s), the first at row {where[0]}; "
            "pass the values the model was trained on, without missing ones."
        )
    return array


def label_array(values: Any) -> np.ndarray:
    """Labels as an array: (n,), or (n, Y) if a row has several."""
    array = np.asarray(values)
    return array.ravel() if array.ndim < 2 or 1 in array.shape[1:] else array


def intervals(values: Any, name: str, length: int) -> F64:
    """(length, 2) numbers, lower and upper end, which may be infinite."""
    array = _columns(values, name, length, 2)
    try:
        ends = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} has dtype {array.dtype}; expected numbers.") from None
    if np.isnan(ends).any():
        row = int(np.flatnonzero(np.isnan(ends).any(axis=1))[0])
        raise InvalidInput(
            f"{name} has missing values, the first at row {row}; pass both ends of each interval."
        )
    return ends


def _columns(values: Any, name: str, length: int, columns: int) -> np.ndarray:
    """An array of this shape."""
    array = frames.to_numpy(values)
    if array.shape != (length, columns):
        raise InvalidInput(
            f"{name} has shape {array.shape}; expected {columns} labels a row, shape ({length}, {columns})."
        )
    return array


def targets(values: Any, name: str, length: int, columns: int) -> F64:
    """(length, columns) finite numbers: several labels a row."""
    array = _columns(values, name, length, columns)
    flat = numbers(array.ravel(), name, length * columns)
    return flat.reshape(length, columns)


def labels_like(values: Any, name: str, labels: np.ndarray) -> np.ndarray:
    """Other labels for rows with these: a `vector`, or `targets` if a row has several."""
    if labels.ndim == 1:
        return vector(values, name, len(labels))
    if not np.isfinite(labels).all():
        return intervals(values, name, len(labels))
    return targets(values, name, *labels.shape)


def _is_missing(array: np.ndarray) -> np.ndarray:
    """Whether each value is None or NaN."""
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind in "OU":
        return np.array([v is None or v != v for v in array], dtype=bool)
    return np.zeros(len(array), dtype=bool)


def numbers(values: Any, name: str, length: int) -> F64:
    """A `vector` of finite float64 numbers."""
    array = vector(values, name, length)
    if array.dtype.kind == "c":
        raise InvalidInput(f"{name} has dtype {array.dtype}; expected real numbers.")
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} has dtype {array.dtype}; expected numbers.") from None
    if not np.isfinite(array).all():
        raise InvalidInput(f"{name} has infinite values; expected finite numbers.")
    return array


def optional_weights(values: Any, length: int) -> F64 | None:
    """`weights`, or None for None, which takes no memory."""
    return None if values is None else weights(values, length)


def weights(values: Any, length: int) -> F64:
    """Sample weights: finite, not negative, not all zero. None means one for every row."""
    if values is None:
        return np.ones(length)
    w = numbers(values, "sample_weight", length)
    if (w < 0).any():
        where = np.flatnonzero(w < 0)
        raise InvalidInput(
            f"sample_weight has {len(where)} negative value(s), the first {w[where[0]]:g} at row {where[0]}; "
            "weights must be zero or more."
        )
    if length and not w.any():
        raise InvalidInput(
            "sample_weight is zero for every row; the model cannot have been trained like that."
        )
    _refuse_extreme(w)
    return w


def _refuse_extreme(w: F64) -> None:
    """Raise an error for weights that a number in float32, as boosters keep them, cannot hold."""
    limits = np.finfo(np.float32)
    extreme = np.flatnonzero((w > limits.max) | ((w > 0) & (w < limits.tiny)))
    if len(extreme):
        row = extreme[0]
        raise InvalidInput(
            f"sample_weight has {len(extreme)} value(s) that are too large or too small for a number in float32, the "
            f"first {w[row]:g} at row {row}; multiply all weights so that they are near one, and train the model again."
        )


def class_codes(y: np.ndarray, classes: np.ndarray, name: str) -> F64:
    """The position of each label in `classes`."""
    if classes.dtype.kind in "OUS":
        y = y.astype(str)
        classes = classes.astype(str)
    elif y.dtype.kind in "OUS":
        try:
            y = y.astype(classes.dtype)
        except (TypeError, ValueError):
            y = y.astype(str)  # some label cannot be a class
    codes = np.full(len(y), -1.0)
    if len(classes) <= 8:  # this many comparisons are cheaper than sorting the labels
        for code, label in enumerate(classes):
            codes[y == label] = code
    else:
        names, which = np.unique(y, return_inverse=True)
        code_of = {label: code for code, label in enumerate(classes.tolist())}
        found = [code_of.get(label, -1) for label in names.tolist()]
        codes = np.array(found, dtype=np.float64)[which]
    if (codes < 0).any():
        unknown = sorted({str(label) for label in y[codes < 0].tolist()})[:5]
        raise InvalidInput(
            f"{name} has label(s) {', '.join(unknown)} that the model does not know; "
            f"its classes are {', '.join(map(str, classes.tolist()))}."
        )
    return codes


def is_whole(value: Any) -> bool:
    """Whether this is a whole number, such as 3 or 3.0, but not True, NaN or a text."""
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    return is_number and not isinstance(value, bool) and float(value).is_integer()


def array_of_numbers(values: Any, name: str) -> F64:
    """An array of float64 numbers, of any shape."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} is a {type(values).__name__}; expected an array of numbers."
        ) from None


def is_number(value: Any) -> bool:
    """Whether this is a single real number, but not True, NaN or a text."""
    is_real = isinstance(value, (int, float, np.integer, np.floating))
    return is_real and not isinstance(value, bool) and value == value


def is_name(value: Any, names: Collection[str | None]) -> bool:
    """Whether this is one of these names, whatever else it is; None may be one of them."""
    return (value is None or isinstance(value, str)) and value in names


def flag(value: Any, name: str) -> bool:
    """An argument that is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidInput(f"{name} is {value!r}; it can be True or False.")
    return bool(value)


def shares(values: Any) -> list[float]:
    """A share, or several, as numbers; NaN for what is none."""
    try:
        array = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError):
        return [np.nan]
    return array.tolist() if array.ndim == 1 else [np.nan]


def random_numbers(seed: Any) -> np.random.Generator:
    """A generator of random numbers from a seed that a user gave."""
    if not is_whole(seed) or seed < 0:
        raise InvalidInput(f"seed is {seed!r}; it is a whole number, 0 or more.")
    return np.random.default_rng(int(seed))


def as_table(X: Any, like: Any = None) -> Any:
    """A row that is a pandas Series (``X.iloc[3]``) as a table of one row; other tables as they are.

    ``like``: a table whose columns have the types that those of the row get.
    """
    if not hasattr(X, "iloc") or X.ndim != 1:
        return X
    row = X.to_frame().T.infer_objects()
    types: Any = getattr(like, "dtypes", None)
    if hasattr(types, "items") and list(row.columns) == list(like.columns):
        row = row.astype(dict(types.items()))
    return row


def row_count(X: Any) -> int:
    """The number of rows of a table of any kind."""
    shape = getattr(X, "shape", None)
    if shape:
        return int(shape[0])
    if hasattr(X, "num_row"):
        return int(X.num_row())
    if hasattr(X, "num_data"):  # LightGBM's Dataset
        return int(X.construct().num_data())
    if not hasattr(X, "__len__") or isinstance(X, (str, bytes, dict)):
        raise InvalidInput(f"X is a {type(X).__name__}; expected a table of rows and columns.")
    return len(X)


def needs_rows(X: Any, name: str = "X_test") -> None:
    """Raise an error for a table of test rows that has none, which few libraries can read."""
    if row_count(X) == 0:
        raise InvalidInput(f"{name} has no rows; pass at least one test row.")


def take_rows(X: Any, keep: Ints) -> Any:
    """Some rows of a table of any kind."""
    if hasattr(X, "iloc"):
        return X.iloc[keep]
    if hasattr(X, "tocsr"):
        return X.tocsr()[keep]
    if isinstance(X, PartedTable):
        return X.take(keep)
    if frames.kind(X):
        return frames.take(X, keep)
    if hasattr(X, "get_label"):  # a booster's own matrix
        return X.slice(keep.tolist()) if hasattr(X, "slice") else take_rows(X.get_data(), keep)
    return X[keep] if hasattr(X, "shape") else np.asarray(X)[keep]


def row_parts(X: Any) -> list[slice]:
    """The rows of a table in parts of about PART_BYTES; one part if it cannot be cut cheaply."""
    shape = getattr(X, "shape", ())
    if len(shape) != 2 or hasattr(X, "get_label"):  # not a table, or a booster's own matrix
        return [slice(None)]
    n = int(shape[0])
    row_bytes = 16 * X.nnz // max(n, 1) if hasattr(X, "nnz") else 8 * shape[1]
    at_once = max(_LEAST_ROWS, PART_BYTES // max(row_bytes, 1))
    return [slice(start, min(start + at_once, n)) for start in range(0, n, at_once)]


def slice_rows(X: Any, part: slice) -> Any:
    """Some rows of a table of any kind, one after another, without a copy where that is possible."""
    if hasattr(X, "iloc"):
        return X.iloc[part]
    if hasattr(X, "shape") and not frames.kind(X) and not hasattr(X, "tocsr"):
        return X[part]
    return take_rows(X, np.arange(part.start, part.stop))


def columns(X: Any, names: list[str]) -> Any:
    """X with the model's columns in the model's order. Checks their names and number."""
    if isinstance(X, PartedTable):  # its parts come here one by one
        return X
    if frames.kind(X) or hasattr(X, "iloc"):
        X = _in_order(X, names)
    shape = getattr(X, "shape", None) or np.shape(X)
    if len(shape) != 2:
        raise InvalidInput(
            f"X has shape {tuple(shape)}; expected a table of rows and {len(names)} columns."
        )
    if shape[1] != len(names):
        raise InvalidInput(
            f"X has {shape[1]} columns, but the model was trained on {len(names)}: {_some(names)}."
        )
    if isinstance(X, np.ndarray) and X.dtype.kind == "c":
        raise InvalidInput(f"X has dtype {X.dtype}; expected real numbers.")
    return X


def _in_order(X: Any, names: list[str]) -> Any:
    """A table whose columns are in the order of these names; unchanged if the names are numbers."""
    frame = frames.as_narwhals(X) if frames.kind(X) else X
    given = [str(c) for c in frame.columns]
    are_positions = names == [str(i) for i in range(len(names))]
    if not are_positions and given != names:
        frames.refuse_shared_names(given)
        _check_names(given, names)
        order = [given.index(c) for c in names]
        frame = X.iloc[:, order] if frame is X else frame.select(names)
    return frame.to_native() if frames.kind(X) else frame


def _check_names(given: list[str], names: list[str]) -> None:
    """Raise an error if a column that the model was trained on is not among those given."""
    missing = [c for c in names if c not in given]
    if missing:
        extra = [c for c in given if c not in names]
        raise InvalidInput(
            f"X lacks the column(s) {_some(missing)} that the model was trained on"
            + (f", and has {_some(extra)} instead" if extra else "")
            + "; pass the columns under the names used in training."
        )


def _some(names: list[str], most: int = 8) -> str:
    """The first names in quotes, and how many more there are."""
    listed = ", ".join(f"'{name}'" for name in names[:most])
    return listed + (f" and {len(names) - most} more" if len(names) > most else "")
