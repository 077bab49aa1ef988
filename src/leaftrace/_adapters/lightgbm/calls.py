"""Calls of LightGBM that do not disturb each other.

LightGBM keeps the number of threads in one variable of the process. While it trains linear trees, any other call
that changes this number ends the process: buffers were made for each thread before. So once a model with linear
trees has been opened, there is one call at a time. Buffers of predictions are made for each thread, too: beside a
training, which has one thread if there are several, a prediction takes one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, RLock

_lock = RLock()
_linear_trees = Event()
_trainings: list[object] = []  # those that run now


def expect_linear_trees() -> None:
    """Let calls wait for each other from now on."""
    _linear_trees.set()


@contextmanager
def calling() -> Iterator[None]:
    """Hold back the calls of other threads until this one is done, if need be."""
    if not _linear_trees.is_set():
        yield
        return
    with _lock:
        yield


@contextmanager
def while_training() -> Iterator[None]:
    """The same for a training, which predictions on other threads then know of."""
    one = object()
    _trainings.append(one)
    try:
        with calling():
            yield
    finally:
        _trainings.remove(one)


def threads_of_prediction() -> dict[str, int]:
    """The number of threads to predict with, as an argument; none for that of the model."""
    return {"num_threads": 1} if _trainings else {}
