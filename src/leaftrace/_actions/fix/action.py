"""Fixing a prediction: which training rows to remove, or to relabel, and what that does to all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.tables import table
from ..._data.wording import words
from ..._engine.refit import AlteredModel, RetrainedModel
from ..._tracer.tracer import Tracer
from ..common import (
    Change,
    Effect,
    Finding,
    Interruptible,
    check_tracer,
    effects_table,
    first_order,
    mean_loss,
)
from ..readings import side_of, slope
from .search import Action, Attempt, Search

_DONE = {"remove": "removed", "relabel": "relabelled"}
_DOING = {"remove": "Removing", "relabel": "Relabelling"}


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
) -> Fix:
    """A smallest set of training rows whose removal, or relabelling, brings one prediction to the right side.

    Right is: the model decides for the class y; or the number it predicts is within the tolerance of y. The set is
    smallest among the first k rows by influence, with the trees fixed; a success is one that training again confirms.
    Ctrl-C ends the search with the best set so far.

    >>> fix(tracer, X_test.iloc[[7]], y_test[7], X_test=X_holdout, y_test=y_holdout)      # doctest: +SKIP

    ``x, y``       one row, as a table, and its right label; a Pool has both
    ``X_test, y_test``  rows to see what the fix does to other predictions. They take no part in choosing, so all of
                   them are held out as long as x is not among them
    ``action``     "remove" the rows or, for classes, "relabel" them with the label of x
    ``max_rows``   give up beyond this many; None: a tenth of the training rows
    ``tolerance``  for numbers: the error to get down to; None: half the present error
    ``rows``       positions of the training rows that may be changed, or a mask; None: all
    """
    check_tracer(tracer)
    tracer.engine.needs_derivatives()
    if action not in _DONE:
        raise InvalidInput(f"action is {action!r}; it can be 'remove' or 'relabel'.")
    if inputs.row_count(x) != 1 or len(getattr(x, "shape", (1, 1))) != 2:
        raise InvalidInput(
            "x must be one row, as a table: X_test[7:8] of an array, X_test.iloc[[7]] of a DataFrame."
        )
    if max_rows is not None and max_rows < 1:
        raise InvalidInput(
            f"max_rows is {max_rows}; allow 1 row or more, or None for a tenth of the training rows."
        )
    side = side_of(tracer, x, y, tolerance)
    if action == "relabel" and side.reading.classes is None:
        raise InvalidInput(
            "relabel needs classes, and this model predicts numbers; use action='remove'."
        )
    labelled = y_test is not None or (
        X_test is not None and tracer.engine.source.own_labels(X_test) is not None
    )
    if labelled != (X_test is not None):
        raise InvalidInput("X_test and y_test go together; pass both, or neither.")
    allowed = np.zeros(tracer.n_rows, bool)
    allowed[inputs.row_numbers(rows, tracer.n_rows)] = True
    before = tracer.engine.unchanged
    test = (
        None if X_test is None else (X_test, y_test, before.loss(X_test, y_test))
    )  # refuses bad ones before the work
    search = Search(tracer, x, side, action, allowed, max_rows or max(1, tracer.n_rows // 10))
    interrupted = False
    right = search.margin(before) > 0
    if not right:
        with Interruptible() as run:
            for _ in progress(search.run(), None, "fixing", "model"):
                pass
        interrupted = run.interrupted
    return _report(search, before.scores(x)[0], test, right, interrupted)


@dataclass(frozen=True, repr=False)
class Fix(Finding):
    """Training rows to remove or relabel so that one prediction becomes right.

    ``fixed``     whether the model trained again is on the right side (or the model was from the start); nothing less
                  counts
    ``rows``      positions of the training rows, in the order they were chosen
    ``action``    "remove" or "relabel"
    ``change``    the new training set: ``change.retrain(tracer)`` trains on it
    ``model``     the model retrained on it; None if none was trained
    ``attempts``  all retrainings that were tried, in order, with the margins they gave
    ``cost``      change of the mean loss of the test rows by retraining, and half of its 95 % interval; None without
                  test rows or retraining
    ``interrupted``  whether Ctrl-C ended the search

    The margin of x is positive on the right side: for classes the raw score of y above the highest other one (of two
    classes with one score, the score towards y), for numbers the tolerance minus the error.
    """

    title: str
    advice: str
    fixed: bool
    rows: Ints
    action: Action
    change: Change
    model: RetrainedModel | None
    attempts: tuple[Attempt, ...]
    cost: tuple[float, float] | None
    interrupted: bool
    _table: Any
    _effects: tuple[Effect, ...]
    _kind: str

    @property
    def table(self) -> Any:
        """The rows, with their labels and what each alone would do to the margin of x, to first order."""
        return self._table

    @property
    def effects(self) -> Any:
        return effects_table(self._effects, self._kind)


_Test = tuple[Any, Any, F64] | None  # X, y, losses before


def _report(search: Search, F: F64, test: _Test, right: bool, interrupted: bool) -> Fix:
    change = search.change(search.rows)
    cost = None
    refitted = change.refit(search.tracer)
    effects = _of_x(search, change, F, refitted)
    if test is not None:
        X, y, losses = test
        if search.model is not None:
            rise = search.model.loss(X, y) - losses
            cost = float(rise.mean()), float(1.96 * rise.std() / np.sqrt(len(rise)))
        before = float(losses.mean())
        predicted = first_order(search.tracer, X, y, change)
        after = np.nan if cost is None else cost[0]
        name = "mean loss of the test rows"
        effects.append(Effect(name, before, predicted, mean_loss(refitted, X, y) - before, after))
    return Fix(
        title=_title(search, right),
        advice=_advice(search, F, cost, right, interrupted),
        fixed=right or search.fixed,
        rows=search.rows,
        action=search.action,
        change=change,
        model=search.model,
        attempts=tuple(search.attempts),
        cost=cost,
        interrupted=interrupted,
        _table=_table(search, F),
        _effects=tuple(effects),
        _kind=search.tracer.table_kind,
    )


def _of_x(search: Search, change: Change, F: F64, refitted: AlteredModel) -> list[Effect]:
    """Effects on x, whose scores were F (K,)."""
    side = search.side
    x = search.x
    answer = (
        "prediction of x"
        if side.reading.classes is None
        else f"probability of {search.label} for x"
    )
    scalars: dict[str, Callable[[F64], float]] = {
        "loss of x": side.loss,
        "margin of x": side.margin,
    }
    if np.isfinite(side.answer(F)):
        scalars[answer] = side.answer

    def predicted(q: Callable[[F64], float]) -> float:
        return first_order(search.tracer, x, None, change, of=slope(q, F)[None])

    def moved(q: Callable[[F64], float], model: AlteredModel | None) -> float:
        return np.nan if model is None else q(model.scores(x)[0]) - q(F)

    return [
        Effect(name, q(F), predicted(q), moved(q, refitted), moved(q, search.model))
        for name, q in scalars.items()
    ]


def _table(search: Search, F: F64) -> Any:
    tracer = search.tracer
    rows = search.rows
    columns: dict[str, Any] = {
        "train_row": tracer.train_index[rows],
        "given_label": tracer.y_train[rows],
    }
    if search.action == "relabel":
        columns["suggested_label"] = np.full(len(rows), search.label)
    columns[f"margin_change_if_{_DONE[search.action]}"] = search.gains(tracer, F)[rows]
    return table(columns, tracer.table_kind)


def _title(search: Search, right: bool) -> str:
    if right:
        return "Nothing to fix: the prediction is right"
    if not len(search.rows):
        return "Not fixed"
    return f"{'Fixed' if search.fixed else 'Not fixed'} with {_count(search.rows)} {_DONE[search.action]}"


def _count(rows: Ints) -> str:
    return f"{len(rows):,} training row{'s' * (len(rows) != 1)}"


def _advice(
    search: Search, F: F64, cost: tuple[float, float] | None, right: bool, interrupted: bool
) -> str:
    if right:
        return "The model is right about x already."
    stopped = "Ctrl-C ended the search; this is the best set so far. " if interrupted else ""
    if not len(search.rows):
        return stopped + "No training row that may be changed pulls x to the wrong side."
    tried = f"{len(search.attempts)} retraining{'s' * (len(search.attempts) != 1)}"
    if search.model is None:
        return stopped + "No model was retrained, so nothing is confirmed."
    margins = (
        f"the margin goes from {search.side.margin(F):.3g} to {search.margin(search.model):.3g}"
    )
    if not search.fixed:
        at_limit = search.size >= search.limit and not interrupted
        at = f" {words().max_rows} allows more." if at_limit else ""
        return f"{stopped}After {tried}, {margins}, which is still the wrong side.{at}"
    text = f"{stopped}{_DOING[search.action]} them makes x right, confirmed by training again ({tried}): {margins}."
    if cost is None:
        return f"{text} {words().give_test_rows} to see what that does to other predictions."
    low = cost[0] - cost[1]
    high = cost[0] + cost[1]
    change = f"the mean loss of the test rows changes by {cost[0]:+.2g} (95 % interval {low:+.2g} to {high:+.2g})"
    if low > 0:
        return f"{text} But {change}: this overfits x. Look for wrong labels among the rows and correct only those."
    if high < 0:
        return f"{text} Other predictions gain too: {change}. Check the labels of these rows first."
    return f"{text} For other predictions it makes no difference that can be told: {change}."
