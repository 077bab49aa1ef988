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


class KinkFree(SoftProgram):
    """The program, refusing sides whose gradient is so near to l1 that steps of the weights cross it."""

    def side(self, mask, terms):
        found = super().side(mask, terms)
        size = np.abs(found.G)
        if self.e.rule.l1 > 0 and np.any(np.abs(size - self.e.rule.l1) < 100 * STEP * (1 + size)):
            raise Kink
        return found


class Kink(Exception):
    """The program has no derivative."""


def slope(program, e, v, u):
    """Return the derivative of the program's scores along a direction of the weights, times u."""

    def at(step):
        return float((program.scores(e.w + step * v * e.w_factor) * u).sum())

    near, far = ((at(step) - at(-step)) / (2 * step) for step in (STEP, 4 * STEP))
    noise = 1e-14 * abs(at(0.0)) / STEP
    return Answer(np.array([near]), np.array([3 * abs(far - near) + 10 * noise]))
