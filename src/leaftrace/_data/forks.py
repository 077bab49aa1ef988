"""Calls of boosters in a forked process.

GNU OpenMP, which LightGBM, XGBoost and scikit-learn run on, keeps its threads with the thread that
started them. A forked process has the memory of that thread but none of the others, so its next
parallel loop waits for them for ever, even if the loop would need only one. A new thread has no such
memory and starts OpenMP anew. In a forked process these calls are therefore made in a new thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import ParamSpec, TypeVar

_IMPORTING_PROCESS = os.getpid()
P = ParamSpec("P")
R = TypeVar("R")


def works_in_forks(function: Callable[P, R]) -> Callable[P, R]:
    """The function, made to run in a new thread if this process was forked.

    Only the thread that forked is affected; all others of a forked process are new.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        forked = os.getpid() != _IMPORTING_PROCESS
        if not forked or threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        from concurrent.futures import ThreadPoolExecutor  # not at the top: forks are rare

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(copy_context().run, function, *args, **kwargs).result()

    return run
