"""Leaves of rows of a table: by CatBoost or, in symmetric trees that split on numbers alone, by our own traversal.

CatBoost copies a table before it reads it and returns four bytes for each leaf, so with many rows our own is faster.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import catboost
import numpy as np

from ..._data import inputs
from ..._data.arrays import Ids, Ints, Real
from ..._data.errors import UnsupportedModel
from ..._model.routes import LevelRoutes
from ..own_leaves import LeavesByLevels
from .model_json import Json, model_to_json
from .pools import leaf_numbers, model_table, pool_of

LEAST_ROWS = 20_000  # with fewer rows, reading the splits takes longer than it saves


class RowLeaves:
    """The leaves of rows in the trees of a model."""

    def __init__(self, model: catboost.CatBoost) -> None:
        self.model = model

    @cached_property
    def content(self) -> Json:
        """The model as JSON."""
        return model_to_json(self.model)

    def find(self, X: Any) -> Ids:
        """Return the leaves (trees, rows) of the rows of X."""
        values = None if isinstance(X, catboost.Pool) else plain_values(model_table(self.model, X))
        if values is None or not self._can_compare(values):
            return self._by_catboost(X, None)
        assert self.own is not None
        return self.own.find(len(values), lambda: values, lambda rows: self._by_catboost(X, rows))

    def reads_in_place(self, X: Any) -> bool:
        """Return whether `find` needs no copy of this table."""
        is_array = isinstance(X, np.ndarray) and X.ndim == 2 and X.flags.c_contiguous
        return is_array and X.dtype in (np.float32, np.float64) and self._can_compare(X)

    def _by_catboost(self, X: Any, rows: Ints | None) -> Ids:
        """Return the leaves of these rows of X, or of all."""
        some = X if rows is None else inputs.take_rows(X, rows)
        return leaf_numbers(self.model, pool_of(self.model, some))

    @cached_property
    def own(self) -> LeavesByLevels | None:
        """Our own traversal; None for trees that it is not made for."""
        others = (
            self.model.get_cat_feature_indices(),
            self.model.get_text_feature_indices(),
            self.model.get_embedding_feature_indices(),
        )
        if any(others):
            return None
        try:
            content = self.content
        except UnsupportedModel:  # which CatBoost cannot write as JSON
            return None
        return LeavesByLevels(level_routes(content)) if "oblivious_trees" in content else None

    def _can_compare(self, values: Real) -> bool:
        """Return whether our own traversal is worth while for these values (n, d), and made for them.

        What to do with missing values in columns that had none in training is left to CatBoost."""
        if len(values) < LEAST_ROWS or self.own is None or not self.own.is_trusted:
            return False
        features = self.content["features_info"]["float_features"]
        if values.shape[1] != len(features):
            return False
        complete = [f["flat_feature_index"] for f in features if not f["has_nans"]]
        # A sum is missing if one of its numbers is; it takes a fraction of the time of looking at each.
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.ones(len(values), values.dtype) @ values
            return not np.isnan(sums[complete]).any()


def level_routes(content: Json) -> LevelRoutes:
    """Return the comparisons of symmetric trees that split on numbers alone."""
    features = content["features_info"]["float_features"]
    column = {f["feature_index"]: f["flat_feature_index"] for f in features}
    trees = [tree["splits"] or [] for tree in content["oblivious_trees"]]
    splits = [split for tree in trees for split in tree]
    above = np.zeros(len(features), np.uint8)
    for feature in features:
        above[feature["flat_feature_index"]] = feature["nan_value_treatment"] == "AsTrue"
    return LevelRoutes(
        edges=np.cumsum([0, *(len(tree) for tree in trees)]).astype(np.int64),
        column=np.array([column[s["float_feature_index"]] for s in splits], np.int32),
        threshold=np.array([s["border"] for s in splits], np.float64),
        above=above,
    )


def plain_values(table: Any) -> Real | None:
    """Return the numbers (n, d) of an array or DataFrame of plain numbers; None for other tables."""
    if hasattr(table, "iloc"):
        is_plain = all(isinstance(kind, np.dtype) and kind.kind in "fiub" for kind in table.dtypes)
        table = table.to_numpy(np.float32) if is_plain else None
    if not isinstance(table, np.ndarray) or table.ndim != 2 or table.dtype.kind not in "fiub":
        return None
    return table if table.dtype in (np.float32, np.float64) else table.astype(np.float32)
