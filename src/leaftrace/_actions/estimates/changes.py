"""Parts of actions that search for a better training set: `fix`, `clean`, `mismatch`.

How many models they train depends on what these say, so there are a shortest and a longest course.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np

from ..._data.time_limit import TimeLimit
from ..._tracer.tracer import Tracer
from ..clean.action import make_rounds, measured
from ..clean.rounds import MAX_FAILURES
from ..common import check_tracer, first_order, mean_loss
from ..fix.action import make_search, numbers_of_x
from ..fix.search import GROWTH, Search
from ..mismatch.action import (
    check_settings,
    checked_labels,
    checked_way,
    judged_effects,
    rows_of,
    split_rows,
)
from ..mismatch.group_weights import FOLDS, SHORTEST
from .parts import Course, pass_bytes, without_limit


def of_fix(given: Any) -> Course:
    """The parts of `fix`: rounds of an influence, probes by refits and a retraining."""
    tracer: Tracer = given.tracer
    search, test = make_search(**without_limit(given), time=TimeLimit(None))
    x = search.x
    before = tracer.engine.unchanged
    F = before.scores(x)[0]
    course = Course(pass_bytes(tracer.engine))
    if search.margin(before) > 0:
        return course
    search.gains(tracer, F)  # prepares what further ones share
    numbers = len(numbers_of_x(search, F))
    order, guess = search.ranked(tracer, np.arange(tracer.n_rows), F)
    rounds, halvings = _longest(search, guess)
    # One to rank the rows of a round, one for each number of x, one for the table.
    course.add(
        "influences", 2 + numbers, rounds + 1 + numbers, work=lambda: search.gains(tracer, F)
    )
    if not len(order):
        return course
    training = search.training_set(tracer, order[:guess])
    # Probes of a round, one refit beside each retraining, and one for the result.
    probes = 1 + int(log2(guess))
    most_probes = 2 + 2 * ceil(log2(max(len(order), 2)))
    course.add(
        "refits",
        probes + 2,
        rounds * (most_probes + 1) + halvings + 1,
        work=lambda: tracer.refit(training).scores(x),
    )
    model = course.add("retrainings", 1, rounds + halvings, work=lambda: tracer.retrain(training))
    assert model is not None
    course.add("openings", 0, rounds - 1, work=lambda: tracer.follow(model))
    if test is not None:
        course.add(
            "evaluations",
            1,
            work=lambda: (
                first_order(tracer, test.X, test.y, training),
                model.loss(test.X, test.y),
            ),
        )
    return course


def _longest(search: Search, guess: int) -> tuple[int, int]:
    """Numbers of rounds in which rows are added, and of halvings in which some are put back, at most."""
    size = max(guess, 1)
    rounds = 1
    while size < search.limit:
        size += max(1, ceil(GROWTH * size))
        rounds += 1
    return rounds, ceil(log2(max(search.limit, 2)))


def of_clean(given: Any) -> Course:
    """The parts of `clean`: rounds of a proposal and a retraining."""
    tracer: Tracer = given.tracer
    rounds, y_holdout = make_rounds(**without_limit(given), time=TimeLimit(None))
    course = Course(pass_bytes(tracer.engine))
    fewest = min(MAX_FAILURES, given.max_rounds)

    def propose(to: Tracer = tracer) -> Any:
        return rounds.propose(to, rounds.share, *rounds.halves)[1]

    propose()  # prepares what further ones share
    change = course.add("proposals", fewest, given.max_rounds, work=propose)
    assert change is not None
    trial = rounds.best.then(change, rounds.labels, rounds.weights)

    def retrain() -> Any:
        model = tracer.retrain(trial)
        model.loss(rounds.X, rounds.y)
        return model

    model = course.add("retrainings", fewest, given.max_rounds, work=retrain)
    assert model is not None
    kept = given.max_rounds - 1  # if every round is a gain, the next one starts from its model
    course.add("openings", 0, kept, work=lambda: propose(tracer.follow(model)))
    rounds.best = trial
    course.add(
        "evaluations",
        0,
        1,
        work=lambda: measured(rounds, model, given.X_holdout, y_holdout),
    )
    return course


def of_mismatch(given: Any) -> Course:
    """The parts of `mismatch`: influences on parts of the rows, steps of descent, a retraining."""
    tracer: Tracer = given.tracer
    check_tracer(tracer, "mismatch")
    tracer.engine.needs_derivatives()
    tree = checked_way(given.by, given.features) == "tree"
    check_settings(given.max_factor, given.steps, given.max_groups, given.min_rows)
    y = checked_labels(given.X_test, given.y_test)
    parts = split_rows(len(y), tree, given.seed)
    course = Course(pass_bytes(tracer.engine))
    folds = min(FOLDS, len(parts.choosing) // 2)
    fold = rows_of(given.X_test, y, parts.choosing[: -(-len(parts.choosing) // folds)])
    tracer.influence(*fold, reduce="mean")  # prepares what further ones share
    course.add("influences", folds, work=lambda: tracer.influence(*fold, reduce="mean"))
    if tree:
        growing = rows_of(given.X_test, y, parts.growing)
        course.add("tree influences", 1, work=lambda: tracer.influence(*growing, reduce="mean"))
    choosing = rows_of(given.X_test, y, parts.choosing)
    unchanged = tracer.engine.unchanged
    course.add("steps", 0, given.steps, work=lambda: tracer.engine.slopes_at(unchanged, *choosing))
    weight = tracer.sample_weight
    weight[::2] *= 1.1

    def refit() -> float:
        return mean_loss(tracer.refit(sample_weight=weight), *choosing)

    # The reach of a step doubles with each success and is halved with each failure.
    failures = given.steps + ceil(log2(1 / SHORTEST))
    course.add("refits", 0, given.steps + failures, work=refit)
    training = tracer.engine.training_set(sample_weight=weight)
    model = course.add("retrainings", 0, int(given.retrain), work=lambda: tracer.retrain(training))
    course.add(
        "evaluations",
        0,
        1,
        work=lambda: judged_effects(tracer, given.X_test, y, parts, given.others, training, model),
    )
    return course
