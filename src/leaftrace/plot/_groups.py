"""Effects of groups of training rows on slices of test rows, as a grid of colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._actions.groups import GroupEffects
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._data.grouping import Groups
from ._canvas import WAYS, axes, conclude, display_name, diverging_colours, expect_columns, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SIDE = 60  # groups, or slices, that fit in a picture
MAX_WRITTEN = 225  # cells up to which numbers are written into them
LONG_NAME = 8  # characters from which names of slices are slanted


@dataclass(frozen=True)
class _Grid:
    """Changes to draw.

    ``groups, slices``  names with counts
    ``change``          (groups, slices)
    ``what``            what changes, for the colour bar
    ``by``              names of the columns that made the groups and the slices, if known
    ``loss``            the name of the number that changes, if lower is better
    """

    groups: list[str]
    slices: list[str]
    change: F64
    what: str
    by: tuple[str, str] = ("", "")
    loss: str = ""


def groups(result: Any, *, show: str | None = None, ax: Axes | None = None) -> Axes:
    """How the loss of each slice of test rows changes without each group of training rows.

    >>> lt.plot.groups(lt.group_effects(tracer, "age", X_test, y_test, "sex"))    # doctest: +SKIP
    >>> lt.plot.groups(tracer.influence(X_test, y_test).by("age", "sex"))         # doctest: +SKIP

    ``result``  what group_effects returns, or the table of Influence.by
    ``show``    for group_effects: "predicted", "refitted" or "retrained"; None: the last of these
                that was computed
    """
    if isinstance(result, GroupEffects):
        grid = _grid_of_effects(result, show)
    else:
        grid = _grid_of_table(result, show)
    _check_size(grid)
    slanted = max(map(len, grid.slices)) > LONG_NAME and len(grid.slices) > 1
    width = 3.8 + max(0.75 * len(grid.slices), 2.5)
    height = max(1.2 + 0.36 * len(grid.groups), 2.8) + 1.2 * slanted
    ax = axes(ax, width, height)
    known = grid.change[np.isfinite(grid.change)]
    bound = np.abs(known).max(initial=0.0) or 1.0
    cells = np.ma.masked_invalid(grid.change)
    image = ax.imshow(cells, diverging_colours(), vmin=-bound, vmax=bound, aspect="auto")
    if grid.change.size <= MAX_WRITTEN:
        _write_numbers(ax, grid.change, bound)
    _label_sides(ax, grid, slanted)
    ax.figure.colorbar(image, ax=ax, label=grid.what)
    conclude(ax, _conclusion(grid))
    return ax


def _conclusion(grid: _Grid) -> str:
    """The title: the group without which a slice gains most, or moves most."""
    known = np.nan_to_num(grid.change)
    if not known.any():
        return "No group changes anything"
    g, s = np.unravel_index(known.argmin() if grid.loss else np.abs(known).argmax(), known.shape)
    slice_of = f" of {grid.slices[s]}" if len(grid.slices) > 1 else ""
    change = signed(float(known[g, s]))
    if not grid.loss:
        return (
            f"The group {grid.groups[g]} moves it most{slice_of and f', that{slice_of}'}: {change}"
        )
    if known[g, s] >= 0:
        return f"Every group helps: the {grid.loss} rises without any of them"
    return f"Without the group {grid.groups[g]} the {grid.loss}{slice_of} falls most: {change}"


def _check_size(grid: _Grid) -> None:
    for names, kind in ((grid.groups, "groups"), (grid.slices, "slices")):
        if len(names) > MAX_SIDE:
            raise InvalidInput(
                f"there are {len(names):,} {kind}, and a picture has room for {MAX_SIDE}; "
                "make fewer groups, or slices of test rows with test_groups=."
            )


def _write_numbers(ax: Axes, change: F64, bound: float) -> None:
    """Write each change into its cell: numbers have signs, which colours in grey print lack."""
    for g, s in np.ndindex(change.shape):
        ink = "white" if abs(change[g, s]) > 0.6 * bound else "black"
        text = signed(float(change[g, s]))
        ax.text(s, g, text, ha="center", va="center", color=ink, fontsize="small")


def _label_sides(ax: Axes, grid: _Grid, slanted: bool) -> None:
    """Names of groups and slices along the sides, and what they are."""
    rotation = 35 if slanted else 0
    alignment = "right" if slanted else "center"
    ax.set_xticks(range(len(grid.slices)), grid.slices, rotation=rotation, ha=alignment)
    ax.set_yticks(range(len(grid.groups)), grid.groups)
    groups_by, slices_by = (f" by {display_name(x, 20)}" if x else "" for x in grid.by)
    ax.set_xlabel(f"test rows{slices_by} (count)")
    ax.set_ylabel(f"training rows{groups_by} (count)")


def _grid_of_effects(result: GroupEffects, show: str | None) -> _Grid:
    """The result of group_effects, measured in the way that is asked for."""
    changes = result.in_unit()
    if show not in (None, *WAYS):
        raise InvalidInput(
            f"show is {show!r}; it can be 'predicted', 'refitted', 'retrained' or None."
        )
    show = show or next(way for way in reversed(WAYS) if np.isfinite(changes[way]).any())
    if not np.isfinite(changes[show]).any():
        raise InvalidInput(f"show is '{show}', but group_effects was not asked for it.")
    what = f"change of the {result.unit.name}\nwithout the group, {show}\n(+ it helps, − it harms)"
    by = (result.groups.by, result.slices.by)
    names = (_with_counts(result.groups), _with_counts(result.slices))
    return _Grid(*names, changes[show], what, by, result.unit.name)


def _with_counts(parts: Groups) -> list[str]:
    """Names of groups, each with the number of its rows."""
    pairs = zip(parts.names, parts.count, strict=True)
    return [f"{display_name(name, 24)} ({count:,})" for name, count in pairs]


def _grid_of_table(table: Any, show: str | None) -> _Grid:
    """The table of Influence.by."""
    table = expect_columns(table, ("group", "rows"), "what group_effects or Influence.by returns")
    if show is not None:
        raise InvalidInput(
            "show= is for the result of group_effects; this table has one kind of change."
        )
    column = next((c for c in table if "_change_if_" in str(c)), None)
    if column is None or not len(table["group"]):
        raise InvalidInput(
            "this table has no column of changes, or no lines; pass what Influence.by returns."
        )
    groups, g = _numbered(table["group"], table["rows"])
    if "slice" in table:
        slices, s = _numbered(table["slice"], table["test_rows"])
    else:
        slices, s = _numbered(table["test_row"])
    change = np.full((len(groups), len(slices)), np.nan)
    change[g, s] = np.asarray(table[column])
    of, _, action = column.partition("_change_if_")
    what = f"change of the {display_name(of)}\nif the group is {action},\nsummed over its rows"
    return _Grid(groups, slices, change, what, loss="loss" if of == "loss" else "")


def _numbered(values: Any, counts: Any = None) -> tuple[list[str], NDArray[np.intp]]:
    """The different values, in the order they come, and which of them each value is."""
    number: dict[Any, int] = {}
    codes = [number.setdefault(v, len(number)) for v in np.asarray(values).tolist()]
    names = [display_name(v, 24) for v in number]
    if counts is not None:
        count_of = dict(zip(codes, np.asarray(counts).tolist(), strict=True))
        names = [f"{name} ({count_of[i]:,})" for i, name in enumerate(names)]
    return names, np.array(codes, dtype=np.intp)
