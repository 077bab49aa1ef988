"""Neighbours: training rows that share leaves with a row x, weighted as the model weighs them.

    similarity(x, i) = share of all trees in which x and i are in one leaf
    weight(x, i)     = w_i sum_t [l_t(i) = l_t(x)] a_l,       a_l = -df_l / dG_l

G is a leaf's sum of weighted gradients, so a = eta / (H + lam) for one Newton step (for several,
the part of it that the later ones leave; see N in _engine/replay.py), times the tree's factor in
the finished model. The weight is how far x's score rises for each unit of row i's negative
gradient: the kernel by which boosting smooths gradients into predictions. In a forest a is
1 / (leaf weight) / trees, and the weights of all rows sum to one.

If a leaf is a quantile, a = eta / (leaf weight), the row's share in it. If a leaf depends on the
nodes above it, rows of other leaves count too. A leaf whose value is decided by an l1 term or a
bound gives no weight. The starting score, which all rows share, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._data import inputs
from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import InvalidInput
from .._data.tables import table
from .._engine.backward import expand_effects
from .._engine.less_memory import in_smaller_pieces
from .._engine.methods import LeafInfluence
from .._engine.queries import Queries
from .._engine.replay import Trace
from .._engine.workspace import Workspace
from .._model.kernels import block_width, blocks_of
from .answers import removal_influence, single_row_noise
from .influence import Influence, Unit, largest

if TYPE_CHECKING:
    from .tracer import Tracer


class _NeighbourBlock(NamedTuple):
    """Some test rows, and the influence on them."""

    leaves: Ids  # (trees, B)
    outputs: Ints  # (B,) the output whose score is meant
    names: np.ndarray  # (B,)
    start: int  # position of the first of them
    influence: Influence | None  # (n, B); None for leaves without derivatives


def neighbour_table(
    tracer: Tracer,
    X_test: Any,
    y_test: Any,
    k: int,
    by: str,
    output: int | None,
    baseline: Any,
) -> Any:
    """The k nearest training rows of each test row: see `Tracer.neighbours`."""
    if not inputs.is_name(by, ("weight", "similarity")):
        raise InvalidInput(f"by is {by!r}; it can be 'weight' or 'similarity'.")
    if not inputs.is_whole(k) or k < 1:
        raise InvalidInput(f"k is {k!r}; ask for 1 or more neighbours.")
    k = int(k)
    engine = tracer.engine
    engine.needs_constant_leaves("neighbours()")
    y_test = engine.test_labels(X_test, y_test)
    scores, test_index = engine.queries(X_test, None, "prediction", None, output, baseline)
    queries = scores  # on which the influence is shown
    if y_test is not None:
        queries, _ = engine.queries(X_test, y_test, "loss", None, None, baseline)
    outputs = scores.gradient.argmax(axis=1)  # (m,)

    def lines_of_blocks() -> list[dict[str, Any]]:
        blocks = _blocks(tracer, queries, outputs, test_index)
        return [line for block in blocks for line in _block_lines(tracer, block, k, by)]

    lines = in_smaller_pieces(engine.work, lines_of_blocks)
    columns = {name: np.concatenate([line[name] for line in lines]) for name in lines[0]}
    return table(columns, tracer.table_kind)


def _blocks(
    tracer: Tracer, queries: Queries, outputs: Ints, test_index: np.ndarray
) -> Iterator[_NeighbourBlock]:
    """The test rows in blocks. ``outputs``: (m,) the output whose score is meant."""
    engine = tracer.engine
    method = LeafInfluence()
    if engine.ensemble.not_smooth:
        blocks = ((columns, None) for columns in blocks_of(len(queries)))
    else:
        blocks = engine.backward_blocks(queries, method, None)
    every_row = np.arange(tracer.n_rows)
    noise = single_row_noise(tracer, queries, method)
    for columns, values in blocks:
        names = test_index[columns]
        influence = None
        if values is not None:
            of_block = None if noise is None else noise[columns]
            influence = removal_influence(
                tracer, values, every_row, names, queries, method, noise=of_block
            )
        leaves = queries.leaves[:, columns]
        yield _NeighbourBlock(leaves, outputs[columns], names, columns.start, influence)


def _block_lines(
    tracer: Tracer, block: _NeighbourBlock, k: int, by: str
) -> Iterator[dict[str, Any]]:
    """For each test row of the block, columns of the table with its k nearest training rows."""
    work = tracer.engine.work
    similarity, weight = leaf_kernel(work, block.leaves, block.outputs)
    size = weight
    if by == "similarity":
        size = similarity * (work.trace.ensemble.w > 0)[:, None]
    influence = block.influence
    burden = None if influence is None else influence.burden
    change = None if influence is None else influence.change
    for b in range(len(block.names)):
        rows = largest(size[:, b], min(k, len(size)))
        rows = rows[size[rows, b] > 0]
        columns = {
            "test_row": np.repeat(block.names[b : b + 1], len(rows)),
            "test_position": np.full(len(rows), block.start + b),
            "rank": np.arange(1, len(rows) + 1),
            "train_row": tracer.train_index[rows],
            "position": rows,
            "label": tracer.y_train[rows],
            "similarity": similarity[rows, b],
            "weight": weight[rows, b],
        }
        if influence is not None and burden is not None and change is not None:
            words = [influence.effect_word(x) for x in burden[rows, b]]
            columns["effect"] = np.array(words, dtype=object)
            name = f"{influence.of}_change_if_removed"
            unit = Unit(influence.change_is, influence.noise)
            columns |= unit.columns(name, change[rows, b], np.full(len(rows), b))
        yield columns


def leaf_kernel(work: Workspace, leaves: Ids, output: Ints) -> tuple[Real, Real]:
    """(n, B) similarity and (n, B) weight of the training rows, for B rows with these leaves.

    ``leaves``  (trees, B)
    ``output``  (B,) the output whose score is meant, for each of the rows
    """
    e = work.trace.ensemble
    n = len(work.rows)
    B = leaves.shape[1]
    same = at_leaves(work, leaves, np.ones(leaves.shape))
    slopes = _gradient_slopes(work, leaves, output)
    similarity = np.empty((n, B), work.dtype)
    weight = np.empty((n, B), work.dtype)

    def fill_chunk(index: np.ndarray) -> None:
        rows = np.ascontiguousarray(e.leaves[:, index])
        drawn = np.ones((*rows.shape, 1), work.dtype)
        similarity[index] = shared_sums(work, rows, drawn, same)[:, :B] / len(rows)
        if e.sample is not None:
            drawn[..., 0] = [draws[index] for draws in e.sample]
        weight[index] = shared_sums(work, rows, drawn, slopes)[:, :B] * e.w[index, None]

    list(work.map(fill_chunk, work.row_chunks(np.arange(n))))
    return similarity, weight


def leaf_weights(trace: Trace) -> F64:
    """(leaves, O): a of every leaf, for each output by its own gradient."""
    e = trace.ensemble
    out = np.zeros_like(e.values)
    for t, step in enumerate(trace.steps):
        here = e.leaf_range(t)
        if e.rule.statistic is None:
            out[here] = -e.factors[t] * np.einsum("qmaa->ma", step.N)
            continue
        total = np.zeros(here.stop - here.start)
        for r in range(e.trees(t).start, e.trees(t).stop):
            total += np.bincount(e.leaves[r], e.tree_weight(r), len(total))
        rate = e.factors[t] * e.rate(t)
        np.divide(rate, total[:, None], out=out[here], where=total[:, None] > 0)
    if e.fixed is not None:
        out[e.fixed] = 0
    return out


def _gradient_slopes(work: Workspace, leaves: Ids, output: Ints) -> Real:
    """(leaves, 1, width): minus the derivative of each row's score in the sum of g of every leaf.

    ``leaves`` (trees, B), ``output`` (B,): of the rows.
    """
    e = work.trace.ensemble
    position = (
        output - e.first_output[:, None]
    )  # (trees, B) of the output in the leaf, if it has it
    inside = (position >= 0) & (position < e.leaf_outputs)
    if not e.joins_leaves:
        ids = e.tree_offset[:, None] + leaves
        a = leaf_weights(work.trace)[ids, np.where(inside, position, 0)]
        return at_leaves(work, leaves, a * inside)
    slopes = at_leaves(work, leaves, inside.astype(float))
    for t, step in enumerate(work.trace.steps):
        assert step.slopes is not None
        here = slopes[e.leaf_range(t), 0]
        here[...] = -e.factors[t] * step.slopes.gradient_slopes(here)
    return slopes


def at_leaves(work: Workspace, leaves: Ids, values: F64) -> Real:
    """(leaves, 1, width): these values (trees, B) at the leaves of the rows, zero elsewhere."""
    e = work.trace.ensemble
    B = leaves.shape[1]
    out = np.zeros((len(e.values), 1, block_width(B)), work.dtype)
    out[e.tree_offset[:, None] + leaves, 0, np.arange(B)] = values
    return out


def shared_sums(work: Workspace, rows: Ids, drawn: Real, values: Real) -> Real:
    """(rows, width): sums over trees of the values at each row's leaf, times its draws.

    ``rows``    (trees, rows) leaves
    ``drawn``   (trees, rows, 1) how often the tree drew the row
    ``values``  (leaves, 1, width)
    """
    out = np.zeros((rows.shape[1], values.shape[2]), work.dtype)
    expand_effects(rows, work.trace.ensemble.tree_offset, drawn, values, out)
    return out
