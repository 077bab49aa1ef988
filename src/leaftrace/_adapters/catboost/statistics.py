"""In which leaves training rows sat when CatBoost split on target statistics of categories.

A target statistic of a row comes from the rows before it in a random order (see order.py): of ``total``
earlier rows with the row's category, or combination of categories, ``good`` have a label of the kind in question, and

    bin = floor(((good + prior) / (total + 1) + shift) / width * bins)                               (float32)

The finished model counts all rows instead, so it would put some of its training rows into other leaves than
training did. Here splits on such statistics are decided again; of all others CatBoost itself tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import catboost
import numpy as np

from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..base import cumulative
from .file import Json, nested_weights, nodes, number, numbered, read
from .order import Order, training_orders

_OF_TARGETS = ("Borders", "Buckets", "BinarizedTargetMeanValue")
_OF_COUNTS = ("Counter", "FeatureFreq")  # the same in training and in the finished model
_EMPTY = str(2**64 - 1)  # the key of an unused line in a table


@dataclass(frozen=True)
class Rows:
    """Training rows: as a table with the model's columns, as CatBoost reads them, and where the finished model puts
    them."""

    X: Any
    pool: catboost.Pool
    y: F64
    w: F64
    leaves: Ids  # (trees, n)


def statistics(file: Json) -> list[Json]:
    """The target statistics a model splits on. Counts of categories are none."""
    used = file["features_info"].get("ctrs") or []
    return [ctr for ctr in used if ctr["ctr_type"] not in _OF_COUNTS]


def training_leaves(
    model: catboost.CatBoost, file: Json, params: Json, rows: Rows
) -> tuple[Ids, bool]:
    """(trees, n) leaves of the rows as training had them, and whether they weigh what training recorded."""
    outputs = len(model.get_leaf_values()) // int(sum(model.get_tree_leaf_counts()))
    _refuse(file, params, rows, outputs)
    trees = (
        _Symmetric(file, rows)
        if "oblivious_trees" in file
        else _Nested(file, rows, numbered(model))
    )
    tried: list[Ids] = []
    for order in training_orders(params, len(rows.y)):
        tried.append(trees.leaves(_Bins(file, rows, order.rows, outputs)))
        if trees.weigh(tried[-1], order):
            return tried[-1], True
    return tried[0], False


def _refuse(file: Json, params: Json, rows: Rows, outputs: int) -> None:
    if strange := sorted({ctr["ctr_type"] for ctr in statistics(file)} - set(_OF_TARGETS)):
        raise UnsupportedModel(
            f"target statistics of the kind {', '.join(strange)} are not supported; use Borders."
        )
    if params.get("task_type", "CPU") != "CPU":
        raise UnsupportedModel(
            "on a GPU, CatBoost computes target statistics in an order that is not replayed here; train with "
            "task_type='CPU', or with one_hot_max_size at least the largest number of categories."
        )
    if isinstance(rows.X, catboost.Pool):
        raise InvalidInput(
            "this model splits on target statistics of category columns, and a Pool does not give the categories of "
            "its rows; pass the table and the labels themselves: Tracer(model, X_train, y_train)."
        )
    if int(params.get("ctr_leaf_count_limit", 2**64 - 1)) <= len(rows.y):
        raise UnsupportedModel(
            "ctr_leaf_count_limit joins rare categories in a way not replayed here; train without it."
        )
    told = " ".join(
        str(params.get(key)) for key in ("simple_ctr", "combinations_ctr", "per_feature_ctr")
    )
    if outputs == 1 and re.search(r"BinarizedTargetMeanValue[^',]*TargetBorderCount=(?!1\b)", told):
        raise UnsupportedModel(
            "target statistics of the kind BinarizedTargetMeanValue are supported with TargetBorderCount=1 only; use "
            "that, or Borders."
        )


class _Bins:
    """Bins of target statistics as training had them, with the rows in this order."""

    def __init__(self, file: Json, rows: Rows, order: Ints, outputs: int) -> None:
        self.file = file
        self.rows = rows
        self.order = order
        self.outputs = outputs
        categories = file["features_info"]["categorical_features"]
        self.column = {c["feature_index"]: c["flat_feature_index"] for c in categories}
        self.codes: dict[int, Ints] = {}
        self.kinds: dict[str, Ints] = {}
        self.grouped: tuple[Any, Any] = (None, None)

    def of(self, ctr: Json, answers: Sequence[Ids]) -> Ids:
        """(n,) bins of a statistic; ``answers``: those of each row to its elements that are not categories."""
        if (
            self.grouped[0] != ctr["elements"]
        ):  # in a file, statistics of the same elements follow each other
            self.grouped = ctr["elements"], _Groups(self._group(ctr, answers)[self.order])
        label = self._kinds(ctr)[self.order]
        border = int(ctr["target_border_idx"])
        kind = ctr["ctr_type"]
        good = {"Borders": label > border, "Buckets": label == border}.get(kind, label).astype(
            np.int64
        )
        total, counted = self.grouped[1].before(good)
        if kind == "BinarizedTargetMeanValue":
            counted = counted / np.float32(label.max())
        prior = np.float32(ctr["prior_numerator"])
        shift = np.float32(ctr["shift"])
        width = max(np.float32(1), prior) + shift
        value = (counted + prior) / (total + np.float32(1))
        out = np.empty(len(label), dtype=np.uint8)
        out[self.order] = (value + shift) / width * np.float32(round(ctr["scale"] * float(width)))
        return out

    def _group(self, ctr: Json, answers: Sequence[Ids]) -> Ints:
        """(n,) a number for each combination of the statistic's elements."""
        categories = [
            self._category(e["cat_feature_index"]) for e in ctr["elements"] if _is_category(e)
        ]
        group, *others = [*categories, *answers]
        for code in others:
            group = np.unique(group * (int(code.max()) + 1) + code, return_inverse=True)[1]
        return group

    def _category(self, feature: int) -> Ints:
        if feature not in self.codes:
            self.codes[feature] = _codes(self.rows.X, self.column[feature])
        return self.codes[feature]

    def _kinds(self, ctr: Json) -> Ints:
        """(n,) kind of each label, by size: the model's table of this statistic tells how many there are of each."""
        if self.outputs > 1:
            return self.rows.y.astype(np.int64)
        key = ctr["identifier"]
        if key not in self.kinds:
            table = self.file["ctr_data"][key]
            lines = np.array(table["hash_map"], dtype=object).reshape(-1, table["hash_stride"])
            counts = lines[lines[:, 0] != _EMPTY, 1:].sum(axis=0).astype(np.float64)
            if ctr["ctr_type"] == "BinarizedTargetMeanValue":  # rows of the higher kind, and all
                counts = np.array([counts[1] - counts[0], counts[0]])
            if round(counts.sum()) != len(self.order):
                raise InvalidInput(
                    f"this model's target statistics count {round(counts.sum())} training rows, but X has "
                    f"{len(self.order)}; pass exactly the rows it was trained on."
                )
            lower = np.cumsum(np.round(counts[:-1])).astype(
                int
            )  # how many labels are of a kind or a lower one
            highest = np.concatenate([[-np.inf], np.sort(self.rows.y)])[lower]
            self.kinds[key] = np.searchsorted(highest, self.rows.y, side="left")
        return self.kinds[key]


