"""Columns of a table in the form that the model takes: features in their types, and labels.

Libraries take text in their own ways: CatBoost as strings; XGBoost and LightGBM as pandas
categories with the categories of training, which are stored in the model file or else found in the
training table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ..._data.errors import InvalidInput
from .models import ModelDescription
from .tables import TableFile


def listed(names: Sequence[Any], most: int = 6) -> str:
    """The first names in quotes, and how many more there are."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def require_columns(file: TableFile, names: Sequence[str | None], option: str) -> None:
    """Raise an error if the file lacks one of these columns. ``option``: that named them."""
    for name in names:
        if name is not None and name not in file.names:
            raise InvalidInput(
                f"'{file.path}' has no column '{name}' for {option}; "
                f"it has {listed(file.names, 12)}."
            )


def feature_columns(
    file: TableFile,
    model: ModelDescription,
    target: str | None,
    others: Sequence[str],
    drop: Sequence[str],
) -> list[str]:
    """The columns of the file that the model takes, in its order.

    ``others``  columns that have another use
    ``drop``    columns that are not to be used at all
    """
    if model.columns is None:
        return _remaining_columns(file, model.count, {target, *others, *drop})
    if target in model.columns:
        raise InvalidInput(
            f"the target '{target}' is one of the model's features; name the column of labels."
        )
    if dropped := [name for name in drop if name in model.columns]:
        raise InvalidInput(f"the model needs {listed(dropped)}, which --drop leaves out.")
    column_of = {name.replace(" ", "_"): name for name in file.names}  # as LightGBM stores names
    column_of |= {name: name for name in file.names}
    if missing := [name for name in model.columns if name not in column_of]:
        raise InvalidInput(
            f"'{file.path}' lacks the column(s) {listed(missing)} that the model was trained on; "
            f"it has {listed(file.names)}."
        )
    return [column_of[name] for name in model.columns]


def _remaining_columns(file: TableFile, count: int | None, used: set[str | None]) -> list[str]:
    """The columns without another use, for a model that stores no names. ``count``: its columns."""
    index = {name for name in file.names if name.startswith("__index_level_")}
    found = [name for name in file.names if name not in used | index]
    if count is not None and len(found) != count:
        raise InvalidInput(
            f"'{file.path}' has {len(found)} columns besides the target and those named, but the "
            f"model was trained without names on {count}; leave others out with --drop. "
            f"Here: {listed(found)}."
        )
    return found


@dataclass
class ColumnTypes:
    """Types of the features. Categories found in the training table are used for test tables too.

    ``categorical``  columns that the user names as categories
    ``missing``      text in place of missing categories, for a library that takes none
    ``found``        categories of each column
    """

    model: ModelDescription
    categorical: Sequence[str]
    missing: str | None
    found: dict[str, pd.CategoricalDtype] = field(default_factory=dict)

    def apply(self, X: Any, path: str) -> Any:
        """Give the columns of X their types. ``path``: that of the table, for messages."""
        stored = self.model.categories
        takes_numbers = stored is not None or (
            self.model.library == "sklearn" and not self.model.is_pipeline
        )
        for name in X.columns:
            key = name
            if stored is not None and name not in stored:
                key = str(name).replace(" ", "_")  # as LightGBM stores names
            is_stored = stored is not None and key in stored
            if stored is not None and not is_stored and name in self.categorical:
                raise InvalidInput(
                    f"the model takes '{name}' as numbers; leave it out of --categorical."
                )
            if is_stored or name in self.categorical:
                X[name] = self._category(X[name], (stored or {}).get(key), path)
            elif takes_numbers:
                _check_numbers(X[name], path)
        return X

    def _category(self, column: Any, stored: Sequence[Any] | None, path: str) -> Any:
        """A column of categories as the library takes it. ``stored``: categories in the model."""
        if self.model.library == "catboost":
            return self._filled_text(column, path)
        name = str(column.name)
        if stored and all(isinstance(value, str) for value in stored):
            column = as_text(column)
        if name not in self.found:
            self.found[name] = _category_type(column, stored)
        dtype = self.found[name]
        unseen = column[column.notna() & ~column.isin(dtype.categories)]
        if len(unseen) and self.model.library == "xgboost":
            values = listed(sorted(set(map(str, unseen))))
            raise InvalidInput(
                f"'{path}' has {values} in the column '{name}', which the model has never seen; "
                "XGBoost has no answer for such rows: leave them out."
            )
        # LightGBM takes categories it has never seen as missing, which they become here.
        return column.astype(object).astype(dtype)

    def _filled_text(self, column: Any, path: str) -> Any:
        """A column of text without missing values, as CatBoost takes it."""
        absent = column.isna()
        if absent.any() and self.missing is None:
            raise InvalidInput(
                f"the column '{column.name}' of '{path}' has {absent.sum():,} missing values, and "
                "CatBoost takes none among categories; say with --missing what text stood for them "
                "in training (often nan)."
            )
        return as_text(column).where(~absent, self.missing)


def _category_type(column: Any, stored: Sequence[Any] | None) -> pd.CategoricalDtype:
    """The categories stored in the model, or else those of the training table."""
    if stored is not None:
        return pd.CategoricalDtype(list(stored))
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.dtype
    return column.astype("category").dtype


def as_text(column: Any) -> Any:
    """Values as text, whole numbers without a decimal point; missing values stay missing."""
    values = column.astype(object)
    present = values.notna()
    if pd.api.types.is_float_dtype(column.dtype):
        numbers = column[present]
        if (numbers == np.floor(numbers)).all():
            return values.where(~present, numbers.astype(np.int64).astype(str))
    return values.where(~present, values[present].astype(str))


def _check_numbers(column: Any, path: str) -> None:
    """Raise an error if a column is not one of numbers."""
    if not _is_text(column):
        return
    numbers: Any = pd.to_numeric(column.astype(object), errors="coerce")
    where = np.flatnonzero(numbers.isna() & column.notna())
    example = f", such as '{column.iloc[where[0]]}' in row {where[0]}" if len(where) else ""
    raise InvalidInput(
        f"the column '{column.name}' of '{path}' is {column.dtype}{example}, but the model was "
        "trained on numbers there; give the table as in training."
    )


def label_values(column: Any, path: str) -> np.ndarray:
    """(n,) the labels in the target column, without missing ones."""
    if missing := int(column.isna().sum()):
        first = int(np.flatnonzero(column.isna())[0])
        raise InvalidInput(
            f"{missing} row(s) of '{path}' have no target '{column.name}', the first is row {first}; "
            "leave them out."
        )
    return np.asarray(column.astype(object) if _is_text(column) else column)


def _is_text(column: Any) -> bool:
    """Whether a column has values other than numbers."""
    return isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind not in "biuf"
