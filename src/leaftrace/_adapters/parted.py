"""A model whose training table is read part by part. What needs all columns at once reads them, where they fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._arrays import F64, Ids
from .._ensemble import Ensemble
from .._errors import InvalidInput
from .._parted import PartedTable

if TYPE_CHECKING:
    from . import Alteration, Retrained, Source


@dataclass
class PartedSource:
    """``inner`` has no table in memory; ``reopen`` makes the same of one that is."""

    inner: Source
    table: PartedTable
    reopen: Callable[[Any], Source]

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def ensemble(self) -> Ensemble:
        return self.inner.ensemble

    @property
    def tolerance(self) -> float:
        return self.inner.tolerance

    @property
    def classes(self) -> Any | None:
        return self.inner.classes

    @property
    def notes(self) -> Sequence[str]:
        return self.inner.notes

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        if isinstance(X, PartedTable):
            raise InvalidInput(
                "X_test is a table of files; pass test rows that are in memory, such as X_train.take(rows)."
            )
        return self.inner.rows(X, baseline)

    def labels(self, y: Any, length: int, name: str) -> F64:
        return self.inner.labels(y, length, name)

    def own_labels(self, X: Any) -> Any | None:
        return None if isinstance(X, PartedTable) else self.inner.own_labels(X)

    def rebased(self, base: F64) -> Ensemble:
        return self.inner.rebased(base)

    def as_trained(self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None) -> tuple[F64, F64]:
        return self.inner.as_trained(codes, weight, factor, base_factor)

    @cached_property
    def _in_memory(self) -> Source:
        if not self.table.fits(len(self.table)):
            raise InvalidInput(
                f"training again takes the whole table, about {self.table.size(len(self.table)) / 1e9:.1f} GB, and "
                f"memory_limit is {self.table.memory / 1e9:.1f} GB; use refit(), which needs the leaves alone, or give "
                "Tracer.from_files a larger memory_limit."
            )
        return self.reopen(self.table.whole())

    def retrain(self, rows: Alteration, threads: int) -> Retrained:
        return self._in_memory.retrain(rows, threads)
