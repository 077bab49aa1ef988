"""The result of `mismatch`: groups of training rows, and the effect of other weights for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.numbers import change_text, number_text
from ..._data.tables import table
from ..._engine.refit import RetrainedModel
from ..common import Finding
from ..effects import Effect, LossUnit, effects_table
from ..statistics import interval_in_words, no_gain

INCREASE = "increase the weight"
DECREASE = "decrease the weight"
LEAVE = "leave"
_NAMED = 3  # groups in the advice


@dataclass(frozen=True)
class Judged(Effect):
    """An effect with the interval of the last change that was measured, over the test rows."""

    low: float = np.nan
    high: float = np.nan

    @property
    def improved(self) -> bool:
        """Whether the loss (or RMSE) fell by retraining and already with the trees fixed.

        The second excludes gains that only come from the chance of other splits.
        """
        return self.refitted < 0 and not np.isnan(self.retrained) and self.high < 0


@dataclass(frozen=True, repr=False)
class Mismatch(Finding):
    """Groups of training rows whose weight should increase or decrease, and the effect of that.

    ``groups``         the columns of `table`: each group's name, rows, share of the training weight
                       and of the test rows, mean influence of a row (on the loss of the test rows,
                       by unit of weight, minus that of the average row) with its standard error,
                       direction, suggested factor
    ``sample_weight``  (n,) suggested weights; those of training if nothing was found
    ``unseen``         positions of the test rows that only judged
    ``judged``         effects on the unseen test rows, on those that chose and on others; empty if
                       nothing was tried
    ``model``          the retrained model, or None
    """

    title: str
    advice: str
    groups: dict[str, Any]
    sample_weight: F64
    unseen: Ints
    _kind: str
    judged: tuple[Judged, ...] = ()
    model: RetrainedModel | None = None

    @property
    def improved(self) -> bool:
        """Whether retraining lowered the loss of the unseen rows, beyond chance."""
        return bool(self.judged) and self.judged[0].improved

    @property
    def table(self) -> Any:
        return table(self.groups, self._kind)

    @property
    def effects(self) -> Any:
        """Changes of mean losses; low and high bound the retrained one (the refitted, if it was not
        retrained)."""
        return effects_table(self.judged, self._kind)


def advice_of(groups: dict[str, Any], effects: Sequence[Judged], unit: LossUnit) -> str:
    """Advice from the columns of the table and the effects; those on the unseen rows come first.

    ``unit``: that of the effects."""
    loss = unit.renamed("loss")
    judged = effects[0]
    interval = interval_in_words(judged.low, judged.high)
    if np.isnan(judged.retrained):
        return (
            "Not retrained: with the trees as they are, "
            f"the {loss} of unseen rows changes by {change_text(judged.refitted, 3)} ({interval}). "
            "Retraining may say otherwise; ask for retrain=True before you use these weights."
        )
    result = (
        f"retrained with these weights, the {loss} of unseen rows changes by "
        f"{change_text(judged.retrained, 3)} ({interval})"
    )
    if not judged.improved:
        return f"{no_gain(judged.retrained)}: {result}. Keep the weights as they are."
    changes = _changes(groups)
    cost = (
        "They serve rows like these: see with others=(X, y) what it costs the other rows that you "
        "serve."
    )
    if len(effects) > 2:
        cost = f"The {loss} of the others changes by {change_text(effects[2].retrained, 3)}."
    return (
        f"{changes[0].upper()}{changes[1:]}: {result}. The weights are in `sample_weight`. {cost}"
    )


def _changes(groups: dict[str, Any]) -> str:
    """The changes of weights in words, the most important first."""
    lines = zip(groups["group"], groups["direction"], groups["factor"], strict=True)
    changes = [
        f"{direction} of `{group}` (x {number_text(factor, 2)})"
        for group, direction, factor in lines
        if direction != LEAVE
    ]
    left_out = len(changes) - _NAMED
    text = ", ".join(changes[:_NAMED])
    return f"{text} and {left_out} more" if left_out > 0 else text
