"""What goes out: tables and sentences for people, or one JSON document; files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .._actions.impact.audit import json_value
from .._data.errors import InvalidInput

SHOWN = 20  # rows of a table on the terminal


def clean(text: Any) -> str:
    """A value from the data, without characters that act on a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


# What the library says to those who call it from Python.
_OPTIONS = {
    "confirm(X_holdout, y_holdout)": "--hold TABLE",
    "Pass X_test and y_test": "Give more test rows",
    'fidelity="warn"': "--fidelity warn",
    "controls=5": "--controls 5",
    "Look at some of `rows` before you do; the retrained model is in `model`": "Look at some of them before you do",
    "X_val has": "the table of --val has",
    "X_holdout has": "the table of --hold has",
    "max_rows= allows": "--max-rows allows",
    ": retrain=True": ": leave out --no-retrain",
    ": ask for refit=True": ": leave out --no-refit",
    "refit=False": "--no-refit",
    "Pass params={'max_depth': ..., 'learning_rate': ..., ...}": "Give --param max_depth=... --param learning_rate=...",
}


def in_options(text: str) -> str:
    """A sentence of the library with the names of options."""
    for words, option in _OPTIONS.items():
        text = text.replace(words, option)
    return text


def cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "-" if np.isnan(value) else f"{value:.4g}"
    return clean(value)


def records(columns: Any) -> list[dict[str, Any]]:
    """Lines of a table for JSON."""
    names = list(columns)
    lists = [json_value(np.asarray(columns[n], dtype=object)) for n in columns]
    return [dict(zip(names, line, strict=True)) for line in zip(*lists, strict=True)]


class Output:
    """To stdout: text, or with ``--json`` one document at the end. Progress and messages go to stderr."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.document: dict[str, Any] = {}
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
        self._errors = Console(file=sys.stderr, highlight=False)

    def text(self, text: str, style: str | None = None) -> None:
        if not self.as_json:
            self._console.print(Text("\n".join(map(clean, text.split("\n"))), style=style or ""))

    def table(self, columns: Mapping[str, Any], most: int = SHOWN) -> None:
        """The first lines of a table; columns in which nothing was computed are left out."""
        if self.as_json:
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        kept = {}
        count = 0
        for name in columns:
            values = np.asarray(columns[name])
            count = len(values)
            if values.dtype.kind == "f" and count and np.isnan(values).all():
                continue
            kept[name] = [cell(v) for v in values[:most].tolist()]
            number = values.dtype.kind in "iuf"
            table.add_column(
                clean(name).replace("_", " "),
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",
            )
        for line in zip(*kept.values(), strict=True):
            table.add_row(*(Text(value, style=_STYLES.get(value, "")) for value in line))
        self._console.print(table)
        if count > most:
            self.text(f"... and {count - most:,} more (--json gives all)", "dim")

    def say(self, text: str) -> None:
        print(f"leaftrace: {clean(text)}", file=sys.stderr, flush=True)

    @contextmanager
    def step(self, what: str, *, clock: bool = False) -> Iterator[None]:
        """A part of the work, and a line if it took its time. With ``clock``, one on the terminal: for work that cannot
        tell how far it is."""
        start = time.perf_counter()
        shown = clock and self._errors.is_terminal
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._errors, transient=True, disable=not shown) as spinner:
            spinner.add_task(clean(what), total=None)
            yield
        if (seconds := time.perf_counter() - start) > 1:
            self.say(f"{what} ({seconds:.1f} s)")

    def finish(self, code: int) -> int:
        if self.as_json:
            print(
                json.dumps(
                    json_value(self.document | {"exit_code": code}), indent=2, allow_nan=False
                )
            )
        return code


_STYLES = {"harmful": "red", "helpful": "blue"}


def check_output(path: str | None, inputs: Sequence[str | None], device: bool = False) -> None:
    """Find out before the long work whether a file can be written there. ``device``: it may be one."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise InvalidInput(f"cannot write '{path}': it is a folder; give the name of a file.")
    if os.path.exists(path) and not os.path.isfile(path):
        if device:
            return
        raise InvalidInput(f"cannot write '{path}': it is not a plain file; choose another name.")
    if any(
        i is not None and os.path.exists(i) and os.path.realpath(i) == os.path.realpath(path)
        for i in inputs
    ):
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
