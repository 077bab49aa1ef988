"""Reading the text of a LightGBM model: `Booster.model_to_string()`, which is also a .txt file.

Leaf values stand there with all their digits, parameters with six. A Booster that was not read from
a file still has the parameters it was given; elsewhere the missing digits are recovered from the
leaf values (`recover.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..base import cumulative
from .text import text_fields

# Parameters that leaf values depend on smoothly.
CONTINUOUS = (
    "learning_rate", "lambda_l1", "lambda_l2", "cat_l2", "max_delta_step", "sigmoid", "scale_pos_weight", "alpha",
    "fair_c", "poisson_max_delta_step", "tweedie_variance_power",
)  # fmt: skip
# Values of parameters that leaf values depend on, for models that do not report them.
DEFAULTS = {
    "boosting": "gbdt", "data_sample_strategy": "bagging", "num_iterations": 0, "learning_rate": 0.1,
    "num_threads": 0, "bagging_fraction": 1.0, "pos_bagging_fraction": 1.0, "neg_bagging_fraction": 1.0,
    "bagging_freq": 0, "bagging_seed": 3, "bagging_by_query": 0, "max_delta_step": 0.0, "lambda_l1": 0.0,
    "lambda_l2": 0.0, "drop_rate": 0.1, "max_drop": 50, "skip_drop": 0.5, "xgboost_dart_mode": 0,
    "uniform_drop": 0, "drop_seed": 4, "top_rate": 0.2, "other_rate": 0.1, "cat_l2": 10.0,
    "max_cat_to_onehot": 4, "monotone_constraints": "",
    "monotone_constraints_method": "basic", "refit_decay_rate": 0.9, "refit_from": None, "path_smooth": 0.0,
    "use_quantized_grad": 0, "quant_train_renew_leaf": 0, "num_grad_quant_bins": 4, "stochastic_rounding": 1,
    "seed": 0, "is_unbalance": 0, "scale_pos_weight": 1.0,
    "sigmoid": 1.0, "boost_from_average": 1, "alpha": 0.9, "fair_c": 1.0, "poisson_max_delta_step": 0.7,
    "tweedie_variance_power": 1.5, "linear_lambda": 0.0, "categorical_feature": "",
}  # fmt: skip
# What counts as missing at a split of numbers: nothing, in which case NaN is zero; zero and NaN; NaN.
MISSING_NOTHING = 0
MISSING_ZERO = 1
MISSING_NAN = 2


@dataclass(frozen=True)
class Tree:
    """A tree of L leaves. Its splits are the nodes 0 .. L - 2, its leaves L - 1 .. 2 L - 2.

    ``values``        (L,) leaf values
    ``counts``        (L,) rows of each leaf in training, or None
    ``weights``       (L,) sum of second derivatives of each leaf in training, or None
    ``shrinkage``     factor that the values include; 1 if a starting score was added to them
    ``linear``        whether the leaves hold linear models
    ``children``      (L - 1, 2) nodes below each split
    ``features``      (L - 1,) feature of each split
    ``thresholds``    (L - 1,) threshold of each split of numbers, or number of the set of one of categories
    ``categorical``   (L - 1,) whether a split is one of categories
    ``default_left``  (L - 1,) whether missing numbers go left
    ``category_sets`` the sets of categories that go left, as 32 bits a word
    ``missing``       (L - 1,) what is missing for a split of numbers: one of the constants above
    ``split_values``  (L - 1,) six digits of the value that a leaf in the split's place would have
    ``constants``     (L,) intercepts of linear models; empty without these
    ``slope_features``, ``slopes``  for each leaf the features of its linear model, and their slopes
    """

    values: F64
    counts: F64 | None
    weights: F64 | None
    shrinkage: float
    linear: bool
    children: Ints
    features: Ints
    thresholds: F64
    categorical: NDArray[np.bool_]
    default_left: NDArray[np.bool_]
    category_sets: list[NDArray[np.uint32]]
    missing: Ints
    split_values: F64
    constants: F64
    slope_features: list[Ints]
    slopes: list[F64]

    @cached_property
    def parent(self) -> Ints:
        """(2 L - 1,) the split above each node; -1 above the root."""
        above = np.full(2 * len(self.values) - 1, -1)
        above[self.children] = np.arange(len(self.children))[:, None]
        return above

    def below_many_categories(self, bins: Ints, max_onehot: float) -> NDArray[np.bool_]:
        """(2 L - 1,) whether the split above each node separates many categories from many."""
        many = self.categorical & (bins[self.features] > max_onehot)
        return np.append(many, False)[self.parent]  # -1, above the root, is the last


@dataclass(frozen=True)
class ParsedModel:
    """The text of a model as trees and numbers.

    ``outputs``    trees of each iteration
    ``objective``  its name, then its options
    ``averaged``   whether predictions are the mean of all trees (a forest)
    ``categories`` for each feature its categories, -1 for "other" included; None for numbers
    ``constant``   (features,) whether a feature has no splits at all: it has one value, or too few
                   rows with another
    ``params``     training parameters as they stand in the text
    """

    trees: list[Tree]
    outputs: int
    objective: list[str]
    averaged: bool
    categories: list[Ints | None]
    constant: NDArray[np.bool_]
    params: dict[str, str]

    @cached_property
    def bins(self) -> Ints:
        """(features,) number of categories, one for "other" included; 0 for numbers."""
        return np.array([0 if found is None else len(found) for found in self.categories])

    @cached_property
    def lowest(self) -> F64:
        """(features,) the smallest threshold of all splits of numbers; infinite if there is none."""
        found = np.full(len(self.categories), np.inf)
        for tree in self.trees:
            numbers = ~tree.categorical
            np.minimum.at(found, tree.features[numbers], tree.thresholds[numbers])
        return found

    @property
    def iterations(self) -> int:
        return len(self.trees) // self.outputs

    @cached_property
    def step_trees(self) -> NDArray[np.int64]:
        """(T + 1,) trees of each step, which is an iteration."""
        return np.arange(0, len(self.trees) + 1, self.outputs)

    @cached_property
    def tree_leaves(self) -> NDArray[np.int64]:
        """(trees + 1,) leaves of each tree in the list of all leaves."""
        return cumulative([len(tree.values) for tree in self.trees])


def read(text: str) -> ParsedModel:
    """Parse the text of a model."""
    head, _, rest = text.partition("\nTree=0\n")
    body, _, tail = rest.partition("\nend of trees")
    fields = text_fields(head)
    infos = fields.get("feature_infos", "").split(" ")
    blocks = re.split(r"\nTree=\d+\n", body) if body else []
    parameter_lines = tail.partition("\nparameters:")[2]
    return ParsedModel(
        trees=[_tree(text_fields(block)) for block in blocks],
        outputs=int(fields.get("num_tree_per_iteration", 1)),
        objective=fields.get("objective", "").split(" "),
        averaged="\naverage_output" in head,
        categories=[_categories(info) for info in infos],
        constant=np.array([info == "none" for info in infos]),
        params=dict(re.findall(r"^\[(\w+): ?(.*)\]$", parameter_lines, re.MULTILINE)),
    )


def _categories(info: str) -> Ints | None:
    """Categories of a feature from its "feature_infos"; None for numbers, which have a range."""
    is_number = not info or info.startswith("[") or info == "none"
    return None if is_number else np.array(info.split(":"), dtype=np.int64)


def _tree(fields: dict[str, str]) -> Tree:
    """A tree from the lines of its block."""

    def numbers(name: str, kind: Any = int) -> np.ndarray:
        return np.array(fields.get(name, "").split(), dtype=kind)

    L = int(fields["num_leaves"])
    values = numbers("leaf_value", float)
    counts = numbers("leaf_count", float)
    weights = numbers("leaf_weight", float)
    children = np.stack([numbers("left_child"), numbers("right_child")], axis=1)[: L - 1]
    words = numbers("cat_threshold", np.uint32)
    ends = np.cumsum(numbers("num_features"))[:-1]
    return Tree(
        values=values,
        counts=counts if len(counts) == L else None,
        weights=weights if len(weights) == L else None,
        shrinkage=float(fields["shrinkage"]),
        linear=fields.get("is_linear", "0") == "1",
        children=np.where(children < 0, L - 1 + ~children, children),  # a leaf is given as ~leaf
        features=numbers("split_feature"),
        thresholds=numbers("threshold", float),
        categorical=(numbers("decision_type") & 1).astype(bool),
        default_left=(numbers("decision_type") & 2).astype(bool),
        category_sets=np.split(words, numbers("cat_boundaries")[1:-1]) if len(words) else [],
        missing=numbers("decision_type") >> 2 & 3,
        split_values=numbers("internal_value", float),
        constants=numbers("leaf_const", float),
        slope_features=np.split(numbers("leaf_features"), ends),
        slopes=np.split(numbers("leaf_coeff", float), ends),
    )


def parameters(
    texts: dict[str, str], trained_with: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Values of the parameters, and the names of those that may lack digits.

    ``texts`` are the values in the model, with six digits; ``trained_with`` are those that the
    Booster was trained with, from which values with more digits are taken.
    """
    all_digits = {
        f"{v:.6g}": v
        for v in trained_with.values()
        if isinstance(v, float) and float(f"{v:.6g}") != v
    }
    unreported = {
        name: v for name, v in trained_with.items() if name in DEFAULTS and name not in texts
    }
    # LightGBM 4.0 does not report this one, and the user may give it under one of several names.
    if "goss" in trained_with.values():
        unreported["data_sample_strategy"] = "goss"
    reported = {name: all_digits.get(text, _value(text)) for name, text in texts.items()}
    rounded = [
        name
        for name in CONTINUOUS
        if _digits(texts.get(name, "")) >= 6 and texts[name] not in all_digits
    ]
    return DEFAULTS | unreported | reported, rounded


def _value(text: str) -> Any:
    """A parameter as a whole number, a number or a text, whichever it can be."""
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        return text


def _digits(text: str) -> int:
    """Number of significant digits."""
    return len(re.sub(r"e.*|\D", "", text).strip("0"))
