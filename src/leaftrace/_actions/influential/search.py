"""Search for the few training rows whose removal moves a number most.

Rows leave in rounds. A round refits the model without the rows so far, ranks the others by the
derivative there, and the first of them leave. Derivatives taken once, for all rows at the start,
fail where rows stand in for each other: each of two equal rows changes little alone, and both
together change much.

With `LeafRefit`, the first rows of the ranking are tried: each is taken out of the model together
with the rows so far, exactly, with the trees fixed. That finds the sets which move the refitted model
furthest. It is not what moves a retrained model furthest; see docs/howto/sets.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.time_limit import TimeLimit
from ..._engine.methods import LeafInfluence, LeafRefit, StructureInfluence
from ..._engine.queries import Queries
from ..._engine.refit import RefittedModel
from ..._engine.split_bins import Codes
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer
from ..effects import LossUnit

Method = StructureInfluence | LeafInfluence | LeafRefit
SHORTLIST = 32  # rows that a round tries by exact refits; more for rounds of many rows
MOST_SETS = 100_000  # that an exhaustive search goes through
AS_IT_IS = LossUnit(squared=False)


@dataclass(frozen=True)
class Question:
    """One number of a model's predictions, and the rows that may leave.

    ``queries``  the number, as one query
    ``codes``    (m, d) bins of its test rows, for soft splits; None: not needed
    ``allowed``  (n,) whether a row may be removed
    ``k``        largest number of rows to remove
    ``unit``     how people read the number; changes are in this unit
    ``before``   the number itself, not in this unit
    """

    tracer: Tracer
    queries: Queries
    codes: Codes | None
    allowed: np.ndarray
    k: int
    unit: LossUnit = AS_IT_IS
    before: float = 0.0

    def refit(self, rows: Ints) -> RefittedModel:
        """The model refitted without these rows."""
        engine = self.tracer.engine
        return engine.refit(TrainingSet(engine.n_rows, engine.rest(rows)))

    def refitted_changes(self, sets: Sequence[Ints]) -> F64:
        """(sets,) changes of the number without each set of rows, by exact refits."""
        moved = self.tracer.engine.score_changes_without(sets, self.queries.leaves)
        changes = np.concatenate([self.queries.change(dF)[0] for dF in moved])
        return self.unit.change(self.before, changes)

    def change(self, scores: F64) -> float:
        """Change of the number if its test rows have these scores (m, K)."""
        change = self.queries.change((scores - self.queries.scores)[:, :, None])[0, 0]
        return float(self.unit.change(self.before, change))

    def first_order(self, model: RefittedModel, method: Method) -> F64:
        """(n,) change of the number if a row leaves this model too, to first order.

        In the unit it is a slope at the model as it is, whichever model this is: that leaves the
        order of the rows alone."""
        engine = self.tracer.engine
        point = engine.refit_point(model)
        if isinstance(method, StructureInfluence):
            assert self.codes is not None
            slopes = point.soft_slopes(
                self.queries, engine.soft_splits, self.codes, method.temperature
            )
        else:
            slopes = point.slopes(self.queries)
        change = -engine.ensemble.sample_weight * slopes[:, 0]
        return np.nan_to_num(self.unit.slope(self.before, change))  # NaN where no error is left

    def ranked(self, gain: F64) -> Ints:
        """Rows that may be removed, those of the largest gain first, equal ones by position."""
        order = np.argsort(-gain, kind="stable")
        return order[self.allowed[order]]

    def leavers(self, order: Ints, gone: Ints, count: int) -> Ints:
        """The first `count` rows of an order that can leave after those gone; classes keep a row."""
        left = self._rows_left(gone)
        e = self.tracer.engine.ensemble
        chosen = []
        for row in order[~np.isin(order, gone)].tolist():
            if len(chosen) == count:
                break
            label = float(e.y[row])
            if left:
                if left[label] == 1:
                    continue
                left[label] -= 1
            chosen.append(row)
        return np.array(chosen, dtype=np.intp)

    def _rows_left(self, gone: Ints) -> dict[float, int]:
        """How many rows of each class are left without those gone; empty without classes."""
        e = self.tracer.engine.ensemble
        if self.tracer.classes is None:
            return {}
        live = e.w > 0
        live[gone] = False
        labels, counts = np.unique(e.y[live], return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist(), strict=True))


class Found(NamedTuple):
    """A set of rows.

    ``rows``      positions, in the order of removal
    ``rounds``    (rows,) the round in which each was removed, from 1
    ``refitted``  (rows,) change of the number by a refit without all rows of that round and before
    """

    rows: Ints
    rounds: Ints
    refitted: F64

    @property
    def change(self) -> float:
        """Change of the number without the set, by a refit."""
        return float(self.refitted[-1]) if len(self.rows) else 0.0


NO_ROWS = np.zeros(0, np.intp)
NOTHING = Found(NO_ROWS, NO_ROWS, np.zeros(0))


def one_shot(question: Question, sign: int, first_order: F64) -> Found:
    """The rows of largest first-order change in the direction of the sign, chosen all at once."""
    gain = sign * first_order
    order = question.ranked(gain)
    rows = question.leavers(order[gain[order] > 0], NO_ROWS, question.k)
    if not len(rows):
        return NOTHING
    change = question.refitted_changes([rows])
    return Found(rows, np.ones(len(rows), np.intp), np.repeat(change, len(rows)))


def adaptive(
    question: Question, sign: int, rounds: int, first_order: F64, method: Method, time: TimeLimit
) -> Iterator[Found]:
    """Rows removed in rounds, in the direction of the sign; the set so far after each round.

    ``first_order``  (n,) changes at the model itself, by the method
    ``time``         after which no more round is begun, once there is one
    """
    found = NOTHING
    for number, size in enumerate(_round_sizes(question.k, rounds), start=1):
        if number > 1:
            if not time.allows():
                return
            first_order = question.first_order(question.refit(found.rows), method)
        gain = sign * first_order
        order = question.ranked(gain)
        if isinstance(method, LeafRefit):
            order, gain = _tried(question, found, order, sign, size)
        added = question.leavers(order[gain[order] > 0], found.rows, size)
        if not len(added):
            return
        rows = np.append(found.rows, added)
        change = question.refitted_changes([rows])[0]
        found = Found(
            rows,
            np.append(found.rounds, np.full(len(added), number)),
            np.append(found.refitted, np.full(len(added), change)),
        )
        yield found


def _tried(question: Question, found: Found, order: Ints, sign: int, size: int) -> tuple[Ints, F64]:
    """The first rows of an order, tried by exact refits: their new order, and (n,) their gains."""
    tried = question.leavers(order, found.rows, max(SHORTLIST, 2 * size))
    gain = np.full(question.tracer.n_rows, -np.inf)
    if len(tried):
        changes = question.refitted_changes([np.append(found.rows, row) for row in tried])
        gain[tried] = sign * (changes - found.change)
    return tried[np.argsort(-gain[tried], kind="stable")], gain


def _round_sizes(k: int, rounds: int) -> list[int]:
    """Numbers of rows to remove in each round, k together."""
    return [len(part) for part in np.array_split(np.arange(k), min(k, rounds))]


def exhaustive(question: Question, sign: int) -> Found:
    """The best of all sets of exactly k rows, by exact refits."""
    candidates = np.flatnonzero(question.allowed)
    k = min(question.k, len(candidates))
    count = comb(len(candidates), k)
    if count > MOST_SETS:
        raise InvalidInput(
            f"there are {count:,} sets of {k} of {len(candidates):,} training rows; an exhaustive search goes "
            f"through {MOST_SETS:,} at most: ask for fewer rows, or pass a few candidates as rows=."
        )
    sets = []
    for rows in combinations(candidates.tolist(), k):
        kept = question.leavers(np.array(rows, dtype=np.intp), NO_ROWS, k)
        if len(kept) == k:
            sets.append(kept)
    if not sets:
        return NOTHING
    changes = question.refitted_changes(sets)
    best = int(np.argmax(sign * changes))
    return Found(sets[best], np.ones(k, np.intp), np.full(k, changes[best]))
