"""The file that `leaftrace clean` writes.

It is the training table with rows removed, relabelled or reweighted, or a list of the rows to leave
out. Everything else stays as in the file: other columns, types, the digits of a number in a CSV.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ..._actions.clean.action import Clean
from ..._actions.common import row_columns
from ..._data.errors import InvalidInput
from ..._data.files import whole_file
from ..._tracer.tracer import Tracer
from .options import Options
from .tables import TableFile, check_ending, write_table

_LIST = ".txt"
_WEIGHT = "sample_weight"  # the column that is added for weights if training had none


def check_cleaned(options: Options, path: str | None, action: str, training: TableFile) -> None:
    """Raise an error if the result cannot be written there, before the long work."""
    if path is None:
        return
    if not path.endswith(_LIST):
        check_ending(path)
    elif action != "remove":
        raise InvalidInput(
            f"--out '{path}' would list the rows to leave out, but --action is {action}; "
            "give it a table's ending."
        )
    if action == "reweight" and options.weight is None and _WEIGHT in training.names:
        raise InvalidInput(
            f"'{training.path}' has a column '{_WEIGHT}' already, which --out would add; "
            "if the model was trained with it, say --weight, otherwise rename it."
        )


def changed_rows(tracer: Tracer, found: Clean, X_val: Any, y_val: Any) -> dict[str, Any]:
    """Columns of a table of the training rows to change, those first that harm X_val, y_val most."""
    rows = found.rows
    if len(rows):
        harm = tracer.influence(X_val, y_val, reduce="mean", rows=rows).values[:, 0]
        rows = rows[np.argsort(-harm, kind="stable")]
    is_removed = np.isin(rows, found.without)
    weight = found.sample_weight[rows]
    relabelled = found.labels[rows] != tracer.y_train[rows]
    what = np.where(relabelled, "relabel", "reweight")
    columns = row_columns(tracer, rows) | {
        "label": tracer.y_train[rows],
        "do": np.where(is_removed, "remove", what).astype(object),
    }
    if relabelled.any():
        columns["suggested_label"] = found.labels[rows]
    if (weight != tracer.sample_weight[rows])[~is_removed].any():
        columns["weight"] = tracer.sample_weight[rows]
        columns["suggested_weight"] = np.where(is_removed, 0.0, weight)
    return columns


def write_cleaned(
    path: str, options: Options, training: TableFile, tracer: Tracer, found: Clean
) -> str:
    """Write the file, whole or not at all, and return what is in it."""
    if path.endswith(_LIST):
        names = _removed_rows(options, tracer, found)
        with whole_file(path, "the list of rows") as file:
            file.write("".join(f"{name}\n" for name in names).encode())
        return f"{len(found.without):,} rows to leave out"
    table = _changed_table(training.read_all_columns(path), options, tracer, found)
    keep = np.delete(np.arange(tracer.n_rows), found.without)
    write_table(table.take(keep), path)
    return f"{len(keep):,} training rows"


def _changed_table(table: Any, options: Options, tracer: Tracer, found: Clean) -> Any:
    """The training table with the new labels and weights."""
    if (found.labels != tracer.y_train).any():
        labels = _with_labels(table[options.target], tracer, found)
        table = _with_column(table, options.target, labels)
    old = tracer.sample_weight
    if (found.sample_weight != old).any():
        name = options.weight or _WEIGHT
        given = table[name] if name in table.column_names else pa.chunked_array([old])
        table = _with_column(table, name, _with_numbers(given, found.sample_weight, old))
    return table


def _removed_rows(options: Options, tracer: Tracer, found: Clean) -> list[Any]:
    """The rows to leave out, in the form that `leaftrace impact --rows` reads: names, or without
    --id positions."""
    if options.id is None:
        return found.without.tolist()
    names = tracer.train_index[found.without].tolist()
    staying = set(np.delete(tracer.train_index, found.without).tolist())
    if shared := set(names) & staying:
        raise InvalidInput(
            f"'{next(iter(shared))}' names several training rows in the column '{options.id}', "
            "of which some stay; give --out the ending of a table."
        )
    return names


def _with_labels(column: Any, tracer: Tracer, found: Clean) -> Any:
    """The target column with the new labels. A class is written as in other rows of the file."""
    y = tracer.y_train
    row_of = {label: i for i, label in enumerate(y.tolist())}  # a row with each label
    changed = np.flatnonzero(found.labels != y)
    new_labels = found.labels[changed].tolist()
    if not set(new_labels) <= set(row_of):
        return _with_numbers(column, found.labels, y)
    source = np.arange(tracer.n_rows)
    source[changed] = [row_of[label] for label in new_labels]
    return column.take(source)


def _with_numbers(column: Any, new: np.ndarray, old: np.ndarray) -> Any:
    """A column with some numbers replaced; they are written as text if the column is text."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    values = column.to_pylist()
    for i in np.flatnonzero(new != old).tolist():
        values[i] = str(float(new[i])) if is_text else float(new[i])
    return pa.array(values, column.type if is_text else pa.float64())


def _with_column(table: Any, name: str, column: Any) -> Any:
    """The table with this column in place of the one of the same name, or at the end."""
    if name not in table.column_names:
        return table.append_column(name, column)
    return table.set_column(table.column_names.index(name), name, column)
