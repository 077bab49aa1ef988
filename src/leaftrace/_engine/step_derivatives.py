"""Derivatives of the loss at the scores of rows before each step, as soft choices of splits need them.

Those of the training rows do not depend on the queries, so that a workspace can keep them between
passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._data.arrays import F64
from .._model.ensemble import Ensemble


class StepDerivatives:
    """Derivatives of the loss at the scores A (n, K) and labels y (n,) of rows before a step.

    ``g``, ``h``  (n, K) first and second derivatives of each output in its own score
    ``j``, ``k``  (n, K, K) the derivatives of g and of h in all scores
    """

    def __init__(self, e: Ensemble, A: F64, y: F64) -> None:
        loss = e.loss
        state = loss.state(A)
        self.g = _own(loss.gradient(state, y), A)
        self.h = _own(loss.hessian_diagonal(state, y), A)
        self.j = _own(loss.jacobian(state, y), A)
        own = self.h[:, :, None]
        if np.array_equal(self.j, own):  # as mostly with one output: it is held in memory once
            self.j = own
        self.k = loss.third_diagonal(state, y)

    def of(self, outputs: slice) -> tuple[F64, F64, F64, F64]:
        """g, h (n, O) of some outputs, and their derivatives j, k (n, O, K) in all scores."""
        g, h, j, k = (np.ascontiguousarray(x[:, outputs]) for x in (self.g, self.h, self.j, self.k))
        return g, h, j, k


def _own(x: F64, A: F64) -> F64:
    """The array x in memory that is not that of the scores, which the next step changes."""
    return x.copy() if np.may_share_memory(x, A) else x


def joined(parts: Iterable[Any]) -> Any:
    """Arrays of rows one after the other."""
    arrays = list(parts)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
