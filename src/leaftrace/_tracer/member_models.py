"""Predictions of a model made of others: as it is, their slopes in its members' scores, and refitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._adapters.wrappers.members import MemberModel
from .._adapters.wrappers.stand_in import StandIn
from .._data import inputs
from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.row_labels import aligned, labels_of
from .._engine.refit import AlteredModel
from .._model.further_losses.numeric_derivative import derivative
from .member_opening import member_labels
from .tracer import Tracer

_LEAST = 1e-15  # probability whose logarithm is taken for those below


@dataclass(frozen=True)
class Combination:
    """How a model makes its predictions of those of its members."""

    made: MemberModel
    tracers: Mapping[str, Tracer]
    classes: NDArray[Any] | None

    def labels_for(self, name: str, y: NDArray[Any]) -> NDArray[Any]:
        """Labels (m,) as this member takes them."""
        member = next(m for m in self.made.members if m.name == name)
        return member_labels(self.made, member, y)

    def codes(self, y: NDArray[Any]) -> F64:
        """(m,) numbers of the classes of labels."""
        assert self.classes is not None
        return inputs.class_codes(y, self.classes, "y_test")

    def response(self, scores: Mapping[str, F64], X: Any, method: str = "") -> NDArray[Any]:
        """Probabilities (m, C), or numbers (m,), with these raw scores of members.

        ``method``: "predict" for labels of classes.
        """
        assert self.made.combined is not None
        models = []
        for member in self.made.members:
            tracer = self.tracers.get(member.name)
            if tracer is None:
                models.append(member.model)
            else:
                models.append(StandIn(member.model, tracer.engine.source, scores[member.name]))
        usual = "predict" if self.classes is None else "predict_proba"
        return self.made.combined(models, X, method or usual)

    def loss(self, response: F64, y: NDArray[Any]) -> F64:
        """(m,) log losses of probabilities, or half the squared errors of numbers."""
        if self.classes is None:
            return 0.5 * (response - inputs.numbers(y, "y", len(response))) ** 2
        chosen = response[np.arange(len(response)), self.codes(y).astype(int)]
        return -np.log(np.maximum(chosen, _LEAST))

    def slopes(self, X: Any, y: Any, of: Any, output: int | None) -> dict[str, F64]:
        """(m, K) for each member: slopes of the loss, or prediction, of each row in its scores."""
        if self.made.not_smooth:
            raise UnsupportedModel(
                f"{self.made.not_smooth}, where there are no derivatives; use by_member() or refit(without=...)."
            )
        at = {name: t.engine.as_trained.scores(X) for name, t in self.tracers.items()}
        number = self._number_of(self.response(at, X), y, of, output)
        slopes = {name: np.zeros_like(F) for name, F in at.items()}
        for name, F in at.items():
            for k in range(F.shape[1]):

                def moved(x: F64, rows: Ints, name: str = name, k: int = k) -> F64:
                    scores = {other: values[rows] for other, values in at.items()}
                    scores[name][:, k] = x
                    return number(self.response(scores, inputs.take_rows(X, rows)), rows)[:, None]

                slopes[name][:, k] = derivative(moved, F[:, k], try_complex=False)[:, 0]
        if not any(slope.any() for slope in slopes.values()):
            raise UnsupportedModel(
                f"predictions of this {self.made.name} do not move with small changes of its members: what combines "
                "them jumps. Use by_member() or refit(without=...)."
            )
        return slopes

    def _number_of(self, response: F64, y: Any, of: Any, output: int | None) -> Any:
        """A function of responses of some rows, and their numbers, that gives one number each."""
        if of == "loss" if isinstance(of, str) else False:
            if y is None:
                raise InvalidInput(
                    "of='loss' needs the labels of the test rows; pass y_test, or of='prediction'."
                )
            return lambda r, rows: self.loss(r, y[rows])
        if not isinstance(of, str) or of != "prediction":
            raise InvalidInput(
                f"of is {of!r}; for a model made of others it can be 'loss' or 'prediction'; by_member() takes goals."
            )
        if response.ndim == 1:
            return lambda r, rows: r
        chosen = np.full(len(response), 1 if output is None else output)
        if output is None and response.shape[1] > 2:
            chosen = response.argmax(axis=1)
        if output is not None and not 0 <= output < response.shape[1]:
            raise InvalidInput(
                f"output is {output}, but there are classes 0 to {response.shape[1] - 1}."
            )
        return lambda r, rows: r[np.arange(len(r)), chosen[rows]]


@dataclass(frozen=True, repr=False)
class AlteredMembers:
    """A model made of others, with members that were refitted or retrained.

    ``members``  the changed members, by name
    ``without``  positions of the training rows that were removed
    """

    combination: Combination
    members: Mapping[str, AlteredModel]
    without: Ints

    @property
    def model(self) -> Any:
        """The model itself, of the class of yours, with the changed members in it."""
        made = self.combination.made
        models = [
            self.members[m.name].model if m.name in self.members else m.model for m in made.members
        ]
        return made.with_members(models)

    def predict(self, X: Any) -> NDArray[Any]:
        """The predictions that your model's own `predict` would give; of fold models, their mean."""
        made = self.combination.made
        X = made.transform(inputs.as_table(X))
        if made.combined is None:
            return next(iter(self.members.values())).predict(X)
        classes = self.combination.classes
        if made.classes is None and classes is not None:  # models of folds
            return classes[self._response(X).argmax(axis=1)]
        return self._response(X, "predict")

    def predict_proba(self, X: Any) -> F64:
        """Class probabilities (m, classes) of a classifier."""
        if self.combination.classes is None:
            raise InvalidInput("this model has no class probabilities; use predict().")
        X = self.combination.made.transform(inputs.as_table(X))
        if self.combination.made.combined is None:
            return next(iter(self.members.values())).predict_proba(X)
        return self._response(X)

    def loss(self, X: Any, y: Any) -> F64:
        """(m,) the loss of each row, as in `MembersTracer.influence`."""
        X = inputs.as_table(X)
        y = inputs.vector(aligned(y, labels_of(X), "y"), "y", inputs.row_count(X))
        X = self.combination.made.transform(X)
        if self.combination.made.combined is None:
            return next(iter(self.members.values())).loss(X, y)
        return self.combination.loss(self._response(X), y)

    def _response(self, X: Any, method: str = "") -> NDArray[Any]:
        scores = {name: model.scores(X) for name, model in self.members.items()}
        return self.combination.response(scores, X, method)

    def __repr__(self) -> str:
        how = "refitted" if hasattr(next(iter(self.members.values())), "ensemble") else "retrained"
        return f"{self.combination.made.name} with {len(self.members)} {how} members"


