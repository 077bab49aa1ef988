"""Tables of polars and Arrow: how they are read, cut, joined and made.

A library that takes such a table gets it as it is; for the others `to_pandas` makes a DataFrame of it, with categories
kept as categories and NaN for null. Both kinds go through narwhals, imported when such a table comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Ints
from .errors import InvalidInput

if TYPE_CHECKING:
    import narwhals as nw

_KINDS = {"polars": "a polars", "pyarrow": "an Arrow"}


def kind(X: Any) -> str:
    """ "polars" or "pyarrow" for their tables; "" for all else: pandas, arrays, sparse tables, boosters' matrices."""
    library = next(
        (m for c in type(X).__mro__ if (m := c.__module__.partition(".")[0]) in _KINDS), ""
    )
    if library and hasattr(X, "collect_schema") and not hasattr(X, "get_columns"):
        raise InvalidInput(
            "this is a polars LazyFrame, whose rows are not there yet; pass what its collect() returns."
        )
    return library if hasattr(X, "get_columns" if library == "polars" else "column_names") else ""


def opened(X: Any) -> nw.DataFrame[Any]:
    try:
        import narwhals as nw
    except ImportError:
        raise InvalidInput(
            f"reading a {type(X).__module__.partition('.')[0]} table needs narwhals; pip install 'leaftrace[frames]', "
            "or pass a pandas DataFrame or an array."
        ) from None
    if kind(X) == "pyarrow" and not hasattr(X, "to_batches"):  # one batch
        import pyarrow as pa

        X = pa.Table.from_batches([X])
    return nw.from_native(X, eager_only=True)


def take(X: Any, rows: Ints) -> Any:
    """Some rows of a table."""
    return opened(X)[np.asarray(rows, dtype=np.int64)].to_native()


def renamed(X: Any, names: Sequence[str]) -> Any:
    """The table with other names of its columns."""
    table = opened(X)
    return table.rename(dict(zip(table.columns, names, strict=True))).to_native()


def below(X: Any, more: Any) -> Any:
    """The rows of X, then those of another table or array; columns by name, in the types of X."""
    import narwhals as nw

    top = opened(X)
    if kind(more):
        bottom = opened(more)
    elif hasattr(more, "iloc"):
        bottom = nw.from_native(more.reset_index(drop=True), eager_only=True)
    else:
        bottom = made(dict(zip(top.columns, np.asarray(more).T, strict=True)), kind(X))
        bottom = nw.from_native(bottom, eager_only=True)
    if missing := [name for name in top.columns if name not in bottom.columns]:
        raise InvalidInput(
            f"the added rows lack the column(s) {', '.join(map(repr, missing))} of X_train."
        )
    if kind(X) == "pyarrow":  # whose dictionaries narwhals cannot cast to
        import pyarrow as pa

        table = top.to_native()
        return pa.concat_tables(
            [table, _cast_arrow(bottom.select(top.columns).to_arrow(), table.schema)]
        )
    import polars as pl

    table = top.to_native()
    return pl.concat(
        [table, pl.DataFrame(bottom.select(top.columns).to_arrow()).cast(dict(table.schema))]
    )


def _cast_arrow(table: Any, schema: Any) -> Any:
    import pyarrow as pa

    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type).dictionary_encode()
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=schema)


def to_pandas(X: Any) -> Any:
    """A table of polars or Arrow as a DataFrame; anything else as it is."""
    if not kind(X):
        return X
    import narwhals as nw

    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            f"this model's library does not take {_KINDS[kind(X)]} table like this, and making a DataFrame of it "
            f"needs {error.name}; pip install 'leaftrace[frames]'."
        ) from None
    table = opened(X)
    # pandas would make objects of truth values with gaps; of numbers with gaps it makes floats.
    holes = [
        c
        for c, t in table.schema.items()
        if t == nw.Boolean and table.get_column(c).is_null().any()
    ]
    table = table.with_columns(*(nw.col(c).cast(nw.Int8) for c in holes)) if holes else table
    if (
        kind(X) == "pyarrow"
    ):  # whose notes on an index that some columns once were do not count here
        return table.to_native().to_pandas(ignore_metadata=True)
    return table.to_pandas()


def in_order(X: Any, categories: Mapping[str, list[Any]]) -> Any:
    """A DataFrame whose category columns have their categories in this order; others that they have come last."""
    columns = {}
    for name, first in categories.items():
        if name in X.columns and X[name].dtype == "category":
            own = X[name].cat.categories
            if own.tolist() != first:
                known = set(first)
                columns[name] = X[name].cat.set_categories(
                    [*first, *(c for c in own if c not in known)]
                )
    return X.assign(**columns) if columns else X


def categories_as_text(X: Any) -> Any:
    """A polars table with text in the place of categories."""
    import narwhals as nw

    table = opened(X)
    names = [c for c, t in table.schema.items() if is_category(t)]
    return (
        table.with_columns(*(nw.col(c).cast(nw.String) for c in names)).to_native() if names else X
    )


def has_categories(X: Any, library: str) -> bool:
    """Whether a table has category columns; refuses one with columns that are neither these nor numbers."""
    import narwhals as nw

    schema = opened(X).schema
    for name, dtype in schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean or is_category(dtype)):
            raise InvalidInput(
                f"{library} takes numbers, truth values and categories, but the column '{name}' is {dtype}; pass it as "
                "in training, as a category or as numbers."
            )
    return any(map(is_category, schema.values()))


def is_category(dtype: nw.dtypes.DType) -> bool:
    """Of narwhals' names for types."""
    import narwhals as nw

    return dtype in (nw.Categorical, nw.Enum)


def plain(x: Any) -> NDArray[Any]:
    """A column of any kind as an array: numbers, or objects with None where they are missing."""
    if hasattr(x, "isna") and hasattr(
        x, "dtype"
    ):  # pandas, whose own types keep missing values in their own way
        if x.dtype.kind in "iuf":
            return (
                x.to_numpy(dtype=float, na_value=np.nan)
                if x.isna().any()
                else x.to_numpy(dtype=x.dtype.kind + "8")
            )
        if x.dtype.kind not in "bmM" or (x.dtype.kind == "b" and x.isna().any()):
            out = np.array(x.astype(object), dtype=object)
            out[np.asarray(x.isna())] = None
            return out
    value_type = getattr(getattr(x, "type", None), "value_type", None)
    if value_type is not None:  # Arrow's categories, of which NumPy would get the last one for null
        x = x.cast(value_type)
    return np.asarray(x)


def made(columns: Mapping[str, Any], kind: Any) -> Any:
    """A table of this kind. A column of objects becomes text unless all are of one type."""
    import narwhals as nw

    return nw.from_dict(
        {str(name): _typed(x) for name, x in columns.items()}, backend=kind
    ).to_native()


def _typed(x: Any) -> Any:
    x = np.asarray(x)
    if x.dtype != object:
        return x.tolist() if x.dtype.kind == "U" else x
    plain = [
        v.item() if isinstance(v, np.generic) else None if v is None or v != v else v
        for v in x.tolist()
    ]
    types = {type(v) for v in plain if v is not None}
    if len(types) <= 1 and types <= {str, bool, int, float}:
        return plain
    return [None if v is None else str(v) for v in plain]
