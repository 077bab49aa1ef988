"""The training rows that matter most to one test row, as bars."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.row_labels import row_numbers
from .._tracer.influence import ACTION_PHRASES, Influence, rank
from ._canvas import GREY, STYLES, axes, conclude, display_name, expect, hide_frame, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEGEND = {"raises": "rows that raise it", "lowers": "rows that lower it"}


def top(influence: Influence, test_row: int = 0, k: int = 10, *, ax: Axes | None = None) -> Axes:
    """The training rows that matter most to one test row: the first k of each side, as bars.

    >>> lt.plot.top(tracer.influence(X_test, y_test), test_row=7)         # doctest: +SKIP

    ``test_row``  which query of the result, counted from 0
    ``k``         rows of each side: harmful and helpful for a loss, otherwise raising and lowering
    """
    expect(influence, Influence, "what tracer.influence(X_test, y_test) returns")
    column = _single_column(influence, test_row)
    sides = [rank(column, k, effect)[0] for effect in column.effect_words]
    order = np.argsort(np.concatenate([change for _, _, change in sides]), kind="stable")
    place = np.empty(len(order))  # of each bar from the top, most negative first
    place[order] = np.arange(len(order))
    ax = axes(ax, 7, 1.6 + 0.27 * len(order))
    places = np.split(place, [len(sides[0][0])])
    for effect, (_, _, change), at in zip(column.effect_words, sides, places, strict=True):
        if len(change):
            label = _LEGEND.get(effect, f"{effect} rows")
            bars = ax.barh(at, change, label=label, **STYLES[effect])
            ax.bar_label(bars, [signed(c) for c in change], padding=3, fontsize="small")
    names = [_row_name(column, int(row)) for rows, _, _ in sides for row in rows]
    ax.set_yticks(np.arange(len(order)), [names[i] for i in order])
    if len(order) and column.tables.labels is not None:
        ax.set_ylabel("training row (label)")
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.margins(x=0.2)
    ax.axvline(0, color=GREY, linewidth=0.8)
    if column.noise is not None and not np.isnan(column.noise[0]):
        _draw_noise(ax, float(column.noise[0]))
    ax.set_xlabel(_change_label(column))
    conclude(ax, _conclusion(column, sides))
    if len(order):
        ax.legend(frameon=False)
    else:
        text = "no training row has any effect"
        ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
    hide_frame(ax)
    return ax


def _row_name(influence: Influence, row: int) -> str:
    """A training row of the result by its name, and its label beside it."""
    label = influence.tables.label_of(row)
    beside = "" if label is None else f" ({display_name(label, 16)})"
    return f"{influence.unit} {display_name(influence.train_index[row])}{beside}"


def _conclusion(influence: Influence, sides: list[Any]) -> str:
    """The title: which row does most on the side that matters first, and whether that is noise."""
    query = query_name(influence.test_index[0])
    verb = {"harmful": "harms", "raises": "raises"}.get(influence.effect_words[0], "moves")
    rows, _, changes = sides[0]
    if not len(rows):
        return f"No training row {verb} {query}"
    noise = np.nan if influence.noise is None else float(influence.noise[0])
    largest = max(np.abs(change).max(initial=0.0) for _, _, change in sides)
    if largest <= noise:
        return f"No training row moves {query} by more than retraining does"
    name = f"{influence.unit} {display_name(influence.train_index[rows[0]], 18)}"
    text = f"{name[0].upper()}{name[1:]} {verb} {query} most"
    if abs(float(changes[0])) <= noise:
        text += ", but no more than retraining moves it"
    return text


def _draw_noise(ax: Axes, noise: float) -> None:
    """A band of the changes that do not stand out of retraining without a random row."""
    limits = ax.get_xlim()
    ax.axvspan(-noise, noise, color=GREY, alpha=0.2, zorder=0, label="noise of retraining")
    ax.set_xlim(limits)


def _single_column(influence: Influence, test_row: int) -> Influence:
    """The influence on one query."""
    j = row_numbers([test_row], influence.shape[1], "test_row", "test rows")
    return replace(
        influence,
        values=influence.values[:, j],
        test_index=influence.test_index[j],
        per_label=None,
        noise=None if influence.noise is None else influence.noise[j],
    )


def _change_label(influence: Influence) -> str:
    if influence.scored:
        return "minus the score"
    phrase = ACTION_PHRASES[influence.action]
    return f"change of the {display_name(influence.of)} {phrase} ({influence.change_is})"


def query_name(label: Any) -> str:
    """A name for a query in a sentence: a test row, or the mean or sum of all of them."""
    if str(label) in ("mean", "sum"):
        return f"the {label} of all test rows"
    return f"test row {display_name(label, 18)}"
