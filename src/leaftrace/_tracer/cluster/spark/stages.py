"""Stages of Spark: functions of the Arrow batches of a partition.

A stage is an object that Spark pickles and calls in the Python processes of its executors. What was
broadcast is opened there. The state of a partition is a few lines of a DataFrame, each with some
thousand rows as a pickled `Part`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from ...._data.errors import LeaftraceError
from ..part import Facts, Part, open_part
from .columns import Columns

ROWS_AT_ONCE = 1 << 16  # rows of a line of the state
STATE = "number bigint, rows bigint, part binary"
RESULT = "result binary"
CHUNKS = 1 << 24  # lines that a partition may have, for their numbers

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Failure:
    """An error of ours in a partition, to be raised at the driver."""

    error: LeaftraceError

    def __add__(self, other: Any) -> Failure:
        return self

    def __radd__(self, other: Any) -> Failure:
        return self


def opened(value: Any) -> Any:
    """The data of a broadcast, also inside of lists and dicts; other values as they are."""
    from pyspark import Broadcast

    if isinstance(value, Broadcast):
        return value.value
    if type(value) is list:
        return [opened(item) for item in value]
    if type(value) is dict:
        return {name: opened(item) for name, item in value.items()}
    return value


def tables_of(batches: Batches) -> Iterator[pa.Table]:
    """The rows of a partition in tables of about ROWS_AT_ONCE rows."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held = []
            rows = 0
    if rows:
        yield pa.Table.from_batches(held)


def result(value: Any) -> pa.RecordBatch:
    """A result as a line."""
    data = pa.array([pickle.dumps(value, protocol=5)], pa.binary())
    return pa.RecordBatch.from_arrays([data], ["result"])


@dataclass(frozen=True)
class RowsStage:
    """The sum of fn(columns of the rows) over a partition, before the model is opened."""

    columns: Columns
    fn: Callable[..., Any]

    def __call__(self, batches: Batches) -> Batches:
        found = []
        try:
            for table in tables_of(batches):
                self.columns.names(table)  # an error where they are missing
                found.append(self.fn(*self.columns.labels(table)))
        except LeaftraceError as error:
            yield result(Failure(error))
            return
        if found:
            yield result(reduce(add, found))


@dataclass(frozen=True)
class TableStage:
    """The rows of a partition themselves, some thousand in a line."""

    def __call__(self, batches: Batches) -> Batches:
        for table in tables_of(batches):
            yield result(table)


@dataclass(frozen=True)
class OpenStage:
    """The state of a partition: the leaves, labels and weights of its rows."""

    columns: Columns
    source: Any

    def __call__(self, batches: Batches) -> Batches:
        source = opened(self.source)
        for chunk, table in enumerate(tables_of(batches)):
            number = self.columns.partition(table) * CHUNKS + chunk
            try:
                part: Any = self._part(source, table, number)
            except LeaftraceError as error:
                part = Failure(error)
            lines = [
                pa.array([number], pa.int64()),
                pa.array([table.num_rows], pa.int64()),
                pa.array([pickle.dumps(part, protocol=5)], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(lines, ["number", "rows", "part"])

    def _part(self, source: Any, table: pa.Table, number: int) -> Part:
        X = self.columns.features(table)
        y, w, baseline = self.columns.labels(table, with_scores=True)
        part = open_part(source, X, y, w, baseline, number, 0)
        return replace(part, names=self.columns.names(table))


@dataclass(frozen=True)
class PartStage:
    """The sum of fn(part, **common) over a partition.

    ``starts``  by the number of a part: rows before it
    """

    fn: Callable[..., Any]
    common: dict[str, Any]
    starts: Any

    def parts(self, batches: Batches) -> Iterator[Part | Failure]:
        """The parts of a partition."""
        starts = opened(self.starts)
        for batch in batches:
            for number, data in zip(batch.column("number"), batch.column("part"), strict=True):
                part = pickle.loads(data.as_buffer())
                if isinstance(part, Part):
                    part = replace(part, start=starts[number.as_py()])
                yield part

    def results(self, batches: Batches) -> Iterator[Any]:
        """fn of each part, or its error."""
        common = opened(self.common)
        for part in self.parts(batches):
            if isinstance(part, Failure):
                yield part
                return
            try:
                yield self.fn(part, **common)
            except LeaftraceError as error:
                yield Failure(error)
                return

    def __call__(self, batches: Batches) -> Batches:
        total = None
        for found in self.results(batches):
            total = found if total is None else total + found
        if total is not None:
            yield result(total)


@dataclass(frozen=True)
class EachStage(PartStage):
    """fn(part, **common) of every part: a line of the state with the result in the place of the part."""

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            found = list(self.results(iter([batch])))
            pickled = [pickle.dumps(part, protocol=5) for part in found]
            numbers = batch.column("number")
            lines = [numbers, batch.column("rows"), pa.array(pickled, pa.binary())]
            yield pa.RecordBatch.from_arrays(lines, ["number", "rows", "part"])


@dataclass(frozen=True)
class ColumnsStage(PartStage):
    """Values of the rows beside their names: fn(part, **common) gives (n, columns).

    ``kind``   the Arrow type of the names
    ``order``  the name of their column
    """

    order: str = ""
    kind: Any = None
    single: bool = True

    def __call__(self, batches: Batches) -> Batches:
        common = opened(self.common)
        for part in self.parts(batches):
            if isinstance(part, Failure):
                raise part.error
            values = np.asarray(self.fn(part, **common), dtype=np.float64)
            names = pa.array(part.names, type=self.kind, from_pandas=True)
            if self.single:
                column: Any = pa.array(values[:, 0])
            else:
                column = pa.array(list(values), pa.list_(pa.float64()))
            lines = [names, column]
            yield pa.RecordBatch.from_arrays(
                lines, [self.order, "value" if self.single else "values"]
            )


@dataclass(frozen=True)
class AddStage:
    """The sum of results that came into a partition."""

    def __call__(self, batches: Batches) -> Batches:
        found = [pickle.loads(x.as_buffer()) for batch in batches for x in batch.column("result")]
        if found:
            yield result(reduce(add, found))


@dataclass(frozen=True)
class ScoreStage:
    """Raw scores and predictions of rows by a refitted model."""

    columns: Columns
    model: Any
    kind: Any
    order: str

    def __call__(self, batches: Batches) -> Batches:
        model = opened(self.model)
        for table in tables_of(batches):
            X = self.columns.features(table)
            predicted = np.asarray(model.predict(X))
            names = pa.array(self.columns.names(table), type=self.kind, from_pandas=True)
            if predicted.ndim == 1:
                column: Any = pa.array(predicted.astype(np.float64))
            else:
                column = pa.array(list(predicted.astype(np.float64)), pa.list_(pa.float64()))
            yield pa.RecordBatch.from_arrays([names, column], [self.order, "prediction"])


def with_facts_of(part: Part, facts: dict[int, Facts]) -> Part:
    """The part with the facts about its rows."""
    return replace(part, facts=facts[part.number])
