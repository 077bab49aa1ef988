"""Baskets: changes of the training set that a person has put together.

A basket is a list of items in the order in which they were added. An item names training rows (by
position, as a group of a column, or as a region of the map) and what to do with them: `remove`,
`relabel` or `weight`. A later item wins over an earlier one for the same row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.cells import CellValue, short
from ..._data.errors import InvalidInput
from ..._engine.refit import RefittedModel, RetrainedModel
from ..._tracer.tracer import Tracer
from .places import group_phrase, group_rows, region_rows
from .session import Session

MAX_ITEMS = 500
MAX_FACTOR = 1000.0
MAX_SHOWN = 200  # training rows whose action a page asks for
_ACTIONS = ("remove", "relabel", "weight")


@dataclass(frozen=True)
class Basket:
    """Changes of the training rows.

    ``factor``  (n,) by which the weight of each row is multiplied; 0: the row is removed
    ``labels``  (n,) labels as the user spells them; None: as they were
    ``counts``  rows of each item, for a list
    """

    tracer: Tracer
    factor: F64
    labels: np.ndarray | None
    counts: list[int]

    @cached_property
    def removed(self) -> Ints:
        """Positions of the rows that go."""
        return np.flatnonzero(self.factor == 0)

    @cached_property
    def relabelled(self) -> Ints:
        """Positions of the rows that stay and get another label."""
        if self.labels is None:
            return np.zeros(0, np.intp)
        return np.flatnonzero((self.labels != self.tracer.y_train) & (self.factor != 0))

    @cached_property
    def reweighted(self) -> Ints:
        """Positions of the rows that stay and get another weight."""
        return np.flatnonzero((self.factor != 0) & (self.factor != 1))

    @property
    def changed(self) -> Ints:
        """Positions of all rows that are not as they were."""
        return np.unique(np.concatenate([self.removed, self.relabelled, self.reweighted]))

    @cached_property
    def hash(self) -> str:
        """A name for the changes: baskets that do the same have the same."""
        digest = hashlib.sha256()
        digest.update(self.removed.tobytes() + b"|" + self.reweighted.tobytes())
        digest.update(b"|" + self.factor[self.reweighted].tobytes() + b"|")
        digest.update(self.relabelled.tobytes())
        if self.labels is not None:
            digest.update(repr(self.labels[self.relabelled].tolist()).encode("utf-8", "replace"))
        return digest.hexdigest()

    def arguments(self) -> dict[str, Any]:
        """The arguments of `Tracer.refit` and `Tracer.retrain` for this basket."""
        given: dict[str, Any] = {}
        if len(self.removed):
            given["without"] = self.removed
        if len(self.relabelled):
            given["y"] = self.labels
        if len(self.reweighted):
            factor = np.where(self.factor == 0, 1.0, self.factor)
            given["sample_weight"] = self.tracer.sample_weight * factor
        return given

    def refit(self) -> RefittedModel:
        """The model refitted with these changes, trees fixed."""
        return self.tracer.refit(**self.arguments())

    def retrain(self) -> RetrainedModel:
        """The model trained again with these changes."""
        return self.tracer.retrain(**self.arguments())

    def sizes(self) -> dict[str, int]:
        """How many rows are changed, by what is done."""
        return {
            "removed": len(self.removed),
            "relabelled": len(self.relabelled),
            "reweighted": len(self.reweighted),
            "changed": len(self.changed),
        }

    def actions_on(self, positions: Any) -> list[dict[str, Any] | None]:
        """The action on each of some training rows, such as those that a table shows."""
        n = self.tracer.n_rows
        shown = positions[:MAX_SHOWN] if isinstance(positions, list) else []
        return [self._action(i) if type(i) is int and 0 <= i < n else None for i in shown]

    def _action(self, position: int) -> dict[str, Any] | None:
        factor = float(self.factor[position])
        if factor == 0:
            return {"do": "remove"}
        if self.labels is not None and self.labels[position] != self.tracer.y_train[position]:
            return {"do": "relabel", "to": None}
        return None if factor == 1 else {"do": "weight", "to": factor}

    def random_like(self, generator: np.random.Generator) -> Basket:
        """A basket that does the same to random rows.

        Relabelled rows are drawn among those with the same label, and a number moves by as much.
        """
        n = self.tracer.n_rows
        y = self.tracer.y_train
        order = generator.permutation(n)
        alone = np.flatnonzero(self.factor != 1)
        factor = np.ones(n)
        factor[order[: len(alone)]] = self.factor[alone]
        if not len(self.relabelled):
            return Basket(self.tracer, factor, None, [])
        assert self.labels is not None
        rest = order[len(alone) :]
        labels = y.astype(self.labels.dtype)
        if self.tracer.classes is None:
            drawn = rest[: len(self.relabelled)]
            steps = self.labels[self.relabelled] - y[self.relabelled]
            labels[drawn] = y[drawn] + steps[: len(drawn)]
            return Basket(self.tracer, factor, labels, [])
        for label in np.unique(y[self.relabelled]):
            new = self.labels[self.relabelled[y[self.relabelled] == label]]
            drawn = rest[y[rest] == label][: len(new)]
            labels[drawn] = new[: len(drawn)]
        return Basket(self.tracer, factor, labels, [])


def read_basket(session: Session, items: Any) -> Basket:
    """Check the items of a basket, as a page sends them, and put them together."""
    tracer = session.tracer
    if not isinstance(items, list) or len(items) > MAX_ITEMS:
        raise InvalidInput(f"a basket is a list of up to {MAX_ITEMS} items.")
    factor = np.ones(tracer.n_rows)
    labels: np.ndarray | None = None
    counts = []
    for item in items:
        rows = _rows_of(session, item)
        counts.append(len(rows))
        action = item.get("do")
        if action == "remove":
            factor[rows] = 0.0
        elif action == "weight":
            factor[rows] = _factor(item.get("to"))
        elif action == "relabel":
            labels = _relabel(tracer, labels, rows, _label(session, item.get("to")))
        else:
            raise InvalidInput(
                f"an item says do={action!r}; it can be one of {', '.join(_ACTIONS)}."
            )
    return Basket(tracer, factor, labels, counts)


def _relabel(tracer: Tracer, labels: np.ndarray | None, rows: Ints, label: Any) -> np.ndarray:
    """The labels with another one for some rows, in a type that does not cut it."""
    if labels is None:
        labels = tracer.y_train.astype(float if tracer.classes is None else tracer.y_train.dtype)
    labels[rows] = label
    if not np.all(labels[rows] == label):  # such as a class whose name is longer than all others
        labels = labels.astype(object)
        labels[rows] = label
    return labels


def _rows_of(session: Session, item: Any) -> Ints:
    """Positions of the training rows that an item names."""
    if not isinstance(item, Mapping):
        raise InvalidInput("an item of a basket is an object.")
    if "group" in item:
        return group_rows(session, item["group"])
    if "region" in item:
        return region_rows(session, item["region"])
    given = item.get("rows")
    n = session.tracer.n_rows
    whole = isinstance(given, list) and all(type(i) is int and 0 <= i < n for i in given)
    if not whole or not given:
        raise InvalidInput(f"rows is a list of positions of training rows, 0 to {n - 1}.")
    return np.unique(np.array(given, dtype=np.intp))


def _factor(given: Any) -> float:
    """A factor for weights; removing a row is another action than weight zero."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= MAX_FACTOR:
        raise InvalidInput(
            f"the weight is multiplied by {given!r}; give a number above 0, up to {MAX_FACTOR:g}, or "
            "remove the row."
        )
    return float(given)


