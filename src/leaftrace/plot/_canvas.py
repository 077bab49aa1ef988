"""What the pictures share: an Axes to draw on, colours, and names that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.errors import InvalidInput, LeaftraceError
from .._report.cells import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers tell apart.
HARM = "#D55E00"
HELP = "#0072B2"
GREEN = "#009E73"
GREY = "#777777"
BLACK = "#000000"
# Of an effect in words: hatched is what raises the query, so that grey print tells it too.
STYLES: dict[str, dict[str, Any]] = {
    "harmful": {"color": HARM, "hatch": "////", "edgecolor": "white"},
    "raises": {"color": HARM, "hatch": "////", "edgecolor": "white"},
    "helpful": {"color": HELP},
    "lowers": {"color": HELP},
}


def axes(ax: Axes | None, width: float = 7.0, height: float = 4.0) -> Axes:
    """The Axes given, or that of a new figure of this size in inches."""
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


def expect(result: Any, kind: type, how: str) -> None:
    if not isinstance(result, kind):
        raise InvalidInput(
            f"this draws a {kind.__name__}, and got a {type(result).__name__}; pass {how}."
        )


def name(x: Any, limit: int = 28) -> str:
    """A name from the data as matplotlib shows it: on one line, shortened in the middle, dollars as they are."""
    x = f"{x:.6g}" if isinstance(x, (float, np.floating)) else short(x, 10_000)
    text = "missing" if x is None else str(x)
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]}…{text[-(limit // 3) :]}"
    return text.replace("$", r"\$")


def signed(x: float) -> str:
    """A change with its sign, to two digits."""
    return f"{x:+.2g}".replace("-", "−") if np.isfinite(x) else "–"


def plain_frame(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)


def whole_numbers(ax: Axes) -> None:
    """Ticks across at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
