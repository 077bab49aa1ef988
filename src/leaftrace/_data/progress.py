"""Progress of work that lasts longer than a second: how much is done and how long the rest takes.

On a terminal and in a notebook it is a bar of tqdm's. Elsewhere (in a log or a pipe) and without
tqdm, a line is printed now and then. Work whose first part takes long says so before it is done.

The time that is left comes from the parts that are done, and is not told before there are any to
tell from. The first part often pays for what all share, so it alone is believed only if it is a
tenth of the work or more.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")
SECONDS_TO_FIRST_LINE = 2.0
SECONDS_BETWEEN_LINES = 15.0
SECONDS_AFTER_LAST_LINE = 0.5  # no line is printed when less than this is left
SECONDS_TO_BAR = 1.0
_TICK = 0.5  # seconds between looks at work that has not come to an end of a part
_TELLING = 0.1  # share of the work whose time is believed although it is one part

# What is printed of the time left. "about": all parts take equally long. "at most": the work may end
# early. "": parts differ so much that the time of one says nothing of the next.
Left = Literal["about", "at most", ""]


class Bar(Protocol):
    """A display of progress; `update` adds to the amount done, ``n``."""

    @property
    def n(self) -> float: ...

    def update(self, n: float) -> Any: ...


def progress(
    items: Iterable[T],
    total: int | None,
    what: str,
    unit: str,
    per_item: int = 1,
    *,
    left: Left = "about",
    seconds: float | None = None,
) -> Iterator[T]:
    """Pass the items on and show progress; each item stands for `per_item` units.

    ``total``    number of units; None: unknown, so that they are only counted
    ``left``     what is printed of the time left
    ``seconds``  that one unit will take, if that is known beforehand
    """
    with bar(total, what, unit, left=left, seconds=seconds) as display:
        for item in items:
            yield item
            display.update(per_item if total is None else min(per_item, total - display.n))


def bar(
    total: int | None,
    what: str,
    unit: str,
    *,
    left: Left = "about",
    seconds: float | None = None,
) -> AbstractContextManager[Bar]:
    """A display that shows progress when its `update` is called, or when nothing happens for long."""
    pace = Pace(total, left, seconds)
    if sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        with suppress(ImportError):
            return TerminalBar(what, unit, pace)
    return ProgressLines(what, unit, pace)


class Pace:
    """The amount done, ``n``, and the time that the rest takes."""

    def __init__(self, total: int | None, left: Left = "about", seconds: float | None = None):
        self.total = total
        self.word = left
        self.n = 0.0
        self._expected = seconds
        self._start = time.monotonic()
        self._first: tuple[float, float] | None = None  # the amount and the time of the first part
        self._last = self._start

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def add(self, n: float) -> None:
        """Note that n more units are done."""
        self.n += n
        self._last = time.monotonic()
        if self._first is None:
            self._first = (self.n, self._last)

    def left(self) -> float | None:
        """Seconds that are left; None: there is nothing yet to tell it from."""
        per_unit = self._seconds_per_unit()
        if self.total is None or per_unit is None:
            return None
        since = time.monotonic() - self._last
        return max((self.total - self.n) * per_unit - since, 0.0)

    def left_in_words(self) -> str:
        """The time that is left, as a line ends; empty if it is not known."""
        seconds = self.left()
        return "" if seconds is None or not self.word else f", {self.word} {duration(seconds)} left"

    def _seconds_per_unit(self) -> float | None:
        if self._first is None or not self.word:
            return self._expected if self.word else None
        n_first, t_first = self._first
        if self.n > n_first:
            return (self._last - t_first) / (self.n - n_first)
        if self._expected is not None or (self.total and n_first >= _TELLING * self.total):
            return (t_first - self._start) / n_first
        return None


class _Ticker:
    """Looks at the outermost display now and then, on a thread of its own while there is one."""

    def __init__(self) -> None:
        self._shown: list[Any] = []
        self._lock = threading.Lock()
        self._end = threading.Event()

    def enter(self, display: Any) -> None:
        with self._lock:
            self._shown.append(display)
            if len(self._shown) > 1:
                return
            self._end = threading.Event()
            with suppress(RuntimeError):  # the system has no threads left
                threading.Thread(target=self._run, args=(self._end,), daemon=True).start()

    def leave(self, display: Any) -> None:
        with self._lock, suppress(ValueError):
            self._shown.remove(display)
            if not self._shown:
                self._end.set()

    def _run(self, end: threading.Event) -> None:
        while not end.wait(_TICK):
            with self._lock:
                first = self._shown[0] if self._shown else None
            if first is not None and not end.is_set():
                first.tick()


_TICKER = _Ticker()


class ProgressLines:
    """Prints a line after two seconds, then every fifteen."""

    def __init__(self, what: str, unit: str, pace: Pace) -> None:
        self.what = what
        self.unit = unit
        self.pace = pace
        self._next = SECONDS_TO_FIRST_LINE

    @property
    def n(self) -> float:
        return self.pace.n

    def __enter__(self) -> ProgressLines:
        _TICKER.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        _TICKER.leave(self)

    def update(self, n: float) -> None:
        """Add n units, and print a line if it is time for one."""
        self.pace.add(n)
        self.tick()

    def tick(self) -> None:
        """Print a line if it is time for one."""
        seconds = self.pace.elapsed
        left = self.pace.left()
        total = self.pace.total
        almost_done = (left is not None and left < SECONDS_AFTER_LAST_LINE) or self.n == total
        if seconds < self._next or sys.stderr is None or almost_done:
            return
        self._next = seconds + SECONDS_BETWEEN_LINES
        print(self._line(seconds), file=sys.stderr, flush=True)

    def _line(self, seconds: float) -> str:
        """The line for work that has taken this time."""
        size, unit = (1e6, "MB") if self.unit == "B" else (1, plural(self.unit))
        total = self.pace.total
        of = "" if total is None else f" of {total / size:,.0f}"
        took = duration(seconds)
        return f"{self.what}: {self.n / size:,.0f}{of} {unit} in {took}{self.pace.left_in_words()}"


class TerminalBar:
    """A bar of tqdm's that appears after a second, also while its first part is not done."""

    def __init__(self, what: str, unit: str, pace: Pace) -> None:
        from tqdm.auto import tqdm

        self.pace = pace
        self._unit = unit
        self._bar: Any = tqdm(
            total=pace.total,
            desc=what,
            delay=SECONDS_TO_BAR,
            leave=False,
            unit_scale=unit == "B",
        )

    @property
    def n(self) -> float:
        return self.pace.n

    def __enter__(self) -> TerminalBar:
        _TICKER.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        _TICKER.leave(self)
        self._bar.close()

    def update(self, n: float) -> None:
        """Add n units."""
        self.pace.add(n)
        self._tell()
        self._bar.update(n)

    def tick(self) -> None:
        """Show the bar with the time that has passed."""
        if self.pace.elapsed >= SECONDS_TO_BAR:
            self._tell()
            self._bar.refresh()

    def _tell(self) -> None:
        """Put the time that is left behind the bar, in our words."""
        total = "" if self.pace.total is None else "/{total_fmt}"
        alone = self.pace.total is None and self.n == 1
        unit = (
            self._unit if self._unit == "B" else f" {self._unit if alone else plural(self._unit)}"
        )
        share = "" if self.pace.total is None else "{percentage:3.0f}%|{bar}| "
        ending = self.pace.left_in_words()
        self._bar.bar_format = f"{{desc}}: {share}{{n_fmt}}{total}{unit} in {{elapsed}}{ending}"


def plural(unit: str) -> str:
    """The name of several units."""
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def duration(seconds: float) -> str:
    """A time in words: `40 s`, `2.5 min`, `12 h`."""
    for size, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            digits = 0 if seconds >= 10 * size else 1
            return f"{seconds / size:.{digits}f} {name}"
    return f"{seconds:.0f} s"