def _is_category(element: Json) -> bool:
    return element["combination_element"] == "cat_feature_value"


class _Groups:
    """Rows in groups, in order."""

    def __init__(self, group: Ints) -> None:
        self.by_group = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[self.by_group], prepend=-1))
        self.start = np.repeat(starts, np.diff(starts, append=len(group)))

    def before(self, good: Ints) -> tuple[Any, Any]:
        """For each row the number of rows before it in its group, and the sum of ``good`` over them; float32."""
        counts = good[self.by_group]
        sums = np.cumsum(counts) - counts
        total, earlier = np.empty((2, len(good)), dtype=np.float32)
        total[self.by_group] = np.arange(len(good)) - self.start
        earlier[self.by_group] = sums - sums[self.start]
        return total, earlier


def _codes(X: Any, column: int) -> Ints:
    """(n,) a number for each category; CatBoost reads categories as text."""
    values: Any
    if hasattr(X, "iloc"):
        values = X.iloc[:, column]
        if hasattr(values, "cat"):
            return np.asarray(values.cat.codes).astype(np.intp)
    else:
        values = X[:, column] if hasattr(X, "shape") else [row[column] for row in X]
    array = np.asarray(values.toarray().ravel() if hasattr(values, "toarray") else values)
    return np.unique(
        array if array.dtype.kind in "iubU" else array.astype(str), return_inverse=True
    )[1]


class _Questions:
    """Groups of splits, put to CatBoost as trees of one split each."""

    def __init__(self, file: Json, pool: catboost.Pool, groups: list[list[Json]]) -> None:
        self.pool = pool
        self.edges = cumulative([len(splits) for splits in groups])
        stumps = [
            {"splits": [s], "leaf_values": [0, 1], "leaf_weights": [1, 1]}
            for splits in groups
            for s in splits
        ]
        known = {
            key: part
            for key, part in file.items()
            if key not in ("trees", "oblivious_trees", "ctr_data")
        }
        if any(split["split_type"] == "OnlineCtr" for splits in groups for split in splits):
            known["ctr_data"] = file["ctr_data"]
        else:
            known["features_info"] = {k: v for k, v in file["features_info"].items() if k != "ctrs"}
        self.model = (
            read({**known, "oblivious_trees": stumps, "scale_and_bias": [1, [0]]})
            if stumps
            else None
        )

    def answers(self, group: int) -> Ids:
        """(questions, n) 0 or 1"""
        start, stop = self.edges[group : group + 2].tolist()
        if self.model is None or start == stop:
            return np.zeros((0, self.pool.num_row()), np.uint32)
        return self.model.calc_leaf_indexes(self.pool, start, stop).T


