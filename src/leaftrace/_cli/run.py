"""From a call to an exit code: every error is one line that says what to do."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from types import FrameType
from typing import Any

from .._data.errors import LeaftraceError
from .._data.wording import Wording, use_words
from . import FAILED, INTERRUPTED, OK, WRONG
from .output import clean

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# How messages name the things a user can change: by options in place of Python's arguments.
OPTION_WORDS = Wording(
    test_suspects="--hold TABLE",
    give_test_rows="Give more test rows",
    accept_inexact="--fidelity warn",
    use_controls="--controls 5",
    look_first="Look at some of them before you do",
    validation_rows="the table of --val",
    holdout_rows="the table of --hold",
    max_rows="--max-rows",
    do_retrain="leave out --no-retrain",
    do_refit="leave out --no-refit",
    no_refit="--no-refit",
    give_parameters="Give --param max_depth=... --param learning_rate=...",
)


class Pressed:
    """Whether Ctrl-C was pressed, also where the work was ended in good order because of it."""

    def __init__(self) -> None:
        self.yes = False

    def __enter__(self) -> Pressed:
        self._before: Any = None
        with suppress(ValueError):  # not the main thread: no one can press anything
            self._before = signal.signal(signal.SIGINT, self._on_press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_press(self, number: int, frame: FrameType | None) -> None:
        self.yes = True
        signal.default_int_handler(number, frame)


def run(app: Any, argv: list[str]) -> int:
    with Pressed() as pressed, use_words(OPTION_WORDS), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(argv, standalone_mode=False, prog_name="leaftrace")
        except Exception as error:
            if "--debug" in argv:
                traceback.print_exception(error)
            return _explain(error)
    if pressed.yes and code != INTERRUPTED:
        _say("Interrupted: this is what was finished until then.")
        return INTERRUPTED
    return code if isinstance(code, int) else OK


def _explain(error: Exception) -> int:
    """One line on stderr, and the exit code."""
    if hasattr(error, "format_message"):  # typer's own, of wrong options
        command = getattr(getattr(error, "ctx", None), "command_path", "leaftrace")
        _say(f"{error.format_message()} See: {command} --help")  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(error, LeaftraceError):
        _say(str(error))
    elif isinstance(error, ImportError):
        _say(
            f"{error.name or error} is missing; install it, for example: pip install 'leaftrace[{error.name}]'"
        )
    elif isinstance(error, MemoryError):
        _say(
            "there is not enough memory; give fewer test rows (--rows, --worst), or a machine with more."
        )
    elif isinstance(error, OSError):
        where = f" '{error.filename}'" if error.filename else ""
        hint = (
            "free some space or choose another place"
            if error.errno in _NO_SPACE
            else "check the path"
        )
        _say(f"cannot use the file{where}: {error.strerror or error}; {hint}.")
    else:
        _say(
            f"leaftrace failed: {type(error).__name__}: {error} (--debug shows where; please report it)"
        )
        return FAILED
    return WRONG


def _say(text: str) -> None:
    print(f"leaftrace: {clean(' '.join(text.split()))}", file=sys.stderr)


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    _say(f"warning: {message}")
