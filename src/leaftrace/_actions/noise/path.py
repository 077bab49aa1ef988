"""Scores of the training rows after each boosting step, and the part that each row pulled itself.

A row pulls the leaves it is in towards its label, so a model looks surer of its training labels
than it has reason to be. If row i left its leaf and all else stayed, one step s = -G / D of the
leaf would become

    s_-i = -(G - w_i g_i) / (D - w_i h_i),        f - f_-i = w_i V_i / (1 - w_i h_i / D)

with V_i = df/dw_i the direct effect (see _engine/row_effects.py) and w_i h_i / D the row's
leverage. A leaf without other rows is pulled by the row alone. This is exact for one step a leaf
(bounds on it aside, one output at a time). Over several trees it leaves out the reaction of the
other rows, which takes some of the pull back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._data.arrays import F64, Real
from ..._engine.linear_passes import LinearPasses
from ..._engine.replay import StepTrace
from ..._model.ensemble import Ensemble
from ..._tracer.tracer import Tracer

_NEGLIGIBLE = 1e-6  # with less than this share of other rows, a leaf holds no others
_CHUNK = 1 << 14  # rows whose second derivatives are computed at once


def path(tracer: Tracer) -> Iterator[tuple[F64, F64]]:
    """(A, own), both (n, K), after each step: scores of the training rows, and their own pull.

    The arrays are reused. If steps are not simply added up in turn (DART, forests), there is one
    point, the end. A leaf that is a statistic of its rows (a median) has no direct effects; `own`
    is zero then.
    """
    e = tracer.engine.ensemble
    work = tracer.engine.work
    A = e.start()
    own = np.zeros((e.n_rows, e.n_outputs))
    alone = np.zeros(e.n_rows)
    if e.linear is not None:
        yield from _linear_path(tracer, A, own)
        return
    has_effects = e.rule.statistic is None
    if has_effects:
        effects = ((t, V) for t, V, _ in work.effects_forwards())
    else:
        effects = ((t, np.zeros(0)) for t in range(e.n_steps))
    for t, V in effects:
        e.move(t, e.leaves, A)
        if t and e.moves is None:
            yield A, own
        if has_effects:
            _add_pull(e, work.trace.steps[t], t, A, V, own, alone)
    e.move(e.n_steps, e.leaves, A)
    if e.independent:
        _average_other_trees(e, A, own, alone)
    yield A, own


def _linear_path(tracer: Tracer, A: F64, own: F64) -> Iterator[tuple[F64, F64]]:
    """The same for leaves that are linear functions, from the start A and no pull."""
    e = tracer.engine.ensemble
    passes = LinearPasses(tracer.engine.work)
    for t in range(e.n_steps):
        e.move(t, e.leaves, A)
        if t and e.moves is None:
            yield A, own
        passes.add_own_pull(t, A, own)
    e.move(e.n_steps, e.leaves, A)
    yield A, own


def _add_pull(e: Ensemble, step: StepTrace, t: int, A: F64, V: Real, own: F64, alone: F64) -> None:
    """Add f - f_-i of step t to `own` (n, K).

    ``alone`` (n,): the weight of trees in which the row has a leaf for itself; that of step t is
    added.
    """
    values = e.values[e.leaf_range(t)]
    O = e.leaf_outputs
    factor = e.factors[t]
    newton = e.rule.newton and step.slopes is None
    own_slopes = None if step.slopes is None else step.slopes.own_slopes()
    h = _second_derivatives(e, A) if newton else np.ones_like(A)
    trees = range(e.trees(t).start, e.trees(t).stop)
    for V_tree, tree in zip(V, trees, strict=True):
        ids = e.leaves[tree]
        out = slice(e.first_output[tree], e.first_output[tree] + O)
        pull = e.w[:, None] * V_tree  # (n, O)
        if own_slopes is not None:
            effects = own_slopes.shape[1]
            own[:, out] += factor * (own_slopes[ids] * pull[:, :effects]).sum(axis=1, keepdims=True)
            continue
        D = np.einsum("maa->ma", step.D[0])[ids]  # (n, O)
        rest = 1 - e.tree_weight(tree)[:, None] * h[:, out] / np.where(D > 0, D, 1.0)
        shared = pull / np.maximum(rest, _NEGLIGIBLE)
        own[:, out] += factor * np.where(rest > _NEGLIGIBLE, shared, values[ids])
        alone += factor * (rest <= _NEGLIGIBLE).all(axis=1)


def _average_other_trees(e: Ensemble, A: F64, own: F64, alone: F64) -> None:
    """Correct `own` in a forest, which is a mean of trees.

    Where a row has leaves for itself, the mean without the row is that of the other trees.
    """
    start = e.start()
    total = float(e.factors.sum())
    has_others = alone < total - _NEGLIGIBLE
    scale = total / (total - alone[has_others])
    others = (A - own - start)[has_others] * scale[:, None]
    own[has_others] = (A - start)[has_others] - others
    own[~has_others] = 0.0


def _second_derivatives(e: Ensemble, A: F64) -> F64:
    """(n, K) diagonal of h at the scores A (n, K)."""
    parts = []
    for start in range(0, len(A), _CHUNK):
        part = slice(start, start + _CHUNK)
        h = e.loss.hessian(e.loss.state(A[part]), e.y[part])
        parts.append(np.einsum("naa->na", h))
    return np.concatenate(parts)
