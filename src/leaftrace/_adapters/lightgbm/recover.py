"""Recovering numbers that a LightGBM model does not store in full, from its leaf values.

Leaf values have all digits and depend on everything. Parameters stand in a model file with six
digits, and so do the learning rates of a schedule. A few least-squares steps from the six digits
find the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64
from ..._model.ensemble import Ensemble, Rounding

# Parameters are fitted to the leaves of some of the first steps, of fewer if there are many rows.
FIRST_STEPS = 30
FITTED_STEPS = 8
FITTED_STEPS_OF_MANY_ROWS = 3
MANY_ROWS = 100_000
FOUND = 1e-11  # relative error of leaf values at which all digits are found

Build = Callable[[dict[str, Any]], Ensemble]  # the ensemble with these parameters


def row_terms(
    e: Ensemble, t: int, A: F64, drawn: NDArray[Any] | None = None
) -> Iterator[tuple[int, F64, F64, F64]]:
    """(tree, weights, w g, w h) of each tree of step t, at scores A (n, K).

    Weights and terms are those of the rows, (n,).
    """
    if e.coupled:
        g = e.gradients(A, t)
        h = e.second_derivatives(A, t)[:, :, None]
    else:
        state = e.loss.state(A)
        g = e.loss.gradient(state, e.y)
        h = e.loss.hessian(state, e.y)
    for r in range(*e.trees(t).indices(len(e.leaves))):
        o = slice(e.first_output[r], e.first_output[r] + 1)
        sample = np.ones(e.n_rows) if e.sample is None else np.asarray(e.sample[r], np.float64)
        sample = sample if drawn is None else sample * drawn
        wg = e.rounding.apply(g[:, o], e.w, sample)[:, 0]
        wh = e.rounding.apply(h[:, o, o], e.w, sample)[:, 0, 0]
        yield r, e.w * sample, wg, wh


def goss_sizes(e: Ensemble, t: int, A: F64, factor: float) -> NDArray[np.float32]:
    """(n,) the numbers by which GOSS ranks rows: |w g| w h, h times ``factor``."""
    out = np.zeros(e.n_rows, np.float32)
    for _, _, wg, wh in row_terms(e, t, A):
        out += np.abs(wg.astype(np.float32) * (factor * wh).astype(np.float32))
    return out


def leaf_steps(e: Ensemble, t: int, A: F64, drawn: NDArray[Any] | None = None) -> F64:
    """(M,) leaf values of step t before the learning rate, at scores A; zero for fixed leaves."""
    part = e.leaf_range(t)
    M = part.stop - part.start
    G = np.zeros(M)
    H = np.zeros(M)
    s = np.zeros(M)
    for r, _, wg, wh in row_terms(e, t, A, drawn):
        ids = e.leaves[r]
        if e.rule.statistic is not None:
            rows = e.drawn_rows(r) & (True if drawn is None else drawn > 0)
            output = int(e.first_output[r])
            residual = e.y[rows] - A[rows, output]
            s += e.rule.statistic_of(output)(ids[rows], M, residual, e.y[rows], e.w[rows])
        G += np.bincount(ids, wg, M)
        H += np.bincount(ids, wh, M)
    if e.step_nodes is not None:
        nodes = e.step_nodes[t]
        s = nodes.values(e.rule, G[:, None], H[:, None], e.lam)[:, 0]
    elif e.rule.statistic is None:
        leaf_l2 = 0.0 if e.leaf_l2 is None else e.leaf_l2[part]
        s = e.rule.step(G, H, H + e.lam + leaf_l2)[0]
    return s if e.fixed is None else np.where(e.fixed[part], 0.0, s)


def roughly_agree(e: Ensemble, t: int, A: F64, drawn: NDArray[Any]) -> bool:
    """Whether these rows give step t its leaf values, to four digits."""
    s = leaf_steps(e, t, A, drawn)
    values = e.values[e.leaf_range(t), 0]
    return bool(np.all(np.abs(e.rate(t) * s - values)[s != 0] <= 1e-4 * np.abs(values).max()))


def scores_by_step(e: Ensemble, steps: int) -> Iterator[tuple[int, F64]]:
    """(t, the model's scores before step t) for the first steps."""
    A = e.start()
    for t in range(steps):
        e.move(t, e.leaves, A)
        yield t, A


def recover_rates(e: Ensemble, rounded: F64) -> Ensemble:
    """The ensemble with the learning rate of each step that gives its leaves.

    ``rounded`` (T,): the rates in the model, with six digits; NaN: the model does not store it. A
    rate that differs from its six digits is not taken.
    """
    found = rounded.copy()
    for t, A in scores_by_step(e, e.n_steps):
        s = leaf_steps(e, t, A)
        if s.any():
            rate = s @ e.values[e.leaf_range(t), 0] / (s @ s)
            if not abs(rate - rounded[t]) > 1e-5 * abs(rounded[t]):
                found[t] = rate
    return replace(e, learning_rate=np.where(np.isnan(found), 1.0, found))


def recover_parameters(build: Build, params: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The parameters, those of these names with all their digits.

    All names are fitted at once, then each alone, until the leaf values are found.
    """
    best = params
    best_error = _largest_error(build(params))
    for fitted in dict.fromkeys([tuple(names), *((name,) for name in names)]):
        if best_error <= FOUND:
            break
        found = _fit(build, params, list(fitted))
        error = _largest_error(build(found))
        if error < best_error:
            best = found
            best_error = error
    return best


def _leaf_errors(e: Ensemble) -> F64:
    """Errors of the leaf values of some steps."""
    first = min(FIRST_STEPS, e.n_steps)
    count = FITTED_STEPS if e.n_rows < MANY_ROWS else FITTED_STEPS_OF_MANY_ROWS
    fitted = set(np.linspace(0, first - 1, count).astype(int).tolist())
    found = [
        e.rate(t) * leaf_steps(e, t, A) - e.values[e.leaf_range(t), 0]
        for t, A in scores_by_step(e, first)
        if t in fitted
    ]
    return np.concatenate(found)


def _largest_error(e: Ensemble) -> float:
    """Largest of these errors, relative to the largest leaf value."""
    return float(np.abs(_leaf_errors(e)).max() / np.abs(e.values).max())


def _fit(build: Build, params: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The parameters with those of these names fitted to the leaf values, near their six digits."""
    start: F64 = np.array([float(params[name]) for name in names])

    def at(x: F64) -> dict[str, Any]:
        return {**params, **dict(zip(names, x.tolist(), strict=True))}

    def smooth(x: F64) -> F64:
        return _leaf_errors(replace(build(at(x)), rounding=Rounding()))

    h = 1e-6 * start * np.eye(len(start))
    slopes = np.stack([(smooth(start + d) - smooth(start - d)) / (2 * d.sum()) for d in h], axis=1)
    x = start
    for _ in range(10):
        change = np.linalg.lstsq(slopes, _leaf_errors(build(at(x))), rcond=1e-9)[0]
        x = np.clip(x - change, start - 1e-5 * np.abs(start), start + 1e-5 * np.abs(start))
        if np.all(np.abs(change) <= 1e-14 * np.abs(start)):
            break
    return at(x)
