"""Neighbours: training rows that share leaves with a row x, weighted as the model weighs them.

    similarity(x, i) = share of all trees in which x and i are in one leaf
    weight(x, i)     = w_i sum_t [l_t(i) = l_t(x)] a_l,       a_l = -df_l / dG_l

G is a leaf's sum of weighted gradients, so a = eta / (H + lam) for one Newton step (for several, what the later ones
leave of it; see N in _engine/replay.py), times the tree's factor in the finished model. The weight says how far x's
score rises for each unit of row i's negative gradient: the kernel by which boosting smooths gradients into predictions.
In a forest a is 1 / (leaf weight) / trees, and the weights of all rows sum to one. Where a leaf is a quantile,
a = eta / (leaf weight), the row's share in it; where it leans on the nodes above it, rows of other leaves count too. A
leaf whose value an l1 term or a bound decides gives no weight. The starting score, which all rows share, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._data.tables import table
from .._engine.replay import Trace
from .._engine.workspace import Workspace
from .._kernels import block_width, kernels
from .influence import Influence, largest

# Leaves (trees, B), outputs (B,) and names (B,) of some test rows, and the influence on them (n, B).
NeighbourBlock = tuple[Ids, Ints, np.ndarray, Influence | None]


def leaf_kernel(work: Workspace, leaves: Ids, output: Ints) -> tuple[Real, Real]:
    """(n, B) similarity and (n, B) weight of the training rows, for a block of rows with these leaves (trees, B).

    ``output`` (B,): the output whose score is meant, for each of them."""
    e = work.trace.ensemble
    n = len(work.rows)
    B = leaves.shape[1]
    same = at_leaves(work, leaves, np.ones(leaves.shape))
    felt = _felt(work, leaves, output)
    similarity = np.empty((n, B), work.dtype)
    weight = np.empty((n, B), work.dtype)

    def chunk(index: np.ndarray) -> None:
        rows = np.ascontiguousarray(e.leaves[:, index])
        drawn = np.ones((*rows.shape, 1), work.dtype)
        similarity[index] = shared_sums(work, rows, drawn, same)[:, :B] / len(rows)
        if e.sample is not None:
            drawn[..., 0] = [s[index] for s in e.sample]
        weight[index] = shared_sums(work, rows, drawn, felt)[:, :B] * e.w[index, None]

    list(work.map(chunk, work.row_chunks(np.arange(n))))
    return similarity, weight


def neighbour_table(
    work: Workspace,
    blocks: Iterable[NeighbourBlock],
    k: int,
    by: str,
    train_index: np.ndarray,
    labels: np.ndarray,
    kind: str,
) -> Any:
    """The k nearest training rows of each test row.

    ``blocks``: leaves (trees, B), outputs (B,) and names (B,) of some test rows, and the influence on them (n, B)."""
    parts: list[dict[str, Any]] = []
    for leaves, output, names, influence in blocks:
        similarity, weight = leaf_kernel(work, leaves, output)
        felt = None if influence is None else (influence.burden, influence.change)
        size = weight if by == "weight" else similarity * (work.trace.ensemble.w > 0)[:, None]
        for b in range(len(names)):
            rows = largest(size[:, b], min(k, len(size)))
            rows = rows[size[rows, b] > 0]
            part = {
                "test_row": np.repeat(names[b : b + 1], len(rows)),
                "rank": np.arange(1, len(rows) + 1),
                "train_row": train_index[rows],
                "label": labels[rows],
                "similarity": similarity[rows, b],
                "weight": weight[rows, b],
            }
            if influence is not None and felt is not None:
                part["effect"] = np.array(
                    [influence.effect_word(x) for x in felt[0][rows, b]], dtype=object
                )
                part[f"{influence.of}_change_if_removed"] = felt[1][rows, b]
            parts.append(part)
    return table({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, kind)


def leaf_weights(trace: Trace) -> F64:
    """(leaves, O): a of every leaf, for each output by its own gradient."""
    e = trace.ensemble
    out = np.zeros_like(trace.ensemble.values)
    for t, step in enumerate(trace.steps):
        here = e.leaf_range(t)
        if e.rule.statistic is None:
            out[here] = -e.factors[t] * np.einsum("qmaa->ma", step.N)
            continue
        total = np.zeros(here.stop - here.start)
        for r in range(e.trees(t).start, e.trees(t).stop):
            total += np.bincount(e.leaves[r], e.tree_weight(r), len(total))
        np.divide(e.factors[t] * e.rate(t), total[:, None], out=out[here], where=total[:, None] > 0)
    if e.fixed is not None:
        out[e.fixed] = 0
    return out


def _felt(work: Workspace, leaves: Ids, output: Ints) -> Real:
    """(leaves, 1, width): what the score of each of these rows feels of a gradient in every leaf."""
    e = work.trace.ensemble
    trace = work.trace
    mine = output - e.first_output[:, None]  # (trees, B) which of a leaf's outputs is meant, if any
    inside = (mine >= 0) & (mine < e.leaf_outputs)
    if e.smoothing is None:
        a = leaf_weights(trace)[e.tree_offset[:, None] + leaves, np.where(inside, mine, 0)]
        return at_leaves(work, leaves, a * inside)
    felt = at_leaves(work, leaves, inside.astype(float))
    for t, step in enumerate(trace.steps):
        assert step.spread is not None
        here = felt[e.leaf_range(t), 0]
        here[...] = -e.factors[t] * (step.spread[:, :, 0].T @ here)
    return felt


def at_leaves(work: Workspace, leaves: Ids, values: F64) -> Real:
    """(leaves, 1, width): these values (trees, B) at the leaves of the rows, zero elsewhere."""
    e = work.trace.ensemble
    B = leaves.shape[1]
    out = np.zeros((len(e.values), 1, block_width(B)), work.dtype)
    out[e.tree_offset[:, None] + leaves, 0, np.arange(B)] = values
    return out


def shared_sums(work: Workspace, rows: Ids, drawn: Real, felt: Real) -> Real:
    """(rows, width): over all trees, what a row's leaf has in `felt` times how often the tree drew the row."""
    out = np.zeros((rows.shape[1], felt.shape[2]), work.dtype)
    kernels.expand(rows, 0, len(out), work.trace.ensemble.tree_offset, drawn, felt, out)
    return out
