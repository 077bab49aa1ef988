"""Effects of another training set on a number, and how tables show them.

An effect is measured in up to three ways: *predicted* to first order from derivatives, *refitted*
exactly with the trees fixed, and *retrained*, which may also choose other splits and has noise of
its own. The last of these that is known is the change that a table shows first.

One retraining alone decides nothing: it is called better or worse only if an interval of the change
leaves out zero, or if it stands out of retrainings without random rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import numpy as np

from .._data.arrays import F64
from .._data.tables import columns_of, table
from .._model.losses import Criterion, SquaredError
from .._model.target_unit import InTargetUnit

Aim = Literal["lower", "higher", ""]  # where a number is better; empty: neither
_SIGNS = {"lower": 1, "higher": -1, "": 0}
_LOSS_NAMES = {"logistic": "log loss", "softmax": "log loss"}
NOT_MEASURED = "one retraining, noise not measured"
WITHIN_NOISE = "not told apart from retraining noise"
CONTRADICTED = "no, see refitted"
_WRONG_SIGN = "wrong sign"
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
    ``certain``      whether more than one retraining speaks for it: an interval without zero
    """

    of: str
    before: float
    predicted: float = np.nan
    refitted: float = np.nan
    retrained: float = np.nan
    above_noise: str = ""
    better: Aim = "lower"
    certain: bool = False


E = TypeVar("E", bound=Effect)


def effects_table(effects: Sequence[Effect], kind: str = "") -> Any:
    """A table with a line for each effect; None if there are none. ``kind``: that of X_train."""
    if not effects:
        return None
    given = {
        field.name: [getattr(effect, field.name) for effect in effects]
        for field in fields(effects[0])
    }
    aims = given.pop("better")
    given.pop("certain")
    before = np.array(given.pop("before"), dtype=float)
    ways = {way: np.array(given.pop(way), float) for way in _TITLES if way in given}
    if not any(given["above_noise"]):
        del given["above_noise"]
    name = given.pop("of")
    columns = change_columns(before, ways, aims)
    for i, effect in enumerate(effects):
        columns["verdict"][i] = judgement(effect, columns["verdict"][i])
    return table({"of": name, **columns, **given}, kind)


def judgement(effect: Effect, word: str) -> str:
    """The word for a change, better or worse, or why there is none."""
    if not word or effect.certain or effect.above_noise == "yes":
        return word
    if effect.above_noise == "no":
        return WITHIN_NOISE
    return word if np.isnan(effect.retrained) else NOT_MEASURED


def change_columns(
    before: F64, ways: Mapping[str, F64], aims: Sequence[Aim] | None = None
) -> dict[str, Any]:
    """Columns of changes (n,): before, after, the change, whether it is better, and each way.

    ``ways``  changes by each way of measuring, the closest to training again last
    ``aims``  where each number is better; None: lower

    Where a refit goes the other way than first order, a column says that first order does not hold.
    Retrained changes are called by their sign; see `judgement`.
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

    Changes are called changes, and only where there is more than one way of measuring them; where
    the refit contradicts first order, the table says so in the place of its number.
    """
    columns = dict(columns_of(effects))
    ways = [way for way in _TITLES if way in columns and np.isfinite(columns[way]).any()]
    holds = columns.pop("first_order_holds", None)
    if holds is not None:
        contradicted = np.array([value == CONTRADICTED for value in holds.tolist()])
        values = np.asarray(columns["predicted"], dtype=object)
        columns["predicted"] = np.where(contradicted, _WRONG_SIGN, values)
    hidden = set(_TITLES) if len(ways) == 1 else set(_TITLES) - set(ways)  # or nothing was measured
    columns = {name: values for name, values in columns.items() if name not in hidden}
    return {_TITLES.get(name, name): values for name, values in columns.items()}


def judged(effect: E, interval: tuple[float, float] | None) -> E:
    """An effect whose interval tells whether it is better or worse: neither if it has zero."""
    if interval is None:
        return effect
    has_zero = interval[0] <= 0 <= interval[1]
    return replace(effect, better="") if has_zero else replace(effect, certain=True)


@dataclass(frozen=True)
class LossUnit:
    """How people read a mean loss: of squared errors as their root, which has the target's unit.

    ``squared``  whether the loss is half the squared error
    ``loss``     the name by which people know the loss, such as log loss
    """

    squared: bool
    loss: str = "loss"

    @property
    def name(self) -> str:
        """The name of the number."""
        return "RMSE" if self.squared else f"mean {self.loss}"

    @property
    def of_row(self) -> str:
        """The name of the number of a single row."""
        return "error" if self.squared else self.loss

    def renamed(self, text: str) -> str:
        """A name of ours for a number, such as `loss of the 50 hold-out rows`, in this unit."""
        if text.startswith(("loss of x", "loss of test row")):
            return text.replace("loss", self.of_row, 1)
        return text.replace("mean loss", "loss").replace("loss", self.name)

    def level(self, mean_loss: Any) -> Any:
        """A mean loss, or an array of them, in this unit."""
        return np.sqrt(np.maximum(2.0 * mean_loss, 0.0)) if self.squared else mean_loss

    def change(self, before: Any, change: Any) -> Any:
        """The change of a number that was `before`, both mean losses."""
        return self.level(before + change) - self.level(before) if self.squared else change

    def slope(self, before: Any, change: Any) -> Any:
        """The same to first order."""
        if not self.squared:
            return change
        root = self.level(before)
        return np.divide(change, root, out=np.full(np.shape(change), np.nan), where=root > 0)

    def interval(self, before: float, low: float, high: float) -> tuple[float, float]:
        """The ends of an interval of the change."""
        return float(self.change(before, low)), float(self.change(before, high))


def unit_of(loss: Criterion) -> LossUnit:
    """The unit in which people read means of this loss."""
    loss = loss.of if isinstance(loss, InTargetUnit) else loss
    plain = loss.name if loss.name.endswith("error") else f"{loss.name} loss"
    return LossUnit(isinstance(loss, SquaredError), _LOSS_NAMES.get(loss.name, plain))


def in_target_unit(effect: E, loss: Criterion) -> E:
    """An effect on a mean loss in the unit in which people read it, see `LossUnit`."""
    unit = unit_of(loss)
    name = unit.renamed(effect.of)
    if not unit.squared:
        return replace(effect, of=name)
    before = effect.before
    changes = {
        way: float(unit.change(before, getattr(effect, way)))
        for way in ("refitted", "retrained", "low", "high")
        if hasattr(effect, way)
    }
    return replace(
        effect,
        of=name,
        before=float(unit.level(before)),
        predicted=float(unit.slope(before, effect.predicted)),
        **changes,
    )
