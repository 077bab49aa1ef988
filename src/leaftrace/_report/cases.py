"""The test rows of a report: which are shown, the training rows behind each, and what happens without these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _inputs
from .._altered import AlteredModel
from .._arrays import Ints, Real
from .._influence import Influence, rank
from .._tracer import Tracer
from .cells import Grid, compare, short
from .outcomes import Outcomes, outcomes

BLOCK = 32  # test rows whose influence is in memory at once
COLUMNS = 16  # columns that are shown of one row

Ranked = tuple[Ints, list[str], Real]  # positions of training rows, effects, changes; most important first
Sides = tuple[Ranked, Ranked]  # rows that raise the loss (or score), rows that lower it


def choose(every: Outcomes, rows: Ints | None, worst: int) -> tuple[Ints, str]:
    """Positions of the test rows to show, and how they were chosen."""
    if rows is not None:
        return rows, "asked for"
    if every.loss is not None:
        return np.argsort(-every.loss, kind="stable")[:worst], "largest loss"
    if every.probability is not None:
        return np.argsort(every.probability.max(axis=1), kind="stable")[:worst], "least certain"
    return np.arange(min(worst, len(every.scores))), "first"


def sides(influence: Influence, top: int) -> Iterator[Sides]:
    """For each query the `top` training rows of either side."""
    up, down = (rank(influence, top, effect) for effect in influence._words)
    yield from zip(up, down, strict=True)


def effect_rows(tracer: Tracer, train: Grid, both: Sides) -> list[dict[str, Any]]:
    """Lines of a table of training rows and their effects, without features."""
    lines = []
    for positions, effects, changes in both:
        for i, (position, effect, change) in enumerate(zip(positions.tolist(), effects, changes, strict=True)):
            lines.append(
                train.row(position)
                | {"label": short(tracer.y_train[position]), "weight": float(tracer.sample_weight[position])}
                | {"effect": effect, "rank": i + 1, "change": float(change)}
            )
    return lines


@dataclass(frozen=True)
class Shown:
    """The test rows that are shown, and what is needed to speak of them."""

    tracer: Tracer
    train: Grid
    test: Grid
    every: Outcomes  # of all test rows
    rows: Ints  # positions of those shown, among all
    X: Any  # these rows
    y: Any  # and their labels, or None

    def __len__(self) -> int:
        return len(self.rows)

    def ranked(self, top: int) -> Iterator[Sides]:
        """The `top` training rows of either side, for each test row. Never more than a block of columns in memory."""
        for start in range(0, len(self), BLOCK):
            block = np.arange(start, min(start + BLOCK, len(self)))
            labels, of = (None, "prediction") if self.y is None else (self.y[block], "loss")
            yield from sides(self.tracer.influence(_inputs.take_rows(self.X, block), labels, of=of), top)

    def describe(self, j: int, both: Sides | None) -> dict[str, Any]:
        """Test row j, and the training rows behind it with their features side by side."""
        row = int(self.rows[j])
        lines = [] if both is None else effect_rows(self.tracer, self.train, both)
        positions = np.array([line["position"] for line in lines], dtype=np.intp)
        beside = compare(self.test.names, self.test.take(self.rows[[j]])[0], self.train.take(positions), COLUMNS)
        for line, values, marks in zip(lines, beside.others, beside.marks, strict=True):
            line |= {"values": values, "marks": marks}
        said = {"label": None if self.y is None else short(self.y[j]), **self.every.of(row)}
        features = {"columns": beside.columns, "values": beside.values}
        return self.test.row(row) | said | features | {"training_rows": lines, "removal": None}

    def without(self, j: int, both: Sides, retrain: bool) -> dict[str, Any] | None:
        """Test row j before and after the training rows of one side are gone; None if there are none, or if they are
        all that is left of a class."""
        row, one = int(self.rows[j]), _inputs.take_rows(self.X, np.array([j]))
        gone, effects, _ = both[_removed_side(self.every, row)]
        if not len(gone) or not _every_class_stays(self.tracer, gone):
            return None
        label, watched = None if self.y is None else self.y[[j]], self.every.watched(row)

        def after(model: AlteredModel) -> dict[str, Any]:
            return _essence(outcomes(model, one, label).of(0, watched))

        return {
            "rows": len(gone),
            "effect": effects[0],
            "before": _essence(self.every.of(row)),
            "refitted": after(self.tracer.refit(gone)),
            "retrained": after(self.tracer.retrain(gone)) if retrain else None,
        }


def _removed_side(every: Outcomes, row: int) -> int:
    """Of (up, down): what harms the test row. Without a label, what carries its prediction: for the first of two
    classes, whose score is the lower the surer it is, that is down."""
    first_of_two = every.scores.shape[1] == 1 and every.predicted is not None and every.predicted[row] == 0
    return int(every.loss is None and first_of_two)


def _essence(said: dict[str, Any]) -> dict[str, Any]:
    return {k: said[k] for k in ("loss", "prediction", "predicted", "correct", "probability") if k in said}


def _every_class_stays(tracer: Tracer, gone: Ints) -> bool:
    """Without a class there is no starting score, and no booster trains."""
    if tracer.classes is None:
        return True
    return len(np.unique(np.delete(tracer.y_train, gone).astype(str))) == len(tracer.classes)
