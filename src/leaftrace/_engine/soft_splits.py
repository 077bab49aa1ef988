"""Soft choices of splits in the backward pass: `StructureInfluence`.

The pass is that of backward.py, with two more terms for each row and inner node, which
_model/kernels/numpy_choice.py defines. The program that is differentiated is training with fixed trees in
which tree t gives row j, besides its leaf's value, the sum over the nodes v that hold j of

    sum_s (pi_s - pi_s at the training's own weights and scores) rate r_c(j,s)
    + 4 share_v sum_s pi_s rate (r_c(j,s) - r_c(j,s) at the training's own weights and scores)

with the children's values r and the temperature held constant in the first sum, and probabilities and
shares in the second. At the training's own weights the sums are zero and the model is the model. One
node gives way at a time, and two leaves stand for the subtree that would grow below it.

The shares say whose value moves for a row. A node whose choice is not sure puts apart two rows of a leaf
with the probability that the split drawn there sends them to different sides. What a node is the first
to put apart moves with the node's sides (share_v), and what stays together all the way with the leaf: the
leaf values of a tree go a share of their way, the mean over its leaves. The 4 stands for the leaves into
which a side would be cut further: each has a part of its rows and moves as many times as far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._adapters import Source
from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import UnsupportedModel
from .._data.progress import progress
from .._data.wording import words
from .._model.ensemble import Ensemble
from .._model.kernels import BLOCKS, block_width, blocks_of, kernels, zeros
from .._model.kernels.numpy_soft_choice import Limits
from .._model.splits import SplitSearch, TreeNodes
from .backward import LeafAdjoint, expand_candidates, expand_training, leaf_adjoint
from .kept_choices import KeptTrees, kept_trees
from .placed_rows import PlacedRows
from .queries import Queries
from .split_bins import Codes, SplitBins, make_bins
from .step_derivatives import StepDerivatives, joined
from .workspace import Workspace

# Chosen by the LDS of eight models, on 1,000 rows of Adult and of California housing.
LEAST_ROWS = 16
# Rows x columns x queries of a tree from which threads are used; on Adult they cost more than they saved.
LARGE_TREE = 1 << 25


@dataclass(frozen=True)
class SoftSplits:
    """The splits of a model as choices among candidates.

    ``search``  how training chose them
    ``bins``    of the columns that are compared
    ``codes``   (n, d) bins of the training rows
    """

    search: SplitSearch
    bins: SplitBins
    codes: Codes

    def table_bytes(self, e: Ensemble, width: int, itemsize: int) -> int:
        """Bytes that the tables of the largest tree take for a block of this many columns."""
        nodes = max((len(tree.left) for tree in self.search.trees), default=0)
        outputs = e.n_outputs if self.search.joint else e.leaf_outputs
        cells = int(self.bins.sizes.sum())
        return nodes * cells * outputs * (3 * width * itemsize + 9 * 8)


def soft_splits(source: Source) -> SoftSplits:
    """Put the columns of a model's training rows into bins; an error if its splits are not known."""
    e = source.ensemble
    if e.moves is not None and not e.independent:
        raise UnsupportedModel(
            "StructureInfluence does not follow trees that are dropped or scaled after they were grown (DART, "
            f"model_shrink_rate, boosting='rf'); use {words().leaf_method}, which holds splits fixed."
        )
    if e.joins_leaves:
        raise UnsupportedModel(
            "StructureInfluence softens a choice of splits by their gain, and the gains of this model depend on the "
            "values of other nodes (monotone constraints, path_smooth); use "
            f"{words().leaf_method}, which holds splits fixed."
        )
    search = source.split_search()
    bins = make_bins(search.values, list(search.columns))
    return SoftSplits(search, bins, bins.codes(search.values))


