"""Verdicts: a sentence about what is behind a prediction, made from facts.

The facts about a test row: whether a handful of training rows alone make it wrong, which of its
values are unusual, how similar the most similar training rows are and which labels they have.
Similar rows are those that share many leaves with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data import inputs
from .._data.arrays import F64, Ints, Real
from .._data.cells import CellTable, short
from .._data.errors import LeaftraceError
from .._data.numbers import number_text
from .._kernels import blocks_of
from .._tracer.influence import largest
from .._tracer.neighbours import leaf_kernel
from .explained_rows import ExplainedRows, Sides
from .unusual import unusual_values

SIMILAR = 20  # similar training rows that are looked at
HARMFUL = 5  # harmful training rows that are looked at
_REFERENCE = 40  # other test rows, to see which similarity is usual
_NAMED = 3  # rows or values in a sentence

RIGHT = "predicted right"
WRONG_LABELS = "possibly wrong labels behind it"
UNUSUAL = "unusual test row"
FEW_SIMILAR = "too few similar rows"
UNPREDICTABLE = "unpredictable at this noise"
EXCEPTION = "an exception among similar rows"
NOTHING = "nothing stands out"
_MAYBE = ": that label may be wrong, or a column that would tell is missing."


@dataclass(frozen=True)
class Verdict:
    """A verdict on the prediction of a test row.

    ``kind``   one of the names above
    ``facts``  a sentence with what it rests on
    """

    kind: str
    facts: str

    def __str__(self) -> str:
        return f"{self.kind[0].upper()}{self.kind[1:]}: {self.facts}" if self.facts else self.kind


@dataclass(frozen=True)
class _Similar:
    """The training rows most similar to a test row.

    ``rows``       positions
    ``closeness``  mean share of trees in which they are in the same leaf
    """

    rows: Ints
    closeness: float


def verdicts(
    rows: ExplainedRows, sides: Sequence[Sides], train: CellTable, test: CellTable
) -> list[Verdict]:
    """A verdict for each explained row. Rows without a label have none, so the list is empty.

    ``sides``        the training rows behind each
    ``train, test``  both tables, with the columns and row names that may be shown
    """
    if rows.y is None or rows.outcomes.codes is None:
        return []
    places = np.arange(len(sides))
    unusual = unusual_values(train, test, rows.chosen[places])
    similar = _similar_rows(rows, rows.chosen[places])
    others = np.linspace(0, len(rows.outcomes.scores) - 1, _REFERENCE).astype(np.intp)
    usual = float(np.median([one.closeness for one in _similar_rows(rows, np.unique(others))]))
    judge = _Judge(rows, train.rows, usual)
    wrong = judge.wrong_labels(sides)
    return [judge.verdict(j, unusual[j], similar[j], wrong.get(j)) for j in places.tolist()]


def summary(found: Sequence[Verdict]) -> str:
    """How many rows have each verdict, in a sentence."""
    counts = Counter(verdict.kind for verdict in found).most_common()
    rows = "1 test row" if len(found) == 1 else f"{len(found):,} test rows"
    return f"Verdicts on {rows}: " + ", ".join(f"{kind} ({n})" for kind, n in counts) + "."


def _similar_rows(rows: ExplainedRows, positions: Ints) -> list[_Similar]:
    """The training rows most similar to the test rows at these positions."""
    engine = rows.tracer.engine
    baseline = None if rows.baseline is None else rows.baseline[positions]
    X = inputs.take_rows(rows.X, positions)
    queries, _ = engine.queries(X, None, "prediction", None, None, baseline)
    outputs = queries.gradient.argmax(axis=1)
    found = []
    for block in blocks_of(len(positions)):
        leaves = queries.leaves[:, block]
        similarity: Real = leaf_kernel(engine.work, leaves, outputs[block])[0]
        for column in similarity.T:
            nearest = largest(column, min(SIMILAR, len(column)))
            found.append(_Similar(nearest, float(column[nearest].mean())))
    return found


@dataclass(frozen=True)
class _Judge:
    """Decides which fact stands out.

    ``names``  (n,) of the training rows
    ``usual``  the closeness of similar rows that is usual for test rows
    """

    rows: ExplainedRows
    names: np.ndarray
    usual: float

    def verdict(
        self, j: int, unusual: Sequence[str], similar: _Similar, wrong: Ints | None
    ) -> Verdict:
        """The verdict on the explained row j.

        ``wrong``: the few training rows without which it is predicted right."""
        position = int(self.rows.chosen[j])
        if self._is_right(position, similar):
            return Verdict(RIGHT, "; ".join(unusual[:_NAMED]))
        if wrong is not None:
            names = ", ".join(str(short(name, 40)) for name in self.names[wrong[:_NAMED]])
            return Verdict(
                WRONG_LABELS,
                f"refitted without only the {len(wrong)} training rows that harm it most it is "
                f"{self._made_right}: check the labels of {names}.",
            )
        if unusual:
            return Verdict(UNUSUAL, "; ".join(unusual[:_NAMED]) + ".")
        if similar.closeness < 0.5 * self.usual:
            return Verdict(
                FEW_SIMILAR,
                f"the {len(similar.rows)} most similar training rows share {similar.closeness:.0%} of the "
                f"leaves with it, where {self.usual:.0%} is usual.",
            )
        return self._by_labels(position, similar)

    @property
    def _made_right(self) -> str:
        if self.rows.outcomes.decision is None:
            return "less than half as wrong"
        return "predicted right"

    def wrong_labels(self, sides: Sequence[Sides]) -> dict[int, Ints]:
        """For each explained row that is right without them: a few training rows of other labels.

        They are the most harmful ones; what happens without them is refitted."""
        suspects = [self._of_other_labels(j, both[0][0]) for j, both in enumerate(sides)]
        tried = [j for j, rows in enumerate(suspects) if self._can_go(rows)]
        if not tried:
            return {}
        engine = self.rows.tracer.engine
        sets = [suspects[j] for j in tried]
        X = self.rows.table(np.array(tried, dtype=np.intp))
        try:
            scores = list(engine.scores_without(sets, X, "without harmful rows"))
        except LeaftraceError:  # some models cannot be refitted without rows
            return {}
        return {
            j: suspects[j]
            for j, F in zip(tried, scores, strict=True)
            if self._is_mended(int(self.rows.chosen[j]), F[None])
        }

    def _of_other_labels(self, j: int, harmful: Ints) -> Ints:
        """The first of the harmful rows whose class is not that of the explained row j."""
        outcomes = self.rows.outcomes
        if outcomes.decision is None or outcomes.codes is None:
            return harmful[:HARMFUL]
        label = outcomes.codes[self.rows.chosen[j]]
        return harmful[self._labels(harmful) != label][:HARMFUL]

    def _can_go(self, rows: Ints) -> bool:
        """Whether there are rows, and every class keeps some without them."""
        tracer = self.rows.tracer
        if not len(rows) or self.rows.baseline is not None:
            return False
        if tracer.classes is None:
            return True
        codes = np.delete(tracer.engine.ensemble.y, rows).astype(int)
        return bool((np.bincount(codes, minlength=len(tracer.classes)) > 0).all())

    def _is_mended(self, position: int, F: F64) -> bool:
        """Whether scores F (1, K) are right about a test row that was wrong, or half as wrong."""
        outcomes = self.rows.outcomes
        reading = self.rows.tracer.engine.reading
        assert outcomes.codes is not None
        label = outcomes.codes[position]
        if outcomes.decision is not None:
            wrong = outcomes.decision[position] != label
            return bool(wrong and reading.decision(F)[0] == label)
        assert outcomes.number is not None
        before = abs(outcomes.number[position] - label)
        return bool(abs(reading.number(F)[0] - label) < 0.5 * before)

    def _is_right(self, position: int, similar: _Similar) -> bool:
        """Whether the class is right, or the error no larger than for similar training rows."""
        outcomes = self.rows.outcomes
        assert outcomes.codes is not None
        if outcomes.decision is not None:
            return bool(outcomes.decision[position] == outcomes.codes[position])
        assert outcomes.number is not None
        error = abs(outcomes.number[position] - outcomes.codes[position])
        labels = self._labels(similar.rows)
        return bool(error <= np.median(np.abs(labels - np.median(labels))))

    def _by_labels(self, position: int, similar: _Similar) -> Verdict:
        """The verdict from the labels of similar rows."""
        outcomes = self.rows.outcomes
        assert outcomes.codes is not None
        label = outcomes.codes[position]
        labels = self._labels(similar.rows)
        count = len(labels)
        if outcomes.decision is None:
            low, high = np.quantile(labels, [0.1, 0.9])
            text = (
                f"labels of the {count} most similar training rows go from {number_text(low)} to "
                f"{number_text(high)} (the middle 80 %)"
            )
            if low <= label <= high:
                return Verdict(UNPREDICTABLE, f"{text}, and its own is among them.")
            return Verdict(EXCEPTION, f"{text}, and its own is {number_text(label)}{_MAYBE}")
        same = int(np.count_nonzero(labels == label))
        name = self._class_name(label)
        have = "has" if same == 1 else "have"
        text = f"{same} of the {count} most similar training rows {have} its label, {name}"
        if same < 0.25 * count:
            return Verdict(EXCEPTION, f"only {text}{_MAYBE}" if same else f"{text}{_MAYBE}")
        if same <= 0.75 * count:
            return Verdict(UNPREDICTABLE, f"{text}.")
        return Verdict(NOTHING, f"{text}.")

    def _class_name(self, code: float) -> Any:
        classes = self.rows.outcomes.classes
        return code if classes is None else short(classes[int(code)], 40)

    def _labels(self, rows: Ints) -> F64:
        """Labels of training rows as the loss takes them."""
        return self.rows.tracer.engine.ensemble.y[rows]
