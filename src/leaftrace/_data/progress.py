"""Progress of work that lasts longer than a second: how much is done and how long the rest takes.

On a terminal and in a notebook it is a bar of tqdm's. Elsewhere (in a log or a pipe) and without
tqdm, a line is printed now and then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
SECONDS_TO_FIRST_LINE = 2.0
SECONDS_BETWEEN_LINES = 15.0
SECONDS_AFTER_LAST_LINE = 0.5  # no line is printed when less than this is left


class Bar(Protocol):
    """A display of progress; `update` adds to the amount done, ``n``."""

    n: float

    def update(self, n: float) -> Any: ...


def progress(
    items: Iterable[T], total: int | None, what: str, unit: str, per_item: int = 1
) -> Iterator[T]:
    """Pass the items on and show progress; each item stands for `per_item` units.

    A total of None is unknown: then the units are only counted.
    """
    with bar(total, what, unit) as display:
        for item in items:
            yield item
            display.update(per_item if total is None else min(per_item, total - display.n))


def bar(total: int | None, what: str, unit: str) -> AbstractContextManager[Bar]:
    """A display that shows progress when its `update` is called."""
    if sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return ProgressLines(total, what, unit)
        return tqdm(
            total=total, desc=what, unit=unit, delay=1.0, leave=False, unit_scale=unit == "B"
        )
    return ProgressLines(total, what, unit)


class ProgressLines:
    """Prints a line after two seconds, then every fifteen."""

    def __init__(self, total: int | None, what: str, unit: str) -> None:
        self.total = total
        self.what = what
        self.unit = unit
        self.n = 0.0
        self._start = time.monotonic()
        self._next = self._start + SECONDS_TO_FIRST_LINE

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: float) -> None:
        """Add n units, and print a line if it is time for one."""
        self.n += n
        now = time.monotonic()
        seconds = now - self._start
        left = None if self.total is None else seconds * (self.total / self.n - 1)
        almost_done = left is not None and left < SECONDS_AFTER_LAST_LINE
        if now < self._next or sys.stderr is None or almost_done:
            return
        self._next = now + SECONDS_BETWEEN_LINES
        print(self._line(seconds, left), file=sys.stderr, flush=True)

    def _line(self, seconds: float, left: float | None) -> str:
        """The line for work that has taken this time and needs ``left`` seconds more."""
        plural = f"{self.unit[:-1]}ies" if self.unit.endswith("y") else f"{self.unit}s"
        size, unit = (1e6, "MB") if self.unit == "B" else (1, plural)
        done = f"{self.what}: {self.n / size:,.0f}"
        took = duration(seconds)
        if self.total is None or left is None:
            return f"{done} {unit} in {took}"
        return f"{done} of {self.total / size:,.0f} {unit} in {took}, about {duration(left)} left"


def duration(seconds: float) -> str:
    """A time in words: `40 s`, `2.5 min`, `12 h`."""
    for size, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            digits = 0 if seconds >= 10 * size else 1
            return f"{seconds / size:.{digits}f} {name}"
    return f"{seconds:.0f} s"
