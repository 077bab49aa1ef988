"""The search for the numbers of rows that path_smooth took for the nodes of a tree.

See path_smooth.py. The search goes down from the root; a choice for one split is taken back if no
choice for a split below it fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from .model import Tree

Bounds = tuple[float, float]  # the least and the largest output
MAX_TRIALS = 20_000  # for a tree; about one for each split is enough


@dataclass
class ShareSearch:
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
        for n in self.candidates(split, above, [bounds, bounds]):
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

    def candidates(self, split: int, above: float, sides: list[Bounds]) -> list[int]:
        """Rows on the left that give both children about their outputs, the likeliest first.

        ``above``: what the outputs lean on; ``sides``: the bounds of both children.
        """
        left, right = self.tree.children[split]
        total = self.rows[split]
        low, high = self._range(left, above, sides[0])
        other_low, other_high = self._range(right, above, sides[1])
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
