"""Replay of models whose leaves are linear functions; that of all others is in replay.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .._data.progress import progress
from .._model.ensemble import Ensemble
from .._model.linear_leaves import columns_of
from .fidelity import largest_gradient, leaf_scales, refuse_diverged
from .linear_steps import LinearStep, fit_step, output_errors
from .replay import (
    ReplayedStep,
    Trace,
    base_labels,
    judged,
    replay,
    replay_step,
)
from .steps import Step, TrainingScores, run_on_rows

if TYPE_CHECKING:
    from concurrent.futures import Executor


UNDECIDED = (
    "rounding decided which slopes of {} leaves are zero, and so what their rows with missing numbers get; this is "
    "held as it is"
)


def replayed(
    ensemble: Ensemble, tolerance: float, notes: Sequence[str] = (), threads: Executor | None = None
) -> Trace:
    """Replay any model at its own scores, so that each step is judged by itself."""
    if ensemble.linear is None:
        return replay(ensemble, tolerance, notes, threads)
    return _replay_linear(ensemble, tolerance, notes, threads)


def _replay_linear(
    e: Ensemble, tolerance: float, notes: Sequence[str], threads: Executor | None
) -> Trace:
    """Replay a model of linear leaves: the constants as always, then the functions."""
    refuse_diverged(e)
    scores = TrainingScores(e)
    columns = columns_of(e.leaves)
    spread = np.nanmax(columns, axis=0, initial=-np.inf) - np.nanmin(
        columns, axis=0, initial=np.inf
    )
    spread = np.where(np.isfinite(spread), spread, 0.0)
    scales = leaf_scales(e.constants, largest_gradient(e, scores.A), tolerance)
    steps: list[ReplayedStep] = []
    functions: list[LinearStep] = []
    for t in progress(range(e.n_steps), e.n_steps, "replaying", "step"):
        e.move(t, e.leaves, scores.A)
        step = Step(e.constants, t, threads)
        step.stand(scores)
        constants = run_on_rows(replay_step(e.constants, t, scales[t], tolerance), step)
        found = fit_step(e, t, scores.A)
        functions.append(found)
        own = e.rate(t) * constants.trace.s[0, :, 0]
        errors, largest = output_errors(e, t, found.values(e.rate(t), own), spread)
        scales[t:] = np.maximum(scales[t:], largest)
        worst = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
        error = max(float(errors[worst]) / scales[t], constants.error)
        steps.append(replace(constants, error=error, leaf=worst))
    labels = (e.y, e.base_weight)
    undecided = sum(int(x.undecided.sum()) for x in functions)
    if undecided and np.isnan(columns).any():
        notes = [*notes, UNDECIDED.format(undecided)]
    trace = judged(e.constants, steps, labels, base_labels(e), scales[-1], tolerance, notes)
    return replace(trace, ensemble=e, linear=functions)
