"""Test rows to explain: which they are, and the training rows behind each.

The report and the command line both start here, so that each prediction and each influence is
computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..._adapters.class_names import given_names
from ..._data import inputs
from ..._data.arrays import Ints
from ..._engine.methods import LeafInfluence, Method
from ..._tracer.answers import kind_of_change
from ..._tracer.influence import Influence, Ranked, rank
from ..._tracer.tracer import Tracer
from .outcomes import Outcomes, outcomes_of

Sides = tuple[Ranked, Ranked]  # rows that raise the loss (or score), rows that lower it


@dataclass(frozen=True)
class ExplainedRows:
    """Test rows, the model's predictions for them, and the positions of those to explain.

    ``X, y, baseline``  all test rows, their labels and the scores given to them; None: not given
    ``outcomes``        predictions for all test rows
    ``chosen``          positions of the rows to explain
    ``chosen_by``       how they were chosen, in words
    ``method``          how influence is computed
    """

    tracer: Tracer
    X: Any
    y: np.ndarray | None
    baseline: np.ndarray | None
    outcomes: Outcomes
    chosen: Ints
    chosen_by: str
    method: Method = field(default_factory=LeafInfluence)

    def __len__(self) -> int:
        """Number of rows to explain."""
        return len(self.chosen)

    @property
    def of(self) -> str:
        """The quantity that is explained: the loss, or without labels the prediction."""
        return "prediction" if self.y is None else "loss"

    @property
    def change_is(self) -> str:
        """Which number a change is, in the words of tables."""
        return kind_of_change(self.tracer.engine, self.method)

    def table(self, places: Any) -> Any:
        """Some of the rows to explain as a table. ``places``: which of them, counted from 0."""
        return inputs.take_rows(self.X, self.chosen[places])

    def labels(self, places: Any) -> np.ndarray | None:
        """Labels of some of the rows to explain, or None."""
        return None if self.y is None else self.y[self.chosen[places]]

    def influence(self, places: Ints) -> Influence:
        """Influence of the training rows on some of the rows to explain."""
        baseline = None if self.baseline is None else self.baseline[self.chosen[places]]
        return self.tracer.influence(
            self.table(places),
            self.labels(places),
            of=self.of,
            baseline=baseline,
            method=self.method,
        )

    def influence_blocks(self, size: int) -> Iterator[tuple[Ints, Influence]]:
        """Influence on all rows to explain, in blocks of this size: which rows, and influence.

        Never more than a block of columns is in memory."""
        for start in range(0, len(self), size):
            places = np.arange(start, min(start + size, len(self)))
            yield places, self.influence(places)


def choose_rows(
    tracer: Tracer,
    X: Any,
    y: Any,
    rows: Ints | None,
    worst: int,
    *,
    baseline: Any = None,
    labels_name: str = "y_test",
    method: Method | None = None,
) -> ExplainedRows:
    """Predict all test rows and choose those to explain.

    ``rows``         positions of the rows to explain; None: the `worst`
    ``method``       how influence is computed; None: LeafInfluence()
    ``labels_name``  what the user knows the labels by, for messages
    """
    engine = tracer.engine
    F = engine.as_trained.scores(X, baseline)  # (m, K)
    codes = None if y is None else engine.test_codes(y, len(F), labels_name)
    names = given_names(engine.source)
    if codes is not None and names is not None:
        y = names[codes.astype(int)]
    outcomes = outcomes_of(engine.reading, F, codes)
    chosen, chosen_by = (rows, "asked for") if rows is not None else _worst(outcomes, worst)
    by = LeafInfluence() if method is None else method
    return ExplainedRows(tracer, X, y, baseline, outcomes, chosen, chosen_by, by)


def _worst(outcomes: Outcomes, count: int) -> tuple[Ints, str]:
    """Positions of the rows that are predicted worst, as far as that is known, and how they were
    chosen."""
    if outcomes.loss is not None:
        return np.argsort(-outcomes.loss, kind="stable")[:count], "largest loss"
    if outcomes.probability is not None:
        certainty = outcomes.probability.max(axis=1)
        return np.argsort(certainty, kind="stable")[:count], "least certain"
    return np.arange(min(count, len(outcomes.scores))), "first"


def both_sides(influence: Influence, top: int) -> Iterator[Sides]:
    """The `top` training rows of each side, for each query."""
    up, down = (rank(influence, top, effect) for effect in influence.effect_words)
    yield from zip(up, down, strict=True)
