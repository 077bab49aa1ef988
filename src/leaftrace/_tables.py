"""Tables: pandas DataFrames when pandas is installed, otherwise a dict of columns. Notebooks show both alike."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import numpy as np


def table(columns: Mapping[str, Any]) -> Any:
    try:
        import pandas as pd
    except ImportError:
        return dict(columns)
    return pd.DataFrame(dict(columns))


def wide(values: np.ndarray, index: np.ndarray, columns: np.ndarray) -> Any:
    try:
        import pandas as pd
    except ImportError:
        return {"train_row": index, **{str(c): values[:, j] for j, c in enumerate(columns)}}
    return pd.DataFrame(values, index=pd.Index(index, name="train_row"), columns=pd.Index(columns, name="test_row"))


MOST = 20  # lines of a table in a notebook


def notebook(title: str, *parts: Any) -> str:
    """HTML of a result: a title, then tables and sentences. It has no colours of its own, so it suits light and dark
    pages, and loads nothing."""
    shown = [f"<p>{escaped(part)}</p>" if isinstance(part, str) else _table(part) for part in parts]
    return "\n".join([f"<p><b>{escaped(title)}</b></p>", *shown])


def escaped(x: Any) -> str:
    """A value from the data as HTML text. Half characters, which no page can hold, are replaced."""
    if x is None:
        return "–"
    if isinstance(x, (float, np.floating)):
        return "–" if np.isnan(x) else f"{x:.4g}"
    return html.escape(str(x).encode("utf-8", "replace").decode("utf-8")).replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _table(columns: Any) -> str:
    names = list(columns.keys())
    values = [np.asarray(columns[name]) for name in names]
    head = "".join(f"<th>{escaped(name)}</th>" for name in names)
    lines = [
        "<tr>" + "".join(f"<td>{escaped(v)}</td>" for v in line) + "</tr>"
        for line in zip(*(v[:MOST] for v in values), strict=True)
    ]
    count = max(map(len, values), default=0)
    more = f"<p>... and {count - MOST:,} more</p>" if count > MOST else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"
