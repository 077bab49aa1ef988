"""Leaves of rows by a traversal of our own, where it is faster than the library's.

Before its leaves are used, they are compared with the library's for some of the rows. Should they
ever differ, the library does the work from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import Ids, Ints, Real
from .._data.stopping import available_cores
from .._model.kernels import is_native, kernels
from .._model.routes import LevelRoutes, NodeRoutes, join_routes
from .base import smallest_type

LEAST_ROWS = 1_000  # with fewer rows the library is asked, which the comparison would do anyway
_SAMPLE = 64  # rows that are compared
_LEAST_PART = 2_000  # rows that are worth a thread
_PARTS = 4  # of the rows of a thread


class OwnLeaves(ABC):
    """A traversal of a model's trees.

    ``trees``       number of trees
    ``largest``     the largest number of leaves of a step
    ``is_trusted``  whether it has agreed with the library so far
    """

    def __init__(self, trees: int, largest: int) -> None:
        self._trees = trees
        self._type = smallest_type(largest)
        self.is_trusted = is_native()

    @abstractmethod
    def fill(self, values: Real, start: int, stop: int, out: Ids) -> None:
        """Write the leaves of the rows from start to stop into ``out`` (trees, m)."""

    def find(
        self, m: int, columns: Callable[[], Real | None], library: Callable[[Ints | None], Ids]
    ) -> Ids:
        """Return the leaves (trees, m) of rows, counted over the leaves of a step.

        ``columns``  gives the values (m, d) that splits compare, or None if they cannot be had
        ``library``  gives the same leaves of some rows by the library, or for None of all rows
        """
        if not self.is_trusted or m < LEAST_ROWS:
            return library(None)
        sample = np.arange(0, m, max(1, m // _SAMPLE))
        expected = library(sample)
        try:
            values = columns()
        except (ValueError, TypeError):  # not numbers, which the library says in its own words
            values = None
        if values is None:
            return library(None)
        found = self.traverse(values)
        self.is_trusted = np.array_equal(found[:, sample], expected)
        return found if self.is_trusted else library(None)

    def traverse(self, values: Real) -> Ids:
        """Return the leaves (trees, m) of rows with these values (m, d), on several threads."""
        values = np.ascontiguousarray(values)
        m = len(values)
        out = np.empty((self._trees, m), self._type)

        def part(start: int) -> None:
            self.fill(values, start, min(start + rows, m), out)

        threads = max(1, min(available_cores(), m // _LEAST_PART))
        rows = -(-m // (_PARTS * threads)) or 1  # several parts a thread, as they differ in time
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, range(0, m, rows)))
        return out


class LeavesByNodes(OwnLeaves):
    """The traversal of trees that each have a `NodeRoutes`.

    ``tree_leaves``, ``step_trees``: as in `Ensemble`.
    """

    def __init__(
        self,
        trees: Sequence[NodeRoutes],
        tree_leaves: NDArray[np.int64],
        step_trees: NDArray[np.int64],
    ) -> None:
        starts = tree_leaves[step_trees]
        super().__init__(len(trees), int(np.diff(starts).max(initial=1)))
        self.routes = join_routes(trees)
        self._offset = tree_leaves[:-1] - np.repeat(starts[:-1], np.diff(step_trees))  # (trees,)

    def fill(self, values: Real, start: int, stop: int, out: Ids) -> None:
        at = self.routes
        nodes = (at.edges, at.column, at.threshold, at.children, at.flags, at.words, at.bits)
        kernels.find_leaves(values, *nodes, self._offset, start, stop, out)


class LeavesByLevels(OwnLeaves):
    """The traversal of symmetric trees."""

    def __init__(self, routes: LevelRoutes) -> None:
        levels = np.diff(routes.edges)
        super().__init__(len(levels), 1 << int(levels.max(initial=0)))
        self.routes = routes

    def fill(self, values: Real, start: int, stop: int, out: Ids) -> None:
        at = self.routes
        kernels.level_leaves(values, at.edges, at.column, at.threshold, at.above, start, stop, out)
