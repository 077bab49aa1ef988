"""imbalanced-learn's pipelines: the rows that samplers chose for the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import Ints
from ..._data.errors import UnsupportedModel


def sampled_rows(pipeline: Any) -> Ints:
    """Return positions of the training rows that reached the last step; a row can be there twice.

    An error for samplers that make rows of their own.
    """
    rows: Ints | None = None
    for name, step in pipeline.steps[:-1]:
        if not hasattr(step, "fit_resample"):
            continue
        chosen = getattr(step, "sample_indices_", None)
        if chosen is None:
            raise UnsupportedModel(
                f"the step '{name}' ({type(step).__name__}) makes rows that are not in X_train, or does not say which "
                "it chose. Trace the model on the rows that it was trained on: make them by the steps before it with "
                "the same random_state, X_new, y_new = sampler.fit_resample(X, y), and pass "
                "Tracer(pipeline[-1], X_new, y_new)."
            )
        chosen = np.asarray(chosen, dtype=np.intp)
        rows = chosen if rows is None else rows[chosen]
    assert rows is not None
    return rows
