"""Models of other training sets: rows removed, relabelled, reweighted or added. Leaf values are refitted on the fixed
structure, or the whole model is retrained."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._adapters import Retrained, Source
from .._data.arrays import F64, Ids, Ints
from .._data.errors import InvalidInput, UnsupportedModel
from .._model.ensemble import Ensemble
from .._model.goal import Goal, GoalRows, ReadyGoal
from .._model.reading import Reading
from .._model.training_set import TrainingSet
from .replay import Trace
from .steps import Step, answered, walk


@dataclass(frozen=True)
class AlteredModel:
    """The methods that refitted and retrained models share.

    ``rows``  the training set they were fitted on
    """

    source: Source
    rows: TrainingSet

    @property
    def without(self) -> Ints:
        """Positions of the training rows that were removed."""
        return self.rows.removed

    @property
    def reading(self) -> Reading:
        """How the scores are read."""
        return Reading(self.source.ensemble.loss, self.source.classes)

    def scores(self, X: Any, baseline: Any = None) -> F64:
        raise NotImplementedError

    def predict(self, X: Any, baseline: Any = None) -> F64:
        """Raw predictions, (m,) or (m, K): what ``of="prediction"`` is about."""
        F = self.scores(X, baseline)
        return F[:, 0] if F.shape[1] == 1 else F

    def predict_proba(self, X: Any, baseline: Any = None) -> F64:
        """Class probabilities (m, classes), for classifiers."""
        response = self.reading.response(self.scores(X, baseline))
        if response.ndim == 1:
            name = self.source.ensemble.loss.name
            raise InvalidInput(
                f"a model with the {name} loss has no class probabilities; use predict()."
            )
        return response

    def loss(self, X: Any, y: Any = None, baseline: Any = None) -> F64:
        """(m,) the model's own loss of each row."""
        F = self.scores(X, baseline)
        y = self.source.own_labels(X) if y is None else y
        return self.source.ensemble.loss.value(F, self.source.labels(y, len(F), "y"))

    def goal(self, goal: Goal | ReadyGoal, X: Any, y: Any = None, baseline: Any = None) -> float:
        """The value of one of `goals` for these rows: what ``of=goal`` is about."""
        F = self.scores(X, baseline)
        y = self.source.own_labels(X) if y is None else y
        codes = None if y is None else self.source.labels(y, len(F), "y")
        return goal.bind(GoalRows(self.reading, codes, len(F))).at(F)


@dataclass(frozen=True)
class RefittedModel(AlteredModel):
    """The model with its trees as they are and all leaf values refitted."""

    ensemble: Ensemble  # with the refitted leaf values and base score

    def scores(self, X: Any, baseline: Any = None) -> F64:
        return self.ensemble.scores(*self.source.rows(X, baseline))


@dataclass(frozen=True)
class RetrainedModel(AlteredModel):
    """The model trained again."""

    retrained: Retrained

    @property
    def structure_changed(self) -> bool:
        """Does any training row fall into another leaf of any tree?"""
        return self.retrained.structure_changed

    def scores(self, X: Any, baseline: Any = None) -> F64:
        offset = self.source.rows(X, baseline)[1]
        return self.retrained.scores(X) + (0.0 if offset is None else offset)


def alter(source: Source, rows: TrainingSet) -> Ensemble:
    """The model with another training set, its leaf values and starting score as they were. Class weights stay those
    of training; a row gets that of its new class."""
    e = source.ensemble
    y = e.y if rows.y is None else source.labels(rows.y, e.n_rows, "y")
    w = e.sample_weight if rows.sample_weight is None else rows.sample_weight
    trained = {"w_factor": e.w_factor} | (
        {} if e.base_factor is None else {"base_factor": e.base_factor}
    )
    factors = dict(trained)
    if (
        rows.sample_weight is not None
        and e.weights_fixed
        and np.any((w != 0) & (w != e.sample_weight))
    ):
        raise UnsupportedModel(
            f"refit() cannot give rows other weights: {e.weights_fixed}; use retrain()."
        )
    if rows.y is not None:
        if e.labels_fixed and np.any(y != e.y):
            raise UnsupportedModel(
                f"refit() cannot give rows other labels: {e.labels_fixed}; use retrain()."
            )
        for (name, x), new in zip(
            trained.items(), class_factors(source, y, list(trained.values())), strict=True
        ):
            factors[name] = np.where(
                (y == e.y) | (x == 0), x, new
            )  # rows of factor zero are held out and stay so
    altered = replace(e, y=y, w=w * factors["w_factor"], **factors).keep(rows.keep)
    if rows.added is None:
        return altered
    X, labels, weights = rows.added
    leaves, codes = _new_rows(source, X, labels)
    new = dict(zip(trained, class_factors(source, codes, list(trained.values())), strict=True))
    w = np.append(altered.w, weights * new["w_factor"])
    return replace(
        altered,
        leaves=np.concatenate([altered.leaves, leaves], axis=1),
        y=np.append(altered.y, codes),
        w=w,
        whole=None if altered.whole is None else (altered.whole[0] + len(codes), float(w.sum())),
        **{name: np.append(getattr(altered, name), x) for name, x in new.items()},
    )


def class_factors(source: Source, codes: F64, factors: list[F64]) -> list[F64]:
    """Each of these factors (n,), class weights of the training rows, for rows with these labels."""
    return [_of_labels(source.ensemble.y, x, codes) for x in factors]


def _of_labels(y: F64, factor: F64, new: F64) -> F64:
    """The factor that training rows have, with labels y (n,), for the labels ``new``; one for a label none has. Rows of
    factor zero are held out."""
    live = factor > 0
    if np.ptp(factor[live]) == 0:
        return np.full(len(new), factor[live][0])
    labels, code = np.unique(y, return_inverse=True)
    of_label = np.zeros(len(labels))
    np.maximum.at(of_label, code, factor)
    at = np.minimum(np.searchsorted(labels, new), len(labels) - 1)
    return np.where(labels[at] == new, of_label[at], 1.0)


def _new_rows(source: Source, X: Any, y: NDArray[Any]) -> tuple[Ids, F64]:
    """Leaves that the finished model puts new rows in, and their labels."""
    if source.ensemble.sample is not None:
        raise UnsupportedModel(
            "this model drew or weighed rows anew for each tree, and what it would have done with new ones is not "
            "known; use retrain()."
        )
    leaves, offset = source.rows(X)
    if source.ensemble.offset is not None or offset is not None:
        raise InvalidInput(
            "this model was trained with a baseline, which new rows lack; they cannot be added."
        )
    return leaves, source.labels(y, len(y), "y_new")


def refit_on(trace: Trace, rest: Ensemble, threads: Executor | None = None) -> Ensemble:
    """Replay all steps with these rows: exact, one pass. Their number counts in lam, and halvings by backtracking stay
    where they were."""
    e = trace.ensemble
    base = e.base
    if (
        e.base_rule is not None
    ):  # the change only, so that the model's own rounding of its base stays
        fits = [e.base_rule.fit(part.loss, part.y, part.base_weight) for part in (rest, e)]
        base = base + fits[0] - fits[1]
    rest = replace(rest, base=base)
    A = rest.start()
    values = np.zeros_like(e.values)
    for t, step in enumerate(trace.steps):
        rows = Step(rest, t, A, values, None, threads)
        path = answered(walk(rows, step.scale.tolist()), rows)
        values[e.leaf_range(t)] = e.rate(t) * path[-1].after()
    return replace(e, base=base, values=values)
