"""Cases of a report: test rows, the training rows behind them, predictions without these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.cells import CellTable, short
from ..._data.comparison import compare
from ..._tracer.influence import Ranked
from ..._tracer.noise_floor import noise_marks
from ..._tracer.tracer import Tracer
from .differences import column_scales
from .explained_rows import ExplainedRows, Sides
from .outcomes import Outcomes, outcomes_of

MAX_COLUMNS = 16  # columns that are shown of a row
_KEPT_OUTCOME = ("loss", "prediction", "predicted", "correct", "probability")


def effect_rows(
    tracer: Tracer, train: CellTable, sides: Sides, noise: float = np.nan
) -> list[dict[str, Any]]:
    """Lines of a table of training rows and their effects, without features.

    ``noise``: the size from which a change stands out of retraining; NaN: not measured.
    """
    return [line for ranked in sides for line in _ranked_lines(tracer, train, ranked, noise)]


def _ranked_lines(
    tracer: Tracer, train: CellTable, ranked: Ranked, noise: float
) -> Iterator[dict[str, Any]]:
    """Lines for the training rows of one side."""
    positions, effects, changes = ranked
    pairs = zip(positions.tolist(), effects, changes, strict=True)
    for place, (position, effect, change) in enumerate(pairs, 1):
        yield train.row(position) | {
            "label": short(tracer.y_train[position]),
            "weight": float(tracer.sample_weight[position]),
            "effect": effect,
            "rank": place,
            "change": float(change),
            "above_noise": str(noise_marks(change, noise)),
        }


@dataclass(frozen=True)
class Cases:
    """The test rows that a report shows, with the cells of both tables.

    ``use``  (columns,) how far the model uses each column; None: not known

    Methods count the rows shown from 0, as j."""

    rows: ExplainedRows
    train: CellTable
    test: CellTable
    use: F64 | None = None

    def describe(self, j: int, sides: Sides | None) -> dict[str, Any]:
        """Test row j, and the training rows behind it with their features side by side."""
        rows = self.rows
        position = int(rows.chosen[j])
        lines = []
        if sides is not None:
            lines = effect_rows(rows.tracer, self.train, sides, float(self._noise[j]))
        trained = np.array([line["position"] for line in lines], dtype=np.intp)
        own_cells = self.test.take(rows.chosen[[j]])[0]
        beside = compare(
            self.test.names,
            own_cells,
            self.train.take(trained),
            MAX_COLUMNS,
            use=self.use,
            scale=self._scales,
        )
        for line, values, marks in zip(lines, beside.others, beside.marks, strict=True):
            line |= {"values": values, "marks": marks}
        return {
            **self.test.row(position),
            "label": None if rows.y is None else short(rows.y[position]),
            **rows.outcomes.describe(position),
            "columns": beside.columns,
            "values": beside.values,
            "training_rows": lines,
            "unusual": [],
            "verdict": None,
            "removal": None,
        }

    @cached_property
    def _scales(self) -> F64:
        """(columns,) differences of numbers from which on they are large; NaN: no numbers."""
        return column_scales(self.train)

    @cached_property
    def _noise(self) -> F64:
        """(rows,) the size from which a change stands out of retraining; NaN: not measured."""
        rows = self.rows
        every = np.arange(len(rows))
        if not rows.tracer.floors:
            return np.full(len(every), np.nan)
        baseline = None if rows.baseline is None else rows.baseline[rows.chosen]
        given = (rows.table(every), rows.labels(every), rows.of, None, None, baseline)
        queries, _ = rows.tracer.engine.queries(*given)
        found = rows.tracer.noise_of(queries, 1)
        return np.full(len(every), np.nan) if found is None else found[0]

    def without(self, sides: Sequence[Sides]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Predictions for the test rows without the training rows of one side, leaves refitted.

        Yields (j, before and after) one after the other. Rows without such training rows are
        skipped, and those whose training rows are all that is left of a class."""
        removed = [self._removed(j, both) for j, both in enumerate(sides)]
        places = [j for j, ranked in enumerate(removed) if self._can_remove(ranked[0])]
        if not places:
            return
        engine = self.rows.tracer.engine
        X = self.rows.table(np.array(places, dtype=np.intp))
        sets = [removed[j][0] for j in places]
        scores = engine.scores_without(sets, X, "without the most harmful rows")
        for j, F in zip(places, scores, strict=True):
            gone, effects, _ = removed[j]
            yield (
                j,
                {
                    "rows": len(gone),
                    "effect": effects[0],
                    "before": self._essence(self.rows.outcomes, int(self.rows.chosen[j]), j),
                    "refitted": self._outcome(j, F[None]),
                    "retrained": None,
                },
            )

    def retrained(self, j: int, sides: Sides) -> dict[str, Any]:
        """The prediction for test row j by a model trained again without these rows."""
        model = self.rows.tracer.retrain(self._removed(j, sides)[0])
        return self._outcome(j, model.scores(self.rows.table([j])))

    def _outcome(self, j: int, F: F64) -> dict[str, Any]:
        """The prediction for test row j that other scores F (1, K) of it stand for."""
        codes = self.rows.outcomes.codes
        own = None if codes is None else codes[self.rows.chosen[[j]]]
        outcomes = outcomes_of(self.rows.tracer.engine.reading, F, own)
        return self._essence(outcomes, 0, j)

    def _essence(self, outcomes: Outcomes, row: int, j: int) -> dict[str, Any]:
        """The facts about a prediction that are compared before and after. ``row``: in outcomes."""
        watched = self.rows.outcomes.watched_class(int(self.rows.chosen[j]))
        facts = outcomes.describe(row, watched)
        return {key: facts[key] for key in _KEPT_OUTCOME if key in facts}

    def _removed(self, j: int, sides: Sides) -> Ranked:
        """The side that is removed for test row j: the rows that harm it.

        Without a label it is the side that carries the prediction. For the first of two classes,
        whose score is the lower the more certain it is, these are the rows that lower the score."""
        up, down = sides
        outcomes = self.rows.outcomes
        if outcomes.loss is not None or outcomes.decision is None:
            return up
        first_of_two = outcomes.scores.shape[1] == 1 and outcomes.decision[self.rows.chosen[j]] == 0
        return down if first_of_two else up

    def _can_remove(self, gone: Ints) -> bool:
        """Whether there are rows to remove, and every class keeps some.

        Without a class there is no starting score, and no booster trains."""
        tracer = self.rows.tracer
        if not len(gone):
            return False
        if tracer.classes is None:
            return True
        codes = np.delete(tracer.engine.ensemble.y, gone).astype(int)
        left = np.bincount(codes, minlength=len(tracer.classes))
        return bool((left > 0).all())
