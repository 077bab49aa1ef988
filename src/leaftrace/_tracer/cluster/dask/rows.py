"""Training rows in the partitions of a Dask DataFrame or Array.

A partition of the table is computed when its leaves are found, and let go with that. Labels and
weights are computed before, by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from distributed import Future

from ...._adapters import Source
from ...._data import inputs
from ...._data.arrays import F64, Ids
from ...._data.errors import InvalidInput, LeaftraceError
from ...._data.frames import to_numpy
from ...._data.row_labels import aligned as in_order_of
from ...._data.row_labels import labels_of, row_index
from ..labels import LabelSummary, summarise_labels
from ..part import Part, check_length, open_part
from ..protocol import Vectors
from .aligned import aligned
from .cluster import DaskCluster

NAMES = ("X", "y", "sample_weight", "baseline", "qid")


class DaskRows:
    """Training rows in partitions of X, y and, unless they are None, weights, baseline and qid."""

    def __init__(
        self, cluster: DaskCluster, X: Any, y: Any, w: Any, baseline: Any, qid: Any
    ) -> None:
        self.cluster = cluster
        if getattr(X, "ndim", 0) != 2:
            raise InvalidInput(
                f"X is a {type(X).__name__} of {getattr(X, 'ndim', 0)} dimensions; pass a Dask DataFrame, or an Array "
                "of two: rows and features."
            )
        names = getattr(X, "columns", None)
        self.labelled = names is not None  # by an index
        self.columns = [str(c) for c in (range(X.shape[1]) if names is None else names)]
        given = zip((X, y, w, baseline, qid), NAMES, strict=True)
        columns = [None if x is None else delayed_partitions(x, name) for x, name in given]
        counts = [len(parts) for parts in columns if parts is not None]
        if len(set(counts)) > 1:
            raise InvalidInput(
                f"X, y and the others have {', '.join(map(str, counts))} partitions; pass the same rows in the same "
                "partitions."
            )
        self._parts: list[tuple[Any, ...]] = [
            tuple(None if parts is None else parts[i] for parts in columns)
            for i in range(counts[0])
        ]

    def in_order(self) -> DaskRows:
        """These rows: partitions are in the order of training."""
        return self

    def labels(self) -> LabelSummary:
        summaries = [delayed(_summary_of)(y, w) for _, y, w, *_ in self._parts]
        found = self._gather(summaries)
        labels = reduce(add, found)
        if labels.n:
            self._drop_empty(labels.sizes)
        return labels

    def _drop_empty(self, sizes: tuple[int, ...]) -> None:
        """Forget partitions without rows; an error if X has rows for which y has none."""
        empty = [part[0] for part, n in zip(self._parts, sizes, strict=True) if not n]
        if any(self._gather([delayed(len)(X) for X in empty])):
            raise InvalidInput(
                "a partition of y is empty, that of X is not; pass the same rows in both."
            )
        if empty:
            self._parts = [part for part, n in zip(self._parts, sizes, strict=True) if n]

    def first(self, count: int) -> tuple[Any, Any]:
        X, _, _, baseline, _ = self._parts[0]
        return self._gather([delayed(_first_rows)(X, baseline, count)])[0]

    def open(self, source: Source, labels: LabelSummary) -> DaskCluster:
        sizes = [n for n in labels.sizes if n]
        starts = np.cumsum([0, *sizes])[:-1].tolist()
        sent = self.cluster.send(source)
        opened = [
            delayed(_opened)(sent, *part[:4], i, start)
            for i, (part, start) in enumerate(zip(self._parts, starts, strict=True))
        ]
        self.cluster.sizes = sizes
        with reading_errors():
            self.cluster.keep(self._compute(opened))
        return self.cluster

    def vectors(self) -> Vectors:
        found = self._gather([delayed(_vectors_of)(*part) for part in self._parts])
        columns: list[Any] = [
            None if parts[0] is None else np.concatenate(parts)
            for parts in zip(*found, strict=True)
        ]
        return Vectors(*columns)

    def tables(self) -> Iterator[Any]:
        for part in self._parts:
            yield self._gather([part[0]])[0]

    def leaves(self, source: Source) -> Iterator[tuple[Ids, F64 | None]]:
        sent = self.cluster.send(source)
        for X, _, _, baseline, _ in self._parts:
            yield self._gather([delayed(_leaves_of)(sent, X, baseline)])[0]

    def _compute(self, items: list[Any]) -> list[Future]:
        self.cluster.check()
        with self.cluster.large_messages():
            return self.cluster.client.compute(items, retries=2)

    def _gather(self, items: list[Any]) -> list[Any]:
        """Results of delayed items; those that share a file read it once."""
        with reading_errors():
            return self.cluster.gather(self._compute(items)) if items else []


def _summary_of(y: Any, w: Any) -> LabelSummary:
    if w is not None:
        check_same_rows(y, w)
    return summarise_labels(y, w)


def check_same_rows(y: Any, w: Any) -> None:
    """Raise an error if labels and weights of a partition differ in their number."""
    if len(y) != len(w):
        raise InvalidInput(
            f"a partition of y has {len(y)} rows and that of sample_weight {len(w)}; pass the same rows in the same "
            "partitions."
        )


def _first_rows(X: Any, baseline: Any, count: int) -> tuple[Any, Any]:
    """This many rows of X, which repeat if it has fewer, and of the baseline."""
    at = np.arange(count) % len(X)
    rows = inputs.take_rows(X, at)
    return rows, None if baseline is None else np.asarray(baseline)[at]


def _vectors_of(X: Any, *columns: Any) -> Vectors:
    index = labels_of(X)
    n = len(X)
    check_length(columns[0], n, "y")
    found: list[Any] = [
        None if x is None else to_numpy(in_order_of(x, index, name, "X"))
        for x, name in zip(columns, NAMES[1:], strict=True)
    ]
    found.append(None if index is None else row_index(X, n))
    return Vectors(*found)


def _opened(source: Source, *items: Any) -> Part:
    return open_part(source, *map(aligned, items))


def _leaves_of(source: Source, X: Any, baseline: Any) -> tuple[Ids, F64 | None]:
    baseline = in_order_of(baseline, labels_of(X), "baseline", "X")
    return source.rows(aligned(X), aligned(baseline))


def delayed_partitions(x: Any, name: str) -> list[Any]:
    """The delayed partitions of a Dask collection, an argument of this name."""
    if not hasattr(x, "to_delayed"):
        raise InvalidInput(
            f"{name} is a {type(x).__name__}; pass a Dask DataFrame, Series or Array."
        )
    rows: Any = x
    if isinstance(x, da.Array):
        parts = (rows.rechunk({1: -1}) if x.ndim == 2 else rows).to_delayed()
    else:
        # optimising the graph may join partitions of few columns
        parts = rows.to_delayed(optimize_graph=False)
    return list(np.ravel(np.array(parts, dtype=object)))


@contextmanager
def reading_errors(what: str = "the training rows") -> Iterator[None]:
    """Re-raise errors of reading partitions as LeaftraceError."""
    try:
        yield
    except LeaftraceError:
        raise
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError, RuntimeError) as error:
        raise LeaftraceError(
            f"a partition of {what} cannot be computed ({type(error).__name__}: {error}); mend it, and "
            "ask again."
        ) from error
