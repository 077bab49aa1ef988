"""Training rows of a `Tracer`: from files, with their labels, and changed as users ask for it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._data import inputs
from .._data.errors import IndexWarning, InvalidInput
from .._data.parquet import Paths, open_table
from .._data.row_labels import aligned, duplicate_labels, labels_of, row_numbers
from .._data.wording import words
from .._model.training_set import TrainingSet

if TYPE_CHECKING:
    from .tracer import Tracer


class FileRows(NamedTuple):
    """Training rows in files.

    ``arguments``  of `Tracer` that have them
    ``labels``     (n,) of the rows, or None
    """

    arguments: dict[str, Any]
    labels: np.ndarray | None


def read_files(
    files: Paths,
    target: str,
    weight: str | None,
    baseline: Sequence[str],
    index: str | None,
    columns: Sequence[str] | None,
    cache: str | os.PathLike[str] | None,
    memory: int,
) -> FileRows:
    """Open the files of `Tracer.from_files`. ``memory``: bytes for parts of the table."""
    others = [name for name in (target, weight, index, *baseline) if name is not None]
    table = open_table(files, others, columns, cache, memory)
    arguments: dict[str, Any] = {"X_train": table, "y_train": table[target].to_numpy()}
    if weight is not None:
        arguments["sample_weight"] = table[weight].to_numpy()
    if baseline:
        scores = [table[name] for name in baseline]
        arguments["baseline"] = np.column_stack(scores).astype(np.float64)
    return FileRows(arguments, None if index is None else table[index].to_numpy())


def announce_duplicates(labels: np.ndarray, stacklevel: int) -> None:
    """Warn if training rows share a label: tables cannot tell them apart by it."""
    shared = duplicate_labels(labels)
    if shared:
        warnings.warn(
            f"{len(shared):,} labels of training rows are shared by several rows, such as {shared[0]!r}; tables name "
            f"these rows alike, so go by their column `position`, or {words().unique_labels}.",
            IndexWarning,
            stacklevel=stacklevel + 1,
        )


def changed_training_set(
    tracer: Tracer, without: Any, y: Any, sample_weight: Any, added: tuple[Any, Any] | None
) -> TrainingSet:
    """The training set from the arguments of `Tracer.refit`; actions pass it as `without`."""
    if isinstance(without, TrainingSet):
        return without
    labels = tracer.row_labels
    if without is not None:
        without = row_numbers(without, tracer.n_rows, "without", labels=labels)
    y = aligned(y, labels, "y", "X_train")
    sample_weight = aligned(sample_weight, labels, "sample_weight", "X_train")
    if added is not None:
        if not isinstance(added, (tuple, list)) or len(added) != 2:
            raise InvalidInput(
                f"added is a {type(added).__name__}; pass the rows and their labels: added=(X_new, y_new)."
            )
        X_new, y_new = inputs.as_table(added[0], tracer.X_train), added[1]
        added = X_new, aligned(y_new, labels_of(X_new), "the labels of added rows", "these")
    return tracer.engine.training_set(without, y, sample_weight, added)
