"""RF-GAP: proximities of a random forest that give its predictions as weighted votes.

    p(x, j) = 1 / |S_x|  sum over trees t in S_x of  [l_t(x) = l_t(j)] c_j^t / sum_{k in l_t(x)} c_k^t

c_j^t is how often tree t drew training row j, times its weight. S_x are all trees for a new row, and
the trees that did not draw it for a training row. So sum_j p(x, j) y_j is the prediction of a
forest of means for a new row, and its out-of-bag prediction for a training row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.arrays import Ids, Ints, Real
from .._data.errors import InvalidInput, UnsupportedModel
from .._engine.methods import Baseline
from .._engine.queries import Queries
from .._engine.workspace import Workspace
from .._model.ensemble import Ensemble
from .._model.kernels import blocks_of
from .._tracer.neighbours import at_leaves, shared_sums
from ._kernel import signed_by_labels
from ._rows import needs_loss

if TYPE_CHECKING:
    from .._tracer.tracer import Tracer


@dataclass(frozen=True)
class RFGAP(Baseline):
    """RF-GAP proximity in a random forest, with a sign from the labels.

    >>> tracer.influence(X_test, y_test, method=RFGAP())                        # doctest: +SKIP

    By Rhodes, Cutler and Moon (IEEE TPAMI 2023). The proximity is the share of the training row in
    the forest's vote for the test row. The value is minus that if the labels agree, as in
    `TreeSim`. `rf_gap` gives the proximities themselves.
    """

    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        needs_loss(queries, "RFGAP")
        signed = signed_by_labels(work.trace.ensemble, queries, classes)
        rows = np.arange(len(work.rows)) if index is None else index
        return signed(rows, _proximities(work, queries.leaves, None)[rows]).astype(work.dtype)


def rf_gap(tracer: Tracer, X: Any = None) -> Real:
    """(rows, m) RF-GAP proximities of the training rows to the rows of X.

    >>> baselines.rf_gap(tracer, X_test).T @ y_train        # the predictions     # doctest: +SKIP

    Without X they are those of the training rows to each other: a column has the proximities to
    the row, in the trees that did not draw it. They are not symmetric, and zero to the row itself.
    """
    work = tracer.engine.work
    e = work.trace.ensemble
    if X is not None:
        return _proximities(work, tracer.engine.source.rows(X)[0], None)
    if e.sample is None:
        raise InvalidInput(
            "every tree of this forest was trained on all rows, so no tree leaves a training row out; "
            "pass X, or train with bootstrap=True."
        )
    left_out = np.array(e.sample) == 0  # (trees, n)
    if (never := np.flatnonzero(~left_out.any(axis=0))).size:
        raise InvalidInput(
            f"{len(never)} training rows were drawn by every tree, so they have no out-of-bag proximities; "
            "train a forest with more trees."
        )
    return _proximities(work, e.leaves, left_out)


def _proximities(work: Workspace, leaves: Ids, used: np.ndarray | None) -> Real:
    """(n, m) p of all training rows and m rows with these leaves (trees, m).

    ``used``: (trees, m) the trees S of each; None: all.
    """
    e = work.trace.ensemble
    _needs_forest(e)
    n = len(work.rows)
    m = leaves.shape[1]
    used = np.ones(leaves.shape, bool) if used is None else used
    total = np.zeros(len(e.values))  # of c in each leaf
    for r, (ids, start) in enumerate(zip(e.leaves, e.tree_offset, strict=True)):
        here = np.bincount(ids, e.tree_weight(r))
        total[start : start + len(here)] += here
    share = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    at_rows = share[e.tree_offset[:, None] + leaves] * used / used.sum(axis=0)  # (trees, m)
    out = np.empty((n, m), work.dtype)

    def fill(chunk: Ints) -> None:
        rows = np.ascontiguousarray(e.leaves[:, chunk])
        drawn = np.ones((*rows.shape, 1), work.dtype)
        drawn[..., 0] = [e.tree_weight(r)[chunk] for r in range(len(rows))]
        for part in blocks_of(m):
            values = at_leaves(work, leaves[:, part], at_rows[:, part])
            width = len(range(m)[part])
            out[chunk, part] = shared_sums(work, rows, drawn, values)[:, :width]

    list(work.map(fill, work.row_chunks(np.arange(n))))
    return out


def _needs_forest(e: Ensemble) -> None:
    """Raise an error for a boosted model."""
    if not e.independent:
        raise UnsupportedModel(
            "RF-GAP is for forests, whose predictions are means of their trees; the trees of this model correct "
            "each other. TreeSim() and lt.Tracer.neighbours() compare rows by the leaves of boosted trees."
        )
