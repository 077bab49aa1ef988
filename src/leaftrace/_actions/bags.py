"""Bags of training rows, drawn without replacement.

Each row is left out as often as any other, give or take one, and every class keeps its share: rows
are left out in the order of a permutation that spreads each label evenly, then of another, and so
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import Ints

Bag = NDArray[np.bool_]  # (n,) whether a row is in it


def draw_bags(y: np.ndarray, members: int, size: int, rng: np.random.Generator) -> list[Bag]:
    """Bags of this size of the rows with labels y (n,), one for each member."""
    return list(islice(endless_bags(y, size, rng), members))


def endless_bags(y: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[Bag]:
    """Bags of this size of the rows with labels y (n,), one after the other."""
    count = len(y) - size  # rows to leave out of each bag
    waiting = np.zeros(0, np.intp)  # rows in the order in which they are left out
    while True:
        if len(waiting) < count:
            # The other rows come first, or a row could be left out of one bag twice.
            others = np.setdiff1d(np.arange(len(y)), waiting)
            parts = [waiting, _spread_labels(others, y, rng), _spread_labels(waiting, y, rng)]
            waiting = np.concatenate(parts)
        bag = np.ones(len(y), bool)
        bag[waiting[:count]] = False
        waiting = waiting[count:]
        yield bag


def _spread_labels(rows: Ints, y: np.ndarray, rng: np.random.Generator) -> Ints:
    """The rows in a random order that spreads each label evenly.

    The j-th of c rows of a label falls between j / c and (j + 1) / c.
    """
    order = rng.permutation(rows)
    n = len(rows)
    _, label, count = np.unique(y[order], return_inverse=True, return_counts=True)
    first = np.repeat(np.cumsum(count) - count, count)
    place = np.empty(n)
    place[np.argsort(label, kind="stable")] = np.arange(n) - first
    return order[np.argsort((place + rng.random(n)) / count[label])]
