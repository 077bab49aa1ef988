"""Work on other threads that stops when the caller is interrupted.

Python tells only the main thread of Ctrl-C. The others are told here: their work looks from time to
time whether it is still wanted. Work that does not look is left to end on its own, in the
background, so that the caller never waits for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

SECONDS_TO_STOP = 1.0  # to wait for work that is no longer wanted
_SECONDS_BETWEEN_LOOKS = 0.2
T = TypeVar("T")
_unwanted: ContextVar[threading.Event | None] = ContextVar("unwanted", default=None)


def available_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Stopped(Exception):
    """Ends work that is no longer wanted; nobody waits for its result."""


def is_wanted() -> bool:
    """Whether the result of the present work is still wanted."""
    unwanted = _unwanted.get()
    return unwanted is None or not unwanted.is_set()


def stop_if_unwanted() -> None:
    """Raise Stopped if the result of the present work is no longer wanted."""
    if not is_wanted():
        raise Stopped


def result_of(future: Future[T]) -> T:
    """Wait for the result of a future, and for Ctrl-C."""
    while True:
        _renew_handler()
        try:
            return future.result(_SECONDS_BETWEEN_LOOKS)
        except TimeoutError:
            if future.done():  # the error is that of the work itself
                raise


def _renew_handler() -> None:
    """Give Ctrl-C back to Python.

    While CatBoost trains, it replaces the handler of the process by one that the main thread is not
    told by. Two trainings at once may even leave it there.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


@contextmanager
def stoppable_threads(n_jobs: int) -> Iterator[Callable[..., Future[Any]]]:
    """Give a function that runs (function, *arguments) on one of so many threads, as a future.

    Wait for it by `result_of`. If the block is left by an exception, such as KeyboardInterrupt, the
    work that was handed over is told that it is unwanted.
    """
    from concurrent.futures import ThreadPoolExecutor, wait  # they take time to load

    unwanted = threading.Event()
    pool = ThreadPoolExecutor(n_jobs)
    running: set[Future[Any]] = set()

    def submit(fn: Callable[..., T], *arguments: Any) -> Future[T]:
        context = copy_context()
        context.run(_unwanted.set, unwanted)
        future = pool.submit(context.run, fn, *arguments)
        running.add(future)
        future.add_done_callback(running.discard)
        return future

    try:
        yield submit
    except BaseException:
        unwanted.set()
        pool.shutdown(wait=False, cancel_futures=True)
        wait(set(running), SECONDS_TO_STOP)
        raise
    finally:
        _renew_handler()
    pool.shutdown()
