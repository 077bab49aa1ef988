"""Results kept on disk: a run that was interrupted goes on where it stopped, and nothing is computed twice.

A result is found by a hash of what it depends on: its settings, the data it was computed from, and the versions of the
libraries. Change any of them and it is computed again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

FOLDER = Path(
    os.environ.get("LEAFTRACE_CACHE", Path(__file__).parents[1] / "build" / "experiments")
)
LIBRARIES = ("catboost", "lightgbm", "numpy", "scikit-learn", "xgboost")

Arrays = dict[str, np.ndarray]
A = TypeVar("A")
B = TypeVar("B")


def cached(name: str, settings: dict[str, Any], compute: Callable[[], Arrays]) -> Arrays:
    """What `compute` gives, computed once for these settings: plain values, `hashed` where they stand for data."""
    depends = settings | {library: version(library) for library in LIBRARIES}
    text = json.dumps(depends, sort_keys=True)
    path = FOLDER / name / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.npz"
    if path.exists():
        with np.load(path) as kept:
            return dict(kept)
    arrays = {key: np.asarray(value) for key, value in compute().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            np.savez(file, **arrays)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return arrays


def hashed(*tables: Any) -> str:
    """A hash of tables and arrays: values, and names of columns."""
    total = hashlib.sha256()
    for one in tables:
        table = one if isinstance(one, pd.DataFrame) else pd.DataFrame(np.asarray(one))
        total.update(str([(str(name), str(kind)) for name, kind in table.dtypes.items()]).encode())
        total.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
    return total.hexdigest()[:20]


def parallel(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """One item a core: many small models train faster so than one at a time on all cores."""
    alone = partial(threadpool_limits, 1, "openmp")  # for scikit-learn, whose models cannot be told
    with ThreadPoolExecutor(os.cpu_count(), initializer=alone) as pool:
        return list(pool.map(work, items))
