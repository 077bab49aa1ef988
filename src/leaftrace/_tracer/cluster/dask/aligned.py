"""Arrays that came over the network, moved to where kernels can read them.

Dask puts the bytes of an array wherever they are in a message. Kernels need numbers that begin at a
multiple of their size, and refuse others.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

# Values whose arrays are aligned already: a trace has thousands, and comes with every step.
_done: WeakValueDictionary[int, Any] = WeakValueDictionary()


def aligned(value: Any) -> Any:
    """Return the value with arrays that are aligned in memory.

    Data classes, lists and dicts are changed in place: they are the worker's own, and stay equal.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(aligned, value))
    if isinstance(value, list):
        value[:] = map(aligned, value)
    elif isinstance(value, dict):
        value.update({name: aligned(item) for name, item in value.items()})
    elif is_dataclass(value) and not isinstance(value, type):
        if _done.get(id(value)) is value:
            return value
        for field in fields(value):
            before = getattr(value, field.name)
            after = aligned(before)
            if after is not before:
                object.__setattr__(value, field.name, after)
        _done[id(value)] = value
    return value
