"""The command line: from a model file and two tables to an answer, in one command.

Pipelines rely on the exit codes:

    0    finished
    1    finished, and the answer is no: --fail-above was exceeded, the replay is not exact, the
         prediction was not fixed, cleaning does not help, or the gate stops a batch
    2    an input is wrong: one line says what, and what to do
    3    leaftrace itself failed
    130  stopped with Ctrl-C; what was finished until then is shown
    141  the reader of the output went away, as `head` does
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Ctrl-C is answered as soon as possible, so nothing is loaded that can wait
    from collections.abc import Sequence
    from types import FrameType

OK = 0
NO = 1
WRONG = 2
FAILED = 3
INTERRUPTED = 130
UNREAD = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run `leaftrace` and return its exit code. ``argv``: None for those of the process."""
    handled = _end_on_interrupt()
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import typer  # noqa: F401

        from .commands import app
        from .run import run
    except ImportError as error:
        if error.name not in ("pandas", "pyarrow", "typer"):
            raise
        missing = f"{error.name} is missing; do: pip install 'leaftrace[cli]'"
        print(f"leaftrace: {missing}", file=sys.stderr)
        return WRONG
    finally:
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if argv is not None:
        return run(app, list(argv))
    code = run(app, sys.argv[1:])
    if code == INTERRUPTED:  # do not wait for trainings in the background
        sys.stdout.flush()
        os._exit(code)
    return code


def _end_on_interrupt() -> bool:
    """Let Ctrl-C end the process at once, with one line; return whether it does.

    An exception instead would rely on every module that is being loaded to pass it on. A handler
    of someone else's stays.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    try:
        signal.signal(signal.SIGINT, _end_at_once)
    except ValueError:  # only the main thread may set a handler
        return False
    return True


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os.write(2, b"leaftrace: Interrupted before there was an answer; no file was written.\n")
    os._exit(INTERRUPTED)


__all__ = ["FAILED", "INTERRUPTED", "NO", "OK", "UNREAD", "WRONG", "main"]
