"""Target statistics of categories as training had them.

A target statistic of a row comes from the rows before it in a random order (see order.py): of
``total`` earlier rows with the row's category, or combination of categories, ``good`` have a label
of the kind in question, and

    bin = floor(((good + prior) / (total + 1) + shift) / width * bins)              (float32)

CatBoost's files call a statistic a ctr. It is computed for combinations of *elements*: categories,
and splits on numbers or on single categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput
from .model_json import Json

TARGET_KINDS = ("Borders", "Buckets", "BinarizedTargetMeanValue")
COUNT_KINDS = ("Counter", "FeatureFreq")  # the same in training and in the finished model
_UNUSED = str(2**64 - 1)  # the key of an unused line in a table of a statistic


@dataclass(frozen=True)
class CategoricalRows:
    """Training rows with the leaves that the finished model puts them in.

    ``X``     the rows as a table with the model's columns
    ``pool``  the same rows as CatBoost reads them
    """

    X: Any
    pool: catboost.Pool
    y: F64
    w: F64
    leaves: Ids  # (trees, n)


def target_statistics(content: Json) -> list[Json]:
    """Return the target statistics a model splits on; counts of categories are not among them."""
    used = content["features_info"].get("ctrs") or []
    return [ctr for ctr in used if ctr["ctr_type"] not in COUNT_KINDS]


class StatisticBins:
    """Bins of target statistics as training had them, with the rows in this order."""

    def __init__(self, content: Json, rows: CategoricalRows, order: Ints, outputs: int) -> None:
        self.content = content
        self.rows = rows
        self.order = order
        self.outputs = outputs
        categories = content["features_info"]["categorical_features"]
        self.column = {c["feature_index"]: c["flat_feature_index"] for c in categories}
        self.codes: dict[int, Ints] = {}
        self.label_kinds: dict[str, Ints] = {}
        self.last_elements: Any = None
        self.last_groups: _EarlierRows

    def compute(self, ctr: Json, answers: Sequence[Ids]) -> Ids:
        """Return the bins (n,) of a statistic.

        ``answers`` holds, for each element that is not a category, on which side rows (n,) are."""
        groups = self._groups(ctr, answers)
        label = self._kinds_of_labels(ctr)[self.order]
        kind = ctr["ctr_type"]
        total, counted = groups.count(_good(label, kind, int(ctr["target_border_idx"])))
        if kind == "BinarizedTargetMeanValue":
            counted = counted / np.float32(label.max())
        prior = np.float32(ctr["prior_numerator"])
        shift = np.float32(ctr["shift"])
        width = max(np.float32(1), prior) + shift
        bins = np.float32(round(ctr["scale"] * float(width)))
        value = (counted + prior) / (total + np.float32(1))
        out = np.empty(len(label), dtype=np.uint8)
        out[self.order] = (value + shift) / width * bins
        return out

    def _groups(self, ctr: Json, answers: Sequence[Ids]) -> _EarlierRows:
        """Return the rows by combination of the statistic's elements.

        In a file, statistics of the same elements follow each other, so the last are kept."""
        if self.last_elements != ctr["elements"]:
            self.last_groups = _EarlierRows(self._combinations(ctr, answers)[self.order])
            self.last_elements = ctr["elements"]
        return self.last_groups

    def _combinations(self, ctr: Json, answers: Sequence[Ids]) -> Ints:
        """Return a number (n,) for each combination of the statistic's elements."""
        categories = [
            self._category(element["cat_feature_index"])
            for element in ctr["elements"]
            if element["combination_element"] == "cat_feature_value"
        ]
        group, *others = [*categories, *answers]
        for code in others:
            group = np.unique(group * (int(code.max()) + 1) + code, return_inverse=True)[1]
        return group

    def _category(self, feature: int) -> Ints:
        """Return a number (n,) for each category of a feature."""
        if feature not in self.codes:
            self.codes[feature] = _category_codes(self.rows.X, self.column[feature])
        return self.codes[feature]

    def _kinds_of_labels(self, ctr: Json) -> Ints:
        """Return the kind (n,) of each label: classes, or ranges of numbers from low to high."""
        if self.outputs > 1:
            return self.rows.y.astype(np.int64)
        key = ctr["identifier"]
        if key not in self.label_kinds:
            counts = self._rows_of_kinds(ctr)
            up_to_kind = np.cumsum(np.round(counts[:-1])).astype(int)
            highest = np.concatenate([[-np.inf], np.sort(self.rows.y)])[up_to_kind]
            self.label_kinds[key] = np.searchsorted(highest, self.rows.y, side="left")
        return self.label_kinds[key]

    def _rows_of_kinds(self, ctr: Json) -> F64:
        """Return how many training rows have a label of each kind, from the statistic's table."""
        table = self.content["ctr_data"][ctr["identifier"]]
        lines = np.array(table["hash_map"], dtype=object).reshape(-1, table["hash_stride"])
        counts = lines[lines[:, 0] != _UNUSED, 1:].sum(axis=0).astype(np.float64)
        if ctr["ctr_type"] == "BinarizedTargetMeanValue":  # it has rows of the higher kind, and all
            counts = np.array([counts[1] - counts[0], counts[0]])
        if round(counts.sum()) != len(self.order):
            raise InvalidInput(
                f"this model's target statistics count {round(counts.sum())} training rows, but X has "
                f"{len(self.order)}; pass exactly the rows it was trained on."
            )
        return counts


def _good(label: Ints, kind: str, border: int) -> Ints:
    """Return what each row (n,) adds to the count of good ones."""
    if kind == "Borders":
        return (label > border).astype(np.int64)
    if kind == "Buckets":
        return (label == border).astype(np.int64)
    return label.astype(np.int64)


class _EarlierRows:
    """Rows in groups (n,), to count for each row those before it in its group."""

    def __init__(self, group: Ints) -> None:
        self.by_group = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[self.by_group], prepend=-1))
        self.start = np.repeat(starts, np.diff(starts, append=len(group)))

    def count(self, good: Ints) -> tuple[Any, Any]:
        """Return for each row the number of earlier rows, and the sum of ``good`` over them.

        Both are (n,) and float32."""
        counts = good[self.by_group]
        sums = np.cumsum(counts) - counts
        total = np.empty(len(good), dtype=np.float32)
        earlier = np.empty(len(good), dtype=np.float32)
        total[self.by_group] = np.arange(len(good)) - self.start
        earlier[self.by_group] = sums - sums[self.start]
        return total, earlier


def _category_codes(X: Any, column: int) -> Ints:
    """Return a number (n,) for each category of a column. CatBoost reads categories as text."""
    if hasattr(X, "iloc") and hasattr(X.iloc[:, column], "cat"):
        return np.asarray(X.iloc[:, column].cat.codes).astype(np.intp)
    array = category_values(X, column)
    if array.dtype.kind not in "iubU":
        array = array.astype(str)
    return np.unique(array, return_inverse=True)[1]


def category_values(X: Any, column: int) -> NDArray[Any]:
    """Return the values (n,) of a column of categories in a table of any kind."""
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, column])
    values: Any = X[:, column] if hasattr(X, "shape") else [row[column] for row in X]
    return np.asarray(values.toarray().ravel() if hasattr(values, "toarray") else values)
