"""Show the result of an action, and judge it by a limit."""

from __future__ import annotations

from typing import Any

from ..._actions.common import Finding
from ..._actions.effects import EFFECTS_CAPTION, shown_effects
from ..._data.numbers import number_text
from ..._data.tables import columns_of
from . import NO, OK
from .output import MAX_LINES, Output, records, say


def show_finding(out: Output, found: Finding, most: int = MAX_LINES, table: Any = None) -> None:
    """Print a result, and put it into the JSON document.

    ``table``  lines to show in place of the result's own table
    """
    columns = columns_of(found.table if table is None else table)
    out.document |= {"title": found.title, "table": records(columns), "advice": found.advice}
    out.text(found.title, "bold")
    out.table(columns_of(found.shown) if table is None else columns, most)
    if found.effects is not None:
        effects = columns_of(found.effects)
        out.document["effects"] = records(effects)
        out.text(f"\n{EFFECTS_CAPTION.capitalize()}", "bold")
        out.table(shown_effects(found.effects))
    out.text(f"\n{found.advice}")


def judge(what: str, value: float, limit: float | None) -> int:
    """The exit code: no, with a message, if a value is above the limit that the user gave."""
    if limit is None or not value > limit:
        return OK
    say(f"{what} is {number_text(value)}, above {number_text(limit)}.")
    return NO
