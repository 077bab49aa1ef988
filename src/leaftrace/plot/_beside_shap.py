"""One prediction explained twice: by features (SHAP) and by training rows (influence)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.errors import InvalidInput, LeaftraceError
from .._data.numbers import number_text
from .._data.row_labels import row_numbers
from .._tracer.influence import Influence
from ._canvas import GREY, HARM, HELP, conclude, display_name, expect, hide_frame, signed
from ._rows import top

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def beside_shap(
    influence: Influence, explanation: Any, test_row: int = 0, k: int = 8, *, axes: Any = None
) -> tuple[Axes, Axes]:
    """The features behind a prediction, by SHAP, beside the training rows behind it.

    >>> lt.plot.beside_shap(tracer.influence(X_test, of="prediction"), explainer(X_test), 7)   # doctest: +SKIP

    ``influence``    of training rows on the predictions of some test rows
    ``explanation``  a shap.Explanation of the same rows, in the same order; of several outputs, one
                     of them: ``explanation[:, :, 1]``
    ``test_row``     which of these rows, counted from 0
    ``k``            features, and training rows of each side
    ``axes``         two Axes to draw on
    """
    expect(influence, Influence, 'what tracer.influence(X_test, of="prediction") returns')
    values = _values(explanation, influence)
    j = int(row_numbers([test_row], len(values), "test_row", "test rows")[0])
    left, right = _two_axes(axes)
    _draw_features(left, explanation, values[j], j, k)
    top(influence, j, k, ax=right)
    return left, right


def _values(explanation: Any, influence: Influence) -> np.ndarray:
    """(m, d) values of the explanation, of as many rows as the influence has."""
    values = np.asarray(getattr(explanation, "values", None))
    if values.ndim != 2:
        raise InvalidInput(
            "explanation is no shap.Explanation of several rows and one output; pass explainer(X_test), and of several "
            "outputs one, as explanation[:, :, 1]."
        )
    if len(values) != influence.shape[1]:
        raise InvalidInput(
            f"explanation has {len(values)} rows and influence {influence.shape[1]}; explain the same test rows."
        )
    return values


def _two_axes(axes: Any) -> tuple[Axes, Axes]:
    if axes is not None:
        left, right = np.ravel(axes)
        return left, right
    try:
        from matplotlib import pyplot
    except ImportError:
        raise LeaftraceError("pictures need matplotlib: pip install leaftrace[plot]") from None
    left, right = pyplot.subplots(1, 2, figsize=(12, 4.6), layout="constrained")[1]
    return left, right


def _draw_features(ax: Axes, explanation: Any, values: np.ndarray, j: int, k: int) -> None:
    """The k features of largest effect as bars, and the sum of all others."""
    order = np.argsort(-np.abs(values), kind="stable")
    shown = order[:k]
    rest = float(values[order[k:]].sum())
    effects = [float(values[f]) for f in shown]
    names = [_feature(explanation, j, int(f)) for f in shown]
    if len(order) > k:
        effects.append(rest)
        names.append(f"{len(order) - k} other features")
    colors = [HARM if effect > 0 else HELP for effect in effects]
    hatches = ["////" if effect > 0 else "" for effect in effects]
    bars = ax.barh(range(len(effects)), effects, color=colors, hatch=hatches, edgecolor="white")
    ax.bar_label(bars, [signed(effect) for effect in effects], padding=3, fontsize="small")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.margins(x=0.2)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_xlabel("SHAP value (raw score)")
    base = np.ravel(np.asarray(getattr(explanation, "base_values", np.nan)))
    start = float(base[j] if len(base) > 1 else base[0])
    here = float(start + values.sum())
    strongest = f"{names[0]} matters most: " if len(shown) else ""
    conclude(ax, f"{strongest}{number_text(start)} on average, {number_text(here)} here")
    hide_frame(ax)


def _feature(explanation: Any, j: int, f: int) -> str:
    """The name of a feature with its value in row j."""
    names = getattr(explanation, "feature_names", None)
    name = f"feature {f}" if names is None else display_name(names[f], 20)
    data = getattr(explanation, "data", None)
    if data is None:
        return name
    return f"{name} = {display_name(np.asarray(data)[j, f], 12)}"
