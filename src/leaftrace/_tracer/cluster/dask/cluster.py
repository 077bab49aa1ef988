"""Functions of partitions on the workers of Dask, and sums of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import add
from time import monotonic
from typing import Any, NamedTuple

from dask import config
from distributed import Client, Future, KilledWorker, get_client
from distributed.client import FutureCancelledError

from ...._data.errors import InvalidInput, LeaftraceError
from ..part import Facts, Part
from .aligned import aligned
from .steps import let_workers_listen, sums_of_workers
from .waiting import result_of, scales_itself

SPLIT = 8  # sums that one task adds
CHECK_AFTER = 1.0  # seconds between two questions to the scheduler during a pass


class Bundle(NamedTuple):
    """Partitions that one thread of a worker computes with, by their numbers."""

    worker: str
    numbers: list[int]


class DaskCluster:
    """Partitions on the workers of a Dask cluster."""

    def __init__(self, client: Client | None) -> None:
        if client is not None and not isinstance(client, Client):
            raise InvalidInput(
                f"client is a {type(client).__name__}; pass a distributed.Client, for example Client('scheduler:8786')."
            )
        self.client: Any = client or _running_client()
        self.parts: list[Future] = []
        self.sizes: list[int] = []
        self.bundles: list[Bundle] = []
        self._checked = 0.0
        self.check()

    def check(self) -> None:
        """Raise an error if work that is sent to the cluster would wait for ever.

        A cluster that scales itself gets its first worker when there is work.
        """
        self._checked = monotonic()
        if self.client.status != "running":
            raise LeaftraceError(
                f"the Dask client is {self.client.status}; start a new one, distributed.Client(...), and make the "
                "tracer again with client=."
            )
        if not scales_itself(self.client) and not self.client.nthreads():
            raise LeaftraceError(
                "the Dask cluster has no workers; start some, for example by cluster.scale(4), and wait for them by "
                "client.wait_for_workers(1)."
            )

    @property
    def threads(self) -> int:
        self.check()
        return max(1, sum(self.client.nthreads().values()))

    @property
    def n_parts(self) -> int:
        return len(self.parts)

    # ---- partitions ----

    def keep(self, parts: list[Future]) -> None:
        """Compute with these partitions from now on, each with the worker that has it.

        A worker that would have more than its share gives some away, once: Dask would move them
        again and again. Each of its threads gets a bundle of partitions, so that a step is one
        task a thread.
        """
        # waits for the partitions, and raises their errors
        self.gather(self.client.map(len, parts, pure=False))
        threads = self.client.nthreads()
        holders = self.client.who_has(parts)
        total = sum(threads.values())
        share = {worker: -(-len(parts) * n // total) for worker, n in threads.items()}
        places: dict[str, list[int]] = {worker: [] for worker in threads}
        surplus = []
        for i, part in enumerate(parts):
            free = [w for w in holders[part.key] if len(places.get(w, ())) < share.get(w, 0)]
            if free:
                places[free[0]].append(i)
            else:
                surplus.append(i)
        for i in surplus:
            least_loaded = min(threads, key=lambda w: len(places[w]) / threads[w])
            places[least_loaded].append(i)
        let_workers_listen(self.client)
        self.parts = parts
        self.bundles = [
            Bundle(worker, numbers[k :: threads[worker]])
            for worker, numbers in places.items()
            for k in range(min(threads[worker], len(numbers)))
        ]

    def give(self, facts: Sequence[Facts]) -> None:
        with self.large_messages():
            parts = [
                self.client.submit(with_facts, part, own, pure=False, retries=2)
                for part, own in zip(self.parts, facts, strict=True)
            ]
        self.keep(parts)

    # ---- computations ----

    def send(self, data: Any) -> Future:
        """Data for tasks on any worker.

        It is the result of a task, which can be run again. Scattered data would be lost with the
        workers that have it.
        """
        with self.large_messages():
            return self.client.submit(_identity, data, pure=False)

    def total(self, fn: Callable[..., Any], **common: Any) -> Any:
        if monotonic() - self._checked > CHECK_AFTER:
            self.check()
        sums = [
            self._submit(bundle, sum_over_parts, fn, self._parts_of(bundle), common)
            for bundle in self.bundles
        ]
        return self.add_up(sums)

    def go_on(self, key: str, fn: Callable[..., Any], **common: Any) -> Any | None:
        found = sums_of_workers(self.client, key, fn, common)
        numbers = [number for of_sum, _ in found for number in of_sum]
        if sorted(numbers) != list(range(len(self.parts))):
            let_workers_listen(self.client)  # some may be new
            return None
        return _add_all([total for of_sum, total in found if of_sum])

    def forget(self, key: str) -> None:
        sums_of_workers(self.client, key, None, {})

    def map(self, fn: Callable[..., Any], **common: Any) -> list[Future]:
        """fn(part, **common) of each partition, which stays with its worker."""
        self.check()
        found: dict[int, Future] = {}
        for bundle in self.bundles:
            for i in bundle.numbers:
                found[i] = self._submit(bundle, _of_part, fn, self.parts[i], common)
        return [found[i] for i in range(len(self.parts))]

    def map_with(
        self, fn: Callable[..., Any], items: Sequence[Sequence[Any]], **common: Any
    ) -> list[Future]:
        """fn(part, *items of the partition, **common) of each partition, likewise."""
        self.check()
        by_part = list(zip(*items, strict=True))
        found: dict[int, Future] = {}
        for bundle in self.bundles:
            for i in bundle.numbers:
                own = (self.parts[i], *by_part[i])
                found[i] = self._submit(bundle, _of_items, fn, own, common)
        return [found[i] for i in range(len(self.parts))]

    def _parts_of(self, bundle: Bundle) -> list[Future]:
        return [self.parts[i] for i in bundle.numbers]

    def gather(self, futures: list[Future]) -> list[Any]:
        """These results, brought to the client."""
        return result_of(self.client, lambda: self.client.gather(futures))

    def _submit(self, bundle: Bundle, fn: Callable[..., Any], *arguments: Any) -> Future:
        """A task on the worker of a bundle (or on any, if that one is gone)."""
        where = {"workers": [bundle.worker], "allow_other_workers": True}
        return self.client.submit(fn, *arguments, **where, pure=False, retries=2)

    def add_up(self, sums: list[Future]) -> Any:
        """The sum of these results: on the workers as long as they are many, then at the client."""
        while len(sums) > SPLIT:
            groups = [sums[i : i + SPLIT] for i in range(0, len(sums), SPLIT)]
            sums = [self.client.submit(_add_all, group, pure=False, retries=2) for group in groups]
        return aligned(_add_all(self.gather(sums)))

    @staticmethod
    def large_messages() -> Any:
        """Let Dask send a large message without a warning."""
        return config.set({"distributed.admin.large-graph-warning-threshold": "2 GiB"})


def sum_over_parts(fn: Callable[..., Any], parts: list[Part], common: dict[str, Any]) -> Any:
    """The sum of fn over these partitions."""
    given = {name: aligned(value) for name, value in common.items()}
    return reduce(add, (fn(aligned(part), **given) for part in parts))


def _of_part(fn: Callable[..., Any], part: Part, common: dict[str, Any]) -> Any:
    return sum_over_parts(fn, [part], common)


def _of_items(fn: Callable[..., Any], items: Sequence[Any], common: dict[str, Any]) -> Any:
    given = {name: aligned(value) for name, value in common.items()}
    return fn(*map(aligned, items), **given)


def with_facts(part: Part, facts: Facts) -> Part:
    """The partition with these facts about its rows."""
    return replace(part, facts=facts)


def _add_all(items: list[Any]) -> Any:
    return reduce(add, items)


def _identity(data: Any) -> Any:
    return data


def _running_client() -> Client:
    try:
        return get_client()
    except ValueError:
        raise InvalidInput(
            "there is no Dask client; start one, distributed.Client(...), or pass client=."
        ) from None


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