def _label(session: Session, given: Any) -> Any:
    """A new label: the number of a class, or a number."""
    classes = session.classes
    if classes is not None:
        if type(given) is not int or not 0 <= given < len(classes):
            raise InvalidInput(f"there is no class number {given!r}.")
        spelled = session.tracer.y_train[session.tracer.engine.ensemble.y == given]
        return spelled[0] if len(spelled) else classes[given]
    if isinstance(given, bool) or not isinstance(given, int | float) or not np.isfinite(given):
        raise InvalidInput(f"the new label is {given!r}; give a number.")
    return given


def described_items(session: Session, items: list[Any], basket: Basket) -> list[dict[str, Any]]:
    """The items in words: which rows, how many, what is done."""
    described = []
    for item, count in zip(items, basket.counts, strict=True):
        described.append(
            {"rows": count, "what": _what(session, item), "done": _done(session, item)}
        )
    return described


def _what(session: Session, item: Mapping[str, Any]) -> CellValue:
    """Words for the rows of an item."""
    if "group" in item:
        return short(group_phrase(session, item["group"]))
    if "region" in item:
        region = item["region"]
        return short(f"region of {region.get('x')} and {region.get('y')}")
    positions = item["rows"]
    names = ", ".join(str(session.train.row(i)["row"]) for i in positions[:3])
    more = len(positions) - 3
    return short(f"row{'s' * (len(positions) > 1)} {names}" + (f" and {more:,} more" * (more > 0)))


def _done(session: Session, item: Mapping[str, Any]) -> CellValue:
    """Words for what is done to the rows of an item."""
    if item["do"] == "remove":
        return "removed"
    if item["do"] == "weight":
        return f"weight times {item['to']:g}"
    return short(f"label {_label(session, item['to'])}")