def choice_l2(e: Ensemble, by_weight: bool) -> float:
    """The l2 of gains and child values in soft choices: the model's own, or that of a few rows.

    Without l2, a side of rows that the model is sure of has hardly any second derivative, and its
    slope is unbounded. `LEAST_ROWS` rows of average weight and second derivative, without a
    gradient, bound it.
    """
    h = np.ones((e.n_rows, 1)) if by_weight else e.second_derivatives(e.start())
    row = float((e.w[:, None] * h).mean(axis=1).sum()) / np.count_nonzero(e.w)
    return max(e.lam, LEAST_ROWS * row)


class SoftQueries(NamedTuple):
    """Queries, and the bins (m, d) of their test rows."""

    queries: Queries
    codes: Codes


def block_of(work: Workspace, splits: SoftSplits) -> int:
    """Number of columns in a block whose tables fit in the memory limit."""
    e = work.trace.ensemble
    room = work.memory_limit // 2
    fitting = [
        b
        for b in BLOCKS
        if b <= work.block and splits.table_bytes(e, b, work.dtype.itemsize) <= room
    ]
    return max(fitting, default=BLOCKS[0])


def structure_blocks(
    work: Workspace,
    splits: SoftSplits,
    asked: SoftQueries,
    temperature: float,
    index: Ints | None,
    whole_leaves: bool = False,
) -> Iterator[tuple[slice, Real]]:
    """StructureInfluence, block by block: (columns, values (rows, columns)).

    The threads share the rows of a block, so there is one block at a time.

    ``whole_leaves``: leaves go all their way, and the choices alone give way
    """
    work.prepare_effects()
    block = block_of(work, splits)

    def influence_on(columns: slice) -> tuple[slice, Real]:
        soft = SoftPass(work, splits, asked, columns, temperature, whole_leaves=whole_leaves)
        return columns, structure_influence(soft, index)

    count = len(asked.queries)
    return progress(map(influence_on, blocks_of(count, block)), count, "influence", "query", block)


class NewRows(NamedTuple):
    """Rows outside the training set, of weight zero, and their bins (rows, d)."""

    rows: PlacedRows
    codes: Codes


def structure_influence(soft: SoftPass, index: Ints | None) -> Real:
    """(rows, columns) dQ/dw of the training rows, or of those in `index`, through soft splits."""
    adjoint = soft.run()
    values = expand_training(soft.work, adjoint, index)
    rows = slice(None) if index is None else index
    values += soft.weight_derivatives(rows)[:, : adjoint.columns]
    return values


def structure_candidates(
    work: Workspace,
    splits: SoftSplits,
    asked: SoftQueries,
    columns: slice,
    temperature: float,
    new: NewRows,
) -> Real:
    """(rows, columns) dQ/dw of new rows at weight zero, through soft splits.

    The choices pull at new rows as at training rows, and new rows pull at nothing.
    """
    soft = SoftPass(work, splits, asked, columns, temperature, new)
    adjoint = soft.run()
    chunks = work.row_chunks(np.arange(len(new.rows)))
    values = np.concatenate(
        [expand_candidates(work, adjoint, new.rows.take(chunk)) for chunk in chunks]
    )
    own = slice(len(work.rows), None)
    values += soft.weight_derivatives(own)[:, : adjoint.columns]
    return values


def run_last_steps(
    work: Workspace, splits: SoftSplits, asked: SoftQueries, temperature: float, count: int
) -> None:
    """Compute the terms of soft splits in the last steps alone, to see how long they take.

    ``asked``: the queries of one block.
    """
    columns = slice(0, len(asked.queries))
    soft = SoftPass(work, splits, asked, columns, temperature, keeps=False)
    e = work.trace.ensemble
    width = soft.out.shape[1]
    abar = np.full((e.n_rows, e.n_outputs, width), 1e-3, work.dtype)
    for t in reversed(range(e.n_steps - count, e.n_steps)):
        leaves = e.leaf_range(t)
        fbar = zeros((leaves.stop - leaves.start, e.leaf_outputs, width), work.dtype)
        soft.step(t, abar, fbar)


