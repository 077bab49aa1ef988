"""Results kept on disk, so that an interrupted run continues where it stopped.

A result is found by a hash of what it depends on: its settings, the data it was computed from, and the
versions of the libraries. If any of them changes, it is computed again. Results of influences also
depend on the code of leaftrace (`code`), results of retraining alone do not."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import leaftrace as lt

FOLDER = Path(
    os.environ.get("LEAFTRACE_CACHE", Path(__file__).parents[1] / "build" / "experiments")
)
# Packages on which influences depend
COMPUTES = ("_actions", "_adapters", "_engine", "_model", "baselines")
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


@cache
def code() -> str:
    """Return a hash of the code by which leaftrace computes influences, but for its docstrings.

    A result that depends on influences has it among its settings."""
    package = Path(inspect.getfile(lt)).parent
    native = Path(__file__).parents[1] / "src" / "native"
    total = hashlib.sha256()
    for path in sorted(p for folder in COMPUTES for p in (package / folder).rglob("*.py")):
        total.update(ast.dump(without_docstrings(ast.parse(path.read_text()))).encode())
    for path in sorted(native.glob("*.[ch]pp")):
        total.update(path.read_bytes())
    return total.hexdigest()[:20]


def without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return tree


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
    affinity = getattr(os, "sched_getaffinity", None)  # Linux: the cores that taskset leaves
    cores = len(affinity(0)) if affinity else os.cpu_count()
    with ThreadPoolExecutor(cores, initializer=one_thread) as pool:
        return list(pool.map(work, items))