class _Trees:
    """The trees, and which target statistics their splits look at."""

    weights: list[F64]  # of the leaves of each tree, as training recorded them

    def __init__(self, file: Json, rows: Rows) -> None:
        info = file["features_info"]
        self.rows = rows
        # Splits are counted over all features: on numbers, on single categories, on statistics.
        borders = [
            (f["feature_index"], b)
            for f in info.get("float_features") or []
            for b in f.get("borders") or []
        ]
        values = [
            (f["feature_index"], v)
            for f in info["categorical_features"]
            for v in f.get("values") or []
        ]
        of_elements = [("float_feature", *b) for b in borders] + [
            ("cat_feature_exact_value", *v) for v in values
        ]
        self.place = {key: i for i, key in enumerate(of_elements)}
        self.of_split = [ctr for ctr in info["ctrs"] for _ in ctr["borders"]]
        used = statistics(file)
        self.elements = _Questions(file, rows.pool, [self._splits(ctr) for ctr in used])
        self.group = {id(ctr): group for group, ctr in enumerate(used)}

    def _splits(self, ctr: Json) -> list[Json]:
        """The elements of a statistic that are not categories, as splits."""
        out = []
        for e in ctr["elements"]:
            kind = e["combination_element"]
            if kind == "float_feature":
                place = self.place[kind, e["float_feature_index"], e["border"]]
                out.append({**e, "split_type": "FloatFeature", "split_index": place})
            elif kind == "cat_feature_exact_value":
                place = self.place[kind, e["cat_feature_index"], e["value"]]
                out.append({**e, "split_type": "OneHotFeature", "split_index": place})
        return out

    def statistic(self, split: Json) -> Json | None:
        """The target statistic a split looks at, or None."""
        if split["split_type"] != "OnlineCtr":
            return None
        ctr = self.of_split[split["split_index"] - len(self.place)]
        return None if ctr["ctr_type"] in _OF_COUNTS else ctr

    def bins(self, ctr: Json, bins: _Bins) -> Ids:
        return bins.of(ctr, list(self.elements.answers(self.group[id(ctr)])))

    def leaves(self, bins: _Bins) -> Ids:
        """(trees, n)"""
        raise NotImplementedError

    def weigh(self, leaves: Ids, order: Order) -> bool:
        """Whether the leaves weigh what training recorded."""
        w = self.rows.w[order.weighed]
        return all(
            np.abs(np.bincount(ids[order.rows], w, len(recorded)) - recorded).max()
            <= 1e-6 * recorded.max()
            for ids, recorded in zip(leaves, self.weights, strict=True)
        )


class _Symmetric(_Trees):
    """Trees that ask the same question at all nodes of a level: bit d of a leaf's number answers question d."""

    def __init__(self, file: Json, rows: Rows) -> None:
        super().__init__(file, rows)
        self.trees = [tree["splits"] or [] for tree in file["oblivious_trees"]]
        self.weights = [np.asarray(tree["leaf_weights"]) for tree in file["oblivious_trees"]]

    def leaves(self, bins: _Bins) -> Ids:
        uses: dict[int, tuple[Json, list[tuple[int, int, int]]]] = {}
        for t, splits in enumerate(self.trees):
            for d, split in enumerate(splits):
                if (ctr := self.statistic(split)) is not None:
                    uses.setdefault(self.group[id(ctr)], (ctr, []))[1].append(
                        (t, d, round(split["border"]))
                    )
        out = self.rows.leaves.copy()
        for _, (ctr, places) in sorted(uses.items()):
            found = self.bins(ctr, bins)
            for t, d, border in places:
                bit = out.dtype.type(1 << d)
                out[t] = np.where(found >= border, out[t] | bit, out[t] & ~bit)
        return out


class _Nested(_Trees):
    """Trees of nested nodes."""

    def __init__(self, file: Json, rows: Rows, trees: list[Json]) -> None:
        super().__init__(file, rows)
        self.trees = trees
        self.weights = nested_weights(trees)
        asked = [
            [s for node in nodes(tree) if (s := node.get("split")) and not self.statistic(s)]
            for tree in trees
        ]
        self.others = _Questions(file, rows.pool, asked)

    def leaves(self, bins: _Bins) -> Ids:
        out = np.empty_like(self.rows.leaves)
        known = {}
        for t, tree in enumerate(self.trees):
            answers = iter(self.others.answers(t))
            for leaf, rows in self._parts(tree, np.arange(out.shape[1]), answers, bins, known):
                out[t, rows] = number(leaf)
        return out

    def _parts(
        self, node: Json, rows: Ints, answers: Iterator[Ids], bins: _Bins, known: dict[int, Ids]
    ) -> Iterator[tuple[Json, Ints]]:
        """The leaves below a node, with those of these rows that reach them."""
        if "split" not in node:
            yield node, rows
            return
        ctr = self.statistic(node["split"])
        if ctr is None:
            right = next(answers)[rows] > 0
        else:
            if id(ctr) not in known:
                known[id(ctr)] = self.bins(ctr, bins)
            right = known[id(ctr)][rows] >= round(node["split"]["border"])
        yield from self._parts(node["left"], rows[~right], answers, bins, known)
        yield from self._parts(node["right"], rows[right], answers, bins, known)
