"""Effects of changes to the training set: predicted, refitted and retrained beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._actions.common import Finding
from .._actions.groups import GroupEffects
from .._data.arrays import F64
from .._data.errors import InvalidInput
from ._canvas import (
    BLACK,
    GREEN,
    GREY,
    HELP,
    WAYS,
    axes,
    conclude,
    display_name,
    expect_columns,
    hide_frame,
    signed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LINES = 20  # effects that are drawn
_LOSSES = ("loss", "RMSE", "error")  # words in names of losses
APART = 30.0  # factor between the largest and the smallest effect from which no scale fits both
# Of each way of measuring: shape, colour of its edge, colour inside.
_MARKERS = {
    "predicted": ("o", HELP, "none"),
    "refitted": ("s", GREEN, "none"),
    "retrained": ("D", BLACK, BLACK),
}


@dataclass(frozen=True)
class _Lines:
    """Effects to draw, one to a line.

    ``labels``     names of the effects
    ``values``     (lines, 3) effects, predicted, refitted and retrained
    ``own_units``  whether each line is in units of its largest effect
    ``left_out``   effects that are not drawn, the smallest ones
    ``conclusion`` a sentence about them
    """

    labels: list[str]
    values: F64
    own_units: bool
    left_out: int
    conclusion: str


def effects(result: Any, *, ax: Axes | None = None) -> Axes:
    """Predicted, refitted and retrained effects: a line for each effect, a marker for each way.

    >>> lt.plot.effects(lt.fix(tracer, x, y, X_test=X_hold, y_test=y_hold))       # doctest: +SKIP

    ``result``  what an action returns, or a table with the columns of, predicted, refitted and
                retrained
    """
    lines = _lines(result)
    count = len(lines.labels)
    ax = axes(ax, 4.5 + 0.085 * max(map(len, lines.labels)), 1.7 + 0.36 * count)
    _draw_markers(ax, lines.values)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(np.arange(count), lines.labels)
    ax.set_ylim(count - 0.5, -0.5)
    ax.margins(x=0.1)
    ax.set_xlabel(_change_label(lines))
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    conclude(ax, lines.conclusion, pad=26)  # above the legend
    hide_frame(ax)
    return ax


def _lines(result: Any) -> _Lines:
    """Choose the largest effects, and a unit for each if they have no common scale."""
    names, values = _measured(result)
    size = np.nan_to_num(np.abs(values)).max(axis=1)
    chosen = np.sort(np.argsort(-size, kind="stable")[:MAX_LINES])
    one_quantity = isinstance(result, GroupEffects)  # all effects are on the same loss
    main = int(size.argmax()) if one_quantity else _first_loss(names)
    conclusion = _conclusion(names, values, main)
    values = values[chosen]
    size = size[chosen]
    labels = [names[i] for i in chosen]
    size[size == 0] = size.max() or 1.0  # lines without any change have no size of their own
    own_units = size.max() > APART * size.min() and not one_quantity
    if own_units:
        values = values / size[:, None]
        labels = [f"{label} (1 = {s:.2g})" for label, s in zip(labels, size, strict=True)]
    return _Lines(labels, values, own_units, len(names) - len(chosen), conclusion)


def _first_loss(names: list[str]) -> int:
    """The first effect on a loss, which has a better and a worse; or else the first of all."""
    losses = (i for i, name in enumerate(names) if any(word in name for word in _LOSSES))
    return next(losses, 0)


def _conclusion(names: list[str], values: F64, main: int) -> str:
    """The title: the main effect by the last way it was measured, and whether first order held.

    ``values``: (effects, 3)."""
    known = np.isfinite(values)
    last = np.where(known.any(axis=1), len(WAYS) - 1 - known[:, ::-1].argmax(axis=1), 0)
    measured = np.take_along_axis(values, last[:, None], axis=1)[:, 0]
    text = f"{names[main]}: {signed(measured[main])}, {WAYS[last[main]]}"
    with np.errstate(invalid="ignore"):
        against = int((values[:, 0] * measured < 0).sum())
    if against:
        text += f"; first order has the wrong sign in {against} of {len(names)}"
    elif (last > 0).any() and known[:, 0].any():
        text += "; first order has the right sign everywhere"
    return text


def _measured(result: Any) -> tuple[list[str], F64]:
    """Names of all effects, and (effects, 3) their sizes, measured in three ways."""
    if isinstance(result, GroupEffects):
        slices = [display_name(result.slices.phrase(s)) for s in range(len(result.slices))]
        groups = [display_name(result.groups.phrase(g)) for g in range(len(result.groups))]
        names = [f"{s}, without {g}" for s in slices for g in groups]
        changes = result.in_unit()
        columns = {way: changes[way].T.ravel() for way in WAYS}
    else:
        columns = _effect_columns(result)
        names = [display_name(x, 48) for x in columns["of"]]
    values = np.array([np.asarray(columns[way], dtype=float) for way in WAYS]).T
    if not names:
        raise InvalidInput("there are no effects to draw.")
    return names, values


def _effect_columns(result: Any) -> Any:
    """The table of effects of an action's result, or this table itself."""
    table = result.effects if isinstance(result, Finding) else result
    if table is None:
        raise InvalidInput(
            f"this {type(result).__name__} has no effects: nothing was acted on and measured."
        )
    how = "what an action of leaftrace returns, or its effects"
    return expect_columns(table, ("of", *WAYS), how)


def _draw_markers(ax: Axes, values: F64) -> None:
    """Markers for the values (lines, 3), joined with zero by a line."""
    y = np.arange(len(values))
    for way, x in zip(WAYS, values.T, strict=True):
        if not np.isfinite(x).any():
            continue
        marker, edge, face = _MARKERS[way]
        ax.plot(
            x,
            y,
            marker,
            markeredgecolor=edge,
            markerfacecolor=face,
            markersize=8,
            label=way,
            clip_on=False,
        )
    known = np.where(np.isfinite(values), values, 0.0)
    left = np.minimum(known.min(axis=1), 0)
    right = np.maximum(known.max(axis=1), 0)
    ax.hlines(y, left, right, color=GREY, linewidth=0.8, zorder=1)


def _change_label(lines: _Lines) -> str:
    units = ", each line in units of its largest" if lines.own_units else ""
    left_out = f"; the {lines.left_out:,} smallest are left out" if lines.left_out else ""
    return f"change{units}{left_out}"
