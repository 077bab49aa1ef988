"""TransformedTargetRegressor: a regressor of transformed labels, whose predictions are transformed back.

Training is that of the regressor, on transformed labels. Predictions, losses of test rows, and effects
on them, are in the unit of the labels as they were given: see _model/target_unit.py.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.early_stopping import map_eval_set
from ..._model.ensemble import Ensemble
from ..._model.target_unit import TargetUnit
from ..._model.training_set import TrainingSet
from ..base import Wrapped
from .one_model import RewrappedRetrained

if TYPE_CHECKING:
    from .. import Retrained, Source


class TransformedTargetSource(Wrapped):
    """The regressor in a TransformedTargetRegressor."""

    def __init__(
        self, model: Any, open_inner: Callable[[Any, Any, Any], Source], X: Any, y: Any
    ) -> None:
        """``open_inner``: opens a regressor with these rows and labels."""
        if not hasattr(model, "regressor_"):
            raise UnsupportedModel(
                "this TransformedTargetRegressor is not fitted; call fit() first."
            )
        self.model = model
        self.inner = open_inner(model.regressor_, X, self.transformed(y))
        self.given = np.asarray(y, dtype=float).ravel()  # (n,) labels of the training rows
        if self.inner.ensemble.loss.n_outputs > 1 or self.inner.classes is not None:
            raise UnsupportedModel(
                "the regressor in this TransformedTargetRegressor predicts several numbers; pass its regressor_ with "
                "the transformed labels it was trained on."
            )

    @property
    def name(self) -> str:
        return f"TransformedTargetRegressor with {self.inner.name}"

    def transformed(self, y: Any) -> Any:
        """Return labels as the regressor takes them."""
        if y is None:
            return None
        y = np.asarray(y, dtype=float).reshape(-1, 1)
        return np.asarray(self.model.transformer_.transform(y), dtype=float).ravel()

    def back(self, values: F64) -> F64:
        """Return predictions (m,) of the regressor in the unit of the labels."""
        return np.asarray(self.model.transformer_.inverse_transform(values[:, None])).ravel()

    @property
    def target(self) -> TargetUnit:
        return TargetUnit(self.transformed, self.own_predictions, self.given)

    def own_predictions(self, F: F64) -> NDArray[Any]:
        return self.back(self.inner.own_predictions(F))

    def own_response(self, F: F64) -> F64:
        return self.back(self.inner.own_response(F))

    def labels(self, y: Any, length: int, name: str) -> F64:
        numbers = inputs.numbers(y, name, length)
        return self.inner.labels(self.transformed(numbers), length, name)

    def rewrap(self, regressor: Any) -> Any:
        """Return the model with another regressor."""
        changed = copy(self.model)
        changed.regressor_ = regressor
        return changed

    def refitted_model(self, e: Ensemble) -> Any:
        return self.rewrap(self.inner.refitted_model(e))

    def retrain(self, rows: TrainingSet, threads: int) -> Retrained:
        changed = copy(self)
        changed.given = rows.labels(self.given)
        if rows.y is not None:
            rows = replace(rows, y=self.transformed(rows.y))
        if rows.added is not None:
            X, y, w = rows.added
            rows = replace(rows, added=(X, self.transformed(y), w))
        rows = replace(rows, eval_set=map_eval_set(rows.eval_set, y=self.transformed))
        return RewrappedRetrained(self.inner.retrain(rows, threads), changed)

    def around(self, inner: Source) -> Source:
        """Return another regressor in the same wrapper."""
        source = copy(self)
        source.inner = inner
        return source
