"""Options of support.py where rows are not in memory: in files, on Dask, on Spark.

An option is *exact* in a place if the tracer there says so and its answer is that of memory, *client* if
the rows had to come to the client (on Spark: the driver) for that, and — if the tracer refuses, or if
such data cannot be there (a Pool, a sparse table).

Spark itself is not started, which would take hours: the stages that it runs are run here, one after the
other, on the Arrow batches that they get from it (`ArrowFrame`). tests/engine/test_spark.py compares
answers of Spark with those of memory.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from arrow_frame import ArrowFrame

import leaftrace as lt

NAMES = ("files", "Dask", "Spark")
NO = "—"
COLUMNS = {"sample_weight": "_w", "baseline": "_s", "qid": "_q"}


@dataclass(frozen=True)
class Option:
    """A model with its training rows as pandas has them, or as an array."""

    model: Any
    X: Any
    y: np.ndarray
    columns: dict[str, np.ndarray]  # of those in COLUMNS that are given
    params: dict[str, Any]

    @property
    def table(self) -> pd.DataFrame:
        """All columns in one table."""
        X = self.X if hasattr(self.X, "iloc") else pd.DataFrame(self.X)
        table = X.set_axis([str(c) for c in X.columns], axis=1).reset_index(drop=True)
        more = {COLUMNS[name]: np.asarray(x) for name, x in self.columns.items()}
        return table.assign(**more, _y=self.y, _id=np.arange(len(table)))


def option_of(model: Any, X: Any, y: Any, arguments: dict[str, Any]) -> Option | None:
    """The option, or None for data that are neither a DataFrame nor an array, or need more."""
    is_table = hasattr(X, "iloc") or isinstance(X, np.ndarray)
    known = {*COLUMNS, "params", "fidelity", "eval_set"}
    if not is_table or y is None or set(arguments) - known:
        return None
    columns = {}
    for name in COLUMNS:
        given = arguments.get(name)
        if given is None:
            continue
        column = np.asarray(given)
        if name == "qid" and len(column) != len(X):  # sizes of queries
            column = np.repeat(np.arange(len(column)), column)
        columns[name] = column
    return Option(model, X, np.asarray(y), columns, arguments.get("params") or {})


@dataclass
class Places:
    """The places, opened once: a Dask cluster in this process."""

    stack: ExitStack = field(default_factory=ExitStack)
    client: Any = None

    def __enter__(self) -> Places:
        from distributed import Client, LocalCluster

        how = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "silence_logs": 50}
        cluster = self.stack.enter_context(LocalCluster(**how, dashboard_address=":0"))
        self.client = self.stack.enter_context(Client(cluster))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def results(self, near: lt.Tracer, found: Option | None) -> dict[str, str]:
        """The result of an option in each place."""
        if found is None:
            return dict.fromkeys(NAMES, NO)
        opened = {"files": self._files, "Dask": self._dask, "Spark": self._spark}
        out = {}
        for name, tracer_in in opened.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out[name] = self._result(near, found, tracer_in)
        return out

    def _result(self, near: lt.Tracer, found: Option, tracer_in: Any) -> str:
        try:
            tracer = tracer_in(found)
            if tracer is None:
                return NO
            answers_agree(near, tracer, found.X[:2])
        except (lt.LeaftraceError, TypeError, ValueError, AssertionError) as error:
            print(f"    {tracer_in.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
            return NO
        return "client" if getattr(tracer, "local", None) is not None else "exact"

    def _files(self, found: Option) -> Any:
        if found.y.ndim > 1:
            return None
        with tempfile.TemporaryDirectory() as folder:
            found.table.to_parquet(f"{folder}/rows.parquet", index=False)
            return lt.Tracer.from_files(
                found.model,
                f"{folder}/rows.parquet",
                target="_y",
                weight="_w" if "sample_weight" in found.columns else None,
                baseline="_s" if "baseline" in found.columns else None,
                index="_id",
                columns=[c for c in found.table.columns if not c.startswith("_")],
                params=found.params,
                dtype="float64",
            )

    def _dask(self, found: Option) -> Any:
        import dask.array as da

        half = -(-len(found.y) // 2)

        def spread(x: Any) -> Any:
            if x is None:
                return None
            if hasattr(x, "iloc"):
                import dask.dataframe as dd

                parts = [x.iloc[:half], x.iloc[half:]]
                return dd.from_map(lambda i: parts[i], [0, 1], meta=x.iloc[:0])
            return da.from_array(x, chunks=(half, *x.shape[1:]))

        columns = {name: spread(x) for name, x in found.columns.items()}
        how = {"client": self.client, "params": found.params, "dtype": "float64"}
        return lt.dask.Tracer(found.model, spread(found.X), spread(found.y), **columns, **how)

    def _spark(self, found: Option) -> Any:
        if found.y.ndim > 1:
            return None
        table = found.table
        features: Any = [c for c in table.columns if not c.startswith("_")]
        if isinstance(found.X, np.ndarray):
            rows = [np.asarray(x, float).tolist() for x in found.X]
            table = table.drop(columns=features).assign(features=rows)
            features = "features"
        text = {c: str for c in table.columns if isinstance(table[c].dtype, pd.CategoricalDtype)}
        frame = ArrowFrame.of(table.astype(text))
        return lt.spark.Tracer(
            found.model,
            frame,
            features=features,
            label="_y",
            weight="_w" if "sample_weight" in found.columns else None,
            baseline="_s" if "baseline" in found.columns else None,
            qid="_q" if "qid" in found.columns else None,
            order="_id",
            params=found.params,
            dtype="float64",
        )


def answers_agree(near: lt.Tracer, far: Any, X_test: Any) -> None:
    """Raise if the answers of two tracers of one model differ by more than 1e-6."""
    local = getattr(far, "local", None) or (far if isinstance(far, lt.Tracer) else None)
    ask = {"of": "prediction", "output": 0}
    try:
        expected = near.influence(X_test, **ask).values
    except lt.UnsupportedModel:  # leaves without derivatives
        assert local is not None
        expected = near.refit(without=[0, 1]).scores(X_test)
        values = local.refit(without=[0, 1]).scores(X_test)
    else:
        values = influences(local or far, X_test, ask)
    largest = np.abs(expected).max() or 1.0
    assert np.abs(values - expected).max() <= 1e-6 * largest, "the answers differ"


def influences(tracer: Any, X_test: Any, ask: dict[str, Any]) -> np.ndarray:
    """(rows, test rows) by a tracer of any kind."""
    found = tracer.influence(X_test, **ask)
    if hasattr(found, "toPandas"):
        return np.stack(found.toPandas().sort_values("_id")["values"])
    return np.asarray(found.values)
