"""Settings of a tracer, and the cores and threads that it can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.errors import InvalidInput
from .._data.stopping import available_cores
from .._model.early_stopping import EvalSet, read_eval_set

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


@dataclass(frozen=True)
class Settings:
    """Settings of a tracer that its user chose.

    ``fidelity``      "raise", "warn" or "ignore" if the replay does not match the model
    ``dtype``         of the passes
    ``n_jobs``        number of threads
    ``memory_limit``  bytes to use beyond the inputs; None: half of what is free
    ``eval_set``      rows that decide when a retraining stops; None: it keeps the rounds
    """

    fidelity: str
    dtype: np.dtype
    n_jobs: int
    memory_limit: int | None
    eval_set: EvalSet | None = None


def settings_of(
    fidelity: str,
    dtype: str,
    n_jobs: int | None,
    memory_limit: int | None,
    eval_set: Any = None,
) -> Settings:
    """Check the settings that a user gave."""
    if fidelity not in ("raise", "warn", "ignore"):
        raise InvalidInput(f"fidelity is {fidelity!r}; it can be 'raise', 'warn' or 'ignore'.")
    if str(dtype) not in ("float32", "float64"):
        raise InvalidInput(f"dtype is {dtype!r}; it can be 'float32' or 'float64'.")
    if n_jobs is not None and not _is_positive_integer(n_jobs):
        raise InvalidInput(
            f"n_jobs is {n_jobs!r}; it is a number of threads, 1 or more, or None for all cores."
        )
    if memory_limit is not None and not _is_positive_integer(memory_limit):
        raise InvalidInput(
            f"memory_limit is {memory_limit!r}; it is a number of bytes, such as 2_000_000_000, or None."
        )
    threads = available_cores() if n_jobs is None else int(n_jobs)
    limit = None if memory_limit is None else int(memory_limit)
    return Settings(fidelity, np.dtype(dtype), threads, limit, read_eval_set(eval_set))


def _is_positive_integer(value: object) -> bool:
    """Whether a value is a whole number above zero; 2e9 counts as one, True does not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return bool(value > 0) and float(value).is_integer()


def thread_pool(n_jobs: int) -> ThreadPoolExecutor:
    """A pool of this many threads.

    Its module is loaded when a pool is made, so that importing leaftrace is fast.
    """
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(n_jobs)
