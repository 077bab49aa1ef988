"""Changes of a training set that should lower the loss of some rows, by influence: what one round of cleaning tries.

    harm_i = w_i dL/dw_i           L: the mean loss of these rows; without row i it changes by -harm_i, to first order

    remove     the rows of most harm
    relabel    the same rows, with the label that the model gives them when it is refitted without them
    reweight   w <- clip(w - step w0 (dL/dw - mean), 0, cap w0), w0 the weights of training: a projected gradient step.
               Slopes count from their mean: the total is no property of rows, but how much the model is regularised

`share` says how much a round changes: of the rows or, for weights, of their sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._tracer.tracer import Tracer
from ..common import Change
from ..readings import reading

_SPARED = 2  # rows that each class keeps: libraries that split by class need two


def remove(tracer: Tracer, X: Any, y: Any, share: float) -> Change:
    return Change(without=worst(tracer, X, y, share))


def relabel(tracer: Tracer, X: Any, y: Any, share: float) -> Change:
    rows = worst(tracer, X, y, share)
    e = tracer.engine.ensemble
    read = reading(tracer)
    F = tracer.refit(without=rows).ensemble.scores(
        e.leaves[:, rows], None if e.offset is None else e.offset[rows]
    )
    if has_classes(tracer):
        labels = tracer.y_train.copy()
        labels[rows] = _spelling(tracer)[read.decision(F)]
    else:
        labels = tracer.y_train.astype(float)
        response = read.response(F)
        labels[rows] = (
            response if response.ndim == 1 else response[:, 1]
        )  # a number, or the share of class one
    return Change(y=labels)


def reweight(tracer: Tracer, X: Any, y: Any, share: float, first: F64, cap: float) -> Change:
    """``first`` (n,): the weights of training."""
    w = tracer.sample_weight
    slopes = tracer.influence(X, y, reduce="mean").values[:, 0].astype(float)
    slopes -= first @ slopes / first.sum()
    moving = slopes[slopes != 0]
    if not len(moving):
        return Change(sample_weight=w)

    def moved(step: float) -> F64:
        return np.clip(w - step * first * slopes, 0.0, cap * first)

    # The move grows with the step. At the upper end every row is at a bound; bisection of the logarithm.
    low = np.log(share / np.abs(moving).max()) - 1
    high = np.log(cap / np.abs(moving).min())
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if np.abs(moved(np.exp(middle)) - w).sum() < share * first.sum()
            else (low, middle)
        )
    return Change(sample_weight=moved(np.exp(high)))


def worst(tracer: Tracer, X: Any, y: Any, share: float) -> Ints:
    """Positions of the most harmful rows, the worst first, at most this share of all; no class loses its last rows."""
    harm = -tracer.influence(X, y, reduce="mean").change[:, 0]
    order = np.argsort(-harm, kind="stable")[: max(1, round(share * len(harm)))]
    order = order[harm[order] > 0]
    if not has_classes(tracer):
        return order
    codes = tracer.engine.ensemble.y.astype(int)
    counting = np.bincount(codes, tracer.engine.ensemble.w > 0).astype(
        int
    )  # rows of each class that training counts
    taken = np.ones(len(order), bool)
    for code in np.unique(codes[order]):
        taken[np.flatnonzero(codes[order] == code)[max(0, counting[code] - _SPARED) :]] = False
    return order[taken]


def has_classes(tracer: Tracer) -> bool:
    """Whether labels are classes, not numbers or shares of a class."""
    y = tracer.engine.ensemble.y
    return reading(tracer).classes is not None and bool((y == np.round(y)).all())


def _spelling(tracer: Tracer) -> np.ndarray:
    """(classes,) labels as the training rows have them."""
    names = np.array(reading(tracer).classes, dtype=object)
    codes, rows = np.unique(tracer.engine.ensemble.y.astype(int), return_index=True)
    names[codes] = tracer.y_train[rows]
    return names
