"""How much a model doubts its own training labels: single scores, all from one walk along the boosting path.

A label's *surprise* is u = 1 - P(given label), or |label - prediction| for numbers. Class weights are taken out of P
again: a model trained with weights k_c gives odds that are k_c times too large, and would suspect every row of the
class that was weighed down. Higher is more suspicious in every score.
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
from ..._model.losses import Loss
from ..._tracer.tracer import Tracer
from .path import path

BINS = 10  # of predicted numbers, for the spread of residuals
BLOCK = 32  # queries of a backward pass
ENOUGH = (
    1000  # validation rows that count half: the mean influence on a few hundred is mostly chance
)


@dataclass(frozen=True)
class Labels:
    """How scores F (m, K) speak of labels y (m,), as the loss takes them."""

    loss: Loss
    class_weight: F64 | None  # (classes,); None: labels are numbers

    def view(self, F: F64) -> F64:
        """Class probabilities (m, classes) without class weights, or predicted numbers (m,)."""
        response = self.loss.response(self.loss.state(F))
        if self.class_weight is None:
            return (
                response if response.ndim == 1 else response[:, 1]
            )  # the probability that a fraction is of
        if response.ndim == 1:  # a hinge's score is 1 and -1 where it is sure
            p = np.clip((1 + response) / 2, 0, 1)
            response = np.stack([1 - p, p], axis=1)
        P = np.maximum(response, 0.0) / self.class_weight
        total = P.sum(axis=1, keepdims=True)
        return np.where(total > 0, P / np.where(total > 0, total, 1.0), 1 / P.shape[1])

    def surprise(self, view: F64, y: F64) -> F64:
        """(m,)"""
        if view.ndim == 1:
            return np.abs(y - view)
        return 1 - view[np.arange(len(y)), y.astype(int)]

    def margin(self, F: F64, y: F64) -> F64:
        """(m,) raw score of the given label above the best of the others; of numbers, minus the surprise."""
        if self.class_weight is None:
            return -self.surprise(self.view(F), y)
        if F.shape[1] == 1:
            return (2 * y - 1) * F[:, 0]
        rows = np.arange(len(y))
        codes = y.astype(int)
        others = F.copy()
        others[rows, codes] = -np.inf
        return F[rows, codes] - others.max(axis=1)


def labels_of(tracer: Tracer) -> Labels:
    e = tracer.engine.ensemble
    if tracer.classes is None:
        return Labels(e.loss, None)
    weight = np.zeros(len(tracer.classes))
    np.maximum.at(weight, e.y.astype(int), e.w_factor)
    return Labels(e.loss, np.where(weight > 0, weight, 1.0))


@dataclass(frozen=True)
class Evidence:
    """What the model itself tells of its training labels.

    ``view``       (n, classes) probabilities without each row's own pull: (1 - m) after the last step + m on average
                   over the path; or (n,) predicted numbers without it, after the last step
    ``surprise``   (n,) of the given labels at that view; of numbers, in units of the spread of their neighbourhood
    ``memorised``  m in [0, 1]: m^2 is the share by which the rows' own pull lowers the mean surprise
    ``left_out``   mean surprise without the own pull, after the last step
    ``scores``     the single scores, each (n,)
    """

    view: F64
    surprise: F64
    memorised: float
    left_out: float
    scores: dict[str, F64]


def gather(tracer: Tracer) -> Evidence:
    """One walk along the path."""
    e = tracer.engine.ensemble
    labels = labels_of(tracer)
    y = e.y
    loss = e.loss
    names = ("margin", "loss", "gradient", "path")
    sums = {name: np.zeros(e.n_rows) for name in names}
    views = 0.0
    steps = 0
    A = own = np.zeros((e.n_rows, e.n_outputs))
    points = e.n_steps if e.moves is None else 1
    for A, own in progress(path(tracer), points, "label noise", "step"):
        state = loss.state(A)
        view = labels.view(A - own)
        sums["margin"] -= labels.margin(A, y)
        sums["loss"] += loss.value(A, y)
        sums["gradient"] += np.linalg.norm(loss.gradient(state, y), axis=1)
        sums["path"] += labels.surprise(view, y)
        views = views + view
        steps = steps + 1
    means = {name: total / steps for name, total in sums.items()}
    with_pull = labels.view(A)
    view = labels.view(A - own)
    detector = labels.surprise(with_pull, y)
    left_out = labels.surprise(view, y)
    m = memorised(detector, left_out)
    surprise = (1 - m) * left_out + m * means["path"]
    if view.ndim == 1:
        surprise = surprise / spread(view, left_out)
    else:
        view = (1 - m) * view + m * np.asarray(views) / steps
    scores = {"detector": detector, "left_out": left_out, **means}
    scores["self_influence"] = loss.value(A - own, y) - loss.value(A, y)
    return Evidence(view, surprise, m, float(left_out.mean()), scores)


def memorised(with_pull: F64, left_out: F64) -> float:
    """How much of the fit to the labels is each row's own doing: sqrt(1 - mean u / mean u without it), from 0 to 1."""
    total = left_out.mean()
    return float(np.sqrt(np.clip(1 - with_pull.mean() / total, 0.0, 1.0))) if total > 0 else 0.0


