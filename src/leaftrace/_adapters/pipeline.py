"""scikit-learn Pipelines: the earlier steps transform the rows, the last step is the model.

The earlier steps stay as they were fitted, also when the model is retrained: the influence of a row
is its influence on the model.
"""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._data.arrays import F64, Ids
from .._data.errors import InvalidInput, LeaftraceError
from .._data.parquet import PartedTable
from .._model.early_stopping import map_eval_set
from .._model.ensemble import Ensemble
from .._model.training_set import TrainingSet
from .._model.tree_paths import TreePaths
from .base import Wrapped, for_sklearn

if TYPE_CHECKING:
    from . import Retrained, Source


class PipelineSource(Wrapped):
    """The last step of a pipeline, with rows that the earlier steps transform."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def transform(self, X: Any) -> Any:
        """Return the rows as the last step takes them."""
        if isinstance(X, PartedTable):
            return X.with_step(self.transform, pickle.dumps(self.pipeline[:-1]))
        X = for_sklearn(X)
        if len(self.pipeline) == 1:
            return X
        try:
            return self.pipeline[:-1].transform(X)
        except LeaftraceError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"the steps of this pipeline cannot read these rows: {error}"
            ) from error

    def with_last_step(self, model: Any) -> Any:
        """Return the pipeline with another model at its end."""
        pipeline = copy(self.pipeline)
        pipeline.steps = [*self.pipeline.steps[:-1], (self.pipeline.steps[-1][0], model)]
        return pipeline

    def around(self, inner: Source) -> Source:
        """Return another model after the same steps."""
        source = copy(self)
        source.inner = inner
        return source

    def refitted_model(self, e: Ensemble) -> Any:
        return self.with_last_step(self.inner.refitted_model(e))

    @property
    def name(self) -> str:
        return f"Pipeline with {self.inner.name}"

    def rows(self, X: Any, baseline: Any = None) -> tuple[Ids, F64 | None]:
        return self.inner.rows(self.transform(X), baseline)

    def split_columns(self, X: Any) -> F64:
        return self.inner.split_columns(self.transform(X))

    def tree_paths(self, X: Any) -> TreePaths:
        paths = self.inner.tree_paths(self.transform(X))
        try:
            names = self.pipeline[:-1].get_feature_names_out()
        except (AttributeError, ValueError):  # a step does not name its columns
            return paths
        return replace(paths, names=[str(name) for name in names])

    def own_labels(self, X: Any) -> Any | None:
        return None

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        if rows.added is not None:
            X, y, w = rows.added
            rows = replace(rows, added=(self.transform(X), y, w))
        rows = replace(rows, eval_set=map_eval_set(rows.eval_set, X=self.transform))
        return RetrainedPipeline(self, self.inner.retrain(rows, threads))


class RetrainedPipeline:
    """A pipeline whose last step was trained again."""

    def __init__(self, source: PipelineSource, inner: Retrained) -> None:
        self.source = source
        self.inner = inner
        self.rounds = inner.rounds

    @property
    def structure_changed(self) -> bool:
        return self.inner.structure_changed

    def scores(self, X: Any) -> F64:
        return self.inner.scores(self.source.transform(X))

    def own_model(self) -> Any:
        return self.source.with_last_step(self.inner.own_model())

    def open(self) -> Source:
        return self.source.around(self.inner.open())
