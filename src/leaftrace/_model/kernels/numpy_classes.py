"""Effects of rows of several outputs, in NumPy: the twin of ``src/native/classes.hpp``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids, Ints, Real
from ..losses import Softmax
from .checks import check_edges, check_first, check_ids, check_rows, checked, require
from .numpy_sweeps import sum_by_leaf


@checked(
    newton="bool",
    leaf="ids R n",
    first="int32 R",
    trees="int64 T+1",
    edges="int64 T+1",
    values="float64 M O",
    tables="int64 T+1",
    shift="float64 J O",
    s="float64 J O",
    N="float64 J O O",
    begin="int",
    end="int",
    A="float64 m K",
    y="float64 n",
    w="float64 n",
    V="out real R n O",
    U="out real R n O K",
)
def softmax_effects(
    newton: bool,
    leaf: Ids,
    first: NDArray[np.int32],
    trees: Ints,
    edges: Ints,
    values: F64,
    tables: Ints,
    shift: F64,
    s: F64,
    N: F64,
    begin: int,
    end: int,
    A: F64,
    y: F64,
    w: F64,
    V: Real,
    U: Real,
) -> None:
    """V (R, n, O) and U (R, n, O, K) of rows begin .. end - 1 in all trees of T steps.

    ``trees``, ``edges``   (T + 1,) trees and leaves of each step
    ``tables``             (T + 1,) leaf rows of each step in shift, s and N: (Q, M, ...)
    ``A``                  (end - begin, K) scores before the first step; they move on to the last

    With the leaf's s and N, and p at the scores after its earlier inner iterations,

        V = sum_q N (g + h s),    U = w sum_q N (j + k.s)

    over the outputs of the tree. The gradient rule (not ``newton``) has h = 1 and k = 0.
    """
    K = A.shape[1]
    check_first(first, V.shape[2], K)
    require(len(trees) > 1, "steps: there must be at least one")
    check_edges("trees", trees, len(leaf), 1)
    check_edges("edges", edges, len(values), 1)
    check_edges("tables", tables, len(s), 1)
    check_rows(begin, end, len(y))
    require(len(A) == end - begin, "A has other rows")
    O = values.shape[1]
    part = slice(begin, end)
    for t in range(len(trees) - 1):
        M = int(edges[t + 1] - edges[t])
        rows = int(tables[t + 1] - tables[t])
        require(rows % M == 0, "the tables of a step are not a multiple of its leaves")
        require(rows == M or O == K, "several iterations of trees that do not write to all outputs")
        for r in range(trees[t], trees[t + 1]):
            check_ids(leaf[r, part], M)
    labels = y[part]
    require(bool(np.all((labels >= 0) & (labels < K))), "a label is not a class")
    loss = Softmax(K)
    for t in range(len(trees) - 1):
        if t:
            for r in range(trees[t - 1], trees[t]):
                outputs = slice(first[r], first[r] + O)
                A[:, outputs] += values[edges[t - 1] + leaf[r, part].astype(np.int64)]
        state = loss.state(A)
        M = int(edges[t + 1] - edges[t])
        for r in range(trees[t], trees[t + 1]):
            outputs = slice(first[r], first[r] + O)
            V[r, part] = 0
            U[r, part] = 0
            for row in range(tables[t], tables[t + 1], M):
                at = row + leaf[r, part].astype(np.int64)
                p = state if row == tables[t] else loss.moved(state, shift[at])
                step = np.zeros_like(A)
                step[:, outputs] = s[at]
                hs = np.einsum("nab,nb->na", loss.hessian(p, labels), step) if newton else step
                V[r, part] += np.einsum(
                    "nab,nb->na", N[at], (loss.gradient(p, labels) + hs)[:, outputs]
                )
                slope = loss.jacobian(p, labels)
                slope = slope + loss.third_dot(p, labels, step) if newton else slope
                knock_on = np.einsum("nab,nbk->nak", N[at], slope[:, outputs])
                U[r, part] += knock_on * w[part, None, None]


@checked(
    newton="bool",
    leaf="ids n",
    first="int",
    g="float64 n K",
    j="float64 n K",
    h="float64 n K",
    k="float64 n K",
    s="float64 M O",
    N="float64 M O O",
    w="float64 n",
    V="out real n O",
    U="out real n O K",
)
def separate_effects(
    newton: bool,
    leaf: Ids,
    first: int,
    g: F64,
    j: F64,
    h: F64,
    k: F64,
    s: F64,
    N: F64,
    w: F64,
    V: Real,
    U: Real,
) -> None:
    """V (n, O) += N (g + h s), U (n, O, K) += w N (j + k s): rows of one tree.

    The outputs, of which the tree writes to those from ``first``, do not depend on each other. The
    gradient rule (not ``newton``) has h = 1 and k = 0.
    """
    O = s.shape[1]
    require(O > 0, "outputs of a leaf: there must be at least one")
    require(0 <= first <= g.shape[1] - O, "outputs of a tree beyond K")
    check_ids(leaf, len(s))
    own = slice(first, first + O)
    step = s[leaf]
    direct = g[:, own] + (h[:, own] * step if newton else step)
    slope = j[:, own] + (k[:, own] * step if newton else 0.0)
    V += np.einsum("nab,nb->na", N[leaf], direct)
    U[:, :, own] += N[leaf] * (w[:, None] * slope)[:, None, :]


@checked(
    flags="int",
    leaf="ids R n",
    first="int32 R",
    g="float64 n K",
    h="float64 n K",
    w="float64 n",
    drawn="float64 D n",
    G="out float64 M O",
    H="out float64 M O",
)
def output_sums(
    flags: int,
    leaf: Ids,
    first: NDArray[np.int32],
    g: F64,
    h: F64,
    w: F64,
    drawn: F64,
    G: F64,
    H: F64,
) -> None:
    """G (M, O) += w g, H (M, O) += w h over each leaf of the trees of a step, of their own outputs.

    ``flags``  1 terms, 2 derivatives, 8 draws: the numbers that are float32, as `Rounding` has them
    ``drawn``  (R, n) how often each tree drew a row; without rows: all were drawn once
    """
    O = G.shape[1]
    require(0 <= flags < 16, "flags are not a sum of 1, 2, 4 and 8")
    check_first(first, O, g.shape[1])
    check_ids(leaf, len(G))
    require(len(drawn) in (0, len(leaf)), "drawn has other trees")
    for r, (ids, o) in enumerate(zip(leaf, first, strict=True)):
        draws = drawn[r] if len(drawn) else None
        own = slice(o, o + O)
        sum_by_leaf(ids, _rounded(flags, g[:, own], w, draws), G)
        sum_by_leaf(ids, _rounded(flags, h[:, own], w, draws), H)


def _rounded(flags: int, x: F64, w: F64, drawn: F64 | None) -> F64:
    """w * drawn * x for x (n, O), rounded to float32 as the flags say."""
    if drawn is not None and not flags & 8:
        w = w * drawn
        drawn = None
    x = w[:, None] * (_f32(x) if flags & 2 else x)
    x = _f32(x) if flags & 1 else x
    return x if drawn is None else _f32(x * drawn[:, None])


def _f32(x: F64) -> F64:
    return x.astype(np.float32).astype(np.float64)


@checked(leaf="ids R n", w="float64 n", drawn="float64 D n", out="out float64 M 2")
def weight_sums(leaf: Ids, w: F64, drawn: F64, out: F64) -> None:
    """out (M, 2) += weights, and rows of non-zero weight, over each leaf of the trees of a step.

    ``drawn``: as in `output_sums`.
    """
    check_ids(leaf, len(out))
    require(len(drawn) in (0, len(leaf)), "drawn has other trees")
    for r, ids in enumerate(leaf):
        weight = w * drawn[r] if len(drawn) else w
        sum_by_leaf(ids, np.stack([weight, (weight > 0).astype(float)], axis=1), out)
