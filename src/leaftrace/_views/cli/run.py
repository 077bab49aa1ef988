"""Run a command and return its exit code. Every error is one line that says what to do."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from contextlib import suppress
from types import FrameType
from typing import Any

from ..._data.errors import LeaftraceError
from ..._data.wording import Wording, use_words
from . import FAILED, INTERRUPTED, OK, UNREAD, WRONG
from .output import NO_ANSWER, say, say_traceback

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
    give_eval_set="Tracer(..., eval_set=) in Python",
    give_parameters="Give --param max_depth=... --param learning_rate=...",
    unique_labels="choose a column without duplicates for --id",
    until_stable="--members 0",
    order_judged="data_values(...).curve(X_hold, y_hold) in Python",
    takes_options=True,
    leaf_method="--method leaf",
    refit_method="--method refit",
)


class InterruptWatch:
    """Notes whether Ctrl-C was pressed, even where the work ended in good order because of it."""

    def __init__(self) -> None:
        self.pressed = False

    def __enter__(self) -> InterruptWatch:
        self._before: Any = None
        with suppress(ValueError):  # only the main thread may set a handler
            self._before = signal.signal(signal.SIGINT, self._on_press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        signal.default_int_handler(number, frame)


def run(app: Any, argv: list[str]) -> int:
    """Run the command that these arguments name."""
    with InterruptWatch() as watch, use_words(OPTION_WORDS), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(argv, standalone_mode=False, prog_name="leaftrace")
            sys.stdout.flush()
        except BrokenPipeError:
            _write_nowhere()
            return UNREAD
        except (Exception, KeyboardInterrupt) as error:
            if watch.pressed:  # some libraries raise another error than KeyboardInterrupt
                say(NO_ANSWER)
                return INTERRUPTED
            if "--debug" in argv:
                say_traceback(error)
            return _explain(error)
    if watch.pressed and code != INTERRUPTED:
        _say_in_a_line("Interrupted: this is what was finished until then.")
        return INTERRUPTED
    return code if isinstance(code, int) else OK


def _write_nowhere() -> None:
    """Let what is still to be printed vanish, since nobody reads it; else Python complains at its end."""
    with suppress(OSError, ValueError):  # stdout of a test is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _option_error(error: Any) -> str:
    """The message of typer about a wrong option, and where to find the right ones."""
    command = getattr(getattr(error, "ctx", None), "command_path", "leaftrace")
    return f"{error.format_message().rstrip('.')}. See: {command} --help"


def _explain(error: BaseException) -> int:
    """Print the error as one line, and return the exit code."""
    is_ours = False
    if hasattr(error, "format_message"):  # typer's errors about options
        text = _option_error(error)
    elif isinstance(error, LeaftraceError):
        text = str(error)
    elif isinstance(error, ImportError):
        name = error.name or error
        text = f"{name} is missing; install it, for example: pip install 'leaftrace[{error.name}]'"
    elif isinstance(error, MemoryError):
        text = (
            "there is not enough memory; give fewer test rows (--rows, --worst), "
            "or a machine with more."
        )
    elif isinstance(error, UnicodeEncodeError):
        text = f"{ascii(error.object)[:100]} is not valid text (UTF-8); rename the file, column or label."
    elif isinstance(error, OSError):
        text = _file_error(error)
    else:
        is_ours = True
        what = f"{type(error).__name__}: {error}"
        text = f"leaftrace failed: {what} (--debug shows where; please report it)"
    _say_in_a_line(text)
    return FAILED if is_ours else WRONG


def _file_error(error: OSError) -> str:
    """A message about a file that cannot be read or written."""
    where = f" '{error.filename}'" if error.filename else ""
    hint = "check the path"
    if error.errno in _NO_SPACE:
        hint = "free some space or choose another place"
    return f"cannot use the file{where}: {error.strerror or error}; {hint}."


def _say_in_a_line(text: str) -> None:
    say(" ".join(text.split()))


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    _say_in_a_line(f"warning: {message}")
