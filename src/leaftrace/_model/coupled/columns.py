"""Columns of the matrices of queries: one for each leaf that rows of a query are in.

Rows of the same leaf have the same x (see _engine/coupled_matrices.py), so what they add to the rows of
their query is summed once for all questions. A query of many rows has few leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._data.arrays import Ids, Ints
from .loss import CoupledRows


@dataclass(frozen=True)
class QueryColumns:
    """C columns of all queries, and where their cells stand.

    The matrices of queries stand one after another, each column by column. What column c adds to
    row i is at offset[c] + i.

    ``leaf``    (C,) the leaf of each column
    ``edges``   (Q + 1,) columns of each query
    ``sizes``   (C,) cells of each column: the rows of its query
    ``offset``  (C,)
    ``of``      (n,) the column of each row
    """

    leaf: Ids
    edges: Ints
    sizes: Ints
    offset: Ints
    of: Ints

    @property
    def cells(self) -> int:
        """The number of all cells."""
        return int(self.sizes.sum())

    @classmethod
    def of_leaves(cls, rows: CoupledRows, ids: Ids) -> QueryColumns:
        """The columns of rows that are in these leaves (n,)."""
        M = int(ids.max(initial=0)) + 1
        found, of = np.unique(rows.number * M + ids, return_inverse=True)
        query = found // M  # (C,)
        sizes = rows.sizes[query]
        offset = np.cumsum(sizes) - sizes - rows.starts[query]
        edges = np.searchsorted(query, np.arange(len(rows.sizes) + 1))
        return cls((found % M).astype(ids.dtype), edges, sizes, offset, of)
