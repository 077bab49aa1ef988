"""Parts of an action: one of each kind is done and timed, and the action does so many of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from ..._engine.costs import Estimate
from ..._engine.engine import Engine
from ..._engine.methods import LeafInfluence

T = TypeVar("T")
SHORT = 0.1  # seconds of work that is worth repeating
REPEATS = 2


class Part(NamedTuple):
    """Parts of one kind.

    ``what``     the kind, in the plural
    ``fewest``   number of them in the shortest course of the action
    ``most``     number of them in the longest course
    ``seconds``  of one
    """

    what: str
    fewest: int
    most: int
    seconds: float


@dataclass
class Course:
    """The parts of an action, as far as they are counted, and the memory they take."""

    bytes: int
    parts: list[Part] = field(default_factory=list)

    def add(
        self,
        what: str,
        fewest: int,
        most: int | None = None,
        *,
        work: Callable[[], T],
        once: float = 0.0,
    ) -> T | None:
        """Add parts of a kind, do one of them and time it. Returns its result; None if there are none.

        ``most``  number of them in the longest course; None: the same as the fewest
        ``once``  seconds of the work that is not repeated with each of them
        """
        most = fewest if most is None else most
        if not most:
            return None
        seconds, result = timed(work)
        self.parts.append(Part(what, fewest, most, max(seconds - once, 0.0)))
        return result

    def estimate(self, time_limit: Any) -> Estimate:
        """The sum over all parts. ``time_limit``: of the action, in seconds; None: none."""
        fewest = sum(part.fewest * part.seconds for part in self.parts)
        most = sum(part.most * part.seconds for part in self.parts)
        if time_limit is not None:
            # A part that was begun is finished.
            over = max((part.seconds for part in self.parts), default=0.0)
            most = min(most, time_limit + over)
            fewest = min(fewest, most)
        counts = [_count_in_words(part) for part in self.parts]
        form = ", ".join(counts) or "nothing to do"
        return Estimate(fewest, self.bytes, form, most if most > fewest else None)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of the work, and its result. Short work is repeated, and the fastest run counts."""
    seconds, result = _timed_once(work)
    for _ in range(REPEATS if seconds < SHORT else 0):
        seconds = min(seconds, _timed_once(work)[0])
    return seconds, result


def _timed_once(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of one run of the work, and its result.

    Other processes make a clock run ahead of the work, and threads of a library the processor's
    time: the smaller of the two is taken.
    """
    start = time.perf_counter(), time.process_time()
    result = work()
    return min(time.perf_counter() - start[0], time.process_time() - start[1]), result


def without_limit(given: Any) -> dict[str, Any]:
    """The arguments of an action by name, without its time limit."""
    return {name: value for name, value in vars(given).items() if name != "time_limit"}


def _count_in_words(part: Part) -> str:
    """The number of parts: `3 to 20 retrainings`, `1 refit`."""
    if part.fewest != part.most:
        return f"{part.fewest:,} to {part.most:,} {part.what}"
    return f"{part.most:,} {part.what if part.most != 1 else part.what.removesuffix('s')}"


def pass_bytes(engine: Engine) -> int:
    """Bytes of a backward pass of one column, and of the leaves that a refit copies."""
    e = engine.ensemble
    leaves = e.leaves.nbytes
    if e.coupled or e.linear is not None:
        return leaves
    return leaves + engine.plan(LeafInfluence(), 1, engine.n_rows).bytes
