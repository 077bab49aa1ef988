"""What `leaftrace clean` writes: the training table with rows removed, relabelled or reweighted, or a list of the rows
to leave out. All else stays as the file has it: other columns, types, the digits of a number in a CSV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .._actions.clean.action import Clean
from .._data.errors import InvalidInput
from .._data.files import whole_file
from .._tracer.tracer import Tracer
from .job import Job
from .tables import File, check_ending, read_whole, write_table

_LIST = ".txt"
_WEIGHT = "sample_weight"  # the column that is added for weights where training had none


def check_cleaned(job: Job, path: str | None, action: str, training: File) -> None:
    """Find out before the long work whether the outcome can be written there."""
    if path is None:
        return
    if not path.endswith(_LIST):
        check_ending(path)
    elif action != "remove":
        raise InvalidInput(
            f"--out '{path}' would list the rows to leave out, but --action is {action}; give it a table's ending."
        )
    if action == "reweight" and job.options.weight is None and _WEIGHT in training.names:
        raise InvalidInput(
            f"'{training.path}' has a column '{_WEIGHT}' already, which --out would add; if the model was trained with "
            "it, say --weight, otherwise rename it."
        )


def changed_rows(job: Job, tracer: Tracer, found: Clean) -> dict[str, Any]:
    """Columns of a table: the training rows to change, and how. Of a row to leave out the weight goes to zero."""
    rows = found.rows
    labels = {"label": tracer.y_train, "suggested_label": found.labels}
    if (found.labels == tracer.y_train).all():
        del labels["suggested_label"]
    labels = job.labels.shown({name: values[rows] for name, values in labels.items()})
    weights = np.where(np.isin(rows, found.without), 0.0, found.sample_weight[rows])
    named = {"train_row": tracer.train_index[rows], "position": rows}
    return named | labels | {"weight": tracer.sample_weight[rows], "suggested_weight": weights}


def write_cleaned(path: str, job: Job, training: File, tracer: Tracer, found: Clean) -> str:
    """Write the file, whole or not at all; what is in it."""
    if path.endswith(_LIST):
        with whole_file(path, "the list of rows") as file:
            file.write("".join(f"{name}\n" for name in _removed(job, tracer, found)).encode())
        return f"{len(found.without):,} rows to leave out"
    table = read_whole(training, path)
    if (found.labels != tracer.y_train).any():
        table = _set(table, job.options.target, _labels(table[job.options.target], tracer, found))
    if (found.sample_weight != tracer.sample_weight).any():
        name = job.options.weight or _WEIGHT
        given = (
            table[name] if name in table.column_names else pa.chunked_array([tracer.sample_weight])
        )
        table = _set(table, name, _numbers(given, found.sample_weight, tracer.sample_weight))
    keep = np.delete(np.arange(tracer.n_rows), found.without)
    write_table(table.take(keep), path)
    return f"{len(keep):,} training rows"


def _removed(job: Job, tracer: Tracer, found: Clean) -> list[Any]:
    """As `leaftrace impact --rows` reads them: names, or positions without --id."""
    if job.options.id is None:
        return found.without.tolist()
    names = tracer.train_index[found.without].tolist()
    if shared := set(names) & set(np.delete(tracer.train_index, found.without).tolist()):
        raise InvalidInput(
            f"'{next(iter(shared))}' names several training rows in the column '{job.options.id}', of which some stay; "
            "give --out the ending of a table."
        )
    return names


def _labels(column: Any, tracer: Tracer, found: Clean) -> Any:
    """The target with the new labels. A class is written as other rows have it."""
    y = tracer.y_train
    source = np.arange(tracer.n_rows)
    having = {label: i for i, label in enumerate(y.tolist())}  # a row with each label
    new = np.flatnonzero(found.labels != y)
    if not set(found.labels[new].tolist()) <= set(having):
        return _numbers(column, found.labels, y)
    source[new] = [having[label] for label in found.labels[new].tolist()]
    return column.take(source)


def _numbers(column: Any, new: np.ndarray, old: np.ndarray) -> Any:
    """A column with numbers in place of some others; as text where the table is."""
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    values = column.to_pylist()
    for i in np.flatnonzero(new != old).tolist():
        values[i] = str(float(new[i])) if text else float(new[i])
    return pa.array(values, column.type if text else pa.float64())


def _set(table: Any, name: str, column: Any) -> Any:
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)
