"""How LightGBM chose its splits: the columns it compared, and what both sides of a split need.

The gain of a split is the sum over its sides of G^2 / (H + lambda_l2), with cat_l2 more for many
categories against many; these are sorted by G / (H + cat_smooth). The rows of a side, for
min_data_in_leaf, are estimated from its H. What is left out here: LightGBM does not sort categories of
fewer than cat_smooth rows, joins others up to min_data_per_group, and sends at most max_cat_threshold of
them to one side; it estimates rows bin by bin; and with use_quantized_grad its gradients are rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import UnsupportedModel
from ..._model.routes import BY_CATEGORY, MISSING_LEFT, ZERO_MISSING, NodeRoutes
from ..._model.splits import ColumnKind, SplitSearch, TreeNodes
from ..._model.tree_paths import TreePaths, paths_of_routes
from ..split_columns import numbers, splits_not_by_gain
from .ensemble import LightGBMRun
from .model import MISSING_NAN, MISSING_NOTHING, MISSING_ZERO, ParsedModel, Tree
from .refitting import refitted
from .tables import compared_numbers

if TYPE_CHECKING:
    from .source import LightGBMSource

_ZERO = float(np.float32(1e-35))  # numbers up to this count as zero


def split_search(run: LightGBMRun, params: dict[str, Any], values: F64) -> SplitSearch:
    """The search for the splits of the trees of a run; ``values`` (n, d) are its columns."""
    _refuse(params)
    steepness = run.steepness(params)
    sampled = ("feature_fraction", "feature_fraction_bynode")
    return SplitSearch(
        trees=[_nodes(tree) for tree in run.parsed.trees],
        columns=_kinds(run.parsed, params),
        values=values,
        min_rows=float(params.get("min_data_in_leaf", 20)),
        rows_estimated=True,
        min_hessian=float(params.get("min_sum_hessian_in_leaf", 1e-3)) / steepness,
        category_l2=float(params["cat_l2"]) / steepness,
        # Interaction constraints take columns out, too.
        columns_sampled=any(float(params.get(name, 1)) < 1 for name in sampled)
        or bool(params.get("interaction_constraints")),
    )


def _refuse(params: dict[str, Any]) -> None:
    """Raise for models whose splits were not chosen by these gains."""
    if refitted(params):
        raise splits_not_by_gain(
            "Booster.refit() keeps the splits of another model; trace the model that it was made of"
        )
    if params.get("extra_trees"):
        raise splits_not_by_gain("extra_trees=True draws thresholds at random")
    if params.get("forcedsplits_filename"):
        raise splits_not_by_gain("forcedsplits_filename prescribes splits")
    if params["path_smooth"] > 0:
        raise splits_not_by_gain("path_smooth has gains that depend on the values of nodes above")
    priced = ("cegb_penalty_split", "cegb_penalty_feature_lazy", "cegb_penalty_feature_coupled")
    for name in (*priced, "feature_contri"):
        if params.get(name):
            raise splits_not_by_gain(f"{name} changes the gains of some columns")


def _nodes(tree: Tree) -> TreeNodes:
    """The inner nodes of a tree, which LightGBM numbers as `TreeNodes` does."""
    left, right = np.ascontiguousarray(tree.children.T, np.int32)
    inner = np.arange(len(left), dtype=np.int32)
    return TreeNodes(left, right, tree.features.astype(np.int32), inner)


def routes_of(tree: Tree) -> NodeRoutes:
    """The comparisons at the inner nodes of a tree.

    Where nothing is missing, NaN is taken for zero; missing categories go right."""
    nan_is_zero = ~tree.categorical & (tree.missing == MISSING_NOTHING)
    left = np.where(nan_is_zero, tree.thresholds >= 0, tree.default_left & ~tree.categorical)
    flags = MISSING_LEFT * left + BY_CATEGORY * tree.categorical
    flags += ZERO_MISSING * (~tree.categorical & (tree.missing == MISSING_ZERO))
    nothing = np.zeros(0, np.uint32)
    sets = [
        tree.category_sets[int(number)] if is_category else nothing
        for number, is_category in zip(tree.thresholds, tree.categorical, strict=True)
    ]
    return NodeRoutes(
        tree.children.astype(np.int32),
        tree.features.astype(np.int32),
        _thresholds_of_zeros(tree.thresholds),
        flags.astype(np.uint8),
        sets,
    )


def tree_paths(self: LightGBMSource, X: Any) -> TreePaths:
    """The sides that rows to predict take at all splits, with the covers of leaves: a method."""
    parsed = self.parsed
    cover = [tree.counts for tree in parsed.trees if tree.counts is not None]
    if len(cover) < len(parsed.trees):
        raise UnsupportedModel(
            "this LightGBM model has no counts of the rows in its leaves, and SHAP values need them."
        )
    table = self._table(X)
    values = compared_numbers(table.toarray() if hasattr(table, "toarray") else table)
    assert values is not None
    routes = [routes_of(tree) for tree in parsed.trees]
    names = self.booster.feature_name()
    is_named = names != [f"Column_{f}" for f in range(len(names))]  # as LightGBM itself calls them
    return paths_of_routes(routes, cover, values, names if is_named else None)


def _thresholds_of_zeros(thresholds: F64) -> F64:
    """Thresholds (N,) that put all numbers up to _ZERO in size on the side of zero, as LightGBM does."""
    beyond = np.where(thresholds < 0, np.nextafter(-_ZERO, -np.inf), _ZERO)
    return np.where(np.abs(thresholds) <= _ZERO, beyond, thresholds)


def _kinds(parsed: ParsedModel, params: dict[str, Any]) -> list[ColumnKind]:
    """The kind of each column."""
    kinds: list[ColumnKind] = []
    for categories, missing in zip(parsed.categories, _missing(parsed, params), strict=True):
        if categories is None:
            kinds.append("ordered" if missing == MISSING_NOTHING else "missing")
        else:
            one_hot = len(categories) <= params["max_cat_to_onehot"]
            kinds.append("one-hot" if one_hot else "sorted")
    return kinds


def _missing(parsed: ParsedModel, params: dict[str, Any]) -> Ints:
    """(d,) what is missing in each column of numbers, as its splits say; a setting if it has none."""
    usual = MISSING_ZERO if params.get("zero_as_missing") else MISSING_NAN
    out = np.full(
        len(parsed.categories), usual if params.get("use_missing", 1) else MISSING_NOTHING
    )
    out[parsed.constant] = MISSING_NOTHING
    for tree in parsed.trees:
        out[tree.features] = tree.missing
    return out


def split_columns(parsed: ParsedModel, params: dict[str, Any], table: Any) -> F64:
    """(n, d) the columns of a table that splits compare.

    Categories are numbered by their place in the model's list. Those that are not in the list go
    where missing ones go.
    """
    out = numbers(table)
    for f, missing in enumerate(_missing(parsed, params).tolist()):
        column = out[:, f]
        categories = parsed.categories[f]
        if parsed.constant[f]:
            column[:] = 0.0
        elif categories is not None:
            column[:] = _category_numbers(column, categories)
        elif missing == MISSING_NOTHING:
            column[np.isnan(column)] = 0.0
        elif missing == MISSING_ZERO:
            column[np.abs(column) <= _ZERO] = np.nan
    return out


def _category_numbers(column: F64, categories: Ints) -> F64:
    """(n,) places of categories in a list, which may hold -1 for "other"; NaN if not there."""
    known = categories[categories >= 0]
    order = np.argsort(known)
    with np.errstate(invalid="ignore"):
        whole = np.where(np.isfinite(column), column, -1).astype(np.int64)
    place = np.searchsorted(known[order], whole)
    place = order[np.minimum(place, len(known) - 1)]
    return np.where(known[place] == whole, place, np.nan)
