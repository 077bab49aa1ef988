"""Retrainings without a set of rows, beside the noise of retraining.

Retraining once says little: without any few rows training takes other splits. So a set S is removed
together with as many random rows R, several times:

    change_j = Q(retrained without S and R_j) - Q(retrained without R_j)
    noise_j  = Q(retrained without R_j) - Q(model)

The mean of the changes is the answer, and it stands out if it is above what random rows do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.time_limit import TimeLimit
from ..._model.training_set import TrainingSet
from ..._tracer.noise_floor import FEWEST, noise_bounds
from .search import Question


@dataclass(frozen=True)
class Confirmation:
    """Changes of the number by retraining.

    ``changes``  (sets, retrainings) changes of the number without each set
    ``random``   (retrainings,) changes without random rows alone
    """

    changes: F64
    random: F64

    @property
    def noise(self) -> float:
        """The size from which a change of a single retraining stands out of random ones."""
        return float(noise_bounds(self.random[None])[0])


def check_repeats(confirm: Any) -> int:
    """A number of retrainings, zero for none; an error if it is too small to judge."""
    whole = isinstance(confirm, (int, np.integer)) and not isinstance(confirm, bool)
    if not whole or (confirm != 0 and confirm < FEWEST):
        raise InvalidInput(
            f"confirm is {confirm!r}; it is a number of retrainings, {FEWEST} or more, or 0 for none."
        )
    return int(confirm)


def confirm_sets(
    question: Question,
    X: Any,
    sets: Sequence[Ints],
    repeats: int,
    rng: np.random.Generator,
    time: TimeLimit,
) -> Confirmation:
    """Retrain without each of the sets and without random rows.

    ``X``     the test rows
    ``time``  after which no more round is begun, once there are enough to judge
    """
    engine = question.tracer.engine
    engine.retrainings.confirm_eval_set()
    offset = question.queries.scores - engine.ensemble.scores(question.queries.leaves)

    def change(rows: Ints) -> float:
        training = TrainingSet(engine.n_rows, engine.rest(rows))
        scores = engine.retrainings.train(training, engine.work.n_jobs).scores(X)
        return question.change(scores + offset)

    every = np.unique(np.concatenate(sets))
    size = max(len(rows) for rows in sets)
    changes: list[list[float]] = []
    random: list[float] = []
    allowed = time.items(range(repeats), lambda: len(random) >= FEWEST)
    for _ in progress(allowed, repeats, "retraining", "round"):
        drawn = _random_rows(question, every, size, rng)
        without_drawn = change(drawn)
        changes.append([change(np.append(rows, drawn)) - without_drawn for rows in sets])
        random.append(without_drawn)
    return Confirmation(np.array(changes).T, np.array(random))


def _random_rows(question: Question, gone: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Random rows besides those gone: `size` of them, or half of what is left; classes keep some."""
    live = question.tracer.engine.ensemble.w > 0
    live[gone] = False
    rows = np.flatnonzero(live)
    order = rng.permutation(rows)
    return question.leavers(order, gone, min(size, len(rows) // 2))
