"""Soft choices of splits in NumPy: the twin of ``src/native/choice.hpp``.

A node v holds rows. Candidate s sends row i to side c = c(i, s), with sums G_c of w g, Q_c of the
gain's denominator (w h, or w) and R_c of the value's denominator (likewise):

    gain_s = sum over sides and outputs of G_c^2 / (Q_c + lam)
    m_c    = -G_c / (Q_c + lam)            slope of the gain:  d gain_s = -2 m_c dG_c - m_c^2 dQ_c
    r_c    = -G_c / (R_c + lam)            value of the side if it were a leaf
    pi_s   = exp(gain_s / tau) / sum,      tau = temperature sqrt(1/2 sum_i (w_i d gain / d w_i)^2) at the split taken
    E_s    = rate (sum_j abar_j r_c(j,s) + sum_x c_x r_c(x,s))
    z_s    = pi_s (E_s - sum_s pi_s E_s) / tau

G is reduced by l1 as in leaves, and m_c and r_c are bounded by the largest step; gain_s is the sum of
-2 G_c m_c - (Q_c + lam) m_c^2, which is the same where nothing is bounded. Outputs of a side whose Q_c is
less than ``output_hessian`` have no gain and no value. The values of the sides move, too, as those of
leaves do, by a share:

    F_c    = sum of abar_j over the rows of side c, and of c_x
    y_s    = 4 rate share_v pi_s / (R_c + lam)                  zero while l1 or the largest step holds the value

The 4 stands for the leaves into which a side would be cut further: each has a part of its rows and moves
as many times as far.

A choice puts apart a pair of rows of leaf l with the probability p = (1 - sum_s pi_s^2) sum_s pi_s 2 a (1 - a),
where a is the part of the leaf's rows that s sends left; the first factor, the probability that two draws
differ, is zero where the choice is sure. share_v is what v is the first to put apart: the mean of
stay_l p over the rows below it, with stay_l the product of 1 - p over the nodes above v. Leaf values of
the tree go the share that stays together at all nodes, in the mean over its leaves.

Each row of the node then has a pull (2, O) on it, the sums over s of z_s m_c + y_s F_c / 2 and of
z_s m_c^2 + y_s F_c m_c at its own side c, which are added over the nodes that hold it:

    out_i    += -2 g_i pull_i1 - h_i pull_i2             (times how often the tree drew the row)
    abar_i   += w_i (-2 j_i pull_i1 - k_i pull_i2)       (j = dg/dA, k = dh/dA)

Gains by weight have h = 1, k = 0 here: values then move as if (Q_c + lam) / (R_c + lam) were fixed.
Nodes that share a choice add their gains and effects.

A candidate must leave ``min_rows`` rows and ``min_hessian`` of Q on each side of a node that is
split alone, and it must differ from the others; some boosters estimate these rows to be the side's part
of the node's Q. Where columns were drawn, a column with a better split than the one taken, by gains with
lam or with the model's own l2, was not among those drawn; it is left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Real
from .checks import checked, require, require_type
from .numpy_soft_choice import Bins, Int32s, Limits, Node, SoftChoice

MOST_NUMBERS = 2**36  # only arrays without a row can ask for more


class KeptChoices:
    """A tree as the native kernel keeps it between calls; the twin keeps its shape alone.

    ``nbytes``  that are kept
    """

    def __init__(self) -> None:
        self.shape: list[int] = []  # empty before the first call
        self.nbytes = 0


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
    numbers="float64 10",
    by_weight="bool",
    newton="bool",
    columns_sampled="bool",
    rows_estimated="bool",
    measured="bool",
    shares="out float64 N+1",
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
    rows_estimated: bool,
    measured: bool,
    shares: F64,
    first: int,
    threads: int,
    scores: Real,
    abar: Real,
    out: Real,
    kept: KeptChoices | None = None,
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
    ``columns_sampled``, ``rows_estimated``  see `SplitSearch`
    ``measured``  whether ``shares`` (N + 1,) of the nodes, and of the tree's leaves, are given; otherwise
                  they are put in
    ``first``     first output of the tree
    ``threads``   of the native kernel; the results do not depend on it
    ``scores``    (n, K, B) derivatives of the queries in the training rows' scores after the step;
                  it may be the same array as ``abar``
    ``kept``      of an earlier call with the same tree, rows and numbers, which the native kernel does not
                  read again then; or new, to be filled
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
    if kept is not None:
        _check_kept(kept, [*codes.shape, O, *choice[-1:], len(left), *sizes, *kinds])
    at = Limits(*numbers)
    ones = np.ones_like(g)
    Q = ones if by_weight else h
    R = h if newton else ones
    terms = np.column_stack([w[:, None] * g, w[:, None] * Q, w[:, None] * R, (w > 0).astype(float)])
    felt = np.concatenate([scores[:, first : first + O], c]).astype(np.float64)
    both = np.concatenate([codes, query_codes])
    below = _slots_above(np.concatenate([leaf, query_leaf]), left, right)
    pull = np.zeros((len(codes), 2 * O, c.shape[2]))
    stay = np.ones(len(left) + 1)  # share of the pairs of each leaf that are still together
    for number in range(choice[-1] + 1):
        nodes = [
            Node(int(v), below[v], below[left[v]], terms) for v in np.flatnonzero(choice == number)
        ]
        soft = SoftChoice(nodes, both, terms, O, at, sizes, kinds, column)
        soft.weigh(columns_sampled, rows_estimated)
        if not measured:
            for place, node in enumerate(nodes):
                shares[node.v] = soft.first_apart(place, leaf, stay)
        soft.add_pull(felt, pull, shares)
    if not measured:
        staying = stay[np.unique(leaf[w > 0])]
        shares[-1] = staying.mean() if len(staying) else 1.0
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


def _check_kept(kept: KeptChoices, shape: list[int]) -> None:
    """Refuse what was kept of a tree of another shape."""
    require_type(isinstance(kept, KeptChoices), "kept", "KeptChoices")
    require(kept.shape in ([], shape), "choices that were kept of another tree")
    kept.shape = shape


def _slots_above(leaf: Int32s, left: Int32s, right: Int32s) -> NDArray[np.bool_]:
    """(slots, rows) whether a row is in the slot."""
    N = len(left)
    inside = np.zeros((2 * N + 1, len(leaf)), bool)
    inside[N + leaf, np.arange(len(leaf))] = True
    for v in reversed(range(N)):
        inside[v] = inside[left[v]] | inside[right[v]]
    return inside
