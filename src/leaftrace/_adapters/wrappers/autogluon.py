"""AutoGluon: a TabularPredictor, whose best model is one model or a weighted mean of several.

AutoGluon prepares rows twice, for all models and for each, and trains on some of them: the others
judge. It keeps which rows those were by their index.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data import frames
from ..._data.arrays import Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..pipeline import PipelineSource
from .members import Member, MemberModel


class AutoGluonModelSource(PipelineSource):
    """A model of AutoGluon around one of another library, with rows as AutoGluon prepares them."""

    @property
    def name(self) -> str:
        return f"AutoGluon's {self.pipeline.name} with {self.inner.name}"

    def transform(self, X: Any) -> Any:
        return self.pipeline.preprocess(X)

    def with_last_step(self, model: Any) -> Any:
        changed = copy(self.pipeline)
        changed.model = model
        return changed


def predictor_members(predictor: Any, X: Any) -> MemberModel:
    """Open the best model of a TabularPredictor with the table that it was given."""
    trainer = predictor._trainer
    best = trainer.load_model(predictor.model_best)
    weights = {best.name: 1.0}
    if hasattr(best, "base_model_names"):  # a weighted mean
        weights = best._get_model_weights()
    names = list(weights)
    rows = _training_rows(predictor, X)
    models = [trainer.load_model(name) for name in names]
    for model in models:
        if hasattr(model, "models"):  # trained in folds, or on top of others
            raise UnsupportedModel(
                f"the model '{model.name}' of this TabularPredictor is made of others ({type(model).__name__}); fit "
                "the predictor without bagging and stacking (num_bag_folds=0, num_stack_levels=0)."
            )
    classes = None
    if predictor.class_labels is not None:
        classes = np.asarray(predictor.class_labels)

    def with_members(models: Sequence[Any]) -> Any:
        if len(models) == 1:
            return models[0]
        raise UnsupportedModel(
            "AutoGluon keeps its models on disk, so there is no predictor with other ones; take those of "
            "refit(...).members, each by its .model."
        )

    def combined(models: Sequence[Any], X: Any, method: str) -> NDArray[Any]:
        share = np.array([weights[name] for name in names]) / sum(weights.values())
        usual = "predict" if classes is None else "predict_proba"
        parts = [np.asarray(getattr(model, usual)(X)) for model in models]
        if classes is not None:  # AutoGluon gives the second of two classes alone
            parts = [np.column_stack([1 - p, p]) if p.ndim == 1 else p for p in parts]
        mean = np.tensordot(share, np.stack(parts), axes=1)
        if classes is None or method != "predict":
            return mean
        return classes[mean.argmax(axis=1)]

    members = [Member(model.name, model, rows) for model in models]
    transform = predictor.transform_features
    name = "TabularPredictor"
    return MemberModel(
        name, members, with_members, transform, classes, combined, numbered=classes is not None
    )


def _training_rows(predictor: Any, X: Any) -> Ints:
    """Return positions of the rows that models were trained on, by their index."""
    if not hasattr(X, "iloc"):
        kind = frames.kind(X) or type(X).__name__
        raise InvalidInput(
            f"X_train is a table of {kind}; AutoGluon knows its training rows by their index, so pass the DataFrame "
            "that it was given."
        )
    used = predictor.load_data_internal("train")[0].index
    place = {label: position for position, label in enumerate(X.index.tolist())}
    rows = [place.get(label) for label in used.tolist()]
    if None in rows or len(place) < len(X):
        raise InvalidInput(
            "the index of X_train is not that of the table that AutoGluon was given, or some rows share a label; pass "
            "that table, with labels that are unique."
        )
    return np.array(rows, dtype=np.intp)
