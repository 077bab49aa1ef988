"""Could someone tell from a model that it once saw the removed rows?

Two questions, asked of the model without the rows whose trees were chosen with them (refitted), and of
one that never saw them (retrained):

- A membership attack on the losses of the removed rows. AUC is the chance that a loss of one sample is
  below one of the other (ties count half): 0.5 tells nothing. Rows that a model was trained on have
  lower losses than rows it never saw. Its standard error is that of DeLong's components; where the
  same rows are in both samples, the components of a row are added first.
- The distance of the distributions of scores of the test rows: Wasserstein's, the area between the
  distribution functions, which is the mean difference of sorted answers.

Random groups of the same size, removed and compared in the same way, show what any group would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._engine.refit import AlteredModel
from ..._model.reading import Reading
from ..._tracer.tracer import Tracer

_MODELS = {
    "before": "the model trained with them",
    "refitted": "the model without them (refitted)",
    "retrained": "a model that never saw them (retrained)",
}
_COLUMNS = (
    "comparison", "value", "standard_error", "controls_low", "controls_high", "controls_as_far"
)  # fmt: skip


@dataclass(frozen=True)
class GroupRuns:
    """Models without one group of rows, by the names "before", "refitted" and "retrained".

    ``losses``       for each the losses (g,) of the rows of the group; None where these rows cannot
                     be read again
    ``test_losses``  for each the losses (m,) of the test rows; None without their labels
    ``distance``     between the answers of "refitted" and "retrained" for the test rows
    """

    losses: Mapping[str, F64] | None
    test_losses: Mapping[str, F64] | None
    distance: float


def group_runs(
    tracer: Tracer,
    rows: Ints,
    models: Mapping[str, AlteredModel],
    scores: Mapping[str, F64],
    codes: F64 | None,
) -> GroupRuns:
    """Compare models without these training rows.

    ``scores``  (m, K) of the test rows by each of the models; ``codes`` (m,) their labels
    """
    e = tracer.engine.ensemble
    reading = tracer.engine.reading.with_numbered_classes()
    losses = None
    is_matrix = hasattr(tracer.X_train, "get_label")  # a booster's own: rows cannot be taken out
    if not (is_matrix or e.coupled or e.offset is not None):
        X = inputs.take_rows(tracer.X_train, rows)
        own = tracer.engine.own_codes[rows]
        losses = {way: reading.loss.value(m.scores(X), own) for way, m in models.items()}
    of_test = None
    if codes is not None and not e.coupled:
        of_test = {way: reading.loss.value(scores[way], codes) for way in models}
    distance = np.nan
    if "retrained" in models:
        distance = score_distance(reading, scores["refitted"], scores["retrained"])
    return GroupRuns(losses, of_test, distance)


def score_distance(reading: Reading, one: F64, other: F64) -> float:
    """Wasserstein's distance of the answers to scores (m, K); of several classes, the largest one."""
    a = reading.response(one)
    b = reading.response(other)
    apart = np.abs(np.sort(a, axis=0) - np.sort(b, axis=0)).mean(axis=0)
    return float(np.max(apart))


def auc(lower: F64, higher: F64, paired: bool = False) -> tuple[float, float]:
    """P(lower < higher) with ties as half, and its standard error (DeLong).

    ``paired``: whether the same rows stand in both, in the same order.
    """
    a = np.sort(lower)
    b = np.sort(higher)

    def share_above(x: F64) -> F64:
        """(n,) for each of the lower ones, the share of the higher ones above it."""
        below = np.searchsorted(b, x, side="left")
        up_to = np.searchsorted(b, x, side="right")
        return 1 - (below + up_to) / (2 * len(b))

    def share_below(x: F64) -> F64:
        below = np.searchsorted(a, x, side="left")
        up_to = np.searchsorted(a, x, side="right")
        return (below + up_to) / (2 * len(a))

    of_lower = share_above(lower)
    of_higher = share_below(higher)
    if min(len(lower), len(higher)) < 2:
        return float(of_lower.mean()), np.nan
    if paired:
        variance = (of_lower + of_higher).var(ddof=1) / len(lower)
    else:
        variance = of_lower.var(ddof=1) / len(lower) + of_higher.var(ddof=1) / len(higher)
    # A variance of zero does not mean certainty: so few rows do not show how they vary.
    return float(of_lower.mean()), float(np.sqrt(variance)) if variance > 0 else np.nan


def membership_columns(found: GroupRuns, controls: Sequence[GroupRuns]) -> dict[str, Any]:
    """Columns of the table of the membership test: a line for each comparison."""
    lines: list[dict[str, Any]] = []
    if found.losses is not None:
        if found.test_losses is not None:
            lines += [
                _auc_line(f"removed rows or test rows, by {name}", found, controls, way)
                for way, name in _MODELS.items()
                if way in found.losses
            ]
        if "retrained" in found.losses:
            lines.append(_auc_line("removed rows: refitted or never saw them", found, controls))
    if np.isfinite(found.distance):
        name = "distance of scores of test rows: refitted or never saw them"
        lines.append(_line(name, found.distance, np.nan, [c.distance for c in controls]))
    return {key: [line[key] for line in lines] for key in _COLUMNS}


def _auc_line(
    name: str, found: GroupRuns, controls: Sequence[GroupRuns], way: str | None = None
) -> dict[str, Any]:
    """AUC of losses by one model against those of test rows or, with None, of refitted and retrained."""

    def attack(run: GroupRuns) -> tuple[float, float]:
        assert run.losses is not None
        if way is None:
            return auc(run.losses["refitted"], run.losses["retrained"], paired=True)
        assert run.test_losses is not None
        return auc(run.losses[way], run.test_losses[way])

    value, error = attack(found)
    return _line(name, value, error, [attack(control)[0] for control in controls], 0.5)


def _line(
    name: str, value: float, error: float, drawn: Sequence[float], nothing: float = 0.0
) -> dict[str, Any]:
    """A line of the table. ``nothing``: the value at which nothing can be told."""
    far = [abs(control - nothing) >= abs(value - nothing) for control in drawn]
    return {
        "comparison": name,
        "value": value,
        "standard_error": error,
        "controls_low": min(drawn, default=np.nan),
        "controls_high": max(drawn, default=np.nan),
        "controls_as_far": f"{sum(far)} of {len(far)}" if far else "",
    }
