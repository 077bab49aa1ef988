"""How often each tree drew each row, in few bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import Ints

Sample = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class PackedColumn:
    """n numbers, of which few are different: a bit each if there are two, otherwise a byte.

    ``numbers``  the different ones; None: too many, and ``codes`` are the numbers themselves
    """

    n: int
    numbers: NDArray[Any] | None
    codes: NDArray[Any]

    def unpack(self) -> NDArray[Any]:
        if self.numbers is None:
            return self.codes
        if len(self.numbers) > 2:
            return self.numbers[self.codes]
        bits = np.unpackbits(self.codes, count=self.n)
        return self.numbers[np.minimum(bits, len(self.numbers) - 1)]


@dataclass(frozen=True)
class Draws:
    """For each tree how often it drew each row of a partition.

    ``columns``  the different draws, packed
    ``which``    (trees,) the number of the column of each tree: trees can share one
    """

    columns: tuple[PackedColumn, ...]
    which: Ints

    def unpack(self) -> list[NDArray[Any]]:
        """For each tree (n,); trees that share draws share one array."""
        columns = [column.unpack() for column in self.columns]
        return [columns[c] for c in self.which]

    @property
    def nbytes(self) -> int:
        return sum(column.codes.nbytes for column in self.columns)


def pack_draws(sample: Sample, part: slice) -> Draws:
    """The draws of the rows in `part`."""
    place: dict[int, int] = {}
    for drawn in sample:
        place.setdefault(id(drawn), len(place))
    distinct = {id(drawn): drawn for drawn in sample}
    columns = tuple(_pack(distinct[key][part]) for key in place)
    return Draws(columns, np.array([place[id(drawn)] for drawn in sample]))


def _pack(column: NDArray[Any]) -> PackedColumn:
    numbers, codes = np.unique(column, return_inverse=True)
    n = len(column)
    if len(numbers) > 256:
        return PackedColumn(n, None, column.copy())
    if len(numbers) > 2:
        return PackedColumn(n, numbers, codes.astype(np.uint8))
    return PackedColumn(n, numbers, np.packbits(codes.astype(bool)))
