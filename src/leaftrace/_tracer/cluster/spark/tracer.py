"""`Tracer` over a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...._adapters.spark_models import local_model
from ...._data.errors import InvalidInput
from ...._data.grouping import groups_of_values
from ...._data.tables import table
from ...._engine.queries import Of, Reduce
from ...._engine.refit import RefittedModel
from ...label_answers import refuse_transformed_labels, target_class
from ..answers import part_influence, part_labels_influence
from ..costs import Prices
from ..group_effects import group_effects_table, two_or_more_groups
from ..refitting import RemovedNames, check_names
from ..tracer import ClusterTracer, Plan
from .cluster import SparkCluster, check_running, spark_context, spark_errors
from .columns import Columns, check_columns, quoted
from .rows import SparkRows, arrow_table
from .stages import ColumnsStage, ScoreStage

# A process that computes with a partition in one step may not be that of the step before.
PRICES = Prices(round=0.3, wire=1e8, read=2e-9, redo=0.5)


class Tracer(ClusterTracer):
    """A model and its training rows in a Spark DataFrame.

    >>> tracer = leaftrace.spark.Tracer(model, frame, features=names, label="income", order="id")  # doctest: +SKIP
    >>> tracer.influence(X_test, y_test, reduce="mean").orderBy("value").show()                    # doctest: +SKIP

    ``model``      as `leaftrace.Tracer` takes it, a model of `xgboost.spark`, a LightGBM model of
                   SynapseML or its native text
    ``frame``      a DataFrame with the rows of training
    ``features``   the columns that the model was trained on, in their order; or the name of one
                   column of arrays or vectors that has them all
    ``label, weight, baseline, qid``  columns with the labels, sample weights, scores given to rows,
                   and queries of a ranker
    ``order``      a column that gives the order of training and names the rows. Only models that
                   drew rows, or held some out, need the order; the names appear in results
    ``plan``       "rows" or "leaves": the form of the backward pass; by default the one that is
                   expected to take less time: the leaf form, unless there are very many leaves
    ``fidelity, dtype, memory_limit, params``  as those of `leaftrace.Tracer`; the memory is that of
                   the driver

    Models that need the leaves of all rows in one place are traced at the driver: see
    `leaftrace.dask.Tracer`.
    """

    def __init__(
        self,
        model: Any,
        frame: Any,
        *,
        features: Sequence[str] | str,
        label: str,
        weight: str | None = None,
        baseline: str | Sequence[str] | None = None,
        qid: str | None = None,
        order: str,
        plan: Plan = None,
        fidelity: str = "raise",
        dtype: str = "float32",
        memory_limit: int | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        if not hasattr(frame, "mapInArrow"):
            raise InvalidInput(
                f"frame is a {type(frame).__name__}; pass a pyspark DataFrame (Spark 3.5 or newer)."
            )
        names = features if isinstance(features, str) else tuple(features)
        scores = (baseline,) if isinstance(baseline, str) else tuple(baseline or ())
        self._columns = Columns(names, label, weight, scores, qid, order)
        check_running(spark_context(frame.sparkSession))
        check_columns(frame, self._columns)
        self.frame = frame
        own, reported = local_model(model)
        given = {**reported, **(params or {})}
        rows = SparkRows(frame, self._columns)
        with spark_errors():
            self._open(rows, own, plan, fidelity, dtype, memory_limit, given, PRICES)

    def _errors(self) -> Any:
        return spark_errors()

    def close(self) -> None:
        """Let go of the leaves that Spark keeps for this tracer."""
        if self.engine is not None:
            assert isinstance(self.engine.cluster, SparkCluster)
            self.engine.cluster.close()

    def influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
    ) -> Any:
        """Exact LeafInfluence of all training rows, as a DataFrame.

        It has the column `order` and, for one query, `value`; for several, `values` with an array
        in the order of the test rows. Values are those of `leaftrace.Influence`: dQ/dw, positive if
        a row raises Q.

        ``of, reduce, output``  as those of `leaftrace.Tracer.influence`
        """
        how = {"of": of, "reduce": reduce, "output": output}
        if self.local is not None:
            found = self.local.influence(X_test, y_test, **how)
            return self._frame_of(found.values, found.train_index)
        queries, _ = self._queries(X_test, y_test, **how, method=None)
        with spark_errors():
            blocks = self._sent_blocks(queries)
        return self._values(part_influence, len(queries), blocks=blocks)

    def label_influence(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        to: Any = None,
        of: Of = "loss",
        reduce: Reduce = None,
        output: int | None = None,
    ) -> Any:
        """dQ/dy of all training rows, as `leaftrace.Tracer.label_influence`, in a DataFrame."""
        how = {"of": of, "reduce": reduce, "output": output}
        if self.local is not None:
            found = self.local.label_influence(X_test, y_test, to=to, **how)
            return self._frame_of(found.values, found.train_index)
        queries, _ = self._queries(X_test, y_test, **how, method=None)
        assert self.engine is not None
        refuse_transformed_labels(self.engine)
        target = target_class(self.engine, to)
        with spark_errors():
            blocks = self._sent_blocks(queries)
        return self._values(part_labels_influence, len(queries), blocks=blocks, target=target)

    def _values(self, fn: Any, queries: int, **common: Any) -> Any:
        """A DataFrame of the names of rows and fn of their parts."""
        engine = self.engine
        assert engine is not None
        cluster = engine.cluster
        assert isinstance(cluster, SparkCluster)
        stage = ColumnsStage(
            fn,
            {"trace": engine.sent, **common},
            cluster.starts,
            order=self._columns.order,
            kind=self._name_type(),
            single=queries == 1,
        )
        value = "value double" if queries == 1 else "values array<double>"
        return cluster.state.mapInArrow(stage, f"{self._name_schema()}, {value}")

    def _name_schema(self) -> str:
        kind = self.frame.schema[self._columns.order].dataType.simpleString()
        return f"{quoted(self._columns.order)} {kind}"

    def _name_type(self) -> Any:
        """The Arrow type of the names of rows."""
        from pyspark.sql.pandas.types import to_arrow_type

        return to_arrow_type(self.frame.schema[self._columns.order].dataType)

    def _frame_of(self, values: np.ndarray, names: np.ndarray) -> Any:
        """Values that are at the driver as a DataFrame."""
        import pandas as pd

        single = values.shape[1] == 1
        data: dict[str, Any] = {self._columns.order: names}
        data["value" if single else "values"] = (
            values[:, 0].astype(float) if single else list(values.astype(float))
        )
        return self.frame.sparkSession.createDataFrame(pd.DataFrame(data))

    def _row_columns(self, names: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
        return {self._columns.order: names}

    def by(self, groups: Any, X_test: Any, y_test: Any = None, *, of: Of = "loss") -> Any:
        """Totals of the influence on the mean over the test rows, by groups of training rows.

        ``groups``  a column of the frame, or an expression of SQL

        A small table: the first-order effect of removing each whole group, and its rows.
        """
        from pyspark.sql import functions

        self._check()
        name = of if isinstance(of, str) else "goal"
        change = f"{name}_change_if_removed"
        values = self.influence(X_test, y_test, of=of, reduce="mean").toDF("_order", "_value")
        with spark_errors():
            weight = self._columns.weight
            chosen = [
                functions.col(quoted(self._columns.order)).alias("_order"),
                self._labels(groups),
                (functions.lit(1.0) if weight is None else functions.col(quoted(weight))).alias(
                    "_w"
                ),
            ]
            sums = (
                values.join(self.frame.select(*chosen), "_order")
                .groupBy("group")
                .agg(
                    functions.count("*").alias("rows"),
                    functions.sum("_value").alias("total"),
                    functions.sum(-functions.col("_value") * functions.col("_w")).alias(change),
                )
            )
            found = arrow_table(sums)
        named = groups_of_values(found["group"].to_numpy())
        totals = named.sums(
            np.stack([found[x].to_numpy() for x in ("rows", "total", change)], axis=1)
        )
        rows, total, changes = totals.T
        check_names(int(rows.sum()), self.n_rows, self._columns.order)
        return table(
            {"group": named.names, "rows": rows.astype(int), "total": total, change: changes}, ""
        )

    def _labels(self, groups: Any) -> Any:
        """The column with the group of each row, from its name or an expression of SQL."""
        from pyspark.sql import functions

        if isinstance(groups, str):
            groups = (
                functions.col(quoted(groups))
                if groups in self.frame.columns
                else functions.expr(groups)
            )
        return groups.alias("group")

    def group_effects(self, groups: Any, X_test: Any, y_test: Any, *, refit: bool = True) -> Any:
        """Changes of the mean loss of the test rows without each group of training rows.

        ``groups``  a column of the frame, or an expression of SQL
        ``refit``   refit all leaf values without each group: exact, with the trees fixed

        A table with a line for each group: ``predicted`` is the change to first order, ``refitted``
        that of the refit. A step of the refits is one job for eight groups; names and groups of all
        rows come to the driver.
        """
        self._check()
        order = quoted(self._columns.order)
        with spark_errors():
            rows = arrow_table(self.frame.select(order, self._labels(groups)))
        names = rows.column(0).to_numpy()
        if self.local is not None:  # its rows are in the order of their names
            rows = rows.take(np.argsort(names))
        grouped = two_or_more_groups(rows.column(1).to_numpy())
        found = self.by(groups, X_test, y_test)
        change = dict(zip(found["group"], found["loss_change_if_removed"], strict=True))
        predicted = np.array([change[name] for name in grouped.names.tolist()])
        return group_effects_table(
            self, grouped, predicted, lambda at: self._named(names[at]), X_test, y_test, refit
        )

    def refit(self, without: Any) -> SparkRefittedModel:
        """The model with the same trees and all leaf values refitted without some rows, exactly.

        ``without``  a condition on the columns of the frame: a Column, or SQL text
        """
        self._check()
        with spark_errors():
            chosen = self.frame.where(without).select(quoted(self._columns.order))
            names = arrow_table(chosen).column(0).to_numpy()
        if self.local is not None:
            at = np.flatnonzero(np.isin(self.local.train_index, names))
            model = self.local.refit(without=at)
        else:
            model = self._refit(self._named(names))
        return SparkRefittedModel(model.source, model.rows, model.ensemble, self)

    def _named(self, names: np.ndarray) -> RemovedNames:
        """Rows that leave."""
        return RemovedNames(names, self._columns.order)

    def _check(self) -> None:
        """Raise an error if the session is stopped."""
        check_running(spark_context(self.frame.sparkSession))


@dataclass(frozen=True, repr=False)
class SparkRefittedModel(RefittedModel):
    """A model refitted on Spark: predicts tables in memory, and by `transform` DataFrames."""

    tracer: Tracer

    def transform(self, frame: Any) -> Any:
        """A DataFrame of `order` and `prediction` for the rows of a frame with the same columns."""
        tracer = self.tracer
        columns = tracer._columns
        needed = Columns(columns.feature_names, None, None, (), None, columns.order)
        if tracer.engine is None:
            raise InvalidInput(
                "this model was refitted at the driver; predict tables in memory, by predict(X), or use its .model."
            )
        tracer._check()
        model = RefittedModel(tracer.engine.finder, self.rows, self.ensemble)
        sent = frame.sparkSession.sparkContext.broadcast(model)
        stage = ScoreStage(needed, sent, tracer._name_type(), columns.order)
        several = self.predict(_first_features(needed, frame)).ndim > 1
        kind = "array<double>" if several else "double"
        schema = f"{tracer._name_schema()}, prediction {kind}"
        return needed.select(frame).mapInArrow(stage, schema)


def _first_features(columns: Columns, frame: Any) -> Any:
    with spark_errors():
        return columns.features(arrow_table(columns.select(frame).limit(1)))
