"""A test row beside the training rows that matter most to it, feature by feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._actions.common import check_tracer
from .._data import inputs
from .._data.cells import CellValue, open_cell_tables
from .._data.comparison import HIGHER, LOWER, OTHER, SAME, Comparison, compare
from .._data.errors import InvalidInput
from .._tracer.influence import Influence, Ranked, rank
from .._tracer.tracer import Tracer
from ._canvas import axes, conclude, display_name, signed
from ._rows import query_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIGNS = {SAME: "", HIGHER: "▲ ", LOWER: "▼ ", OTHER: "≠ "}
# Greys: orange and blue mean harm and help in all pictures, and the signs tell higher from lower.
_SHADES = {SAME: "white", HIGHER: "#E2E2E2", LOWER: "#E2E2E2", OTHER: "#CFCFCF"}


def side_by_side(
    tracer: Tracer, x: Any, y: Any = None, k: int = 5, *, columns: int = 16, ax: Axes | None = None
) -> Axes:
    """A test row beside the k training rows that matter most to it, with differences marked.

    >>> lt.plot.side_by_side(tracer, X_test.iloc[[7]], y_test[[7]])       # doctest: +SKIP

    ``x, y``     one row, as a table, and its label; without a label, rows are chosen by their
                 effect on the prediction, not on the loss
    ``k``        how many training rows
    ``columns``  how many features at most: those in which most rows differ
    """
    _check(tracer, x, columns)
    if y is None:
        y = tracer.engine.test_labels(x, None)
    else:
        y = np.atleast_1d(np.asarray(y))
    influence = tracer.influence(x, y, of="prediction" if y is None else "loss")
    ranked = rank(influence, k, None)[0]
    train, test = open_cell_tables(tracer.X_train, x, ())
    if not test.names:
        raise InvalidInput(
            "these tables have no cells that can be read; pass X_train and x as tables or arrays."
        )
    shown = compare(test.names, test.take(np.array([0]))[0], train.take(ranked[0]), columns)
    values = [shown.values, *shown.others]
    marks = [[SAME] * len(shown.columns), *shown.marks]
    ax = axes(ax, 1.8 + 1.35 * len(values), 1.5 + 0.33 * len(shown.columns))
    _draw_cells(ax, values, marks)
    _draw_grid(ax, _headings(tracer, influence, y, ranked), shown.columns)
    left_out = len(test.names) - len(shown.columns)
    more = f"; {left_out} columns that differ less are left out" if left_out else ""
    ax.set_xlabel(
        f"▲ higher, ▼ lower, ≠ other than in the test row{more}\n"
        f"numbers with signs: change of the {influence.of}, to first order, without the row"
    )
    conclude(ax, _conclusion(tracer, influence, y, ranked, shown))
    return ax


def _conclusion(
    tracer: Tracer, influence: Influence, y: Any, ranked: Ranked, shown: Comparison
) -> str:
    """The title: the row of largest effect, its label, and how many values it shares."""
    query = query_name(influence.test_index[0])
    rows, effects, _ = ranked
    if not len(rows):
        return f"No training row has an effect on {query}"
    verb = {"harmful": "harms", "helpful": "helps"}.get(effects[0], effects[0])
    same = sum(mark == SAME for mark in shown.marks[0])
    label = ""
    if y is not None:
        same_label = tracer.y_train[rows[0]] == y[0]
        label = f"{'the same label' if same_label else 'another label'}, "
    return (
        f"Row {display_name(tracer.train_index[rows[0]], 18)} {verb} {query} most: {label}"
        f"{same} of the {len(shown.columns)} values shown are alike"
    )


def _check(tracer: Any, x: Any, columns: int) -> None:
    check_tracer(tracer, "this picture")
    if inputs.row_count(x) != 1:
        raise InvalidInput(
            "x must be one row, as a table: X_test[7:8] of an array, "
            "X_test.iloc[[7]] of a DataFrame."
        )
    if columns < 1:
        raise InvalidInput(f"columns is {columns}; show 1 or more.")


def _draw_cells(
    ax: Axes, values: Sequence[Sequence[CellValue]], marks: Sequence[Sequence[str]]
) -> None:
    """The values of each row in a column of its own, shaded by how they differ."""
    from matplotlib.colors import ListedColormap

    kinds = list(_SHADES)
    shade = np.array([[kinds.index(mark) for mark in row] for row in marks]).T  # (features, rows)
    colours = ListedColormap([_SHADES[kind] for kind in kinds])
    ax.imshow(shade, colours, vmin=0, vmax=len(kinds) - 1, aspect="auto")
    for i, (row, row_marks) in enumerate(zip(values, marks, strict=True)):
        for f, (value, mark) in enumerate(zip(row, row_marks, strict=True)):
            text = _SIGNS[mark] + display_name(value, 14)
            ax.text(i, f, text, ha="center", va="center", fontsize="small", clip_on=True)


def _headings(tracer: Tracer, influence: Influence, y: Any, ranked: Ranked) -> list[str]:
    """Name and label of the test row, and of each training row with its effect."""
    label = "" if y is None else f"label {display_name(y[0], 12)}\n"
    headings = [f"{query_name(influence.test_index[0])}\n{label}"]
    for row, effect, change in zip(*ranked, strict=True):
        name = f"row {display_name(tracer.train_index[row], 14)}"
        label = f"label {display_name(tracer.y_train[row], 12)}"
        headings.append(f"{name}\n{label}\n{effect} {signed(change)}")
    return headings


def _draw_grid(ax: Axes, headings: Sequence[str], columns: Sequence[str]) -> None:
    """Names of rows and features, and lines between the cells."""
    ax.set_xticks(range(len(headings)), headings, fontsize="small")
    ax.set_yticks(range(len(columns)), [display_name(c) for c in columns])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.axvline(0.5, color="black", linewidth=1.2)  # between the test row and the others
    ax.set_xticks(np.arange(len(headings) - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(len(columns) - 1) + 0.5, minor=True)
    ax.grid(which="minor", color="#CCCCCC", linewidth=0.5)
    ax.tick_params(which="minor", length=0)
