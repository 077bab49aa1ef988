"""Opening a model whose training rows are on a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Future

from .._adapters import Source, open_model
from .._data import inputs
from .._data.errors import InvalidInput, UnsupportedModel
from .._model.ensemble import Ensemble
from ._cluster import Cluster
from ._part import LabelSummary
from ._stand_in import stand_in_rows


def open_with_stand_ins(
    cluster: Cluster, model: Any, X: Future | None, labels: LabelSummary, params: dict[str, Any]
) -> Source:
    """Open the model with rows of the partition X and the labels of stand-in rows."""
    y, w = stand_in_rows(labels)
    rows = cluster.client.submit(_first_rows, X, len(y), pure=False).result()
    try:
        return open_model(model, rows, y, w, None, params)
    except InvalidInput as error:
        raise InvalidInput(
            f"{error} (On a cluster a model is opened with a few stand-in rows; one that needs all rows at once is "
            "for leaftrace.Tracer.)"
        ) from None


def local_model(model: Any) -> Any:
    """The model itself, from what training on a cluster returns."""
    trained: Any = model
    if isinstance(model, dict) and "booster" in model:
        trained = model["booster"]
    return trained.to_local() if hasattr(trained, "to_local") else trained


def _first_rows(X: Any, count: int) -> Any:
    """This many rows of X, which repeat if it has fewer."""
    return inputs.take_rows(X, np.arange(count) % len(X))


def refuse_unsupported(e: Ensemble) -> None:
    """Raise an error for models that need all rows in one place."""
    why = e.not_smooth
    if e.sample is not None:
        why = "this model drew or weighed rows anew for each tree, which needs all of them in one place"
    elif (e.w_factor == 0).any():
        why = "this model held rows out, chosen among all of them"
    elif e.joins_leaves:
        why = "leaves of this model depend on other nodes of their trees (monotone constraints, path_smooth)"
    elif e.moves is not None and not e.independent:
        why = "this model is not plain boosting (DART, or a model that shrinks)"
    if why:
        raise UnsupportedModel(
            f"{why}; use leaftrace.Tracer, or Tracer.from_files for a table that does not fit."
        )


def without_rows(e: Ensemble) -> Ensemble:
    """The ensemble without its training rows, to be sent."""
    none = np.zeros(0)
    return replace(
        e,
        leaves=e.leaves[:, :0].copy(),
        y=none,
        w=none,
        w_factor=none,
        base_factor=None if e.base_factor is None else none,
        offset=None,
    )
