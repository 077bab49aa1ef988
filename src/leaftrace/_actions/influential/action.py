"""The set of training rows whose removal moves a prediction or a loss most."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..._data import inputs
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.progress import progress
from ..._data.row_labels import row_numbers
from ..._data.tables import table
from ..._data.time_limit import TimeLimit
from ..._engine.methods import LeafInfluence, LeafRefit, StructureInfluence
from ..._engine.queries import Of, Queries
from ..._model.goal import Goal, ReadyGoal
from ..._tracer.influence import FIRST_ORDER, SOFT_SPLITS
from ..._tracer.noise_floor import noise_marks
from ..._tracer.tracer import Tracer
from ..common import Interruptible, check_tracer, row_columns, stopping_note
from ..effects import Effect, unit_of
from ..statistics import paired_interval
from .confirmation import Confirmation, check_repeats, confirm_sets
from .result import Direction, InfluentialSet, advice_of, moves_as_asked, title_of
from .search import AS_IT_IS, NOTHING, Found, Method, Question, adaptive, exhaustive, one_shot

_SIGNS: dict[str, int] = {"raise": 1, "lower": -1}


def influential_set(
    tracer: Tracer,
    X: Any,
    y: Any = None,
    k: int = 10,
    *,
    of: Of = "loss",
    direction: Literal["raise", "lower"] | None = None,
    output: int | None = None,
    rows: Any = None,
    method: Method | None = None,
    rounds: int = 10,
    search_all: bool = False,
    confirm: int = 0,
    seed: int = 0,
    baseline: Any = None,
    time_limit: float | None = None,
) -> InfluentialSet:
    """At most k training rows whose removal moves a prediction or a loss most, found in rounds.

    The rows that matter most one by one are not the set that matters most: rows stand in for each
    other. So some rows leave, the model is refitted, the others are ranked again, and so on. A row
    that would move the number back does not leave, so there can be fewer than k.

    >>> influential_set(tracer, X_test.iloc[[7]], k=20, of="prediction", confirm=5)    # doctest: +SKIP

    ``X, y``        the test rows, of which the mean counts; labels for the loss
    ``of``          "loss", "prediction" (raw score; of several outputs, `output` or the predicted
                    class) or one of `goals`
    ``direction``   "raise" or "lower" the number; None: where the refit goes further
    ``rows``        training rows that may be removed, as positions, a mask or a table of ours
    ``method``      that ranks rows: StructureInfluence() moves retrained models furthest and is the
                    default, where splits of the model are known; LeafRefit() tries rows by exact
                    refits and moves refitted models furthest; LeafInfluence() is faster than both
    ``rounds``      how often rows are ranked
    ``search_all``  go through all sets of k rows by exact refits, for few rows; gives the best
    ``confirm``     number of retrainings without the set, each also without other random rows, and
                    as many without those alone and without the one-shot set; 0: none
    ``seed``        of these random rows
    ``time_limit``  seconds after which no more round is begun, nor a model trained; of retrainings
                    that were begun, there are enough to judge
    """
    time = TimeLimit(time_limit)
    check_tracer(tracer, "influential_set")
    tracer.engine.needs_derivatives()
    repeats = check_repeats(confirm)
    rng = inputs.random_numbers(seed)
    _check_arguments(of, direction, method, rounds)
    search_all = inputs.flag(search_all, "search_all")
    X = inputs.as_table(X, tracer.X_train)
    question, method = _question(tracer, X, y, k, of, output, rows, method, baseline)
    signs = list(_SIGNS.values()) if direction is None else [_SIGNS[direction]]
    scores = _FirstOrder(question, method)
    chosen = dict.fromkeys(signs, NOTHING)
    with Interruptible() as run:
        for sign in signs:
            if search_all:
                chosen[sign] = exhaustive(question, sign)
                continue
            steps = adaptive(question, sign, int(rounds), scores.ranking, method, time)
            for found in progress(
                steps, min(question.k, int(rounds)), "removing rows", "round", left="at most"
            ):
                chosen[sign] = found
    sign = max(signs, key=lambda sign: sign * chosen[sign].change)
    found = chosen[sign]
    at_once = one_shot(question, sign, scores.fixed)
    interrupted = run.interrupted
    confirmation = None
    if repeats and len(found.rows) and len(at_once.rows) and not interrupted and time.allows():
        with Interruptible() as run:
            confirmation = confirm_sets(question, X, [found.rows, at_once.rows], repeats, rng, time)
        interrupted = run.interrupted
    goes: Direction = "raise" if sign > 0 else "lower"
    way = "going through all sets" if search_all else f"ranking by {type(method).__name__}"
    ended = "Interrupted. " if interrupted else time.note
    return _result(scores, way, goes, found, at_once, confirmation, ended)


class _FirstOrder:
    """First-order changes (n,) of the number if single rows leave the model.

    ``fixed``    with the trees fixed
    ``ranking``  by the method that ranks rows
    """

    def __init__(self, question: Question, method: Method) -> None:
        model = question.tracer.engine.unchanged
        self.question = question
        self.method = method
        self.fixed = question.first_order(model, LeafInfluence())
        self.ranking = self.fixed
        if isinstance(method, StructureInfluence):
            self.ranking = question.first_order(model, method)


def _check_arguments(of: Of, direction: Any, method: Any, rounds: Any) -> None:
    """Check the arguments of `influential_set` that need no tracer."""
    named = isinstance(of, str) and of in ("loss", "prediction")
    if not named and not isinstance(of, (Goal, ReadyGoal)):
        raise InvalidInput(
            f"of is {of!r}; it can be 'loss', 'prediction' or one of lt.goals, whose value is known "
            "as rows leave."
        )
    if not inputs.is_name(direction, (None, *_SIGNS)):
        raise InvalidInput(f"direction is {direction!r}; it can be 'raise', 'lower' or None.")
    if not isinstance(method, (StructureInfluence, LeafInfluence, LeafRefit, type(None))):
        raise InvalidInput(
            f"method is {method!r}; it can be StructureInfluence(), LeafRefit() or LeafInfluence()."
        )
    whole = isinstance(rounds, (int, np.integer)) and not isinstance(rounds, bool)
    if not whole or rounds < 1:
        raise InvalidInput(f"rounds is {rounds!r}; it is a number of rounds, 1 or more.")


def _question(
    tracer: Tracer,
    X: Any,
    y: Any,
    k: Any,
    of: Of,
    output: int | None,
    rows: Any,
    method: Method | None,
    baseline: Any,
) -> tuple[Question, Method]:
    """The number that is to move, the rows that may leave, and the method that ranks them."""
    engine = tracer.engine
    reduce = "mean" if isinstance(of, str) else None
    queries = engine.queries(X, engine.test_labels(X, y), of, reduce, output, baseline)[0]
    live = engine.ensemble.w > 0
    allowed = np.zeros(tracer.n_rows, bool)
    allowed[row_numbers(rows, tracer.n_rows, labels=tracer.row_labels)] = True
    allowed &= live
    most = min(int(allowed.sum()), int(live.sum()) - 1)
    whole = isinstance(k, (int, np.integer)) and not isinstance(k, bool)
    if not whole or not 1 <= k <= most:
        raise InvalidInput(
            f"k is {k!r}; it is a number of training rows to remove, from 1 to {most:,} here: rows= "
            "allows that many, and one row of non-zero weight must be left."
        )
    codes = None
    if method is None or isinstance(method, StructureInfluence):
        try:
            codes = engine.soft_splits.bins.codes(engine.source.split_columns(X))
        except UnsupportedModel:
            if method is not None:
                raise
            method = LeafInfluence()
    unit = unit_of(queries.criterion) if queries.of == "loss" else AS_IT_IS
    question = Question(tracer, queries, codes, allowed, int(k), unit, _value(queries))
    return question, method or StructureInfluence()


def _value(queries: Queries) -> float:
    """The number in the model as it is."""
    if queries.goal is not None:
        return float(queries.goal.at(queries.scores))
    if queries.of == "loss":
        assert queries.y is not None
        return float(queries.criterion.value(queries.scores, queries.y).mean())
    return float(queries.slope(queries.scores[:, :, None])[0, 0])


def _in_words(question: Question) -> str:
    """The number in words."""
    queries = question.queries
    m = len(queries.scores)
    if queries.goal is not None:
        return f"{queries.of} of {m:,} test rows"
    if queries.of == "loss":
        unit = question.unit
        return f"{unit.of_row} of a test row" if m == 1 else f"{unit.name} of {m:,} test rows"
    return f"{queries.of} of a test row" if m == 1 else f"mean {queries.of} of {m:,} test rows"


def _result(
    scores: _FirstOrder,
    way: str,
    direction: Direction,
    found: Found,
    at_once: Found,
    confirmation: Confirmation | None,
    ended: str,
) -> InfluentialSet:
    """Put the result together.

    ``way``    by which the set was found, in words
    ``ended``  what ended it early, in words; empty if nothing did
    """
    question = scores.question
    tracer = question.tracer
    noise = np.nan
    interval = (np.nan, np.nan)
    changes = np.full((2, 1), np.nan)
    if confirmation is not None:
        noise = confirmation.noise
        changes = confirmation.changes
        interval = paired_interval(changes[0])
    sets = {"without these rows": found, "without as many, chosen at once": at_once}
    effects = [
        Effect(
            name,
            float(question.unit.level(question.before)),
            float(scores.fixed[one.rows].sum()),
            one.change,
            float(retrained.mean()),
            str(noise_marks(retrained.mean(), noise)),
            "",
        )
        for (name, one), retrained in zip(sets.items(), changes, strict=True)
    ]
    of = _in_words(question)
    advice = "No row that may leave moves it that way."
    confirmed = None if confirmation is None else changes[0]
    as_asked = moves_as_asked(direction, effects[0])
    if len(found.rows):
        advice = advice_of(effects[0], effects[1], confirmed, noise, interval, as_asked)
    return InfluentialSet(
        title=title_of(direction, of, len(found.rows), way, as_asked),
        advice=ended + advice + stopping_note(tracer, confirmation is not None),
        rows=found.rows,
        labels=tracer.train_index[found.rows],
        rounds=found.rounds,
        direction=direction,
        of=of,
        method=type(scores.method).__name__,
        before=effects[0].before,
        predicted=effects[0].predicted,
        refitted=effects[0].refitted,
        retrained=effects[0].retrained,
        interval=interval,
        noise=noise,
        one_shot=at_once.rows,
        interrupted=bool(ended),
        _table=_table(scores, found),
        _effects=tuple(effects),
        _kind=tracer.table_kind,
    )


def _column(question: Question) -> str:
    """The name of the number in a column's name."""
    if not question.unit.squared:
        return question.queries.of
    return question.unit.of_row if len(question.queries.scores) == 1 else question.unit.name


def _table(scores: _FirstOrder, found: Found) -> Any:
    """The rows in the order of removal."""
    tracer = scores.question.tracer
    soft = isinstance(scores.method, StructureInfluence)
    rows = found.rows
    return table(
        {
            "order": np.arange(1, len(rows) + 1),
            "round": found.rounds,
            **row_columns(tracer, rows),
            "given_label": tracer.y_train[rows],
            f"{_column(scores.question)}_change_if_removed": scores.ranking[rows],
            "change_is": np.full(len(rows), SOFT_SPLITS if soft else FIRST_ORDER, dtype=object),
            "refitted_so_far": found.refitted,
        },
        tracer.table_kind,
    )
