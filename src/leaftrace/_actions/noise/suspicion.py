"""Scores of how surprising each training label is to the model, all from one boosting path.

A label's *surprise* is u = 1 - P(given label), or |label - prediction| for numbers. Class weights
are taken out of P again: a model trained with weights k_c gives odds that are k_c times too large,
and would suspect every row of a class with a low weight. Higher is more surprising in every score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._data.progress import progress
from ..._engine.methods import LeafInfluence
from ..._engine.queries import make_queries
from ..._model.reading import Reading
from ..._tracer.label_answers import label_changes
from ..._tracer.tracer import Tracer
from .path import path

_BINS = 10  # of predicted numbers, for the spread of residuals
_BLOCK = 32  # queries of a backward pass
# This many validation rows count half: the mean influence on a few hundred is mostly chance.
_HALF_TRUSTED = 1000


@dataclass(frozen=True)
class UnweightedReading:
    """How scores F (m, K) are read without the class weights of training.

    ``class_weight`` (classes,)  None: labels are numbers

    Labels y (m,) are given as the loss takes them.
    """

    reading: Reading
    class_weight: F64 | None

    def prediction(self, F: F64) -> F64:
        """Class probabilities (m, classes) without class weights, or predicted numbers (m,)."""
        if self.class_weight is None:
            return self.reading.number(F)
        response = self.reading.response(F)
        if response.ndim == 1:  # the score of a hinge is 1 or -1 where it is sure
            p = np.clip((1 + response) / 2, 0, 1)
            response = np.stack([1 - p, p], axis=1)
        P = np.maximum(response, 0.0) / self.class_weight
        total = P.sum(axis=1, keepdims=True)
        return np.where(total > 0, P / np.where(total > 0, total, 1.0), 1 / P.shape[1])

    def surprise(self, prediction: F64, y: F64) -> F64:
        """(m,) surprise of the labels at these predictions."""
        if prediction.ndim == 1:
            return np.abs(y - prediction)
        return 1 - prediction[np.arange(len(y)), y.astype(int)]

    def margin(self, F: F64, y: F64) -> F64:
        """(m,) raw score of the label above the best other one; for numbers, minus the surprise."""
        if self.class_weight is None:
            return -self.surprise(self.prediction(F), y)
        if F.shape[1] == 1:
            return (2 * y - 1) * F[:, 0]
        rows = np.arange(len(y))
        codes = y.astype(int)
        others = F.copy()
        others[rows, codes] = -np.inf
        return F[rows, codes] - others.max(axis=1)


def unweighted_reading(tracer: Tracer) -> UnweightedReading:
    """Reading of this model's scores without its class weights."""
    e = tracer.engine.ensemble
    reading = Reading(e.loss, tracer.engine.source.classes)  # in the unit that training fits
    if tracer.classes is None:
        return UnweightedReading(reading, None)
    weight = np.zeros(len(tracer.classes))
    np.maximum.at(weight, e.y.astype(int), e.w_factor)
    return UnweightedReading(reading, np.where(weight > 0, weight, 1.0))


