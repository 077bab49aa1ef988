"""Soft choices of splits in the backward pass: `StructureInfluence`.

The pass is that of backward.py, with two more terms for each row and inner node, which
_kernels/numpy_choice.py defines. The program that is differentiated is training with fixed trees in
which tree t gives row j, besides its leaf's value, the sum over the nodes v that hold j of

    sum_s (pi_s - pi_s at the training's own weights and scores) rate r_c(j,s)

with the children's values r and the temperature held constant. At the training's own weights the
sum is zero and the model is the model; its derivative is the derivative of the choices. One node
gives way at a time, and two leaves stand for the subtree that would grow below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._adapters import Source
from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import UnsupportedModel
from .._kernels import BLOCKS, block_width, kernels, zeros
from .._kernels.numpy_choice import Limits
from .._model.ensemble import Ensemble
from .._model.splits import SplitSearch, TreeNodes
from .backward import expand_training, leaf_adjoint
from .queries import Queries
from .split_bins import Codes, SplitBins, make_bins
from .workspace import Workspace


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
            "model_shrink_rate, boosting='rf'); use LeafInfluence(), which holds splits fixed."
        )
    search = source.split_search()
    bins = make_bins(search.values, list(search.columns))
    return SoftSplits(search, bins, bins.codes(search.values))


class SoftQueries(NamedTuple):
    """Queries, and the bins (m, d) of their test rows."""

    queries: Queries
    codes: Codes


def block_of(work: Workspace, splits: SoftSplits, threads: int) -> int:
    """Number of columns in a block whose tables fit in the memory limit on every thread."""
    e = work.trace.ensemble
    room = work.memory_limit // (2 * threads)
    fitting = [
        b
        for b in BLOCKS
        if b <= work.block and splits.table_bytes(e, b, work.dtype.itemsize) <= room
    ]
    return max(fitting, default=BLOCKS[0])


def structure_influence(
    work: Workspace,
    splits: SoftSplits,
    asked: SoftQueries,
    columns: slice,
    temperature: float,
    index: Ints | None,
) -> Real:
    """(rows, columns) dQ/dw of the training rows, or of those in `index`, through soft splits."""
    e = work.trace.ensemble
    soft = _SoftPass(work, splits, asked, columns, temperature)
    if e.independent:
        for t in range(e.n_steps):
            soft.step(t, soft.no_scores)
    adjoint = leaf_adjoint(work, asked.queries, columns, before_step=soft.step)
    values = expand_training(work, adjoint, index)
    rows = slice(None) if index is None else index
    factor = e.w_factor[rows].astype(work.dtype)
    values += soft.out[rows, : adjoint.columns] * factor[:, None]
    return values


class _SoftPass:
    """The terms of soft splits for a block of queries, step by step.

    ``out``  (n, B) += derivatives in the weights of rows, through the choices
    """

    def __init__(
        self,
        work: Workspace,
        splits: SoftSplits,
        asked: SoftQueries,
        columns: slice,
        temperature: float,
    ) -> None:
        self.e = work.trace.ensemble
        self.dtype = work.dtype
        self.splits = splits
        self.temperature = temperature
        self.scores = work.scores_backwards()
        queries = asked.queries
        width = block_width(len(range(len(queries))[columns]))
        self.query_rows = slice(None) if queries.reduce else columns
        self.query_leaves: Ids = queries.leaves[:, self.query_rows]
        self.query_codes = np.ascontiguousarray(asked.codes[self.query_rows])
        self.c = _query_gradients(queries, columns, width)  # (m, K, B)
        self.out = zeros((self.e.n_rows, width), self.dtype)

    @property
    def no_scores(self) -> Real:
        """(n, K, B) zeros: derivatives in scores that no tree depends on."""
        return zeros((self.e.n_rows, self.e.n_outputs, self.out.shape[1]), self.dtype)

    def step(self, t: int, abar: Real) -> None:
        """Add the terms of the trees of step t to abar (n, K, B) and to `out`."""
        e = self.e
        A = next(self.scores)[1]
        rows = _RowDerivatives(e, A)
        trees = range(len(e.first_output))[e.trees(t)]
        trees = trees[:1] if self.splits.search.joint else trees
        # All trees of a step give their values to the same scores.
        scores = abar if len(trees) == 1 else abar.copy()
        for r in trees:
            nodes = self.splits.search.trees[r]
            if len(nodes.left):
                self._tree(t, r, nodes, rows, scores, abar)

    def _tree(
        self, t: int, r: int, nodes: TreeNodes, rows: _RowDerivatives, scores: Real, abar: Real
    ) -> None:
        """Add the terms of tree r of step t."""
        e = self.e
        search = self.splits.search
        O = e.n_outputs if search.joint else e.leaf_outputs
        o = int(e.first_output[r])
        outputs = slice(o, o + O)
        in_tree = e.tree_offset[r], e.tree_leaves[r]
        numbers = Limits(
            e.lam,
            e.rule.l1,
            search.category_l2,
            search.min_rows,
            search.min_hessian,
            self.temperature,
            e.rate(t),
        )
        kernels.choice_terms(
            self.splits.codes,
            _leaf_in_tree(e.leaves[r], *in_tree),
            e.tree_weight(r),
            np.ones(e.n_rows) if e.sample is None else e.sample[r].astype(np.float64),
            *rows.of(outputs),
            self.query_codes,
            _leaf_in_tree(self.query_leaves[r], *in_tree),
            np.ascontiguousarray(self.c[:, outputs] * e.factors[t]).astype(self.dtype),
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
            o,
            scores,
            abar,
            self.out,
        )


def _leaf_in_tree(ids: Ids, step_start: int, tree_start: int) -> NDArray[np.int32]:
    """(rows,) leaves counted within their tree, from leaves counted within the step."""
    return ids.astype(np.int32) - np.int32(tree_start - step_start)


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


class _RowDerivatives:
    """Derivatives of the loss at the scores A (n, K) of the training rows before a step."""

    def __init__(self, e: Ensemble, A: F64) -> None:
        self.e = e
        self.state = e.loss.state(A)
        self.g = e.loss.gradient(self.state, e.y)  # (n, K)
        self.h = np.einsum("nkk->nk", e.loss.hessian(self.state, e.y))
        self.j = e.loss.jacobian(self.state, e.y)  # (n, K, K)

    def of(self, outputs: slice) -> tuple[F64, F64, F64, F64]:
        """g, h (n, O) of some outputs, and their derivatives j, k (n, O, K) in all scores."""
        units = np.eye(self.e.n_outputs)[outputs]
        third = self.e.loss.third_dot
        k = [
            third(self.state, self.e.y, np.broadcast_to(unit, self.g.shape))[:, o]
            for o, unit in zip(range(outputs.start, outputs.stop), units, strict=True)
        ]
        parts = self.g[:, outputs], self.h[:, outputs], self.j[:, outputs], np.stack(k, axis=1)
        return tuple(map(np.ascontiguousarray, parts))
