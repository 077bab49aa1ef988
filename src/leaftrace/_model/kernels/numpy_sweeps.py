"""Forward passes over the rows of a step, in NumPy: the twins of ``src/native/sweep.hpp``.

`numpy` presents them with the other twins, and explains their arguments.
"""

from __future__ import annotations

import math

import numpy as np

from ..._data.arrays import F64, Ids, Ints, Real
from ..losses import Loss
from .checks import (
    check_first,
    check_ids,
    check_loss,
    check_state,
    check_together,
    checked,
    require,
)


def sum_by_leaf(leaf: Ids, x: Real, out: Real) -> None:
    """out[l] += sum of x[j] over the rows j of leaf l. leaf (n,), x (n, ...), out (M, ...)."""
    width = math.prod(x.shape[1:])
    columns = x.reshape(len(x), width)
    sums = out.reshape(len(out), width)
    for c in range(width):
        sums[:, c] += np.bincount(leaf, columns[:, c], len(out)).astype(out.dtype)


@checked(leaf="ids R n", first="int32 R", d="real M O B", D="out real n K B")
def advance(leaf: Ids, first: Ints, d: Real, D: Real) -> None:
    """D (n, K, B) += d[leaf]: adds the changes d (M, O, B) of the leaves to those of scores."""
    check_first(first, d.shape[1], D.shape[1])
    check_ids(leaf, len(d))
    for ids, o in zip(leaf, first, strict=True):
        D[:, o : o + d.shape[1]] += d[ids]


def _sweep(
    leaf: Ids,
    first: Ints,
    O: int,
    exponential: bool,
    before: Ids | None,
    first_before: Ints | None,
    d_before: Real | None,
    pick: Real | None,
    D: Real,
    ranking: Real | None,
) -> None:
    """Add the changes of the step before to D, and rank the leaves of this step.

    ranking (M, B) += sums of |D| over the rows with pick 1. ``exponential``: D and d_before hold
    exp(D) - 1, and D becomes (1 + D)(1 + d) - 1. Both sweeps below begin with this.
    """
    check_first(first, O, D.shape[1])
    check_together(before=before, first_before=first_before, d_before=d_before)
    if before is not None and first_before is not None and d_before is not None:
        check_first(first_before, d_before.shape[1], D.shape[1])
        check_ids(before, len(d_before))
        for ids, o in zip(before, first_before, strict=True):
            part = D[:, o : o + d_before.shape[1]]
            part += d_before[ids] * (1 + part) if exponential else d_before[ids]
    if ranking is not None:
        for ids, o in zip(leaf, first, strict=True):
            changes = np.abs(D[:, o : o + O]).sum(axis=1)
            sum_by_leaf(ids, changes if pick is None else pick[:, None] * changes, ranking)


@checked(
    leaf="ids R n",
    first="int32 R",
    before="ids R' n ?",
    first_before="int32 R' ?",
    d_before="real M' O' B ?",
    pick="real n ?",
    U="real R n O K",
    D="out real n K B",
    ranking="out real M B ?",
    out="out real M O B",
)
def tangent_sums(
    leaf: Ids,
    first: Ints,
    before: Ids | None,
    first_before: Ints | None,
    d_before: Real | None,
    pick: Real | None,
    U: Real,
    D: Real,
    ranking: Real | None,
    out: Real,
) -> None:
    """out (M, O, B) += sums of U D over each leaf. U (R, n, O, K), D (n, K, B)."""
    check_ids(leaf, len(out))
    _sweep(leaf, first, out.shape[1], False, before, first_before, d_before, pick, D, ranking)
    for ids, u in zip(leaf, U, strict=True):
        sum_by_leaf(ids, np.einsum("nok,nkb->nob", u, D), out)


@checked(
    leaf="ids R n",
    first="int32 R",
    before="ids R' n ?",
    first_before="int32 R' ?",
    d_before="real M' O' B ?",
    pick="real n ?",
    form="int",
    state="state n C",
    y="labels n",
    w="real n | R n",
    shift="real M O ?",
    inner="real M O B ?",
    mask="real M B ?",
    D="out real n K B",
    ranking="out real M B ?",
    dG="out real M O B",
    dH="out real M O O B",
)
def change_sums(
    loss: Loss,
    leaf: Ids,
    first: Ints,
    before: Ids | None,
    first_before: Ints | None,
    d_before: Real | None,
    pick: Real | None,
    form: int,
    state: Real,
    y: F64,
    w: Real,
    shift: Real | None,
    inner: Real | None,
    mask: Real | None,
    D: Real,
    ranking: Real | None,
    dG: Real,
    dH: Real,
) -> None:
    """dG (M, O, B), dH (M, O, O, B) += sums of the changes of w g and w h when scores change by D.

    w (n,), or (R, n) if trees drew rows differently. ``form``: D holds changes (0, or 2 if they are
    small), or exp(change) - 1 (1).

    In an inner iteration (one tree a step) the state is first moved by ``shift`` (M, O), and scores
    change by ``mask * D``, then by the leaf's own change ``inner`` (M, O, B).
    """
    _check_changes(loss, leaf, form, state, shift, inner, mask, D, ranking, dG)
    O = dG.shape[1]
    exponential = form == 1
    _sweep(leaf, first, O, exponential, before, first_before, d_before, pick, D, ranking)
    change = D
    if shift is not None and inner is not None and mask is not None:
        state = loss.moved(state, shift[leaf[0]])
        change = mask[leaf[0]][:, None] * D
        change = change + inner[leaf[0]] * (1 + change if exponential else 1)
    dg, dh = loss.difference(state, np.log1p(change) if exponential else change, y)
    for ids, o, tree_w in zip(leaf, first, np.broadcast_to(w, leaf.shape), strict=True):
        sum_by_leaf(ids, tree_w[:, None, None] * dg[:, o : o + O], dG)
        sum_by_leaf(ids, tree_w[:, None, None, None] * dh[:, o : o + O, o : o + O], dH)


def _check_changes(
    loss: Loss,
    leaf: Ids,
    form: int,
    state: Real,
    shift: Real | None,
    inner: Real | None,
    mask: Real | None,
    D: Real,
    ranking: Real | None,
    dG: Real,
) -> None:
    """Refuse what `change_sums` cannot do with this loss, and ids beyond dG."""
    K = D.shape[1]
    family = check_loss(loss, K)
    check_ids(leaf, len(dG))
    check_state(state, family, K, D.dtype)
    require(0 <= form <= 2, "form is not 0, 1 or 2")
    has_exponential = family in ("logistic", "poisson", "softmax")
    require(form != 1 or has_exponential, "this loss works with D itself")
    require(form != 1 or ranking is None, "leaves are ranked by D, not by exp(D) - 1")
    check_together(shift=shift, inner=inner, mask=mask)
    is_whole = len(leaf) == 1 and dG.shape[1] == K
    require(inner is None or is_whole, "an inner iteration has one tree, with all outputs")


@checked(sums="real M columns", k="int", mask="out real M columns")
def top_leaves(sums: Real, k: int, mask: Real) -> None:
    """mask (M, B) = 1 for the k leaves with the largest sums of each column, otherwise 0.

    Among equal sums the first leaves are taken.
    """
    require(k > 0, "leaves to take: there must be at least one")
    mask[:] = 0
    np.put_along_axis(mask, np.argsort(-sums, axis=0, kind="stable")[:k], 1, axis=0)
