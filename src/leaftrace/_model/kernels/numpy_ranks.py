"""Values of given ranks among the rows of each leaf, in NumPy: the twin of ``src/native/ranks.hpp``."""

from __future__ import annotations

import numpy as np

from ..._data.arrays import F64, Ids, Ints
from .checks import check_ids, checked, require


@checked(leaf="ids n", x="float64 n", low="int64 M", out="out float64 M 2")
def rank_pairs(leaf: Ids, x: F64, low: Ints, out: F64) -> None:
    """out[m]: the value of rank low[m] among the x of leaf m, and the next larger one.

    If there is none larger, it is the same value twice; leaves without rows get zero. Numbers that are
    NaN rank above all others.
    """
    M = len(low)
    check_ids(leaf, M)
    count = np.bincount(leaf, minlength=M)
    in_leaf = (low >= 0) & (low < np.maximum(count, 1))
    require(bool(np.all(in_leaf)), "a rank beyond the rows of its leaf")
    ordered = x[np.lexsort((x, leaf))]
    start = np.cumsum(count) - count
    out[...] = 0
    filled = np.flatnonzero(count)
    first = start[filled] + low[filled]
    last = start[filled] + count[filled] - 1
    out[filled, 0] = ordered[first]
    out[filled, 1] = ordered[np.minimum(first + 1, last)]
