"""SHA-256 of tables, labels and models, for audit files: of what they say, not of how they lie in memory.

A table is hashed column by column: its name, the kind of its values, the values. Numbers of any width are hashed as
float64 or 64-bit integers, all missing values are one value, strings are UTF-8 with their lengths. So the order of an
array in memory, chunks, byte order, the numbering of categories, and whether a table is one of pandas, polars or Arrow
do not count; a value, a name, the order of rows or columns, whether a column is one of categories or of text do, and
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
    """Of a table of pandas, polars or Arrow, an array or a sparse table."""
    if hasattr(X, "get_label"):  # Pool, DMatrix, Dataset
        return NOT_HASHED
    digest = hashlib.sha256(b"leaftrace-table-1")
    if hasattr(X, "tocsr"):
        X = X.tocsr(copy=True)
        X.sum_duplicates()  # and sorts
        _add(
            digest, ["sparse", *X.shape], *(_plain(part) for part in (X.indptr, X.indices, X.data))
        )
        return digest.hexdigest()
    parted = isinstance(X, PartedTable)  # of which one column at a time is in memory
    columns = _columns(X) if parted else list(_columns(X))
    _add(digest, ["columns", X.shape[1] if parted else len(list(columns))])
    for name, column, categories in columns:
        _add(digest, ["name", name], *(_categories(column) if categories else _parts(column)))
    return digest.hexdigest()


def hash_values(values: Any) -> str:
    """Of one value a row: labels, weights, names of rows."""
    digest = hashlib.sha256(b"leaftrace-values-1")
    _add(digest, *_parts(values))
    return digest.hexdigest()


def hash_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def hash_model(e: Ensemble) -> str:
    """Of the trees as the training rows see them: which leaf holds which row, leaf values, starting score."""
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
    _add(digest, e.loss.name, *(_plain(np.asarray(part)) for part in parts))
    for leaves in e.leaves:
        _add(digest, _plain(leaves))
    return digest.hexdigest()


def _add(digest: Any, *parts: Any) -> None:
    """Each part with its length, so that no two lists of parts read the same."""
    for part in parts:
        content = part if isinstance(part, bytes) else json.dumps(part).encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)


def _columns(X: Any) -> Iterator[tuple[str, Any, bool]]:
    """(name, values, whether they are categories) of a table."""
    if hasattr(X, "iloc"):
        yield from (
            (str(name), x := X.iloc[:, i], x.dtype == "category")
            for i, name in enumerate(X.columns)
        )
    elif isinstance(X, PartedTable):
        yield from ((name, x := X[name], x.dtype == "category") for name in X.column_names)
    elif frames.kind(X):
        table = frames.as_narwhals(X)
        yield from (
            (name, table[name].to_native(), frames.is_category(dtype))
            for name, dtype in table.schema.items()
        )
    else:
        array = np.asarray(X)
        yield from ((str(i), array[:, i], False) for i in range(array.shape[1]))


def _categories(column: Any) -> list[Any]:
    """A column's categories, as far as a row has them, in an order of their own, and the number of each row's."""
    values = (
        column.to_pylist() if hasattr(column, "to_pylist") else frames.to_numpy(column).tolist()
    )
    names = sorted(dict.fromkeys(values), key=_text)
    number = {name: i for i, name in enumerate(names)}
    return [
        "category",
        *_objects(names),
        _plain(np.array([number[v] for v in values], dtype=np.int64)),
    ]


def _parts(column: Any) -> list[Any]:
    """A column's kind and content."""
    array = frames.to_numpy(column)
    kind = array.dtype.kind
    if kind in "fiubmM":
        large = array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max
        return [kind if kind in "fmM" else "u" if large else "i", _plain(array)]
    return ["o", *_objects(array.tolist())]


def _plain(array: np.ndarray) -> bytes:
    """Numbers in one width and byte order; -0 is 0 and there is one NaN."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.nan, array.astype("<f8") + 0.0)
    elif array.dtype.kind in "mM":
        array = array.astype(array.dtype.str[1:3] + "[ns]").view("<i8")
    else:
        array = array.astype("<i8")  # beyond it, the same bytes as unsigned
    return array.tobytes()


def _objects(values: list[Any]) -> tuple[bytes, bytes, bytes]:
    """Kinds, lengths and text of values of any type."""
    kinds, texts = zip(*map(_text, values), strict=True) if values else ((), ())
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return "".join(kinds).encode(), _plain(lengths), b"".join(texts)


def _text(value: Any) -> tuple[str, bytes]:
    if isinstance(value, str):
        return "s", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return "y", value
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return "-", b""
    if isinstance(value, bool):
        return "i", str(int(value)).encode()
    if isinstance(value, (int, float)):
        return (
            ("i", str(value).encode())
            if isinstance(value, int)
            else ("f", (value + 0.0).hex().encode())
        )
    return "o", str(value).encode()
