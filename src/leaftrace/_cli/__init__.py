"""The command line: from a model file and two tables to an answer, in one command.

Pipelines rely on the exit codes:

    0    finished
    1    finished, and the answer is no: --fail-above was exceeded, the replay is not exact, the
         prediction was not fixed, or cleaning does not help
    2    an input is wrong: one line says what, and what to do
    3    leaftrace itself failed
    130  stopped with Ctrl-C; what was finished until then is shown
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

OK = 0
NO = 1
WRONG = 2
FAILED = 3
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run `leaftrace` and return its exit code. ``argv``: None for those of the process."""
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        print(
            f"leaftrace: {error.name} is missing; do: pip install 'leaftrace[cli]'", file=sys.stderr
        )
        return WRONG
    from .commands import app
    from .run import run

    return run(app, list(sys.argv[1:] if argv is None else argv))


__all__ = ["FAILED", "INTERRUPTED", "NO", "OK", "WRONG", "main"]
