"""path_smooth: the output of a node is mixed with that of the split above it,

    out = a raw + (1 - a) out_above,   a = n / (n + path_smooth),   at the root out = raw

where raw is the Newton step of all rows below the node. n is the number of those rows, but LightGBM
estimates it, as the share that the node has in the sum of h above it, rounded bin by bin. So n has
to be found: whole numbers close to that, adding up to the rows of the split above, that give the
recorded outputs. Those of leaves have all their digits, those of splits six. Where bounds depend on
the order of splits (growth.py), they are solved in that order: grown_shares.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble
from ..._model.node_trees import NodeTree
from .grown_shares import grown_shares, searched_again
from .model import ParsedModel, Tree
from .monotone import constrained_tree, growth_of, split_signs
from .recover import row_terms, scores_by_step
from .share_search import ShareSearch

LEAF_ACCURACY = 5e-10  # of recorded leaf values, relative to the largest of a tree


def smoothing(
    parsed: ParsedModel,
    params: dict[str, Any],
    e: Ensemble,
    steepness: float,
    held_base: F64,
    factors: F64,
) -> list[NodeTree]:
    """The trees with the shares of their nodes.

    The model stores outputs as (out + ``held_base``) ``factors``, learning rate included; both are
    (trees,). ``steepness``: the factor by which the objective multiplies h.
    """
    found = []
    for node_sums in _tree_sums(parsed, params, e, steepness):
        r = node_sums.tree_number
        search = _share_search(parsed, params, e, node_sums, held_base[r], factors[r])
        growth = growth_of(parsed, search.tree)
        tree = constrained_tree(parsed, search.tree, growth)
        if growth is not None:
            tree = replace(tree, leans_on_step=searched_again(growth, search))
            _refuse_other_steps(tree, node_sums.l2, params)
        sign = np.where(search.swapped, 0, search.sign)
        share = search.shares() if growth is None else grown_shares(search, tree)
        found.append(replace(tree, l2=node_sums.l2, share=share, sign=sign))
    return found


def _refuse_other_steps(tree: NodeTree, l2: F64, params: dict[str, Any]) -> None:
    """Raise where nodes lean on a step that is computed without the l2 of the split's own output."""
    assert tree.leans_on_step is not None
    if np.any(tree.leans_on_step & (l2[: len(tree.children)] > 0)):
        raise UnsupportedModel(
            f"path_smooth with monotone_constraints_method={params['monotone_constraints_method']!r} smooths leaves "
            "below splits of many categories by a number that is not replayed; train with "
            "monotone_constraints_method='basic', or with path_smooth=0."
        )


@dataclass(frozen=True)
class _NodeSums:
    """Sums over the rows below each node of a tree, and the steps from them."""

    tree_number: int
    below: F64  # (2 L - 1, L) see `_below`
    H: F64  # (2 L - 1,)
    l2: F64  # (2 L - 1,) more l2, for some nodes
    raw: F64  # (2 L - 1,) Newton step times learning rate


def _tree_sums(
    parsed: ParsedModel, params: dict[str, Any], e: Ensemble, steepness: float
) -> Iterator[_NodeSums]:
    """The sums of each tree, at the model's own scores."""
    for t, A in scores_by_step(e, e.n_steps):
        begin = e.leaf_range(t).start
        for r, _, wg, wh in row_terms(e, t, A):
            tree = parsed.trees[r]
            below = _below(tree)
            last = e.tree_leaves[r + 1] - begin
            own = slice(e.tree_leaves[r] - begin, last)
            G = below @ np.bincount(e.leaves[r], wg, last)[own]
            H = below @ np.bincount(e.leaves[r], wh, last)[own]
            many = tree.below_many_categories(parsed.bins, params["max_cat_to_onehot"])
            l2 = many * np.float64(params["cat_l2"]) / steepness
            raw = e.rate(t) * e.rule.step(G, H, H + e.lam + l2)[0]
            yield _NodeSums(r, below, H, l2, raw)


def _share_search(
    parsed: ParsedModel,
    params: dict[str, Any],
    e: Ensemble,
    node_sums: _NodeSums,
    held_base: float,
    factor: float,
) -> ShareSearch:
    """The search for the shares of a tree."""
    r = node_sums.tree_number
    tree = parsed.trees[r]
    below = node_sums.below
    values = e.values[e.tree_leaves[r] : e.tree_leaves[r + 1], 0]
    splits = tree.split_values
    return ShareSearch(
        tree,
        split_signs(parsed, tree),
        float(params["path_smooth"]),
        reach=int(params.get("max_bin", 255)) // 2 + 20,
        rows=np.zeros(len(below)) if tree.counts is None else below @ tree.counts,
        sums=node_sums.H,
        raw=node_sums.raw,
        out=np.append(splits / factor - held_base, values),
        accuracy=np.append(
            0.51 * _sixth_digit(splits) / factor,
            np.full(len(values), LEAF_ACCURACY * np.abs(values).max()),
        ),
    )


def _sixth_digit(x: F64) -> F64:
    """The size of one unit in the sixth digit of each number."""
    exponents = np.floor(np.log10(np.abs(x), where=x != 0, out=np.zeros_like(x)))
    return 10 ** (exponents - 5)


def _below(tree: Tree) -> F64:
    """(2 L - 1, L) 1 where a leaf is below a node, or is the node."""
    L = len(tree.values)
    below = np.concatenate([np.zeros((L - 1, L)), np.eye(L)])
    for split in reversed(range(L - 1)):  # children have larger numbers than the split above them
        below[split] = below[tree.children[split]].sum(axis=0)
    return below
