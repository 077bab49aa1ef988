"""Agreement of Dask and Spark with memory: models that draw rows, two and three classes. For scale.py.

    python benchmarks/scale_agreement.py FOLDER adult
    python benchmarks/scale_agreement.py FOLDER 1000000
    python benchmarks/scale_agreement.py FOLDER 1000000 Spark      on one kind of cluster alone

Each model is trained and traced in memory, then on Dask (two processes), then on Spark (`local[2]`). Every
difference is written to FOLDER/agreement.json when it is known, and not computed again: a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scale_data import block
from scale_runs import TWO_PROCESSES, two_threads

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import adult

TREES = 10
PARTS = 4
TEST_ROWS = 1000
CLASSES = ("two classes", "three classes")


@dataclass(frozen=True)
class Rows:
    """Training rows in Parquet files with the columns of features, both kinds of labels, and `id`.

    ``X``       (n, features)
    ``labels``  for each of CLASSES (n,)
    ``test``    X, and its labels in the same way
    """

    folder: Path
    X: np.ndarray
    labels: dict[str, np.ndarray]
    test: tuple[np.ndarray, dict[str, np.ndarray]]

    @property
    def names(self) -> list[str]:
        return [f"x{i}" for i in range(self.X.shape[1])]

    @property
    def paths(self) -> list[str]:
        """The files, which are written if they do not exist."""
        self.folder.mkdir(parents=True, exist_ok=True)
        edges = np.linspace(0, len(self.X), PARTS + 1).astype(int)
        found = []
        for part, (start, stop) in enumerate(pairwise(edges)):
            path = self.folder / f"{part}.parquet"
            if not path.exists():
                table = pd.DataFrame(self.X[start:stop], columns=self.names)
                more = {name: y[start:stop].astype(np.int64) for name, y in self.labels.items()}
                table.assign(**more, id=np.arange(start, stop)).to_parquet(path, index=False)
            found.append(str(path))
        return found


def rows_of(folder: Path, which: str) -> Rows:
    """The rows of Adult, or as many generated ones as this number says."""
    if which == "adult":
        X, y, X_test, y_test = adult.load()
        test = X_test[:TEST_ROWS], adult_labels(X_test[:TEST_ROWS], y_test[:TEST_ROWS])
        return Rows(folder / "agree-adult", X, adult_labels(X, y), test)
    n = int(which)
    X, y = block(0, n)
    X_test, y_test = block(1, TEST_ROWS)
    test = X_test, generated_labels(X_test, y_test)
    return Rows(folder / f"agree-{n}", X, generated_labels(X, y), test)


def generated_labels(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    return {CLASSES[0]: y, CLASSES[1]: np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [-0.7, 0.7])}


def adult_labels(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Income, and income with those of little income parted at 40 years."""
    age = X[:, 0]
    return {CLASSES[0]: y.astype(int), CLASSES[1]: np.where(y > 0, 2, age > 40)}


def models() -> Iterator[tuple[str, Any]]:
    """Yield untrained models with their names."""
    import lightgbm as lgb
    import xgboost as xgb
    from catboost import CatBoostClassifier

    quiet = {"verbose": 0, "allow_writing_files": False}
    light = {"n_estimators": TREES, "verbosity": -1}
    yield "CatBoost", CatBoostClassifier(iterations=TREES, depth=5, **quiet)
    bernoulli = {"bootstrap_type": "Bernoulli", "subsample": 0.7}
    yield "CatBoost, Bernoulli", CatBoostClassifier(iterations=TREES, depth=5, **bernoulli, **quiet)
    yield "XGBoost, subsample", xgb.XGBClassifier(n_estimators=TREES, max_depth=5, subsample=0.7)
    yield "LightGBM, bagging", lgb.LGBMClassifier(subsample=0.7, subsample_freq=1, **light)
    goss = {"data_sample_strategy": "goss", "learning_rate": 0.5}
    yield "LightGBM, GOSS", lgb.LGBMClassifier(**goss, **light)


def traced_in_memory(rows: Rows, name: str, model: Any, classes: str) -> tuple[Any, np.ndarray]:
    """Return the trained model and its mean-loss influences (n,); both are kept in files."""
    import leaftrace as lt

    kept = rows.folder / f"{name}, {classes}.pickle"
    if not kept.exists():
        X_test, y_test = rows.test
        y = rows.labels[classes]
        model.fit(rows.X, y)
        found = lt.Tracer(model, rows.X, y).influence(X_test, y_test[classes], reduce="mean")
        rows.folder.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps((model, found.values[:, 0])))
    return pickle.loads(kept.read_bytes())


Place = Callable[[Rows, Any, str], np.ndarray]


@contextmanager
def on_dask() -> Iterator[Place]:
    """A function that computes mean-loss influences on Dask."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from leaftrace.dask import Tracer

    with LocalCluster(**TWO_PROCESSES) as local, Client(local) as client:

        def compute(rows: Rows, model: Any, classes: str) -> np.ndarray:
            frame = dd.read_parquet(rows.paths, split_row_groups=False)
            tracer = Tracer(model, frame[rows.names], frame[classes], client=client)
            X_test, y_test = rows.test
            values = tracer.influence(X_test, y_test[classes], reduce="mean").values
            return np.asarray(values)[:, 0]

        yield compute


@contextmanager
def on_spark() -> Iterator[Place]:
    """A function that computes mean-loss influences on Spark."""
    from leaftrace.spark import Tracer

    session = two_threads()

    def compute(rows: Rows, model: Any, classes: str) -> np.ndarray:
        frame = session.read.parquet(*rows.paths)
        tracer = Tracer(model, frame, features=rows.names, label=classes, order="id")
        X_test, y_test = rows.test
        found = tracer.influence(X_test, y_test[classes], reduce="mean").toPandas()
        tracer.close()
        return found.sort_values("id")["value"].to_numpy()

    yield compute
    session.stop()


PLACES = {"Dask": on_dask, "Spark": on_spark}


def agree(folder: Path, which: str, places: Sequence[str]) -> None:
    """Write the largest differences from memory, relative to the largest value, to the file."""
    file = folder / "agreement.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    rows = rows_of(folder, which)
    for place in places:
        asked = [
            (name, model, classes)
            for classes in CLASSES
            for name, model in models()
            if f"{which}; {name}, {classes}; {place}" not in found
        ]
        if not asked:
            continue
        with PLACES[place]() as compute:
            for name, model, classes in asked:
                trained, expected = traced_in_memory(rows, name, model, classes)
                start = time.perf_counter()
                values = compute(rows, trained, classes)
                seconds = time.perf_counter() - start
                difference = float(np.abs(values - expected).max() / np.abs(expected).max())
                found[f"{which}; {name}, {classes}; {place}"] = difference
                file.write_text(json.dumps(found, indent=1))
                print(
                    f"{which}, {name}, {classes}, {place}: {difference:.1e}, {seconds:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    agree(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or list(PLACES))
