"""Label noise: training labels that surprise the model, and other labels for them.

A surprising label is wrong, or right and rare; the model cannot tell the two apart. So this ranks
and flags labels, and to relabel them is suggested only by `LabelNoise.confirm`, which retrains and
judges on rows that had no part in it.

The default score is a label's surprise without the row's own pull on its leaves: after the last
step and, the more the model has memorised its labels, on average over the boosting path. Validation
rows that are cleaner than the training rows add the ranks of the gain from relabelling, weighted by
how much cleaner they are. This score was chosen because it finds wrong labels at least as well as
the paper's Detector (ROC-AUC) in all 48 runs of `experiments/action_noise.py`, far better where
models overfit or have class weights, and better than mean influence in 45 of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.wording import words
from ..._tracer.tracer import Tracer
from ..common import check_tracer
from .result import LabelNoise
from .suspicion import (
    Evidence,
    class_labels,
    confident_count,
    exact_self_influence,
    gather,
    relabel_gains,
    relative_ranks,
    suggest,
    validation_weight,
)

_ON_VALIDATION_ROWS = ("influence", "relabel")  # scores that need them
SCORES = (
    "default", "detector", "left_out", "path", "margin", "loss", "gradient", "self_influence",
    "self_influence_exact",
    *_ON_VALIDATION_ROWS,
)  # fmt: skip
# In units of the median |residual|: the modified z-score of 3.5 (Iglewicz and Hoaglin, 1993).
_OUTLYING = 3.5 * 1.4826
_MANY_FLAGS = 0.25  # share of the rows


def label_noise(
    tracer: Tracer, X_val: Any = None, y_val: Any = None, *, score: str = "default"
) -> LabelNoise:
    """Rank training rows by how much their labels surprise the model, and flag those to look at.

    Wrong labels are among the most surprising ones, but rare outcomes are too. `confirm` measures
    on other rows whether relabelling them, or removing them, helps.

    >>> noise = label_noise(tracer)                                 # doctest: +SKIP
    >>> noise.issues                                                # doctest: +SKIP
    >>> noise.confirm(X_holdout, y_holdout).effects                 # doctest: +SKIP

    ``X_val, y_val``  rows with labels you trust more than the training labels; None: do without.
                      Rows with the same noise do not help; they are recognised and not used
    ``score``         the score to rank by, higher being more surprising:
        "default"         without the row's own pull, after the last step and over the path: see
                          the module
        "detector"        1 - P(given label) by the model as it is (the paper's Detector); of
                          numbers, |residual|
        "left_out"        the same without the row's own pull on its leaves
        "path"            the same on average over the boosting path
        "margin", "loss", "gradient"  means over the path, own pull included: minus the margin of
                          the given label (area under the margin), the loss, the size of its
                          gradient
        "self_influence"  how the row's own loss rises without its own pull: the direct effect,
                          other rows as they are
        "self_influence_exact"  the same to first order, through all rows: n queries (see
                          `tracer.estimate`)
        "influence", "relabel"  on the mean loss of X_val, y_val: the row's influence; the gain from
                          its suggested label

    Class weights are taken out of probabilities. Models without derivatives (quantile losses) have
    no own pull and no influences; the notes of the result mention it.
    """
    check_tracer(tracer, "label_noise")
    _check_arguments(tracer, X_val, y_val, score)
    evidence = gather(tracer)
    suggestion = suggest(tracer, evidence)
    scores = {"default": evidence.surprise, **evidence.scores}
    weight = None
    if X_val is not None and not tracer.engine.ensemble.not_smooth:
        weight = validation_weight(tracer, evidence, X_val, y_val)
        scores |= _validation_scores(tracer, X_val, y_val, suggestion)
        if weight > 0:
            ranks = relative_ranks(evidence.surprise)
            scores["default"] = ranks + weight * relative_ranks(scores["relabel"])
    if score == "self_influence_exact":
        scores[score] = exact_self_influence(tracer)
    order, label_score, is_label_issue = _flags(tracer, evidence, scores[score])
    count = int(is_label_issue.sum())
    notes = _notes(tracer, evidence, weight, X_val is not None, is_label_issue)
    return LabelNoise(
        title=f"Label noise: {count:,} of {tracer.n_rows:,} training labels surprise the model",
        advice=" ".join([*notes, _next_step(count)]),
        is_label_issue=is_label_issue,
        label_score=label_score,
        given_label=tracer.y_train,
        predicted_label=_predicted_labels(tracer, evidence),
        memorised=evidence.memorised,
        validation_weight=weight,
        notes=notes,
        tracer=tracer,
        _order=order,
        _suggestion=suggestion,
        _scores=scores,
        _validation=None if X_val is None else (X_val, y_val),
    )


def _check_arguments(tracer: Tracer, X_val: Any, y_val: Any, score: str) -> None:
    """Check the arguments of `label_noise`."""
    if not inputs.is_name(score, SCORES):
        raise InvalidInput(f"score is {score!r}; it can be {', '.join(map(repr, SCORES))}.")
    if X_val is None and (y_val is not None or score in _ON_VALIDATION_ROWS):
        raise InvalidInput(
            "this needs the rows of a validation set; pass X_val, and its labels y_val."
        )
    if score in _ON_VALIDATION_ROWS:
        tracer.engine.needs_derivatives()


def _validation_scores(tracer: Tracer, X: Any, y: Any, suggestion: NDArray[Any]) -> dict[str, F64]:
    """(n,) scores on the mean loss of validation rows."""
    influence = tracer.influence(X, y, reduce="mean").values[:, 0].astype(float)
    return {"influence": influence, "relabel": relabel_gains(tracer, X, y, suggestion)}


def _flags(tracer: Tracer, evidence: Evidence, score: F64) -> tuple[Ints, F64, NDArray[np.bool_]]:
    """The rows, most surprising first; the quality of each label; which labels are flagged.

    The i-th most surprising row gets the i-th lowest quality. That is its own if the order is that
    of the surprise.
    """
    quality, disagrees, count = _judge_labels(tracer, evidence)
    order = np.lexsort((quality, -score))
    label_score = np.empty_like(quality)
    label_score[order] = np.sort(quality)
    is_label_issue = np.zeros(tracer.n_rows, bool)
    is_label_issue[order[:count]] = disagrees[order[:count]]
    return order, label_score, is_label_issue


def _judge_labels(tracer: Tracer, evidence: Evidence) -> tuple[F64, NDArray[np.bool_], int]:
    """Quality of each label (n,) from 0 to 1, whether the model disagrees with it (n,), and how
    many labels to flag.

    For classes, the quality is P(given label), the model disagrees if another class is likelier,
    and confident learning counts the flags. For numbers, it is 2^-u with u in units of the
    spread, and outlying residuals are counted.
    """
    if not evidence.has_classes:
        outlying = evidence.surprise > _OUTLYING
        return 2.0**-evidence.surprise, outlying, int(outlying.sum())
    codes = tracer.engine.ensemble.y.astype(int)
    disagrees = evidence.prediction.argmax(axis=1) != codes
    return 1 - evidence.surprise, disagrees, confident_count(evidence.prediction, codes)


def _predicted_labels(tracer: Tracer, evidence: Evidence) -> NDArray[Any]:
    """(n,) labels that the model predicts without each row's own pull."""
    if not evidence.has_classes:
        return evidence.prediction
    return class_labels(tracer)[evidence.prediction.argmax(axis=1)]


def _notes(
    tracer: Tracer,
    evidence: Evidence,
    weight: float | None,
    has_validation: bool,
    is_label_issue: NDArray[np.bool_],
) -> tuple[str, ...]:
    """Remarks on how far the result can be trusted."""
    notes = []
    m = evidence.memorised
    if tracer.engine.ensemble.rule.statistic is not None:
        notes.append(
            "Leaves of this model are quantiles, without derivatives: rows keep their own pull on "
            "them."
        )
    elif m > 0.5:
        notes.append(
            f"The model has memorised much of its training labels ({m * m:.0%} of the fit is each "
            "row's own pull): wrong labels hide better in it than in a smaller one."
        )
    if has_validation and weight is None:
        notes.append("The validation rows were not used: this model has no derivatives.")
    elif weight == 0:
        notes.append(
            "The validation rows were not used: their labels surprise the model as much as the "
            "training labels do without their own pull, so they are as noisy, or the model is "
            "overfitted."
        )
    if evidence.has_classes:
        notes += _notes_on_classes(tracer, is_label_issue)
    return tuple(notes)


def _notes_on_classes(tracer: Tracer, is_label_issue: NDArray[np.bool_]) -> list[str]:
    """Remarks on flags that are too many, in all or in one class."""
    notes = []
    if is_label_issue.mean() > _MANY_FLAGS:
        notes.append(
            "So many flags are mostly rows whose class the model cannot tell, rather than wrong "
            "labels."
        )
    codes = tracer.engine.ensemble.y.astype(int)
    for code, label in enumerate(class_labels(tracer)):
        flagged = is_label_issue[codes == code]
        if flagged.any() and flagged.mean() > 0.5:
            notes.append(
                f"Of the rows labelled {label}, {flagged.mean():.0%} are flagged: "
                "acting on all leaves few of them."
            )
    return notes


def _next_step(issues: int) -> str:
    """Advice before anything was tried."""
    if issues:
        return (
            "Such labels are wrong, or right and rare. Look at the first of them; to relabel them "
            f"is suggested only if {words().test_suspects} confirms on other rows that it helps."
        )
    return (
        "No label surprises the model enough to act on; "
        "the first rows of the ranking are the ones to look at."
    )
