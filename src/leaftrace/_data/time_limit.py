"""A limit on the time of work that consists of many parts, such as retrainings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any, TypeVar

from .errors import InvalidInput
from .progress import duration

T = TypeVar("T")


class TimeLimit:
    """A time after which no new part of the work is begun; those that were begun are finished.

    ``seconds``  of the limit, from now on; None: there is none
    ``begun``    number of parts so far
    ``passed``   whether parts were left out because of it
    """

    def __init__(self, seconds: Any) -> None:
        if seconds is not None and not _is_time(seconds):
            raise InvalidInput(
                f"time_limit is {seconds!r}; it is a number of seconds above 0, or None for no limit."
            )
        self.seconds = math.inf if seconds is None else float(seconds)
        self.begun = 0
        self.passed = False
        self._start = monotonic()

    def items(self, items: Iterable[T], enough: Callable[[], bool] = lambda: True) -> Iterator[T]:
        """Pass the items on until the time is over.

        ``enough``: whether there is a result without the items that are left; they go on until there is.
        """
        for item in items:
            if not self.allows(enough):
                return
            yield item

    def allows(self, enough: Callable[[], bool] = lambda: True) -> bool:
        """Whether another part may begin. It counts as begun if so, and as left out if not."""
        if monotonic() - self._start > self.seconds and enough():
            self.passed = True
            return False
        self.begun += 1
        return True

    @property
    def note(self) -> str:
        """A sentence that ends with a space if parts were left out; otherwise nothing."""
        return f"The time limit of {duration(self.seconds)} ended it early. " if self.passed else ""

    def in_words(self, done: int, wanted: int | None, what: str) -> str:
        """A sentence about what was done: `The time limit of 5 s ended it after 3 of 20 members.`"""
        of = "" if wanted is None else f" of {wanted:,}"
        return f"The time limit of {duration(self.seconds)} ended it after {done:,}{of} {what}."


def _is_time(seconds: Any) -> bool:
    """Whether this is a number of seconds above zero."""
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return is_number and seconds > 0