class SoftPass:
    """The terms of soft splits for a block of queries, step by step.

    ``rows``   the training rows and, if there are any, the new rows
    ``codes``  (n, d) bins of all rows, one after the other
    ``out``    (n, B) += derivatives in the weights of all rows, through the choices
    ``keeps``  whether trees may be kept for the next pass, which they cannot be with new rows
    """

    def __init__(
        self,
        work: Workspace,
        splits: SoftSplits,
        asked: SoftQueries,
        columns: slice,
        temperature: float,
        new: NewRows | None = None,
        whole_leaves: bool = False,
        keeps: bool = True,
    ) -> None:
        self.work = work
        self.e = work.trace.ensemble
        self.dtype = work.dtype
        self.splits = splits
        self.asked = asked
        self.columns = columns
        self.temperature = temperature
        self.rows = [work.rows]
        self.codes = splits.codes
        if new is not None:
            self.rows.append(new.rows)
            self.codes = np.concatenate([splits.codes, new.codes])
        self.y = joined(rows.y for rows in self.rows)
        self.derivatives = work.derivatives_backwards(None if new is None else new.rows)
        self.lam = choice_l2(self.e, splits.search.by_weight)
        self.whole_leaves = whole_leaves
        self.shares = work.soft_shares.setdefault(temperature, {})
        self.kept = KeptTrees()
        if new is None:
            self.kept = kept_trees(work, splits.search, splits.bins, temperature, keeps)
        queries = asked.queries
        width = block_width(len(range(len(queries))[columns]))
        is_large = splits.codes.size * width >= LARGE_TREE
        self.threads = work.n_jobs if is_large else 1
        self.query_rows = slice(None) if queries.reduce else columns
        self.query_leaves: Ids = queries.leaves[:, self.query_rows]
        self.query_codes = np.ascontiguousarray(asked.codes[self.query_rows])
        self.c = _query_gradients(queries, columns, width).astype(self.dtype)  # (m, K, B)
        self.draws = np.ones(len(self.y))  # (n,) by trees that take every row once
        self.out = zeros((len(self.y), width), self.dtype)

    def run(self) -> LeafAdjoint:
        """Run the backward pass, through which `out` gets its terms."""
        adjoint = leaf_adjoint(self.work, self.asked.queries, self.columns, before_step=self.step)
        if self.e.independent:
            for t in range(self.e.n_steps):
                self.step(t, self._no_scores(self.e.n_rows), adjoint.fbar[self.e.leaf_range(t)])
        return adjoint

    def weight_derivatives(self, rows: slice | Ints) -> Real:
        """(rows, B) derivatives in the sample weights of some rows, through the choices."""
        factor = joined(part.factor for part in self.rows)
        return self.out[rows] * factor[rows].astype(self.dtype)[:, None]

    def _no_scores(self, count: int) -> Real:
        """(count, K, B) zeros: derivatives in scores that no tree depends on."""
        return zeros((count, self.e.n_outputs, self.out.shape[1]), self.dtype)

    def step(self, t: int, abar: Real, fbar: Real) -> None:
        """Add the terms of the trees of step t to abar (n, K, B) and to `out`; fbar (M, O, B) *= shares."""
        e = self.e
        derivatives = next(self.derivatives)
        new = len(self.y) - len(abar)
        # New rows have no weight, so that no query depends on their scores.
        every_abar = np.concatenate([abar, self._no_scores(new)]) if new else abar
        trees = range(len(e.first_output))[e.trees(t)]
        trees = trees[:1] if self.splits.search.joint else trees
        # All trees of a step give their values to the same scores.
        scores = every_abar if len(trees) == 1 else every_abar.copy()
        for r in trees:
            nodes = self.splits.search.trees[r]
            if len(nodes.left):
                share = self._tree(t, r, nodes, derivatives, scores, every_abar)
                fbar[self._leaves_in_step(r, len(nodes.left) + 1)] *= self.dtype.type(share)
        if new:
            abar[...] = every_abar[: len(abar)]

    def _leaves_in_step(self, r: int, count: int) -> slice:
        """Leaves of tree r, in the order of its step; those of all trees if they are one with vectors."""
        if self.splits.search.joint:
            return slice(None)
        first = int(self.e.tree_leaves[r] - self.e.tree_offset[r])
        return slice(first, first + count)

    def _shares_of(self, r: int, count: int) -> tuple[bool, F64]:
        """Whether the shares of the nodes of tree r, and of its leaves, are known; (nodes + 1,) they."""
        if self.whole_leaves:
            return True, np.append(np.zeros(count), 1.0)
        if r in self.shares:
            return True, self.shares[r]
        return False, np.empty(count + 1)

    def _tree(
        self, t: int, r: int, nodes: TreeNodes, rows: StepDerivatives, scores: Real, abar: Real
    ) -> float:
        """Add the terms of tree r of step t; the share of the way that its leaves go."""
        e = self.e
        search = self.splits.search
        O = e.n_outputs if search.joint else e.leaf_outputs
        o = int(e.first_output[r])
        outputs = slice(o, o + O)
        in_tree = e.tree_offset[r], e.tree_leaves[r]
        numbers = Limits(
            self.lam,
            e.rule.l1,
            search.category_l2,
            search.min_rows,
            search.min_hessian,
            self.temperature,
            e.rate(t),
            e.lam,
            e.rule.max_step,
            search.output_hessian,
        )
        measured, shares = self._shares_of(r, len(nodes.left))
        kept = self.kept.of(r, kernels.KeptChoices)
        kernels.choice_terms(
            self.codes,
            _leaf_in_tree(joined(part.leaves[r] for part in self.rows), *in_tree),
            joined(part.drawn_weight(r) for part in self.rows),
            self._draws(r),
            *rows.of(outputs),
            self.query_codes,
            _leaf_in_tree(self.query_leaves[r], *in_tree),
            self._gradients(outputs, e.factors[t]),
            self.splits.bins.sizes,
            self.splits.bins.kinds,
            nodes.left,
            nodes.right,
            nodes.column,
            nodes.choice,
            np.array(numbers, np.float64),
            search.by_weight,
            e.rule.newton,
            search.columns_sampled,
            search.rows_estimated,
            measured,
            shares,
            o,
            self.threads,
            scores,
            abar,
            self.out,
            kept,
        )
        self.kept.add(r, kept)
        if not measured:
            self.shares[r] = shares
        return float(shares[-1])

    def _draws(self, r: int) -> F64:
        """(n,) how often tree r drew each row."""
        if self.work.rows.sample is None:
            return self.draws
        return joined(
            part.sample[r].astype(np.float64) for part in self.rows if part.sample is not None
        )

    def _gradients(self, outputs: slice, factor: float) -> Real:
        """(m, O, B) derivatives of the queries in the test rows' scores, of values that count `factor` times."""
        c = self.c[:, outputs] if factor == 1 else self.c[:, outputs] * self.dtype.type(factor)
        return np.ascontiguousarray(c)


def _leaf_in_tree(ids: Ids, step_start: int, tree_start: int) -> NDArray[np.int32]:
    """(rows,) leaves counted within their tree, from leaves counted within the step."""
    found = ids.astype(np.int32)
    before = tree_start - step_start
    if before:
        found -= np.int32(before)
    return found


def _query_gradients(queries: Queries, columns: slice, width: int) -> F64:
    """(m, K, width) derivatives of a block of queries in the scores of their test rows."""
    if queries.reduce:
        c = np.zeros((*queries.gradient.shape, width))
        for lane, s in enumerate(range(len(queries))[columns]):
            c[:, :, lane] = queries.slice_gradient(s)
        return c
    gradient = queries.gradient[columns]
    c = np.zeros((*gradient.shape, width))
    own = np.arange(len(gradient))
    c[own, :, own] = gradient
    return c
