"""`Tracer`: the model, its training rows and the questions one can ask of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .._adapters import Alteration, open_model
from .._data import frames, inputs
from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._data.grouping import Tables
from .._data.parquet import Paths, open_table
from .._data.tables import notebook
from .._engine.backward import expand_labels
from .._engine.costs import Estimate, estimate
from .._engine.engine import Engine, blocks_of, settings_of
from .._engine.methods import Baseline, LeafInfluence, LeafRefit, Method, Retrain, TopKLeaves
from .._engine.queries import Of, Queries, Reduce
from .._engine.refit import RefittedModel, RetrainedModel, alter, refit_on
from .._engine.workspace import available_memory
from .._kernels import is_native
from .influence import Influence, Ranked, rank, top_table
from .neighbours import neighbour_table


class Tracer(Engine):
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

    ``train_index`` (n,) are the training rows' names in tables: the index of X_train, or positions.

    Rows may be in pandas, polars or Arrow tables, arrays or sparse matrices, labels and weights in columns of any of
    these. Tables come back in the kind of X_train: polars, Arrow, otherwise pandas (a dict of arrays without pandas).
    """

    train_index: np.ndarray
    X_train: Any  # as given
    y_train: np.ndarray  # (n,) as given
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
    ) -> None:
        settings = settings_of(fidelity, dtype, n_jobs, memory_limit)
        source = open_model(model, X_train, y_train, sample_weight, baseline, params or {})
        super().__init__(source, settings)
        self.X_train = X_train
        self.train_index = inputs.row_index(X_train, self.n_rows)
        self._given_weight = inputs.weights(sample_weight, self.n_rows)
        self.y_train = np.asarray(
            source.own_labels(X_train) if y_train is None else y_train
        ).ravel()

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
    def sample_weight(self) -> F64:
        """(n,) weights of the training rows, before class weights; of rows held out too, which retraining needs."""
        e = self._source.ensemble
        return np.where(e.w_factor > 0, e.sample_weight, self._given_weight)

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of a classifier in the order of its outputs, or None."""
        return self._source.classes

    @property
    def _kind(self) -> str:
        """Of the tables it returns: that of X_train."""
        return frames.kind(self.X_train)

    def __repr__(self) -> str:
        e = self._source.ensemble
        return (
            f"Tracer({self._source.name}, {e.loss.name} loss, {e.n_steps} steps, {len(e.values)} leaves, "
            f"{e.n_rows:,} training rows; {self._work.dtype.name}, {'native' if is_native() else 'NumPy'} kernels)\n"
            f"  fidelity: {self.fidelity.verdict}"
        )

    def _repr_html_(self) -> str:
        """In a notebook."""
        e = self._source.ensemble
        classes = self.classes
        facts = {
            "loss": e.loss.name,
            "steps": e.n_steps,
            "leaves": len(e.values),
            "training rows": f"{e.n_rows:,}",
        }
        if classes is not None:
            facts["classes"] = ", ".join(map(str, classes[:5])) + (
                f" and {len(classes) - 5} more" * (len(classes) > 5)
            )
        lines = {name: np.array([value], dtype=object) for name, value in facts.items()}
        return notebook(f"Tracer: {self._source.name}", lines, f"Fidelity: {self.fidelity.verdict}")

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
            self._needs_derivatives()
        queries, test_index = self._queries(X_test, y_test, of, reduce, output, baseline)
        index = inputs.row_numbers(rows, self.n_rows)
        changed = None
        if isinstance(method, Retrain):
            values, changed = self._by_retraining(X_test, baseline, queries, index)
        elif isinstance(method, Baseline):
            values = method.values(
                self._work, queries, None if rows is None else index, self.classes
            )
        elif isinstance(method, LeafInfluence) and not isinstance(method.update_set, TopKLeaves):
            every = len(index) == self.n_rows and rows is None
            columns = [v for _, v in self._backwards(queries, method, None if every else index)]
            values = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        elif isinstance(method, LeafRefit) and self._source.ensemble.refits_whole:
            values = self._by_refitting(queries, method, index)
        else:
            values = self._forwards(queries, method, index)
        tables = self._tables(self.X_train, None if rows is None else index, X_test, queries)
        return self._result(
            values, index, test_index, queries, method, structure_changed=changed, tables=tables
        )

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
        self._needs_derivatives()
        queries, test_index = self._queries(X_test, y_test, of, None, output, baseline)
        tops: list[Ranked] = []
        for columns, values in self._backwards(queries, method, None):
            block = self._result(
                values, np.arange(self.n_rows), test_index[columns], queries, method
            )
            tops += rank(block, k, effect)
        return top_table(
            tops, self.train_index, test_index, f"{queries.of}_change_if_removed", self._kind
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
        self._needs_derivatives()
        e = self._source.ensemble
        target = self._target_class(to)
        queries, test_index = self._queries(X_test, y_test, of, reduce, output, baseline)
        index = inputs.row_numbers(rows, self.n_rows)
        adjoint_of = self._adjoint(queries)

        def block(columns: slice) -> Real:
            adjoint = adjoint_of(columns)
            parts = []
            for chunk in self._work.row_chunks(index):
                part = self._work.rows.take(chunk)
                slopes = expand_labels(self._work, adjoint, part)  # (rows, columns, Y)
                if e.n_outputs == 1:
                    parts.append(slopes[..., 0])
                else:
                    own = part.y.astype(int)[:, None, None]
                    parts.append(
                        slopes[..., target] - np.take_along_axis(slopes, own, axis=2)[..., 0]
                    )
            return np.concatenate(parts)

        values = np.concatenate(list(self._work.map(block, blocks_of(len(queries)))), axis=1)
        name = "label influence" if to is None else f"label influence, towards {to}"
        action = "relabelled" if e.n_outputs > 1 else "label_raised"
        how_far = np.ones(len(index))
        if e.n_outputs == 1 and self._source.classes is not None:
            action = "flipped"
            how_far = 1 - 2 * e.y[index]
        names = (self.train_index[index], test_index)
        better = queries.lower_is_better
        tables = self._tables(self.X_train, None if rows is None else index, X_test, queries)
        return Influence(
            values, *names, queries.of, name, action, how_far, lower_is_better=better, tables=tables
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
        self._needs_derivatives()
        source = self._source
        e = self._source.ensemble
        leaves, offset = source.rows(X_new)
        m = leaves.shape[1]
        start = np.tile(e.base, (m, 1)) + (0.0 if offset is None else offset)
        queries, test_index = self._queries(X_test, y_test, of, reduce, output, baseline)
        response = e.loss.response(e.loss.state(e.scores(leaves, offset)))  # (m, classes) or (m,)
        per_label = None
        if y_new is not None:
            values = self._candidates(queries, leaves, start, [source.labels(y_new, m, "y_new")])[0]
        elif (
            response.ndim == 1
        ):  # the effect is linear in the label, so its expectation is the one of the mean
            values = self._candidates(queries, leaves, start, [response])[0]
        else:
            labels = source.classes if source.classes is not None else np.arange(response.shape[1])
            given = self._candidates(
                queries, leaves, start, [np.full(m, float(c)) for c in range(len(labels))]
            )
            values = np.einsum("cnq,nc->nq", given, response).astype(self._work.dtype)
            per_label = dict(zip(labels.tolist(), given, strict=True))
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
        y_test = self._source.own_labels(X_test) if y_test is None else y_test
        scores, test_index = self._queries(X_test, None, "prediction", None, output, baseline)
        queries = scores
        if y_test is not None:
            queries, _ = self._queries(X_test, y_test, "loss", None, None, baseline)
        meant = scores.gradient.argmax(axis=1)
        every = np.arange(self.n_rows)

        def blocks() -> Iterator[tuple[Any, Any, np.ndarray, Influence | None]]:
            method = LeafInfluence()
            found: Any = ((columns, None) for columns in blocks_of(len(queries)))
            if not self._source.ensemble.not_smooth:
                found = self._backwards(queries, method, None)
            for columns, values in found:
                here = test_index[columns]
                influence = (
                    None if values is None else self._result(values, every, here, queries, method)
                )
                yield queries.leaves[:, columns], meant[columns], here, influence

        return neighbour_table(
            self._work, blocks(), k, by, self.train_index, self.y_train, self._kind
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
        rows = self._alteration(without, y, sample_weight, added)
        with ThreadPoolExecutor(self._work.n_jobs) as threads:
            refitted = refit_on(self._work.trace, alter(self._source, rows), threads)
        return RefittedModel(self._source, rows, refitted)

    def retrain(
        self,
        without: Any = None,
        *,
        y: Any = None,
        sample_weight: Any = None,
        added: tuple[Any, Any] | None = None,
    ) -> RetrainedModel:
        """The model trained again, with its own parameters, on another training set: see `refit`."""
        rows = self._alteration(without, y, sample_weight, added)
        return RetrainedModel(self._source, rows, self._source.retrain(rows, self._work.n_jobs))

    @cached_property
    def _unchanged(self) -> RefittedModel:
        """Refitted on its own training set: what changes are measured from."""
        return self.refit()

    def follow(self, retrained: RetrainedModel) -> Tracer:
        """A tracer of a model that `retrain` gave, with the rows it was trained on and this tracer's settings."""
        rows = retrained.rows
        tracer = Tracer.__new__(Tracer)
        Engine.__init__(tracer, retrained.retrained.open(), self._settings)
        tracer.X_train = rows.table(self.X_train)
        tracer.y_train = rows.labels(self.y_train)
        tracer.train_index = self.train_index[rows.keep]
        tracer._given_weight = inputs.weights(
            rows.weights(self._given_weight, self.n_rows), tracer.n_rows
        )
        if rows.added is not None:
            new = inputs.row_index(rows.added[0], len(rows.added[1]))
            tracer.train_index = np.concatenate([tracer.train_index, new])
        return tracer

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
        return estimate(self._work, self._space is not None, method, columns, len(index))

    # ---- their parts ----

    def _alteration(
        self, without: Any, y: Any, sample_weight: Any, added: tuple[Any, Any] | None
    ) -> Alteration:
        gone = (
            np.zeros(0, np.intp)
            if without is None
            else inputs.row_numbers(without, self.n_rows, "without")
        )
        keep = self._rest(gone)
        labels = None if y is None else inputs.vector(y, "y", self.n_rows)
        weights = None if sample_weight is None else inputs.weights(sample_weight, self.n_rows)
        if weights is not None and not weights[keep].any():
            raise InvalidInput(
                "these weights leave no training row of non-zero weight; keep at least one."
            )
        new = None
        if added is not None:
            m = inputs.row_count(added[0])
            new = added[0], inputs.vector(added[1], "the labels of added rows", m), np.ones(m)
        return Alteration(keep, labels, weights, new)

    def _target_class(self, to: Any) -> int | None:
        source = self._source
        if source.ensemble.n_outputs == 1:
            if to is not None:
                raise InvalidInput(
                    "to= names the class that labels move to, for models of three or more classes."
                )
            return None
        if to is None:
            raise InvalidInput(
                "this model has several classes; say with to= which class the labels move to."
            )
        return int(source.labels(np.array([to]), 1, "to")[0])

    def _result(
        self,
        values: Real,
        index: Ints,
        test_index: np.ndarray,
        queries: Queries,
        method: Method,
        **extra: Any,
    ) -> Influence:
        weight = self._source.ensemble.sample_weight[index]
        derivative = method.gives == "derivatives"
        extra["scored"] = method.gives == "scores"
        names = self.train_index[index], test_index
        better = queries.lower_is_better
        return Influence(
            values,
            *names,
            queries.of,
            repr(method),
            "removed",
            weight,
            derivative,
            lower_is_better=better,
            **extra,
        )

    def _tables(self, train: Any, rows: Ints | None, test: Any, queries: Queries) -> Tables:
        return Tables(
            train, rows, None if queries.reduce else test, queries.reduce is not None, self._kind
        )
