"""Partitions on a cluster: functions of each where it is, sums of them by Dask's trees of tasks, and what all get."""

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

SPLIT = 8  # partitions, or sums of them, that one task adds up


class Cluster:
    """A client, and once they are there the places of the partitions."""

    def __init__(self, client: Client | None) -> None:
        self.client: Any = client or _running()
        self.places: dict[str, list[int]] = {}  # partitions that each worker has

    def futures(self, columns: list[list[Any]]) -> list[tuple[Future | None, ...]]:
        """(X, y, w) of each partition, from all that is delayed: in one graph, so that what they share is read once."""
        given = [part for parts in columns for part in parts if part is not None]
        found = iter(self.client.compute(given, retries=2))
        return list(
            zip(
                *([None if part is None else next(found) for part in parts] for parts in columns),
                strict=True,
            )
        )

    def place(self, parts: list[Any]) -> None:
        """From now on, work on a partition is done where it is now, unless that worker would have more than its share:
        then it is moved once, where Dask would move it again and again."""
        wait(parts)
        threads = self.client.nthreads()
        found = self.client.who_has(parts)
        share = {
            worker: -(-len(parts) * n // sum(threads.values())) for worker, n in threads.items()
        }
        self.places = {worker: [] for worker in threads}
        later = []
        for i, part in enumerate(parts):
            room = [w for w in found[part.key] if len(self.places.get(w, ())) < share.get(w, 0)]
            (self.places[room[0]] if room else later).append(i)
        for i in later:
            self.places[min(threads, key=lambda w: len(self.places[w]) / threads[w])].append(i)

    def map(self, fn: Callable[..., Any], *items: Any, **common: Any) -> list[Future]:
        """fn of each partition's items, where the partition is (or anywhere, once its worker is gone)."""
        rows = list(zip(*items, strict=True))
        out = {}
        for place, which in (self.places or {"": range(len(rows))}).items():
            if not which:
                continue
            where = {"workers": [place], "allow_other_workers": True} if place else {}
            mine = zip(*(rows[i] for i in which), strict=True)
            futures = self.client.map(
                fn, *map(list, mine), **common, **where, pure=False, retries=2
            )
            out |= dict(zip(which, futures, strict=True))
        return [out[i] for i in range(len(rows))]

    def total(self, fn: Callable[..., Any], *items: Any, **common: Any) -> Any:
        """The sum of fn over the partitions."""
        return self.added(self.map(partial(_alone, fn), *items, **common))

    def added(self, parts: list[Future]) -> Any:
        """The sum of all in the partitions' sequences."""
        bag: Any = db.from_delayed([delayed(part) for part in parts])
        return self.client.compute(bag.fold(add, split_every=SPLIT), retries=2).result()

    def send(self, data: Any) -> Future:
        """As a task that can be done again on any worker: what is only scattered is lost with those that have it."""
        with config.set({"distributed.admin.large-graph-warning-threshold": "2 GiB"}):
            return self.client.submit(_same, data, pure=False)

    @property
    def threads(self) -> int:
        return max(1, sum(self.client.nthreads().values()))


def _alone(fn: Callable[..., Any], *items: Any, **common: Any) -> list[Any]:
    return [fn(*items, **common)]


def _same(data: Any) -> Any:
    return data


def _running() -> Client:
    try:
        return get_client()
    except ValueError:
        raise InvalidInput(
            "there is no Dask client; start one, distributed.Client(...), or pass client=."
        ) from None


def partitions(X: Any, y: Any, w: Any) -> list[list[Any]]:
    """The partitions of X, y and w (or None), delayed."""
    columns: list[list[Any]] = []
    for name, x in (("X", X), ("y", y), ("sample_weight", w)):
        if name == "sample_weight" and x is None:
            columns.append([None] * len(columns[0]))
            continue
        if not hasattr(x, "to_delayed"):
            raise InvalidInput(
                f"{name} is a {type(x).__name__}; pass a Dask DataFrame, Series or Array."
            )
        rows: Any = x
        if isinstance(x, da.Array):
            parts = (rows.rechunk({1: -1}) if x.ndim == 2 else rows).to_delayed()
        else:
            parts = rows.to_delayed(
                optimize_graph=False
            )  # which may join partitions of few columns
        columns.append(list(np.ravel(np.array(parts, dtype=object))))
    if len({len(parts) for parts in columns}) > 1:
        sizes = ", ".join(str(len(parts)) for parts in columns)
        raise InvalidInput(
            f"X, y and sample_weight have {sizes} partitions; pass the same rows in the same partitions."
        )
    return columns


def as_array(chunks: list[Future], rows: list[int], columns: int, dtype: np.dtype) -> da.Array:
    """(rows, columns) from chunks of so many rows each."""
    return da.concatenate(
        [
            da.from_delayed(delayed(chunk), (n, columns), dtype)
            for chunk, n in zip(chunks, rows, strict=True)
        ]
    )


@contextmanager
def told() -> Iterator[None]:
    """What goes wrong on the cluster, as one of our errors."""
    try:
        yield
    except (KilledWorker, FutureCancelledError) as error:
        raise LeaftraceError(
            f"the cluster lost a part of the work that it could not do again ({error}); are there workers left, with "
            "enough memory? Persist the training rows, or keep them where they can be read again."
        ) from error
