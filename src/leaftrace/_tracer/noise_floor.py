"""The noise floor: how far a model moves when it is trained again without random rows.

Trees that are chosen anew move predictions and losses, whichever rows go. An effect of k rows can be
told from that only if it is larger than what k random rows do. With the changes d of R retrainings,
each without k rows drawn at random, a change stands out if its size is above both

    t sqrt(mean of d^2)      t: the number that Student's t with R degrees of freedom exceeds with
                             probability 2.5 %
    max |d|                  which holds for changes of any distribution

so that of rows without a special effect at most one in twenty does, for each test row. The first
bound is about zero and not about the mean of d: an offset that all retrainings share is no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data import frames, inputs
from .._data.arrays import F64, Ids, Ints
from .._data.errors import InvalidInput
from .._data.progress import progress
from .._data.student import student
from .._data.tables import table
from .._data.time_limit import TimeLimit
from .._engine.queries import Queries
from .._model.training_set import TrainingSet

if TYPE_CHECKING:
    from .._engine.engine import Engine

_TAIL = 0.025
FEWEST = 3  # retrainings from which a spread can be judged
_DRAWS = 100  # attempts to draw rows that leave every class some


@dataclass(frozen=True, repr=False)
class NoiseFloor:
    """Changes of predictions and losses by retraining without random rows.

    ``rows``        (repeats, removed) positions of the random rows that each retraining was without
    ``moves``       (repeats, m, K) changes of the raw scores of the test rows
    ``test_index``  (m,) names of the test rows
    ``loss_changes``  (repeats, m) changes of their losses; None without labels
    ``note``        a sentence about early stopping; empty without
    """

    rows: Ints
    moves: F64
    test_index: np.ndarray
    loss_changes: F64 | None
    note: str
    _leaves: Ids  # (trees, m) of the test rows in the model itself
    _kind: str  # of tables

    @property
    def removed(self) -> int:
        """Number of random rows that each retraining was without."""
        return self.rows.shape[1]

    @property
    def repeats(self) -> int:
        """Number of retrainings."""
        return len(self.moves)

    @property
    def done(self) -> str:
        """A phrase that says what was done."""
        rows = "a random row" if self.removed == 1 else f"{self.removed:,} random rows"
        return f"{self.repeats} retrainings without {rows}"

    @property
    def mean_loss(self) -> float:
        """The size from which a change of the mean loss stands out; NaN without labels."""
        if self.loss_changes is None:
            return np.nan
        return float(noise_bounds(self.loss_changes.mean(axis=1)[None])[0])

    @property
    def table(self) -> Any:
        """For each test row the size from which a change of its prediction or loss stands out.

        Of several outputs, `prediction_noise` is that of the output that moves most.
        """
        by_output = np.stack([noise_bounds(d.T) for d in np.moveaxis(self.moves, 2, 0)])
        columns = {"test_row": self.test_index, "prediction_noise": by_output.max(axis=0)}
        if self.loss_changes is not None:
            columns["loss_noise"] = noise_bounds(self.loss_changes.T)
        return table(columns, self._kind)

    def changes(self, queries: Queries) -> F64:
        """(queries, repeats) changes of these queries; NaN where a test row was not measured.

        A test row counts as measured if one in the same leaves of all trees was.
        """
        place = self.places(queries.leaves)
        missing = place < 0
        if queries.reduce and missing.any():
            return np.full((1, self.repeats), np.nan)
        moved = np.moveaxis(self.moves[:, place], 0, 2)  # (m, K, repeats)
        changes = queries.change(np.ascontiguousarray(moved))
        if not queries.reduce:
            changes[missing] = np.nan
        return changes

    def places(self, leaves: Ids) -> Ints:
        """(m,) which measured row each row with these leaves (trees, m) is; -1: none."""
        if np.array_equal(leaves, self._leaves):
            return np.arange(leaves.shape[1])
        # Of measured rows in the same leaves, the one that moved most.
        order = np.argsort((self.moves**2).sum(axis=(0, 2)), kind="stable")
        place = {np.ascontiguousarray(self._leaves[:, j]).tobytes(): int(j) for j in order}
        keys = [np.ascontiguousarray(column).tobytes() for column in leaves.T]
        return np.array([place.get(key, -1) for key in keys], dtype=np.intp)

    def __repr__(self) -> str:
        size = f"predictions stand out from {np.median(self._prediction_noise):.2g} on"
        if self.loss_changes is not None:
            single = np.median(noise_bounds(self.loss_changes.T))
            size = (
                f"a change of the mean loss stands out from {self.mean_loss:.2g} on, of a single loss from "
                f"{single:.2g} (median)"
            )
        note = f" {self.note}" if self.note else ""
        return f"NoiseFloor({self.done}; {len(self.test_index):,} test rows: {size}).{note}"

    @property
    def _prediction_noise(self) -> F64:
        """(m K,) sizes from which changes of scores stand out."""
        return noise_bounds(self.moves.reshape(self.repeats, -1).T)


def noise_bounds(changes: F64) -> F64:
    """(queries,) the size that a change must exceed, from those without random rows (queries, repeats)."""
    rms = np.sqrt((changes**2).mean(axis=1))
    return np.maximum(student(_TAIL, changes.shape[1]) * rms, np.abs(changes).max(axis=1))


def size_bound(sizes: F64) -> float:
    """The number that a size must exceed, from sizes (repeats,) without random rows.

    Sizes are never negative, so the bound is about their mean: mean + t s sqrt(1 + 1 / R), with
    R - 1 degrees of freedom.
    """
    R = len(sizes)
    spread = student(_TAIL, R - 1) * sizes.std(ddof=1) * np.sqrt(1 + 1 / R)
    return max(float(sizes.mean() + spread), float(sizes.max()))


def noise_marks(change: Any, bound: Any) -> np.ndarray:
    """ "yes" where a change is above the bound, "no" where not, empty where there is no bound."""
    change, bound = np.broadcast_arrays(np.asarray(change, float), np.asarray(bound, float))
    marks = np.where(np.abs(change) > bound, "yes", "no").astype(object)
    marks[np.isnan(bound)] = ""
    return marks


class NoiseFloors:
    """The noise floors that a tracer has measured."""

    engine: Engine
    X_train: Any
    floors: tuple[NoiseFloor, ...] = ()

    def noise_floor(
        self,
        X: Any,
        y: Any = None,
        *,
        removed: int = 1,
        repeats: int = 10,
        seed: int = 0,
        baseline: Any = None,
        time_limit: float | None = None,
    ) -> NoiseFloor:
        """Train again a few times without random rows, to see which effects stand out of that.

        >>> tracer.noise_floor(X_test, y_test)                    # doctest: +SKIP
        >>> tracer.influence(X_test, y_test).top(5)               # doctest: +SKIP

        Trees that are chosen anew move every prediction, whichever row goes. Once this is measured,
        tables about these test rows have a column `above_noise`: "yes" where a change is larger
        than those without random rows, "no" where not, and empty where it was not measured.

        ``X, y``     test rows, as in `influence`; without labels, predictions alone
        ``removed``  how many random rows each retraining is without. Effects of so many rows are
                     compared with it and no others: 1 for `influence`, the size of the group for
                     `removal_impact`
        ``repeats``  how many retrainings, 3 or more; few make the bound wide
        ``seed``     of the random rows
        ``time_limit``  seconds after which no more retraining is begun, once there are 3
        """
        limit = TimeLimit(time_limit)
        X = inputs.as_table(X, self.X_train)
        floor = _measure(self.engine, X, y, removed, repeats, seed, baseline, self.X_train, limit)
        self.floors = (*self.floors, floor)
        return floor

    def noise_moves(self, X: Any, removed: int) -> F64 | None:
        """(repeats, m, K) changes of the scores of X without so many random rows.

        None if they were not measured for all these rows.
        """
        measured = [floor for floor in reversed(self.floors) if floor.removed == removed]
        leaves = self.engine.source.rows(X)[0] if measured else None
        for floor in measured:
            assert leaves is not None
            place = floor.places(leaves)
            if (place >= 0).all():
                return floor.moves[:, place]
        return None

    def noise_of(self, queries: Queries, removed: int) -> tuple[F64, str] | None:
        """(queries,) sizes from which effects of so many rows stand out, and what was done.

        None if no floor was measured for this number of rows. NaN: not for this test row.
        """
        floors = [floor for floor in reversed(self.floors) if floor.removed == removed]
        if not floors:
            return None
        bounds = np.full(len(queries), np.nan)
        for floor in floors:
            found = noise_bounds(floor.changes(queries))
            bounds = np.where(np.isnan(bounds), found, bounds)
        return bounds, floors[0].done


def _measure(
    engine: Engine,
    X: Any,
    y: Any,
    removed: int,
    repeats: int,
    seed: int,
    baseline: Any,
    X_train: Any,
    limit: TimeLimit,
) -> NoiseFloor:
    """Retrain without random rows and compare the scores of X."""
    if not inputs.is_whole(repeats) or repeats < FEWEST:
        raise InvalidInput(
            f"repeats is {repeats!r}; it is a number of retrainings, {FEWEST} or more."
        )
    y = engine.test_labels(X, y)
    of = "prediction" if y is None else "loss"
    queries, test_index = engine.queries(X, y, of, None, None, baseline)
    rng = inputs.random_numbers(seed)
    draws = [_random_rows(engine, removed, rng) for _ in range(int(repeats))]
    offset = engine.source.rows(X, baseline)[1]
    engine.retrainings.confirm_eval_set()
    first = len(engine.retrainings.rounds)

    def moves_without(rows: Ints) -> F64:
        training = TrainingSet(engine.n_rows, engine.rest(rows))
        scores = engine.retrainings.train(training, 1).scores(X)
        return scores + (0.0 if offset is None else offset) - queries.scores

    models = engine.work.map(moves_without, limit.items(draws, lambda: limit.begun >= FEWEST))
    moves = np.array(list(progress(models, len(draws), "noise floor", "model")))
    losses = None
    if y is not None:
        losses = queries.change(np.ascontiguousarray(np.moveaxis(moves, 0, 2))).T
    note = engine.retrainings.in_words(first)
    if limit.passed:
        note = f"{limit.in_words(limit.begun, len(draws), 'retrainings')} {note}".strip()
    kind = frames.kind(X_train)
    return NoiseFloor(
        np.array(draws[: limit.begun]),
        moves,
        test_index,
        losses,
        note,
        np.array(queries.leaves),
        kind,
    )


def _random_rows(engine: Engine, removed: int, rng: np.random.Generator) -> Ints:
    """Positions of random training rows that have a weight; every class keeps some."""
    e = engine.ensemble
    live = np.flatnonzero(e.w > 0)
    if not inputs.is_whole(removed) or not 1 <= removed < len(live):
        raise InvalidInput(
            f"removed is {removed!r}; it is a number of random rows, from 1 to {len(live) - 1:,}."
        )
    classes = None if engine.source.classes is None else np.unique(e.y[live])
    for _ in range(_DRAWS):
        rows = rng.choice(live, int(removed), replace=False)
        if classes is None or len(np.unique(np.delete(e.y, rows))) >= len(classes):
            return rows
    raise InvalidInput(
        f"removed is {removed:,}; without that many random rows a class has none left."
    )
