"""path_smooth: the output of a node leans on that of the split above it,

    out = a raw + (1 - a) out_above,   a = n / (n + path_smooth),   at the root out = raw

with raw the Newton step of all rows below the node. n is the number of those rows, but LightGBM estimates it, as the
share that the node has in the sum of h above it, rounded bin by bin. So n is found: whole numbers close to that,
adding up to the rows of the split above, that give the outputs on record. Those of leaves have all their digits, those
of splits six.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._model.ensemble import Ensemble, Smoothing
from .model import Model, Tree
from .recover import terms

TRIALS = 20_000  # a tree; about one a split does


def smoothing(
    told: Model, p: dict[str, Any], e: Ensemble, factor: float, held: F64, smaller: F64
) -> list[Smoothing]:
    """For each tree; the model tells outputs as (out + ``held``) ``smaller``, learning rate included."""
    A = e.start()
    found = []
    fine = (
        1e-6 if p["data_sample_strategy"] == "goss" else 5e-10
    )  # weighted terms are rounded twice there
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
        begin = e.leaf_range(t).start
        for r, _, wg, wh in terms(e, t, A):
            tree = told.trees[r]
            first = e.tree_leaves[r]
            last = e.tree_leaves[r + 1]
            below = _below(tree)
            G, H = (
                below @ np.bincount(e.leaves[r], x, last - begin)[first - begin : last - begin]
                for x in (wg, wh)
            )
            l2 = tree.many(told.bins, p["max_cat_to_onehot"]) * np.float64(p["cat_l2"]) / factor
            raw = e.rate(t) * e.rule.step(G, H, H + e.lam + l2)[0]
            values = e.values[first:last, 0]
            splits = tree.split_values
            digits = 10 ** (
                np.floor(np.log10(np.abs(splits), where=splits != 0, out=np.zeros_like(splits))) - 5
            )
            search = _Search(
                tree,
                float(p["path_smooth"]),
                reach=int(p.get("max_bin", 255)) // 2 + 20,
                rows=np.zeros(len(below)) if tree.counts is None else below @ tree.counts,
                sums=H,
                raw=raw,
                out=np.append(splits / smaller[r] - held[r], values),
                accuracy=np.append(
                    0.51 * digits / smaller[r], np.full(len(values), fine * np.abs(values).max())
                ),
            )
            found.append(Smoothing(below, _mixture(tree, search.shares()), l2))
    return found


def _below(tree: Tree) -> F64:
    """(2 L - 1, L) 1 where a leaf is below a node, or is it."""
    L = len(tree.values)
    below = np.concatenate([np.zeros((L - 1, L)), np.eye(L)])
    for split in reversed(range(L - 1)):  # children have larger numbers than the split above them
        below[split] = below[tree.children[split]].sum(axis=0)
    return below


def _mixture(tree: Tree, a: F64) -> F64:
    """(L, 2 L - 1) the share of each node's step in each leaf."""
    share = np.diag(a)
    for node in range(1, len(a)):
        share[node] += (1 - a[node]) * share[tree.parent[node]]
    return share[len(tree.children) :]


@dataclass
class _Search:
    """For the numbers n of one tree. All arrays (2 L - 1,)."""

    tree: Tree
    smooth: float
    reach: int  # how far n may be from its share in the sum of h: half a row a bin
    rows: F64
    sums: F64  # of h
    raw: F64
    out: F64
    accuracy: F64  # of out
    trials: int = 0

    def shares(self) -> F64:
        """a of every node; if none is found to give what is on record, with the number of rows."""
        a = np.ones(len(self.raw))
        if len(a) > 1 and not self._solve(0, self.raw[0], a):
            a[1:] = self.rows[1:] / (self.rows[1:] + self.smooth)
        return a

    def _solve(self, split: int, above: float, a: F64) -> bool:
        """Set a of all nodes below this split, whose own output is ``above``; False if it cannot be."""
        pair = self.tree.children[split]
        total = self.rows[split]
        slack = np.array([self._slack(node) for node in pair])
        failed = np.full(2, np.inf)
        for n in self._candidates(split, above):
            number = np.array([n, total - n])
            a[pair] = number / (number + self.smooth)
            out = a[pair] * self.raw[pair] + (1 - a[pair]) * above
            if np.any(np.abs(out - self.out[pair]) > self.accuracy[pair]) or np.all(
                np.abs(out - failed) < slack
            ):
                continue
            self.trials += 1
            if self.trials > TRIALS:
                return False
            if all(
                node >= len(self.tree.children) or self._solve(node, value, a)
                for node, value in zip(pair.tolist(), out.tolist(), strict=True)
            ):
                return True
            failed = out
        return False

    def _slack(self, node: int) -> float:
        """A change of the node's output that nodes below it do not notice."""
        if node >= len(self.tree.children):
            return 0.0
        fewest = self.rows[self.tree.children[node]].min()
        return 0.05 * self.accuracy[-1] * (fewest + self.smooth) / self.smooth

    def _candidates(self, split: int, above: float) -> list[int]:
        """Rows on the left that give both children about their outputs, the likeliest first."""
        (left, right) = self.tree.children[split]
        total = self.rows[split]
        low, high = self._range(left, above)
        other_low, other_high = self._range(right, above)
        low = max(low, total - other_high, 0.0)
        high = min(high, total - other_low, total)
        if high < low:
            return []
        guess = float(
            total * self.sums[left] / self.sums[split] if self.sums[split] > 0 else self.rows[left]
        )
        first = max(low, np.floor(guess) - self.reach)
        last = min(high, guess + self.reach)
        near = np.arange(int(first), int(last) + 1)
        return near[np.argsort(np.abs(near - guess), kind="stable")].tolist()

    def _range(self, node: int, above: float) -> tuple[float, float]:
        """The numbers of rows that give this node about its output."""
        gap = self.raw[node] - above
        reach = np.array([-1, 1]) * self.accuracy[node]
        if abs(gap) <= self.accuracy[node]:
            return 0.0, float(self.rows[0])
        a = np.clip(np.sort((self.out[node] + reach - above) / gap), 0.0, 1 - 1e-15)
        low, high = self.smooth * a / (1 - a)
        return float(np.ceil(low - 1e-6)), float(np.floor(high + 1e-6))
