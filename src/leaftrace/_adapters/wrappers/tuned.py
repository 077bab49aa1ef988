"""Tools that choose and train a model by themselves: FLAML's AutoML.

Like a pipeline, such a tool prepares rows and labels for the model that it has chosen; this
preparation stays as it was fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..._data import frames, inputs
from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.early_stopping import map_eval_set
from ..._model.training_set import TrainingSet
from ..pipeline import PipelineSource

if TYPE_CHECKING:
    from .. import Retrained, Source


class AutoMLSource(PipelineSource):
    """The model that FLAML has chosen, with rows and labels as FLAML prepares them."""

    def __init__(self, automl: Any, open_inner: Callable[[Any, Any, Any], Source], X: Any, y: Any):
        """``open_inner``: opens a model with these rows and labels."""
        super().__init__(automl)
        self.chosen: Any = getattr(automl, "model", None)
        if self.chosen is None or getattr(self.chosen, "estimator", None) is None:
            raise UnsupportedModel(
                "this AutoML has no trained model; call fit() with enough budget."
            )
        names = getattr(automl, "_label_transformer", None)
        self.names = None if not names else np.asarray(names.classes_)
        self.inner = open_inner(self.chosen.estimator, self.transform(X), self._codes(y))

    @property
    def name(self) -> str:
        return f"AutoML with {self.inner.name}"

    def transform(self, X: Any) -> Any:
        prepared = self.pipeline.preprocess(frames.to_pandas(X) if frames.kind(X) else X)
        return self.chosen._preprocess(prepared)

    def with_last_step(self, model: Any) -> Any:
        chosen = copy(self.chosen)
        chosen._model = model
        automl = copy(self.pipeline)
        automl._trained_estimator = chosen
        return automl

    @property
    def classes(self) -> Any | None:
        return self.inner.classes if self.names is None else self.names

    def _codes(self, y: Any) -> Any:
        """Return labels as the model inside takes them: numbers of classes."""
        if self.names is None or y is None:
            return y
        labels = inputs.vector(y, "y", inputs.row_count(y))
        return inputs.class_codes(labels, self.names, "y").astype(int)

    def labels(self, y: Any, length: int, name: str) -> F64:
        if self.names is None:
            return self.inner.labels(y, length, name)
        return inputs.class_codes(inputs.vector(y, name, length), self.names, name)

    def own_predictions(self, F: F64) -> NDArray[Any]:
        found = self.inner.own_predictions(F).ravel()
        return found if self.names is None else self.names[found.astype(int)]

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        if rows.y is not None:
            rows = replace(rows, y=self._codes(rows.y))
        if rows.added is not None:
            X, y, w = rows.added
            rows = replace(rows, added=(X, self._codes(y), w))
        rows = replace(rows, eval_set=map_eval_set(rows.eval_set, y=self._codes))
        return super().retrain(rows, threads)
