"""How far the work is and how long it will still take: for all that lasts longer than a second.

A bar of tqdm's on a terminal and in a notebook. Elsewhere, in a log or a pipe, and without tqdm, now and then a line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
# seconds until the first line, between lines, and to the end after the last one
FIRST = 2.0
AGAIN = 15.0
LAST = 0.5


class Bar(Protocol):
    n: float

    def update(self, n: float) -> Any: ...


def progress(
    items: Iterable[T], total: int | None, what: str, unit: str, per_item: int = 1
) -> Iterator[T]:
    """Pass the items on; each stands for `per_item` units. A total of None is not known: then it counts."""
    with bar(total, what, unit) as shown:
        for item in items:
            yield item
            shown.update(per_item if total is None else min(per_item, total - shown.n))


def bar(total: int | None, what: str, unit: str) -> AbstractContextManager[Bar]:
    """To be told of progress by `update`."""
    if sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return Lines(total, what, unit)
        return tqdm(
            total=total, desc=what, unit=unit, delay=1.0, leave=False, unit_scale=unit == "B"
        )
    return Lines(total, what, unit)


class Lines:
    """A line after two seconds, then every fifteen."""

    def __init__(self, total: int | None, what: str, unit: str) -> None:
        self.total = total
        self.what = what
        self.unit = unit
        self.n = 0.0
        self._start = time.monotonic()
        self._next = self._start + FIRST

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: float) -> None:
        self.n += n
        now = time.monotonic()
        seconds = now - self._start
        left = None if self.total is None else seconds * (self.total / self.n - 1)
        if now < self._next or sys.stderr is None or (left is not None and left < LAST):
            return
        self._next = now + AGAIN
        print(self._line(seconds, left), file=sys.stderr, flush=True)

    def _line(self, seconds: float, left: float | None) -> str:
        many = f"{self.unit[:-1]}ies" if self.unit.endswith("y") else f"{self.unit}s"
        size, unit = (1e6, "MB") if self.unit == "B" else (1, many)
        done = f"{self.what}: {self.n / size:,.0f}"
        if self.total is None or left is None:
            return f"{done} {unit} in {span(seconds)}"
        return (
            f"{done} of {self.total / size:,.0f} {unit} in {span(seconds)}, about {span(left)} left"
        )


def span(seconds: float) -> str:
    """A time in words."""
    for size, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return (
                f"{seconds / size:.0f} {name}"
                if seconds >= 10 * size
                else f"{seconds / size:.1f} {name}"
            )
    return f"{seconds:.0f} s"
