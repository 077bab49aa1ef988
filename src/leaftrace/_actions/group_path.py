"""Effects of removing whole groups along a path of weights, with soft choices of splits.

The weights of a group go from their own (s = 0) to zero (s = 1). With trees fixed, the refit at the
end of the path is exact. What it leaves out, the splits that give way, is added up along the path:

    change = refitted change + integral over s of (soft - fixed),
    soft, fixed = -sum_{i in g} w_i dL/dw_i at the refit with weights (1 - s) w,

with soft choices of splits (those of `StructureInfluence`; leaves go all their way) and with the
trees fixed (`LeafInfluence`). The integral is by the midpoint rule. A step costs a refit and a
backward pass with soft choices, which takes as long as a few trainings of the model: training again
is faster. A path has no noise of its own and needs no training. docs/actions.md measures both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.grouping import Groups
from .._engine.methods import StructureInfluence
from .._tracer.tracer import Tracer


class SoftPath:
    """The splits' part in the effects of removals on the mean losses of slices of X, y."""

    def __init__(self, tracer: Tracer, slices: Groups, X: Any, y: Any, steps: int) -> None:
        engine = tracer.engine
        if why := engine.ensemble.weights_fixed:
            raise UnsupportedModel(f"path= needs models with other weights, but {why}; use path=0.")
        engine.needs_derivatives()
        whole = engine.queries(X, y, "loss", "mean", None, None)[0]
        self.tracer = tracer
        self.steps = steps
        self.queries = replace(whole, slices=slices.code)
        self.codes = engine.soft_splits.bins.codes(engine.source.split_columns(X))

    def splits_part(self, rows: Ints) -> F64:
        """(slices,) the integral of soft - fixed along the removal of these rows."""
        return np.mean(
            [self._difference(rows, (j + 0.5) / self.steps) for j in range(self.steps)], axis=0
        )

    def _difference(self, rows: Ints, s: float) -> F64:
        """(slices,) soft - fixed where the rows have lost the share s of their weight."""
        tracer = self.tracer
        engine = tracer.engine
        weight = tracer.sample_weight
        own = weight[rows]
        weight[rows] = (1 - s) * own
        point = engine.refit_point(tracer.refit(sample_weight=weight))
        soft = point.soft_slopes(
            self.queries,
            engine.soft_splits,
            self.codes,
            StructureInfluence().temperature,
            whole_leaves=True,
        )
        return -own @ (soft[rows] - point.slopes(self.queries)[rows])


def check_steps(steps: Any) -> int:
    """The number of steps of a path, zero for none; an error if it is no such number."""
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 0:
        raise InvalidInput(
            f"path is {steps!r}; it is a number of steps, such as 4, or 0 for no path."
        )
    return int(steps)