@dataclass(frozen=True)
class Evidence:
    """Evidence of the model itself about its training labels.

    ``prediction`` (n, classes) probabilities without each row's own pull: (1 - m) after the last
                   step + m on average over the path; or (n,) predicted numbers without it, after
                   the last step, in the unit of the target
    ``surprise``   (n,) of the given labels at these predictions; for numbers, in units of the
                   spread of rows with similar predictions
    ``memorised``  m in [0, 1]: m^2 is the share by which the rows' own pull lowers the mean
                   surprise
    ``left_out``   mean surprise without the own pull, after the last step
    ``scores``     the single scores, each (n,)
    """

    prediction: F64
    surprise: F64
    memorised: float
    left_out: float
    scores: dict[str, F64]

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, not numbers."""
        return self.prediction.ndim == 2


@dataclass
class _Walk:
    """Sums over the boosting path.

    ``sums``         (n,) of each score
    ``predictions``  sum of the predictions without the own pull
    ``A, own``       (n, K) scores and own pull after the last step
    """

    sums: dict[str, F64]
    A: F64
    own: F64
    predictions: Any = 0.0
    steps: int = 0


def _walk(tracer: Tracer, reading: UnweightedReading) -> _Walk:
    """Walk along the boosting path once."""
    e = tracer.engine.ensemble
    loss = e.loss
    zeros = np.zeros((e.n_rows, e.n_outputs))
    names = ("margin", "loss", "gradient", "path")
    walk = _Walk({name: np.zeros(e.n_rows) for name in names}, zeros, zeros)
    points = e.n_steps if e.moves is None else 1
    for A, own in progress(path(tracer), points, "label noise", "step"):
        prediction = reading.prediction(A - own)
        walk.sums["margin"] -= reading.margin(A, e.y)
        walk.sums["loss"] += loss.value(A, e.y)
        walk.sums["gradient"] += np.linalg.norm(loss.gradient(loss.state(A), e.y), axis=1)
        walk.sums["path"] += reading.surprise(prediction, e.y)
        walk.predictions = walk.predictions + prediction
        walk.steps += 1
        walk.A = A
        walk.own = own
    return walk


def gather(tracer: Tracer) -> Evidence:
    """All evidence from one walk along the boosting path."""
    e = tracer.engine.ensemble
    reading = unweighted_reading(tracer)
    walk = _walk(tracer, reading)
    means = {name: total / walk.steps for name, total in walk.sums.items()}
    A = walk.A
    without_pull = walk.A - walk.own
    prediction = reading.prediction(without_pull)
    detector = reading.surprise(reading.prediction(A), e.y)
    left_out = reading.surprise(prediction, e.y)
    m = memorised(detector, left_out)
    surprise = (1 - m) * left_out + m * means["path"]
    if prediction.ndim == 1:
        surprise = surprise / spread(prediction, left_out)
        prediction = tracer.engine.reading.number(without_pull)
    else:
        prediction = (1 - m) * prediction + m * walk.predictions / walk.steps
    scores = {"detector": detector, "left_out": left_out, **means}
    scores["self_influence"] = e.loss.value(without_pull, e.y) - e.loss.value(A, e.y)
    return Evidence(prediction, surprise, m, float(left_out.mean()), scores)


def memorised(with_pull: F64, left_out: F64) -> float:
    """Share of the fit to the labels that comes from each row's own pull, from 0 to 1.

    It is sqrt(1 - mean u / mean u without the pull).
    """
    total = left_out.mean()
    if not total > 0:
        return 0.0
    return float(np.sqrt(np.clip(1 - with_pull.mean() / total, 0.0, 1.0)))


def spread(prediction: F64, residual: F64) -> F64:
    """(n,) median |residual| of rows with similar predictions.

    Residuals often grow with the predicted number.
    """
    n = len(prediction)
    bins = int(np.clip(n // 100, 1, _BINS))
    order = np.argsort(prediction, kind="stable")
    place = np.empty(n)
    place[order] = (np.arange(n) + 0.5) * bins / n - 0.5  # from -1/2 to bins - 1/2
    medians = np.array([np.median(part) for part in np.array_split(residual[order], bins)])
    floor = 1e-9 * max(float(residual.max(initial=0.0)), np.finfo(float).tiny)
    return np.maximum(np.interp(place, np.arange(bins), medians), floor)


def exact_self_influence(tracer: Tracer) -> F64:
    """(n,) -w_i dL_i/dw_i: change of a row's own loss without it, first order, through all rows.

    This takes n queries.
    """
    e = tracer.engine.ensemble
    influence = np.zeros(tracer.n_rows)
    tracer.engine.needs_derivatives()
    starts = range(0, e.n_rows, _BLOCK)
    blocks = [np.arange(start, min(start + _BLOCK, e.n_rows)) for start in starts]
    for rows in progress(blocks, e.n_rows, "self-influence", "row", _BLOCK):
        offset = None if e.offset is None else e.offset[rows]
        leaves = np.ascontiguousarray(e.leaves[:, rows])
        queries = make_queries(e, leaves, offset, e.y[rows], "loss", None, None)
        passes = tracer.engine.backward_blocks(queries, LeafInfluence(), rows)
        values = np.concatenate([columns for _, columns in passes], axis=1)
        influence[rows] = -e.sample_weight[rows] * np.diag(values)
    return influence


def suggest(tracer: Tracer, evidence: Evidence) -> NDArray[Any]:
    """(n,) best other label: the likeliest other class, or the number predicted without the row."""
    if not evidence.has_classes:
        return evidence.prediction
    codes = tracer.engine.ensemble.y.astype(int)
    others = evidence.prediction.copy()
    others[np.arange(len(codes)), codes] = -1.0
    return class_labels(tracer)[others.argmax(axis=1)]


def class_labels(tracer: Tracer) -> NDArray[Any]:
    """(classes,) spelled as in the training labels."""
    return tracer.engine.reading.spelled_as(tracer.engine.ensemble.y, tracer.y_train)


def relabel_gains(tracer: Tracer, X: Any, y: Any, labels: NDArray[Any]) -> F64:
    """(n,) fall of the mean loss of X, y if a row gets its new label (n,), to first order."""
    return -label_changes(tracer, X, y, np.arange(tracer.n_rows), labels)


def validation_weight(tracer: Tracer, evidence: Evidence, X: Any, y: Any) -> float:
    """Weight of m validation rows in the ranking, from 0 to 1.

    It is how much less their labels surprise the model than those of training rows without their
    own pull, 1 - mean u / mean u, times m / (m + 1000).
    """
    engine = tracer.engine
    reading = unweighted_reading(tracer)
    prediction = reading.prediction(engine.as_trained.scores(X))
    m = len(prediction)
    codes = engine.labels(engine.test_labels(X, y, "y_val", "X_val"), m, "y_val")
    surprise = float(reading.surprise(prediction, codes).mean())
    less = 1 - surprise / evidence.left_out if evidence.left_out > 0 else 0.0
    return float(np.clip(less, 0.0, 1.0)) * m / (m + _HALF_TRUSTED)


def relative_ranks(x: F64) -> F64:
    """(n,) ranks from 0 to 1; equal values share theirs."""
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[place] / max(len(x) - 1, 1)


def confident_count(P: F64, codes: Ints) -> int:
    """Number of rows confidently of another class (confident learning, Northcutt et al. 2021).

    A row is confidently of class c if P(c) reaches the mean P(c) of the rows labelled c. If that
    holds for several classes, the likeliest counts.
    """
    count = np.bincount(codes, minlength=P.shape[1])
    own = np.bincount(codes, P[np.arange(len(codes)), codes], P.shape[1])
    threshold = np.where(count > 0, own / np.maximum(count, 1), np.inf)
    sure = np.where(threshold <= P, P, -1.0)
    return int(((sure.max(axis=1) >= 0) & (sure.argmax(axis=1) != codes)).sum())
