"""scikit-learn Pipelines: the earlier steps transform the rows, the last step is the model. The earlier steps stay as
they are fitted, also where the model is retrained: influence is that of rows on the model."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._arrays import F64, Ids
from .._ensemble import Ensemble
from .._parted import PartedTable
from ._common import for_sklearn

if TYPE_CHECKING:
    from . import Alteration, Retrained, Source


class PipelineSource:
    inner: Source

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def transform(self, X: Any) -> Any:
        if isinstance(X, PartedTable):
            return X.then(self.transform, pickle.dumps(self.pipeline[:-1]))
        X = for_sklearn(X)
        return self.pipeline[:-1].transform(X) if len(self.pipeline) > 1 else X

    @property
    def name(self) -> str:
        return f"Pipeline with {self.inner.name}"

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
        return self.inner.rows(self.transform(X), baseline)

    def labels(self, y: Any, length: int, name: str) -> F64:
        return self.inner.labels(y, length, name)

    def own_labels(self, X: Any) -> Any | None:
        return None

    def rebased(self, base: F64) -> Ensemble:
        return self.inner.rebased(base)

    def as_trained(self, codes: F64, weight: F64, factor: F64, base_factor: F64 | None) -> tuple[F64, F64]:
        return self.inner.as_trained(codes, weight, factor, base_factor)

    def retrain(self, rows: Alteration, threads: int) -> Retrained:
        if rows.added is not None:
            X, y, w = rows.added
            rows = replace(rows, added=(self.transform(X), y, w))
        return RetrainedPipeline(self, self.inner.retrain(rows, threads))


class RetrainedPipeline:
    """The last step trained again."""

    def __init__(self, source: PipelineSource, inner: Retrained) -> None:
        self.source, self.inner = source, inner
        self.structure_changed = inner.structure_changed

    def scores(self, X: Any) -> F64:
        return self.inner.scores(self.source.transform(X))

    def open(self) -> Source:
        source = PipelineSource(self.source.pipeline)
        source.inner = self.inner.open()
        return source
