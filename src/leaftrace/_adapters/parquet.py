"""A model whose training table is read part by part.

Retraining needs the whole table at once, so it reads the table if it fits into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._data.arrays import F64, Ids
from .._data.errors import InvalidInput
from .._data.parquet import PartedTable
from .._model.training_set import TrainingSet
from .base import Wrapped

if TYPE_CHECKING:
    from . import Retrained, Source


@dataclass
class PartedSource(Wrapped):
    """A source without its table in memory; ``reopen`` makes the same source from a whole table."""

    inner: Source
    table: PartedTable
    reopen: Callable[[Any], Source]

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        if isinstance(X, PartedTable):
            raise InvalidInput(
                "X_test is a table of files; pass test rows that are in memory, such as X_train.take(rows)."
            )
        return super().rows(X, baseline)

    def own_labels(self, X: Any) -> Any | None:
        return None if isinstance(X, PartedTable) else super().own_labels(X)

    @cached_property
    def _in_memory(self) -> Source:
        if not self.table.fits_in_memory(len(self.table)):
            raise InvalidInput(
                f"training again takes the whole table, about {self.table.size(len(self.table)) / 1e9:.1f} GB, and "
                f"memory_limit is {self.table.memory / 1e9:.1f} GB; use refit(), which needs the leaves alone, or give "
                "Tracer.from_files a larger memory_limit."
            )
        return self.reopen(self.table.read_all())

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        return self._in_memory.retrain(rows, threads)
