"""The command line of the fuzzer: one seed again, or fresh seeds for some time."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys

from .draw import Draw
from .pool import run_seeds
from .shrink import shrink
from .spaces import LIBRARIES, draw_configuration
from .summary import Summary
from .tasks import TASKS

FILES_SHARE = 5  # every fifth seed is a damaged file
TASK_OF_REMAINDER = {1: "rankers", 3: "targets"}  # of the others, by the seed modulo eight


def arguments():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone and show what it found")
    parser.add_argument("--files", action="store_true", help="the seed is one of a damaged file")
    parser.add_argument("--rankers", action="store_true", help="the seed is one of a ranker")
    parser.add_argument(
        "--targets", action="store_true", help="the seed is one of a model of several labels"
    )
    parser.add_argument(
        "--library", choices=list(LIBRARIES), help="the seed is one of this library alone"
    )
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="simplify the configuration of the seed as far as it fails",
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long to run fresh seeds")
    parser.add_argument("--first", type=int, help="where fresh seeds begin; by default anywhere")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=list(TASKS), help="one of the tasks")
    return parser.parse_args()


def run_one(given):
    """Run one seed, and print its configuration and findings. Return the exit code."""
    task = next((name for name in TASKS if getattr(given, name, False)), "models")
    draw, run = TASKS[task]
    configuration = draw(given.seed)
    if given.library is not None:
        configuration = draw_configuration(Draw(given.seed), given.library)
    if given.shrink and task in ("models", "targets"):
        configuration, outcome = shrink(configuration, run)
    else:
        outcome = run(configuration)
    print(json.dumps(configuration))
    for finding in outcome.findings:
        print(finding)
    print(f"{sum(outcome.checks.values())} checks: {json.dumps(outcome.checks)}")
    return 1 if outcome.failures else 0


def fresh_seeds(first, only):
    """Yield (task, seed) pairs."""
    for seed in itertools.count(first):
        others = TASK_OF_REMAINDER.get(seed % 8, "models")
        yield only or ("files" if seed % FILES_SHARE == 0 else others), seed


def main():
    given = arguments()
    if given.seed is not None:
        return run_one(given)
    first = random.SystemRandom().randrange(10**9) if given.first is None else given.first
    print(
        f"seeds from {first} on, for {given.minutes:g} minutes in {given.processes} processes",
        flush=True,
    )
    summary = Summary()
    run_seeds(fresh_seeds(first, given.only), given.processes, 60 * given.minutes, summary.add)
    summary.show()
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
