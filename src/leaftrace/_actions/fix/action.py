"""Fixing a prediction: training rows to remove or relabel, and the effect on other predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.row_labels import row_numbers
from ..._data.tables import table
from ..._data.time_limit import TimeLimit
from ..._engine.methods import StructureInfluence
from ..._engine.refit import AlteredModel, RetrainedModel
from ..._model.training_set import TrainingSet
from ..._tracer.answers import kind_of_change
from ..._tracer.tracer import Tracer
from ..common import (
    Finding,
    Interruptible,
    check_tracer,
    first_order,
    mean_loss,
    row_columns,
    stopping_note,
)
from ..effects import Aim, Effect, effects_table, in_target_unit, judged, unit_of
from ..ranking_method import RankingMethod, ranking_method
from ..statistics import half_width
from .advice import DONE, advice_of, is_small, title_of
from .search import Action, Attempt, Search
from .side import numeric_gradient, side_of


def fix(
    tracer: Tracer,
    x: Any,
    y: Any = None,
    *,
    X_test: Any = None,
    y_test: Any = None,
    action: Action = "remove",
    max_rows: int | None = None,
    tolerance: float | None = None,
    rows: Any = None,
    method: RankingMethod | None = None,
    time_limit: float | None = None,
) -> Fix:
    """A smallest set of training rows to remove, or relabel, so that one prediction becomes right.

    A prediction is right if the model decides for the class y, or if the predicted number is within
    the tolerance of y. The set is smallest among the first k rows by influence, with the trees
    fixed; it counts as a success only if training again confirms it. Ctrl-C ends the search with
    the best set so far.

    >>> fix(tracer, X_test.iloc[[7]], y_test[7], X_test=X_holdout, y_test=y_holdout)      # doctest: +SKIP

    ``x, y``       one row, as a table, and its right label; a Pool has both
    ``X_test, y_test``  rows to see the effect of the fix on other predictions. They take no part in
                   choosing, so all of them are held out as long as x is not among them
    ``action``     "remove" the rows or, for classes, "relabel" them with the label of x
    ``max_rows``   give up beyond this many; None: a tenth of the training rows
    ``tolerance``  for numbers: the error to get down to; None: half the present error
    ``rows``       training rows that may be changed, as positions, a mask or a table of ours; None:
                   all
    ``method``     that ranks rows for removal. None: LeafInfluence(), which seldom needs more
                   rows. The sets of StructureInfluence() are a little larger and hold more often when
                   other seeds are trained (docs/actions.md)
    ``time_limit``  seconds after which no more model is trained, once there is one
    """
    search, test = make_search(
        tracer,
        x,
        y,
        X_test,
        y_test,
        action,
        max_rows,
        tolerance,
        rows,
        method,
        TimeLimit(time_limit),
    )
    before = tracer.engine.unchanged
    already_right = search.margin(before) > 0
    interrupted = False
    if not already_right:
        with Interruptible() as run:
            for _ in progress(search.run(), None, "fixing", "model"):
                pass
        interrupted = run.interrupted
    return _result(search, before.scores(x)[0], test, already_right, interrupted)


def make_search(
    tracer: Tracer,
    x: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    action: Action,
    max_rows: int | None,
    tolerance: float | None,
    rows: Any,
    method: RankingMethod | None,
    time: TimeLimit,
) -> tuple[Search, TestRows | None]:
    """Check the arguments of `fix`: the search they ask for, and the test rows."""
    check_tracer(tracer, "fix")
    tracer.engine.needs_derivatives()
    _check_arguments(x, action, max_rows)
    ranks = ranking_method(method, "fix")
    if action == "relabel" and isinstance(ranks, StructureInfluence):
        raise InvalidInput(
            "relabel goes by derivatives in the labels, which hold splits fixed; leave method=, or use action='remove'."
        )
    side = side_of(tracer, x, y, tolerance)
    if action == "relabel" and side.reading.classes is None:
        raise InvalidInput(
            "relabel needs classes, and this model predicts numbers; use action='remove'."
        )
    test = _test_rows(tracer, X_test, y_test)
    allowed = np.zeros(tracer.n_rows, bool)
    allowed[row_numbers(rows, tracer.n_rows, labels=tracer.row_labels)] = True
    limit = int(max_rows or 0) or max(1, tracer.n_rows // 10)
    return Search(tracer, x, side, action, ranks, allowed, limit, time), test


@dataclass(frozen=True, repr=False)
class Fix(Finding):
    """Training rows to remove or relabel so that one prediction becomes right.

    ``fixed``     whether the retrained model is right about x, or the model was from the start
    ``small``     whether the rows are few enough to look at each: at most 2 % of the training rows,
                  or five
    ``rows``      positions of the training rows, in the order they were chosen
    ``action``    "remove" or "relabel"
    ``change``    the new training set: ``tracer.retrain(change)`` trains on it
    ``model``     the model retrained on it; None if none was trained
    ``attempts``  all retrainings that were tried, in order, with the margins they gave
    ``cost``      change of the mean loss of the test rows by retraining, and half of its 95 %
                  interval; None without test rows or retraining
    ``interrupted``  whether Ctrl-C ended the search

    The margin of x is positive on the right side: for classes the raw score of y above the highest
    other one (of two classes with one score, the score towards y), for numbers the tolerance minus
    the error.
    """

    title: str
    advice: str
    fixed: bool
    small: bool
    rows: Ints
    action: Action
    change: TrainingSet
    model: RetrainedModel | None
    attempts: tuple[Attempt, ...]
    cost: tuple[float, float] | None
    interrupted: bool
    _table: Any
    _effects: tuple[Effect, ...]
    _kind: str

    @property
    def table(self) -> Any:
        """The rows with their labels, and the change of the margin by each alone, first order."""
        return self._table

    @property
    def effects(self) -> Any:
        return effects_table(self._effects, self._kind)


@dataclass(frozen=True)
class TestRows:
    """Rows to see the effect on other predictions, with their losses before."""

    X: Any
    y: Any
    losses: F64


def _check_arguments(x: Any, action: str, max_rows: int | None) -> None:
    """Check the arguments of `fix` that need no tracer."""
    if not inputs.is_name(action, DONE):
        raise InvalidInput(f"action is {action!r}; it can be 'remove' or 'relabel'.")
    if inputs.row_count(x) != 1 or len(getattr(x, "shape", (1, 1))) != 2:
        raise InvalidInput(
            "x must be one row, as a table: X_test[7:8] of an array, X_test.iloc[[7]] of a "
            "DataFrame."
        )
    if max_rows is not None and not (inputs.is_whole(max_rows) and max_rows >= 1):
        raise InvalidInput(
            f"max_rows is {max_rows!r}; allow 1 row or more, or None for a tenth of the training "
            "rows."
        )


def _test_rows(tracer: Tracer, X: Any, y: Any) -> TestRows | None:
    """The test rows, if there are any; bad ones are refused before the long work."""
    labels = y if X is None else tracer.engine.test_labels(X, y)
    if (labels is None) != (X is None):
        raise InvalidInput("X_test and y_test go together; pass both, or neither.")
    if X is None:
        return None
    return TestRows(X, y, tracer.engine.unchanged.loss(X, y))


def _result(
    search: Search, F: F64, test: TestRows | None, already_right: bool, interrupted: bool
) -> Fix:
    """Put the result together. ``F`` (K,): scores of x before."""
    training = search.training_set(search.tracer, search.rows)
    refitted = search.tracer.refit(training)
    cost = None if test is None else _cost(search, test)
    effects = _effects_on_x(search, training, F, refitted)
    mean_before = np.nan if test is None else float(test.losses.mean())
    if test is not None:
        interval = None if cost is None else (cost[0] - cost[1], cost[0] + cost[1])
        on_others = _effect_on_test_rows(search, training, refitted, test, cost)
        on_others = replace(judged(on_others, interval), certain=False)  # of one retraining
        effects.append(in_target_unit(on_others, search.side.reading.loss))
    return Fix(
        title=title_of(search, already_right),
        advice=advice_of(search, F, cost, mean_before, already_right, interrupted)
        + stopping_note(search.tracer),
        fixed=already_right or search.fixed,
        small=is_small(len(search.rows), search.tracer.n_rows),
        rows=search.rows,
        action=search.action,
        change=training,
        model=search.model,
        attempts=tuple(search.attempts),
        cost=cost,
        interrupted=interrupted,
        _table=_table(search, F),
        _effects=tuple(effects),
        _kind=search.tracer.table_kind,
    )


def _cost(search: Search, test: TestRows) -> tuple[float, float] | None:
    """Change of the mean loss of the test rows by retraining, and half of its interval."""
    if search.model is None:
        return None
    rise = search.model.loss(test.X, test.y) - test.losses
    return float(rise.mean()), half_width(rise)


def _effects_on_x(
    search: Search, training: TrainingSet, F: F64, refitted: AlteredModel
) -> list[Effect]:
    """Effects on x, whose scores were F (K,)."""
    scalars = numbers_of_x(search, F)

    def predicted(scalar: Callable[[F64], float]) -> float:
        gradient = numeric_gradient(scalar, F)[None]
        return first_order(search.tracer, search.x, None, training, of=gradient)

    def change(scalar: Callable[[F64], float], model: AlteredModel | None) -> float:
        return np.nan if model is None else scalar(model.scores(search.x)[0]) - scalar(F)

    return [
        Effect(
            name,
            scalar(F),
            predicted(scalar),
            change(scalar, refitted),
            change(scalar, search.model),
            better=aim,
            certain=True,  # about the very model that is returned
        )
        for name, (scalar, aim) in scalars.items()
    ]


def numbers_of_x(search: Search, F: F64) -> dict[str, tuple[Callable[[F64], float], Aim]]:
    """The numbers of x that are watched: what is predicted and how wrong it is.

    ``F`` (K,): scores of x before.
    """
    side = search.side
    if side.reading.classes is None:
        closer: Aim = "lower" if side.error(F) > 0 else "higher"
        return {
            "prediction of x": (side.answer, closer),
            "error of x": (lambda scores: abs(side.error(scores)), "lower"),
        }
    numbers: dict[str, tuple[Callable[[F64], float], Aim]] = {}
    if np.isfinite(side.answer(F)):
        numbers[f"probability of {search.label} for x"] = (side.answer, "higher")
    numbers[unit_of(side.reading.loss).renamed("loss of x")] = (side.loss, "lower")
    numbers["margin of x (raw score of its class above the others)"] = (side.margin, "higher")
    return numbers


def _effect_on_test_rows(
    search: Search,
    training: TrainingSet,
    refitted: AlteredModel,
    test: TestRows,
    cost: tuple[float, float] | None,
) -> Effect:
    """Effect on the mean loss of the test rows."""
    before = float(test.losses.mean())
    return Effect(
        "mean loss of the test rows",
        before,
        first_order(search.tracer, test.X, test.y, training),
        mean_loss(refitted, test.X, test.y) - before,
        np.nan if cost is None else cost[0],
    )


def _table(search: Search, F: F64) -> Any:
    """The rows with their labels and gains. ``F`` (K,): scores of x before."""
    tracer = search.tracer
    rows = search.rows
    columns: dict[str, Any] = {
        **row_columns(tracer, rows),
        "given_label": tracer.y_train[rows],
    }
    if search.action == "relabel":
        columns["new_label"] = np.full(len(rows), search.label)
    gains = search.gains(tracer, F)[rows]
    if search.side.reading.classes is None:  # what the margin gains, the error loses
        columns[f"error_change_if_{DONE[search.action]}"] = -gains
    else:
        columns[f"margin_change_if_{DONE[search.action]}"] = gains
    kind = kind_of_change(tracer.engine, search.method)
    columns["change_is"] = np.full(len(rows), kind, dtype=object)
    return table(columns, tracer.table_kind)
