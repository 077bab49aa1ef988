"""Weights of groups of training rows: which way a loss asks them to go, and how far, with the trees as they are.

Row i of group g gets the weight f_g w_i. In the metric sum_g W_g df_g^2, with W_g the weight of the group, the gradient
of a loss L is the mean slope of the group's rows, and the nearest factors of the same total weight differ from those
given by a constant, up to the bounds:

    d_g = (dL/df_g) / W_g = sum_{i in g} w_i dL/dw_i / W_g          f <- clip(f - step d - tau),  sum W_g f_g = sum W_g

The total is kept because it is no property of groups: more or less of it is less or more regularisation. So a group's
slope counts from that of the average row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.progress import progress
from ..._tracer.tracer import Tracer
from ..common import Interruptible, student

_SHORTEST = 0.02  # the least change of a factor that is worth a refit
_ENOUGH = 0.01  # a step that gains less than this share of all gains is the last


def mean_slopes(code: Ints, w: F64, slopes: F64) -> F64:
    """(G,) mean of slopes (n,) over the rows of each group, by weight, less that of all rows."""
    W = np.bincount(code, w)
    return np.bincount(code, w * slopes) / np.where(W > 0, W, 1.0) - w @ slopes / w.sum()


def measured_slopes(
    tracer: Tracer, X: Any, y: np.ndarray, code: Ints, confidence: float
) -> tuple[F64, F64, np.ndarray]:
    """(G,) mean slopes of the mean loss of X, y; their standard errors by the spread over parts of these rows; which of
    them are clear of zero, all together at this confidence."""
    folds = np.array_split(np.arange(len(y)), min(20, len(y) // 2))
    size = np.array([len(fold) for fold in folds]) / len(y)
    parts = [
        mean_slopes(
            code,
            tracer.sample_weight,
            tracer.influence(inputs.take_rows(X, fold), y[fold], reduce="mean").values[:, 0],
        )
        for fold in progress(folds, len(folds), "influence", "part")
    ]
    means = np.stack(parts, axis=1)  # (G, folds)
    mean = means @ size
    error = np.sqrt(((means - mean[:, None]) ** 2).sum(axis=1) / (len(folds) - 1) / len(folds))
    return (
        mean,
        error,
        np.abs(mean) > student((1 - confidence) / 2 / len(mean), len(folds) - 1) * error,
    )


def project(f: F64, W: F64, low: float, high: float) -> F64:
    """The nearest factors (G,) in [low, high] with sum W f = sum W, by bisection for tau."""
    left = f.min() - high
    right = f.max() - low
    for _ in range(100):
        tau = (left + right) / 2
        left, right = (tau, right) if W @ np.clip(f - tau, low, high) > W.sum() else (left, tau)
    return np.clip(f - (left + right) / 2, low, high)


def descend(
    tracer: Tracer, X: Any, y: Any, code: Ints, max_factor: float, steps: int
) -> tuple[F64, bool]:
    """(G,) factors from 1 / max_factor to max_factor for groups of the training rows that lower the mean loss of X, y;
    and whether Ctrl-C came before the end. A step must lower the loss of the refitted model, or it is halved."""
    w = tracer.sample_weight
    W = np.bincount(code, w).astype(np.float64)
    f = np.ones(len(W))
    reach = 1.0
    model = tracer.engine.unchanged
    losses = [float(model.loss(X, y).mean())]
    with Interruptible() as run:
        for _ in progress(range(steps), steps, "weights", "step"):
            d = mean_slopes(code, w, tracer.engine.slopes_at(model, X, y))
            if not d.any():
                break
            while reach >= _SHORTEST:
                trial = project(f - reach * d / np.abs(d).max(), W, 1 / max_factor, max_factor)
                refitted = tracer.refit(sample_weight=w * trial[code])
                if (loss := float(refitted.loss(X, y).mean())) < losses[-1]:
                    break
                reach /= 2
            else:
                break
            f = trial
            model = refitted
            reach = 2 * reach
            losses.append(loss)
            if losses[-2] - losses[-1] < _ENOUGH * (losses[0] - losses[-1]):
                break
    return f, run.interrupted
