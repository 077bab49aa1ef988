"""One soft choice among candidate splits, in NumPy: a part of numpy_choice.py, which has the formulas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints

LEAST_EXPONENT = -40.0  # candidates less likely than that are left out
LEAST_TAU = 1e-35  # a choice with a lower temperature is sure
BETTER = 0.02  # bins are not those of the booster, so gains differ a little
ROUNDING = 1e-9  # of sums and gains, which does not decide whether candidates are allowed
# Leaves into which a side is taken to be cut, so that they move as many times as far. Chosen among 1, 2
# and 4 by the LDS of models of Adult and of California housing.
SIDE_LEAVES = 4

Bins = NDArray[np.uint8]
Int32s = NDArray[np.int32]


class Limits(NamedTuple):
    """The argument ``numbers`` of `choice_terms`."""

    lam: float
    l1: float
    category_l2: float
    min_rows: float
    min_hessian: float
    temperature: float
    rate: float
    own_lam: float
    max_step: float
    output_hessian: float


class Node:
    """A node: which rows are in it, and which of them its own split sends left."""

    def __init__(
        self, v: int, inside: NDArray[np.bool_], goes_left: NDArray[np.bool_], terms: F64
    ) -> None:
        self.v = v
        self.rows = np.flatnonzero(inside)
        self.training = self.rows[self.rows < len(terms)]
        self.goes_left = goes_left
        self.total = terms[self.training].sum(axis=0)


class SoftChoice:
    """One choice over the nodes that share it."""

    def __init__(
        self,
        nodes: list[Node],
        codes: Bins,
        terms: F64,
        O: int,
        at: Limits,
        sizes: Int32s,
        kinds: Bins,
        column: Int32s,
    ) -> None:
        self.nodes = nodes
        self.codes = codes
        self.terms = terms
        self.O = O
        self.at = at
        self.sizes = sizes
        self.kinds = kinds
        self.taken = int(column[nodes[0].v])
        # For each column and node (candidates, bins): 1 for bins that go left.
        self.sent_left = [[self._candidates(node, f) for node in nodes] for f in range(len(sizes))]
        self.chance: list[F64] = []
        self.tau = 0.0

    def _singles(self, f: int) -> bool:
        """Whether each category by itself is a candidate."""
        return bool(self.kinds[f] == 2 and self.sizes[f] > 2)

    def _more_l2(self, f: int) -> float:
        return self.at.category_l2 if f >= 0 and self.kinds[f] == 3 else 0.0

    def _l2(self, f: int) -> float:
        return self.at.lam + self._more_l2(f)

    def _pulls(self, sums: F64) -> F64:
        """(..., O) G reduced by l1."""
        G = sums[..., : self.O]
        return np.sign(G) * np.maximum(np.abs(G) - self.at.l1, 0.0)

    def _steps(self, sums: F64, l2: float, denominator: int) -> F64:
        """(..., O) -G / (denominator + l2), G reduced by l1, within the largest step.

        It is zero without a denominator, and for outputs with less than ``output_hessian``."""
        Q = sums[..., self.O : 2 * self.O]
        D = sums[..., denominator * self.O : (denominator + 1) * self.O] + l2
        counts = (D > 0) & ~self._too_light(Q)
        steps = np.divide(-self._pulls(sums), D, out=np.zeros_like(D), where=counts)
        return np.clip(steps, -self.at.max_step, self.at.max_step)

    def _too_light(self, Q: F64) -> NDArray[np.bool_]:
        """Whether outputs have less than ``output_hessian``, if there is such a limit."""
        return (self.at.output_hessian > 0) & (self.at.output_hessian > Q)

    def _gain(self, sums: F64, l2: float) -> F64:
        """(...,) gain of sides with these sums (..., 3 O + 1)."""
        slope = self._steps(sums, l2, 1)
        D = sums[..., self.O : 2 * self.O] + l2
        return -(slope * (2 * self._pulls(sums) + slope * D)).sum(axis=-1)

    def _bin_sums(self, node: Node, f: int) -> F64:
        """(bins, 3 O + 1) sums over the node's training rows."""
        out = np.zeros((self.sizes[f], self.terms.shape[1]))
        np.add.at(out, self.codes[node.training, f], self.terms[node.training])
        return out

    def _candidates(self, node: Node, f: int) -> F64:
        """(candidates, bins) 1 for the bins that a candidate of column f sends left."""
        bins = int(self.sizes[f])
        if self._singles(f):
            return np.eye(bins)
        order = np.arange(bins)
        if self.kinds[f] == 3:
            sums = self._bin_sums(node, f)
            key = np.where(sums[:, -1] > 0, -self._steps_without_l1(sums, f), np.inf)
            order = np.argsort(key, kind="stable")
        lengths = np.arange(1, bins)
        thresholds = np.zeros((bins - 1, bins))
        thresholds[:, order] = lengths[:, None] > np.arange(bins)
        if self.kinds[f] != 1 or bins <= 2:
            return thresholds
        missing_left = thresholds[:-1].copy()
        missing_left[:, -1] = 1
        return np.concatenate([thresholds, missing_left])

    def _steps_without_l1(self, sums: F64, f: int) -> F64:
        G = sums[:, : self.O]
        D = sums[:, self.O : 2 * self.O] + self._l2(f)
        return np.divide(-G, D, out=np.zeros_like(G), where=D > 0).sum(axis=1)

    def _sides(self, k: int, f: int) -> tuple[F64, F64]:
        """(candidates, 3 O + 1) sums of the left and of the right sides at the k-th node."""
        left = self.sent_left[f][k] @ self._bin_sums(self.nodes[k], f)
        return left, self.nodes[k].total - left

    def weigh(self, columns_sampled: bool, rows_estimated: bool) -> None:
        """Set the temperature, and the probability of each candidate of each column."""
        spread = 0.0
        for side in self._taken_sides():
            m = self._steps(self.terms[side].sum(axis=0), self._l2(self.taken), 1)
            G = self.terms[side, : self.O]
            Q = self.terms[side, self.O : 2 * self.O]
            spread += float(((-2 * G @ m - Q @ m**2) ** 2).sum())
        self.tau = self.at.temperature * np.sqrt(spread / 2)
        gains = []
        for f in range(len(self.sizes)):
            is_allowed = self._allowed(f, rows_estimated)
            if columns_sampled and f != self.taken and self._is_better(f, is_allowed):
                is_allowed = np.zeros_like(is_allowed)
            gains.append(np.where(is_allowed, self._gains(f, self.at.lam), -np.inf))
        top = max(gain.max(initial=-np.inf) for gain in gains)
        if not self.tau > LEAST_TAU or not np.isfinite(top):
            self.tau = 0.0
            return
        exponents = [(gain - top) / self.tau for gain in gains]
        weights = [np.where(x > LEAST_EXPONENT, np.exp(x), 0.0) for x in exponents]
        total = sum(weight.sum() for weight in weights)
        self.chance = [weight / total for weight in weights]

    def _taken_sides(self) -> Iterator[Ints]:
        """The training rows on the left and on the right of the split taken, of each node."""
        for node in self.nodes:
            goes_left = node.goes_left[node.training]
            yield node.training[goes_left]
            yield node.training[~goes_left]

    def _gains(self, f: int, lam: float) -> F64:
        """(candidates,) gains over all nodes with this l2."""
        sides = [side for k in range(len(self.nodes)) for side in self._sides(k, f)]
        return np.sum([self._gain(side, lam + self._more_l2(f)) for side in sides], axis=0)

    def _is_better(self, f: int, allowed: NDArray[np.bool_]) -> bool:
        """Whether a column has a better split than the one taken, with the l2 of choices or the model's own."""
        return any(
            self._gains(f, lam)[allowed].max(initial=-np.inf) > self._most_gain(lam)
            for lam in (self.at.lam, self.at.own_lam)
        )

    def _most_gain(self, lam: float) -> float:
        """The largest gain of candidates that training compared, which is that of the split taken."""
        l2 = lam + self._more_l2(self.taken)
        sides = [self.terms[side].sum(axis=0) for side in self._taken_sides()]
        taken = sum(float(self._gain(sums, l2)) for sums in sides)
        whole = sum(float(self._gain(node.total, lam)) for node in self.nodes)
        return taken + BETTER * (taken - whole) + ROUNDING * taken

    def _allowed(self, f: int, rows_estimated: bool) -> NDArray[np.bool_]:
        """(candidates,) whether a candidate meets the limits, and differs from those before it."""
        at = self.at
        rows_left = np.zeros(len(self.sent_left[f][0]))
        rows_right = np.zeros_like(rows_left)
        rows_last = np.zeros_like(rows_left)
        allowed = np.ones(len(rows_left), bool)
        for k, node in enumerate(self.nodes):
            left, right = self._sides(k, f)
            rows_left += left[:, -1]
            rows_right += right[:, -1]
            rows_last += self._rows_of_last_bin(node, f, k)
            if len(self.nodes) == 1:
                for side in (left, right):
                    Q = side[:, self.O : 2 * self.O].mean(axis=1)
                    rows = side[:, -1]
                    if rows_estimated:
                        of_node = node.total[self.O : 2 * self.O].mean()
                        rows = np.floor(Q * (node.total[-1] / of_node) + 0.5 + ROUNDING)
                    allowed &= (rows >= at.min_rows) & ((1 - ROUNDING) * at.min_hessian <= Q)
        allowed &= (rows_left > 0) & (rows_right > 0) & (rows_last > 0)
        if self._singles(f) and np.count_nonzero(rows_last) == 2:
            allowed &= np.cumsum(allowed) == 1  # each of the two categories is the other's rest
        return allowed

    def _rows_of_last_bin(self, node: Node, f: int, k: int) -> F64:
        """(candidates,) rows by which a candidate differs from the one before it."""
        rows = self._bin_sums(node, f)[:, -1]
        sent_left = self.sent_left[f][k]
        if self._singles(f):
            return rows
        thresholds = sent_left[: len(rows) - 1]
        before = np.concatenate([np.zeros((1, len(rows))), thresholds[:-1]])
        last = (thresholds - before) @ rows
        more = len(sent_left) - len(thresholds)  # missing values on the left
        return np.concatenate([last, np.where(rows[-1] > 0, last[:more], 0.0)])

    def first_apart(self, k: int, leaf: Int32s, stay: F64) -> float:
        """The share of the k-th node, whose leaves' `stay` (L,) is reduced by what it puts apart."""
        rows = self.nodes[k].training
        rows = rows[self.terms[rows, -1] > 0]
        if not self.tau or not len(rows):
            return 0.0
        unsure = 1 - sum(float(chance @ chance) for chance in self.chance)
        lost = 0.0
        for l in np.unique(leaf[rows]):
            own = self.codes[rows[leaf[rows] == l]]
            apart = 0.0
            for f, chance in enumerate(self.chance):
                a = self.sent_left[f][k][:, own[:, f]].mean(axis=1)
                apart += unsure * float(chance @ (2 * a * (1 - a)))
            lost += len(own) * float(stay[l]) * apart
            stay[l] *= 1 - apart
        return lost / len(rows)

    def add_pull(self, felt: F64, pull: F64, shares: F64) -> None:
        """Add the pull of this choice to the rows of its nodes: pull (n, 2 O, B)."""
        if not self.tau:
            return
        effects = [self._effects(f, felt) for f in range(len(self.sizes))]  # (candidates, B)
        pairs = list(zip(self.chance, effects, strict=True))
        mean = sum(chance @ effect for chance, effect in pairs)
        for f, (chance, effect) in enumerate(pairs):
            z = chance[:, None] * (effect - mean) / self.tau
            for k, node in enumerate(self.nodes):
                in_bin = self._felt_in_bins(node, f, felt)
                to_left = self.sent_left[f][k]  # (candidates, bins)
                table = np.zeros((len(in_bin), pull.shape[1], pull.shape[2]))
                for sums, sent in zip(self._sides(k, f), (to_left, 1 - to_left), strict=True):
                    slope = self._steps(sums, self._l2(f), 1)
                    y = self.at.rate * SIDE_LEAVES * shares[node.v] * chance
                    moved = y[:, None] * self._pace(sums, self._l2(f))
                    by_value = moved[:, :, None] * np.einsum("sk,kob->sob", sent, in_bin)
                    first = slope[:, :, None] * z[:, None] + by_value / 2
                    second = slope[:, :, None] ** 2 * z[:, None] + by_value * slope[:, :, None]
                    both = np.concatenate([first, second], axis=1)
                    table += np.einsum("sk,sob->kob", sent, both)  # (bins, 2 O, B)
                pull[node.training] += table[self.codes[node.training, f]]

    def _pace(self, sums: F64, l2: float) -> F64:
        """(candidates, O) how far the value of a side goes with G; zero while a limit holds it."""
        D = sums[:, 2 * self.O : 3 * self.O] + l2
        held = (self.at.l1 > 0) & (np.abs(sums[:, : self.O]) <= self.at.l1)
        held |= np.abs(self._steps(sums, l2, 2)) == self.at.max_step
        held |= self._too_light(sums[:, self.O : 2 * self.O])
        return np.divide(1.0, D, out=np.zeros_like(D), where=(D > 0) & ~held)

    def _felt_in_bins(self, node: Node, f: int, felt: F64) -> F64:
        """(bins, O, B) derivatives of the queries in the scores of the node's rows, by bins."""
        in_bin = np.zeros((self.sizes[f], *felt.shape[1:]))
        np.add.at(in_bin, self.codes[node.rows, f], felt[node.rows])
        return in_bin

    def _effects(self, f: int, felt: F64) -> F64:
        """(candidates, B) the queries' view of the node's output under each candidate."""
        total = np.zeros((len(self.sent_left[f][0]), felt.shape[2]))
        for k, node in enumerate(self.nodes):
            in_bin = self._felt_in_bins(node, f, felt)
            sides = self._sides(k, f)
            left, right = (self._steps(side, self._l2(f), 2) for side in sides)  # (candidates, O)
            to_left = self.sent_left[f][k]
            total += np.einsum("sk,so,kob->sb", to_left, left, in_bin)
            total += np.einsum("sk,so,kob->sb", 1 - to_left, right, in_bin)
        return self.at.rate * total
