"""`linear_tree`: leaves that are linear functions of the columns on their paths.

LightGBM fits such a leaf from the sums of w h x x' and w g x over its rows, x in float32, and leaves out columns
whose slope is zero. The trees of the first iteration are constants. So is a leaf with too few rows, and a tree
without splits, which it may store with a function that training never used.
"""

from __future__ import annotations

import re
from typing import Any

import lightgbm as lgb
import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble
from ..._model.linear_leaves import LinearLeaves
from .model import ParsedModel, Tree
from .monotone import directions
from .objectives import objective
from .ranking import RANKING


def is_linear(parsed: ParsedModel) -> bool:
    """Whether the leaves of a model are linear functions."""
    return any(tree.linear for tree in parsed.trees)


def refuse_linear_settings(
    parsed: ParsedModel, params: dict[str, Any], own: bool, version: tuple[int, ...]
) -> None:
    """Raise for settings that are not replayed together with linear leaves.

    ``own``: the objective is a function that the user wrote.
    """
    name = parsed.objective[0]
    ranks = name in RANKING
    takes_percentiles = False
    if not (own or ranks):
        kind = objective(name, params, parsed.outputs, False, version)
        takes_percentiles = kind.statistic is not None
    refitted = float(params["refit_decay_rate"]) == 0 or params["refit_from"] is not None
    found = {
        f"objective='{name}'": ranks or takes_percentiles,
        "monotone_constraints": bool(len(directions(params))),
        "path_smooth": params["path_smooth"] > 0,
        "use_quantized_grad": bool(params["use_quantized_grad"]),
        "Booster.refit()": refitted,
        "boosting='rf'": parsed.averaged,
    }
    if names := [setting for setting, there in found.items() if there]:
        raise UnsupportedModel(
            f"linear_tree=True together with {' and '.join(names)} is not supported; train with linear_tree=False, or "
            "without the other."
        )
    for number, tree in enumerate(parsed.trees):
        if len(tree.values) == 1 and tree.linear and tree.constants[0] != tree.values[0]:
            raise UnsupportedModel(
                f"tree {number} has no split, and LightGBM adds {tree.constants[0]:.3g} to predictions there that "
                "training did not know of (linear_tree with a class that has nothing left to learn); train with "
                "linear_tree=False, fewer iterations or a lower min_gain_to_split."
            )


SUSPICION = (
    "likely rounding decides slopes of linear leaves where columns are of very different sizes or follow from others; "
    "scale the columns, or train with a larger linear_lambda"
)


def linear_features(parsed: ParsedModel) -> Ints:
    """Features of numbers that splits compare, which linear leaves may read."""
    found = [tree.features[~tree.categorical] for tree in parsed.trees if len(tree.values) > 1]
    return np.unique(np.concatenate(found))


def linear_leaves(parsed: ParsedModel, params: dict[str, Any], steepness: float) -> LinearLeaves:
    """The functions of all leaves. ``steepness``: the factor of h that the learning rate takes over."""
    features = linear_features(parsed)
    used = [np.searchsorted(features, own) for tree in parsed.trees for own in _paths(tree)]
    fitted = [
        np.full(len(tree.values), number >= parsed.outputs and len(tree.values) > 1)
        for number, tree in enumerate(parsed.trees)
    ]
    padded = np.full((len(used), max(1, *map(len, used))), -1)
    for line, own in zip(padded, used, strict=True):
        line[: len(own)] = own
    l2 = float(params["linear_lambda"]) / steepness
    return LinearLeaves(padded, np.concatenate(fitted), l2)


def linear_values(parsed: ParsedModel) -> F64:
    """(leaves, 2 + P) the values of all leaves: constant, intercept, slopes."""
    functions = [
        (dict(zip(features.tolist(), slopes.tolist(), strict=True)), path)
        for tree in parsed.trees
        for features, slopes, path in zip(
            tree.slope_features, tree.slopes, _paths(tree), strict=True
        )
    ]
    width = max(1, *(len(path) for _, path in functions))
    out = np.zeros((len(functions), 2 + width))
    out[:, 0] = np.concatenate([tree.values for tree in parsed.trees])
    out[:, 1] = np.concatenate([tree.constants for tree in parsed.trees])
    for line, (slopes, path) in zip(out, functions, strict=True):
        line[2 : 2 + len(path)] = [slopes.get(f, 0.0) for f in path.tolist()]
    return out


def _paths(tree: Tree) -> list[Ints]:
    """For each leaf the features of numbers above it, each once and in order."""
    splits = len(tree.children)
    above = tree.parent
    paths = []
    for leaf in range(splits, splits + len(tree.values)):
        found = set()
        node = above[leaf]
        while node >= 0:
            if not tree.categorical[node]:
                found.add(int(tree.features[node]))
            node = above[node]
        paths.append(np.array(sorted(found), np.int64))
    return paths


def with_linear_values(
    booster: lgb.Booster, parsed: ParsedModel, before: Ensemble, after: Ensemble
) -> lgb.Booster:
    """A copy of a booster with the linear leaves and the starting score of another ensemble."""
    values = linear_values(parsed) + after.finished_values - before.finished_values
    start = after.finished_base - before.finished_base
    for k in range(parsed.outputs):
        values[parsed.tree_leaves[k] : parsed.tree_leaves[k + 1], :2] += start[k]
    # A slope that is zero stays out of the model: missing numbers in its column do not matter.
    values[:, 2:] = np.where(after.values[:, 2:] == 0, 0.0, values[:, 2:])
    head, _, rest = booster.model_to_string().partition("\nTree=0\n")
    body, end, tail = rest.partition("\nend of trees")
    blocks = re.split(r"\nTree=\d+\n", body)
    parts = np.split(values, parsed.tree_leaves[1:-1])
    written = [
        f"\nTree={r}\n{_with_functions(block, tree, own)}"
        for r, (block, tree, own) in enumerate(zip(blocks, parsed.trees, parts, strict=True))
    ]
    # The sizes of the trees in the text have changed; without them it is read line by line.
    head = re.sub(r"\ntree_sizes=.*", "", head)
    return lgb.Booster(model_str=head + "\n" + "".join(written) + end + tail)


def _with_functions(block: str, tree: Tree, values: F64) -> str:
    """The text of a tree with other leaf values (L, 2 + P)."""
    kept = [
        [(f, v) for f, v in zip(path.tolist(), line.tolist(), strict=False) if v != 0]
        for path, line in zip(_paths(tree), values[:, 2:], strict=True)
    ]
    lines = {
        "leaf_value": " ".join(map(repr, values[:, 0].tolist())),
        "leaf_const": " ".join(map(repr, values[:, 1].tolist())),
        "num_features": " ".join(str(len(own)) for own in kept),
        "leaf_features": "".join("".join(f"{f} " for f, _ in own) + " " for own in kept),
        "leaf_coeff": "".join("".join(f"{v!r} " for _, v in own) + " " for own in kept),
    }
    for name, text in lines.items():
        block = re.sub(rf"^{name}=.*$", f"{name}={text}", block, flags=re.MULTILINE)
    return block
