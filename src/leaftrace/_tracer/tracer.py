"""`Tracer`: the model, its training rows and the questions one can ask of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Literal

import numpy as np

from .._adapters import open_model
from .._adapters.class_names import NamedClasses, with_names
from .._data import frames, inputs
from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._data.grouping import SourceTables
from .._data.parquet import Paths, open_table
from .._data.tables import notebook
from .._engine.costs import Estimate
from .._engine.engine import Engine, settings_of
from .._engine.fidelity import Fidelity
from .._engine.methods import Baseline, LeafInfluence, LeafRefit, Method, Retrain, TopKLeaves
from .._engine.queries import Of, Queries, Reduce
from .._engine.refit import RefittedModel, RetrainedModel
from .._engine.workspace import available_memory
from .._kernels import blocks_of, is_native
from .._model.training_set import TrainingSet
from .influence import Influence, Ranked, rank, top_table
from .neighbours import NeighbourBlock, neighbour_table


class Tracer:
    """Reads a fitted model, replays its training and answers questions about training rows.

    >>> tracer = Tracer(model, X_train, y_train)              # doctest: +SKIP
    >>> tracer.influence(X_test, y_test).top(5)               # doctest: +SKIP

    ``model``         a fitted model of CatBoost, XGBoost, LightGBM or scikit-learn, a Pipeline that ends in one, or the
                      path of a saved one
    ``X_train, y_train, sample_weight``  exactly what the model was trained on, in the same order; a CatBoost Pool or
                      an XGBoost DMatrix can stand for all of them
    ``baseline``      scores given to the training rows before the first tree, if the model was trained with them
                      (XGBoost: base_margin, LightGBM: init_score)
    ``fidelity``      what to do when the replay does not give the model's own leaf values: "raise", "warn", "ignore"
    ``dtype``         "float32" or "float64" for the passes; the replay itself is always float64
    ``n_jobs``        threads; None means all cores. Results do not depend on it
    ``memory_limit``  bytes to use beyond the inputs; None means half of what is free
    ``params``        training parameters that count before those the model itself reports
    ``class_names``   names of the classes, in their order, for a model that has only numbers for them (a saved
                      LightGBM or XGBoost model); labels may then be given by name, and tables show names

    ``train_index`` (n,) are the training rows' names in tables: the index of X_train, or positions.

    Rows may be in pandas, polars or Arrow tables, arrays or sparse matrices, labels and weights in columns of any of
    these. Tables come back in the kind of X_train: polars, Arrow, otherwise pandas (a dict of arrays without pandas).
    """

    train_index: np.ndarray
    X_train: Any  # as given
    y_train: np.ndarray  # (n,) as given, or class names
    engine: Engine  # the replayed model; actions and views are built on it
    _given_weight: F64  # (n,)

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
    ) -> None:
        settings = settings_of(fidelity, dtype, n_jobs, memory_limit)
        source = open_model(
            model, X_train, y_train, sample_weight, baseline, params or {}, class_names
        )
        self.engine = Engine(source, settings)
        self.X_train = X_train
        self.train_index = inputs.row_index(X_train, self.n_rows)
        self._given_weight = inputs.weights(sample_weight, self.n_rows)
        labels = source.own_labels(X_train) if y_train is None else y_train
        self.y_train = np.asarray(labels).ravel()
        if isinstance(source, NamedClasses):
            self.y_train = source.named(self.y_train)

    @classmethod
    def from_files(
        cls,
        model: Any,
        files: Paths,
        *,
        target: str,
        weight: str | None = None,
        baseline: str | Sequence[str] | None = None,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        memory_limit: int | None = None,
        **settings: Any,
    ) -> Tracer:
        """A tracer of a model whose training table is in Parquet files and need not fit in memory.

        >>> tracer = Tracer.from_files(model, "train/*.parquet", target="income", cache="leaves")   # doctest: +SKIP

        The rows are read once, part by part, for their leaves, which stay on disk; all methods then give what they give
        in memory, to rounding. In memory are some 100 bytes a row beside what `memory_limit` allows. `X_train` is no
        table in memory but reads what is asked for: `X_train.take(rows)`, `X_train["age"]`.

        ``files``     a pattern, a folder, or a list of files in the order of the rows
        ``target, weight, baseline``  columns with the labels, sample weights and scores given to the rows (several for
                      models of several outputs)
        ``index``     a column with names of the rows, for tables; by default positions
        ``columns``   those that the model was trained on; by default all the others
        ``cache``     a folder that keeps the leaves for the next time, as long as model and files are the same: the
                      model's contents; name, size, time of change and footer of each file. Old ones are not removed.
                      By default a temporary folder, removed with the tracer
        ``memory_limit, **settings``  as those of `Tracer`
        """
        limit = memory_limit or available_memory() // 2
        scores = (
            [] if baseline is None else [baseline] if isinstance(baseline, str) else list(baseline)
        )
        others = [name for name in (target, weight, index, *scores) if name is not None]
        table = open_table(files, others, columns, cache, limit // 2)
        w = None if weight is None else table[weight].to_numpy()
        given = (
            np.column_stack([table[name] for name in scores]).astype(np.float64) if scores else None
        )
        y = table[target].to_numpy()
        tracer = cls(model, table, y, w, baseline=given, memory_limit=memory_limit, **settings)
        if index is not None:
            tracer.train_index = table[index].to_numpy()
        return tracer

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
        """(n,) weights of the training rows, before class weights. Rows that training held out have the weight they
        were given, which retraining needs."""
        e = self.engine.ensemble
        return np.where(e.w_factor > 0, e.sample_weight, self._given_weight)

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of a classifier in the order of its outputs, or None."""
        return self.engine.source.classes

    @property
    def table_kind(self) -> str:
        """The kind of table that X_train is and results are: "polars", "arrow", or "" for pandas."""
        return frames.kind(self.X_train)

    def __repr__(self) -> str:
        e = self.engine.ensemble
        kernels = "native" if is_native() else "NumPy"
        return (
            f"Tracer({self.engine.source.name}, {e.loss.name} loss, {e.n_steps} steps, {len(e.values)} leaves, "
            f"{e.n_rows:,} training rows; {self.engine.work.dtype.name}, {kernels} kernels)\n"
            f"  fidelity: {self.fidelity.verdict}"
        )

    def _repr_html_(self) -> str:
        """The tracer as a notebook shows it."""
        e = self.engine.ensemble
        facts = {
            "loss": e.loss.name,
            "steps": e.n_steps,
            "leaves": len(e.values),
            "training rows": f"{e.n_rows:,}",
        }
        if self.classes is not None:
            names = ", ".join(map(str, self.classes[:5]))
            more = len(self.classes) - 5
            facts["classes"] = f"{names} and {more} more" if more > 0 else names
        lines = {name: np.array([value], dtype=object) for name, value in facts.items()}
        return notebook(
            f"Tracer: {self.engine.source.name}", lines, f"Fidelity: {self.fidelity.verdict}"
        )

    # ---- questions ----

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
    ) -> Influence:
        """Influence of the training rows (or those at positions `rows`) on each test row.

        ``method``  LeafInfluence() by default: exact, all rows at once. Or LeafRefit(), Retrain(), one of `baselines`
        ``of``      "loss"; "prediction" (raw score; of several outputs, `output` or the predicted class); one of
                    `goals`, any scalar of all predictions, in one column; or the gradient of anything with respect
                    to the raw predictions, as an array or a function of them
        ``reduce``  "mean" or "sum": one column for the whole test set, at the price of one test row
        """
        method = LeafInfluence() if method is None else method
        if not isinstance(method, (LeafInfluence, LeafRefit, Retrain, Baseline)):
            raise InvalidInput(
                f"method is {method!r}; it can be LeafInfluence(), LeafRefit(), Retrain() or one of lt.baselines, such "
                "as lt.baselines.BoostIn()."
            )
        if method.differentiates:
            self.engine.needs_derivatives()
        queries, test_index = self.engine.queries(X_test, y_test, of, reduce, output, baseline)
        index = inputs.row_numbers(rows, self.n_rows)
        changed = None
        if isinstance(method, Retrain):
            values, changed = self.engine.values_by_retraining(X_test, baseline, queries, index)
        else:
            values = self._values(queries, method, None if rows is None else index)
        tables = self._tables(self.X_train, None if rows is None else index, X_test, queries)
        return self._result(
            values, index, test_index, queries, method, structure_changed=changed, tables=tables
        )

    def _values(
        self, queries: Queries, method: LeafInfluence | LeafRefit | Baseline, index: Ints | None
    ) -> Real:
        """(rows, queries) by the pass that the method takes. ``index``: some training rows, or None for all."""
        engine = self.engine
        if isinstance(method, Baseline):
            return method.values(engine.work, queries, index, self.classes)
        if isinstance(method, LeafInfluence) and not isinstance(method.update_set, TopKLeaves):
            columns = [values for _, values in engine.backward_blocks(queries, method, index)]
            return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        rows = np.arange(self.n_rows) if index is None else index
        if isinstance(method, LeafRefit) and engine.ensemble.refits_whole:
            return engine.values_by_refitting(queries, method, rows)
        return engine.forward_values(queries, method, rows)

    def top(
        self,
        X_test: Any,
        y_test: Any = None,
        k: int = 10,
        *,
        effect: str | None = None,
        method: LeafInfluence | None = None,
        of: Of = "loss",
        output: int | None = None,
        baseline: Any = None,
    ) -> Any:
        """The table of `influence(...).top(k)`, made block by block: never more than a block of columns in memory."""
        method = LeafInfluence() if method is None else method
        if not isinstance(method, LeafInfluence) or isinstance(method.update_set, TopKLeaves):
            raise InvalidInput(
                "top() streams over test rows, so it takes LeafInfluence with AllPoints or SinglePoint."
            )
        self.engine.needs_derivatives()
        queries, test_index = self.engine.queries(X_test, y_test, of, None, output, baseline)
        tops: list[Ranked] = []
        for columns, values in self.engine.backward_blocks(queries, method, None):
            block = self._result(
                values, np.arange(self.n_rows), test_index[columns], queries, method
            )
            tops += rank(block, k, effect)
        return top_table(
            tops, self.train_index, test_index, f"{queries.of}_change_if_removed", self.table_kind
        )

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
        """dQ/dy_i: how each query moves with the training labels, tree structures fixed.

        With two classes the label counts as a number from 0 to 1. With more, say which class labels move `to`: values
        are the rate at which Q changes as the row's label mass goes from its class to that one."""
        self.engine.needs_derivatives()
        e = self.engine.ensemble
        target = self._target_class(to)
        queries, test_index = self.engine.queries(X_test, y_test, of, reduce, output, baseline)
        index = inputs.row_numbers(rows, self.n_rows)
        values = self.engine.label_slopes(queries, index, target)
        action = "relabelled" if e.n_outputs > 1 else "label_raised"
        step = np.ones(len(index))
        if e.n_outputs == 1 and self.classes is not None:
            action = "flipped"
            step = 1 - 2 * e.y[index]
        return Influence(
            values,
            self.train_index[index],
            test_index,
            queries.of,
            "label influence" if to is None else f"label influence, towards {to}",
            action,
            step,
            lower_is_better=queries.lower_is_better,
            tables=self._tables(self.X_train, None if rows is None else index, X_test, queries),
        )

    def score_candidates(
        self,
        X_new: Any,
        X_test: Any,
        y_test: Any = None,
        y_new: Any = None,
        *,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
        baseline: Any = None,
    ) -> Influence:
        """dQ/dw of rows that are not in the training set, at weight zero: what adding a little of them would do. With
        class weights, a row counts as its class does.

        With labels `y_new`, under those. Without, `values` is the expectation under the model's own prediction for
        the new rows and, for classifiers, `per_label` has the values under each label."""
        engine = self.engine
        engine.needs_derivatives()
        e = engine.ensemble
        leaves, offset = engine.source.rows(X_new)
        m = leaves.shape[1]
        start = np.tile(e.base, (m, 1)) + (0.0 if offset is None else offset)
        queries, test_index = engine.queries(X_test, y_test, of, reduce, output, baseline)
        response = engine.reading.response(e.scores(leaves, offset))  # (m, classes) or (m,)
        per_label = None
        if y_new is not None:
            labels = engine.labels(y_new, m, "y_new")
            values = engine.candidate_values(queries, leaves, start, [labels])[0]
        elif response.ndim == 1:
            # The effect is linear in the label, so its expectation is that of the mean label.
            values = engine.candidate_values(queries, leaves, start, [response])[0]
        else:
            classes = engine.reading.with_numbered_classes().classes
            assert classes is not None
            labelings = [np.full(m, float(code)) for code in range(len(classes))]
            by_label = engine.candidate_values(queries, leaves, start, labelings)
            expected = np.einsum("cnq,nc->nq", by_label, response)
            values = expected.astype(engine.work.dtype)
            per_label = dict(zip(classes.tolist(), by_label, strict=True))
        return Influence(
            values,
            inputs.row_index(X_new, m),
            test_index,
            queries.of,
            "candidates at weight zero",
            "added",
            np.ones(m),
            per_label=per_label,
            lower_is_better=queries.lower_is_better,
            tables=self._tables(X_new, None, X_test, queries),
        )

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
        """The k training rows that share leaves with each test row, weighted as the model weighs them, as a table.

        >>> tracer.neighbours(X_test, 5)                          # doctest: +SKIP

        `similarity` is the share of trees in which both are in one leaf. `weight` is how far the test row's score rises
        for each unit of the training row's negative gradient (sum over shared leaves of w eta / (H + lam)); in a forest
        the row's share in the prediction. Beside them stands the influence, which also counts what a row does to all
        others: of the loss with `y_test`, otherwise of the prediction. It is left out for leaves without derivatives.

        ``k``       neighbours of each test row; fewer if there are no more
        ``by``      what they are ranked by, "weight" or "similarity"
        ``output``  of several outputs, the one whose score is meant; by default that of the predicted class
        """
        if by not in ("weight", "similarity"):
            raise InvalidInput(f"by is {by!r}; it can be 'weight' or 'similarity'.")
        if k < 1:
            raise InvalidInput(f"k is {k}; ask for 1 or more neighbours.")
        engine = self.engine
        y_test = engine.test_labels(X_test, y_test)
        scores, test_index = engine.queries(X_test, None, "prediction", None, output, baseline)
        queries = scores
        if y_test is not None:
            queries, _ = engine.queries(X_test, y_test, "loss", None, None, baseline)
        outputs = scores.gradient.argmax(axis=1)  # (m,) the output whose score is meant
        every_row = np.arange(self.n_rows)
        method = LeafInfluence()

        def blocks() -> Iterator[NeighbourBlock]:
            if engine.ensemble.not_smooth:
                for columns in blocks_of(len(queries)):
                    yield queries.leaves[:, columns], outputs[columns], test_index[columns], None
                return
            for columns, values in engine.backward_blocks(queries, method, None):
                names = test_index[columns]
                influence = self._result(values, every_row, names, queries, method)
                yield queries.leaves[:, columns], outputs[columns], names, influence

        return neighbour_table(
            engine.work, blocks(), k, by, self.train_index, self.y_train, self.table_kind
        )

    def refit(
        self,
        without: Any = None,
        *,
        y: Any = None,
        sample_weight: Any = None,
        added: tuple[Any, Any] | None = None,
    ) -> RefittedModel:
        """The model with the same trees and all leaf values refitted on another training set: exact, one replay.

        ``without``        positions of training rows to leave out, or a mask
        ``y, sample_weight``  other labels or weights, for all training rows
        ``added``          (X, y) of new rows
        """
        training = self._training_set(without, y, sample_weight, added)
        return self.engine.refit(training)

    def retrain(
        self,
        without: Any = None,
        *,
        y: Any = None,
        sample_weight: Any = None,
        added: tuple[Any, Any] | None = None,
    ) -> RetrainedModel:
        """The model trained again, with its own parameters, on another training set: see `refit`."""
        training = self._training_set(without, y, sample_weight, added)
        return self.engine.retrain(training)

    def follow(self, retrained: RetrainedModel) -> Tracer:
        """A tracer of a model that `retrain` gave, with the rows it was trained on and this tracer's settings."""
        training = retrained.rows
        tracer = Tracer.__new__(Tracer)
        tracer.engine = Engine(retrained.retrained.open(), self.engine.settings)
        tracer.X_train = training.table(self.X_train)
        tracer.y_train = training.labels(self.y_train)
        tracer.train_index = self.train_index[training.keep]
        weights = training.weights(self._given_weight)
        tracer._given_weight = inputs.weights(weights, tracer.n_rows)
        if training.added is not None:
            X_new, y_new, _ = training.added
            names = inputs.row_index(X_new, len(y_new))
            tracer.train_index = np.concatenate([tracer.train_index, names])
        return tracer

    def with_class_names(self, names: Sequence[Any], argument: str) -> Tracer:
        """The same tracer with names for classes that the model has only numbers for.

        ``argument``: what the user gave them as, for messages."""
        source = with_names(self.engine.source, names, argument)
        named = copy(self)
        named.engine = self.engine.with_source(source)
        named.y_train = source.named(self.y_train)
        return named

    def estimate(
        self,
        queries: Any,
        *,
        method: LeafInfluence | LeafRefit | None = None,
        reduce: Reduce = None,
        rows: Any = None,
    ) -> Estimate:
        """Seconds and bytes that `influence` will take for these test rows (or this many of them).

        >>> tracer.estimate(10_000)                               # doctest: +SKIP
        Estimate(about 12 s, 1.4 GB; row form)
        """
        method = LeafInfluence() if method is None else method
        if not isinstance(method, (LeafInfluence, LeafRefit)):
            raise InvalidInput(
                "estimate() knows LeafInfluence and LeafRefit; for Retrain(), time one tracer.retrain()."
            )
        m = queries if isinstance(queries, (int, np.integer)) else inputs.row_count(queries)
        columns = 1 if reduce else int(m)
        index = inputs.row_numbers(rows, self.n_rows)
        return self.engine.plan(method, columns, len(index)).estimate

    # ---- their parts ----

    def _training_set(
        self, without: Any, y: Any, sample_weight: Any, added: tuple[Any, Any] | None
    ) -> TrainingSet:
        """The training set that `refit` and `retrain` are asked for; actions pass one ready-made as `without`."""
        if isinstance(without, TrainingSet):
            return without
        return self.engine.training_set(without, y, sample_weight, added)

    def _target_class(self, to: Any) -> int | None:
        """The number of the class that labels move to; None for models of one output."""
        if self.engine.ensemble.n_outputs == 1:
            if to is not None:
                raise InvalidInput(
                    "to= names the class that labels move to, for models of three or more classes."
                )
            return None
        if to is None:
            raise InvalidInput(
                "this model has several classes; say with to= which class the labels move to."
            )
        return int(self.engine.labels(np.array([to]), 1, "to")[0])

    def _result(
        self,
        values: Real,
        index: Ints,
        test_index: np.ndarray,
        queries: Queries,
        method: Method,
        **extra: Any,
    ) -> Influence:
        """An `Influence` about removing the training rows in `index`."""
        return Influence(
            values,
            self.train_index[index],
            test_index,
            queries.of,
            repr(method),
            "removed",
            self.engine.ensemble.sample_weight[index],
            method.gives == "derivatives",
            lower_is_better=queries.lower_is_better,
            scored=method.gives == "scores",
            **extra,
        )

    def _tables(self, train: Any, rows: Ints | None, test: Any, queries: Queries) -> SourceTables:
        """The tables in which a result looks up columns by name."""
        reduced = queries.reduce is not None
        return SourceTables(train, rows, None if reduced else test, reduced, self.table_kind)
