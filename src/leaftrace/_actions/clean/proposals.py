"""Proposals of one round of cleaning: training sets that should lower the loss of some rows.

    harm_i = w_i dL/dw_i      L: mean loss of these rows; without row i it changes by -harm_i,
                              to first order

    remove     the rows of most harm
    relabel    the same rows, with the label that the model gives them when refitted without them
    reweight   w <- clip(w - step w0 (dL/dw - mean), 0, cap w0), a projected gradient step
               w0: the weights of training
               Slopes are counted from their mean, because the total weight is no property of rows:
               it decides how much the model is regularised

`share` is how much a round changes: a share of the rows or, for weights, of their sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer

_SPARED = 2  # rows that each class keeps: libraries that split by class need two
_BISECTIONS = 50


def remove(tracer: Tracer, X: Any, y: Any, share: float) -> TrainingSet:
    """The training set without the rows that do most harm to X, y."""
    return tracer.engine.training_set(without=worst(tracer, X, y, share))


def relabel(tracer: Tracer, X: Any, y: Any, share: float) -> TrainingSet:
    """The training set with other labels for the rows that do most harm to X, y."""
    rows = worst(tracer, X, y, share)
    e = tracer.engine.ensemble
    offset = None if e.offset is None else e.offset[rows]
    F = tracer.refit(without=rows).ensemble.scores(e.leaves[:, rows], offset)
    reading = tracer.engine.reading.with_numbered_classes()
    if has_classes(tracer):
        labels = tracer.y_train.copy()
        labels[rows] = reading.spelled_as(e.y, tracer.y_train)[reading.decision(F)]
    else:
        labels = tracer.y_train.astype(float)
        labels[rows] = reading.number(F)
    return tracer.engine.training_set(y=labels)


def reweight(
    tracer: Tracer, X: Any, y: Any, share: float, trained_weight: F64, cap: float
) -> TrainingSet:
    """The training set with weights that went a step along the gradient of the loss of X, y.

    ``trained_weight`` (n,)  weights that the first model was trained with
    ``cap``                  weights grow to this multiple of them at most
    """
    w = tracer.sample_weight
    slopes = tracer.influence(X, y, reduce="mean").values[:, 0].astype(float)
    slopes -= trained_weight @ slopes / trained_weight.sum()
    moving = slopes[slopes != 0]
    if not len(moving):
        return tracer.engine.training_set(sample_weight=w)

    def moved(step: float) -> F64:
        return np.clip(w - step * trained_weight * slopes, 0.0, cap * trained_weight)

    # The change grows with the step, so bisection of its logarithm finds the step. At the upper end
    # every row is at a bound.
    wanted = share * trained_weight.sum()
    low = np.log(share / np.abs(moving).max()) - 1
    high = np.log(cap / np.abs(moving).min())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if np.abs(moved(np.exp(middle)) - w).sum() < wanted:
            low = middle
        else:
            high = middle
    return tracer.engine.training_set(sample_weight=moved(np.exp(high)))


def worst(tracer: Tracer, X: Any, y: Any, share: float) -> Ints:
    """Positions of the most harmful rows, the worst first, at most this share of all rows.

    No class loses its last rows.
    """
    harm = -tracer.influence(X, y, reduce="mean").change[:, 0]
    order = np.argsort(-harm, kind="stable")[: max(1, round(share * len(harm)))]
    order = order[harm[order] > 0]
    return _spare_classes(tracer, order) if has_classes(tracer) else order


def _spare_classes(tracer: Tracer, order: Ints) -> Ints:
    """These rows without the last ones of a class that would lose too many."""
    codes = tracer.engine.ensemble.y.astype(int)
    weighted = tracer.engine.ensemble.w > 0
    class_rows = np.bincount(codes, weighted).astype(int)  # rows of each class that count
    taken = np.ones(len(order), bool)
    for code in np.unique(codes[order]):
        most = max(0, class_rows[code] - _SPARED)
        taken[np.flatnonzero(codes[order] == code)[most:]] = False
    return order[taken]


def has_classes(tracer: Tracer) -> bool:
    """Whether labels are classes, not numbers or shares of a class."""
    y = tracer.engine.ensemble.y
    classes = tracer.engine.reading.with_numbered_classes().classes
    return classes is not None and bool((y == np.round(y)).all())
