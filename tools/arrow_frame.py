"""A stand-in for a Spark DataFrame, for support_places.py: one partition, in this process.

It has the methods that `leaftrace.spark` calls, and runs its stages on Arrow batches as Spark would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark import Broadcast

from leaftrace._tracer.cluster.spark import columns as names
from leaftrace._tracer.cluster.spark.columns import Columns

BATCH = 200  # rows of a batch


class Sent(Broadcast):
    """A broadcast that stays in this process."""

    def __init__(self, value: Any) -> None:
        self._value = value


def selected(chosen: Columns, frame: ArrowFrame, with_features: bool = True) -> ArrowFrame:
    """The columns that stages read, as `Columns.select` gives them."""
    table = frame.table
    data: dict[str, Any] = {names.ORDER: table.column(chosen.order)}
    for alias, name in (
        (names.LABEL, chosen.label),
        (names.WEIGHT, chosen.weight),
        (names.QUERY, chosen.qid),
        *((f"{names.SCORE}{i}", name) for i, name in enumerate(chosen.baseline)),
    ):
        if name is not None:
            data[alias] = table.column(name)
    if with_features:
        data[names.PARTITION] = pa.array([0] * len(table))
        if isinstance(chosen.feature_names, str):
            data[names.FEATURE] = table.column(chosen.feature_names)
        else:
            for i, name in enumerate(chosen.feature_names):
                data[f"{names.FEATURE}{i}"] = table.column(name)
    return ArrowFrame(pa.table(data))


Columns.select = selected  # type: ignore[method-assign]


@dataclass
class ArrowFrame:
    """One partition of rows."""

    table: pa.Table

    @classmethod
    def of(cls, frame: Any) -> ArrowFrame:
        """A DataFrame of pandas."""
        return cls(pa.Table.from_pandas(frame, preserve_index=False))

    @property
    def columns(self) -> list[str]:
        return self.table.column_names

    @property
    def sparkSession(self) -> Any:  # noqa: N802
        stopped = SimpleNamespace(isStopped=lambda: False)
        context = SimpleNamespace(
            broadcast=Sent, defaultParallelism=1, _jsc=SimpleNamespace(sc=lambda: stopped)
        )
        return SimpleNamespace(sparkContext=context, createDataFrame=ArrowFrame.of)

    @property
    def rdd(self) -> Any:
        return SimpleNamespace(getNumPartitions=lambda: 1)

    @property
    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.table.schema)

    def mapInArrow(self, stage: Any, schema: str) -> ArrowFrame:  # noqa: N802
        batches = list(stage(iter(self.table.to_batches(BATCH))))
        return ArrowFrame(pa.Table.from_batches(batches))

    def select(self, *columns: str) -> ArrowFrame:
        return ArrowFrame(self.table.select(list(columns)))

    def limit(self, count: int) -> ArrowFrame:
        return ArrowFrame(self.table.slice(0, count))

    def collect(self) -> list[Any]:
        return [tuple(row.values()) for row in self.table.to_pylist()]

    def toLocalIterator(self) -> Iterator[Any]:  # noqa: N802
        return iter(self.table.to_pylist())

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self.table

    def toPandas(self) -> Any:  # noqa: N802
        return self.table.to_pandas()

    def unchanged(self, *_: Any) -> ArrowFrame:
        return self

    coalesce = repartition = persist = unpersist = unchanged
    repartitionByRange = sortWithinPartitions = unchanged  # noqa: N815
