"""What changes of the training set do: effects in three sizes, and groups of rows against slices of test rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._actions.common import Finding
from .._actions.groups import GroupEffects
from .._data import frames
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._data.tables import columns_of
from ._canvas import BLACK, GREEN, GREY, HELP, axes, name, plain_frame, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAYS = ("predicted", "refitted", "retrained")
_MARKERS = {
    "predicted": ("o", HELP, "none"),
    "refitted": ("s", GREEN, "none"),
    "retrained": ("D", BLACK, BLACK),
}
# effects drawn; groups or slices; cells with numbers in them
LINES = 20
SIDE = 60
WRITTEN = 225
APART = 30.0  # effects whose sizes are so far apart have no common scale


def effects(result: Any, *, ax: Axes | None = None) -> Axes:
    """Predicted against refitted against retrained: a line for each effect, a marker for each way it was measured.

    >>> lt.plot.effects(lt.fix(tracer, x, y, X_test=X_hold, y_test=y_hold))       # doctest: +SKIP

    ``result``  what an action returns, or a table with the columns of, predicted, refitted and retrained
    """
    of, values = _measured(result)
    size = np.nan_to_num(np.abs(values)).max(axis=1)
    chosen = np.sort(np.argsort(-size, kind="stable")[:LINES])
    values = values[chosen]
    size = size[chosen]
    labels = [of[i] for i in chosen]
    size[size == 0] = size.max() or 1.0  # no change has no size of its own
    own_units = size.max() > APART * size.min() and not isinstance(
        result, GroupEffects
    )  # whose are all one loss
    if own_units:
        values = values / size[:, None]
        labels = [f"{label} (1 = {s:.2g})" for label, s in zip(labels, size, strict=True)]
    ax = axes(ax, 4.5 + 0.085 * max(map(len, labels)), 1.7 + 0.36 * len(chosen))
    y = np.arange(len(chosen))
    for way, x in zip(WAYS, values.T, strict=True):
        marker, edge, face = _MARKERS[way]
        if np.isfinite(x).any():
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
    last = np.where(np.isfinite(values), values, 0.0)
    ax.hlines(
        y,
        np.minimum(last.min(axis=1), 0),
        np.maximum(last.max(axis=1), 0),
        color=GREY,
        linewidth=0.8,
        zorder=1,
    )
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(y, labels)
    ax.set_ylim(len(chosen) - 0.5, -0.5)
    ax.margins(x=0.1)
    more = f"; the {len(of) - len(chosen):,} smallest are left out" if len(of) > len(chosen) else ""
    ax.set_xlabel(f"change{', each line in units of its largest' if own_units else ''}{more}")
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    plain_frame(ax)
    return ax


def groups(result: Any, *, show: str | None = None, ax: Axes | None = None) -> Axes:
    """Groups of training rows against slices of test rows: how the loss of each slice changes without each group.

    >>> lt.plot.groups(lt.group_effects(tracer, "age", X_test, y_test, "sex"))    # doctest: +SKIP
    >>> lt.plot.groups(tracer.influence(X_test, y_test).by("age", "sex"))         # doctest: +SKIP

    ``result``  what group_effects returns, or the table of Influence.by
    ``show``    of group_effects: "predicted", "refitted" or "retrained"; None: the last that was computed
    """
    rows, slices, change, what = _grid(result, show)  # change (groups, slices)
    by = [f" by {name(x, 20)}" if x else "" for x in _columns(result)]
    for count, kind in ((len(rows), "groups"), (len(slices), "slices")):
        if count > SIDE:
            raise InvalidInput(
                f"there are {count:,} {kind}, and a picture has room for {SIDE}; make fewer groups, or slices of test "
                "rows with test_groups=."
            )
    long = max(map(len, slices)) > 8 and len(slices) > 1
    ax = axes(ax, 3.8 + max(0.75 * len(slices), 2.5), max(1.2 + 0.36 * len(rows), 2.8) + 1.2 * long)
    known = change[np.isfinite(change)]
    bound = np.abs(known).max(initial=0.0) or 1.0
    image = ax.imshow(np.ma.masked_invalid(change), "RdBu", vmin=-bound, vmax=bound, aspect="auto")
    if change.size <= WRITTEN:  # numbers have signs, which colours in grey print lack
        for g, s in np.ndindex(change.shape):
            ink = "white" if abs(change[g, s]) > 0.6 * bound else "black"
            ax.text(
                s,
                g,
                signed(float(change[g, s])),
                ha="center",
                va="center",
                color=ink,
                fontsize="small",
            )
    ax.set_xticks(
        range(len(slices)), slices, rotation=35 if long else 0, ha="right" if long else "center"
    )
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xlabel(f"test rows{by[1]} (count)")
    ax.set_ylabel(f"training rows{by[0]} (count)")
    ax.figure.colorbar(image, ax=ax, label=what)
    return ax


def _measured(result: Any) -> tuple[list[str], F64]:
    """Names of effects, and (effects, ways) their sizes."""
    if isinstance(result, GroupEffects):
        pairs = np.ndindex(len(result.slices), len(result.groups))
        of = [
            f"{name(result.slices.phrase(s))}, without {name(result.groups.phrase(g))}"
            for s, g in pairs
        ]
        lines = {way: getattr(result, way).T.ravel() for way in WAYS}
    else:
        lines = result.effects if isinstance(result, Finding) else result
        if lines is None:
            raise InvalidInput(
                f"this {type(result).__name__} has no effects: nothing was acted on and measured."
            )
        lines = _needs(lines, ("of", *WAYS), "what an action of leaftrace returns, or its effects")
        of = [name(x, 48) for x in lines["of"]]
    values = np.array([np.asarray(lines[way], dtype=float) for way in WAYS]).T
    if not len(of):
        raise InvalidInput("there are no effects to draw.")
    return of, values


def _grid(result: Any, show: str | None) -> tuple[list[str], list[str], F64, str]:
    """Names of groups and slices, changes (groups, slices) and what they are changes of."""
    if isinstance(result, GroupEffects):
        ways = {way: getattr(result, way) for way in WAYS}
        if show not in (None, *WAYS):
            raise InvalidInput(
                f"show is {show!r}; it can be 'predicted', 'refitted', 'retrained' or None."
            )
        show = show or next(way for way in reversed(WAYS) if np.isfinite(ways[way]).any())
        if not np.isfinite(ways[show]).any():
            raise InvalidInput(f"show is '{show}', but group_effects was not asked for it.")
        names = [
            [f"{name(n, 24)} ({c:,})" for n, c in zip(part.names, part.count, strict=True)]
            for part in (result.groups, result.slices)
        ]
        what = f"change of the loss\nwithout the group, {show}\n(+ it helps, − it harms)"
        return names[0], names[1], ways[show], what
    result = _needs(result, ("group", "rows"), "what group_effects or Influence.by returns")
    if show is not None:
        raise InvalidInput(
            "show= is for the result of group_effects; this table has one kind of change."
        )
    change = next((c for c in result if "_change_if_" in str(c)), None)
    if change is None or not len(result["group"]):
        raise InvalidInput(
            "this table has no column of changes, or no lines; pass what Influence.by returns."
        )
    sliced = "slice" in result
    rows, g = _numbered(result["group"], result["rows"])
    slices, s = _numbered(
        result["slice"] if sliced else result["test_row"], result["test_rows"] if sliced else None
    )
    out = np.full((len(rows), len(slices)), np.nan)
    out[g, s] = np.asarray(result[change])
    of, _, action = change.partition("_change_if_")
    return (
        rows,
        slices,
        out,
        f"change of the {name(of)}\nif the group is {action},\nsummed over its rows",
    )


def _columns(result: Any) -> tuple[str, str]:
    """The columns that make the groups and the slices, where they are known."""
    return (result.groups.by, result.slices.by) if isinstance(result, GroupEffects) else ("", "")


def _numbered(values: Any, counts: Any = None) -> tuple[list[str], NDArray[np.intp]]:
    """The different values in the order they come, and which of them each is."""
    number: dict[Any, int] = {}
    code = np.array(
        [number.setdefault(v, len(number)) for v in np.asarray(values).tolist()], dtype=np.intp
    )
    shown = [name(v, 24) for v in number]
    if counts is not None:
        of = dict(zip(code.tolist(), np.asarray(counts).tolist(), strict=True))
        shown = [f"{text} ({of[i]:,})" for i, text in enumerate(shown)]
    return shown, code


def _needs(lines: Any, columns: Sequence[str], how: str) -> Any:
    """This table, checked; of polars and Arrow its columns."""
    lines = columns_of(lines) if frames.kind(lines) else lines
    if not hasattr(lines, "keys") or any(c not in lines for c in columns):
        raise InvalidInput(f"this needs a table with the columns {', '.join(columns)}; pass {how}.")
    return lines
