"""A process that runs seeds: it reads "task seed" lines and answers each with a line of JSON."""

from __future__ import annotations

import json
import os
import sys


def main():
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from .tasks import outcome_of

    for line in sys.stdin:
        task, seed = line.split()
        answers.write(json.dumps(outcome_of(task, int(seed)).to_json()) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
