"""A gate before training: is this batch of new rows safe to merge?

Three questions, each with a limit and an interval. What would the rows do to the loss of the test
rows, and of slices of them (the model refitted with the rows added)? How many of their labels look
wrong? How many rows are unlike anything the model was trained on? The gate stops a batch only where
the whole interval is beyond the limit, so that chance alone seldom stops a good one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.grouping import Groups, groups_of
from ..._data.numbers import number_text
from ..._data.row_labels import aligned, labels_of, row_index
from ..._data.tables import table
from ..._data.wording import words
from ..._engine.refit import AlteredModel
from ..._tracer.tracer import Tracer
from ..common import check_tracer
from ..effects import LossUnit, unit_of
from ..statistics import paired_interval
from .labels import LabelCheck, check_labels
from .result import Check, Gate
from .unlike import UnlikeCheck, check_values

_LEAST_SLICE = 20  # test rows that a slice needs to be judged
_LEAST_ROWS = 20  # new rows, and test rows, below which no interval is of use


def gate(
    tracer: Tracer,
    X_new: Any,
    y_new: Any,
    X_test: Any,
    y_test: Any,
    *,
    slices: Any = None,
    max_harm: float | None = 0.01,
    max_suspects: float | None = 0.02,
    max_unlike: float | None = 0.05,
    confidence: float = 0.95,
    retrain: bool = False,
    bins: int = 5,
    seed: int = 0,
) -> Gate:
    """Judge a batch of new training rows before they are merged.

    >>> gate(tracer, X_new, y_new, X_test, y_test, slices="region").check()         # doctest: +SKIP

    ``X_new, y_new``    the batch
    ``X_test, y_test``  rows that the model was not trained on, with labels to be trusted: harm is
                        measured on them, and they show how much right labels surprise the model
    ``slices``          a label for each test row, or a column of X_test, whose parts are judged, too
    ``max_harm``        stop if the mean loss of the test rows, or of a slice, rises by more than
                        this share of it
    ``max_suspects``    stop if more than this share of the labels looks wrong
    ``max_unlike``      stop if more than this share of the rows, beyond that of the test rows, has
                        values that no training row has
    ``confidence``      of the intervals. A limit counts as exceeded if the interval is beyond it
    ``retrain``         measure harm by training again with the rows, instead of refitting the leaves
                        of the trees as they are: slower, with the noise of retraining
    ``bins``            groups that a column of many numbers is cut into
    ``seed``            of the wrong labels that regressors are compared with

    A None in place of a limit leaves that check out. The suspicious share assumes that new rows are
    as hard to predict as the test rows; a batch from a harder region looks as if it had wrong labels.
    """
    check_tracer(tracer, "gate")
    limits = {"max_harm": max_harm, "max_suspects": max_suspects, "max_unlike": max_unlike}
    _check_limits(limits, confidence)
    y_new = _labels(X_new, y_new, "new", _LEAST_ROWS)
    y_test = _labels(X_test, y_test, "test", _LEAST_ROWS)
    checks: list[Check] = []
    if max_harm is not None:
        parts = _slices(tracer, slices, X_test, len(y_test), bins)
        added = (X_new, y_new)
        again = inputs.flag(retrain, "retrain")
        checks += _harm(tracer, added, X_test, y_test, parts, max_harm, confidence, again)
    labels = check_labels(tracer, (X_new, y_new), (X_test, y_test), confidence, seed)
    if max_suspects is not None:
        checks.append(_of_labels(labels, max_suspects))
    values = check_values(tracer.X_train, X_new, X_test, confidence)
    if max_unlike is not None:
        checks.append(_of_values(values, max_unlike))
    suspects = _suspects(labels)
    return Gate(
        title=_title(checks, len(y_new)),
        advice=_advice(checks),
        checks=tuple(checks),
        suspects=table(_lines(X_new, y_new, labels, values, suspects), tracer.table_kind),
        surprise=labels.surprise,
        _kind=tracer.table_kind,
    )


def _check_limits(limits: dict[str, float | None], confidence: float) -> None:
    for name, limit in limits.items():
        if limit is not None and not (inputs.is_number(limit) and limit >= 0):
            raise InvalidInput(f"{name} is {limit!r}; it is a share, 0 or more, or None.")
    if all(limit is None for limit in limits.values()):
        raise InvalidInput("all limits are None, so nothing would be checked; give one of them.")
    if not inputs.is_number(confidence) or not 0.5 <= confidence < 1:
        raise InvalidInput(f"confidence is {confidence!r}; it can be from 0.5 to below 1.")


def _labels(X: Any, y: Any, name: str, least: int) -> np.ndarray:
    """(m,) labels of new or test rows; an error if there are too few rows to judge."""
    m = inputs.row_count(X)
    if m < least:
        raise InvalidInput(
            f"X_{name} has {m} rows, and nothing can be said of fewer than {least}; gather more."
        )
    given = aligned(y, labels_of(X), f"y_{name}", f"X_{name}")
    return inputs.vector(given, f"y_{name}", m)


# ---- harm ----


def _slices(tracer: Tracer, given: Any, X_test: Any, m: int, bins: int) -> Groups | None:
    if given is None:
        return None
    return groups_of(given, X_test, m, "slices", tracer.X_train, bins)


def _harm(
    tracer: Tracer,
    added: tuple[Any, np.ndarray],
    X_test: Any,
    y_test: np.ndarray,
    slices: Groups | None,
    limit: float,
    confidence: float,
    retrain: bool,
) -> list[Check]:
    """The change of the mean loss with the rows added, on all test rows and on each slice."""
    before = tracer.engine.unchanged.loss(X_test, y_test)
    change = _with_rows(tracer, added, retrain).loss(X_test, y_test) - before
    way = "retrained" if retrain else "refitted, trees fixed"
    unit = unit_of(tracer.engine.criterion)
    checks = [_harm_of("all test rows", before, change, limit, confidence, way, unit)]
    if slices is None:
        return checks
    judged = [g for g in range(len(slices)) if slices.count[g] >= _LEAST_SLICE]
    # With many slices one of them would soon be beyond its limit by chance (Bonferroni).
    certainty = 1 - (1 - confidence) / max(1, len(judged))
    for g in judged:
        rows: Ints = slices.rows(g)
        name = f"test rows with {slices.phrase(g)}"
        checks.append(_harm_of(name, before[rows], change[rows], limit, certainty, way, unit))
    return checks


def _with_rows(tracer: Tracer, added: tuple[Any, np.ndarray], retrain: bool) -> AlteredModel:
    if retrain:
        return tracer.retrain(added=added)
    try:
        return tracer.refit(added=added)
    except UnsupportedModel as error:
        raise UnsupportedModel(
            f"harm cannot be measured by a refit: {error} For the gate that is {words().do_retrain}, or no max_harm."
        ) from None


def _harm_of(
    name: str,
    before: F64,
    change: F64,
    limit: float,
    confidence: float,
    way: str,
    unit: LossUnit,
) -> Check:
    """The rise of the mean loss of these rows, as a share of it."""
    loss = float(before.mean())
    scale = loss if loss > 0 else 1.0
    low, high = paired_interval(change, confidence)
    ends = [number_text(unit.level(loss + rise)) for rise in (0.0, float(change.mean()))]
    whole = "the mean squared error" if unit.squared else f"the {unit.name}"
    text = (
        f"the {unit.name} of {len(before):,} rows goes from {ends[0]} to {ends[1]} ({way}); the value is the rise of "
        f"{whole} as a share of it"
    )
    share = float(change.mean()) / scale
    return Check(f"harm: {name}", share, low / scale, high / scale, limit, text)


# ---- labels and values ----


def _of_labels(found: LabelCheck, limit: float) -> Check:
    text = "the labels surprise the model as if this share of them was wrong, compared with the test rows"
    if np.isnan(found.share):
        text = "the model tells right labels from wrong ones too badly for so few rows"
    return Check("suspicious labels", found.share, found.low, found.high, limit, text)


def _of_values(found: UnlikeCheck | None, limit: float) -> Check:
    if found is None:
        text = "these tables have no columns that could be compared"
        return Check("rows unlike anything", np.nan, np.nan, np.nan, limit, text)
    text = f"{found.share:.1%} of the rows have a value that no training row has; this much beyond the test rows"
    return Check("rows unlike anything", found.excess, found.low, found.high, limit, text)


def _suspects(found: LabelCheck) -> Ints:
    """The new rows to look at, the most surprising first: as many as look wrong, or are unusual.

    A label is worth a look if it is more surprising than 99 % of the test labels, or among the
    most surprising share that looks wrong.
    """
    order = np.argsort(-found.surprise, kind="stable")
    unusual = int((found.surprise > found.usual).sum())
    wrong = 0 if np.isnan(found.share) else round(max(found.share, 0.0) * len(order))
    return order[: max(unusual, wrong)]


def _lines(
    X: Any, y: np.ndarray, labels: LabelCheck, values: UnlikeCheck | None, suspects: Ints
) -> dict[str, Any]:
    """Columns of the new rows to look at: suspicious labels, then other rows unlike anything."""
    m = len(y)
    unlike = np.full(m, "", dtype=object) if values is None else values.columns
    others = np.setdiff1d(np.flatnonzero(unlike != ""), suspects)
    rows = np.concatenate([suspects, others]).astype(np.intp)
    return {
        "new_row": row_index(X, m)[rows],
        "position": rows,
        "given_label": y[rows],
        "predicted_label": labels.expected[rows],
        "surprise": labels.surprise[rows],
        "suspicious_label": np.isin(rows, suspects),
        "unlike_in": unlike[rows],
    }


# ---- words ----


def _title(checks: list[Check], m: int) -> str:
    stopped = [check for check in checks if not check.passed]
    if stopped:
        return f"Stop: {len(stopped)} of {len(checks)} checks of {m:,} new rows failed"
    return f"Pass: {len(checks)} checks of {m:,} new rows"


def _advice(checks: list[Check]) -> str:
    stopped = [check for check in checks if not check.passed]
    unknown = [check.name for check in checks if not check.known]
    parts = []
    if stopped:
        parts.append("Do not merge this batch as it is: " + "; ".join(c.sentence for c in stopped))
        parts[-1] += ". Look at the rows in `suspects` first."
    else:
        parts.append("Nothing speaks against merging this batch.")
    if unknown:
        parts.append(f"Not known: {', '.join(unknown)}.")
    return " ".join(parts)
