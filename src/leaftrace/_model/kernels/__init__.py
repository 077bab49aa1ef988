"""The kernels in use: the native ones, or their NumPy twins.

The twins are used with ``LEAFTRACE_KERNELS=numpy`` or in a pure-Python install.
"""

from __future__ import annotations

import importlib
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import Real
from ..losses import Loss
from . import numpy as twins
from .checks import BLOCKS as BLOCKS
from .checks import NUMPY_FAMILY


def _load() -> Any:
    """The module of kernels that the environment variable and the installation allow."""
    choice = os.environ.get("LEAFTRACE_KERNELS", "native")
    if choice not in ("native", "numpy"):
        raise ImportError(
            f"LEAFTRACE_KERNELS is '{choice}'; it can be 'native' (the default) or 'numpy'."
        )
    if choice == "native":
        try:
            return importlib.import_module("leaftrace._native")
        except ModuleNotFoundError:  # installed with LEAFTRACE_PURE=1
            pass
    return twins


kernels: Any = _load()


def kernels_of(loss: Loss) -> Any:
    """The kernels that can follow changes of this loss: the twins, where no native ones can."""
    return twins if loss.changes[0] == NUMPY_FAMILY else kernels


def is_native() -> bool:
    """Whether the native kernels are in use."""
    return kernels is not twins


def block_width(columns: int) -> int:
    """The compiled width to use for this many columns."""
    return next((b for b in BLOCKS if columns <= b), BLOCKS[-1])


def blocks_of(count: int, width: int = BLOCKS[-1]) -> list[slice]:
    """Columns 0 .. count - 1 in blocks of a width that the kernels are compiled for."""
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> Real:
    """Zeros that begin at a multiple of 64 bytes: no vector of a block crosses a cache line."""
    return _aligned(np.zeros(_room(shape, dtype), np.uint8), shape, dtype)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> Real:
    """The same without values; memory that is not written to is not taken from the system."""
    return _aligned(np.empty(_room(shape, dtype), np.uint8), shape, dtype)


def _room(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Bytes that hold such an array wherever they begin."""
    return math.prod(shape) * dtype.itemsize + 64


def _aligned(room: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype) -> Real:
    """The array in this room that begins at a multiple of 64 bytes."""
    start = -room.__array_interface__["data"][0] % 64
    return room[start : start + len(room) - 64].view(dtype).reshape(shape)
