"""Weights of groups of training rows that lower a loss, with the trees fixed.

Row i of group g gets the weight f_g w_i. In the metric sum_g W_g df_g^2, with W_g the weight of the
group, the gradient of a loss L is the mean slope of the group's rows, and the nearest factors of
the same total weight differ from the given ones by a constant, up to the bounds:

    d_g = (dL/df_g) / W_g = sum_{i in g} w_i dL/dw_i / W_g
    f <- clip(f - step d - tau),  sum W_g f_g = sum W_g

The total is kept because it is no property of groups: more or less of it is less or more
regularisation. So a group's slope is counted from that of the average row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.progress import progress
from ..._data.student import student
from ..._data.time_limit import TimeLimit
from ..._engine.refit import RefittedModel
from ..._tracer.tracer import Tracer
from ..common import Interruptible, mean_loss

FOLDS = 20  # parts of the test rows, for standard errors
SHORTEST = 0.02  # smallest change of a factor that is worth a refit
_ENOUGH = 0.01  # a step that gains less than this share of all gains is the last
_BISECTIONS = 100


def mean_slopes(code: Ints, w: F64, slopes: F64) -> F64:
    """(G,) weighted mean of slopes (n,) over the rows of each group, minus that of all rows."""
    W = np.bincount(code, w)
    return np.bincount(code, w * slopes) / np.where(W > 0, W, 1.0) - w @ slopes / w.sum()


def measured_slopes(
    tracer: Tracer, X: Any, y: np.ndarray, code: Ints, confidence: float
) -> tuple[F64, F64, np.ndarray]:
    """(G,) mean slopes of the mean loss of X, y; their standard errors; which are clear of zero.

    Standard errors come from the spread over parts of these rows. The confidence holds for all
    groups together.
    """
    folds = np.array_split(np.arange(len(y)), min(FOLDS, len(y) // 2))
    size = np.array([len(fold) for fold in folds]) / len(y)
    parts = []
    for fold in progress(folds, len(folds), "influence", "part"):
        influence = tracer.influence(inputs.take_rows(X, fold), y[fold], reduce="mean")
        parts.append(mean_slopes(code, tracer.sample_weight, influence.values[:, 0]))
    means = np.stack(parts, axis=1)  # (G, folds)
    mean = means @ size
    error = np.sqrt(((means - mean[:, None]) ** 2).sum(axis=1) / (len(folds) - 1) / len(folds))
    quantile = student((1 - confidence) / 2 / len(mean), len(folds) - 1)
    return mean, error, np.abs(mean) > quantile * error


def project(f: F64, W: F64, low: float, high: float) -> F64:
    """The nearest factors (G,) in [low, high] with sum W f = sum W, by bisection for tau."""
    left = f.min() - high
    right = f.max() - low
    for _ in range(_BISECTIONS):
        tau = (left + right) / 2
        if W @ np.clip(f - tau, low, high) > W.sum():
            left = tau
        else:
            right = tau
    return np.clip(f - (left + right) / 2, low, high)


def descend(
    tracer: Tracer, X: Any, y: Any, code: Ints, max_factor: float, steps: int, time: TimeLimit
) -> tuple[F64, bool]:
    """(G,) factors for groups of training rows that lower the mean loss of X, y.

    Factors stay between 1 / max_factor and max_factor. No step is begun after `time`. The second
    result is whether Ctrl-C came before the end.
    """
    descent = _Descent(tracer, X, y, code, max_factor)
    with Interruptible() as run:
        for _ in progress(time.items(range(steps)), steps, "weights", "step"):
            if not descent.step():
                break
    return descent.factors, run.interrupted


class _Descent:
    """Steps along the gradient of the mean loss of X, y in the factors of groups.

    ``factors``  (G,)
    ``model``    refitted with these factors
    ``losses``   at the start and after each step
    ``reach``    largest change of a factor in the next step
    """

    def __init__(self, tracer: Tracer, X: Any, y: Any, code: Ints, max_factor: float) -> None:
        self.tracer = tracer
        self.X = X
        self.y = y
        self.code = code
        self.max_factor = max_factor
        self.w = tracer.sample_weight
        self.W = np.bincount(code, self.w).astype(np.float64)
        self.factors = np.ones(len(self.W))
        self.model: RefittedModel = tracer.engine.unchanged
        self.losses = [mean_loss(self.model, X, y)]
        self.reach = 1.0

    def step(self) -> bool:
        """Take one step; returns whether another is worth it.

        A step must lower the loss of the refitted model, or it is halved.
        """
        slopes = self.tracer.engine.slopes_at(self.model, self.X, self.y)
        d = mean_slopes(self.code, self.w, slopes)
        if not d.any():
            return False
        while self.reach >= SHORTEST:
            if self._try(self.reach * d / np.abs(d).max()):
                self.reach = 2 * self.reach
                gain = self.losses[-2] - self.losses[-1]
                return gain >= _ENOUGH * (self.losses[0] - self.losses[-1])
            self.reach /= 2
        return False

    def _try(self, change: F64) -> bool:
        """Subtract this change (G,) from the factors if that lowers the loss."""
        factors = project(self.factors - change, self.W, 1 / self.max_factor, self.max_factor)
        model = self.tracer.refit(sample_weight=self.w * factors[self.code])
        loss = mean_loss(model, self.X, self.y)
        if not loss < self.losses[-1]:
            return False
        self.factors = factors
        self.model = model
        self.losses.append(loss)
        return True
