"""A run of a command: its options and output, the model, the tables and the tracer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ... import __version__
from ..._data.errors import InvalidInput
from ..._tracer.tracer import Tracer
from .class_names import find_class_names, spelled_labels
from .columns import ColumnTypes, feature_columns, label_values, require_columns
from .models import ModelDescription, read_model
from .options import Options, split
from .output import Output, check_output, say
from .tables import TableFile, open_table


@dataclass(frozen=True)
class OpenedTable:
    """A table whose columns were checked, and that is not read yet.

    ``features``  its columns that the model takes, in the model's order
    """

    file: TableFile
    features: list[str]


@dataclass(frozen=True)
class InputRows:
    """Rows of a table in the form that the model takes. None: not read.

    ``X``         features, a DataFrame
    ``y``         labels, spelled like the names of the classes if there are such
    ``weight``    sample weights
    ``baseline``  scores given to the rows
    ``extra``     further columns that a command uses
    """

    X: Any
    y: np.ndarray | None
    weight: np.ndarray | None
    baseline: np.ndarray | None
    extra: dict[str, Any]


class Job:
    """A run of a command.

    ``out``          where results and messages go
    ``class_names``  names for the classes of a model that has only numbers for them, once the
                     training rows are read; None: no names are needed
    """

    def __init__(self, options: Options, name: str) -> None:
        self.options = options
        self.out = Output(options.as_json)
        self.out.document |= {"leaftrace": __version__, "command": name}
        if options.fidelity not in ("raise", "warn"):
            raise InvalidInput(f"--fidelity is '{options.fidelity}'; it can be raise or warn.")
        self.class_names: list[Any] | None = None

    @cached_property
    def model(self) -> ModelDescription:
        """The model, read from its file."""
        with self.out.step("reading the model", clock=True):
            return read_model(self.options.model, self.options.allow_pickle)

    @cached_property
    def _column_types(self) -> ColumnTypes:
        o = self.options
        return ColumnTypes(self.model, split(o.categorical), o.missing)

    @cached_property
    def _baseline_columns(self) -> list[str]:
        return split(self.options.baseline)

    @cached_property
    def _params(self) -> dict[str, Any]:
        """Training parameters that the user gives."""
        pairs = [text.partition("=") for text in self.options.param or []]
        if bad := [name for name, equals, _ in pairs if not equals]:
            raise InvalidInput(f"--param {bad[0]} has no value; write it as --param name=value.")
        return {name: _parameter_value(text) for name, _, text in pairs}

    # ---- checks before the long work ----

    def check_output(self, path: str | None, *inputs: str | None, device: bool = False) -> None:
        """Raise an error if a file cannot be written there. ``inputs``: files besides model and
        training table that are read."""
        check_output(path, [self.options.model, self.options.train, *inputs], device)

    def refuse_baseline(self, what: str) -> None:
        """Raise an error if --baseline was given, which this cannot use for test rows."""
        if self.options.baseline is not None:
            raise InvalidInput(
                f"{what} cannot give test rows a baseline; "
                "`explain` without --html and `check` can."
            )

    # ---- tables ----

    def open(
        self, path: str, *, labelled: bool = True, extra: Sequence[str | None] = ()
    ) -> OpenedTable:
        """Open a table and check its columns.

        ``labelled``  whether it has the target
        ``extra``     further columns that a command uses
        """
        o = self.options
        file = open_table(path)
        require_columns(file, self._baseline_columns, "--baseline")
        require_columns(file, [o.id], "--id")
        require_columns(file, split(o.categorical), "--categorical")
        require_columns(file, extra, "this")
        if labelled:
            require_columns(file, [o.target], "--target")
        also_features = set(extra) & set(self.model.columns or ())
        others = [
            name
            for name in (o.weight, o.id, *self._baseline_columns, *extra)
            if name is not None and name not in also_features
        ]
        features = feature_columns(file, self.model, o.target, others, split(o.drop))
        return OpenedTable(file, features)

    def open_training(self, *, extra: Sequence[str | None] = ()) -> OpenedTable:
        """Open the table of training rows."""
        return self.open(self.options.train, extra=extra)

    def read(
        self,
        table: OpenedTable,
        *,
        training: bool = False,
        labelled: bool = True,
        extra: Sequence[str | None] = (),
    ) -> InputRows:
        """Read a table. ``training``: it has the training rows; otherwise see `open`."""
        o = self.options
        path = table.file.path
        weight_column = o.weight if training else None
        target = o.target if labelled else None
        others = [target, *self._baseline_columns, *extra, weight_column, o.id]
        columns = [*table.features, *(name for name in others if name is not None)]
        columns = list(dict.fromkeys(columns))
        with self.out.step(f"reading {os.path.basename(path)}", clock=table.file.at_once):
            frame = table.file.read(columns)
            if o.id is not None:
                frame.index = pd.Index(frame[o.id])
            aside = _set_aside(frame, columns, table.features, extra)
            y = self._labels(aside[o.target], path, training) if labelled else None
            X = self._column_types.apply(frame, path)
        weight = None if weight_column is None else np.asarray(aside[weight_column])
        return InputRows(X, y, weight, self._baseline(aside), aside)

    def row_ids(self, rows: InputRows) -> list[str] | None:
        """The ids of rows as text; None if no column has them."""
        return None if self.options.id is None else rows.X.index.astype(str).tolist()

    def _labels(self, column: Any, path: str, training: bool) -> np.ndarray:
        """The labels of a table. Those of the training rows decide the names of the classes."""
        y = label_values(column, path)
        if training:
            given = split(self.options.classes)
            self.class_names = find_class_names(y, self.model.classes, given)
            if self.class_names is not None:
                shown = ", ".join(f"{name} is {i}" for i, name in enumerate(self.class_names))
                say(f"the model knows its classes by number: {shown}")
        return spelled_labels(y, self.class_names, path)

    def _baseline(self, aside: dict[str, Any]) -> np.ndarray | None:
        """(n, K) scores given to the rows."""
        if not self._baseline_columns:
            return None
        return np.asarray(pd.concat([aside[b] for b in self._baseline_columns], axis=1), float)

    # ---- the tracer ----

    def trace(
        self,
        table: OpenedTable,
        *,
        fidelity: str | None = None,
        extra: Sequence[str | None] = (),
    ) -> tuple[Tracer, InputRows]:
        """Read the training rows and replay the training."""
        o = self.options
        require_columns(table.file, [o.weight], "--weight")
        rows = self.read(table, training=True, extra=extra)
        settings: dict[str, Any] = {
            "fidelity": fidelity or o.fidelity,
            "n_jobs": o.jobs,
            "params": self._params,
            "class_names": self.class_names,
        }
        with self.out.step("replaying the training"):
            tracer = Tracer(
                self.model.model, rows.X, rows.y, rows.weight, baseline=rows.baseline, **settings
            )
        self._put_on_record(tracer)
        return tracer, rows

    def _put_on_record(self, tracer: Tracer) -> None:
        """Put facts about the model and its replay into the JSON document."""
        e = tracer.engine.ensemble
        f = tracer.fidelity
        self.out.document["model"] = {
            "file": self.options.model,
            "name": tracer.engine.source.name,
            "loss": e.loss.name,
            "steps": e.n_steps,
            "training_rows": e.n_rows,
            "classes": tracer.classes,
        }
        self.out.document["fidelity"] = {
            "exact": f.exact,
            "max_error": f.max_error,
            "verdict": f.verdict,
        }


def _set_aside(
    frame: Any, columns: Sequence[str], features: Sequence[str], extra: Sequence[str | None]
) -> dict[str, Any]:
    """Those of the columns that are not features, taken out of the frame, and features in `extra`.

    They are taken out one by one, since large tables should not be copied."""
    kept = set(features)
    aside = {}
    for name in columns:
        if name not in kept:
            aside[name] = frame.pop(name)
        elif name in extra:
            aside[name] = frame[name]
    return aside


def _parameter_value(text: str) -> Any:
    """A parameter as a whole number, a number or a text, whichever it can be."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
