"""Answers within the memory that there is: in smaller pieces, or an error that says what to do.

The memory limit is an estimate made before the work: other threads of the process, or libraries,
may take memory afterwards. A limit on the address space of a process shows that as a MemoryError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from .._data.arrays import Real
from .._data.errors import LeaftraceError
from .free_memory import available_memory, size_in_words
from .workspace import Workspace

T = TypeVar("T")
LEAST_LIMIT = 1 << 18  # bytes; below this the pieces are as small as they can be


def in_smaller_pieces(work: Workspace, compute: Callable[[], T]) -> T:
    """compute(), repeated in ever smaller pieces and on one thread while memory runs out."""
    while work.memory_limit > LEAST_LIMIT:
        try:
            return compute()
        except MemoryError:
            pass
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
        work.use_less_memory(min(work.memory_limit, available_memory()) // 8)
    with memory_errors("this answer, even in the smallest pieces"):
        return compute()


@contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Re-raise errors about missing memory as LeaftraceError. ``what``: what it is needed for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = f" ({error})" if str(error) else ""
        free = size_in_words(available_memory())
        raise LeaftraceError(
            f"there is not enough memory for {what}{reason}; {free} are free. Raise the limit of the process or "
            "container, or give fewer rows."
        ) from None


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about memory; the stack of a new thread takes some, too."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)


def empty_answer(rows: int, columns: int, dtype: np.dtype) -> Real:
    """(rows, columns) an array for the values of an answer; an error if memory cannot hold it."""
    needed = rows * columns * dtype.itemsize
    free = available_memory()
    if needed > free:
        raise LeaftraceError(
            f"the answer has {rows:,} x {columns:,} values, {size_in_words(needed)}, and {size_in_words(free)} are "
            'free; use top(), which needs a few columns at a time, reduce="mean" for one column, rows= for some of the '
            "training rows, or fewer test rows."
        )
    return np.empty((rows, columns), dtype)
