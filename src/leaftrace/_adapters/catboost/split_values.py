"""The columns that splits of a CatBoost model compare, for rows of a table or a Pool.

A column of numbers has infinity for missing values, on the side of nan_mode. A statistic of
categories has its bins: in training those that rows had in the order of training, in other rows
those of the finished statistic. CatBoost itself computes the latter, as a model of stumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64
from ..._data.errors import InvalidInput
from ..._data.parquet import PartedTable
from ..._model.splits import ColumnKind
from .model_json import Json
from .statistic_trees import model_of_splits, split_indices
from .statistics import COUNT_KINDS, category_values
from .training_leaves import TrainingLeaves

_STATISTICS_AT_ONCE = 16  # statistics whose stumps are asked for in one call
_BORDER = 1e-6  # a bin begins this much below its number


class SplitValues:
    """The columns of a model.

    ``content``   the model as JSON
    ``training``  the training table
    ``table``     makes the table that CatBoost reads of a user's table
    ``pool``      makes a Pool of it"""

    def __init__(
        self,
        content: Json,
        params: dict[str, Any],
        training: Any,
        table: Callable[[Any], Any],
        pool: Callable[[Any], catboost.Pool],
    ) -> None:
        info = content["features_info"]
        self.content = content
        self.params = params
        self.training = training
        self.table = table
        self.pool = pool
        self.floats: list[Json] = info.get("float_features") or []
        self.statistics: list[Json] = info.get("ctrs") or []
        self._categorical: list[Json] = info.get("categorical_features") or []

    # ---- which columns there are ----

    @cached_property
    def one_hot(self) -> list[tuple[Json, NDArray[Any]]]:
        """Features whose categories are compared one by one, with their sorted categories."""
        most = int(self.params.get("one_hot_max_size") or 2)
        found = []
        for feature in self._categorical:
            categories = self._categories(feature)
            if feature.get("values") or 1 < len(categories) <= most:
                found.append((feature, categories))
        return found

    def _categories(self, feature: Json) -> NDArray[Any]:
        """Return the sorted categories of a feature, as texts."""
        parts = [np.unique(self._texts(table, feature)) for table in self._training_tables()]
        return np.unique(np.concatenate(parts))

    def _training_tables(self) -> Iterator[Any]:
        if isinstance(self.training, PartedTable):
            yield from (part for _, part in self.training.parts())
        else:
            yield self.training

    @property
    def kinds(self) -> list[ColumnKind]:
        numbers: list[ColumnKind] = ["ordered"] * len(self.floats)
        categories: list[ColumnKind] = ["one-hot"] * len(self.one_hot)
        statistics: list[ColumnKind] = ["ordered"] * len(self.statistics)
        return [*numbers, *categories, *statistics]

    def column_of(self, split: Json) -> int:
        """Return the column that a split compares."""
        if split["split_type"] == "FloatFeature":
            return self._place["float_feature", split["float_feature_index"]]
        if split["split_type"] == "OneHotFeature":
            return self._place["cat_feature", split["cat_feature_index"]]
        return self._place["ctr", split["split_index"]]

    @cached_property
    def _place(self) -> dict[tuple[str, int], int]:
        """The column of each feature of numbers or categories, and of each split by a statistic."""
        place = {("float_feature", f["feature_index"]): i for i, f in enumerate(self.floats)}
        for feature, _ in self.one_hot:
            place["cat_feature", feature["feature_index"]] = len(place)
        columns = len(place)
        split = len(split_indices(self.content["features_info"]))
        for i, ctr in enumerate(self.statistics):
            for _ in ctr["borders"]:
                place["ctr", split] = columns + i
                split += 1
        return place

    # ---- their values ----

    def of_rows(self, X: Any) -> F64:
        """Return the columns (m, d) of rows, with finished statistics."""
        columns = [*self._numbers(X), *self._category_numbers(X)]
        if self.statistics:
            columns += self._finished_statistics(self.pool(X))
        return np.stack(columns, axis=1) if columns else np.zeros((inputs.row_count(X), 0))

    def set_training_statistics(self, values: F64, rows: TrainingLeaves) -> None:
        """Set the target statistics in the columns (n, d) of training rows to those of training."""
        first = len(self.floats) + len(self.one_hot)
        for i, ctr in enumerate(self.statistics):
            if ctr["ctr_type"] not in COUNT_KINDS:
                values[:, first + i] = rows.statistic(ctr)

    def _numbers(self, X: Any) -> list[F64]:
        """Return the columns of numbers, each (m,), as CatBoost reads them."""
        ignored = set(self.params.get("ignored_features") or [])
        usual = "AsTrue" if self.params.get("nan_mode") == "Max" else "AsFalse"
        columns = []
        for feature, values in zip(self.floats, self._features(X).T, strict=True):
            treatment = feature["nan_value_treatment"]
            side = usual if treatment == "AsIs" else treatment
            missing = np.inf if side == "AsTrue" else -np.inf
            column = np.where(np.isnan(values), missing, values.astype(np.float64))
            is_compared = feature["flat_feature_index"] not in ignored
            columns.append(column if is_compared else np.zeros(len(column)))
        return columns

    def _features(self, X: Any) -> NDArray[np.float32]:
        """Return the features of numbers (m, features)."""
        if not self._categorical:
            return self.pool(X).get_features()
        if not self.floats:
            return np.zeros((0, 0), np.float32)
        places = [feature["flat_feature_index"] for feature in self.floats]
        return catboost.Pool(_some_columns(self._readable(X), places)).get_features()

    def _readable(self, X: Any) -> Any:
        """Return a table whose columns can be read; a Pool with categories is none."""
        if isinstance(X, catboost.Pool):
            raise InvalidInput(
                "this model has category columns, and a Pool does not give the categories of its rows; pass the table "
                "itself, as DataFrame or array."
            )
        return self.table(X)

    def _texts(self, X: Any, feature: Json) -> NDArray[Any]:
        """Return the categories (n,) of a column as texts, as CatBoost reads them."""
        return category_values(self._readable(X), feature["flat_feature_index"]).astype(str)

    def _category_numbers(self, X: Any) -> list[F64]:
        """Return columns (m,) of a number for each category of the training rows, NaN for others."""
        columns = []
        for feature, categories in self.one_hot:
            texts = self._texts(X, feature)
            place = np.minimum(np.searchsorted(categories, texts), len(categories) - 1)
            columns.append(np.where(categories[place] == texts, place, np.nan))
        return columns

    def _finished_statistics(self, pool: catboost.Pool) -> list[F64]:
        """Return the bins (m,) of each of the finished statistics."""
        columns = []
        for start in range(0, len(self.statistics), _STATISTICS_AT_ONCE):
            some = self.statistics[start : start + _STATISTICS_AT_ONCE]
            bins = [_bins(ctr) for ctr in some]
            model = self._stumps(some, bins)
            sides = model.calc_leaf_indexes(pool)  # (m, bins of all)
            edges = np.cumsum(bins)[:-1]
            columns += [part.sum(axis=1, dtype=np.float64) for part in np.split(sides, edges, 1)]
        return columns

    def _stumps(self, statistics: list[Json], bins: list[int]) -> catboost.CatBoost:
        """Return a model with a split at each bin of some statistics."""
        info = self.content["features_info"]
        ctrs = [
            {**ctr, "borders": [float(np.float32(k - _BORDER)) for k in range(1, count + 1)]}
            for ctr, count in zip(statistics, bins, strict=True)
        ]
        borders = [(ctr, border) for ctr in ctrs for border in ctr["borders"]]
        first = len(split_indices(info))
        splits = [
            {
                "split_type": "OnlineCtr",
                "split_index": first + i,
                "border": border,
                "ctr_target_border_idx": ctr["target_border_idx"],
            }
            for i, (ctr, border) in enumerate(borders)
        ]
        content = {**self.content, "features_info": {**info, "ctrs": ctrs}}
        return model_of_splits(content, splits)


def _bins(ctr: Json) -> int:
    """Return the number of bins of a statistic above its first."""
    width = max(1.0, ctr["prior_numerator"]) + ctr["shift"]
    return round(ctr["scale"] * width)


def _some_columns(table: Any, columns: list[int]) -> Any:
    """Return some columns of a table of any kind."""
    if hasattr(table, "iloc"):
        return table.iloc[:, columns]
    if not hasattr(table, "shape"):
        table = np.array(table, dtype=object)
    return table[:, columns]
