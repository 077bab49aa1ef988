"""The result of `influential_set`, in tables and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.numbers import change_text, number_text
from ..common import Finding
from ..effects import Effect, effects_table
from ..statistics import interval_in_words

Direction = Literal["raise", "lower"]


@dataclass(frozen=True, repr=False)
class InfluentialSet(Finding):
    """The training rows whose removal moves a number most. NaN: not computed.

    ``rows``       positions of the training rows, in the order of their removal
    ``labels``     their labels: of the index of X_train, or positions
    ``rounds``     (rows,) the round in which each left, from 1
    ``direction``  "raise" or "lower": where the number goes without them
    ``of``         the number, in words: a loss that is half the squared error is the error of one
                   test row, or the RMSE of several, as are all changes here
    ``method``     by which rows were ranked, and whose changes the table shows
    ``before``     the number in the model as it is
    ``predicted``  its change without the rows to first order, trees fixed
    ``refitted``   exactly, trees fixed
    ``retrained``  by training again, mean of several retrainings
    ``interval``   95 % interval of that mean; (NaN, NaN) if not computed
    ``noise``      the size from which a change by one retraining stands out of those without random
                   rows
    ``one_shot``   positions of the rows that first order chooses all at once, to compare with
    ``interrupted``  whether Ctrl-C or the time limit ended the work
    """

    title: str
    advice: str
    rows: Ints
    labels: np.ndarray
    rounds: Ints
    direction: Direction
    of: str
    method: str
    before: float
    predicted: float
    refitted: float
    retrained: float
    interval: tuple[float, float]
    noise: float
    one_shot: Ints
    interrupted: bool
    _table: Any
    _effects: tuple[Effect, ...]
    _kind: str

    @property
    def table(self) -> Any:
        """The rows in the order of removal: change alone to first order, and refitted so far."""
        return self._table

    @property
    def effects(self) -> Any:
        """Changes without this set, and without others that it is compared with."""
        return effects_table(self._effects, self._kind)

    def __repr__(self) -> str:
        if not len(self.rows):
            return f"InfluentialSet(no rows {self.direction} the {self.of})"
        known = f"{change_text(self.refitted, 3)} refitted"
        if np.isfinite(self.retrained):
            known += f", {change_text(self.retrained, 3)} retrained"
        rows = "1 row" if len(self.rows) == 1 else f"{len(self.rows):,} rows"
        return f"InfluentialSet(without {rows} the {self.of} changes by {known})"


def moves_as_asked(direction: Direction, found: Effect) -> bool:
    """Whether the number moves in this direction: retrained, or refitted if none was trained."""
    known = found.retrained if np.isfinite(found.retrained) else found.refitted
    return known > 0 if direction == "raise" else known < 0


def title_of(direction: Direction, of: str, rows: int, way: str, as_asked: bool) -> str:
    """The title of a result of so many rows. ``way``: by which they were found."""
    if rows and not as_asked:
        verb = {"raise": "rise", "lower": "fall"}[direction]
        return f"{rows:,} training rows found by {way}, but without them the {of} does not {verb}"
    goes = {"raise": "rises", "lower": "falls"}[direction]
    return f"{rows:,} training rows without which the {of} {goes} most, found by {way}"


def advice_of(
    found: Effect,
    one_shot: Effect,
    changes: F64 | None,
    noise: float,
    interval: tuple[float, float],
    as_asked: bool,
) -> str:
    """Advice on a set and on the one that first order chooses at once.

    ``changes``: (retrainings,) changes without the set; None if none was trained.
    """
    text = "" if as_asked else "These rows do not do what was asked: do not act on them. "
    text += (
        f"Refitted with the trees as they are, the change is {change_text(found.refitted, 3)}; first order says "
        f"{change_text(found.predicted, 3)}. As many rows chosen all at once by first order give "
        f"{change_text(one_shot.refitted, 3)}."
    )
    if changes is None:
        return f"{text} Training again takes other splits, too: confirm=5 shows what it does."
    stands = "above" if abs(found.retrained) > noise else "not above"
    return (
        f"{text} Retrained {len(changes)} times, it is {change_text(found.retrained, 3)} "
        f"({interval_in_words(*interval)}), {stands} the {number_text(noise, 2)} from which a retraining stands out of "
        f"those without random rows; for the rows chosen at once it is {change_text(one_shot.retrained, 3)}."
    )
