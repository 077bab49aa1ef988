"""Bins: the values of the columns that splits compare, as small numbers.

The candidates of a column are the thresholds between its bins. Columns with few different values
have a bin for each; of the others each bin has about the same number of training rows. The bins are
not those of the booster, which few boosters keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64
from .._model.splits import ColumnKind

MAX_BINS = 48  # of numbers; more change the values of rows little and cost time
MAX_CATEGORIES = 255  # rarer categories share the last bin
KERNEL_KINDS = {"ordered": 0, "missing": 1, "one-hot": 2, "sorted": 3}

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class ColumnBins:
    """The bins of one column.

    ``kind``   number of the kind in kernels
    ``edges``  numbers: (bins - 1,) values at most edges[b] are in bins up to b
    ``known``  categories: their numbers in ascending order, and
    ``bin``    the bin of each
    ``size``   number of bins, with the one for missing values or rare categories
    """

    kind: int
    edges: F64
    known: F64
    bin: Codes
    size: int

    def codes(self, values: F64) -> Codes:
        """(rows,) the bins of these values."""
        last = self.size - 1
        missing = np.isnan(values)
        if self.kind < KERNEL_KINDS["one-hot"]:
            found = np.searchsorted(self.edges, values, side="left")
            return np.where(missing, last, found).astype(np.uint8)
        if not len(self.known):
            return np.full(len(values), last, np.uint8)
        place = np.searchsorted(self.known, values).clip(max=len(self.known) - 1)
        is_known = ~missing & (self.known[place] == values)
        return np.where(is_known, self.bin[place], last).astype(np.uint8)


@dataclass(frozen=True)
class SplitBins:
    """The bins of all columns."""

    columns: tuple[ColumnBins, ...]

    @property
    def sizes(self) -> NDArray[np.int32]:
        """(d,) number of bins of each column."""
        return np.array([column.size for column in self.columns], np.int32)

    @property
    def kinds(self) -> Codes:
        """(d,) number of each column's kind in kernels."""
        return np.array([column.kind for column in self.columns], np.uint8)

    def codes(self, values: F64) -> Codes:
        """(rows, d) the bins of rows with these values (rows, d)."""
        out = np.empty(values.shape, np.uint8)
        for f, column in enumerate(self.columns):
            out[:, f] = column.codes(values[:, f])
        return out


def make_bins(values: F64, kinds: list[ColumnKind]) -> SplitBins:
    """Bins for the columns (n, d) of the training rows."""
    pairs = zip(values.T, kinds, strict=True)
    return SplitBins(tuple(_column_bins(column, kind) for column, kind in pairs))


def _column_bins(values: F64, kind: ColumnKind) -> ColumnBins:
    known = values[~np.isnan(values)]
    has_missing = len(known) < len(values)
    if kind in ("one-hot", "sorted"):
        return _category_bins(known, kind, has_missing)
    edges = _edges(known)
    nothing = np.zeros(0)
    size = len(edges) + 1 + has_missing
    number = KERNEL_KINDS["missing" if has_missing else "ordered"]
    return ColumnBins(number, edges, nothing, nothing.astype(np.uint8), size)


def _edges(values: F64) -> F64:
    """Thresholds between the bins of numbers."""
    distinct = np.unique(values)
    if len(distinct) > MAX_BINS:
        levels = np.linspace(0, 1, MAX_BINS + 1)[1:-1]
        edges = np.unique(np.quantile(values, levels, method="lower"))
        return edges[edges < distinct[-1]]
    low = distinct[:-1]
    high = distinct[1:]
    with np.errstate(invalid="ignore"):  # infinite numbers stand for missing values
        middle = low + (high - low) / 2
    below_high = np.nextafter(high, -np.inf)
    return np.where(np.isfinite(middle), middle, np.where(np.isfinite(low), low, below_high))


def _category_bins(values: F64, kind: ColumnKind, has_missing: bool) -> ColumnBins:
    """A bin for each category, the most frequent first if there are too many."""
    known, counts = np.unique(values, return_counts=True)
    others = has_missing or len(known) > MAX_CATEGORIES
    own = min(len(known), MAX_CATEGORIES)
    bins = np.full(len(known), own)
    bins[np.argsort(-counts, kind="stable")[:own]] = np.arange(own)
    size = max(own + others, 1)
    return ColumnBins(KERNEL_KINDS[kind], np.zeros(0), known, bins.astype(np.uint8), size)
