"""From a table to what the model takes: its columns in their types, labels, weights.

Boosters take text in their own ways: CatBoost as strings; XGBoost and LightGBM as pandas categories with the
categories of training, which the model file keeps, or else the training table has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from .._actions.impact.action import RemovalImpact
from .._actions.impact.audit import json_value
from .._data.errors import InvalidInput
from .models import Told
from .tables import File


def some(names: Sequence[Any], most: int = 6) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def features(
    file: File, told: Told, target: str | None, others: Sequence[str], drop: Sequence[str]
) -> list[str]:
    """Which columns of the file the model takes, in its order.

    ``others``  columns that have another use; ``drop``  columns that are not to be used at all"""
    if told.columns is None:
        index = [n for n in file.names if n.startswith("__index_level_")]
        found = [n for n in file.names if n not in {target, *others, *drop, *index}]
        if told.count is not None and len(found) != told.count:
            raise InvalidInput(
                f"'{file.path}' has {len(found)} columns besides the target and those named, but the model was trained "
                f"without names on {told.count}; leave others out with --drop. Here: {some(found)}."
            )
        return found
    if target in told.columns:
        raise InvalidInput(
            f"the target '{target}' is one of the model's features; name the column of labels."
        )
    if wanted := [n for n in drop if n in told.columns]:
        raise InvalidInput(f"the model needs {some(wanted)}, which --drop leaves out.")
    by_name = {n.replace(" ", "_"): n for n in file.names} | {
        n: n for n in file.names
    }  # LightGBM writes no spaces
    if missing := [n for n in told.columns if n not in by_name]:
        raise InvalidInput(
            f"'{file.path}' lacks the column(s) {some(missing)} that the model was trained on; it has "
            f"{some(file.names)}."
        )
    return [by_name[n] for n in told.columns]


def need(file: File, names: Sequence[str | None], option: str) -> None:
    for name in names:
        if name is not None and name not in file.names:
            raise InvalidInput(
                f"'{file.path}' has no column '{name}' for {option}; it has {some(file.names, 12)}."
            )


@dataclass
class Types:
    """The types of columns. What the training table shows is used for the test table too."""

    told: Told
    named: Sequence[str]  # --categorical
    missing: str | None  # what stands for a missing category, where the library takes none
    categories: dict[str, pd.CategoricalDtype] = field(default_factory=dict)

    def apply(self, X: Any, path: str) -> Any:
        known = self.told.categories
        for name in X.columns:
            key = name if known is None or name in known else str(name).replace(" ", "_")
            if known is not None and name in self.named and key not in known:
                raise InvalidInput(
                    f"the model takes '{name}' as numbers; leave it out of --categorical."
                )
            if (known is not None and key in known) or name in self.named:
                X[name] = self._category(X[name], (known or {}).get(key), path)
            elif known is not None or (
                self.told.library == "sklearn" and not _is_pipeline(self.told.model)
            ):
                _check_numbers(X[name], path)
        return X

    def _category(self, column: Any, kept: Sequence[Any] | None, path: str) -> Any:
        if self.told.library == "catboost":
            text = as_text(column)
            absent = column.isna()
            if absent.any() and self.missing is None:
                raise InvalidInput(
                    f"the column '{column.name}' of '{path}' has {absent.sum():,} missing values, and CatBoost takes "
                    "none among categories; say with --missing what text stood for them in training (often nan)."
                )
            return text.where(~absent, self.missing)
        name = str(column.name)
        if kept is not None and kept and all(isinstance(v, str) for v in kept):
            column = as_text(column)
        if name not in self.categories:
            dtype = (
                column.dtype
                if isinstance(column.dtype, pd.CategoricalDtype)
                else column.astype("category").dtype
            )
            self.categories[name] = dtype if kept is None else pd.CategoricalDtype(list(kept))
        dtype = self.categories[name]
        strange = column[column.notna() & ~column.isin(dtype.categories)]
        if len(strange) and self.told.library == "xgboost":
            raise InvalidInput(
                f"'{path}' has {some(sorted(set(map(str, strange))))} in the column '{name}', which the model has "
                "never seen; XGBoost has no answer for such rows: leave them out."
            )
        return column.astype(object).astype(
            dtype
        )  # LightGBM takes what it has never seen as missing, as here


def _is_pipeline(model: Any) -> bool:
    return hasattr(model, "named_steps")


def as_text(column: Any) -> Any:
    """Values as text, whole numbers without a point; missing ones stay missing."""
    values = column.astype(object)
    kept = values.notna()
    if pd.api.types.is_float_dtype(column.dtype) and (column[kept] == np.floor(column[kept])).all():
        return values.where(~kept, column[kept].astype(np.int64).astype(str))
    return values.where(~kept, values[kept].astype(str))


def _check_numbers(column: Any, path: str) -> None:
    if isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind not in "biuf":
        numbers: Any = pd.to_numeric(column.astype(object), errors="coerce")
        where = np.flatnonzero(numbers.isna() & column.notna())
        example = f", such as '{column.iloc[where[0]]}' in row {where[0]}" if len(where) else ""
        raise InvalidInput(
            f"the column '{column.name}' of '{path}' is {column.dtype}{example}, but the model was trained on numbers "
            "there; give the table as in training."
        )


@dataclass(frozen=True)
class Labels:
    """Labels as the model knows them. ``names``: for a model that knows its classes by number, what they are called."""

    names: np.ndarray | None = None

    @classmethod
    def of(cls, y: np.ndarray, told: Told, given: Sequence[str]) -> Labels:
        """As LGBMClassifier and scikit-learn's LabelEncoder number them: in order. The replay finds out if it was not
        so."""
        K = told.classes
        if given and not K:
            raise InvalidInput(
                "--classes is for models that know their classes by number; this one needs none."
            )
        found = sorted(set(y.tolist()), key=lambda v: (str(type(v)), v))
        numeric = y.dtype.kind in "iuf"
        if not K or (numeric and not given and (set(found) <= set(range(K)) or len(found) != K)):
            return cls()
        names = np.array(given, dtype=object) if given else np.array(found, dtype=object)
        if len(names) != K:
            raise InvalidInput(
                f"the target has {len(names)} classes ({some(names.tolist())}), but the model has {K}; give the target "
                "it was trained on, or all classes in their order with --classes."
            )
        return cls(names)

    def codes(self, y: np.ndarray, path: str) -> np.ndarray:
        if self.names is None:
            return y
        number = {str(name): i for i, name in enumerate(self.names.tolist())}
        strange = sorted({str(v) for v in y.tolist()} - set(number))
        if strange:
            raise InvalidInput(
                f"the target of '{path}' has {some(strange)}, which the model does not know; its classes are "
                f"{some(self.names.tolist())}."
            )
        return np.array([number[str(v)] for v in y.tolist()])

    def shown(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """A table's columns with the names of classes."""
        if self.names is None:
            return dict(columns)
        return {n: self._named(v) if n in _LABELS else v for n, v in columns.items()}

    def said(self, effects: Any) -> Any:
        """A table of effects with the names of classes in its words."""
        if self.names is None:
            return effects
        names = self.names.tolist()

        def words(text: str) -> str:
            return re.sub(
                r"^probability of (\d+) for",
                lambda m: f"probability of {names[int(m[1])]} for",
                text,
            )

        return {n: [words(v) for v in effects[n]] if n == "of" else effects[n] for n in effects}

    def on_record(self, found: RemovalImpact) -> RemovalImpact:
        """With the names of classes in its audit, which speaks of labels as the model knows them."""
        if self.names is None:
            return found
        return replace(found, _audit=found.audit() | {"classes_by_number": json_value(self.names)})

    def _named(self, codes: Any) -> Any:
        assert self.names is not None
        return self.names[np.asarray(codes).astype(int)]


_LABELS = {"label", "given_label", "predicted_label", "suggested_label", "decision", "new_decision"}


def target_of(column: Any, path: str) -> np.ndarray:
    if missing := int(column.isna().sum()):
        first = int(np.flatnonzero(column.isna())[0])
        raise InvalidInput(
            f"{missing} row(s) of '{path}' have no target '{column.name}', the first is row {first}; leave them out."
        )
    text = isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind not in "biuf"
    return np.asarray(column.astype(object) if text else column)
