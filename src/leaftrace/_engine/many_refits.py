"""Losses of test rows by refits without several sets of rows, one set after another.

The leaves of the test rows are found once for all refits, and whole refits are spread over the threads
instead of the steps of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._data.arrays import F64, Ints
from .._data.row_labels import aligned, labels_of
from .._model.training_set import TrainingSet
from .refit import alter, refit_on

if TYPE_CHECKING:
    from .engine import Engine


def losses_without(engine: Engine, sets: Iterable[Ints], X: Any, y: Any = None) -> Iterator[F64]:
    """(m,) losses of the rows of X by the model refitted without each set: as `RefittedModel.loss`."""
    work = engine.work
    if engine.ensemble.coupled:
        for rows in sets:
            yield engine.refit(TrainingSet(engine.n_rows, engine.rest(rows))).loss(X, y)
        return
    leaves, offset = engine.source.rows(X)
    y = engine.source.own_labels(X) if y is None else aligned(y, labels_of(X), "y")
    codes = engine.test_codes(y, leaves.shape[1], "y")

    def losses(rows: Ints) -> F64:
        training = TrainingSet(engine.n_rows, engine.rest(rows))
        refitted = refit_on(work.trace, alter(engine.source, training))
        return engine.criterion.value(refitted.scores(leaves, offset), codes)

    yield from work.map(losses, sets, refits_at_once(engine))


def refits_at_once(engine: Engine) -> int:
    """Number of refits that run side by side: each has a copy of the leaves of the rows that stay."""
    work = engine.work
    if engine.ensemble.coupled:
        return 1
    fitting = work.memory_limit // (2 * engine.ensemble.leaves.nbytes)
    return max(1, min(work.n_jobs, fitting))
