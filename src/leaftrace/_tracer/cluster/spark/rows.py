"""Training rows in a Spark DataFrame."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ...._adapters import Source
from ...._data import inputs
from ...._data.arrays import F64, Ids
from ...._data.errors import InvalidInput
from ...._data.row_labels import duplicate_labels
from ..labels import LabelSummary, summarise_labels
from ..part import Part
from ..protocol import Vectors
from .cluster import SparkCluster, add_up, spark_context, spark_errors
from .columns import Columns, quoted
from .stages import RESULT, STATE, Failure, OpenStage, RowsStage, TableStage


@dataclass(frozen=True)
class SparkRows:
    """Training rows in a DataFrame.

    ``sorted``  whether they are counted in the order of training
    """

    frame: Any
    chosen: Columns
    sorted: bool = False

    @property
    def columns(self) -> list[str]:
        return self.chosen.names_of_features

    def in_order(self) -> SparkRows:
        if self.sorted:
            return self
        context = spark_context(self.frame.sparkSession)
        with spark_errors():
            parts = max(self.frame.rdd.getNumPartitions(), context.defaultParallelism)
        order = quoted(self.chosen.order)
        frame = self.frame.repartitionByRange(parts, order).sortWithinPartitions(order)
        return replace(self, frame=frame, sorted=True)

    def _selected(self, with_features: bool) -> Any:
        return self.chosen.select(self.frame, with_features)

    def labels(self) -> LabelSummary:
        stage = RowsStage(self.chosen, summarise_labels)
        threads = spark_context(self.frame.sparkSession).defaultParallelism
        lines = self._selected(False).coalesce(threads).mapInArrow(stage, RESULT)
        return add_up(lines, threads)

    def first(self, count: int) -> tuple[Any, Any]:
        with spark_errors():
            lines = self._selected(True).limit(count)
            table = arrow_table(lines)
        if not table.num_rows:
            raise InvalidInput("the DataFrame has no training rows.")
        at = np.arange(count) % table.num_rows
        baseline = self.chosen.labels(table, with_scores=True)[2]
        rows = inputs.take_rows(self.chosen.features(table), at)
        return rows, None if baseline is None else baseline[at]

    def open(self, source: Source, labels: LabelSummary) -> SparkCluster:
        context = spark_context(self.frame.sparkSession)
        stage = OpenStage(self.chosen, context.broadcast(source))
        with spark_errors():
            return SparkCluster(self._selected(True).mapInArrow(stage, STATE))

    def vectors(self) -> Vectors:
        with spark_errors():
            table = arrow_table(self._selected(False))
        y, w, baseline = self.chosen.labels(table, with_scores=True)
        names = self.chosen.names(table)
        if shared := duplicate_labels(names):
            raise InvalidInput(
                f"the column '{self.chosen.order}' has {shared[0]!r} for several rows; order= must name each row, in "
                "the order of training."
            )
        return Vectors(y, w, baseline, self.chosen.queries(table), names)

    def tables(self) -> Iterator[Any]:
        lines = self._selected(True).mapInArrow(TableStage(), RESULT)
        with spark_errors():
            for line in lines.toLocalIterator():
                yield self.chosen.features(pickle.loads(line["result"]))

    def leaves(self, source: Source) -> Iterator[tuple[Ids, F64 | None]]:
        context = spark_context(self.frame.sparkSession)
        stage = OpenStage(self.chosen, context.broadcast(source))
        state = self._selected(True).mapInArrow(stage, STATE)
        with spark_errors():
            for line in state.toLocalIterator():
                part: Part | Failure = pickle.loads(line["part"])
                if isinstance(part, Failure):
                    raise part.error
                yield part.leaves, part.facts.offset


def arrow_table(frame: Any) -> pa.Table:
    """A small DataFrame as an Arrow table at the driver."""
    if hasattr(frame, "toArrow"):  # since Spark 4
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()  # none of a frame without rows
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(frame.schema))
