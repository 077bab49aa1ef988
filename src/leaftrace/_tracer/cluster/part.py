"""The rows of one partition, with the leaves that hold them.

The model is sent once, as a `Source` opened with a few stand-in rows, and then its `Trace` without
rows. Together with the rows of a partition it is a `Workspace` of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from ..._adapters import Source
from ..._data import inputs
from ..._data.arrays import F64, Ids
from ..._data.row_labels import aligned, labels_of, row_index
from ..._engine.refit import class_factors
from ..._engine.replay import Trace
from ..._engine.workspace import Workspace
from ..._model.ensemble import Ensemble
from .draws import Draws, pack_draws

TASK_MEMORY = 1 << 28  # bytes that a task may use beyond its rows


@dataclass(frozen=True)
class Facts:
    """Numbers of the rows of a partition that all rows together decide: see `Ensemble`."""

    y: F64
    w: F64
    factor: F64
    base_factor: F64 | None
    offset: F64 | None
    draws: Draws | None = None


@dataclass(frozen=True)
class Part:
    """The rows of a partition with the leaves that hold them.

    ``number``  of the partition
    ``start``   number of rows in the partitions before it
    ``names``   (n,) of the rows, for tables
    ``mark``    a checksum of the leaves
    """

    number: int
    start: int
    leaves: Ids  # (trees, n)
    facts: Facts
    names: np.ndarray
    mark: int

    @property
    def identity(self) -> tuple[int, int]:
        """Tells these rows, in their order, from others.

        A partition that is computed again after a loss may have its rows in another order.
        """
        return self.number, self.mark

    def __len__(self) -> int:
        return self.leaves.shape[1]

    def __sizeof__(self) -> int:
        """Bytes of the arrays, by which Dask places work."""
        drawn = 0 if self.facts.draws is None else self.facts.draws.nbytes
        return self.leaves.nbytes + drawn + 32 * len(self)

    def ensemble(self, e: Ensemble) -> Ensemble:
        """The model with these training rows."""
        facts = self.facts
        return replace(
            e,
            leaves=self.leaves,
            y=facts.y,
            w=facts.w,
            w_factor=facts.factor,
            base_factor=facts.base_factor,
            offset=facts.offset,
            sample=None if facts.draws is None else facts.draws.unpack(),
        )

    def workspace(self, trace: Trace, dtype: np.dtype) -> Workspace:
        """A workspace for one task. It keeps no effects, and computes them chunk by chunk."""
        with_rows = replace(trace, ensemble=self.ensemble(trace.ensemble))
        return Workspace(with_rows, dtype, 1, TASK_MEMORY)


def open_part(
    source: Source, X: Any, y: Any, w: Any, baseline: Any, number: int, start: int
) -> Part:
    """Find the leaves of the rows of a partition, and read its labels and weights."""
    index = labels_of(X)
    y, w, baseline = (
        aligned(column, index, name, "X")
        for column, name in ((y, "y"), (w, "sample_weight"), (baseline, "baseline"))
    )
    leaves, offset = source.rows(X, baseline)
    n = leaves.shape[1]
    check_length(y, n, "y")
    names = row_index(X, n) if index is not None else np.arange(start, start + n)
    facts = read_facts(source, y, w, offset, n)
    leaves = np.ascontiguousarray(leaves)
    return Part(number, start, leaves, facts, names, crc32(leaves.data))


def read_facts(source: Source, y: Any, w: Any, offset: F64 | None, n: int) -> Facts:
    """Labels and weights of rows as training stored them, if each row stands for itself."""
    e = source.ensemble
    codes = source.labels(np.asarray(y), n, "y")
    weight = np.ones(n) if w is None else inputs.numbers(np.asarray(w), "sample_weight", n)
    base_factor = None
    if e.base_factor is None:
        (factor,) = class_factors(source, codes, [e.w_factor])
    else:
        factor, base_factor = class_factors(source, codes, [e.w_factor, e.base_factor])
    labels, weight = source.as_trained(codes, weight, factor, base_factor)
    return Facts(labels, weight, factor, base_factor, offset)


def facts_of(e: Ensemble, part: slice) -> Facts:
    """The facts of some of the training rows of an ensemble that has all of them."""
    return Facts(
        e.y[part],
        e.w[part],
        e.w_factor[part],
        None if e.base_factor is None else e.base_factor[part],
        None if e.offset is None else e.offset[part],
        None if e.sample is None else pack_draws(e.sample, part),
    )


def check_length(y: Any, n: int, name: str) -> None:
    """Raise an error if a column of a partition has not the n rows of its table."""
    if len(y) != n:
        raise inputs.InvalidInput(
            f"a partition of X has {n} rows and that of {name} {len(y)}; pass the same rows in the same partitions."
        )


def without_rows(e: Ensemble) -> Ensemble:
    """The ensemble without its training rows, to be sent."""
    none = np.zeros(0)
    return replace(
        e,
        leaves=e.leaves[:, :0].copy(),
        y=e.y[:0].copy(),
        w=none,
        w_factor=none,
        base_factor=None if e.base_factor is None else none,
        offset=None,
        sample=None,
        sample_class_weight=None,
        rough_scores=e.rough_scores,
    )