def spread(prediction: F64, residual: F64) -> F64:
    """(n,) the median |residual| of rows with like predictions: residuals often grow with what is predicted."""
    n = len(prediction)
    bins = int(np.clip(n // 100, 1, BINS))
    order = np.argsort(prediction, kind="stable")
    where = np.empty(n)
    where[order] = (np.arange(n) + 0.5) * bins / n - 0.5  # from -1/2 to bins - 1/2
    medians = np.array([np.median(part) for part in np.array_split(residual[order], bins)])
    floor = 1e-9 * max(float(residual.max(initial=0.0)), np.finfo(float).tiny)
    return np.maximum(np.interp(where, np.arange(bins), medians), floor)


def exact_self_influence(tracer: Tracer) -> F64:
    """(n,) -w_i dL_i/dw_i: to first order, how a row's own loss changes without it, through all rows; n queries."""
    e = tracer.engine.ensemble
    out = np.zeros(tracer.n_rows)
    tracer.engine.needs_derivatives()
    blocks = [np.arange(start, min(start + BLOCK, e.n_rows)) for start in range(0, e.n_rows, BLOCK)]
    for rows in progress(blocks, e.n_rows, "self-influence", "row", BLOCK):
        offset = None if e.offset is None else e.offset[rows]
        queries = make_queries(
            e, np.ascontiguousarray(e.leaves[:, rows]), offset, e.y[rows], "loss", None, None
        )
        values = np.concatenate(
            [v for _, v in tracer.engine.backward_blocks(queries, LeafInfluence(), rows)], axis=1
        )
        out[rows] = -e.sample_weight[rows] * np.diag(values)
    return out


def suggest(tracer: Tracer, evidence: Evidence) -> NDArray[Any]:
    """(n,) the best other label: the likeliest other class, or what the model predicts without the row."""
    if evidence.view.ndim == 1:
        return evidence.view
    codes = tracer.engine.ensemble.y.astype(int)
    others = evidence.view.copy()
    others[np.arange(len(codes)), codes] = -1.0
    return class_labels(tracer)[others.argmax(axis=1)]


def class_labels(tracer: Tracer) -> NDArray[Any]:
    """(classes,) as the user writes them in the training labels."""
    codes, first = np.unique(tracer.engine.ensemble.y.astype(int), return_index=True)
    given = tracer.y_train[first]
    if len(given) == len(np.asarray(tracer.classes)):
        return given
    names = np.asarray(tracer.classes).astype(object)  # some class has no row
    names[codes] = given
    return names


def relabel_gains(tracer: Tracer, X: Any, y: Any, labels: NDArray[Any]) -> F64:
    """(n,) by how much the mean loss of X, y falls, to first order, when a row gets this label."""
    gains = np.zeros(tracer.n_rows)
    if tracer.classes is None:
        slopes = tracer.label_influence(X, y, reduce="mean").values[:, 0]
        return -(labels - tracer.engine.ensemble.y) * slopes
    several = tracer.engine.ensemble.n_outputs > 1
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        to = label if several else None
        gains[rows] = -tracer.label_influence(X, y, reduce="mean", rows=rows, to=to).change[:, 0]
    return gains


def cleaner(tracer: Tracer, evidence: Evidence, X: Any, y: Any) -> float:
    """How much less the labels of m validation rows surprise the model than those of training rows without their own
    pull: 1 - mean u / mean u, from 0 to 1, times m / (m + 1000)."""
    queries, _ = tracer.engine.queries(X, y, "loss", "mean", None, None)
    assert queries.y is not None
    labels = labels_of(tracer)
    m = len(queries.y)
    surprise = float(labels.surprise(labels.view(queries.scores), queries.y).mean())
    less = 1 - surprise / evidence.left_out if evidence.left_out > 0 else 0.0
    return float(np.clip(less, 0.0, 1.0)) * m / (m + ENOUGH)


def ranks(x: F64) -> F64:
    """(n,) from 0 to 1; equal values share theirs."""
    _, which, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[which] / max(len(x) - 1, 1)


def confident_count(P: F64, codes: Ints) -> int:
    """How many rows are confidently of another class (confident learning, Northcutt et al. 2021).

    A row is confidently of class c if P(c) reaches the mean P(c) of the rows labelled c; of several, the likeliest."""
    count = np.bincount(codes, minlength=P.shape[1])
    own = np.bincount(codes, P[np.arange(len(codes)), codes], P.shape[1])
    threshold = np.where(count > 0, own / np.maximum(count, 1), np.inf)
    sure = np.where(threshold <= P, P, -1.0)
    return int(((sure.max(axis=1) >= 0) & (sure.argmax(axis=1) != codes)).sum())
