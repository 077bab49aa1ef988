"""State of a partition that a process keeps between the steps of a pass.

It is taken out while a step works with it, so that a step that fails leaves nothing half done. Who
finds nothing computes it again from what the client knows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

MOST_PASSES = 2  # whose states are kept; those of older ones were left behind by an error

Identity = tuple[int, int]  # of the rows of a partition: see `Part.identity`

_lock = Lock()
_passes: OrderedDict[str, dict[Identity, Any]] = OrderedDict()


def take(key: str, part: Identity) -> Any | None:
    """Take out what was kept of a partition in this pass; None if nothing was."""
    with _lock:
        return _passes.get(key, {}).pop(part, None)


def take_all(key: str) -> dict[Identity, Any]:
    """Take out all that was kept in this pass, by partition."""
    with _lock:
        return _passes.pop(key, {})


def keep(key: str, part: Identity, state: Any) -> None:
    """Keep a state of a partition for the next step of this pass."""
    with _lock:
        _passes.setdefault(key, {})[part] = state
        while len(_passes) > MOST_PASSES:
            _passes.popitem(last=False)


def sum_over_states(
    key: str, states: dict[Identity, Any], fn: Callable[..., Any], common: dict[str, Any]
) -> tuple[list[int], Any]:
    """The sum of fn(state, **common) over states of a pass, and the numbers of their partitions.

    The states are kept for the next step, without those for which fn returns None.
    """
    numbers = []
    total = None
    for part, state in states.items():
        found = fn(state, **common)
        if found is None:
            continue
        keep(key, part, state)
        numbers.append(part[0])
        total = found if total is None else total + found
    return numbers, total
