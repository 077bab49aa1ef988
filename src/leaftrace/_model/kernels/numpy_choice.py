"""Soft choices of splits in NumPy: the twin of ``src/native/choice.hpp``.

A node v holds rows. Candidate s sends row i to side c = c(i, s), with sums G_c of w g, Q_c of the
gain's denominator (w h, or w) and R_c of the value's denominator (likewise):

    gain_s = sum over sides and outputs of G_c^2 / (Q_c + lam)
    m_c    = -G_c / (Q_c + lam)            slope of the gain:  d gain_s = -2 m_c dG_c - m_c^2 dQ_c
    r_c    = -G_c / (R_c + lam)            value of the side if it were a leaf
    pi_s   = exp(gain_s / tau) / sum,      tau = temperature sqrt(1/2 sum_i (w_i d gain / d w_i)^2) at the split taken
    E_s    = rate (sum_j abar_j r_c(j,s) + sum_x c_x r_c(x,s))
    z_s    = pi_s (E_s - sum_s pi_s E_s) / tau

G is reduced by l1 as in leaves. Each row of the node then has the pull (2, O) of the choice on it,
the sums over s of z_s m_c(i,s) and of z_s m_c(i,s)^2, which are added over the nodes that hold it:

    out_i    += -2 g_i pull_i1 - h_i pull_i2             (times how often the tree drew the row)
    abar_i   += w_i (-2 j_i pull_i1 - k_i pull_i2)       (j = dg/dA, k = dh/dA)

Gains by weight have h = 1, k = 0 here. Nodes that share a choice add their gains and effects.

A candidate must leave ``min_rows`` rows and ``min_hessian`` of Q on each side of a node that is
split alone, and it must differ from the others. Where columns were drawn, a column with a better
split than the one taken was not among those drawn; it is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Real
from .checks import checked, require

LEAST_EXPONENT = -40.0  # candidates less likely than that are left out
MOST_NUMBERS = 2**36  # only arrays without a row can ask for more
BETTER = 1.02  # bins are not those of the booster, so gains differ a little

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


@checked(
    codes="uint8 n d",
    leaf="int32 n",
    w="float64 n",
    drawn="float64 n",
    g="float64 n O",
    h="float64 n O",
    j="float64 n O K",
    k="float64 n O K",
    query_codes="uint8 m d",
    query_leaf="int32 m",
    c="real m O B",
    sizes="int32 d",
    kinds="uint8 d",
    left="int32 N",
    right="int32 N",
    column="int32 N",
    choice="int32 N",
    numbers="float64 7",
    by_weight="bool",
    newton="bool",
    columns_sampled="bool",
    first="int",
    threads="int",
    scores="real n K B",
    abar="out real n K B",
    out="out real n B",
)
def choice_terms(
    codes: Bins,
    leaf: Int32s,
    w: F64,
    drawn: F64,
    g: F64,
    h: F64,
    j: F64,
    k: F64,
    query_codes: Bins,
    query_leaf: Int32s,
    c: Real,
    sizes: Int32s,
    kinds: Bins,
    left: Int32s,
    right: Int32s,
    column: Int32s,
    choice: Int32s,
    numbers: F64,
    by_weight: bool,
    newton: bool,
    columns_sampled: bool,
    first: int,
    threads: int,
    scores: Real,
    abar: Real,
    out: Real,
) -> None:
    """out (n, B) and abar (n, K, B) += the terms of the soft choices of one tree.

    ``codes``, ``leaf``  (n, d), (n,) bins and leaves of the training rows; ``query_`` of test rows
    ``w``, ``drawn``  (n,) weight of each row in the tree, and how often the tree drew it
    ``g``, ``h``, ``j``, ``k``  (n, O), (n, O), (n, O, K), (n, O, K) derivatives of the loss: g and h
                  of the tree's outputs, and theirs in all scores
    ``c``         (m, O, B) derivatives of the queries in the test rows' scores
    ``sizes``, ``kinds``  (d,) bins of each column; 0 ordered, 1 the last bin is missing, 2 one-hot,
                  3 sorted
    ``left``, ``right``, ``column``, ``choice``  (N,) see `TreeNodes`
    ``by_weight`` gains divide by sums of w, otherwise of w h; ``newton``: the same of values
    ``first``     first output of the tree
    ``threads``   of the native kernel; the results do not depend on it
    ``scores``    (n, K, B) derivatives of the queries in the training rows' scores after the step;
                  it may be the same array as ``abar``
    """
    O = c.shape[1]
    require(1 <= threads <= 1024, "threads")
    require(0 <= first <= abar.shape[1] - O, "outputs of a tree beyond K")
    _check_nodes(left, right, column, choice, len(sizes))
    _check_bins(sizes, kinds, codes, query_codes)
    for ids in (leaf, query_leaf):
        inside = (ids >= 0) & (ids <= len(left))
        require(bool(inside.all()), "an id beyond its table")
    cells = int(sizes.sum(dtype=np.int64))
    numbers_needed = (3 * O + 1) * (len(codes) + len(left) * cells * c.shape[2])
    require(numbers_needed <= MOST_NUMBERS, "sizes beyond any memory")
    at = Limits(*numbers)
    ones = np.ones_like(g)
    Q = ones if by_weight else h
    R = h if newton else ones
    terms = np.column_stack([w[:, None] * g, w[:, None] * Q, w[:, None] * R, (w > 0).astype(float)])
    felt = np.concatenate([scores[:, first : first + O], c]).astype(np.float64)
    both = np.concatenate([codes, query_codes])
    below = _slots_above(np.concatenate([leaf, query_leaf]), left, right)
    pull = np.zeros((len(codes), 2 * O, c.shape[2]))
    for number in range(choice[-1] + 1):
        nodes = [
            _Node(int(v), below[v], below[left[v]], terms) for v in np.flatnonzero(choice == number)
        ]
        soft = _SoftChoice(nodes, both, terms, O, at, sizes, kinds, column)
        soft.weigh(columns_sampled)
        soft.add_pull(felt, pull)
    slopes = pull[:, :O]
    squares = pull[:, O:]
    of_weight = -2 * g[:, :, None] * slopes - Q[:, :, None] * squares
    out += drawn[:, None] * of_weight.sum(axis=1)
    of_score = -2 * np.einsum("nok,nob->nkb", j, slopes)
    if not by_weight:
        of_score -= np.einsum("nok,nob->nkb", k, squares)
    abar += w[:, None, None] * of_score


def _check_nodes(left: Int32s, right: Int32s, column: Int32s, choice: Int32s, d: int) -> None:
    """Refuse nodes that are not a tree, parents first, or whose choices do not go up by one."""
    N = len(left)
    children = np.stack([left, right], axis=1)
    later = children > np.arange(N)[:, None]
    require(bool((later & (children <= 2 * N)).all()), "a child that is no slot after its parent")
    require(len(np.unique(children)) == 2 * N, "a slot with two parents")
    steps = np.diff(choice.astype(np.int64), prepend=0)
    goes_up = steps[0] == 0 and bool(((steps == 0) | (steps == 1)).all())
    require(goes_up, "choices do not go up by one")
    known = (column >= -1) & (column < d)
    require(bool(known.all()), "a split by a column that is not there")


def _check_bins(sizes: Int32s, kinds: Bins, codes: Bins, query_codes: Bins) -> None:
    """Refuse columns without bins, of an unknown kind, or with codes beyond their bins."""
    possible = (sizes >= 1) & (sizes <= 256) & (kinds <= 3)
    require(bool(possible.all()), "bins of a column")
    inside = all(bool((rows < sizes).all()) for rows in (codes, query_codes))
    require(inside, "a code beyond the bins of its column")


def _slots_above(leaf: Int32s, left: Int32s, right: Int32s) -> NDArray[np.bool_]:
    """(slots, rows) whether a row is in the slot."""
    N = len(left)
    inside = np.zeros((2 * N + 1, len(leaf)), bool)
    inside[N + leaf, np.arange(len(leaf))] = True
    for v in reversed(range(N)):
        inside[v] = inside[left[v]] | inside[right[v]]
    return inside


class _Node:
    """A node: which rows are in it, and which of them its own split sends left."""

    def __init__(
        self, v: int, inside: NDArray[np.bool_], goes_left: NDArray[np.bool_], terms: F64
    ) -> None:
        self.v = v
        self.rows = np.flatnonzero(inside)
        self.training = self.rows[self.rows < len(terms)]
        self.goes_left = goes_left
        self.total = terms[self.training].sum(axis=0)


class _SoftChoice:
    """One choice over the nodes that share it."""

    def __init__(
        self,
        nodes: list[_Node],
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

    def _l2(self, f: int) -> float:
        return self.at.lam + (self.at.category_l2 if f >= 0 and self.kinds[f] == 3 else 0.0)

    def _steps(self, sums: F64, l2: float, denominator: int) -> F64:
        """(..., O) -G / (denominator + l2), G reduced by l1; zero without a denominator."""
        G = sums[..., : self.O]
        D = sums[..., denominator * self.O : (denominator + 1) * self.O] + l2
        pull = np.maximum(np.abs(G) - self.at.l1, 0.0)
        return np.divide(-np.sign(G) * pull, D, out=np.zeros_like(G), where=D > 0)

    def _gain(self, sums: F64, l2: float) -> F64:
        """(...,) gain of sides with these sums (..., 3 O + 1)."""
        slope = self._steps(sums, l2, 1)
        return (slope**2 * np.maximum(sums[..., self.O : 2 * self.O] + l2, 0)).sum(axis=-1)

    def _bin_sums(self, node: _Node, f: int) -> F64:
        """(bins, 3 O + 1) sums over the node's training rows."""
        out = np.zeros((self.sizes[f], self.terms.shape[1]))
        np.add.at(out, self.codes[node.training, f], self.terms[node.training])
        return out

    def _candidates(self, node: _Node, f: int) -> F64:
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

    def weigh(self, columns_sampled: bool) -> None:
        """Set the temperature, and the probability of each candidate of each column."""
        at = self.at
        taken = whole = spread = 0.0
        for node in self.nodes:
            l2 = self._l2(self.taken)
            goes_left = node.goes_left[node.training]
            for side in (node.training[goes_left], node.training[~goes_left]):
                sums = self.terms[side].sum(axis=0)
                taken += float(self._gain(sums, l2))
                m = self._steps(sums, l2, 1)
                G = self.terms[side, : self.O]
                Q = self.terms[side, self.O : 2 * self.O]
                spread += float(((-2 * G @ m - Q @ m**2) ** 2).sum())
            whole += float(self._gain(node.total, at.lam))
        self.tau = at.temperature * np.sqrt(spread / 2)
        gains = [self._candidate_gains(f) for f in range(len(self.sizes))]
        if columns_sampled:
            for f, gain in enumerate(gains):
                better = gain.max(initial=-np.inf) - whole > BETTER * (taken - whole)
                if f != self.taken and better:
                    gain[:] = -np.inf
        top = max(gain.max(initial=-np.inf) for gain in gains)
        if not self.tau > 0 or not np.isfinite(top):
            self.tau = 0.0
            return
        exponents = [(gain - top) / self.tau for gain in gains]
        weights = [np.where(x > LEAST_EXPONENT, np.exp(x), 0.0) for x in exponents]
        total = sum(weight.sum() for weight in weights)
        self.chance = [weight / total for weight in weights]

    def _candidate_gains(self, f: int) -> F64:
        """(candidates,) gains over all nodes; -inf for candidates that are not allowed."""
        at = self.at
        gain = np.zeros(len(self.sent_left[f][0]))
        rows_left = np.zeros_like(gain)
        rows_right = np.zeros_like(gain)
        rows_last = np.zeros_like(gain)
        allowed = np.ones(len(gain), bool)
        for k, node in enumerate(self.nodes):
            left, right = self._sides(k, f)
            gain += self._gain(left, self._l2(f)) + self._gain(right, self._l2(f))
            rows_left += left[:, -1]
            rows_right += right[:, -1]
            rows_last += self._rows_of_last_bin(node, f, k)
            if len(self.nodes) == 1:
                for side in (left, right):
                    Q = side[:, self.O : 2 * self.O].mean(axis=1)
                    allowed &= (side[:, -1] >= at.min_rows) & (at.min_hessian <= Q)
        allowed &= (rows_left > 0) & (rows_right > 0) & (rows_last > 0)
        if self._singles(f) and np.count_nonzero(rows_last) == 2:
            allowed &= np.cumsum(allowed) == 1  # each of the two categories is the other's rest
        return np.where(allowed, gain, -np.inf)

    def _rows_of_last_bin(self, node: _Node, f: int, k: int) -> F64:
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

    def add_pull(self, felt: F64, pull: F64) -> None:
        """Add the pull of this choice to the rows of its nodes: pull (n, 2 O, B)."""
        if not self.tau:
            return
        effects = [self._effects(f, felt) for f in range(len(self.sizes))]  # (candidates, B)
        pairs = list(zip(self.chance, effects, strict=True))
        mean = sum(chance @ effect for chance, effect in pairs)
        for f, (chance, effect) in enumerate(pairs):
            z = chance[:, None] * (effect - mean) / self.tau
            for k, node in enumerate(self.nodes):
                left, right = (self._steps(side, self._l2(f), 1) for side in self._sides(k, f))
                to_left = self.sent_left[f][k]  # (candidates, bins)
                table = np.concatenate(
                    [
                        np.einsum("sk,so,sb->kob", to_left, left**power, z)
                        + np.einsum("sk,so,sb->kob", 1 - to_left, right**power, z)
                        for power in (1, 2)
                    ],
                    axis=1,
                )  # (bins, 2 O, B)
                pull[node.training] += table[self.codes[node.training, f]]

    def _effects(self, f: int, felt: F64) -> F64:
        """(candidates, B) the queries' view of the node's output under each candidate."""
        total = np.zeros((len(self.sent_left[f][0]), felt.shape[2]))
        for k, node in enumerate(self.nodes):
            in_bin = np.zeros((self.sizes[f], *felt.shape[1:]))
            np.add.at(in_bin, self.codes[node.rows, f], felt[node.rows])
            sides = self._sides(k, f)
            left, right = (self._steps(side, self._l2(f), 2) for side in sides)  # (candidates, O)
            to_left = self.sent_left[f][k]
            total += np.einsum("sk,so,kob->sb", to_left, left, in_bin)
            total += np.einsum("sk,so,kob->sb", 1 - to_left, right, in_bin)
        return self.at.rate * total
