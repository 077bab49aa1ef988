"""Results kept on disk, so that an interrupted run continues where it stopped.

A result is found by a hash of what it depends on: its settings, the data it was computed from, and the
versions of the libraries. If any of them changes, it is computed again."""

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
    """Return the result of `compute`, computed once for these settings.

    Settings are values that JSON can hold; for data, use `hashed`."""
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
    """Return a hash of tables and arrays: of their values and the names and types of columns."""
    total = hashlib.sha256()
    for data in tables:
        table = data if isinstance(data, pd.DataFrame) else pd.DataFrame(np.asarray(data))
        columns = [(str(name), str(kind)) for name, kind in table.dtypes.items()]
        total.update(str(columns).encode())
        total.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
    return total.hexdigest()[:20]


def parallel(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Work on one item per core.

    Many small models train faster this way than one at a time on all cores. scikit-learn's models have
    no option for the number of threads, so that is limited for the whole thread."""
    one_thread = partial(threadpool_limits, 1, "openmp")
    with ThreadPoolExecutor(os.cpu_count(), initializer=one_thread) as pool:
        return list(pool.map(work, items))
