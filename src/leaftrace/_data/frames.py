"""Tables of polars and Arrow: how they are read, cut, joined and made.

A library that accepts such a table gets it unchanged; for the others `to_pandas` makes a DataFrame,
with categories kept as categories and NaN for null. Both kinds are read through narwhals, which is
imported when the first such table comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Ints
from .errors import InvalidInput

if TYPE_CHECKING:
    import narwhals as nw

_WITH_ARTICLE = {"polars": "a polars", "pyarrow": "an Arrow"}


def kind(X: Any) -> str:
    """Library of a table: "polars" or "pyarrow", and "" for everything else.

    Everything else is pandas, arrays, sparse tables and boosters' matrices.
    """
    library = _library(X)
    if library and hasattr(X, "collect_schema") and not hasattr(X, "get_columns"):
        raise InvalidInput(
            "this is a polars LazyFrame, whose rows are not there yet; pass what its collect() returns."
        )
    mark_of_table = "get_columns" if library == "polars" else "column_names"
    return library if hasattr(X, mark_of_table) else ""


def _library(X: Any) -> str:
    """The library among polars and pyarrow that the type of X, or a base of it, comes from."""
    for cls in type(X).__mro__:
        library = cls.__module__.partition(".")[0]
        if library in _WITH_ARTICLE:
            return library
    return ""


def as_narwhals(X: Any) -> nw.DataFrame[Any]:
    """A table of polars or Arrow as a narwhals DataFrame."""
    try:
        import narwhals as nw
    except ImportError:
        raise InvalidInput(
            f"reading a {type(X).__module__.partition('.')[0]} table needs narwhals; pip install 'leaftrace[frames]', "
            "or pass a pandas DataFrame or an array."
        ) from None
    is_one_batch = kind(X) == "pyarrow" and not hasattr(X, "to_batches")
    if is_one_batch:
        import pyarrow as pa

        X = pa.Table.from_batches([X])
    if kind(X) == "pyarrow":
        refuse_shared_names(X.column_names)
    return nw.from_native(X, eager_only=True)


def refuse_shared_names(names: Sequence[str]) -> None:
    """Raise if several columns have the same name, which does not tell the one that is meant."""
    shared = [name for name, times in Counter(names).items() if times > 1]
    if shared:
        raise InvalidInput(
            f"X has several columns with the name {', '.join(map(repr, shared[:8]))}; give each column a name of its "
            "own."
        )


def take(X: Any, rows: Ints) -> Any:
    """Some rows of a table."""
    return as_narwhals(X)[np.asarray(rows, dtype=np.int64)].to_native()


def renamed(X: Any, names: Sequence[str]) -> Any:
    """The table with other names of its columns."""
    table = as_narwhals(X)
    return table.rename(dict(zip(table.columns, names, strict=True))).to_native()


def append_rows(X: Any, added: Any) -> Any:
    """The rows of X, then those of another table or array; columns by name, in the types of X."""
    top = as_narwhals(X)
    bottom = _like(top, added, kind(X))
    if missing := [name for name in top.columns if name not in bottom.columns]:
        raise InvalidInput(
            f"the added rows lack the column(s) {', '.join(map(repr, missing))} of X_train."
        )
    table = top.to_native()
    new_rows = bottom.select(top.columns).to_arrow()
    if kind(X) == "pyarrow":
        import pyarrow as pa

        new_rows = _cast_arrow(new_rows, table.schema)
        return pa.concat_tables([table, new_rows], promote_options="permissive")
    import polars as pl

    columns = [_in_type(column, table.schema[column.name]) for column in pl.DataFrame(new_rows)]
    return pl.concat([table, pl.DataFrame(columns)], how="vertical_relaxed")


def _in_type(column: Any, kind: Any) -> Any:
    """A column of polars in another type, or as it is if that cuts off fractions."""
    to_whole = column.dtype.is_float() and kind.is_integer()
    cast = column.cast(kind, strict=not to_whole)  # NaN becomes null
    return column if to_whole and not (cast == column).all() else cast


def _like(table: nw.DataFrame[Any], rows: Any, library: str) -> nw.DataFrame[Any]:
    """Rows of any kind for narwhals; the columns of an array get the names of the table's."""
    import narwhals as nw

    if kind(rows):
        return as_narwhals(rows)
    if hasattr(rows, "iloc"):
        return nw.from_native(rows.reset_index(drop=True), eager_only=True)
    columns = dict(zip(table.columns, np.asarray(rows).T, strict=True))
    return nw.from_native(from_columns(columns, library), eager_only=True)


def _cast_arrow(table: Any, schema: Any) -> Any:
    """An Arrow table in the types of a schema. narwhals cannot cast to Arrow's dictionaries."""
    import pyarrow as pa

    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type).dictionary_encode()
        cuts = pa.types.is_floating(column.type) and pa.types.is_integer(field.type)
        try:
            column = column.cast(field.type)
        except pa.ArrowInvalid:  # a fraction in a column of whole numbers stays one
            if not cuts:
                raise
        columns.append(column)
    return pa.table(columns, names=schema.names)


