"""Models of other training sets: rows removed, relabelled, reweighted or added.

Leaf values are refitted on the fixed structure, or the whole model is retrained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._adapters import Retrained, Source
from .._adapters.base import test_codes
from .._data import inputs
from .._data.arrays import F64, Ids, Ints
from .._data.errors import InvalidInput, LeaftraceError, UnsupportedModel
from .._data.row_labels import aligned, labels_of
from .._model.coupled.loss import UNKNOWN_QUERY, CoupledLoss
from .._model.coupled.scalars import OwnLoss
from .._model.early_stopping import Rounds
from .._model.ensemble import Ensemble
from .._model.goal import Goal, GoalRows, QueryGoal, ReadyGoal
from .._model.linear_leaves import as_trained, joined_rows
from .._model.reading import Reading
from .._model.start import finite_start
from .._model.target_unit import criterion_of
from .._model.training_set import TrainingSet
from .leaf_equations import LeafEquations
from .linear_steps import refitted_functions
from .replay import Trace
from .steps import Step, TrainingScores, run_on_rows
from .unknown_limits import check_iterations

if TYPE_CHECKING:
    from concurrent.futures import Executor


@dataclass(frozen=True, repr=False)
class AlteredModel:
    """A refitted or retrained model.

    ``rows``  the training set it was fitted on
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
        return Reading(
            criterion_of(self.source.ensemble.loss, self.source.target), self.source.classes
        )

    @property
    def model(self) -> Any:
        """The model itself, of the class of yours: to save, or to predict with."""
        raise NotImplementedError

    def scores(self, X: Any, baseline: Any = None) -> F64:
        """(m, K) raw scores of these rows, as in ``of="prediction"``."""
        raise NotImplementedError

    def predict(self, X: Any, baseline: Any = None) -> NDArray[Any]:
        """The predictions that your model's own `predict` would give.

        These are labels for classifiers, numbers on the scale of the labels for regressors, and
        what a Booster or a `CatBoost` model without a task gives: probabilities, raw scores.
        """
        return self.source.own_predictions(self.scores(X, baseline))

    def predict_proba(self, X: Any, baseline: Any = None) -> F64:
        """Class probabilities (m, classes) as your model's library gives them, for classifiers."""
        response = self.source.own_response(self.scores(X, baseline))
        if response.ndim == 1:
            name = self.source.ensemble.loss.name
            raise InvalidInput(
                f"a model with the {name} loss has no class probabilities; use predict()."
            )
        return response

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, baseline: Any = None
    ) -> float:
        """The accuracy of a classifier, or the R² of a model of numbers, as in scikit-learn.

        Of several targets, it is the mean of theirs.
        """
        X = inputs.as_table(X)
        F = self.scores(X, baseline)
        labels = labels_of(X)
        y = self.source.own_labels(X) if y is None else aligned(y, labels, "y")
        w = inputs.weights(aligned(sample_weight, labels, "sample_weight"), len(F))
        reading = self.reading.with_numbered_classes()
        if reading.classes is None:
            if self.source.ensemble.y.ndim == 1:
                numbers = inputs.numbers(y, "y", len(F))
            else:
                numbers = self.source.given_labels(y, len(F), "y")
            return _r2(numbers, self.source.own_predictions(F), w)
        codes = self.source.labels(y, len(F), "y")
        if np.any(codes != np.rint(codes)):
            raise InvalidInput("y has shares of classes, which have no accuracy; use loss().")
        return float(np.average(reading.decision(F) == codes, weights=w))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source.name}{self.rows.in_words()})"

    def loss(self, X: Any, y: Any = None, baseline: Any = None, qid: Any = None) -> F64:
        """(m,) the model's own loss of each row; of a ranker (Q,) that of each query.

        A model that was trained on transformed labels has half the squared error in the unit of
        the labels as they were given.

        The loss of a ranker has weights of pairs that depend on scores. As in `Tracer.influence`,
        they are those at the scores of the model that was traced.
        """
        X = inputs.as_table(X)
        F = self.scores(X, baseline)
        y = self.source.own_labels(X) if y is None else aligned(y, labels_of(X), "y")
        codes = test_codes(self.source, y, len(F), "y")
        e = self.source.ensemble
        if not isinstance(e.loss, CoupledLoss):
            return self.reading.loss.value(F, codes)
        number = np.zeros(len(F), np.intp)
        if not e.loss.whole:
            number = self._query_numbers(X, qid, len(F))
        traced = e.scores(*self.source.rows(X, aligned(baseline, labels_of(X), "baseline")))
        return OwnLoss(e.loss, codes, number).at(traced[:, 0]).values(F[:, 0])

    def _query_numbers(self, X: Any, qid: Any, m: int) -> Ints:
        """(m,) queries of these rows; an error if they are not given."""
        ranked = self.source.test_queries(X, aligned(qid, labels_of(X), "qid"), m)
        if ranked is None:
            raise InvalidInput(
                "this is a number of whole queries; pass qid= with the query of each row, or the sizes of the queries, "
                "or rows that bring them (a Pool, a DMatrix)."
            )
        return ranked.number

    def goal(
        self,
        goal: Goal | ReadyGoal | QueryGoal,
        X: Any,
        y: Any = None,
        baseline: Any = None,
        qid: Any = None,
    ) -> float:
        """The value of one of `goals` for these rows, as in ``of=goal``; the mean over queries."""
        X = inputs.as_table(X)
        F = self.scores(X, baseline)
        y = self.source.own_labels(X) if y is None else aligned(y, labels_of(X), "y")
        codes = None if y is None else test_codes(self.source, y, len(F), "y")
        if isinstance(goal, QueryGoal):
            if codes is None:
                raise InvalidInput(f"{goal.name} needs the labels of the rows; pass y.")
            number = self._query_numbers(X, qid, len(F))
            return float(goal.scalar(codes, number).at(F[:, 0]).values(F[:, 0]).mean())
        return goal.bind(GoalRows(self.reading, codes, len(F), labels_of(X))).at(F)


