"""Tables that leaftrace returns.

They are of the kind of the user's X_train if that is polars or Arrow; otherwise pandas where it is
installed, or a dict of columns. Notebooks show all of them in the same way.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import frames
from .errors import InvalidInput

MAX_NOTEBOOK_ROWS = 20  # of a table in a notebook


def table(columns: Mapping[str, Any], kind: str = "") -> Any:
    """A table of these columns; ``kind`` is that of X_train: see `frames.kind`."""
    with _text_errors():
        if kind:
            return frames.from_columns(columns, kind)
        try:
            import pandas as pd
        except ImportError:
            return dict(columns)
        return pd.DataFrame(dict(columns))


def wide_table(
    values: np.ndarray, rows: Mapping[str, np.ndarray], columns: np.ndarray, kind: str = ""
) -> Any:
    """Values (n, m) with a row for each training row and a column for each test row.

    ``rows``: columns (n,) that name the rows; in pandas they are levels of the index.
    """
    try:
        import pandas as pd
    except ImportError:
        pd = None
    if pd is not None and not kind:
        with _text_errors():
            return pd.DataFrame(
                values,
                index=pd.MultiIndex.from_arrays([*rows.values()], names=[*rows]),
                columns=pd.Index(columns, name="test_row"),
            )
    names = [str(c) for c in columns]
    if len({*rows, *names}) < len(rows) + len(names):
        raise InvalidInput(
            "test rows share a name, which columns of this kind of table cannot; use `values` or top()."
        )
    return table({**rows, **dict(zip(names, values.T, strict=True))}, kind)


@contextmanager
def _text_errors() -> Iterator[None]:
    """Re-raise errors about text that no table can hold as InvalidInput."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"the label or name of a row {ascii(error.object)[:100]} has half of a surrogate pair, which is no "
            "character and which tables and files cannot hold; replace it in the training table, for example by "
            "text.encode('utf-8', 'replace').decode()."
        ) from None


def columns_of(table: Any) -> dict[str, np.ndarray]:
    """The columns of a table of any kind."""
    names = getattr(table, "column_names", getattr(table, "columns", table))
    return {name: np.asarray(table[name]) for name in names}


def notebook(title: str, *parts: Any) -> str:
    """HTML of a result: a title, then tables and sentences.

    It has no colours of its own, so it suits light and dark pages, and it loads nothing.
    """
    blocks = [
        f"<p>{escaped(part)}</p>" if isinstance(part, str) else _html_table(part) for part in parts
    ]
    return "\n".join([f"<p><b>{escaped(title)}</b></p>", *blocks])


def escaped(x: Any) -> str:
    """A value from the data as HTML text. Characters that UTF-8 cannot hold are replaced."""
    if x is None:
        return "–"
    if isinstance(x, (float, np.floating)):
        return "–" if np.isnan(x) else f"{x:.4g}"
    text = str(x).encode("utf-8", "replace").decode("utf-8")
    return html.escape(text).replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _html_table(table: Any) -> str:
    """The first rows of a table as HTML."""
    columns = columns_of(table)
    values = list(columns.values())
    head = "".join(f"<th>{escaped(name)}</th>" for name in columns)
    lines = [
        "<tr>" + "".join(f"<td>{escaped(v)}</td>" for v in line) + "</tr>"
        for line in zip(*(v[:MAX_NOTEBOOK_ROWS] for v in values), strict=True)
    ]
    count = max(map(len, values), default=0)
    hidden = count - MAX_NOTEBOOK_ROWS
    note = f"<p>... and {hidden:,} more</p>" if hidden > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{note}"
