"""The test rows of a report: which are shown, the training rows behind each, and what happens without these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data import inputs
from .._data.arrays import Ints, Real
from .._data.cells import CellTable, short
from .._data.comparison import compare
from .._tracer.influence import Influence, rank
from .._tracer.tracer import Tracer
from .outcomes import Outcomes, outcomes, outcomes_of

BLOCK = 32  # test rows whose influence is in memory at once
COLUMNS = 16  # columns that are shown of one row

Ranked = tuple[
    Ints, list[str], Real
]  # positions of training rows, effects, changes; most important first
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
    up, down = (rank(influence, top, effect) for effect in influence.effect_words)
    yield from zip(up, down, strict=True)


def effect_rows(tracer: Tracer, train: CellTable, both: Sides) -> list[dict[str, Any]]:
    """Lines of a table of training rows and their effects, without features."""
    lines = []
    for positions, effects, changes in both:
        for i, (position, effect, change) in enumerate(
            zip(positions.tolist(), effects, changes, strict=True)
        ):
            lines.append(
                train.row(position)
                | {
                    "label": short(tracer.y_train[position]),
                    "weight": float(tracer.sample_weight[position]),
                }
                | {"effect": effect, "rank": i + 1, "change": float(change)}
            )
    return lines


@dataclass(frozen=True)
class Shown:
    """The test rows that are shown, and what is needed to speak of them."""

    tracer: Tracer
    train: CellTable
    test: CellTable
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
            yield from sides(
                self.tracer.influence(inputs.take_rows(self.X, block), labels, of=of), top
            )

    def describe(self, j: int, both: Sides | None) -> dict[str, Any]:
        """Test row j, and the training rows behind it with their features side by side."""
        row = int(self.rows[j])
        lines = [] if both is None else effect_rows(self.tracer, self.train, both)
        positions = np.array([line["position"] for line in lines], dtype=np.intp)
        beside = compare(
            self.test.names, self.test.take(self.rows[[j]])[0], self.train.take(positions), COLUMNS
        )
        for line, values, marks in zip(lines, beside.others, beside.marks, strict=True):
            line |= {"values": values, "marks": marks}
        said = {"label": None if self.y is None else short(self.y[j]), **self.every.of(row)}
        features = {"columns": beside.columns, "values": beside.values}
        return self.test.row(row) | said | features | {"training_rows": lines, "removal": None}

    def without(self, every: Sequence[Sides]) -> Iterator[tuple[int, dict[str, Any]]]:
        """(j, test row j before and after the training rows of one side are gone, the leaves refitted), one after the
        other; not where there are none, or where they are all that is left of a class."""
        ranked = [
            both[_removed_side(self.every, int(row))]
            for both, row in zip(every, self.rows, strict=True)
        ]
        where = [
            j
            for j, (gone, *_) in enumerate(ranked)
            if len(gone) and _every_class_stays(self.tracer, gone)
        ]
        if not where:
            return
        sets = [ranked[j][0] for j in where]
        X = inputs.take_rows(self.X, np.array(where, dtype=np.intp))
        for j, F in zip(
            where,
            self.tracer.engine.scores_without(sets, X, "without the most harmful rows"),
            strict=True,
        ):
            row = int(self.rows[j])
            (gone, effects, _) = ranked[j]
            after = outcomes_of(
                self.tracer.engine.source, F[None], None if self.y is None else self.y[[j]]
            )
            yield (
                j,
                {
                    "rows": len(gone),
                    "effect": effects[0],
                    "before": _essence(self.every.of(row)),
                    "refitted": _essence(after.of(0, self.every.watched(row))),
                    "retrained": None,
                },
            )

    def retrained(self, j: int, both: Sides) -> dict[str, Any]:
        """Test row j after the model was trained again without these rows."""
        row = int(self.rows[j])
        one = inputs.take_rows(self.X, np.array([j]))
        model = self.tracer.retrain(both[_removed_side(self.every, row)][0])
        label = None if self.y is None else self.y[[j]]
        return _essence(outcomes(model, one, label).of(0, self.every.watched(row)))


def _removed_side(every: Outcomes, row: int) -> int:
    """Of (up, down): what harms the test row. Without a label, what carries its prediction: for the first of two
    classes, whose score is the lower the surer it is, that is down."""
    first_of_two = (
        every.scores.shape[1] == 1 and every.predicted is not None and every.predicted[row] == 0
    )
    return int(every.loss is None and first_of_two)


def _essence(said: dict[str, Any]) -> dict[str, Any]:
    return {
        k: said[k]
        for k in ("loss", "prediction", "predicted", "correct", "probability")
        if k in said
    }


def _every_class_stays(tracer: Tracer, gone: Ints) -> bool:
    """Without a class there is no starting score, and no booster trains."""
    if tracer.classes is None:
        return True
    left = np.bincount(
        np.delete(tracer.engine.ensemble.y, gone).astype(int), minlength=len(tracer.classes)
    )
    return bool((left > 0).all())
