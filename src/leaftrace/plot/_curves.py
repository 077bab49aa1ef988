"""Curves over all training rows or all steps: shares of effects, noise, removal, fidelity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._actions.curve import RemovalCurve
from .._actions.noise.action import LabelNoise
from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .._data.row_labels import row_numbers
from .._engine.fidelity import Fidelity
from .._tracer.influence import Influence
from .._tracer.tracer import Tracer
from ._canvas import (
    GREY,
    HARM,
    HELP,
    STYLES,
    axes,
    conclude,
    count_of,
    display_name,
    expect,
    hide_frame,
    signed,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 500  # of a curve over rows, on a logarithmic axis
# What rows of each side share among them.
_SHARED = {
    "harmful": "all harm",
    "helpful": "all help",
    "raises": "what raises it",
    "lowers": "what lowers it",
}


def distribution(influence: Influence, *, ax: Axes | None = None) -> Axes:
    """How many training rows carry the model: the share of all effects that the first k have.

    >>> lt.plot.distribution(tracer.influence(X_test, y_test))            # doctest: +SKIP

    There is a curve for rows that raise the loss of test rows (harmful) and one for rows that lower
    it (helpful). A row counts with its total effect on the test rows of its side. The dotted line
    is where the curves would be if all rows had the same effect.
    """
    expect(influence, Influence, "what tracer.influence(X_test, y_test) returns")
    n, m = influence.shape
    if not n or not m:
        raise InvalidInput(
            f"this result has {n} training rows and {m} queries; there is nothing to draw."
        )
    ax = axes(ax)
    k = _log_spaced(n)
    halves: dict[str, int] = {}
    for word, sign, line in zip(influence.effect_words, (1, -1), ("--", "-"), strict=True):
        totals = _sorted_totals(influence, sign)
        share = np.cumsum(totals) / (totals.sum() or 1.0)
        label = f"{word}: none"
        if totals.any():
            halves[word] = int(np.searchsorted(share, 0.5)) + 1
            label = f"{word}: half of it from {_rows_and_share(halves[word], n)}"
        ax.plot(k, share[k - 1], line, color=STYLES[word]["color"], linewidth=2, label=label)
    ax.plot(k, k / n, ":", color=GREY, label="all rows alike")
    _rows_axis(ax, n)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel(f"most important of {n:,} training rows")
    ax.set_ylabel(f"their share of effects on the {display_name(influence.of)}")
    ax.legend(frameon=False, loc="best")
    conclude(ax, _who_carries(halves, n))
    hide_frame(ax)
    return ax


def _who_carries(halves: dict[str, int], n: int) -> str:
    """The title of `distribution`: how many rows have half of the effects of a side."""
    if not halves:
        return "No training row has any effect"
    word, half = next(iter(halves.items()))
    return f"Half of {_SHARED[word]} comes from {_rows_and_share(half, n)}"


def _sorted_totals(influence: Influence, sign: int) -> F64:
    """(n,) total effects of the rows on the queries they raise (1) or lower (-1), largest first."""
    on_this_side = sign * influence.burden > 0
    sizes = np.where(on_this_side, np.abs(influence.change), 0)
    return np.sort(sizes.sum(axis=1, dtype=float))[::-1]


def _rows_and_share(k: int, n: int) -> str:
    """A number of the n rows, and their share."""
    return f"{count_of(k, 'row')} ({100 * k / n:.2g} %)"


def noise(noise: LabelNoise, is_noisy: Any = None, *, ax: Axes | None = None) -> Axes:
    """Scores of all labels, most surprising first; with known wrong labels, also precision at k.

    >>> lt.plot.noise(lt.label_noise(tracer), is_noisy=flipped)           # doctest: +SKIP

    ``is_noisy``  a mask of the training rows whose label is wrong, or their positions
    """
    expect(noise, LabelNoise, "what label_noise(tracer) returns")
    order = noise.order
    n = len(order)
    is_wrong = None
    if is_noisy is not None:
        is_wrong = np.zeros(n, bool)
        is_wrong[row_numbers(is_noisy, n, "is_noisy", labels=noise.tracer.row_labels)] = True
    ax = axes(ax)
    k = _log_spaced(n)
    scores = noise.label_score[order][k - 1]
    ax.plot(k, scores, color=HELP, linewidth=2, label="label score (0: most surprising)")
    issues = int(noise.is_label_issue.sum())
    if issues:
        label = f"{issues:,} flagged"
        ax.axvline(issues, color=GREY, linestyle="--", linewidth=1, label=label)
    if is_wrong is not None:
        _draw_precision(ax, k, is_wrong[order])
    _rows_axis(ax, n)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel(f"k most surprising of {n:,} training rows")
    ax.set_ylabel("score" if is_wrong is None else "score, precision")
    ax.legend(frameon=False, loc="best")
    conclude(ax, _surprises(issues, n, None if is_wrong is None else is_wrong[order]))
    hide_frame(ax)
    return ax


def _surprises(issues: int, n: int, is_wrong: np.ndarray | None) -> str:
    """The title of `noise`.

    ``is_wrong`` (n,): whether the label of each row is wrong, most surprising first; None: not known."""
    if is_wrong is None or not is_wrong.any():
        return (
            f"{issues:,} of {count_of(n, 'label')} surprise the model so much that they are flagged"
        )
    k = int(is_wrong.sum())
    among = int(is_wrong[:k].sum())
    return f"Of the {count_of(k, 'most surprising label')}, {among:,} are wrong ({k * k / n:.0f} at random)"


def _draw_precision(ax: Axes, k: Ints, is_wrong: np.ndarray) -> None:
    """The share of wrong labels among the first k rows, and that among all rows.

    ``is_wrong`` (n,): whether the label of each row is wrong, most surprising first."""
    precision = np.cumsum(is_wrong) / np.arange(1, len(is_wrong) + 1)
    base = is_wrong.mean()
    ax.plot(k, precision[k - 1], "-.", color=HARM, linewidth=2, label="precision at k")
    ax.axhline(base, color=GREY, linestyle=":", linewidth=1, label=f"at random: {base:.2g}")


def removal_curve(curve: RemovalCurve, *, ax: Axes | None = None) -> Axes:
    """The loss of held-out rows as training rows are removed: in an order, and at random in grey.

    >>> lt.plot.removal_curve(lt.removal_curve(tracer, influence, X_hold, y_hold))        # doctest: +SKIP
    """
    expect(curve, RemovalCurve, "what lt.removal_curve(tracer, influence, X_hold, y_hold) returns")
    ax = axes(ax)
    for losses, style, colour, label in (
        (curve.random_refitted, "o:", GREY, "random rows, refitted"),
        (curve.random_retrained, "D:", GREY, "random rows, retrained"),
        (curve.refitted, "o-", HELP, "in order, refitted"),
        (curve.retrained, "D--", HARM, "in order, retrained"),
    ):
        known = np.isfinite(losses)
        if known[1:].any():
            removed = curve.removed[known]
            ax.plot(
                removed,
                curve.unit.level(losses[known]),
                style,
                color=colour,
                label=label,
                markersize=5,
            )
    ax.axhline(curve.unit.level(curve.refitted[0]), color=GREY, linewidth=0.8)
    ax.set_xlabel("training rows removed")
    ax.set_ylabel(f"{curve.unit.name} of the held-out rows")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    whole_numbers(ax)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    conclude(ax, _best_point(curve))
    hide_frame(ax)
    return ax


def _best_point(curve: RemovalCurve) -> str:
    """The title of `removal_curve`: where the loss is lowest, beside as many random rows."""
    again = bool(np.isfinite(curve.retrained[1:]).any())
    way = "retrained" if again else "refitted"
    losses = curve.unit.level(curve.retrained if again else curve.refitted)
    random = curve.unit.level(curve.random_retrained if again else curve.random_refitted)
    if np.isnan(losses[1:]).all():
        return "No point was finished"
    best = int(np.nanargmin(losses))
    name = curve.unit.name
    if best == 0:
        return f"The {name} is lowest with all rows: removing rows in this order does not help"
    change = losses[best] - losses[0]
    text = f"Without the first {count_of(int(curve.removed[best]), 'row')} the {name} changes by "
    text += f"{signed(change)}, {way}"
    by_chance = random[best] - losses[0]
    if np.isfinite(by_chance):
        beside = "no better than" if by_chance <= change else "beside"
        text += f", {beside} {signed(by_chance)} for random rows"
    return text


def fidelity(fidelity: Fidelity | Tracer, *, ax: Axes | None = None) -> Axes:
    """How far the leaf values of the replay are from those of the model, step by step.

    >>> lt.plot.fidelity(tracer.fidelity)                                 # doctest: +SKIP
    """
    fidelity = fidelity.fidelity if isinstance(fidelity, Tracer) else fidelity
    expect(fidelity, Fidelity, "tracer.fidelity")
    ax = axes(ax, 7, 3)
    errors = fidelity.per_step
    ax.plot(np.arange(1, len(errors) + 1), errors, ".", color=HELP if fidelity.exact else HARM)
    ax.set_yscale("symlog", linthresh=1e-17)  # shows zero, below the rounding of a float64
    ax.set_ylim(0, max(1e-6, 10 * fidelity.max_error))
    ax.set_yticks([0, *10.0 ** np.arange(-16, np.log10(ax.get_ylim()[1]) + 0.1, 4)])
    ax.set_xlabel("step")
    whole_numbers(ax)
    ax.set_ylabel("largest relative error of a leaf")
    verdict = "exact" if fidelity.exact else "NOT exact"
    conclude(ax, f"The replay is {verdict}: largest error {fidelity.max_error:.1e}")
    hide_frame(ax)
    return ax


def _log_spaced(n: int) -> Ints:
    """Numbers of rows from 1 to n, evenly spaced on a logarithmic axis."""
    return np.unique(np.rint(np.geomspace(1, n, POINTS)).astype(int))


def _rows_axis(ax: Axes, n: int) -> None:
    """Make the horizontal axis a logarithmic one of n rows."""
    ax.set_xscale("log")
    ax.set_xlim(0.9, 1.1 * n)
    ax.xaxis.set_major_formatter("{x:,.0f}")
