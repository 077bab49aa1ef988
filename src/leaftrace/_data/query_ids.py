"""Queries of ranking data: which rows belong together, from ids or sizes as users give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import frames
from .arrays import Ints
from .errors import InvalidInput


@dataclass(frozen=True)
class QueryRows:
    """Rows in queries that lie one after the other.

    ``number``  (n,) the query of each row, numbered from 0 in the order of the rows
    ``ids``     (Q,) names of the queries: as given, or their numbers
    """

    number: Ints
    ids: np.ndarray

    @property
    def sizes(self) -> Ints:
        """(Q,) number of rows of each query."""
        return np.bincount(self.number, minlength=len(self.ids))

    def take(self, index: Any) -> QueryRows:
        """The queries of some of these rows, which keep their order; those without rows are left out."""
        kept, number = np.unique(self.number[index], return_inverse=True)
        return QueryRows(number.astype(np.intp), self.ids[kept])

    def rows_of(self, ids: Any) -> Ints:
        """Positions of all rows of the queries with these ids."""
        wanted = np.atleast_1d(frames.to_numpy(ids))
        missing = wanted[~np.isin(wanted, self.ids)]
        if len(missing):
            first = self.ids[:1].tolist()[0]
            raise InvalidInput(
                f"there is no query {missing[:1].tolist()[0]!r} in the training set; its {len(self.ids)} queries are "
                f"named as in qid=, the first is {first!r}."
            )
        return np.flatnonzero(np.isin(self.ids, wanted)[self.number])


def read_queries(qid: Any, n: int, name: str = "qid") -> QueryRows:
    """Read queries of n rows: an id for each row, or the number of rows of each query.

    ``name``: of the argument, for messages.
    """
    given = np.asarray(frames.to_numpy(qid)).ravel()
    if len(given) == n:
        return _from_ids(given, name)
    if given.dtype.kind in "iu" and given.sum() == n and np.all(given > 0):
        return QueryRows(np.repeat(np.arange(len(given)), given), np.arange(len(given)))
    raise InvalidInput(
        f"{name} has {len(given)} values for {n} rows; expected an id for each row, or sizes of queries (whole numbers "
        f"above 0) that add up to {n}."
    )


def _from_ids(given: np.ndarray, name: str) -> QueryRows:
    """Queries from an id for each row."""
    if not len(given):
        return QueryRows(np.zeros(0, np.intp), given)
    begins = np.flatnonzero(np.r_[True, given[1:] != given[:-1]])
    ids = given[begins]
    if len(np.unique(ids)) < len(ids):
        values, counts = np.unique(ids, return_counts=True)
        raise InvalidInput(
            f"{name} has the query {values[counts > 1].tolist()[0]!r} in several places; the rows of a query must lie "
            "one after the other, as in training. Sort the rows by their query."
        )
    number = np.zeros(len(given), np.intp)
    number[begins[1:]] = 1
    return QueryRows(np.cumsum(number), ids)
