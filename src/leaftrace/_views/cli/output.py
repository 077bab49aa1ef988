"""Output: tables and sentences for people, or one JSON document."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..._data.errors import InvalidInput
from ..._data.json_values import json_value
from .text_table import print_table, printable

NO_ANSWER = "Interrupted before there was an answer; no file was written."
MAX_LINES = 20  # of a table on the terminal


def say(text: str) -> None:
    """Print a message to stderr."""
    print(f"leaftrace: {printable(text)}", file=sys.stderr, flush=True)


def say_traceback(error: BaseException) -> None:
    """Print where an error happened to stderr."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    print("\n".join(map(printable, lines)), file=sys.stderr, flush=True)


def records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of a table, for JSON."""
    names = list(columns)
    lists = [json_value(np.asarray(columns[name], dtype=object)) for name in names]
    return [dict(zip(names, line, strict=True)) for line in zip(*lists, strict=True)]


class _Screen(Console):
    """A console that leaves it to the command what to do when nobody reads on."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Output:
    """Output of a command.

    Text goes to stdout, or with ``--json`` one document at the end. Progress and messages go to
    stderr.

    ``document``  the content of the JSON document
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.document: dict[str, Any] = {}
        self._console = _Screen(file=sys.stdout, highlight=False, soft_wrap=False)
        self._errors = Console(file=sys.stderr, highlight=False)

    def text(self, text: str, style: str | None = None) -> None:
        """Print text, unless there will be a JSON document."""
        if not self.as_json:
            lines = map(printable, text.split("\n"))
            whole = Text("\n".join(lines), style=style or "")
            self._console.print(whole, soft_wrap=not self._console.is_terminal)

    def command(self, text: str) -> None:
        """Print a command, never broken into lines: it is there to be copied."""
        if not self.as_json:
            self._console.print(Text(f"  {printable(text)}"), soft_wrap=True)

    def table(self, columns: Mapping[str, Any], most: int = MAX_LINES) -> None:
        """Print the first lines of a table, without columns in which nothing was computed."""
        if self.as_json:
            return
        print_table(self._console, columns, most)
        count = max((len(columns[name]) for name in columns), default=0)
        if count > most:
            self.text(f"... and {count - most:,} more (--json gives all)", "dim")

    @contextmanager
    def step(self, what: str, *, clock: bool = False) -> Iterator[None]:
        """Run a part of the work, and print the time it took if over a second.

        ``clock``: show a clock on the terminal, for work whose progress cannot be measured."""
        start = time.perf_counter()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        hidden = not (clock and self._errors.is_terminal)
        with Progress(*columns, console=self._errors, transient=True, disable=hidden) as spinner:
            spinner.add_task(printable(what), total=None)
            yield
        seconds = time.perf_counter() - start
        if seconds > 1:
            say(f"{what} ({seconds:.1f} s)")

    def finish(self, code: int) -> int:
        """Print the JSON document, if there is to be one, and return the exit code."""
        if self.as_json:
            document = json_value(self.document | {"exit_code": code})
            print(json.dumps(document, indent=2, allow_nan=False))
        return code


def check_output(path: str | None, inputs: Sequence[str | None], device: bool = False) -> None:
    """Raise an error if a file cannot be written there, before the long work.

    ``inputs``  files that are read, which must not be written over
    ``device``  the path may be that of a device
    """
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise InvalidInput(f"cannot write '{path}': it is a folder; give the name of a file.")
    if os.path.exists(path) and not os.path.isfile(path):
        if device:
            return
        raise InvalidInput(f"cannot write '{path}': it is not a plain file; choose another name.")
    if any(_is_same_file(path, name) for name in inputs if name is not None):
        raise InvalidInput(
            f"'{path}' is one of the files to read; choose another name to write to."
        )
    if not os.path.isdir(folder):
        raise InvalidInput(f"cannot write '{path}': there is no folder '{folder}'; make it first.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput(
            f"cannot write '{path}': {error.strerror}; choose another folder."
        ) from None


def _is_same_file(path: str, other: str) -> bool:
    return os.path.exists(other) and os.path.realpath(other) == os.path.realpath(path)