def _r2(y: F64, predicted: F64, w: F64) -> float:
    """The share of the variance of y that predictions explain; all (m,). The mean of several targets."""
    if y.shape != predicted.shape:
        raise InvalidInput(
            f"score() compares each label with one prediction, and this model has labels of shape {y.shape} and "
            f"predictions of shape {predicted.shape}; use loss()."
        )
    if y.ndim == 2:
        return float(np.mean([_r2(a, b, w) for a, b in zip(y.T, predicted.T, strict=True)]))
    residual = np.sum(w * (y - predicted) ** 2)
    total = np.sum(w * (y - np.average(y, weights=w)) ** 2)
    if total == 0:
        return float(residual == 0)
    return float(1 - residual / total)


@dataclass(frozen=True, repr=False)
class RefittedModel(AlteredModel):
    """The model with its trees fixed and all leaf values refitted."""

    ensemble: Ensemble  # with the refitted leaf values and base score

    @property
    def model(self) -> Any:
        """A copy of your model with the refitted leaf values.

        LightGBM, XGBoost and GradientBoosting keep no starting score that can be set; the change of
        it is in the leaves of their first trees.
        """
        return self.source.refitted_model(self.ensemble)

    def scores(self, X: Any, baseline: Any = None) -> F64:
        X = inputs.as_table(X)
        baseline = aligned(baseline, labels_of(X), "baseline")
        return self.ensemble.scores(*self.source.rows(X, baseline))


@dataclass(frozen=True, repr=False)
class RetrainedModel(AlteredModel):
    """The model trained again."""

    retrained: Retrained

    @property
    def model(self) -> Any:
        """The retrained model, of the class of yours."""
        return self.retrained.own_model()

    @property
    def structure_changed(self) -> bool:
        """Whether any training row falls into another leaf of any tree."""
        return self.retrained.structure_changed

    @property
    def rounds(self) -> Rounds:
        """Number of its rounds of boosting, and whether early stopping decided it again."""
        return self.retrained.rounds

    def scores(self, X: Any, baseline: Any = None) -> F64:
        X = inputs.as_table(X)
        baseline = aligned(baseline, labels_of(X), "baseline")
        offset = self.source.rows(X, baseline)[1]
        return self.retrained.scores(X) + (0.0 if offset is None else offset)


def alter(source: Source, rows: TrainingSet) -> Ensemble:
    """The model with another training set, its leaf values and starting score as they were.

    Class weights stay those of training; a row gets that of its new class.
    """
    e = source.ensemble
    y = e.y if rows.y is None else source.labels(rows.y, e.n_rows, "y")
    w = e.sample_weight if rows.sample_weight is None else rows.sample_weight
    _check_changes(e, rows, y, w)
    factors = _trained_factors(e)
    if rows.y is not None:
        factors = _relabelled_factors(source, y, factors)
    altered = replace(e, y=y, w=w * factors["w_factor"], **factors).keep(rows.keep)
    return altered if rows.added is None else _with_added_rows(source, altered, *rows.added)


def _check_changes(e: Ensemble, rows: TrainingSet, y: F64, w: F64) -> None:
    """Raise an error if leaf values for these labels and weights (n,) cannot be computed."""
    if rows.sample_weight is not None and e.weights_fixed and _reweights(e, w):
        raise UnsupportedModel(
            f"refit() cannot give rows other weights: {e.weights_fixed}; use retrain()."
        )
    if rows.added is not None and isinstance(e.loss, CoupledLoss):
        raise UnsupportedModel(
            f"refit() cannot add rows to a model with the {e.loss.name} loss, as "
            + ("they join the others there; use retrain()." if e.loss.whole else UNKNOWN_QUERY)
        )
    if rows.y is not None and e.labels_fixed and np.any(y != e.y):
        raise UnsupportedModel(
            f"refit() cannot give rows other labels: {e.labels_fixed}; use retrain()."
        )


