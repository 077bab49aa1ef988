"""SHA-256 of tables, labels and models by their values, whatever their memory layout.

A table is hashed column by column: its name, the kind of its values, the values. Numbers of any
width are hashed as float64 or 64-bit integers, all missing values are one value, strings are UTF-8
with their lengths. So these do not count: the order of an array in memory, chunks, byte order, the
numbering of categories, and whether a table is one of pandas, polars or Arrow. These do count: a
value, a name, the order of rows or columns, whether a column is one of categories or of text, and
whether a zero of a sparse table is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._data import frames
from .._data.parquet import PartedTable
from .ensemble import Ensemble

NOT_HASHED = "not hashed: a booster's own matrix, whose values cannot be read"


def hash_table(X: Any) -> str:
    """SHA-256 of a table of pandas, polars or Arrow, an array or a sparse table."""
    if hasattr(X, "get_label"):  # Pool, DMatrix, Dataset
        return NOT_HASHED
    digest = hashlib.sha256(b"leaftrace-table-1")
    if hasattr(X, "tocsr"):
        X = X.tocsr(copy=True)
        X.sum_duplicates()  # and sorts
        parts = (_number_bytes(part) for part in (X.indptr, X.indices, X.data))
        _add(digest, ["sparse", *X.shape], *parts)
        return digest.hexdigest()
    if isinstance(X, PartedTable):  # one column at a time is in memory
        columns = _columns(X)
        count = X.shape[1]
    else:
        columns = list(_columns(X))
        count = len(columns)
    _add(digest, ["columns", count])
    for name, column, is_category in columns:
        parts = _category_parts(column) if is_category else _column_parts(column)
        _add(digest, ["name", name], *parts)
    return digest.hexdigest()


def hash_values(values: Any) -> str:
    """SHA-256 of a column: labels, weights, names of rows."""
    digest = hashlib.sha256(b"leaftrace-values-1")
    _add(digest, *_column_parts(values))
    return digest.hexdigest()


def hash_json(content: Any) -> str:
    """SHA-256 of values that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def hash_model(e: Ensemble) -> str:
    """SHA-256 of the trees as the training rows see them.

    Which leaf holds which row, leaf values and starting score count.
    """
    digest = hashlib.sha256(b"leaftrace-model-1")
    parts = (
        e.values,
        e.base,
        e.learning_rate,
        e.factors,
        e.first_output,
        e.step_trees,
        e.tree_leaves,
    )
    _add(digest, e.loss.name, *(_number_bytes(np.asarray(part)) for part in parts))
    for leaves in e.leaves:
        _add(digest, _number_bytes(leaves))
    return digest.hexdigest()


def _add(digest: Any, *parts: Any) -> None:
    """Add each part with its length, so that no two lists of parts give the same bytes."""
    for part in parts:
        content = part if isinstance(part, bytes) else json.dumps(part).encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)


def _columns(X: Any) -> Iterator[tuple[str, Any, bool]]:
    """(name, values, whether they are categories) of each column of a table."""
    if hasattr(X, "iloc"):
        for i, name in enumerate(X.columns):
            column = X.iloc[:, i]
            yield str(name), column, column.dtype == "category"
    elif isinstance(X, PartedTable):
        for name in X.column_names:
            column = X[name]
            yield name, column, column.dtype == "category"
    elif frames.kind(X):
        table = frames.as_narwhals(X)
        for name, dtype in table.schema.items():
            yield name, table[name].to_native(), frames.is_category(dtype)
    else:
        array = np.asarray(X)
        for i in range(array.shape[1]):
            yield str(i), array[:, i], False


def _category_parts(column: Any) -> list[Any]:
    """The categories that rows have, sorted, and the number of each row's category."""
    if hasattr(column, "to_pylist"):
        values = column.to_pylist()
    else:
        values = frames.to_numpy(column).tolist()
    names = sorted(dict.fromkeys(values), key=_kind_and_bytes)
    number = {name: i for i, name in enumerate(names)}
    numbers = np.array([number[v] for v in values], dtype=np.int64)
    return ["category", *_object_bytes(names), _number_bytes(numbers)]


def _column_parts(column: Any) -> list[Any]:
    """The kind and the content of a column."""
    array = frames.to_numpy(column)
    kind = array.dtype.kind
    if kind not in "fiubmM":
        return ["o", *_object_bytes(array.tolist())]
    if kind in "iub":
        large = array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max
        kind = "u" if large else "i"
    return [kind, _number_bytes(array)]


def _number_bytes(array: np.ndarray) -> bytes:
    """Numbers in one width and byte order; -0 is 0 and there is one NaN."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.nan, array.astype("<f8") + 0.0)
    elif array.dtype.kind in "mM":
        array = array.astype(array.dtype.str[1:3] + "[ns]").view("<i8")
    else:
        array = array.astype("<i8")  # larger numbers have the same bytes as unsigned ones
    return array.tobytes()


def _object_bytes(values: list[Any]) -> tuple[bytes, bytes, bytes]:
    """Kinds, lengths and contents of values of any type."""
    pairs = [_kind_and_bytes(value) for value in values]
    kinds = "".join(kind for kind, _ in pairs)
    contents = [content for _, content in pairs]
    lengths = np.fromiter(map(len, contents), np.int64, len(contents))
    return kinds.encode(), _number_bytes(lengths), b"".join(contents)


def _kind_and_bytes(value: Any) -> tuple[str, bytes]:
    """A letter for the kind of a value, and its content."""
    if isinstance(value, str):
        return "s", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return "y", value
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return "-", b""
    if isinstance(value, bool):
        return "i", str(int(value)).encode()
    if isinstance(value, int):
        return "i", str(value).encode()
    if isinstance(value, float):
        return "f", (value + 0.0).hex().encode()
    return "o", str(value).encode()
