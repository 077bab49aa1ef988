"""Influence through soft splits of random models, against differences of the soft program."""

from __future__ import annotations

import numpy as np
from soft_program import SoftProgram
from training_sets import take

import leaftrace as lt

from .asking import asked, compare
from .reference import Answer

MOST_ROWS = 20  # the program is written to be plain, not fast
MOST_TREES = 16
STEP = 1e-5  # of weights
LARGEST_ERROR = (
    1e-5  # of leaf values: rounding to float32 makes 1e-6 of it where residuals are not lost in it
)
CHECK = "soft splits"


def soft_splits(case, tracer, reference, out):
    """The derivative of a sum over test rows and outputs, along directions of the weights."""
    e = tracer.engine.ensemble
    quantised = "use_quantized_grad" in out.configuration["settings"]
    if quantised or case.baseline is not None:  # which the program does not have
        return
    if e.n_rows > MOST_ROWS or len(e.first_output) > MOST_TREES:
        return
    rng = np.random.default_rng(2)
    X = take(case.data.X, np.arange(3))  # where thresholds between training rows lie is left open
    u = rng.normal(size=(3, e.n_outputs))
    goal = u[:, 0] if e.n_outputs == 1 else u
    temperature = float(rng.choice([0.25, 1.0, 3.0]))
    found = asked(
        out, CHECK, False,
        lambda: tracer.influence(
            X, of=goal, reduce="sum", method=lt.StructureInfluence(temperature)
        ).values[:, 0],
    )  # fmt: skip
    if found is None:
        return
    if not np.isfinite(found).all():
        out.note("wrong", CHECK, "not finite")
        return
    source = tracer.engine.source
    columns = source.split_search().values[: len(u)]
    # Target statistics of new rows lie between those of training rows.
    if not np.array_equal(source.split_columns(X), columns, equal_nan=True):
        out.note("undecided", CHECK)
        return
    try:
        program = KinkFree(tracer, X, temperature)
        if not repeats(program):
            raise Kink
        live = np.flatnonzero(e.w > 0)
        directions = [*np.eye(e.n_rows)[live[[0, -1]]], rng.normal(size=e.n_rows)]
        answers = [slope(program, e, v, u) for v in directions]
    except Kink:
        out.note("undecided", CHECK)
        return
    except AssertionError:  # a model that the program does not repeat
        out.note("oracle", "soft program cannot repeat the model")
        return
    scale = max(np.abs(found).max(), 1e-9)
    for v, answer in zip(directions, answers, strict=True):
        compare(out, CHECK, np.array([found @ v]), answer, scale * max(1.0, np.abs(v).sum()))


def repeats(program):
    """Whether all trees have the program's values: those of residuals that are lost in rounding have others."""
    e = program.e
    steps = np.repeat(np.arange(e.n_steps), np.diff(e.step_trees))
    largest = np.zeros(len(steps))
    apart = np.zeros(len(steps))
    for (r, leaf), own in program.own_leaves.items():
        t = steps[r]
        value = e.values[e.leaf_range(t).start + leaf]
        largest[r] = max(largest[r], np.abs(value).max())
        apart[r] = max(apart[r], np.abs(e.rate(t) * own - value).max())
    return bool((apart <= LARGEST_ERROR * largest).all())


class KinkFree(SoftProgram):
    """The program, refusing sides that are so near to l1 or to the largest step that steps of the weights cross it."""

    def side(self, mask, terms):
        found = super().side(mask, terms)
        if self.e.rule.l1 > 0:
            check_kink(np.abs(found.G), self.e.rule.l1)
        return found

    def step_of(self, side, D, lam, times=1.0):
        with np.errstate(all="ignore"):  # sides without a second derivative
            free = times * side.pull(self.e.rule) / (D + lam)
        if np.isfinite(self.e.rule.max_step):
            check_kink(np.abs(free), self.e.rule.max_step)
        return super().step_of(side, D, lam, times)


def check_kink(size, limit):
    if np.any(np.abs(size - limit) < 100 * STEP * (1 + size)):
        raise Kink


class Kink(Exception):
    """The program has no derivative, or is not the model's."""


def slope(program, e, v, u):
    """Return the derivative of the program's scores along a direction of the weights, times u."""

    def at(step):
        return float((program.scores(e.w + step * v * e.w_factor) * u).sum())

    near, far = ((at(step) - at(-step)) / (2 * step) for step in (STEP, 4 * STEP))
    noise = 1e-14 * abs(at(0.0)) / STEP
    return Answer(np.array([near]), np.array([3 * abs(far - near) + 10 * noise]))
