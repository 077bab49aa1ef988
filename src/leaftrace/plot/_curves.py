"""Pictures over all training rows or all steps: who carries the model, noise, removal, fidelity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._actions.curve import RemovalCurve
from .._actions.noise.action import LabelNoise
from .._data import inputs
from .._data.errors import InvalidInput
from .._engine.fidelity import Fidelity
from .._tracer.influence import Influence
from .._tracer.tracer import Tracer
from ._canvas import GREY, HARM, HELP, STYLES, axes, expect, name, plain_frame, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 500  # of a curve over rows on a log axis


def distribution(influence: Influence, *, ax: Axes | None = None) -> Axes:
    """Who carries the model: what share of all effects the k most important rows of either side have.

    >>> lt.plot.distribution(tracer.influence(X_test, y_test))            # doctest: +SKIP

    A row's size is its mean effect over the test rows, of those whose loss it raises (harmful) or lowers (helpful). The
    dotted line is that of rows which are all alike.
    """
    expect(influence, Influence, "what tracer.influence(X_test, y_test) returns")
    n, m = influence.shape
    if not n or not m:
        raise InvalidInput(
            f"this result has {n} training rows and {m} queries; there is nothing to draw."
        )
    ax = axes(ax)
    burden = influence.burden
    size = np.abs(influence.change)
    k = _log_spaced(n)
    for word, sign, line in zip(influence.effect_words, (1, -1), ("--", "-"), strict=True):
        each = np.sort(np.where(sign * burden > 0, size, 0).sum(axis=1, dtype=float))[
            ::-1
        ]  # (rows,)
        share = np.cumsum(each) / (each.sum() or 1.0)
        half = int(np.searchsorted(share, 0.5)) + 1
        label = f"{word}: half of it from {half:,} row{'s' if half > 1 else ''} ({100 * half / n:.2g} %)"
        label = label if each.any() else f"{word}: none"
        ax.plot(k, share[k - 1], line, color=STYLES[word]["color"], linewidth=2, label=label)
    ax.plot(k, k / n, ":", color=GREY, label="all rows alike")
    _rows_axis(ax, n)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel(f"most important of {n:,} training rows")
    ax.set_ylabel(f"their share of effects on the {name(influence.of)}")
    ax.legend(frameon=False, loc="best")
    plain_frame(ax)
    return ax


def noise(noise: LabelNoise, is_noisy: Any = None, *, ax: Axes | None = None) -> Axes:
    """Scores of all labels, most suspicious first, and where the wrong ones are known, precision at k.

    >>> lt.plot.noise(lt.label_noise(tracer), is_noisy=flipped)           # doctest: +SKIP

    ``is_noisy``  a mask of the training rows whose label is wrong, or their positions
    """
    expect(noise, LabelNoise, "what label_noise(tracer) returns")
    order = noise._order
    n = len(noise._order)
    wrong = None
    if is_noisy is not None:
        wrong = np.zeros(n, bool)
        wrong[inputs.row_numbers(is_noisy, n, "is_noisy")] = True
    ax = axes(ax)
    k = _log_spaced(n)
    issues = int(noise.is_label_issue.sum())
    ax.plot(
        k,
        noise.label_score[order][k - 1],
        color=HELP,
        linewidth=2,
        label="label score (0: surely wrong)",
    )
    if issues:
        ax.axvline(
            issues, color=GREY, linestyle="--", linewidth=1, label=f"{issues:,} label issues"
        )
    if wrong is not None:
        precision = (np.cumsum(wrong[order]) / np.arange(1, n + 1))[k - 1]
        base = wrong.mean()
        ax.plot(k, precision, "-.", color=HARM, linewidth=2, label="precision at k")
        ax.axhline(base, color=GREY, linestyle=":", linewidth=1, label=f"at random: {base:.2g}")
    _rows_axis(ax, n)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel(f"k most suspicious of {n:,} training rows")
    ax.set_ylabel("score" if wrong is None else "score, precision")
    ax.legend(frameon=False, loc="best")
    plain_frame(ax)
    return ax


def removal_curve(curve: RemovalCurve, *, ax: Axes | None = None) -> Axes:
    """The loss of held-out rows as training rows leave: in an order, and at random in grey.

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
            ax.plot(
                curve.removed[known], losses[known], style, color=colour, label=label, markersize=5
            )
    ax.axhline(curve.refitted[0], color=GREY, linewidth=0.8)
    ax.set_xlabel("training rows removed")
    ax.set_ylabel("mean loss of the held-out rows")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    whole_numbers(ax)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    plain_frame(ax)
    return ax


def fidelity(fidelity: Fidelity | Tracer, *, ax: Axes | None = None) -> Axes:
    """How far the replay's leaf values are from the model's own, step by step.

    >>> lt.plot.fidelity(tracer.fidelity)                                 # doctest: +SKIP
    """
    fidelity = fidelity.fidelity if isinstance(fidelity, Tracer) else fidelity
    expect(fidelity, Fidelity, "tracer.fidelity")
    ax = axes(ax, 7, 3)
    errors = fidelity.per_step
    ax.plot(np.arange(1, len(errors) + 1), errors, ".", color=HELP if fidelity.exact else HARM)
    ax.set_yscale("symlog", linthresh=1e-17)  # zero has its place, below the rounding of a float64
    ax.set_ylim(0, max(1e-6, 10 * fidelity.max_error))
    ax.set_yticks([0, *10.0 ** np.arange(-16, np.log10(ax.get_ylim()[1]) + 0.1, 4)])
    ax.set_xlabel("step")
    whole_numbers(ax)
    ax.set_ylabel("largest relative error of a leaf")
    verdict = "exact" if fidelity.exact else "NOT exact"
    ax.set_title(f"The replay is {verdict}: largest error {fidelity.max_error:.1e}")
    plain_frame(ax)
    return ax


def _log_spaced(n: int) -> np.ndarray:
    """Numbers of rows from 1 to n."""
    return np.unique(np.rint(np.geomspace(1, n, POINTS)).astype(int))


def _rows_axis(ax: Axes, n: int) -> None:
    ax.set_xscale("log")
    ax.set_xlim(0.9, 1.1 * n)
    ax.xaxis.set_major_formatter("{x:,.0f}")
