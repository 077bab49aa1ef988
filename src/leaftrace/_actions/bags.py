"""Bags of training rows, drawn without replacement.

Each row is left out as often as any other, give or take one, and every class keeps its share: rows
are left out in the order of a permutation that spreads each label evenly, then of another, and so
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import Ints

Bag = NDArray[np.bool_]  # (n,) whether a row is in it


def draw_bags(y: np.ndarray, sizes: Iterable[int], rng: np.random.Generator) -> Iterator[Bag]:
    """Bags of the rows with labels y (n,), one for each of these sizes."""
    n = len(y)
    waiting = np.zeros(0, np.intp)  # rows in the order in which they are left out
    for size in sizes:
        count = n - size  # rows to leave out
        if len(waiting) < count:
            # The other rows come first, or a row could be left out of one bag twice.
            others = np.setdiff1d(np.arange(n), waiting)
            parts = [waiting, _spread_labels(others, y, rng), _spread_labels(waiting, y, rng)]
            waiting = np.concatenate(parts)
        bag = np.ones(n, bool)
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
