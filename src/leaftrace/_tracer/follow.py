"""A tracer of a retrained model, with the training rows and the settings of the original one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .._data import inputs
from .._data.row_labels import row_index
from .._engine.engine import Engine
from .._engine.refit import RetrainedModel

if TYPE_CHECKING:
    from .tracer import Tracer


def followed(
    original: Tracer, tracer: Tracer, retrained: RetrainedModel, n_jobs: int | None
) -> Tracer:
    """Fill an empty tracer with the retrained model: see `Tracer.follow`."""
    training = retrained.rows
    settings = original.engine.settings
    settings = replace(settings, n_jobs=n_jobs or settings.n_jobs)
    tracer.engine = Engine(retrained.retrained.open(), settings)
    tracer.X_train = training.table(original.X_train)
    tracer.y_train = training.labels(original.y_train)
    tracer.train_index = original.train_index[training.keep]
    weights = training.weights(original._given_weight)
    tracer._given_weight = inputs.optional_weights(weights, tracer.n_rows)
    if training.added is not None:
        X_new, y_new, _ = training.added
        names = row_index(X_new, len(y_new))
        tracer.train_index = np.concatenate([tracer.train_index, names])
    tracer.row_labels = None if original.row_labels is None else tracer.train_index
    return tracer
