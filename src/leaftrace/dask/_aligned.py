"""Arrays that came over the network, moved to where kernels can read them.

Dask puts the bytes of an array wherever they are in a message. Kernels need numbers that begin at a
multiple of their size, and refuse others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def with_aligned_arrays(fn: Callable[..., Any], *items: Any, **common: Any) -> Any:
    """Call fn with arguments whose arrays are aligned, however deep in them they are."""
    return fn(*map(aligned, items), **{name: aligned(value) for name, value in common.items()})


def aligned(value: Any) -> Any:
    """Return the value with arrays that are aligned in memory.

    Data classes and lists are changed in place: they are the worker's own, and stay equal.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(aligned, value))
    if isinstance(value, list):
        value[:] = map(aligned, value)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            before = getattr(value, field.name)
            after = aligned(before)
            if after is not before:
                object.__setattr__(value, field.name, after)
    return value
