"""The way of rows through trees, in NumPy: the twins of ``src/native/routes.hpp`` and ``levels.hpp``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints, Real
from .checks import check_edges, check_rows, checked, require

_MISSING_LEFT = 1
_ZERO_MISSING = 2
_BY_CATEGORY = 4
_LARGEST_ZERO = float(np.float32(1e-35))


@checked(
    values="real n X",
    edges="int64 R+1",
    column="int32 J",
    threshold="float64 J",
    children="int32 J 2",
    flags="uint8 J",
    words="int64 J+1",
    bits="uint32 W",
    offset="int64 R",
    begin="int",
    end="int",
    leaves="out ids R n",
)
def find_leaves(
    values: Real,
    edges: Ints,
    column: NDArray[np.int32],
    threshold: F64,
    children: NDArray[np.int32],
    flags: NDArray[np.uint8],
    words: Ints,
    bits: NDArray[np.uint32],
    offset: Ints,
    begin: int,
    end: int,
    leaves: Ids,
) -> None:
    """leaves[r, j] = offset[r] + the leaf of tree r that row j falls into, for rows begin .. end - 1.

    The arrays from ``edges`` to ``bits`` are those of `Routes`.
    """
    check_edges("edges", edges, len(column), 0)
    check_rows(begin, end, len(values))
    for r in range(len(offset)):
        N = edges[r + 1] - edges[r]
        own = slice(edges[r], edges[r + 1])
        below = np.arange(N)[:, None]
        require(bool(np.all((column[own] >= 0) & (column[own] < values.shape[1]))), "a column")
        require(bool(np.all((children[own] > below) & (children[own] <= 2 * N))), "a child")
        most = np.iinfo(leaves.dtype).max
        require(0 <= offset[r] <= most - int(N), "leaves has a type too small")
    require(bool(np.all(flags <= 7)), "flags are not a sum of 1, 2 and 4")
    check_edges("words", words, len(bits), 0)
    rows = np.arange(begin, end)
    for r in range(len(offset)):
        N = int(edges[r + 1] - edges[r])
        slot = np.zeros(len(rows), np.int64)
        while np.any(moving := slot < N):
            at = edges[r] + slot[moving]
            x = values[rows[moving], column[at]].astype(np.float64)
            right = _goes_right(x, threshold[at], flags[at], words, at, bits)
            slot[moving] = children[at, right.astype(np.int64)]
        leaves[r, begin:end] = offset[r] + slot - N


def _goes_right(
    x: F64,
    threshold: F64,
    flags: NDArray[np.uint8],
    words: Ints,
    node: Ints,
    bits: NDArray[np.uint32],
) -> NDArray[np.bool_]:
    """Return whether each value goes right at its node."""
    by_category = (flags & _BY_CATEGORY) > 0
    zero = (flags & _ZERO_MISSING > 0) & ~by_category & (np.abs(x) <= _LARGEST_ZERO)
    missing = np.isnan(x) | zero
    first = words[node]
    inside = (x > -1) & (x < 32.0 * (words[node + 1] - first))
    category = np.where(inside, x, 0).astype(np.int64)
    place = np.where(inside, first + category // 32, 0)
    word = np.append(bits, np.uint32(0))[place].astype(np.int64)
    in_set = inside & (word >> (category % 32) & 1 > 0)
    right = np.where(by_category, ~in_set, ~(x <= threshold))
    return np.where(missing, (flags & _MISSING_LEFT) == 0, right)


@checked(
    values="real n X",
    edges="int64 R+1",
    column="int32 J",
    threshold="float64 J",
    above="uint8 X",
    begin="int",
    end="int",
    leaves="out ids R n",
)
def level_leaves(
    values: Real,
    edges: Ints,
    column: NDArray[np.int32],
    threshold: F64,
    above: NDArray[np.uint8],
    begin: int,
    end: int,
    leaves: Ids,
) -> None:
    """leaves[r, j] = the leaf of symmetric tree r that row j falls into, for rows begin .. end - 1.

    The arrays from ``edges`` to ``above`` are those of `LevelRoutes`.
    """
    check_edges("edges", edges, len(column), 0)
    check_rows(begin, end, len(values))
    bits = 8 * leaves.dtype.itemsize
    require(bool(np.all(np.diff(edges) <= bits)), "leaves has a type too small")
    require(bool(np.all((column >= 0) & (column < values.shape[1]))), "a column beyond the values")
    with np.errstate(over="ignore"):
        x = values[begin:end].astype(np.float32)
        borders = threshold.astype(np.float32)
    x = np.where(np.isnan(x) & (above > 0), np.float32(np.inf), x)
    for r in range(len(leaves)):
        own = slice(edges[r], edges[r + 1])
        sides = x[:, column[own]] > borders[own]
        leaves[r, begin:end] = sides @ (1 << np.arange(sides.shape[1]))
