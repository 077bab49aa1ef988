"""Training rows behind one test row: how much each does, and what they look like beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._actions.common import check_tracer
from .._data import inputs
from .._data.errors import InvalidInput
from .._report.cells import HIGHER, LOWER, OTHER, SAME, compare, open_grids
from .._tracer.influence import ACTION_PHRASES, Influence, rank
from .._tracer.tracer import Tracer
from ._canvas import GREY, STYLES, axes, expect, name, plain_frame, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEGEND = {"raises": "rows that raise it", "lowers": "rows that lower it"}
_SIGNS = {SAME: "", HIGHER: "▲ ", LOWER: "▼ ", OTHER: "≠ "}
_SHADES = {SAME: "white", HIGHER: "#F5C9A8", LOWER: "#A9D3EE", OTHER: "#DDDDDD"}


def top(influence: Influence, test_row: int = 0, k: int = 10, *, ax: Axes | None = None) -> Axes:
    """The training rows that matter most to one test row: the first k of either side, as bars.

    >>> lt.plot.top(tracer.influence(X_test, y_test), test_row=7)         # doctest: +SKIP

    ``test_row``  which query of the result, counted from 0
    ``k``         rows of either side: harmful and helpful for a loss, raising and lowering otherwise
    """
    expect(influence, Influence, "what tracer.influence(X_test, y_test) returns")
    j = inputs.row_numbers([test_row], influence.shape[1], "test_row", "test rows")
    one = replace(
        influence, values=influence.values[:, j], test_index=influence.test_index[j], per_label=None
    )
    sides = [rank(one, k, effect)[0] for effect in one.effect_words]
    order = np.argsort(np.concatenate([change for _, _, change in sides]), kind="stable")
    place = np.empty(len(order))  # of each bar from the top, most negative first
    place[order] = np.arange(len(order))
    ax = axes(ax, 7, 1.6 + 0.27 * len(order))
    for effect, (rows, _, change), at in zip(
        one.effect_words, sides, np.split(place, [len(sides[0][0])]), strict=True
    ):
        if len(rows):
            bars = ax.barh(
                at, change, label=_LEGEND.get(effect, f"{effect} rows"), **STYLES[effect]
            )
            ax.bar_label(bars, [signed(c) for c in change], padding=3, fontsize="small")
    labels = [name(one.train_index[row]) for rows, _, _ in sides for row in rows]
    ax.set_yticks(np.arange(len(order)), [f"row {labels[i]}" for i in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.margins(x=0.2)
    ax.axvline(0, color=GREY, linewidth=0.8)
    what = f"change of the {name(one.of)} {ACTION_PHRASES[one.action]}" + (
        ", to first order" * one.derivative
    )
    ax.set_xlabel("minus the score" if one.scored else what)
    ax.set_title(f"Training rows behind {_query(one.test_index[0])}")
    if len(order):
        ax.legend(frameon=False)
    else:
        ax.text(
            0.5,
            0.5,
            "no training row has any effect",
            ha="center",
            va="center",
            transform=ax.transAxes,
        )
    plain_frame(ax)
    return ax


def side_by_side(
    tracer: Tracer, x: Any, y: Any = None, k: int = 5, *, columns: int = 16, ax: Axes | None = None
) -> Axes:
    """A test row beside the k training rows that matter most to it, feature by feature, with differences marked.

    >>> lt.plot.side_by_side(tracer, X_test.iloc[[7]], y_test[[7]])       # doctest: +SKIP

    ``x, y``     one row, as a table, and its label; without one, rows are chosen by the prediction, not the loss
    ``k``        how many training rows
    ``columns``  how many features at most: those in which most rows differ
    """
    check_tracer(tracer)
    if inputs.row_count(x) != 1:
        raise InvalidInput(
            "x must be one row, as a table: X_test[7:8] of an array, X_test.iloc[[7]] of a DataFrame."
        )
    if columns < 1:
        raise InvalidInput(f"columns is {columns}; show 1 or more.")
    y = tracer.engine.source.own_labels(x) if y is None else np.atleast_1d(np.asarray(y))
    influence = tracer.influence(x, y, of="prediction" if y is None else "loss")
    rows, effects, changes = rank(influence, k, None)[0]
    train, test = open_grids(tracer.X_train, x, ())
    if not test.names:
        raise InvalidInput(
            "these tables have no cells that can be read; pass X_train and x as tables or arrays."
        )
    beside = compare(test.names, test.take(np.array([0]))[0], train.take(rows), columns)
    values = [beside.values, *beside.others]
    marks = [[SAME] * len(beside.columns), *beside.marks]

    ax = axes(ax, 1.8 + 1.35 * len(values), 1.5 + 0.33 * len(beside.columns))
    kinds = list(_SHADES)
    from matplotlib.colors import ListedColormap

    shade = np.array([[kinds.index(mark) for mark in row] for row in marks]).T  # (features, rows)
    ax.imshow(
        shade,
        ListedColormap([_SHADES[kind] for kind in kinds]),
        vmin=0,
        vmax=len(kinds) - 1,
        aspect="auto",
    )
    for i, (row, signs) in enumerate(zip(values, marks, strict=True)):
        for f, (value, sign) in enumerate(zip(row, signs, strict=True)):
            ax.text(
                i,
                f,
                _SIGNS[sign] + name(value, 14),
                ha="center",
                va="center",
                fontsize="small",
                clip_on=True,
            )
    heads = [
        f"{_query(influence.test_index[0])}\n" + ("" if y is None else f"label {name(y[0], 12)}\n")
    ]
    for row, effect, change in zip(rows, effects, changes, strict=True):
        label = f"label {name(tracer.y_train[row], 12)}"
        heads.append(f"row {name(tracer.train_index[row], 14)}\n{label}\n{effect} {signed(change)}")
    ax.set_xticks(range(len(heads)), heads, fontsize="small")
    ax.set_yticks(range(len(beside.columns)), [name(c) for c in beside.columns])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.axvline(0.5, color="black", linewidth=1.2)  # the test row, and the others
    ax.set_xticks(np.arange(len(heads) - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(len(beside.columns) - 1) + 0.5, minor=True)
    ax.grid(which="minor", color="#CCCCCC", linewidth=0.5)
    ax.tick_params(which="minor", length=0)
    left_out = len(test.names) - len(beside.columns)
    more = f"; {left_out} columns that differ less are left out" if left_out else ""
    what = f"change of the {influence.of}, to first order,"
    ax.set_xlabel(
        f"▲ higher, ▼ lower, ≠ other than in the test row{more}\nnumbers with signs: {what} without the row"
    )
    return ax


def _query(label: Any) -> str:
    """In words: a test row, or what stands for all of them."""
    return (
        f"the {label} of all test rows"
        if str(label) in ("mean", "sum")
        else f"test row {name(label, 18)}"
    )
