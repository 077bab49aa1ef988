"""path_smooth: the output of a node is mixed with that of the split above it,

    out = a raw + (1 - a) out_above,   a = n / (n + path_smooth),   at the root out = raw

where raw is the Newton step of all rows below the node. n is the number of those rows, but LightGBM
estimates it, as the share that the node has in the sum of h above it, rounded bin by bin. So n has
to be found: whole numbers close to that, adding up to the rows of the split above, that give the
recorded outputs. Those of leaves have all their digits, those of splits six.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._model.ensemble import Ensemble
from ..._model.node_trees import NodeTree
from .model import ParsedModel, Tree
from .monotone import constrained_tree, split_signs
from .recover import row_terms, scores_by_step

LEAF_ACCURACY = 5e-10  # of recorded leaf values, relative to the largest of a tree
Bounds = tuple[float, float]  # the least and the largest output
MAX_TRIALS = 20_000  # for a tree; about one for each split is enough


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
        tree = constrained_tree(parsed, search.tree)
        sign = np.where(search.swapped, 0, search.sign)
        found.append(replace(tree, l2=node_sums.l2, share=search.shares(), sign=sign))
    return found


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
) -> _ShareSearch:
    """The search for the shares of a tree."""
    r = node_sums.tree_number
    tree = parsed.trees[r]
    below = node_sums.below
    values = e.values[e.tree_leaves[r] : e.tree_leaves[r + 1], 0]
    splits = tree.split_values
    return _ShareSearch(
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


@dataclass
class _ShareSearch:
    """The search for the numbers n of a tree, and with them the shares a. Arrays are (2 L - 1,).

    ``sign``      (L - 1,) directions of monotone splits
    ``reach``     largest distance of n from its share in the sum of h: half a row for each bin
    ``rows``      rows below each node, as recorded
    ``sums``      sums of h
    ``raw``       Newton steps
    ``out``       recorded outputs; ``accuracy``: their largest error
    ``trials``    candidates tried so far
    """

    tree: Tree
    sign: Ints
    smooth: float
    reach: int
    rows: F64
    sums: F64
    raw: F64
    out: F64
    accuracy: F64
    trials: int = 0

    def shares(self) -> F64:
        """a of every node; from the recorded rows, if no numbers give the recorded outputs."""
        a = np.ones(len(self.raw))
        if len(a) > 1 and not self._solve(0, self.raw[0], a, (-np.inf, np.inf)):
            a[1:] = self.rows[1:] / (self.rows[1:] + self.smooth)
        return a

    @property
    def swapped(self) -> NDArray[np.bool_]:
        """(L - 1,) monotone splits whose outputs are in the wrong order in the model itself.

        Smoothing can do that after LightGBM has looked at the order.
        """
        left, right = self.tree.children.T
        gap = self.sign * (self.out[right] - self.out[left])
        return gap < -(self.accuracy[left] + self.accuracy[right])

    def _is_leaf(self, node: int) -> bool:
        return node >= len(self.tree.children)

    def _solve(self, split: int, above: float, a: F64, bounds: Bounds) -> bool:
        """Set a of all nodes below this split, whose output is ``above``; False if it cannot be.

        ``bounds``: of the outputs of its children.
        """
        pair = self.tree.children[split]
        slack = np.array([self._slack(node) for node in pair])
        failed = np.full(2, np.inf)
        for n in self._candidates(split, above, bounds):
            number = np.array([n, self.rows[split] - n])
            a[pair] = number / (number + self.smooth)
            out = np.clip(a[pair] * self.raw[pair] + (1 - a[pair]) * above, *bounds)
            if np.any(np.abs(out - self.out[pair]) > self.accuracy[pair]):
                continue
            if np.all(np.abs(out - failed) < slack):
                continue
            self.trials += 1
            if self.trials > MAX_TRIALS:
                return False
            if self._solve_below(split, out, a, bounds):
                return True
            failed = out
        return False

    def _solve_below(self, split: int, out: F64, a: F64, bounds: Bounds) -> bool:
        """Solve the splits among the two children of a split, which have these outputs (2,)."""
        pair = self.tree.children[split].tolist()
        low, high = bounds
        middle = float(out.mean())
        sides = [bounds, bounds]
        if self.sign[split]:
            sides = [(low, middle), (middle, high)][:: self.sign[split]]
        return all(
            self._is_leaf(node) or self._solve(node, output, a, side)
            for node, output, side in zip(pair, out.tolist(), sides, strict=True)
        )

    def _slack(self, node: int) -> float:
        """A change of the node's output that is too small to matter for the nodes below it."""
        if self._is_leaf(node):
            return 0.0
        if self.sign.any():  # outputs are bounds of others, without being mixed
            return 0.05 * self.accuracy[-1]
        fewest = self.rows[self.tree.children[node]].min()
        return 0.05 * self.accuracy[-1] * (fewest + self.smooth) / self.smooth

    def _candidates(self, split: int, above: float, bounds: Bounds) -> list[int]:
        """Rows on the left that give both children about their outputs, the likeliest first."""
        left, right = self.tree.children[split]
        total = self.rows[split]
        low, high = self._range(left, above, bounds)
        other_low, other_high = self._range(right, above, bounds)
        low = max(low, total - other_high, 0.0)
        high = min(high, total - other_low, total)
        if high < low:
            return []
        guess = float(self.rows[left])
        if self.sums[split] > 0:
            guess = float(total * self.sums[left] / self.sums[split])
        first = max(low, np.floor(guess) - self.reach)
        last = min(high, guess + self.reach)
        near = np.arange(int(first), int(last) + 1)
        return near[np.argsort(np.abs(near - guess), kind="stable")].tolist()

    def _range(self, node: int, above: float, bounds: Bounds) -> tuple[float, float]:
        """Smallest and largest number of rows that give this node about its output."""
        gap = self.raw[node] - above
        error = np.array([-1, 1]) * self.accuracy[node]
        at_bound = np.abs(np.array(bounds) - self.out[node]).min() <= 2 * self.accuracy[node]
        if at_bound or abs(gap) <= self.accuracy[node]:
            return 0.0, float(self.rows[0])
        a = np.clip(np.sort((self.out[node] + error - above) / gap), 0.0, 1 - 1e-15)
        low, high = self.smooth * a / (1 - a)
        return float(np.ceil(low - 1e-6)), float(np.floor(high + 1e-6))
