"""Functions of partitions on a cluster, and sums of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import add
from typing import Any

import dask.array as da
import dask.bag as db
import numpy as np
from dask import config
from dask.delayed import delayed
from distributed import Client, Future, KilledWorker, get_client, wait
from distributed.client import FutureCancelledError

from .._data.errors import InvalidInput, LeaftraceError
from ._aligned import with_aligned_arrays

SPLIT = 8  # partitions, or sums of them, that one task adds


class Cluster:
    """A client, and the workers that have the partitions."""

    def __init__(self, client: Client | None) -> None:
        self.client: Any = client or _running_client()
        self.places: dict[str, list[int]] = {}  # numbers of the partitions of each worker
        self.check()

    def check(self) -> None:
        """Raise an error if work that is sent to the cluster would wait for ever.

        A cluster that scales itself gets its first worker when there is work.
        """
        if self.client.status != "running":
            raise LeaftraceError(
                f"the Dask client is {self.client.status}; start a new one, distributed.Client(...), and make the "
                "tracer again with client=."
            )
        scales_itself = getattr(self.client.cluster, "_adaptive", None) is not None
        if not scales_itself and not self.client.nthreads():
            raise LeaftraceError(
                "the Dask cluster has no workers; start some, for example by cluster.scale(4), and wait for them by "
                "client.wait_for_workers(1)."
            )

    def compute(self, columns: list[list[Any]]) -> list[tuple[Future | None, ...]]:
        """(X, y, w) of each partition, from columns of delayed partitions.

        All are computed in one graph, so that files they share are read once.
        """
        self.check()
        delayed_parts = [part for parts in columns for part in parts if part is not None]
        futures = iter(self.client.compute(delayed_parts, retries=2))
        computed = [
            [None if part is None else next(futures) for part in parts] for parts in columns
        ]
        return list(zip(*computed, strict=True))

    def place(self, parts: list[Any]) -> None:
        """Assign each partition to a worker, on which `map` computes with it from now on.

        It is the worker that has the partition, unless that one would have more than its share:
        then the partition is moved once. Dask would move it again and again.
        """
        wait(parts)
        threads = self.client.nthreads()
        holders = self.client.who_has(parts)
        total = sum(threads.values())
        share = {worker: -(-len(parts) * n // total) for worker, n in threads.items()}
        self.places = {worker: [] for worker in threads}
        surplus = []
        for i, part in enumerate(parts):
            free = [w for w in holders[part.key] if len(self.places.get(w, ())) < share.get(w, 0)]
            if free:
                self.places[free[0]].append(i)
            else:
                surplus.append(i)
        for i in surplus:
            least_loaded = min(threads, key=lambda w: len(self.places[w]) / threads[w])
            self.places[least_loaded].append(i)

    def map(self, fn: Callable[..., Any], *items: Any, **common: Any) -> list[Future]:
        """fn of each partition's items, on its worker (or on any, if that one is gone)."""
        self.check()
        rows = list(zip(*items, strict=True))
        out = {}
        for worker, numbers in (self.places or {"": range(len(rows))}).items():
            if not numbers:
                continue
            where = {"workers": [worker], "allow_other_workers": True} if worker else {}
            columns = zip(*(rows[i] for i in numbers), strict=True)
            futures = self.client.map(
                partial(with_aligned_arrays, fn),
                *map(list, columns),
                **common,
                **where,
                pure=False,
                retries=2,
            )
            out |= dict(zip(numbers, futures, strict=True))
        return [out[i] for i in range(len(rows))]

    def total(self, fn: Callable[..., Any], *items: Any, **common: Any) -> Any:
        """The sum of fn over the partitions."""
        return self.add_up(self.map(partial(_as_sequence, fn), *items, **common))

    def add_up(self, parts: list[Future]) -> Any:
        """The sum of all items of the partitions' sequences."""
        bag: Any = db.from_delayed([delayed(part) for part in parts])
        return self.client.compute(bag.fold(add, split_every=SPLIT), retries=2).result()

    def send(self, data: Any) -> Future:
        """Data for tasks on any worker.

        It is the result of a task, which can be run again. Scattered data would be lost with the
        workers that have it.
        """
        with config.set({"distributed.admin.large-graph-warning-threshold": "2 GiB"}):
            return self.client.submit(_identity, data, pure=False)

    @property
    def threads(self) -> int:
        """Number of threads of all workers."""
        self.check()
        return max(1, sum(self.client.nthreads().values()))


def _as_sequence(fn: Callable[..., Any], *items: Any, **common: Any) -> list[Any]:
    """The result of fn as a sequence of one item, as bags have them."""
    return [fn(*items, **common)]


def _identity(data: Any) -> Any:
    return data


def _running_client() -> Client:
    try:
        return get_client()
    except ValueError:
        raise InvalidInput(
            "there is no Dask client; start one, distributed.Client(...), or pass client=."
        ) from None


def partitions(X: Any, y: Any, w: Any) -> list[list[Any]]:
    """The delayed partitions of X, y and w; Nones if w is None."""
    columns = [_delayed_partitions(X, "X"), _delayed_partitions(y, "y")]
    if w is None:
        columns.append([None] * len(columns[0]))
    else:
        columns.append(_delayed_partitions(w, "sample_weight"))
    if len({len(parts) for parts in columns}) > 1:
        sizes = ", ".join(str(len(parts)) for parts in columns)
        raise InvalidInput(
            f"X, y and sample_weight have {sizes} partitions; pass the same rows in the same partitions."
        )
    return columns


def _delayed_partitions(x: Any, name: str) -> list[Any]:
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


def as_array(chunks: list[Future], rows: list[int], columns: int, dtype: np.dtype) -> da.Array:
    """A Dask array (all rows, columns) of chunks with these numbers of rows."""
    arrays = [
        da.from_delayed(delayed(chunk), (n, columns), dtype)
        for chunk, n in zip(chunks, rows, strict=True)
    ]
    return da.concatenate(arrays)


@contextmanager
def cluster_errors() -> Iterator[None]:
    """Re-raise errors of the cluster as LeaftraceError."""
    try:
        yield
    except (KilledWorker, FutureCancelledError) as error:
        raise LeaftraceError(
            f"the cluster lost a part of the work that it could not do again ({error}); are there workers left, with "
            "enough memory? Persist the training rows, or keep them where they can be read again."
        ) from error
