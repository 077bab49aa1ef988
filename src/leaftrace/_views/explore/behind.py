"""The training rows behind a test row, or behind an edited copy of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.cells import open_cell_tables, short
from ..._data.errors import InvalidInput, UnsupportedModel
from ..report.cases import Cases
from ..report.errors import add_changes, error_of
from ..report.explained_rows import ExplainedRows, both_sides
from ..report.outcomes import outcomes_of
from ..report.verdicts import verdicts
from .session import Session

MAX_TOP = 50
MAX_JUDGED = 20_000_000  # rows times steps up to which a verdict takes a second or two
SIDE = 10  # training rows of each side that a verdict looks at, as in a report


def row_behind(session: Session, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A test row with its prediction, and the training rows that harm and help it most.

    ``asked``: the row's `position`, `top` rows of each side, and for What if `edits` of its columns.
    """
    position = session.check_row(asked.get("position"))
    top = asked.get("top", 10)
    if type(top) is not int or not 1 <= top <= MAX_TOP:
        raise InvalidInput(f"top is {top!r}; ask for 1 to {MAX_TOP} training rows of each side.")
    edits = asked.get("edits") or {}
    if edits:
        return _edited(session, position, top, edits)
    rows = session.explained(position)
    cases = Cases(rows, session.train, session.test, session.use)
    with session.lock:
        try:
            sides = next(both_sides(session.influence(position), top))
        except UnsupportedModel as error:
            missing = {"missing": short(str(error), 600)}
            return _in_unit(session, cases.describe(0, None)) | missing
        found = cases.describe(0, sides)
    return _in_unit(session, found) | {"of": rows.of, "change_is": rows.change_is}


def _in_unit(session: Session, case: dict[str, Any]) -> dict[str, Any]:
    """A test row with errors in the place of squared ones, and changes of them."""
    if session.unit.squared:
        case["error"] = error_of(case["loss"])
        add_changes(case["training_rows"], case["error"])
        for row in case["training_rows"]:
            row["change"] = row.pop("error_change")
    return case


def finding(session: Session, position: int) -> dict[str, Any]:
    """The verdict of the report on a test row: what is behind its prediction, and the facts."""
    with session.lock:
        return session.answers.get(("finding", position), lambda: _judge(session, position))


def _judge(session: Session, position: int) -> dict[str, Any]:
    e = session.tracer.engine.ensemble
    if e.n_rows * e.n_steps > MAX_JUDGED:
        return {"kind": None, "facts": "A verdict takes long for so many rows; a report has it."}
    try:
        sides = next(both_sides(session.influence(position), SIDE))
    except UnsupportedModel:
        return {"kind": None, "facts": None}
    rows = session.explained(position)
    verdict = verdicts(rows, [sides], session.train, session.test)[0]
    return {name: short(text, 600) for name, text in verdict.record.items()}


def _edited(session: Session, position: int, top: int, edits: Any) -> dict[str, Any]:
    """The same for a copy of the row with other values in some columns."""
    row = edited_row(inputs.take_rows(session.rows.X, np.array([position])), edits)
    tracer = session.tracer
    with session.lock:
        F = tracer.engine.as_trained.scores(row)
        codes = session.codes[[position]]
        assert session.rows.y is not None
        rows = ExplainedRows(
            tracer,
            row,
            session.rows.y[[position]],
            None,
            outcomes_of(tracer.engine.reading, F, codes),
            np.array([0]),
            "edited",
        )
        test = open_cell_tables(tracer.X_train, row, ())[1]
        shown = replace(test, rows=session.test.rows[[position]])
        cases = Cases(rows, session.train, shown, session.use)
        try:
            sides = next(both_sides(rows.influence(np.array([0])), top))
        except UnsupportedModel as error:
            missing = {"missing": short(str(error), 600)}
            return _in_unit(session, cases.describe(0, None)) | missing
        found = cases.describe(0, sides)
    return _in_unit(session, found) | {
        "position": position,
        "of": rows.of,
        "change_is": rows.change_is,
    }


def edited_row(row: Any, edits: Any) -> Any:
    """A table of one row with other values in some columns, each in the type that it had."""
    if not isinstance(edits, Mapping):
        raise InvalidInput("edits is an object: the new values by column.")
    if hasattr(row, "iloc"):
        return _edited_frame(row, edits)
    if isinstance(row, np.ndarray):
        row = row.copy()
        names = [f"column {j}" for j in range(row.shape[1])]
        for name, value in edits.items():
            if name not in names:
                raise InvalidInput(f"there is no column {name!r}.")
            row[0, names.index(name)] = _as_number(name, value)
        return row
    raise InvalidInput(
        f"test rows in a {type(row).__module__.partition('.')[0]} {type(row).__name__} cannot be edited; "
        "pass X_test as a DataFrame of pandas or an array."
    )


def _edited_frame(row: Any, edits: Mapping[str, Any]) -> Any:
    """The same for a DataFrame."""
    row = row.copy()
    by_text = {str(short(name)): name for name in row.columns}
    for text, value in edits.items():
        if text not in by_text:
            raise InvalidInput(f"there is no column {text!r}.")
        column = row[by_text[text]]
        row[by_text[text]] = _like(column, text, value)
    return row


def _like(column: Any, name: str, value: Any) -> Any:
    """A column of one row with this value, in the type of the column."""
    import pandas as pd

    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        found = [c for c in kind.categories if c == value or str(c) == str(value)]
        if value is not None and not found:
            raise InvalidInput(f"{name} has no category {value!r} in training.")
        return pd.Series(pd.Categorical(found[:1] or [None], dtype=kind), index=column.index)
    if pd.api.types.is_bool_dtype(kind):
        return pd.Series([bool(value)], index=column.index, dtype=kind)
    if pd.api.types.is_numeric_dtype(kind):
        number = _as_number(name, value)
        if pd.api.types.is_integer_dtype(kind) and number != round(number):
            kind = float  # also for a missing value, which whole numbers do not have
        return pd.Series([number], index=column.index).astype(kind)
    return pd.Series([value], index=column.index, dtype=kind)


def _as_number(name: str, value: Any) -> float:
    """A number from a page; None or nothing is a missing value."""
    if value is None or value == "":
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} is a number; {value!r} is not.") from None
