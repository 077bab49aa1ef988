"""Parts of actions that remove training rows: `group_effects`, `removal_impact`, `source_values`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import Ints
from ..._engine.many_refits import losses_without, refits_at_once
from ..._tracer.tracer import Tracer
from ..common import check_tracer
from ..group_path import SoftPath, check_steps
from ..groups import check_classes, slice_losses, test_labels, test_slices, training_groups
from ..impact.action import checked_rows
from ..values.sources import MOST_EXACT, make_coalitions
from .parts import Course, pass_bytes


def of_group_effects(given: Any) -> Course:
    """The parts of `group_effects`: an influence a slice, models without each group."""
    tracer: Tracer = given.tracer
    check_tracer(tracer, "group_effects")
    X = given.X_test
    y = test_labels(X, given.y_test)
    groups = training_groups(tracer, given.groups, given.bins)
    slices = test_slices(tracer, given.test_groups, X, given.bins)
    steps = check_steps(given.path)
    if given.refit or given.retrain or steps:
        check_classes(tracer, groups)
    course = Course(pass_bytes(tracer.engine) * refits_at_once(tracer.engine))
    by_size = np.argsort(groups.count, kind="stable")
    middle = groups.rows(int(by_size[len(by_size) // 2]))  # the group of middle size
    unchanged = tracer.engine.unchanged
    course.add("loss calculations", 1, work=lambda: slice_losses(unchanged, slices, X, y))
    if not tracer.engine.ensemble.not_smooth:
        part = np.arange(-(-len(y) // len(slices)))  # as many rows as a slice has
        rows = inputs.take_rows(X, part), y[part]
        tracer.influence(*rows, reduce="mean")  # prepares what further ones share
        course.add("influences", len(slices), work=lambda: tracer.influence(*rows, reduce="mean"))
    if given.refit:
        _refits_of_groups(course, tracer, [groups.rows(g) for g in by_size], X, y)
    if steps:
        path = SoftPath(tracer, slices, X, y, steps)
        course.add("paths", len(groups), work=lambda: path.splits_part(middle))
    course.add(
        "retrainings",
        len(groups) * bool(given.retrain),
        work=lambda: slice_losses(tracer.retrain(middle), slices, X, y),
    )
    return course


def _refits_of_groups(
    course: Course, tracer: Tracer, sets: list[Ints], X: Any, y: np.ndarray
) -> None:
    """Add refits without each set of rows; some run side by side. ``sets``: by size."""
    engine = tracer.engine
    at_once = min(refits_at_once(engine), len(sets))
    start = (len(sets) - at_once) // 2
    middle = sets[start : start + at_once]
    course.add("leaf lookups", 1, work=lambda: engine.source.rows(X))
    course.add(
        "refits" if at_once == 1 else f"times {at_once} refits side by side",
        -(-len(sets) // at_once),
        work=lambda: list(losses_without(engine, middle, X, y)),
        once=course.parts[-1].seconds,
    )


def of_removal_impact(given: Any) -> Course:
    """The parts of `removal_impact`: scores of the test rows without the rows and without controls."""
    tracer: Tracer = given.tracer
    check_tracer(tracer)
    gone = checked_rows(tracer, given.rows)
    engine = tracer.engine
    X = given.X_test
    course = Course(pass_bytes(engine))
    unchanged = engine.unchanged
    course.add("predictions", 1, work=lambda: unchanged.scores(X))
    if not engine.ensemble.not_smooth:
        direction = np.zeros(tracer.n_rows)
        direction[gone] = -tracer.sample_weight[gone]
        course.add("paths", 1, work=lambda: engine.score_changes_along(X, direction))
    course.add("refits", 1 + given.controls, work=lambda: tracer.refit(gone).scores(X))
    count = (1 + given.controls) * bool(given.retrain)
    course.add("retrainings", count, work=lambda: tracer.retrain(gone).scores(X))
    return course


def of_source_values(given: Any) -> Course:
    """The parts of `source_values`: a model for each coalition of sources."""
    costs = make_coalitions(
        given.tracer, given.source, given.X, given.y, given.retrain, given.pairs, given.bins
    )
    sources = len(costs.groups)
    count = (1 << sources) - 1
    if sources > MOST_EXACT:
        # Orders share the set of all sources; sets without one of them are needed besides.
        count = min(count, 1 + sources + 2 * given.pairs * (sources - 1))
    half = (1 << (sources + 1) // 2) - 1
    course = Course(pass_bytes(given.tracer.engine))
    what = "retrainings" if given.retrain else "refits"
    course.add(what, count, work=lambda: costs.mean_loss(half))
    return course
