"""Steps of a pass with states that workers have kept: one message to each worker, and one back.

A task takes longer than a short step: it goes through the books of the scheduler, and through queues
that are emptied every few milliseconds. These messages do not. Nothing depends on them: where a state or
a worker is missing, the step is computed by tasks.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .. import scratch
from .waiting import result_of

MESSAGE = "leaftrace_step"  # the kind of the messages


def let_workers_listen(client: Any) -> None:
    """Let all workers that there are answer the messages."""
    with suppress(OSError):  # without a scheduler, tasks will say so
        client.run(_listen, on_error="ignore")


def _listen(dask_worker: Any) -> None:
    """Let a worker answer the messages."""

    async def answer(request: bytes) -> bytes:
        return pickle.dumps(await _sum_of_worker(dask_worker, *pickle.loads(request)), protocol=5)

    dask_worker.handlers[MESSAGE] = answer


async def _sum_of_worker(
    dask_worker: Any, key: str, fn: Callable[..., Any] | None, common: dict[str, Any]
) -> list[tuple[list[int], Any]]:
    """Sums over the states of a worker, one for each of its threads; none if fn is None."""
    states = list(scratch.take_all(key).items())
    if fn is None:
        return []
    loop = asyncio.get_running_loop()
    threads = dask_worker.executors["default"]
    count = dask_worker.state.nthreads
    shares = [dict(states[i::count]) for i in range(min(count, len(states)))]
    sums = [
        loop.run_in_executor(threads, scratch.sum_over_states, key, share, fn, common)
        for share in shares
    ]
    found = await asyncio.gather(*sums, return_exceptions=True)
    return [one for one in found if not isinstance(one, BaseException)]


def sums_of_workers(
    client: Any, key: str, fn: Callable[..., Any] | None, common: dict[str, Any]
) -> list[tuple[list[int], Any]]:
    """Sums of fn(state, **common) over states of a pass, with the numbers of the partitions in each.

    Those of workers that do not answer are missing. If fn is None, the states are forgotten.
    """
    answers = answers_of_workers(client, pickle.dumps((key, fn, common), protocol=5))
    return [found for answer in answers for found in pickle.loads(answer)]


def answers_of_workers(client: Any, request: bytes) -> list[bytes]:
    """Answers of all workers that listen to a message."""

    async def ask() -> dict[str, Any]:
        message = {"op": MESSAGE, "request": request}
        return await client.scheduler.broadcast(msg=message, on_error="ignore")

    try:
        answers = result_of(client, ask)
    except OSError:  # the scheduler does not answer
        return []
    return [answer for answer in answers.values() if type(answer) is bytes]
