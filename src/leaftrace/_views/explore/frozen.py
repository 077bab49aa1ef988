"""The explorer inside a report: its own modules, answered from a recording, without a server."""

from __future__ import annotations

from collections.abc import Sequence

from ..._engine.methods import LeafInfluence
from ..report.explained_rows import ExplainedRows
from .one_file import OneFile, one_file, static_files
from .record import Check, record
from .session import Session

COMMAND = "lt.explore(tracer, X_test, y_test)"
# What a report records; the explorer's own export takes longer.
SECONDS = 5.0
ROWS = 5


def frozen_explorer(
    session: Session, positions: Sequence[int], command: str, check: Check, seconds: float
) -> OneFile:
    """The page of the explorer, with a recording about these test rows.

    ``command``  how to open the explorer itself
    ``seconds``  after which no more baskets are refitted
    """
    recorded = record(session, positions, command, check, seconds)
    return one_file(static_files()["player.js"].decode(), recorded)


def explorer_of_report(rows: ExplainedRows, command: str) -> OneFile:
    """The recorded explorer of a report on these test rows."""
    session = Session(rows.tracer, rows.X, rows.y)
    positions = [int(i) for i in rows.chosen[:ROWS]]
    return frozen_explorer(session, positions, command or COMMAND, lambda: None, SECONDS)


def why_not(rows: ExplainedRows, redacts: bool) -> str:
    """Why a report on these rows cannot have the explorer inside; empty if it can."""
    e = rows.tracer.engine.ensemble
    if rows.y is None:
        return "the explorer shows losses, which need labels of the test rows"
    if redacts:
        return "the explorer shows all columns, and some are redacted"
    if rows.baseline is not None or e.offset is not None:
        return "the explorer does not take a baseline"
    if e.coupled:
        return "the explorer is not for losses of whole queries"
    if e.not_smooth:
        return f"{e.not_smooth}, without derivatives"
    if rows.method != LeafInfluence():
        return "the explorer shows influence by LeafInfluence(), and the report another method"
    return ""
