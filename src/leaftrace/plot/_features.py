"""Training rows against features: which rows made which SHAP values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .._tracer.influence import ACTION_PHRASES, Influence
from ._canvas import STYLES, axes, conclude, display_name, diverging_colours, expect, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_FEATURES = 20
MAX_ROWS = 60


def features(influence: Influence, k: int = 12, *, ax: Axes | None = None) -> Axes:
    """How the SHAP values of features change without single training rows, as a grid of colours.

    >>> lt.plot.features(tracer.influence(X_test[:1], of=lt.goals.shap()))          # doctest: +SKIP

    The k rows are those with the largest sum of absolute changes over all features. Features stand
    in the order of their own sums; those beyond the first 20 are left out.

    ``influence``  that of training rows on goals.shap() of several features
    """
    how = "tracer.influence(X_test[:1], of=lt.goals.shap())"
    expect(influence, Influence, how)
    if influence.of != "shap":
        raise InvalidInput(
            f"this draws SHAP values of several features, and got an influence on {influence.of}; pass {how}."
        )
    if not 1 <= k <= MAX_ROWS:
        raise InvalidInput(f"k is {k}; a picture has room for 1 to {MAX_ROWS} training rows.")
    change = np.asarray(influence.change, float)  # (rows, features)
    rows = np.argsort(-np.abs(change).sum(axis=1), kind="stable")[:k]
    columns = np.argsort(-np.abs(change).sum(axis=0), kind="stable")[:MAX_FEATURES]
    shown = change[np.ix_(rows, columns)]
    ax = axes(ax, 3.2 + 0.72 * len(columns), 1.9 + 0.34 * len(rows))
    bound = np.abs(shown).max(initial=0.0) or 1.0
    lowers_raises = diverging_colours(STYLES["lowers"]["color"], STYLES["raises"]["color"])
    image = ax.imshow(shown, lowers_raises, vmin=-bound, vmax=bound, aspect="auto")
    for (i, j), value in np.ndenumerate(shown):
        ink = "white" if abs(value) > 0.6 * bound else "black"
        ax.text(j, i, signed(value), ha="center", va="center", color=ink, fontsize="x-small")
    names = [display_name(influence.test_index[j], 20) for j in columns]
    ax.set_xticks(range(len(names)), names, rotation=35, ha="right")
    ax.set_yticks(range(len(rows)), [f"row {display_name(influence.train_index[i])}" for i in rows])
    ax.set_ylabel("training rows")
    phrase = ACTION_PHRASES[influence.action]
    ax.figure.colorbar(image, ax=ax, label=f"change of the SHAP value {phrase}")
    conclude(ax, _conclusion(influence, rows, columns, shown))
    return ax


def _conclusion(influence: Influence, rows: Ints, columns: Ints, shown: F64) -> str:
    """The title: the row and the feature with the largest change."""
    if not shown.any():
        return "No training row changes the effect of a feature"
    i, j = np.unravel_index(np.abs(shown).argmax(), shown.shape)
    row = display_name(influence.train_index[rows[i]], 18)
    feature = display_name(influence.test_index[columns[j]], 20)
    action = ACTION_PHRASES[influence.action]
    return f"Row {row} matters most to the effect of {feature}: {signed(shown[i, j])} {action}"
