"""How a model came to see its own training rows, step by step, and how it would without each row's own pull.

A row pulls the leaves it is in towards its label, so a model looks surer of its training labels than it has reason to
be. If row i left its leaf and all else stayed, one step s = -G / D of the leaf would become

    s_-i = -(G - w_i g_i) / (D - w_i h_i),        f - f_-i = w_i V_i / (1 - w_i h_i / D)

with V_i = df/dw_i the direct effect (see _engine/row_effects.py) and w_i h_i / D the row's leverage. A leaf that holds
no other row is the row's own altogether. This is exact for one step a leaf (bounds on it aside, one output at a time);
over several trees it leaves out what the other rows would do in turn, which takes some of it back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._data.arrays import F64, Real
from ..._engine.replay import StepTrace
from ..._model.ensemble import Ensemble
from ..._tracer.tracer import Tracer

LEAST = 1e-6  # of a leaf: with less than this of other rows in it, it holds no others
CHUNK = 1 << 14  # rows


def path(tracer: Tracer) -> Iterator[tuple[F64, F64]]:
    """(A, own), both (n, K), after each step: scores of the training rows, and what of them is the row's own pull.

    The arrays are reused. Where steps are not simply added up in turn (DART, forests) there is one point, the end. A
    leaf that is a statistic of its rows (a median) has no direct effects; `own` is zero then."""
    e = tracer.engine.ensemble
    work = tracer.engine.work
    A = e.start()
    own = np.zeros((e.n_rows, e.n_outputs))
    alone = np.zeros(e.n_rows)
    pulls = e.rule.statistic is None
    effects = (
        work.effects_forwards() if pulls else ((t, np.zeros(0), None) for t in range(e.n_steps))
    )
    for t, V, _ in effects:
        e.move(t, e.leaves, A)
        if t and e.moves is None:
            yield A, own
        if pulls:
            _pull(e, work.trace.steps[t], t, A, V, own, alone)
    e.move(e.n_steps, e.leaves, A)
    if e.independent:
        _without_own_leaves(e, A, own, alone)
    yield A, own


def _pull(e: Ensemble, step: StepTrace, t: int, A: F64, V: Real, own: F64, alone: F64) -> None:
    """Add f - f_-i of step t to `own`, and to `alone` (n,) the weight of its trees that keep a leaf for the row."""
    values = e.values[e.leaf_range(t)]
    O = e.leaf_outputs
    factor = e.factors[t]
    h = _curvature(e, A) if e.rule.newton and step.spread is None else np.ones_like(A)
    for V_tree, tree in zip(V, range(e.trees(t).start, e.trees(t).stop), strict=True):
        ids = e.leaves[tree]
        out = slice(e.first_output[tree], e.first_output[tree] + O)
        pull = e.w[:, None] * V_tree  # (n, O)
        if (
            step.spread is not None
        ):  # effects of smoothed trees are g and h, and lean on nodes above the leaf
            own[:, out] += factor * (step.spread[ids, ids] * pull).sum(axis=1, keepdims=True)
            continue
        D = np.einsum("maa->ma", step.D[0])[ids]  # (n, O)
        rest = 1 - e.tree_weight(tree)[:, None] * h[:, out] / np.where(D > 0, D, 1.0)
        own[:, out] += factor * np.where(rest > LEAST, pull / np.maximum(rest, LEAST), values[ids])
        alone += factor * (rest <= LEAST).all(axis=1)


def _without_own_leaves(e: Ensemble, A: F64, own: F64, alone: F64) -> None:
    """A forest is a mean: where a row alone makes a leaf, the mean without it is that of the other trees."""
    start = e.start()
    total = float(e.factors.sum())
    some = alone < total - LEAST
    others = (A - own - start)[some] * (total / (total - alone[some]))[:, None]
    own[some] = (A - start)[some] - others
    own[~some] = 0.0


def _curvature(e: Ensemble, A: F64) -> F64:
    """(n, K) the diagonal of h."""
    parts = [slice(start, start + CHUNK) for start in range(0, len(A), CHUNK)]
    return np.concatenate(
        [np.einsum("naa->na", e.loss.hessian(e.loss.state(A[p]), e.y[p])) for p in parts]
    )
