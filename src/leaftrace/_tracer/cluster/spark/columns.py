"""Columns of a Spark DataFrame that a tracer reads, from the names of users to tables of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...._data.errors import InvalidInput

# Names of columns in the stages; those of features stay as they are, with this before them.
ORDER = "_order"
LABEL = "_label"
WEIGHT = "_weight"
SCORE = "_score"
QUERY = "_query"
FEATURE = "_x_"
PARTITION = "_partition"
SEVERAL = ("array", "map", "struct", "vectorudt", "binary")  # types that are not one value


@dataclass(frozen=True)
class Columns:
    """The columns of training rows.

    ``features``  names of columns with one feature each; or the name of one array column with all
    ``label, weight, baseline, qid``  names of columns; baseline may be several, weight and qid None
    ``order``     the column that gives the order of training and names the rows
    """

    feature_names: tuple[str, ...] | str
    label: str | None
    weight: str | None
    baseline: tuple[str, ...]
    qid: str | None
    order: str

    def select(self, frame: Any, with_features: bool = True) -> Any:
        """The columns of a DataFrame that stages read, under their own names."""
        from pyspark.sql import functions

        chosen = [functions.col(quoted(self.order)).alias(ORDER)]
        if self.label is not None:
            chosen.append(functions.col(quoted(self.label)).alias(LABEL))
        if self.weight is not None:
            chosen.append(functions.col(quoted(self.weight)).cast("double").alias(WEIGHT))
        for i, name in enumerate(self.baseline):
            chosen.append(functions.col(quoted(name)).cast("double").alias(f"{SCORE}{i}"))
        if self.qid is not None:
            chosen.append(functions.col(quoted(self.qid)).alias(QUERY))
        if with_features:
            # The number of a task is another one where partitions are joined.
            chosen.append(functions.spark_partition_id().alias(PARTITION))
            chosen += self._feature_columns(frame)
        return frame.select(*chosen)

    def _feature_columns(self, frame: Any) -> list[Any]:
        from pyspark.sql import functions

        if not isinstance(self.feature_names, str):
            return [
                functions.col(quoted(name)).alias(f"{FEATURE}{i}")
                for i, name in enumerate(self.feature_names)
            ]
        column = functions.col(quoted(self.feature_names))
        if frame.schema[self.feature_names].dataType.typeName() != "array":
            from pyspark.ml.functions import vector_to_array

            column = vector_to_array(column)
        return [column.cast("array<double>").alias(FEATURE)]

    @property
    def names_of_features(self) -> list[str]:
        return [] if isinstance(self.feature_names, str) else list(self.feature_names)

    # ---- from Arrow tables ----

    def features(self, table: pa.Table) -> Any:
        """The features of rows: a DataFrame, or an array for a column of arrays."""
        import pandas as pd

        if isinstance(self.feature_names, str):
            column = table.column(FEATURE).combine_chunks()
            self._check_lengths(column)
            values = column.flatten().to_numpy(zero_copy_only=False)
            return values.reshape(len(table), -1).astype(np.float64)
        data = {
            name: _feature(table.column(f"{FEATURE}{i}"))
            for i, name in enumerate(self.feature_names)
        }
        return pd.DataFrame(data)

    def _check_lengths(self, column: Any) -> None:
        """Raise an error if arrays of features have different lengths, or some rows have none."""
        lengths = np.unique(np.diff(column.offsets.to_numpy())).tolist()
        if column.null_count or len(lengths) > 1:
            found = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else "no"
            raise InvalidInput(
                f"rows of the column '{self.feature_names}' have {found} features; pass as many in each row as the "
                "model was trained on."
            )

    def labels(self, table: pa.Table, with_scores: bool = False) -> tuple[Any, ...]:
        """Labels and weights of rows, and the scores given to them if asked for."""
        names = table.column_names
        y = _values(table.column(LABEL)) if LABEL in names else None
        w = _values(table.column(WEIGHT)) if WEIGHT in names else None
        if not with_scores:
            return y, w
        scores = [_values(table.column(f"{SCORE}{i}")) for i in range(len(self.baseline))]
        if not scores:
            return y, w, None
        return y, w, np.column_stack(scores) if len(scores) > 1 else scores[0]

    def queries(self, table: pa.Table) -> np.ndarray | None:
        """Queries of rows, if there are some."""
        return _values(table.column(QUERY)) if QUERY in table.column_names else None

    def partition(self, table: pa.Table) -> int:
        """The number of the partition of rows."""
        return table.column(PARTITION)[0].as_py()

    def names(self, table: pa.Table) -> np.ndarray:
        """Names of the rows."""
        column = table.column(ORDER)
        if column.null_count:
            raise InvalidInput(
                f"the column '{self.order}' has no value in {column.null_count} row(s); order= must name each row."
            )
        return _values(column)


def _values(column: pa.ChunkedArray) -> np.ndarray:
    return column.to_numpy()


def _feature(column: pa.ChunkedArray) -> Any:
    """A feature as pandas has it: text as categories, numbers and truth values with NaN for null."""
    import pandas as pd

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pd.Categorical(column.to_numpy())
    has_holes = pa.types.is_boolean(kind) and column.null_count
    if pa.types.is_decimal(kind) or has_holes:
        return column.cast(pa.float64()).to_numpy()
    return column.to_numpy()


def quoted(name: str) -> str:
    """A column's name that may have dots in it, as Spark takes it."""
    return "`" + name.replace("`", "``") + "`"


def check_columns(frame: Any, columns: Columns) -> None:
    """Raise an error if a DataFrame has not these columns, or they cannot be what they are for."""
    features = columns.feature_names
    if not features:
        raise InvalidInput("features is empty; name the columns that the model was trained on.")
    names = [features] if isinstance(features, str) else list(features)
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise InvalidInput(f"features has '{twice[0]}' more than once; name each column once.")
    others = (columns.label, columns.weight, columns.qid, columns.order, *columns.baseline)
    for name in (*names, *others):
        if name is not None and name not in frame.columns:
            raise InvalidInput(
                f"the DataFrame has no column '{name}'; it has {', '.join(map(repr, frame.columns))}."
            )
    if isinstance(features, str):
        kind = frame.schema[features].dataType
        if kind.typeName() not in SEVERAL:
            raise InvalidInput(
                f"the column '{features}' has values of type {kind.simpleString()}, and features= names one column of "
                f"arrays or vectors; for a single feature pass ['{features}']."
            )
    kind = frame.schema[columns.label].dataType
    if kind.typeName() in SEVERAL:
        raise InvalidInput(
            f"the column '{columns.label}' has values of type {kind.simpleString()}; a label is a number or a text."
        )
