"""The tasks of the fuzzer: a seed gives a configuration, and the configuration an outcome."""

from __future__ import annotations

from . import checks, damaged_files, ranker_space, targets_space
from .draw import Draw
from .spaces import draw_configuration

TASKS = {
    "models": (lambda seed: draw_configuration(Draw(seed)), checks.run),
    "rankers": (lambda seed: ranker_space.draw_configuration(Draw(seed)), ranker_space.run),
    "targets": (lambda seed: targets_space.draw_configuration(Draw(seed)), targets_space.run),
    "files": (lambda seed: damaged_files.draw_configuration(Draw(seed)), damaged_files.run),
}


def outcome_of(task, seed):
    """Draw the configuration of a seed, and run it."""
    draw, run = TASKS[task]
    return run(draw(seed))
