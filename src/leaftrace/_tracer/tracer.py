"""`Tracer`: a model with its training rows, and the methods that explain it by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .._adapters import open_model
from .._adapters.class_names import NamedClasses
from .._data import frames, inputs
from .._data.arrays import F64, Ints
from .._data.row_labels import aligned, labels_of, positions_of
from .._engine.costs import Estimate
from .._engine.engine import Engine
from .._engine.fidelity import Fidelity
from .._engine.less_memory import memory_errors
from .._engine.methods import LeafInfluence, LeafRefit, Method, Retrain, StructureInfluence
from .._engine.queries import Of, Reduce
from .._engine.refit import RefittedModel, RetrainedModel
from .._engine.settings import settings_of
from .._model.early_stopping import read_eval_set
from .answers import (
    asked,
    rows_influence,
    streamed_top,
)
from .candidate_answers import candidates_influence
from .display import tracer_html, tracer_text
from .estimates import influence_estimate
from .follow import followed
from .influence import Influence
from .label_answers import labels_influence
from .neighbours import neighbour_table
from .openings import Openings
from .query_rows import QueriesOfTraining
from .training_rows import announce_duplicates, changed_training_set


class Tracer(Openings, QueriesOfTraining):
    """A fitted model and its training rows: replays the training and traces predictions to rows.

    >>> tracer = Tracer(model, X_train, y_train)              # doctest: +SKIP
    >>> tracer.influence(X_test, y_test).top(5)               # doctest: +SKIP

    ``model``         a fitted model of CatBoost, XGBoost, LightGBM or scikit-learn, a Pipeline or
                      search that ends in one, or the path of a saved one. A model made of others
                      (voting, stacking, CalibratedClassifierCV) gives a `MembersTracer`
    ``X_train, y_train, sample_weight``  exactly what the model was trained on, in the same order; a
                      CatBoost Pool or an XGBoost DMatrix can stand for all of them
    ``baseline``      scores given to the training rows before the first tree, if the model was
                      trained with them (XGBoost: base_margin, LightGBM: init_score)
    ``fidelity``      what to do if the replay does not give the model's own leaf values: "raise",
                      "warn" or "ignore"
    ``dtype``         "float32" or "float64" for the passes; the replay itself is always float64
    ``n_jobs``        threads; None means all cores. Results do not depend on it
    ``memory_limit``  bytes to use beyond the inputs; None means half of what is free. Some 100 bytes
                      for each training row, and one or two for each row and tree, are always used
    ``params``        training parameters that take precedence over those the model itself reports
                      (a file of XGBoost reports none); functions: an objective of yours, its loss
    ``class_names``   names of the classes, in their order, for a model that has only numbers for
                      them (a saved LightGBM or XGBoost model); labels may then be given by name,
                      and tables show names
    ``qid``           for rankers: the query of each training row, or the sizes of the queries; as many
                      values as rows are the former
    ``eval_set``      (X, y) that stopped the training early, as in fit(): retraining stops again
                      by it. Without it, retrained models have as many rounds as the model

    ``train_index`` (n,) are the training rows' names in tables: the index of X_train, or positions.
    Labels and weights in columns of pandas go by the index of X_train, not by position.

    Rows may be in pandas, polars or Arrow tables, arrays or sparse matrices, labels and weights in
    columns of any of these. Tables come back in the kind of X_train: polars, Arrow, otherwise
    pandas (a dict of arrays without pandas).
    """

    train_index: np.ndarray
    row_labels: np.ndarray | None  # (n,) labels of the training rows; None: positions only
    X_train: Any  # as given
    y_train: np.ndarray  # (n,) as given, or class names; (n, Y) for several labels a row
    engine: Engine  # the replayed model; actions and views are built on it
    _given_weight: F64 | None  # (n,); None: one for every row

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any = None,
        sample_weight: Any = None,
        *,
        baseline: Any = None,
        fidelity: Literal["raise", "warn", "ignore"] = "raise",
        dtype: str = "float32",
        n_jobs: int | None = None,
        memory_limit: int | None = None,
        params: dict[str, Any] | None = None,
        class_names: Sequence[Any] | None = None,
        eval_set: Any = None,
        qid: Any = None,
    ) -> None:
        # Not as a decorator, which would be the caller whose line warnings show.
        with memory_errors("building the tracer"):
            settings = settings_of(fidelity, dtype, n_jobs, memory_limit, eval_set)
            index = labels_of(X_train)
            y_train = aligned(y_train, index, "y_train", "X_train")
            sample_weight = aligned(sample_weight, index, "sample_weight", "X_train")
            baseline = aligned(baseline, index, "baseline", "X_train")
            qid = aligned(qid, index, "qid", "X_train")
            source = open_model(
                model, X_train, y_train, sample_weight, baseline, params or {}, class_names, qid
            )
            self.engine = Engine(source, settings)
            self.X_train = X_train
            self._set_labels(index)
            self._given_weight = inputs.optional_weights(sample_weight, self.n_rows)
            labels = source.own_labels(X_train) if y_train is None else y_train
            self.y_train = inputs.label_array(labels)
            if isinstance(source, NamedClasses):
                self.y_train = source.named(self.y_train)

    def _set_labels(self, labels: np.ndarray | None) -> None:
        """Take the labels (n,) of the training rows; None: they have positions only."""
        self.row_labels = labels
        self.train_index = np.arange(self.n_rows) if labels is None else labels
        if labels is not None:
            announce_duplicates(labels, stacklevel=3)

    @property
    def fidelity(self) -> Fidelity:
        """How exactly the replay gives the model's own leaf values."""
        return self.engine.fidelity

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.engine.n_rows

    @property
    def sample_weight(self) -> F64:
        """(n,) weights of the training rows, before class weights.

        Rows that training held out have the weight they were given, which retraining needs.
        """
        e = self.engine.ensemble
        given = 1.0 if self._given_weight is None else self._given_weight
        return np.where(e.w_factor > 0, e.sample_weight, given)

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of a classifier in the order of its outputs, or None."""
        return self.engine.source.classes

    @property
    def table_kind(self) -> str:
        """The kind of table of X_train and of results: "polars", "arrow", or "" for pandas."""
        return frames.kind(self.X_train)

    def __repr__(self) -> str:
        return tracer_text(self)

    def _repr_html_(self) -> str:
        """The tracer as a notebook shows it."""
        return tracer_html(self)

    def positions(self, labels: Any) -> Ints:
        """Positions of the training rows with these labels, in the order of the labels.

        >>> tracer.refit(without=tracer.positions(["4711", "4712"]))      # doctest: +SKIP

        ``labels``: of the index of X_train (`train_row` in tables), or a single one. A label that
        several rows share gives all of them, as ``.loc`` of pandas does; one that no row has is an
        error. All other arguments that name training rows take positions.
        """
        return positions_of(labels, self.train_index)

    # ---- influence ----

    def influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        method: Method | None = None,
        of: Of = "loss",
        reduce: Reduce = None,
        rows: Any = None,
        output: int | None = None,
        baseline: Any = None,
        qid: Any = None,
        by: Literal["query"] | None = None,
    ) -> Influence:
        """Influence of the training rows (or of `rows`) on each test row.

        ``rows``    positions of training rows, a mask, or a table of ours that has them
        ``method``  LeafInfluence() by default: exact with trees fixed, all rows at once. Or
                    StructureInfluence(), in which splits give way, LeafRefit(), Retrain(), one of
                    `baselines`
        ``of``      "loss"; "prediction" (raw score; of several outputs, `output` or the predicted
                    class); one of `goals`, any scalar of all predictions, in one column; or the
                    gradient of anything with respect to the raw predictions, as an array or a
                    function of them
        ``reduce``  "mean" or "sum": one column for the whole test set, at the price of one test row
        ``qid``     queries of ranked test rows, as for `Tracer`. The loss of a ranker, and
                    `goals.ndcg`, then have a column for each query
        ``by``      "query": lines are whole training queries of a ranker instead of its rows
        """
        query = asked(self, X_test, y_test, of, reduce, output, baseline, qid)
        return rows_influence(self, query, method, rows, by)

    def top(
        self,
        X_test: Any,
        y_test: Any = None,
        k: int = 10,
        *,
        effect: str | None = None,
        method: LeafInfluence | StructureInfluence | None = None,
        of: Of = "loss",
        output: int | None = None,
        baseline: Any = None,
        qid: Any = None,
    ) -> Any:
        """The table of `influence(...).top(k)`, with no more than a block of columns in memory."""
        query = asked(self, X_test, y_test, of, None, output, baseline, qid)
        return streamed_top(self, query, method, k, effect)

    def label_influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        to: Any = None,
        of: Of = "loss",
        reduce: Reduce = None,
        rows: Any = None,
        output: int | None = None,
        baseline: Any = None,
    ) -> Influence:
        """dQ/dy_i: derivatives of each query in the training labels, tree structures fixed.

        Labels are in the unit in which you gave them, also where the model transforms them.
        With two classes the label counts as a number from 0 to 1. With more, `to` is the class that
        labels move to: values are the rate at which Q changes as the row's label mass goes from its
        class to that one.
        """
        self.engine.needs_separate_rows("label_influence()")
        query = asked(self, X_test, y_test, of, reduce, output, baseline)
        return labels_influence(self, query, to, rows)

    def score_candidates(
        self,
        X_new: Any,
        X_test: Any,
        y_test: Any = None,
        y_new: Any = None,
        *,
        method: Method | None = None,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
        baseline: Any = None,
    ) -> Influence:
        """dQ/dw of rows that are not in the training set: the effect of adding them, to first order.

        With labels `y_new`, the effect under those. Without, `values` is the expectation under the
        model's own prediction for the new rows and, for classifiers, `per_label` has the values
        under each label. With class weights, a row has that of its class. `method` can also be
        StructureInfluence().
        """
        query = asked(self, X_test, y_test, of, reduce, output, baseline)
        return candidates_influence(self, query, X_new, y_new, method)

    def neighbours(
        self,
        X_test: Any,
        k: int = 10,
        *,
        y_test: Any = None,
        by: Literal["weight", "similarity"] = "weight",
        output: int | None = None,
        baseline: Any = None,
    ) -> Any:
        """The k training rows nearest to each test row by shared leaves, as a table.

        >>> tracer.neighbours(X_test, 5)                          # doctest: +SKIP

        `similarity` is the share of trees in which both are in one leaf. `weight` is how far the
        test row's score rises for each unit of the training row's negative gradient (sum over
        shared leaves of w eta / (H + lam)); in a forest it is the row's share in the prediction.
        The table also has the influence, which includes the effect of a row on all others: on the
        loss with `y_test`, otherwise on the prediction. It is left out for leaves without
        derivatives.

        ``k``       neighbours of each test row; fewer if there are no more
        ``by``      "weight" or "similarity", by which they are ranked
        ``output``  of several outputs, the one whose score is meant; by default that of the
                    predicted class
        """
        return neighbour_table(
            self, inputs.as_table(X_test, self.X_train), y_test, k, by, output, baseline
        )

    @memory_errors("refitting the model")
    def refit(
        self,
        without: Any = None,
        *,
        y: Any = None,
        sample_weight: Any = None,
        added: tuple[Any, Any] | None = None,
    ) -> RefittedModel:
        """The model with the same trees and all leaf values refitted on another training set, exactly.

        ``without``        training rows to leave out: positions, a mask, or a table of ours that
                           has them (`top()`, `label_noise(...).issues`), filtered as you like
        ``y, sample_weight``  other labels or weights, for all training rows
        ``added``          (X, y) of new rows
        """
        training = changed_training_set(self, without, y, sample_weight, added)
        return self.engine.refit(training)

    @memory_errors("training the model again")
    def retrain(
        self,
        without: Any = None,
        *,
        y: Any = None,
        sample_weight: Any = None,
        added: tuple[Any, Any] | None = None,
        eval_set: Any = None,
    ) -> RetrainedModel:
        """The model trained again on another training set, with its own parameters: see `refit`.

        It has as many rounds of boosting. With `eval_set` (or that of the tracer), early stopping
        decides again; `rounds` of the result says which of the two was done.
        """
        training = changed_training_set(self, without, y, sample_weight, added)
        return self.engine.retrain(training.stopped_by(read_eval_set(eval_set)))

    def follow(self, retrained: RetrainedModel, *, n_jobs: int | None = None) -> Tracer:
        """A tracer of a model from `retrain`, with its training rows and the same settings, or `n_jobs`."""
        return followed(self, Tracer.__new__(Tracer), retrained, n_jobs)

    def estimate(
        self,
        queries: Any,
        *,
        method: LeafInfluence | StructureInfluence | LeafRefit | Retrain | None = None,
        reduce: Reduce = None,
        rows: Any = None,
    ) -> Estimate:
        """Seconds and bytes that `influence` will take for these test rows (or this many of them).

        Passes over a few rows are timed for it, and for `Retrain()` one training if none was done before.

        >>> tracer.estimate(10_000)                               # doctest: +SKIP
        Estimate(about 12 s, 1.4 GB; row form)
        """
        return influence_estimate(self, queries, method, reduce, rows)
