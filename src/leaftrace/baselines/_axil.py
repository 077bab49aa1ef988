"""AXIL: predictions of a squared-error model as weighted sums of its training labels.

    F(x) = sum_i k_i(x) y_i + (what is left of a starting score that was given),    k_i(x) = dF(x) / dy_i

With trees fixed and squared errors, each leaf value is linear in the labels, so k depends on the
trees, weights and learning rate alone. The backward pass gives k of all rows for a block of
predictions.

    of="prediction"     k_i(x), the loading
    of="loss"           c_x k_i(x) (y_i - mean label),     c_x = dL/dF(x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._data.arrays import Ints, Real
from .._data.errors import UnsupportedModel
from .._data.progress import progress
from .._engine.backward import expand_labels, leaf_adjoint
from .._engine.methods import Baseline
from .._engine.queries import Queries
from .._engine.workspace import Workspace
from .._model.kernels import BLOCKS, blocks_of
from .._model.losses import SquaredError


@dataclass(frozen=True)
class AXIL(Baseline):
    """Loadings of the training labels in a prediction of a squared-error model.

    >>> tracer.influence(X_test, method=AXIL(), of="prediction")                # doctest: +SKIP

    By Geertsema and Lu (arXiv 2301.01864). With of="prediction", the value of a row is its loading:
    the prediction is the sum of loadings times labels. With of="loss" it is the row's part of the
    prediction, measured from the mean label, times the slope of the loss. That part says where a
    prediction comes from, not what it would be without the row; `LeafInfluence` says that.

    `lt.Tracer.label_influence` gives the same derivatives for all losses.
    """

    differentiates: ClassVar[bool] = True

    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        e = work.trace.ensemble
        if not isinstance(e.loss, SquaredError):
            raise UnsupportedModel(
                f"AXIL needs predictions that are linear in the labels, as squared errors make them, and this model "
                f"has the {e.loss.name} loss; label_influence() gives derivatives in labels for every smooth loss."
            )
        if queries.target is not None:
            raise UnsupportedModel(
                "AXIL needs predictions that are linear in the labels, and this model transforms them; "
                "label_influence() gives derivatives in labels as they were given."
            )
        index = np.arange(len(work.rows)) if index is None else index
        mean = np.average(e.y, weights=e.w)
        factor = e.y[index] - mean if queries.of == "loss" else np.ones(len(index))
        work.prepare_effects()

        def values_of_block(columns: slice) -> Real:
            adjoint = leaf_adjoint(work, queries, columns)
            loadings = [
                expand_labels(work, adjoint, work.rows.take(chunk))[..., 0]
                for chunk in work.row_chunks(index)
            ]
            loadings = np.concatenate([np.zeros((0, adjoint.columns), work.dtype), *loadings])
            return loadings * factor[:, None].astype(work.dtype)

        blocks = work.map(values_of_block, blocks_of(len(queries)))
        done = progress(blocks, len(queries), "AXIL", "query", BLOCKS[-1])
        return np.concatenate(list(done), axis=1)