def _reweights(e: Ensemble, w: F64) -> bool:
    """Whether rows that stay get other weights than in training."""
    return bool(np.any((w != 0) & (w != e.sample_weight)))


def _trained_factors(e: Ensemble) -> dict[str, F64]:
    """Class weights (n,) of the training rows, by the fields of `Ensemble` that have them."""
    factors = {"w_factor": e.w_factor}
    if e.base_factor is not None:
        factors["base_factor"] = e.base_factor
    return factors


def _relabelled_factors(source: Source, y: F64, trained: dict[str, F64]) -> dict[str, F64]:
    """Class weights (n,) of the training rows with other labels y (n,)."""
    by_label = class_factors(source, y, list(trained.values()))
    factors = {}
    for (name, factor), new in zip(trained.items(), by_label, strict=True):
        # Rows of factor zero are held out, whatever their label.
        keeps_factor = same_labels(y, source.ensemble.y) | (factor == 0)
        factors[name] = np.where(keeps_factor, factor, new)
    return factors


def same_labels(y: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,) whether rows have the same labels, (n,) or (n, Y)."""
    same = y == other
    return same if same.ndim == 1 else same.all(axis=1)


def _with_added_rows(
    source: Source, altered: Ensemble, X: Any, labels: NDArray[Any], weights: F64
) -> Ensemble:
    """The model with new rows after its training rows."""
    leaves, codes = _new_rows(source, X, labels)
    trained = _trained_factors(source.ensemble)
    by_label = class_factors(source, codes, list(trained.values()))
    factors = dict(zip(trained, by_label, strict=True))
    w = np.append(altered.w, weights * factors["w_factor"])
    whole = altered.whole
    if whole is not None:
        whole = (whole[0] + len(codes), float(w.sum()))
    removed = altered.removed
    if removed is not None:
        removed = np.append(removed, np.zeros(len(codes), bool))
    return replace(
        altered,
        leaves=joined_rows(altered.leaves, leaves),
        y=np.concatenate([altered.y, codes]),
        w=w,
        removed=removed,
        whole=whole,
        **{name: np.append(getattr(altered, name), new) for name, new in factors.items()},
    )


def class_factors(source: Source, codes: F64, factors: list[F64]) -> list[F64]:
    """Class weights of rows with these labels.

    ``factors``: one or more kinds of class weights (n,) of the training rows.
    """
    return [_factor_by_label(source.ensemble.y, factor, codes) for factor in factors]


def _factor_by_label(y: F64, factor: F64, new: F64) -> F64:
    """The factor of each label in ``new``, from those of training rows with labels y (n,).

    A label that no training row has gets 1. Rows of factor zero are held out and do not count.
    """
    live = factor > 0
    if np.ptp(factor[live]) == 0:
        return np.full(len(new), factor[live][0])
    labels, code = np.unique(y, return_inverse=True)
    by_label = np.zeros(len(labels))
    np.maximum.at(by_label, code, factor)
    at = np.minimum(np.searchsorted(labels, new), len(labels) - 1)
    return np.where(labels[at] == new, by_label[at], 1.0)


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
    return as_trained(leaves), source.labels(y, len(y), "y_new")


def refit_on(trace: Trace, rest: Ensemble, threads: Executor | None = None) -> Ensemble:
    """Replay all steps with the rows of `rest`: exact, one pass.

    The number of rows counts in lam. Steps that backtracking halved stay halved.
    """
    e = trace.ensemble
    base = _refitted_base(e, rest)
    rest = replace(rest, base=base)
    scores = TrainingScores(rest)
    values = np.zeros_like(e.values)
    for t, step_trace in enumerate(trace.steps):
        if rest.linear is not None:
            values[e.leaf_range(t)] = refitted_functions(rest, t, scores, values, threads)
            continue
        step = Step(rest, t, threads)
        step.advance(scores, values)
        equations = LeafEquations(rest, t, derivatives=False)
        path = run_on_rows(equations.iterate_with_scales(step_trace.scale.tolist()), step)
        check_iterations(trace.strictest_rule, equations, path)
        values[e.leaf_range(t)] = equations.values(path[-1].after())
    if not np.isfinite(values).all():
        raise LeaftraceError(
            "with this training set the leaf values of the model are not finite numbers: some leaves are left with "
            "rows that are predicted so well that their second derivatives are almost zero. Train the model with a "
            "smaller learning rate or more regularisation, or use retrain()."
        )
    return replace(e, base=base, values=values)


def _refitted_base(e: Ensemble, rest: Ensemble) -> F64:
    """(K,) the starting score for the rows of `rest`.

    The change of the fit is added to the model's own score, so that its rounding stays.
    """
    if e.base_rule is None:
        return e.base
    kept = slice(None) if rest.removed is None else ~rest.removed
    fitted = finite_start(e.base_rule, rest.loss, rest.y[kept], rest.base_weight[kept])
    return e.base + fitted - e.base_rule.fit(e.loss, e.y, e.base_weight)
