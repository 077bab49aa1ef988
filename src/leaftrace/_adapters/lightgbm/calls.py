"""Calls of LightGBM, one at a time once a model with linear trees has been opened.

LightGBM keeps the number of threads in one variable of the process. While it trains linear trees, any other call
that changes this number ends the process: buffers were made for each thread before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, RLock

_lock = RLock()
_linear_trees = Event()


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
