"""Waiting for results of a Dask cluster, as long as there are workers that may give them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...._data.errors import LeaftraceError

LOOK_EVERY = 2.0  # seconds between two looks at the workers during a wait
PATIENCE = 60.0  # seconds without a worker: time for lost ones to be replaced

Result = TypeVar("Result")


def result_of(client: Any, ask: Callable[[], Awaitable[Result]]) -> Result:
    """The result of a coroutine in the loop of the client.

    Dask waits for ever if all workers are gone; here that is an error.
    """
    return client.sync(_watched, client, ask)


async def _watched(client: Any, ask: Callable[[], Awaitable[Result]]) -> Result:
    waiting = asyncio.ensure_future(ask())
    alone = 0.0  # seconds
    try:
        while not (await asyncio.wait([waiting], timeout=LOOK_EVERY))[0]:
            alone = 0.0 if await _has_workers(client) else alone + LOOK_EVERY
            if alone >= PATIENCE:
                raise LeaftraceError(
                    f"the Dask cluster has had no workers for {alone:.0f} seconds, so nothing is computed; start some, "
                    "for example by cluster.scale(4), and ask again."
                )
        return waiting.result()
    finally:
        waiting.cancel()


async def _has_workers(client: Any) -> bool:
    """Whether the cluster has workers, or gets them by itself when there is work."""
    if scales_itself(client):
        return True
    try:
        return bool(await asyncio.wait_for(client.nthreads(), LOOK_EVERY))
    except (OSError, TimeoutError):  # the scheduler does not answer
        return False


def scales_itself(client: Any) -> bool:
    """Whether the client's own cluster gets its first worker when there is work."""
    return getattr(client.cluster, "_adaptive", None) is not None