def altered_members(
    how: str,
    combination: Combination,
    rows: Mapping[str, Ints],
    without: Ints,
    changes: Mapping[str, Any],
) -> AlteredMembers:
    """Refit or retrain all members. ``changes``: other labels, weights (n,) and added rows, or None."""
    made = combination.made
    members: dict[str, AlteredModel] = {}
    if changes["added"] is not None and any(m.rows is not None for m in made.members):
        raise InvalidInput(
            "members of this model have rows of their own, and which of them new rows would go to is not known; add "
            "them to one: tracer.members[name].refit(added=...)."
        )
    for name, tracer in combination.tracers.items():
        own = rows[name]
        asked: dict[str, Any] = {"without": np.flatnonzero(np.isin(own, without))}
        if changes["y"] is not None:
            asked["y"] = combination.labels_for(name, changes["y"])[own]
        if changes["sample_weight"] is not None:
            asked["sample_weight"] = changes["sample_weight"][own]
        if changes["added"] is not None:
            X_new, y_new = changes["added"]
            y_new = inputs.vector(y_new, "the labels of added rows", inputs.row_count(X_new))
            asked["added"] = (made.transform(X_new), combination.labels_for(name, y_new))
        members[name] = getattr(tracer, how)(**asked)
    return AlteredMembers(combination, members, without)