def to_pandas(X: Any) -> Any:
    """A table of polars or Arrow as a DataFrame; anything else unchanged."""
    if not kind(X):
        return X
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            f"this model's library does not take {_WITH_ARTICLE[kind(X)]} table like this, and making "
            f"a DataFrame of it needs {error.name}; pip install 'leaftrace[frames]'."
        ) from None
    table = _with_numbers_for_null(as_narwhals(X))
    if kind(X) == "pyarrow":
        # Its metadata may name columns that were once an index; here they are columns.
        return table.to_native().to_pandas(ignore_metadata=True)
    return table.to_pandas()


def _with_numbers_for_null(table: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
    """The table with small integers for truth values where a column has nulls.

    pandas makes objects of truth values with nulls, but floats of numbers with nulls.
    """
    import narwhals as nw

    names = [
        name
        for name, dtype in table.schema.items()
        if dtype == nw.Boolean and table.get_column(name).is_null().any()
    ]
    if not names:
        return table
    return table.with_columns(*(nw.col(name).cast(nw.Int8) for name in names))


def order_categories(X: Any, categories: Mapping[str, list[Any]]) -> Any:
    """A DataFrame whose category columns have their categories in this order.

    Categories that a column has beside these come last.
    """
    columns = {}
    for name, first in categories.items():
        if name in X.columns and X[name].dtype == "category":
            own = X[name].cat.categories
            if own.tolist() != first:
                known = set(first)
                others = [c for c in own if c not in known]
                columns[name] = X[name].cat.set_categories([*first, *others])
    return X.assign(**columns) if columns else X


def categories_as_text(X: Any) -> Any:
    """A polars table with text in the place of categories."""
    import narwhals as nw

    table = as_narwhals(X)
    names = [name for name, dtype in table.schema.items() if is_category(dtype)]
    if not names:
        return X
    return table.with_columns(*(nw.col(name).cast(nw.String) for name in names)).to_native()


def has_categories(X: Any, library: str) -> bool:
    """Whether a table has category columns.

    Raises an error if a column holds neither categories nor numbers nor truth values.
    """
    import narwhals as nw

    schema = as_narwhals(X).schema
    for name, dtype in schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean or is_category(dtype)):
            raise InvalidInput(
                f"{library} takes numbers, truth values and categories, but the column '{name}' is {dtype}; pass it as "
                "in training, as a category or as numbers."
            )
    return any(map(is_category, schema.values()))


def is_category(dtype: nw.dtypes.DType) -> bool:
    """Whether a narwhals type is one of its types for categories."""
    import narwhals as nw

    return dtype in (nw.Categorical, nw.Enum)


def to_numpy(x: Any) -> NDArray[Any]:
    """A column of any kind as an array: numbers, or objects with None where they are missing."""
    if hasattr(x, "isna") and hasattr(x, "dtype"):
        return _pandas_to_numpy(x)
    value_type = getattr(getattr(x, "type", None), "value_type", None)
    if value_type is not None:  # Arrow's categories, of which NumPy would get the last one for null
        x = x.cast(value_type)
    return np.asarray(x)


def _pandas_to_numpy(x: Any) -> NDArray[Any]:
    """`to_numpy` for a column of pandas, some of whose types mark missing values their own way."""
    missing = x.isna()
    if x.dtype.kind in "iuf":
        if missing.any():
            return x.to_numpy(dtype=float, na_value=np.nan)
        return x.to_numpy(dtype=x.dtype.kind + "8")
    if x.dtype.kind in "mM" or (x.dtype.kind == "b" and not missing.any()):
        return np.asarray(x)
    out = np.array(x.astype(object), dtype=object)
    out[np.asarray(missing)] = None
    return out


def from_columns(columns: Mapping[str, Any], library: Any) -> Any:
    """A table of this library. A column of objects becomes text unless all are of one type."""
    import narwhals as nw

    values = {str(name): _uniform(x) for name, x in columns.items()}
    return nw.from_dict(values, backend=library).to_native()


def _uniform(x: Any) -> Any:
    """Values of one type for a column of narwhals, None where they are missing."""
    x = np.asarray(x)
    if x.dtype != object:
        return x.tolist() if x.dtype.kind == "U" else x
    values = [_python_value(v) for v in x.tolist()]
    types = {type(v) for v in values if v is not None}
    if len(types) <= 1 and types <= {str, bool, int, float}:
        return values
    return [None if v is None else str(v) for v in values]


def _python_value(v: Any) -> Any:
    """A NumPy scalar as a Python number, and None for NaN."""
    if isinstance(v, np.generic):
        return v.item()
    return None if v is None or v != v else v
