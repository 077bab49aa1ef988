"""The command line: from a model file and two tables to an answer, in one line.

Exit codes are a contract with pipelines:

    0    done
    1    done, and the answer is no: a --fail-above was crossed, the replay is not exact, a prediction was not fixed,
         cleaning does not help
    2    something given is wrong: one line says what, and what to do
    3    leaftrace itself failed
    130  Ctrl-C; what was finished until then is shown
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
    """Run `leaftrace` with these arguments (None: those of the process), and give its exit code."""
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
