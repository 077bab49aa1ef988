"""The training table on a cluster, as adapters read a table that is in parts.

Some models can be read only with all leaves of all rows in one place: those that drew rows by their
gradients, rank them, have quantiles for leaves, or do not report their parameters. The cluster finds
the leaves, and they are written to the client's disk, a byte or two for each row and tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._adapters import Source
from ..._data.arrays import F64, Ids, Ints
from ..._data.leaf_cache import temporary_leaves
from ..._data.parquet import PartedTable
from .protocol import Rows


@dataclass(frozen=True)
class ClusterTable(PartedTable):
    """The rows of a cluster as one table.

    ``rows``    on the cluster
    ``n``       number of them
    ``finder``  the model, opened so far that it finds leaves; None: the client finds them
    """

    rows: Rows | None = None
    n: int = 0
    finder: Source | None = None

    def __len__(self) -> int:
        return self.n

    def size(self, rows: int) -> int:
        return 8 * rows * len(self.column_names)

    def parts(self) -> Iterator[tuple[slice, Any]]:
        assert self.rows is not None
        start = 0
        for table in self.rows.tables():
            part = slice(start, start + len(table))
            start = part.stop
            yield part, self._apply_steps(table)

    def take(self, rows: Ints) -> Any:
        return _taken(self.read_all(), np.asarray(rows))

    def __getitem__(self, name: str) -> Any:
        return self.read_all()[name]

    def read_all(self) -> Any:
        assert self.rows is not None
        return joined(list(self.rows.tables()))

    def leaves(
        self,
        leaves_of: Callable[[Any, Any], tuple[Ids, F64 | None]],
        model: bytes,
        baseline: F64 | None,
    ) -> tuple[Ids, F64 | None]:
        def computed() -> Iterator[tuple[slice, Ids, F64 | None]]:
            if self.finder is None or self.steps or self.rows is None:
                for part, table in self.parts():
                    yield part, *leaves_of(table, None if baseline is None else baseline[part])
                return
            start = 0
            for leaves, offset in self.rows.leaves(self.finder):
                part = slice(start, start + leaves.shape[1])
                start = part.stop
                yield part, leaves, offset

        return temporary_leaves(self.n, computed)


def joined(parts: list[Any]) -> Any:
    """Parts of a table or column as one, of pandas or an array."""
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts)


def _taken(table: Any, rows: Ints) -> Any:
    return table.iloc[rows].set_axis(rows, axis=0) if hasattr(table, "iloc") else table[rows]


@dataclass(frozen=True)
class RowsElsewhere(PartedTable):
    """A table of n rows whose leaves stay on the cluster: adapters get a shape without numbers."""

    n: int = 0
    like: Ids | None = None  # leaves (trees, any)

    def __len__(self) -> int:
        return self.n

    def parts(self) -> Iterator[tuple[slice, Any]]:
        return iter(())

    def leaves(
        self,
        leaves_of: Callable[[Any, Any], tuple[Ids, F64 | None]],
        model: bytes,
        baseline: F64 | None,
    ) -> tuple[Ids, F64 | None]:
        assert self.like is not None
        nowhere = np.broadcast_to(np.zeros((), self.like.dtype), (len(self.like), self.n))
        return nowhere, None if baseline is None else np.asarray(baseline).reshape(self.n, -1)
