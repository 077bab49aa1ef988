"""Effects of another training set on a number, and how tables show them.

An effect is measured in up to three ways: *predicted* to first order from derivatives, *refitted*
exactly with the trees fixed, and *retrained*, which may also choose other splits and has noise of
its own. The last of these that is known is the change that a table shows first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from .._data.arrays import F64
from .._data.tables import columns_of, table
from .._model.losses import Loss, SquaredError

Aim = Literal["lower", "higher", ""]  # where a number is better; empty: neither
_SIGNS = {"lower": 1, "higher": -1, "": 0}
CONTRADICTED = "no, see refitted"
EFFECTS_CAPTION = "effects (after is before and change together)"
# What a way of measuring is called where people read it.
_TITLES = {
    "predicted": "change, first order",
    "refitted": "change, refitted",
    "path_change": "change, along a path",
    "retrained": "change, retrained",
}


@dataclass(frozen=True)
class Effect:
    """The change of one number, which is named in ``of``. NaN: not computed.

    ``better``       where the number is better
    ``above_noise``  "yes" or "no": whether the last change computed stands out of those without
                     random rows. Empty: not measured; tables then leave it out
    """

    of: str
    before: float
    predicted: float = np.nan
    refitted: float = np.nan
    retrained: float = np.nan
    above_noise: str = ""
    better: Aim = "lower"


def effects_table(effects: Sequence[Effect], kind: str = "") -> Any:
    """A table with a line for each effect; None if there are none. ``kind``: that of X_train."""
    if not effects:
        return None
    given = {
        field.name: [getattr(effect, field.name) for effect in effects]
        for field in fields(effects[0])
    }
    aims = given.pop("better")
    before = np.array(given.pop("before"), dtype=float)
    ways = {way: np.array(given.pop(way), float) for way in _TITLES if way in given}
    if not any(given["above_noise"]):
        del given["above_noise"]
    name = given.pop("of")
    return table({"of": name, **change_columns(before, ways, aims), **given}, kind)


def change_columns(
    before: F64, ways: Mapping[str, F64], aims: Sequence[Aim] | None = None
) -> dict[str, Any]:
    """Columns of changes (n,): before, after, the change, whether it is better, and each way.

    ``ways``  changes by each way of measuring, the closest to training again last
    ``aims``  where each number is better; None: lower

    Where a refit goes the other way than first order, a column says that first order does not hold.
    """
    change = np.full(len(before), np.nan)
    measured = np.full(len(before), "", dtype=object)
    for way, changes in ways.items():
        known = np.isfinite(changes)
        change[known] = changes[known]
        measured[known] = "first order" if way == "predicted" else way.removesuffix("_change")
    signs = np.ones(len(before), dtype=int)
    if aims is not None:
        signs = np.array([_SIGNS[aim] for aim in aims])
    with np.errstate(invalid="ignore"):
        judged = np.nan_to_num(np.sign(change) * signs).astype(int)
    # The words for 0, 1 and -1, which is the last place.
    words = np.array(["", "worse", "better"], dtype=object)
    columns: dict[str, Any] = {
        "before": before,
        "after": before + change,
        "change": change,
        "verdict": words[judged],
        "measured": measured,
        **ways,
    }
    if "predicted" in ways and "refitted" in ways:
        against = ways["predicted"] * ways["refitted"] < 0
        if against.any():
            columns["first_order_holds"] = np.where(against, CONTRADICTED, "yes").astype(object)
    return columns


def shown_effects(effects: Any) -> dict[str, Any]:
    """The columns of a table of effects as people read them.

    Changes are called changes, and only where there is more than one way of measuring them; first
    order is left out where the refit contradicts it.
    """
    columns = dict(columns_of(effects))
    ways = [way for way in _TITLES if way in columns and np.isfinite(columns[way]).any()]
    holds = columns.pop("first_order_holds", None)
    if holds is not None:
        contradicted = np.array([value == CONTRADICTED for value in holds.tolist()])
        columns["predicted"] = np.where(contradicted, np.nan, columns["predicted"])
    if len(ways) == 1:
        columns = {name: values for name, values in columns.items() if name not in _TITLES}
    return {_TITLES.get(name, name): values for name, values in columns.items()}


def judged(effect: Effect, interval: tuple[float, float] | None) -> Effect:
    """An effect that is called neither better nor worse if the interval of its change has zero."""
    if interval is None or not interval[0] <= 0 <= interval[1]:
        return effect
    return replace(effect, better="")


def in_target_unit(effect: Effect, loss: Loss) -> Effect:
    """An effect on a mean loss; of squared errors as their root, which has the target's unit."""
    if not isinstance(loss, SquaredError):
        return effect
    root = _root(effect.before)
    changes = {
        way: _root(effect.before + getattr(effect, way)) - root for way in ("refitted", "retrained")
    }
    slope = effect.predicted / root if root > 0 else np.nan
    name = effect.of.replace("mean loss", "RMSE").replace("loss of x", "error of x")
    return replace(effect, of=name, before=root, predicted=slope, **changes)


def _root(mean_loss: float) -> float:
    """The root of the mean squared error, whose half is the loss."""
    return float(np.sqrt(max(2.0 * mean_loss, 0.0))) if np.isfinite(mean_loss) else np.nan
