"""Parts that all pictures share: an Axes to draw on, colours, names that fit."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data import frames
from .._data.cells import short
from .._data.errors import InvalidInput, LeaftraceError
from .._data.numbers import change_text
from .._data.tables import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

# Colours by Okabe and Ito, which colour-blind readers can distinguish.
HARM = "#D55E00"
HELP = "#0072B2"
GREEN = "#009E73"
GREY = "#777777"
BLACK = "#000000"
# Styles of the bars, by effect. Rows that raise the query are hatched, which shows in grey print.
STYLES: dict[str, dict[str, Any]] = {
    "harmful": {"color": HARM, "hatch": "////", "edgecolor": "white"},
    "raises": {"color": HARM, "hatch": "////", "edgecolor": "white"},
    "helpful": {"color": HELP},
    "lowers": {"color": HELP},
}
# The ways in which an effect is measured: see `_actions/common.py`.
WAYS = ("predicted", "refitted", "retrained")
CHARACTERS = 10  # of a title, to an inch
MAX_NAME = 10_000  # characters of a name that are read; of these, `display_name` shows a few


def axes(ax: Axes | None, width: float = 7.0, height: float = 4.0) -> Axes:
    """The given Axes, or that of a new figure of this size in inches."""
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes
    except ImportError:
        raise LeaftraceError("pictures need matplotlib: pip install leaftrace[plot]") from None
    if ax is None:
        return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise InvalidInput(
            f"ax is a {type(ax).__name__}; pass one matplotlib Axes, or None for a new figure."
        )
    return ax


def diverging_colours(below: str = HARM, above: str = HELP) -> Any:
    """Colours for numbers below zero, over white to those above; first harm, then help."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("around zero", [below, "white", above])


def expect(result: Any, kind: type, how: str) -> None:
    """Raise an error unless the result is of this kind. ``how``: how to get one."""
    if not isinstance(result, kind):
        raise InvalidInput(
            f"this draws a {kind.__name__}, and got a {type(result).__name__}; pass {how}."
        )


def expect_columns(table: Any, columns: Sequence[str], how: str) -> Any:
    """This table, or the columns of a polars or Arrow table; an error if it lacks some of these."""
    table = columns_of(table) if frames.kind(table) else table
    if not hasattr(table, "keys") or any(c not in table for c in columns):
        raise InvalidInput(f"this needs a table with the columns {', '.join(columns)}; pass {how}.")
    return table


def display_name(x: Any, limit: int = 28) -> str:
    """A name from the data as matplotlib can show it.

    It is on one line and shortened in the middle. Dollar signs are escaped, for they would start a
    formula."""
    if isinstance(x, (float, np.floating)):
        text = f"{x:.6g}"
    else:
        value = short(x, MAX_NAME)
        text = "missing" if value is None else str(value)
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]}…{text[-(limit // 3) :]}"
    return text.replace("$", r"\$")


def signed(x: float) -> str:
    """A change with its sign, to two digits or as a whole number."""
    if not np.isfinite(x):
        return "–"
    return (f"{x:+,.0f}" if 100 <= abs(x) < 1000 else change_text(x, 2)).replace("-", "−")


def conclude(ax: Axes, text: str, pad: float | None = None) -> None:
    """Set the title: a sentence that says what is seen, in lines that fit the picture.

    ``pad``: points between it and the axes, for what stands there; None: as usual."""
    width = ax.get_position().width * ax.figure.bbox.width / ax.figure.dpi  # inches
    lines = textwrap.wrap(text, max(24, int(CHARACTERS * width)), break_long_words=True)
    ax.set_title("\n".join(lines), fontsize="medium", pad=pad)


def count_of(k: int, noun: str) -> str:
    """A number of things: `1 row`, `1,200 rows`."""
    return f"{k:,} {noun}{'' if k == 1 else 's'}"


def hide_frame(ax: Axes) -> None:
    """Hide the lines above and to the right of the picture."""
    ax.spines[["top", "right"]].set_visible(False)


def whole_numbers(ax: Axes) -> None:
    """Put the ticks of the horizontal axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
