"""Tables of text: whole on a terminal of any width, plain and with all digits in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..._data.numbers import number_text

_HARM = "#D55E00"  # the colours of pages and plots
_HELP = "#0072B2"
_STYLES = {"harmful": _HARM, "helpful": _HELP, "worse": _HARM, "better": _HELP}
_GAP = 2  # spaces between columns
_FOLDED = 12  # characters to which a column of text may be folded
# Columns of which a sentence below the table says as much, if all lines have the same.
_SENTENCES = {"change_is": "Changes are {}."}


@dataclass(frozen=True)
class _Column:
    """A column as text.

    ``least``: the characters below which it would lose something.
    """

    title: str
    cells: list[str]
    is_number: bool

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells)))

    @property
    def least(self) -> int:
        if self.is_number:
            words = self.title.split()
            return max(map(len, (*words, *self.cells)))
        return min(self.width, _FOLDED)


def printable(text: Any) -> str:
    """A value from the data, with escapes in place of characters that act on a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def cell_text(value: Any, *, all_digits: bool = False) -> str:
    """A cell of a table. ``all_digits``: a number is not rounded."""
    if isinstance(value, (float, np.floating)):
        if all_digits:
            return "nan" if np.isnan(value) else repr(float(value))
        return number_text(float(value))
    return printable(value)


def print_table(console: Console, columns: Mapping[str, Any], most: int) -> None:
    """Print the first lines of a table, without columns in which nothing was computed.

    On a terminal too narrow for all columns, those that do not fit follow below, with the columns
    again that name the lines. Elsewhere a line of the table is one line, and numbers have all their digits.
    """
    arrays = {name: np.asarray(columns[name]) for name in columns}
    shown = {name: values for name, values in arrays.items() if not _is_empty(values)}
    sentences = list(_take_sentences(shown))
    made = [_column(name, values[:most], console.is_terminal) for name, values in shown.items()]
    if console.is_terminal:
        for place, group in enumerate(_groups(made, console.width)):
            if place:
                console.print()
            console.print(_rich_table(group, console.width))
    else:
        for line in _plain_lines(made):
            console.print(Text(line), soft_wrap=True)
    for sentence in sentences:
        console.print(Text(sentence, style="dim"), soft_wrap=not console.is_terminal)


def _column(name: str, values: np.ndarray, rounded: bool) -> _Column:
    cells = [cell_text(value, all_digits=not rounded) for value in values.tolist()]
    title = printable(name).replace("_", " ")
    return _Column(title, cells, values.dtype.kind in "iuf")


def _is_empty(values: np.ndarray) -> bool:
    """Whether a column has nothing: what it is for was not computed."""
    if not len(values):
        return False
    if values.dtype.kind == "f":
        return bool(np.isnan(values).all())
    return values.dtype.kind in "OU" and all(value == "" for value in values.tolist())


def _take_sentences(columns: dict[str, np.ndarray]) -> Iterator[str]:
    """Take out the columns that say the same in each line, and give what they say."""
    for name, sentence in _SENTENCES.items():
        said = set(map(str, columns.get(name, np.empty(0)).tolist()))
        if len(said) == 1:
            del columns[name]
            yield sentence.format(printable(said.pop()))


def _groups(columns: Sequence[_Column], width: int) -> Iterator[list[_Column]]:
    """The columns in groups that fit into the width, each with those that name the lines."""
    if not columns:
        return
    names = _naming(columns, width)
    group = list(columns[:1])
    used = columns[0].least
    repeated = 1  # columns at the beginning of the group that others have, too
    for column in columns[1:]:
        if len(group) > repeated and used + _GAP + column.least > width:
            yield group
            group = list(names)
            repeated = len(names)
            used = sum(name.least + _GAP for name in names) - _GAP
        if column not in group:
            group.append(column)
            used += _GAP + column.least
    yield group


def _naming(columns: Sequence[_Column], width: int) -> list[_Column]:
    """The first column and, while lines have the same names, further ones of text."""
    names = list(columns[:1])
    for column in columns[1:]:
        told_apart = len(set(zip(*(name.cells for name in names), strict=True)))
        if told_apart == len(columns[0].cells):
            break
        used = sum(name.least + _GAP for name in names) + column.least
        if not column.is_number and used <= width / 2:
            names.append(column)
    return names


def _rich_table(columns: Sequence[_Column], width: int) -> Table:
    """A table for a terminal of this width, in which only text and titles are folded."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, own in zip(columns, _widths(columns, width), strict=True):
        made.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            width=own,
            overflow="fold",
        )
    for line in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in line))
    return made


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """The width of each column: what it needs, and of the rest as much as it can use."""
    spare = width - sum(column.least + _GAP for column in columns) + _GAP
    widths = []
    for column in columns:
        more = max(0, min(spare, column.width - column.least))
        widths.append(column.least + more)
        spare -= more
    return widths


def _plain_lines(columns: Sequence[_Column]) -> Iterator[str]:
    """The lines of a table, with spaces between the columns."""
    for cells in zip(*((column.title, *column.cells) for column in columns), strict=True):
        placed = [
            text.rjust(column.width) if column.is_number else text.ljust(column.width)
            for text, column in zip(cells, columns, strict=True)
        ]
        yield (" " * _GAP).join(placed).rstrip()
