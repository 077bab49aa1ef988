"""Verdicts: a sentence about what is behind a prediction, made from facts.

The facts about a test row: whether training again decides otherwise by chance, whether a handful of
training rows alone make it wrong, which of its values are unusual, how similar the most similar
training rows are and which labels they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.cells import CellTable, short
from ..._data.errors import LeaftraceError
from ..._data.numbers import number_text
from ..._data.progress import progress
from .explained_rows import ExplainedRows, Sides
from .similar import Similar, similar_rows
from .unusual import unusual_values

HARMFUL = 5  # harmful training rows that are looked at
_REFERENCE = 40  # other test rows, to see which similarity is usual
_NAMED = 3  # rows or values in a sentence
_BY_CHANCE = 0.25  # share of retrainings that are right from which chance alone makes it so

RIGHT = "predicted right"
WRONG_LABELS = "possibly wrong labels behind it"
UNUSUAL = "unusual test row"
FEW_SIMILAR = "too few similar rows"
UNPREDICTABLE = "unpredictable at this noise"
EXCEPTION = "an exception among similar rows"
NOTHING = "nothing stands out"
# What a verdict rests on.
COMPARED = "similar training rows, nothing refitted"
STILL_WRONG = "similar training rows; refitted without the most harmful ones it stays wrong"
REFITTED = "refitted with the trees as they are, not retrained"
RETRAINED = "retrained"
_MAYBE = ": that label may be wrong, or a column that would tell is missing."


@dataclass(frozen=True)
class Verdict:
    """A verdict on the prediction of a test row.

    ``kind``      one of the names above
    ``facts``     a sentence with what it rests on
    ``evidence``  how that was found: compared, refitted or retrained; empty for right predictions
    ``noise``     a sentence about what training again does to the prediction by itself; empty: it
                  was not measured
    """

    kind: str
    facts: str
    evidence: str = ""
    noise: str = ""

    def __str__(self) -> str:
        """The verdict in words: kind, facts, evidence and noise."""
        text = f"{self.kind[0].upper()}{self.kind[1:]}"
        text = f"{text}: {self.facts}" if self.facts else f"{text}."
        evidence = f"Evidence: {self.evidence}." if self.evidence else ""
        return " ".join(part for part in (text, evidence, self.noise) if part)

    @property
    def record(self) -> dict[str, str]:
        """The verdict for JSON."""
        return {
            "kind": self.kind,
            "facts": self.facts,
            "evidence": self.evidence,
            "noise": self.noise,
        }


def verdicts(
    rows: ExplainedRows,
    sides: Sequence[Sides],
    train: CellTable,
    test: CellTable,
    *,
    retrain: bool = False,
) -> list[Verdict]:
    """A verdict for each explained row. Rows without a label have none, so the list is empty.

    ``sides``        the training rows behind each
    ``train, test``  both tables, with the columns and row names that may be shown
    ``retrain``      train again without the rows whose labels may be wrong, to see if that holds
    """
    if rows.y is None or rows.outcomes.codes is None:
        return []
    places = np.arange(len(sides))
    unusual = unusual_values(train, test, rows.chosen[places])
    others = np.linspace(0, len(rows.outcomes.scores) - 1, _REFERENCE).astype(np.intp)
    positions, which = np.unique(
        np.concatenate([rows.chosen[places], np.unique(others)]), return_inverse=True
    )
    found = similar_rows(rows, positions)
    similar = [found[i] for i in which[: len(places)]]
    usual = float(np.median([found[i].closeness for i in which[len(places) :]]))
    judge = _Judge(rows, train.rows, usual, _noise_scores(rows, places))
    refits = judge.refits(sides)
    if retrain:
        refits = judge.confirmed(refits)
    return [judge.verdict(j, unusual[j], similar[j], refits.get(j)) for j in places.tolist()]


def headline(found: Sequence[Verdict]) -> str:
    """The verdict that most rows have, in a few words; empty without any."""
    if not found:
        return ""
    kind, count = Counter(verdict.kind for verdict in found).most_common(1)[0]
    return f"{kind} ({count:,} of {len(found):,})"


def _noise_scores(rows: ExplainedRows, places: Ints) -> F64 | None:
    """(repeats, rows, K) scores of the explained rows by models trained again without a random row.

    None: no noise floor was measured for all of them."""
    moves = rows.tracer.noise_moves(rows.table(places), 1) if rows.tracer.floors else None
    return None if moves is None else rows.outcomes.scores[rows.chosen[places]] + moves


def summary(found: Sequence[Verdict]) -> str:
    """How many rows have each verdict, in a sentence."""
    counts = Counter(verdict.kind for verdict in found).most_common()
    rows = "1 test row" if len(found) == 1 else f"{len(found):,} test rows"
    listed = ", ".join(f"{kind} ({n})" for kind, n in counts)
    return f"Verdicts on {rows}: {listed}."


def rests_on(found: Sequence[Verdict]) -> str:
    """A sentence about the evidence of all verdicts, and whether noise was measured."""
    rest = Counter(verdict.evidence for verdict in found if verdict.evidence).most_common()
    evidence = f"Evidence: {'; '.join(f'{how} ({n})' for how, n in rest)}." if rest else ""
    measured = any(verdict.noise for verdict in found)
    noise = "" if measured else "Noise of retraining: not measured."
    return f"{evidence} {noise}".strip()


@dataclass(frozen=True)
class _Refit:
    """A model without a few training rows that harm a test row.

    ``rows``      positions of the training rows
    ``mended``    whether it is right about the test row
    ``evidence``  how the model was made
    """

    rows: Ints
    mended: bool
    evidence: str = REFITTED


@dataclass(frozen=True)
class _Judge:
    """Decides which fact stands out.

    ``names``  (n,) of the training rows
    ``usual``  the closeness of similar rows that is usual for test rows
    ``noisy``  (repeats, rows, K) scores of the explained rows by models trained again; None: not
               measured
    """

    rows: ExplainedRows
    names: np.ndarray
    usual: float
    noisy: F64 | None

    def verdict(
        self, j: int, unusual: Sequence[str], similar: Similar, refit: _Refit | None
    ) -> Verdict:
        """The verdict on the explained row j. ``refit``: without the rows that harm it most."""
        position = int(self.rows.chosen[j])
        noise = self._noise(j, position)
        if self._is_right(position, similar):
            return Verdict(RIGHT, "; ".join(unusual[:_NAMED]), "", noise)
        right, repeats = self._right_by_chance(j, position)
        if repeats and right >= _BY_CHANCE * repeats:
            how = "right" if self.rows.outcomes.decision is not None else "half as wrong"
            facts = f"{right} of {repeats} models trained again without a random row are {how} about it."
            return Verdict(UNPREDICTABLE, facts, RETRAINED, noise)
        if refit is not None and refit.mended:
            return Verdict(WRONG_LABELS, self._named(refit.rows), refit.evidence, noise)
        evidence = COMPARED if refit is None else STILL_WRONG
        return replace(
            self._by_similar_rows(position, unusual, similar), evidence=evidence, noise=noise
        )

    def _named(self, wrong: Ints) -> str:
        """A sentence about the few training rows without which a row is predicted right."""
        names = ", ".join(str(short(name, 40)) for name in self.names[wrong[:_NAMED]])
        return (
            f"without only the {len(wrong)} training rows that harm it most it is "
            f"{self._made_right}: check the labels of {names}."
        )

    def _by_similar_rows(self, position: int, unusual: Sequence[str], similar: Similar) -> Verdict:
        """The verdict on a wrong prediction from the training rows like it."""
        if unusual:
            return Verdict(UNUSUAL, "; ".join(unusual[:_NAMED]) + ".")
        if similar.closeness < 0.5 * self.usual:
            return Verdict(
                FEW_SIMILAR,
                f"the {similar.words} share {similar.closeness:.0%} of the "
                f"leaves with it, where {self.usual:.0%} is usual.",
            )
        return self._by_labels(position, similar)

    @property
    def _made_right(self) -> str:
        if self.rows.outcomes.decision is None:
            return "less than half as wrong"
        return "predicted right"

    def refits(self, sides: Sequence[Sides]) -> dict[int, _Refit]:
        """For each explained row that is wrong: a refit without the most harmful rows of other
        labels. Rows for which there is none, or that cannot be refitted, are left out."""
        suspects = [self._of_other_labels(j, both[0][0]) for j, both in enumerate(sides)]
        tried = [
            j
            for j, rows in enumerate(suspects)
            if self._can_go(rows) and not self._decides_right(int(self.rows.chosen[j]))
        ]
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
            j: _Refit(suspects[j], self._is_mended(int(self.rows.chosen[j]), F[None]))
            for j, F in zip(tried, scores, strict=True)
        }

    def confirmed(self, refits: dict[int, _Refit]) -> dict[int, _Refit]:
        """The same, where those that are mended were retrained."""
        mended = [j for j, refit in refits.items() if refit.mended]
        found = dict(refits)
        for j in progress(mended, len(mended), "retraining without harmful rows", "model"):
            model = self.rows.tracer.retrain(refits[j].rows)
            F = model.scores(self.rows.table(np.array([j])))
            is_right = self._is_mended(int(self.rows.chosen[j]), F)
            found[j] = _Refit(refits[j].rows, is_right, RETRAINED)
        return found

    def _right_by_chance(self, j: int, position: int) -> tuple[int, int]:
        """How many models trained again are right about the row, and how many there are."""
        if self.noisy is None:
            return 0, 0
        right = sum(self._is_mended(position, F[None]) for F in self.noisy[:, j])
        return right, len(self.noisy)

    def _noise(self, j: int, position: int) -> str:
        """A sentence about how far the prediction moves when the model is trained again."""
        if self.noisy is None:
            return ""
        reading = self.rows.tracer.engine.reading
        before = np.asarray(reading.response(self.rows.outcomes.scores[[position]]))
        after = np.asarray(reading.response(self.noisy[:, j]))
        what = "a probability" if self.rows.outcomes.probability is not None else "the prediction"
        return (
            f"Noise floor: {len(self.noisy)} retrainings without a random row move {what} by up to "
            f"{number_text(float(np.abs(after - before).max()))}."
        )

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

    def _decides_right(self, position: int) -> bool:
        """Whether the model's class is that of the label; a number is never just right."""
        outcomes = self.rows.outcomes
        if outcomes.decision is None or outcomes.codes is None:
            return False
        return bool(outcomes.decision[position] == outcomes.codes[position])

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

    def _is_right(self, position: int, similar: Similar) -> bool:
        """Whether the class is right, or the error no larger than for similar training rows."""
        outcomes = self.rows.outcomes
        if outcomes.decision is not None:
            return self._decides_right(position)
        assert outcomes.number is not None
        assert outcomes.codes is not None
        error = abs(outcomes.number[position] - outcomes.codes[position])
        labels = self._labels(similar.rows)
        return bool(error <= np.median(np.abs(labels - np.median(labels))))

    def _by_labels(self, position: int, similar: Similar) -> Verdict:
        """The verdict from the labels of similar rows."""
        outcomes = self.rows.outcomes
        assert outcomes.codes is not None
        label = outcomes.codes[position]
        labels = self._labels(similar.rows)
        count = len(labels)
        if outcomes.decision is None:
            low, high = np.quantile(labels, [0.1, 0.9])
            text = (
                f"labels of the {similar.words} go from {number_text(low)} to "
                f"{number_text(high)} (the middle 80 %)"
            )
            if low <= label <= high:
                return Verdict(UNPREDICTABLE, f"{text}, and its own is among them.")
            return Verdict(EXCEPTION, f"{text}, and its own is {number_text(label)}{_MAYBE}")
        same = int(np.count_nonzero(labels == label))
        name = self._class_name(label)
        have = "has" if same == 1 else "have"
        text = f"{same} of the {similar.words} {have} its label, {name}"
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
        return self.rows.tracer.engine.own_codes[rows]
